"""Where an image may come from: a regular file or a folder inside the task's folder, bytes, or a `data:` URL."""

import base64
import binascii
import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO

from viewbox.errors import ImageError
from viewbox.images import limits

MAX_NAME = 80  # characters of a name that a message shows


def describe_location(where: "str | os.PathLike[str] | bytes") -> str:
    """The name of an image in messages: the last part of its path, or a description if it has no path.

    >>> describe_location("/data/case 7/slice.png"), describe_location("data:image/png;base64,AAAA")
    ("'slice.png'", '(data URL)')
    >>> describe_location(b"123")
    '(3 bytes)'
    """
    if isinstance(where, bytes):
        return f"({len(where)} bytes)"
    path = os.fspath(where)
    if path[:5].lower() == "data:":
        return "(data URL)"
    name = os.path.basename(path.rstrip("/")) or path[-MAX_NAME:]
    return repr(name if len(name) <= MAX_NAME else f"{name[:MAX_NAME]}…")


@contextmanager
def open_location(
    where: "str | os.PathLike[str] | bytes", folder: "str | os.PathLike[str] | None"
) -> Iterator[BinaryIO | Path]:
    """Open the file at `where` for reading, or yield the folder; raises `ImageError` if it may not be read."""
    if isinstance(where, bytes):
        yield io.BytesIO(where)
        return
    text = os.fspath(where)
    if text[:5].lower() == "data:":
        yield io.BytesIO(decode_data_url(text))
        return
    path = resolve_inside(text, folder)
    kind = path.stat()
    if stat.S_ISDIR(kind.st_mode):
        yield path
        return
    if not stat.S_ISREG(kind.st_mode):  # a pipe or a device may never end
        raise ImageError("this is not a regular file")
    if kind.st_size > limits.MAX_FILE:
        raise ImageError(f"the file has {kind.st_size / 2**30:.1f} GiB; allowed: {limits.MAX_FILE / 2**30:.1f} GiB")
    with _open_file(path) as file:
        yield file


def resolve_inside(text: str, folder: "str | os.PathLike[str] | None") -> Path:
    """The path with all links resolved; raises `ImageError` if it does not exist or leaves `folder`."""
    try:
        if folder is None:
            return Path(text).resolve(strict=True)
        root = Path(folder).resolve()
        path = (root / text).resolve()
        if ".." in Path(text).parts or not path.is_relative_to(root):
            raise ImageError("its path leads out of the task's folder")
        return path.resolve(strict=True)
    except ImageError:
        raise
    except FileNotFoundError:
        reason = "there is no such file"
    except (OSError, ValueError, RuntimeError) as error:  # a name too long, a zero byte in it, a circle of links
        reason = f"its path cannot be followed ({type(error).__name__})"
    raise ImageError(reason)


def _open_file(path: Path) -> BinaryIO:
    try:
        return open(path, "rb")
    except OSError as error:
        reason = error.strerror or type(error).__name__
    raise ImageError(f"it cannot be read ({reason})")


def decode_data_url(url: str) -> bytes:
    """The bytes of a `data:…;base64,…` URL.

    >>> decode_data_url("data:image/png;base64,AAEC")
    b'\\x00\\x01\\x02'
    """
    if len(url) > limits.MAX_URL:
        raise ImageError(f"{len(url)} characters; allowed: {limits.MAX_URL}")
    kind, comma, body = url.partition(",")
    if not comma or not kind.lower().endswith(";base64"):
        raise ImageError("a data URL is data:<type>;base64,<content>")
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        pass
    raise ImageError("the content of the data URL is not base64")


def read_exactly(file: IO[bytes], count: int) -> bytes:
    """The next `count` bytes of a file; raises `ImageError` if there are fewer."""
    content = file.read(count)
    if len(content) < count:
        raise ImageError(f"the file is cut short: {len(content)} of {count} bytes of pixels")
    return content
