"""Where an image may come from: a regular file or a folder inside the task's folder, bytes, or a `data:` URL."""

import base64
import os
import re
import stat
import unicodedata
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO, NamedTuple

import numpy as np

from ...errors import ImageError
from .. import limits

MAX_NAME = 80  # characters of a name that a message shows
PART = 2**22  # bytes read at a time
ImageLocation = str | os.PathLike[str] | bytes  # a path, a data: URL, or the bytes of a file
Folder = str | os.PathLike[str]
Reserve = Callable[[int], None]  # called once before pixels are decoded, with their bytes
DETACHED = (".mhd", ".nhdr")  # headers of MetaImage and NRRD, which may name a file beside them that has the pixels
NO_WAIT = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY  # nor follow a link
MAX_PATH = 2**14  # characters of a path that may select a part
# a SeriesNumber or a SeriesInstanceUID; a group of slices that are alike, or a segment
_SELECTED = re.compile(r"(.+?)(?:#series=([0-9][0-9.]{0,63}))?(?:#stack=([0-9]{1,5}))?", re.DOTALL)


class StackSelection(NamedTuple):
    """What is opened of a folder or a file that holds several."""

    series: str | None = None  # a SeriesNumber or a SeriesInstanceUID
    stack: int | None = None  # the number of a group of slices that are alike, from 1, or of a segment
    header: str | None = None  # the file of a folder that is opened, which may name another one in it

    def __str__(self) -> str:
        parts = (("series", self.series), ("stack", self.stack))
        return "".join(f"#{name}={value}" for name, value in parts if value is not None)


WHOLE = StackSelection()


def describe_location(where: ImageLocation) -> str:
    """Return the name of an image in messages: the last part of its path, or a description if it has no path.

    >>> describe_location("/data/case 7/slice.png"), describe_location("data:image/png;base64,AAAA")
    ("'slice.png'", '(data URL)')
    >>> describe_location(b"123")
    '(3 bytes)'
    """
    if isinstance(where, bytes):
        return f"({len(where)} bytes)"
    path = os.fspath(where)
    if is_data_url(path):
        return "(data URL)"
    name = os.path.basename(path.rstrip("/")) or path[-MAX_NAME:]
    return repr(name if len(name) <= MAX_NAME else f"{name[:MAX_NAME]}…")


def split_selection(where: ImageLocation, folder: Folder | None = None) -> tuple[ImageLocation, StackSelection]:
    """Return a location, a path in a folder, without what it selects, and that; of a name that is there, nothing.

    >>> split_selection("study 7#series=3#stack=2"), split_selection("study 7")[1] == WHOLE
    (('study 7', StackSelection(series='3', stack=2, header=None)), True)
    """
    if isinstance(where, bytes) or len(os.fspath(where)) >= MAX_PATH:
        return where, WHOLE
    match = _SELECTED.fullmatch(os.fspath(where))
    if match is None or match[2] is match[3] is None or os.path.lexists(os.path.join(folder or "", where)):
        return where, WHOLE
    return match[1], StackSelection(match[2], None if match[3] is None else int(match[3]))


def find_path(text: str, folder: Folder | None) -> Path:
    """Return a path in a folder; a part may have another normal form of Unicode: a Mac writes é as two letters."""
    path = Path(folder or "")
    for part in Path(text).parts:
        forms = [part] if part.isascii() else [part, *(unicodedata.normalize(form, part) for form in ("NFC", "NFD"))]
        path /= next((form for form in forms if os.path.lexists(path / form)), part)
    return path


@contextmanager
def open_location(where: ImageLocation, folder: Folder | None) -> Iterator[tuple[BinaryIO | bytes | int, str | None]]:
    """Open the file at `where`; raise `ImageError` if it may not be read. Yield the open file, its bytes if it has no
    path, or the descriptor of a folder; for a file of `DETACHED`, that of its folder, and its name."""
    text = "" if isinstance(where, bytes) else os.fspath(where)
    if isinstance(where, bytes) or is_data_url(text):
        content = where if isinstance(where, bytes) else decode_data_url(text)
        _check_size(len(content))
        yield content, None
        return
    path = resolve_inside(text, folder)
    _check_kind(path.stat())  # to open a device can have effects
    detached = path.suffix.lower() in DETACHED and path.is_file()
    with open_descriptor(path.parent if detached else path) as descriptor:
        kind = os.fstat(descriptor)
        _check_kind(kind)
        if stat.S_ISDIR(kind.st_mode):
            yield descriptor, path.name if detached else None
            return
        with open(descriptor, "rb", closefd=False) as file:
            yield file, None


