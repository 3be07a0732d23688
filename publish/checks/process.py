"""Runs an author's code in a process of its own, with limits on time and memory, and none of this one's variables."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ...utils.files import open_regular

LAUNCH = Path(__file__).with_name("launch.py")
MAX_OUTPUT = 2**16  # bytes of output that are read: the last ones
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")  # each thread's buffers count as memory


_running: "set[subprocess.Popen[bytes]]" = set()


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
        """Why a process that gave no result ended, with the end of what it printed."""
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
        _running.add(process)
        try:
            status: int | None = process.wait(limits.seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _end_all(process)
            _running.discard(process)
    return Outcome(status, read_end(log), time.monotonic() - started)


def end_running() -> None:
    """End all that `run_limited` runs in other threads; their outcomes are those of a signal."""
    for process in tuple(_running):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def _end_all(process: "subprocess.Popen[bytes]") -> None:
    """End a process and those that it started and left in its session."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def read_end(path: Path) -> str:
    """The end of what a process printed; empty if it left no regular file."""
    try:
        with open_regular(path, limit=sys.maxsize, inside=path.parent) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - MAX_OUTPUT))
            return file.read(MAX_OUTPUT).decode("utf-8", "replace")
    except OSError:
        return ""
