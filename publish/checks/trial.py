"""What the checks of one package share: the project, a folder for it elsewhere, its wheel, the fresh environment."""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from .process import Limits, Outcome, run_limited
from .project import Project
from .rows import Failed, NotTried

CHILD = Path(__file__).with_name("child.py")


@dataclass
class Trial:
    """One check of one package.

    Args:
        project: the copy of it.
        folder: everything that the check writes lies in here.
        limits: of each process.
        wheel: its wheel, after the row `wheel`.
        python: that of the fresh environment, after the row `dependencies`.
    """

    project: Project
    folder: Path
    limits: Limits = field(default_factory=Limits)
    wheel: Path | None = None
    python: Path | None = None
    _lock: Any = field(default_factory=Lock)
    _runs: dict[str, "Future[Inside]"] = field(default_factory=dict)

    def run(self, name: str, command: Sequence[str | Path], folder: Path | None = None, **given: Any) -> Outcome:
        """Run a command in the limits; `name` is that of its home folder."""
        home = self.folder / "homes" / name.replace(" ", "-")
        home.mkdir(parents=True, exist_ok=True)
        return run_limited(command, folder=folder or home, home=home, limits=self.limits, **given)

    def run_inside(
        self,
        module: str,
        function: str,
        *,
        name: str,
        opens: bool = True,
        offline: bool = False,
        variables: Mapping[str, str] | None = None,
    ) -> "Inside":
        """Run a function of this folder in the fresh environment.

        Args:
            module: its module.
            function: its name.
            name: of the process; rows that give the same one look at one process.
            opens: whether it takes the opened environment and the project, or the project alone.
            offline: whether calls are refused throughout, and not only while the package is imported.
            variables: environment variables.
        """
        with self._lock:
            is_first = name not in self._runs
            run = self._runs.setdefault(name, Future())
        if is_first:
            try:
                run.set_result(self._run_inside(module, function, name, opens, offline, variables))
            except BaseException as error:
                run.set_exception(error)
        return run.result()

    def _run_inside(
        self, module: str, function: str, name: str, opens: bool, offline: bool, variables: Mapping[str, str] | None
    ) -> "Inside":
        home = self.folder / "homes" / name.replace(" ", "-")
        home.mkdir(parents=True, exist_ok=True)
        project = {
            "name": self.project.name,
            "environment": self.project.environment,
            "module": self.project.module,
            "episode_seconds": self.limits.episode,
        }
        context = {
            "module": module,
            "function": function,
            "opens": opens,
            "offline": offline,
            "project": project,
            "root": str(self.folder),
            "result": str(home / "result.json"),
            "events": str(home / "events.jsonl"),
        }
        (home / "context.json").write_text(json.dumps(context), encoding="utf-8")
        command: list[str | Path] = [self.python or "", "-s", "-P", "-B", CHILD, home / "context.json"]
        outcome = self.run(name, command, variables=variables)
        return Inside(outcome, _read_json(home / "result.json"), _read_events(home / "events.jsonl"))


@dataclass(frozen=True)
class Inside:
    """How a function in the fresh environment ended: its result, and the actions that were refused."""

    outcome: Outcome
    result: Mapping[str, Any] | None
    refused: Sequence[tuple[str, str]]

    def get(self) -> Any:
        """The value that the function returned.

        Raises:
            Failed: it or the author's code failed, or the process ended before it.
            NotTried: it says so, or the code failed because an action of it was refused, which is a row of its own.
        """
        if self.result is not None and "value" in self.result:
            return self.result["value"]
        if self.refused:
            raise NotTried(f"it stopped because this was refused: {' '.join(self.refused[0])}")
        if self.result is None:
            raise Failed(self.outcome.explain())
        if self.result.get("kind") == "NotTried":
            raise NotTried(str(self.result.get("finding")))
        raise Failed(str(self.result.get("finding")), self.result.get("mend"))

    def list_refused(self, kind: str) -> list[str]:
        """The refused actions of a kind, each once."""
        return list(dict.fromkeys(detail for found, detail in self.refused if found == kind))


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return read if isinstance(read, dict) else None


def _read_events(path: Path) -> list[tuple[str, str]]:
    if not path.is_file():
        return []
    events = []
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file.readlines(2**20):
            try:
                kind, detail = json.loads(line)
                events.append((str(kind), str(detail)))
            except (ValueError, TypeError):
                continue
    return events
