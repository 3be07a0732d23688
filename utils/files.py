"""Files and folders that are whole or absent, files that others made, and locks between processes.

A process can be killed at any moment. A file written here is complete under a temporary name first and then renamed,
which the operating system does in one step: readers see the old content or the new, never half of it. Folders above it
are made. Whatever a user names to be written goes through `check_out` before any work is done.

A file in somebody's run may be a pipe that never ends, a link to another file of this machine, or larger than memory.
`open_regular` and `read_regular` refuse all three.
"""

import errno
import fcntl
import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO, Literal

from ..errors import ConfigError, describe_value
from .secrets import is_secret_name

MAX_DECODED = 2**30  # bytes that a packed file may become in memory, beyond its own size
_BUFFER = 2**16  # bytes read at a time: the lines of a run are long
MAX_UNPACKED = 2**25  # bytes that a part of a container may unpack to, however few are stored
MAX_RATIO = 8  # and for each byte that is stored: more than pictures in Base64 need
_VARIABLE = re.compile(r"\$(?:(\w+)|\{([^}]*)\}|\{)")
Written = Literal["file", "folder", "new"]
_ALLOWED: dict[Written, str] = {
    "file": "a file, which is made or replaced",
    "folder": "a folder, which is made if it is missing",
    "new": "a name that does not exist yet",
}


def expand_path(text: str, *, where: str = "", key: str | None = None) -> str:
    """Return a path with `~`, `~name`, `$NAME` and `${NAME}` replaced; a name on a hub stays as it is.
    Raise `ConfigError` if there is no such user or variable, or if the variable is named like a secret, which a path
    would carry into messages and requests. `where` begins the message."""

    def read(match: re.Match[str]) -> str:
        name = match[1] or match[2] or "{"  # not closed
        value = os.environ.get(name)
        if not value or is_secret_name(name):
            problem = f"{name!r} {'is named like a secret' if value else 'is not set'}; allowed: one that holds a path"
            raise ConfigError(f"{where}the environment variable {problem}", key=key)
        return value

    path = os.path.expanduser(_VARIABLE.sub(read, text))
    if path.startswith("~"):
        raise ConfigError(f"{where}there is no user {path.partition('/')[0]!r}; allowed: ./{path}", key=key)
    return path


def check_out(given: str | Path, kind: Written, option: str = "--out") -> Path:
    """Return the path that an option names to be written; nothing is left there. Raise `ConfigError` if it cannot be.
    `kind` is "file": new or replaced, "folder": new or written into, or "new": a file or folder that must not exist."""
    try:
        problem = _find_obstacle(Path(given), kind, option) if str(given).strip() else "the name is empty"
    except (OSError, ValueError) as error:
        problem = f"cannot be written ({getattr(error, 'strerror', None) or error})"
    if problem:
        text, key = describe_value(str(given)), option.strip("-").replace("-", "_").lower()
        raise ConfigError(f"{option} {text}: {problem}; allowed: {_ALLOWED[kind]}", key=key)
    return Path(given)


def _find_obstacle(path: Path, kind: Written, option: str) -> str:
    """Return why `path` cannot be written, or ""; raise `OSError` or `ValueError` if the system says why."""
    nearest = find_existing(path)
    for name in (path, nearest / max((*path.parts, "."), key=len)):  # too long, or not a name
        with suppress(FileNotFoundError, NotADirectoryError):
            os.lstat(name)
    if nearest == path and kind == "new":
        return f"exists; give another {option}"
    if nearest == path and kind == "file" and not path.is_file():
        return "is a folder" if path.is_dir() else "is not a regular file"
    if not nearest.is_dir() and (nearest != path or kind == "folder"):
        return f"{nearest} is not a folder"
    draft = (nearest if nearest.is_dir() else path.parent) / f".{uuid.uuid4().hex}.tmp"
    draft.touch(exist_ok=False)  # the rights alone do not tell: the disk may be read-only
    draft.unlink()
    return ""


def find_existing(path: Path) -> Path:
    """Return the path, or the nearest folder above it that exists."""
    return next((parent for parent in (path, *path.parents) if os.path.lexists(parent)), Path())


def begin_line(file: int) -> bytes:
    """Return what comes before a line that is appended: a line break after a line that a killed process left torn."""
    size = os.fstat(file).st_size
    return b"\n" if size and os.pread(file, 1, size - 1) != b"\n" else b""


def write_atomically(path: Path, data: str | bytes) -> None:
    """Write the file `path` whole or not at all; text is written as UTF-8. An older file is replaced."""
    with replace_atomically(path) as file:
        file.write(data.encode("utf-8") if isinstance(data, str) else data)


