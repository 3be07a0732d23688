"""What the checks of one package share: its copy and unpacked wheel, and the two processes that play it."""

import json
import signal
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from .process import Limits, Outcome, run_limited
from .project import Project
from .rows import Check, Failed, NotTried, shorten

CHILD = Path(__file__).with_name("child.py")
MAX_REPORT = 2**22  # bytes that are read
# Variables that programs of the field read keys from; a check sets them to a word that must not be printed.
KEYS = (
    "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "HF_TOKEN", "WANDB_API_KEY", "PRIME_API_KEY", "GITHUB_TOKEN",
    "AWS_SECRET_ACCESS_KEY", "NCBI_API_KEY",
)  # fmt: skip
CANARY = "viewbox-check-canary-3f9d1c77"


@dataclass(frozen=True)
class Seen:
    """How a process of the author's code ended.

    Args:
        names: of the functions that it was to run, in their order.
        ended: what each gave, up to the one in which the process ended.
        refused: the kind and detail of each action that was refused.
    """

    outcome: Outcome
    names: Sequence[str]
    ended: Mapping[str, Mapping[str, Any]]
    refused: Sequence[Sequence[str]]

    def get(self, name: str) -> Any:
        """Return the value that a function returned.

        Raises:
            Failed: it failed, or the process ended in it.
            NotTried: the process ended before it.
        """
        if (result := self.ended.get(name)) is not None:
            if "value" in result:
                return result["value"]
            raise Failed(str(result.get("finding")), result.get("mend"))
        last = next(check for check in self.names if check not in self.ended)
        if last != name:
            raise NotTried(f"the process ended in the row {last}")
        raise Failed(self.outcome.explain())

    def require_end(self, name: str) -> None:
        """Raise `NotTried` if a function did not get to its end."""
        if "value" not in self.ended.get(name, {}):
            raise NotTried("the code did not get to its end, which is the failure of another row")

    def refuse(self, kind: str, what: str) -> None:
        """Raise `Failed` if actions of a kind were refused."""
        if details := [detail for refused, detail in self.refused if refused == kind]:
            raise Failed(f"{what} {shorten(list(dict.fromkeys(details)))}")


@dataclass
class Trial:
    """One check of one package.

    Args:
        folder: everything that the check writes lies in here.
        limits: of each process, and of each row in it.
        inside: the chosen checks that run in the process of the author's code.
        wheel: its wheel, after the row `wheel`.
        site: the folder that it is unpacked into, after the row `dependencies`.
        hidden: the modules of this environment that it does not declare, after that row.
    """

    project: Project
    folder: Path
    limits: Limits = field(default_factory=Limits)
    inside: Sequence[Check] = ()
    wheel: Path | None = None
    site: Path | None = None
    hidden: Collection[str] = ()

    def make_home(self, name: str) -> Path:
        """Make a home folder for a process."""
        homes = self.folder / "homes"
        homes.mkdir(exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=homes))

    @cached_property
    def first(self) -> Seen:
        """The process that imports the package and runs all chosen checks."""
        jobs = [(check.name, check.run.__name__, check.needs) for check in self.inside]
        return self._run(jobs, offline=False, variables={"PYTHONHASHSEED": "1"})

    @cached_property
    def second(self) -> Seen:
        """A process that plays again, orders sets differently, has keys in its variables, and may call nobody."""
        variables = {"PYTHONHASHSEED": "2", **dict.fromkeys(KEYS, CANARY)}
        return self._run([("plays", "describe_plays", ["import"])], offline=True, variables=variables)

    def _run(self, jobs: Sequence[tuple[str, str, Sequence[str]]], *, offline: bool, variables: dict[str, str]) -> Seen:
        """Import the package in a process, and run functions of `inside.py` there.

        Args:
            jobs: name, function and needs of each.
            offline: whether calls are refused throughout, and not only while the package is imported.
        """
        home = self.make_home("inside")
        with tempfile.TemporaryFile() as report:
            context = {
                "jobs": jobs,
                "offline": offline,
                "seconds": self.limits.seconds,
                "project": {
                    "name": self.project.name,
                    "environment": self.project.environment,
                    "module": self.project.module,
                    "episode_seconds": self.limits.episode,
                },
                "root": str(self.folder),
                "hidden": sorted(self.hidden),
                "report": report.fileno(),
            }
            outcome = run_limited(
                [sys.executable, "-s", "-P", "-B", CHILD, json.dumps(context)],
                folder=home,
                home=home,
                limits=replace(self.limits, seconds=self.limits.seconds * (1 + len(jobs))),
                variables={**variables, "PYTHONPATH": str(self.site)},
                descriptors=[report.fileno()],
            )
            report.seek(0)
            lines = report.read(MAX_REPORT).decode("utf-8", "replace").splitlines()
        if outcome.status == -signal.SIGALRM:  # the time of one function
            outcome = replace(outcome, status=None, seconds=self.limits.seconds)
        read: list[Any] = []
        for line in lines:
            with suppress(ValueError, RecursionError):  # the author's code wrote it
                read.append(json.loads(line))
        ended = {str(entry.get("name")): entry for entry in read if isinstance(entry, dict)}
        refused = [entry for entry in read if isinstance(entry, list) and len(entry) == 2]
        return Seen(outcome, ["import", *(job[0] for job in jobs)], ended, refused)
