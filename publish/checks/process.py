"""Runs code of others in a process with limits on time and memory, and none of this one's variables.

It is run, not contained: docs/security.md.
"""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MAX_OUTPUT = 2**16  # bytes that are read: the last ones
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")  # each thread's buffers count as memory
# Sets limits of the kernel (KiB, seconds; files of 1 GiB), where the system has them, and becomes the command
LIMITED = """
for limit in "c 0" "f 2097152" "d $1" "t $2"; do ulimit -${limit% *} ${limit#* } 2>/dev/null || :; done
shift 2
exec "$@"
"""


@dataclass(frozen=True)
class Limits:
    """What one process of a check may take."""

    seconds: float = 120.0
    memory: int = 4 * 2**30  # bytes it may write to (Linux)
    episode: float = 30.0  # seconds that one episode may take


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
    variables: Mapping[str, str] | None = None,
    descriptors: Collection[int] = (),
) -> Outcome:
    """Run a command and everything it starts; what is left of it when it ends is ended, too.

    Args:
        home: its home folder, in which its temporary files lie, too.
        limits: of the whole command.
        variables: environment variables beside PATH, HOME and TMPDIR.
        descriptors: of open files that it may write to.
    """
    home.mkdir(parents=True, exist_ok=True)
    env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(home), "TMPDIR": str(home), "LANG": "C.UTF-8"}
    launch = ["sh", "-c", LIMITED, "sh", str(limits.memory // 1024), str(int(limits.seconds * 2) + 1)]
    started = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [*launch, *map(str, command)],
            cwd=folder,
            env=env | dict.fromkeys(THREADS, "1") | dict(variables or {}),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=descriptors,
        )
        try:
            status: int | None = process.wait(limits.seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:  # also after Ctrl-C: the process, and those that it started and left in its session
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(max(0, output.seek(0, os.SEEK_END) - MAX_OUTPUT))
        return Outcome(status, output.read(MAX_OUTPUT).decode("utf-8", "replace"), time.monotonic() - started)
