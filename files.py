"""Files that are whole or absent, and locks between processes.

A process can be killed at any moment. A file written here is complete under a temporary name first and then renamed,
which the operating system does in one step: readers see the old content or the new, never half of it.
"""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # a system without it: files are written, but not locked
    fcntl = None  # type: ignore[assignment]


def write_atomically(path: Path, data: str | bytes, *, sync: bool = False) -> None:
    """Write the file `path` whole or not at all; text is written as UTF-8.

    Args:
        path: the file; an older one is replaced.
        data: its whole content.
        sync: wait until the content is on disk, where it survives a power failure.
    """
    with replace_atomically(path, sync=sync) as file:
        file.write(data.encode("utf-8") if isinstance(data, str) else data)


@contextmanager
def replace_atomically(path: Path, *, sync: bool = False) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path` that takes its place when the block ends without an error."""
    draft = path.with_name(f"{uuid.uuid4().hex}.tmp")
    try:
        with draft.open("wb") as file:
            yield file
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    if sync:
        sync_to_disk(path.parent)


def sync_to_disk(path: Path) -> None:
    """Wait until a file's content, or the names in a folder, are on disk and survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Hold the lock on `path`, which is created if missing; raises `BlockingIOError` if another process holds it."""
    with path.open("w") as file:
        if not try_lock(file.fileno()):
            raise BlockingIOError(f"{path}: another process holds this lock")
        yield


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Lock an open file until it is closed; True on a system or file system that has no locks.

    Args:
        descriptor: of the open file.
        shared: share the lock with other processes that ask for a shared one. An exclusive holder is waited for; the
            exclusive lock itself is not waited for.

    Returns:
        False if the exclusive lock is asked for and another process holds one of either kind.
    """
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        pass
    return True
