"""What the checks of one package share: the project, a folder for it elsewhere, its wheel, the fresh environment."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any

from ...utils.files import open_regular, read_regular, write_atomically
from .process import Limits, Outcome, read_end, run_limited
from .project import Project
from .rows import Check, Failed, NotTried

CHILD = Path(__file__).with_name("child.py")
MAX_RESULT, MAX_EVENTS = 2**22, 2**20  # bytes that are read of what a process wrote


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
        job = {"name": name, "module": module, "function": function}
        return self._do_once(name, lambda: self._start(name, [job], opens, offline, variables))

    def run_batch(self, checks: Sequence[Check], name: str) -> "Inside":
        """The result of one of the checks that run inside; one process imports the package for all of them."""
        jobs = [self._describe_job(check) for check in checks]
        batch = self._do_once("batch", lambda: self._start("batch", jobs, True, False, None))
        ended = (batch.result or {}).get("value")
        if len(jobs) == 1 or not isinstance(ended, dict):
            return batch
        job, end = next(job for job in jobs if job["name"] == name), ended[name]
        outcome = Outcome(end.get("status"), read_end(Path(job["output"])), end.get("seconds", 0.0))
        return Inside(outcome, _read_json(Path(job["result"])), _read_events(Path(job["events"])))

    def _describe_job(self, check: Check) -> dict[str, Any]:
        home = self.folder / "homes" / "batch"
        place = str(home / check.name.replace(" ", "-"))
        return {
            "name": check.name,
            "module": check.run.__module__.rpartition(".")[2],
            "function": check.run.__name__,
            "needs": list(check.needs),
            "result": f"{place}-result.json",
            "events": f"{place}-events.jsonl",
            "output": f"{place}-output.txt",
        }

    def _do_once(self, name: str, start: "Callable[[], Inside]") -> "Inside":
        with self._lock:
            is_first = name not in self._runs
            run = self._runs.setdefault(name, Future())
        if is_first:
            try:
                run.set_result(start())
            except BaseException as error:
                run.set_exception(error)
        return run.result()

    def _start(
        self,
        name: str,
        jobs: Sequence[Mapping[str, Any]],
        opens: bool,
        offline: bool,
        variables: Mapping[str, str] | None,
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
            "jobs": jobs,
            "opens": opens,
            "offline": offline,
            "seconds": self.limits.seconds,
            "project": project,
            "root": str(self.folder),
            "result": str(home / "result.json"),
            "events": str(home / "events.jsonl"),
        }
        write_atomically(home / "context.json", json.dumps(context))
        command: list[str | Path] = [self.python or "", "-s", "-P", "-B", CHILD, home / "context.json"]
        whole = replace(self.limits, seconds=self.limits.seconds * len(jobs))
        outcome = run_limited(command, folder=home, home=home, limits=whole, variables=variables)
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
        read = json.loads(read_regular(path, limit=MAX_RESULT, inside=path.parent))
    except (OSError, ValueError, RecursionError):
        return None
    return read if isinstance(read, dict) else None


def _read_events(path: Path) -> list[tuple[str, str]]:
    events = []
    try:
        with open_regular(path, limit=sys.maxsize, inside=path.parent) as file:
            lines = file.read(MAX_EVENTS).decode("utf-8", "replace").splitlines()
    except OSError:  # there is none, or no regular file
        return []
    for line in lines:
        try:
            kind, detail = json.loads(line)
            events.append((str(kind), str(detail)))
        except (ValueError, TypeError, RecursionError):
            continue
    return events