@contextmanager
def replace_atomically(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path` that takes its place when the block ends without an error."""
    with _rename_draft(path) as draft, draft.open("wb") as file:
        yield file


@contextmanager
def create_whole(path: str | Path, option: str = "--out") -> Iterator[Path]:
    """Lend a place beside `path`, for a file or a folder, that is renamed to `path` when the block ends without an
    error."""
    path = check_out(path, "new", option)
    try:
        with _rename_draft(path) as draft:
            yield draft
    except OSError as error:
        problem = f"cannot be written ({error.strerror or error})"
        raise ConfigError(f"{option} {str(path)!r}: {problem}", key="out") from error


@contextmanager
def _rename_draft(path: Path) -> Iterator[Path]:
    """Lend a hidden name beside `path`, which is renamed to `path` at the end; after a `kill -9` it may be left."""
    made = [folder for folder in path.parents if not os.path.lexists(folder)]
    draft = path.with_name(f".{uuid.uuid4().hex}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield draft
        os.replace(draft, path)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):  # which names no file
            error.filename = str(path)
        raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)  # does nothing to a file
        for remove in (draft.unlink, *(folder.rmdir for folder in made)):
            with suppress(OSError):  # it was renamed; the folder holds what was written
                remove()


def sync_to_disk(path: Path) -> None:
    """Wait until a file's content, or the names in a folder, are on disk and survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def get_cache_folder() -> Path:
    """Return viewbox's part of the user's folder for caches, as the XDG Base Directory Specification names it."""
    stated = Path(os.environ.get("XDG_CACHE_HOME", ""))
    home = Path(os.path.expanduser("~"))
    if not stated.is_absolute() and not home.is_absolute():
        raise ConfigError("HOME is not set, so there is no folder for caches; allowed: set HOME or XDG_CACHE_HOME")
    return (stated if stated.is_absolute() else home / ".cache") / "viewbox"


def open_regular(path: str | Path, *, limit: int, inside: Path | None = None) -> BinaryIO:
    """Open a regular file for reading. It has at most `limit` bytes, and lies in the folder `inside`, with all links
    followed; None: anywhere. Raise `OSError` if it is missing, too large, outside the folder, or a pipe, device or
    folder. `strerror` says which."""
    if inside is not None:
        check_inside(Path(path), inside)
    _check_regular(os.stat(path), path, limit)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        _check_regular(os.fstat(descriptor), path, limit)  # what was opened: the name may stand for another file now
        return os.fdopen(descriptor, "rb", _BUFFER)
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: str | Path, *, limit: int, inside: Path | None = None) -> bytes:
    """Return the content of a regular file; see `open_regular`."""
    with open_regular(path, limit=limit, inside=inside) as file:
        content = file.read(limit + 1)
    if len(content) > limit:  # it grew, or the file system does not know its size
        raise _refuse(path, errno.EFBIG, f"more than {limit:,} bytes")
    return content


def read_unpacked(stream: IO[bytes], packed: int) -> bytes:
    """Return all that a part of a container unpacks to, of which `packed` bytes are stored. Raise `ValueError` if it is
    more than `MAX_UNPACKED` bytes, and more than `MAX_RATIO` times what is stored."""
    allowed = max(MAX_UNPACKED, MAX_RATIO * packed)
    content = stream.read(allowed + 1)
    if len(content) > allowed:
        raise ValueError(f"unpacks to more than {allowed:,} bytes from {packed:,}")
    return content


def check_inside(path: Path, inside: Path) -> None:
    """Raise `OSError` if `path` leads out of the folder `inside` once all links are followed."""
    try:
        leaves = not path.resolve().is_relative_to(inside.resolve())
    except RuntimeError:  # a circle of links
        leaves = True
    if leaves:
        raise _refuse(path, errno.ELOOP, f"a link that leads out of {inside}")


def check_writable(path: Path, inside: Path) -> None:
    """Raise `OSError` if writing `path` would write outside the folder `inside`, or into a link, pipe or device.
    A file with a second name (a hard link) is refused too: that name may be anywhere."""
    check_inside(path, inside)
    if path.is_symlink():
        raise _refuse(path, errno.ELOOP, "a link, not a file of its own")
    if path.exists() and not path.is_file() and not path.is_dir():
        raise _refuse(path, errno.EINVAL, "not a regular file")
    check_one_name(path)


def check_one_name(path: Path) -> None:
    """Raise `OSError` if a file has several names (hard links): what is written to it appears under all of them."""
    if path.is_file() and path.stat().st_nlink > 1:
        raise _refuse(path, errno.EMLINK, "a file with several names (hard links)")


def _check_regular(status: os.stat_result, path: str | Path, limit: int) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise _refuse(path, errno.EISDIR, "a folder")
    if not stat.S_ISREG(status.st_mode):
        raise _refuse(path, errno.EINVAL, "not a regular file")
    if status.st_size > limit:
        raise _refuse(path, errno.EFBIG, f"{status.st_size:,} bytes; allowed: {limit:,}")


def _refuse(path: str | Path, number: int, reason: str) -> OSError:
    return OSError(number, reason, str(path))


@contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Hold the lock on `path`, which is created if missing; raise `BlockingIOError` if another process holds it."""
    check_writable(path, path.parent)
    with path.open("w") as file:
        if not try_lock(file.fileno()):
            raise BlockingIOError(f"{path}: another process holds this lock")
        yield


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Lock an open file until it is closed; True on a file system that has no locks.

    Args:
        descriptor: of the open file.
        shared: share the lock with other processes that ask for a shared one. An exclusive holder is waited for; the
            exclusive lock itself is not waited for.

    Returns:
        False if the exclusive lock is asked for and another process holds one of either kind.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        pass
    return True


def fill_template(path: Path, **values: object) -> str:
    """Return the text of a Jinja2 template beside the code: a card, a page, a script. It takes values as they are."""
    from jinja2 import Environment, StrictUndefined

    made = Environment(trim_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined)
    return made.from_string(path.read_text(encoding="utf-8")).render(values)
