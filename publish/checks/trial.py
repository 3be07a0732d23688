"""What the checks of one package share: its copy and wheel, its fresh environment, and the processes of its code.

A process has limits on time and memory, and none of this one's variables. Its code is run, not contained.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...utils.files import open_regular, read_regular, write_atomically
from .project import Project
from .rows import Check, Failed, NotTried

CHILD, LAUNCH = Path(__file__).with_name("child.py"), Path(__file__).with_name("launch.py")
MAX_OUTPUT, MAX_REPORT = 2**16, 2**22  # bytes that are read: the last ones of an output, and all of a report
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")  # each thread's buffers count as memory


@dataclass(frozen=True)
class Limits:
    """What one process of a check may take.

    Args:
        seconds: until it is ended.
        memory: bytes it may write to (Linux).
        episode: seconds that one episode may take.
    """

    seconds: float = 120.0
    memory: int = 4 * 2**30
    episode: float = 30.0


@dataclass(frozen=True)
class Outcome:
    """How a process ended; `status` is None if it was ended because of its time."""

    status: int | None
    output: str
    seconds: float

    def explain(self) -> str:
        """Say why a process that gave no result ended, with the end of what it printed."""
        if self.status is None:
            reason = f"did not end within {self.seconds:.0f} s"
        elif self.status < 0:
            reason = f"was ended by signal {signal.Signals(-self.status).name}"
        else:
            reason = f"ended the process with status {self.status}"
        return f"{reason}{': ' + self.tail if self.tail else ''}"

    @property
    def tail(self) -> str:
        """The last lines of the output."""
        return "\n".join(self.output.strip().splitlines()[-8:])[-1500:]


def run_limited(
    command: Sequence[str | Path],
    *,
    folder: Path,
    home: Path,
    limits: Limits,
    path: Sequence[Path] = (),
    variables: Mapping[str, str] | None = None,
) -> Outcome:
    """Run a command and everything it starts; what is left of it when it ends is ended, too.

    Args:
        command: the program and its arguments.
        folder: its current folder.
        home: its home folder, in which its temporary files lie, too.
        limits: of the whole command.
        path: folders of programs, before those of the system.
        variables: environment variables beside PATH, HOME and TMPDIR.
    """
    home.mkdir(parents=True, exist_ok=True)
    env = {
        "PATH": os.pathsep.join([*map(str, path), os.environ.get("PATH", os.defpath)]),
        "HOME": str(home),
        "TMPDIR": str(home),
        "LANG": "C.UTF-8",
        **dict.fromkeys(THREADS, "1"),
        **(variables or {}),
    }
    launch = [sys.executable, "-I", str(LAUNCH), str(limits.memory), str(int(limits.seconds * 2) + 1)]
    log = home / f"output-{os.urandom(6).hex()}"
    started = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*launch, *map(str, command)],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status: int | None = process.wait(limits.seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:  # also after Ctrl-C: the process, and those that it started and left in its session
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return Outcome(status, read_end(log), time.monotonic() - started)


def read_end(path: Path) -> str:
    """Read the end of what a process printed; empty if it left no regular file."""
    try:
        with open_regular(path, limit=sys.maxsize, inside=path.parent) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - MAX_OUTPUT))
            return file.read(MAX_OUTPUT).decode("utf-8", "replace")
    except OSError:
        return ""


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
            NotTried: the code failed because an action of it was refused, which is a row of its own.
        """
        if self.result is not None and "value" in self.result:
            return self.result["value"]
        if self.refused:
            raise NotTried(f"it stopped because this was refused: {' '.join(self.refused[0])}")
        if self.result is None:
            raise Failed(self.outcome.explain())
        raise Failed(str(self.result.get("finding")), self.result.get("mend"))

    def require_end(self) -> None:
        """Raise `NotTried` if the function did not get to its end."""
        if self.result is None or "value" not in self.result:
            raise NotTried("the code did not get to its end, which is the failure of another row")

    def list_refused(self, kind: str) -> list[str]:
        """List the refused actions of a kind, each once."""
        return list(dict.fromkeys(detail for found, detail in self.refused if found == kind))


