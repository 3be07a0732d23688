"""Where an image may come from: a regular file or a folder inside the task's folder, bytes, or a `data:` URL."""

import base64
import binascii
import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from viewbox.errors import ImageError
from viewbox.images.files import limits

NAME = 80  # characters of a name that a message shows


def name_of(where: "str | os.PathLike[str] | bytes") -> str:
    """What messages call it: the last part of a path.

    >>> name_of("/data/case 7/slice.png"), name_of("data:image/png;base64,AAAA"), name_of(b"123")
    ("'slice.png'", '(data URL)', '(3 bytes)')
    """
    if isinstance(where, bytes):
        return f"({len(where)} bytes)"
    path = os.fspath(where)
    if path[:5].lower() == "data:":
        return "(data URL)"
    name = os.path.basename(path.rstrip("/")) or path[-NAME:]
    return repr(name if len(name) <= NAME else f"{name[:NAME]}…")


@contextmanager
def opened(
    where: "str | os.PathLike[str] | bytes", folder: "str | os.PathLike[str] | None"
) -> Iterator[BinaryIO | Path]:
    """The file at `where`, open for reading, or the folder; raises `ImageError` where it may not be read."""
    if isinstance(where, bytes):
        yield io.BytesIO(where)
        return
    text = os.fspath(where)
    if text[:5].lower() == "data:":
        yield io.BytesIO(from_url(text))
        return
    path = inside(text, folder)
    kind = path.stat()
    if stat.S_ISDIR(kind.st_mode):
        yield path
        return
    if not stat.S_ISREG(kind.st_mode):  # a pipe or a device may never end
        raise ImageError("this is no regular file")
    if kind.st_size > limits.MAX_FILE:
        raise ImageError(f"the file has {kind.st_size / 2**30:.1f} GiB; allowed: {limits.MAX_FILE / 2**30:.1f} GiB")
    with _open(path) as file:
        yield file


def inside(text: str, folder: "str | os.PathLike[str] | None") -> Path:
    """The path, all links resolved; raises `ImageError` where it does not exist or leaves `folder`."""
    try:
        if folder is None:
            return Path(text).resolve(strict=True)
        root = Path(folder).resolve()
        path = (root / text).resolve()
        if ".." in Path(text).parts or not path.is_relative_to(root):
            raise ImageError("its path leads out of the task's folder")
        return path.resolve(strict=True)
    except FileNotFoundError:
        reason = "there is no such file"
    except (OSError, ValueError, RuntimeError) as error:  # a name too long, a zero byte in it, a circle of links
        if isinstance(error, ImageError):
            raise
        reason = f"its path cannot be followed ({type(error).__name__})"
    raise ImageError(reason)


def _open(path: Path) -> BinaryIO:
    try:
        return open(path, "rb")
    except OSError as error:
        reason = error.strerror or type(error).__name__
    raise ImageError(f"it cannot be read ({reason})")


def from_url(url: str) -> bytes:
    """The bytes of a `data:…;base64,…` URL.

    >>> from_url("data:image/png;base64,AAEC")
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
    raise ImageError("the content of the data URL is no base64")
