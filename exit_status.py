"""How a command ends: 2 where something given is wrong, 1 where viewbox itself failed, 130 where it was stopped.

Whoever typed the command gets one message. The traceback of a failure is for us: it goes to a file that the message
names, `crash.log` in the run's folder where there is one.
"""

import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from viewbox.errors import ViewboxError

LOG = "crash.log"


def guard(work: Callable[[], int]) -> int:
    """The exit status of a command's work, which prints one message to stderr where it fails.

    >>> guard(lambda: 0)
    0
    """
    try:
        return work()
    except ViewboxError as error:
        return _say(f"error: {error}", 2)
    except KeyboardInterrupt:
        return _say("stopped", 130)
    except Exception as error:
        log = getattr(error, "crash_log", None) or _write(error, Path(tempfile.mkdtemp(prefix="viewbox-")))
        lines = str(error).splitlines() or [""]
        return _say(f"error: viewbox failed: {type(error).__name__}: {lines[0]:.300}\nthe traceback is in {log}", 1)


@contextmanager
def logged_in(folder: Path) -> Iterator[None]:
    """Failures inside leave their traceback in `folder`."""
    try:
        yield
    except ViewboxError:
        raise
    except Exception as error:
        error.crash_log = _write(error, folder)  # type: ignore[attr-defined]
        raise


def _write(error: Exception, folder: Path) -> Path | str:
    path = folder / LOG
    try:
        with open(path, "a", encoding="utf-8") as file:  # every process of a run writes to the one file
            file.write(f"process {os.getpid()}\n{''.join(traceback.format_exception(error))}\n")
    except OSError as problem:
        return f"no file ({path}: {problem.strerror})"
    return path


def _say(message: str, status: int) -> int:
    print(message, file=sys.stderr)
    return status