@dataclass
class Trial:
    """One check of one package.

    Args:
        project: the copy of it.
        folder: everything that the check writes lies in here.
        limits: of each process, and of each row in the fresh environment.
        inside: the chosen checks that run in the fresh environment.
        wheel: its wheel, after the row `wheel`.
        python: that of the fresh environment, after the row `dependencies`.
        watched: how the import (`import`) and an episode (`play`) went that were watched, after the first row of those.
    """

    project: Project
    folder: Path
    limits: Limits = field(default_factory=Limits)
    inside: Sequence[Check] = ()
    wheel: Path | None = None
    python: Path | None = None
    watched: Mapping[str, Inside] = field(default_factory=dict)
    _rows: dict[str, Inside] = field(default_factory=dict)

    def make_home(self, name: str) -> Path:
        """Make a home folder for a process."""
        homes = self.folder / "homes"
        homes.mkdir(exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=homes))

    def look_inside(self, name: str) -> Inside:
        """How the check of a row went in the fresh environment; of `import`, how the package was imported there.

        One process imports the package and runs all chosen checks, one after the other. If it ends before its time, the
        next row starts another for those that are left.
        """
        if name not in self._rows:
            names = [check.name for check in self.inside]
            left = self.inside[names.index(name) :] if name in names else self.inside
            self._rows |= self.run_inside(left, variables={"PYTHONHASHSEED": "1"})
        return self._rows[name]

    def run_inside(
        self, checks: Sequence[Check], *, offline: bool = False, variables: Mapping[str, str] | None = None
    ) -> dict[str, Inside]:
        """Import the package in a process of the fresh environment, and run the functions of checks there.

        Args:
            checks: their functions are in modules of this folder that are loaded there, too.
            offline: whether calls are refused throughout, and not only while the package is imported.
            variables: environment variables.

        Returns:
            How the import went (`import`), and each check up to the one in which the process ended.
        """
        home = self.make_home("inside")
        report = home / "report.jsonl"
        context = {
            "jobs": [_describe_job(one) for one in checks],
            "offline": offline,
            "seconds": self.limits.seconds,
            "project": {
                "name": self.project.name,
                "environment": self.project.environment,
                "module": self.project.module,
                "episode_seconds": self.limits.episode,
            },
            "root": str(self.folder),
            "report": str(report),
        }
        write_atomically(home / "context.json", json.dumps(context))
        command: list[str | Path] = [self.python or "", "-s", "-P", "-B", CHILD, home / "context.json"]
        whole = replace(self.limits, seconds=self.limits.seconds * (1 + len(checks)))
        outcome = run_limited(command, folder=home, home=home, limits=whole, variables=variables)
        if outcome.status == -signal.SIGALRM:  # the time of one function
            outcome = replace(outcome, status=None, seconds=self.limits.seconds)
        ended, refused = _read_report(report, outcome)
        names = ("import", *(one.name for one in checks))
        last = next((name for name in names if name not in ended), None)
        return ended if last is None else {**ended, last: Inside(outcome, None, refused)}


def _describe_job(check: Check) -> dict[str, Any]:
    module = check.run.__module__.rpartition(".")[2]
    return {"name": check.name, "module": module, "function": check.run.__name__, "needs": check.needs}


def _read_report(path: Path, outcome: Outcome) -> tuple[dict[str, Inside], list[tuple[str, str]]]:
    """Read what a process wrote of each function that ended, and which actions were refused after the last of them."""
    ended, refused = dict[str, Inside](), list[tuple[str, str]]()
    try:
        lines = read_regular(path, limit=MAX_REPORT, inside=path.parent).decode("utf-8", "replace").splitlines()
    except OSError:  # there is none, or no regular file
        return {}, []
    for line in lines:
        try:
            read = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(read, dict):
            ended[str(read.get("name"))], refused = Inside(outcome, read, refused), []
        elif isinstance(read, list) and len(read) == 2:
            refused.append((str(read[0]), str(read[1])))
    return ended, refused
