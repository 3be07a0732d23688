"""How a command ends. One rule for all:

0    all that was asked was done
1    something was left out or failed, after the rest was done and what is missing was said; or viewbox itself failed
2    the input is wrong, or nothing could be done: nothing played, kept, exported, compared or shown
130  it was stopped

What a user chose to leave out (`--where`, `--best`) is not missing. An episode that a fault ended
was played and stored; only a run of nothing else is 2.

The user gets one message. What the system refuses (a file's rights, a read-only disk) is input. The traceback of a
failure goes to a file that the message names: `crash.log` in the folder of the run if there is one.
"""

import atexit
import errno
import gc
import importlib.metadata
import importlib.util
import os
import sys
import sysconfig
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from ..errors import ViewboxError
from .concurrency import unwrap
from .files import check_writable
from .secrets import mask_assignments, mask_message
from .terminal import describe_error, make_printable, protect_output

LOG = "crash.log"
REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.ELOOP)
atexit.register(gc.freeze)  # the system takes back what is left: to look for what is unused takes a second of torch
PARSERS = ("argparse", "click", "typer", "rich")  # which exit after --help, or when nobody reads it


def guard(work: Callable[[], int]) -> int:
    """Run the work of a command and return its exit status; a failure prints one message to stderr.

    >>> guard(lambda: 0)
    0
    """
    protect_output()
    try:
        return work()
    except ViewboxError as error:
        return _print_error(f"error: {error}", 2)
    except KeyboardInterrupt:
        return _print_error("stopped", 130)
    except BrokenPipeError:  # who reads what is printed has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except BaseException as error:
        author, last = _find_author(error), str(traceback.extract_tb(error.__traceback__)[-2:])  # W&B wraps sys.exit
        if author is None and isinstance(error, SystemExit) and any(name in last for name in PARSERS):
            raise
        if is_disk_full(error):
            log = getattr(error, "crash_log", None)  # of a run
            where = getattr(error, "filename", None) or log
            place = f" ({Path(where).parent})" if where else ""
            more = "; a run continues with --resume" if log else ""
            return _print_error(f"error: the disk is full{place}: free some space{more}", 2)
        if author is None and (refused := _describe_refusal(unwrap(error))):
            return _print_error(f"error: {refused}", 2)
        log = getattr(error, "crash_log", None) or _write_traceback(error)
        said = f"error: {author or 'viewbox failed'}: {describe_error(unwrap(error), 300)}"
        return _print_error(f"{said}\nthe traceback is in {log}", 1 if author is None else 2)


def _find_author(error: BaseException | None) -> str | None:
    """Return the last line of a traceback in a file that belongs neither to viewbox nor to what is installed."""
    others = (str(Path(__file__).parents[1]), *sysconfig.get_paths().values(), "<")
    while error is not None:
        for frame in reversed(traceback.extract_tb(error.__traceback__)):
            if not frame.filename.startswith(others) and not frame.filename.startswith(_list_packages_beside()):
                return f"{frame.filename}, line {frame.lineno}"
        error = error.__cause__
    return None


@cache
def _list_packages_beside() -> tuple[str, ...]:
    """Return the packages in the folder where pip laid pydantic: that of `pip install --target` is none of Python's."""
    beside = importlib.util.find_spec("pydantic")
    folder = Path(beside.origin).parents[1] if beside and beside.origin else Path()
    names = importlib.metadata.packages_distributions()
    return tuple(f"{folder / name}{end}" for name in names for end in (os.sep, ".py"))


def _describe_refusal(error: BaseException) -> str:
    """Return what the system refuses to a program that is right, and of which file; "" for any other error."""
    if isinstance(error, FileNotFoundError) and error.filename is None:  # of the folders that every program has
        try:
            return f"{error.strerror} in {os.getcwd()}"
        except OSError:
            return "the current folder was removed: go to another one"
    if isinstance(error, OSError) and error.errno in REFUSED and error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    return ""


@contextmanager
def log_failures(folder: Path) -> Iterator[None]:
    """Write the traceback of a failure inside the block to `folder`."""
    try:
        yield
    except ViewboxError:
        raise
    except Exception as error:
        error.crash_log = _write_traceback(error, folder)  # type: ignore[attr-defined]
        raise


def _write_traceback(error: BaseException, folder: Path | None = None) -> Path | str:
    path = Path(LOG)
    try:
        folder = folder or Path(tempfile.mkdtemp(prefix="viewbox-"))
        path = folder / LOG
        check_writable(path, folder)
        with open(path, "a", encoding="utf-8") as file:  # every process of a run writes to the one file
            text = make_printable(mask_message("".join(traceback.format_exception(error))))
            file.write(f"process {os.getpid()}\n{text}\n")
    except OSError as problem:
        return f"no file ({path}: {problem.strerror})"
    return path


def _print_error(message: str, status: int) -> int:
    print(make_printable(mask_assignments(message)), file=sys.stderr)
    return status


def is_disk_full(error: BaseException | None) -> bool:
    """Return whether an error, or one that caused it, says that no more can be written.
    torch and safetensors report it in words of their own.

    >>> is_disk_full(OSError(errno.ENOSPC, "No space left on device")), is_disk_full(ValueError("no"))
    (True, False)
    """
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return True
        if any(words in str(error) for words in ("No space left on device", "os error 28", "os error 27")):
            return True
        if "PytorchStreamWriter failed writing file" in str(error) or "] . unexpected pos" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False