def _check_kind(kind: os.stat_result) -> None:
    if not stat.S_ISREG(kind.st_mode) and not stat.S_ISDIR(kind.st_mode):  # a pipe or a device may never end
        raise ImageError("this is not a regular file")
    _check_size(kind.st_size if stat.S_ISREG(kind.st_mode) else 0)


def _check_size(size: int) -> None:
    if size > limits.MAX_FILE:
        raise ImageError(f"the file has {size / 2**30:.1f} GiB; allowed: {limits.MAX_FILE / 2**30:.1f} GiB")


def resolve_inside(text: str, folder: Folder | None) -> Path:
    """Return the path with all links resolved; raise `ImageError` if it does not exist or leaves `folder`."""
    try:
        if folder is None:
            return find_path(text, None).resolve(strict=True)
        root = Path(folder).resolve()
        path = find_path(text, root).resolve()
        if ".." in Path(text).parts or not path.is_relative_to(root):
            raise ImageError("its path leads out of the task's folder")
        return path.resolve(strict=True)
    except ImageError:
        raise
    except FileNotFoundError:
        raise ImageError("there is no such file") from None
    except (OSError, ValueError, RuntimeError) as error:  # a name too long, a zero byte in it, a circle of links
        raise ImageError(f"its path cannot be followed ({type(error).__name__})") from None


@contextmanager
def open_descriptor(path: Path) -> Iterator[int]:
    """Open a path whose links are resolved; what has taken its place since is not followed and not waited for."""
    try:
        descriptor = os.open(path, NO_WAIT)
    except OSError as error:
        raise ImageError(f"it cannot be read ({error.strerror or type(error).__name__})") from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def open_in_folder(folder: int, name: str) -> Iterator[BinaryIO | None]:
    """Yield a file of the folder; None if it is not a regular file. Links are not followed, pipes not waited for."""
    try:
        regular = stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
        descriptor = os.open(name, NO_WAIT, dir_fd=folder) if regular else None
    except OSError:
        descriptor = None
    if descriptor is None:
        yield None
        return
    with open(descriptor, "rb") as file:
        yield file if stat.S_ISREG(os.fstat(descriptor).st_mode) else None


def is_data_url(where: str) -> bool:
    return where[:5].lower() == "data:"


def decode_data_url(url: str) -> bytes:
    """Return the bytes of a `data:…;base64,…` URL.

    >>> decode_data_url("data:image/png;base64,AAEC")
    b'\\x00\\x01\\x02'
    """
    if len(url) > limits.MAX_URL:
        raise ImageError(f"{len(url)} characters; allowed: {limits.MAX_URL}")
    kind, comma, body = url.partition(",")
    if not comma or not kind.lower().endswith(";base64"):
        raise ImageError("a data URL is data:<type>;base64,<content>")
    try:
        return base64.b64decode(re.sub(r"[ \t\r\n]+", "", body), validate=True)  # RFC 2045 breaks its lines
    except ValueError:
        raise ImageError("the content of the data URL is not base64") from None


class Inflater:
    """Reads what is deflated in a file, no more of it at a time than is asked for; by default zlib or gzip."""

    def __init__(self, file: BinaryIO, kind: int = 47) -> None:
        self.file, self.inflate = file, zlib.decompressobj(kind)

    def read(self, count: int) -> bytes:
        """Return up to `count` bytes; none at the end."""
        chunk, waiting = b"", b"-"
        while not chunk and waiting and not self.inflate.eof:
            waiting = self.inflate.unconsumed_tail or self.file.read(PART)
            chunk = self.inflate.decompress(waiting, count)
        return chunk


def read_exactly(file: IO[bytes], count: int) -> np.ndarray:
    """Return the next `count` bytes of a file as uint8; raise `ImageError` if there are fewer."""
    content = np.empty(count, np.uint8)
    done = 0
    while done < count:
        chunk = file.read(min(count - done, PART))
        if not chunk:
            raise ImageError(f"the file is cut short: {done} of {count} bytes of pixels")
        content[done : done + len(chunk)] = np.frombuffer(chunk, np.uint8)
        done += len(chunk)
    return content


def describe_failure(error: BaseException) -> str:
    """Return why a file could not be read; decoders raise anything, and what they say may quote the file."""
    if isinstance(error, ImageError):
        return str(error)
    if isinstance(error, MemoryError):
        return "it needs more memory than its size explains, or than there is"
    return f"it is damaged or cut short ({type(error).__name__})"
