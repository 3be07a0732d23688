"""What a content is, by its bytes: the server's `Content-Type` and the end of a URL are a stranger's word.

Of pictures PNG and JPEG are known, because the sources serve these two, and every other format is one more decoder for
a stranger's bytes (SVG is a program). A file must be of its format from its first byte to its last: what stands behind
the end of a picture is what another program would open. Pixels are not decoded here. The isolated decoder of
`viewbox.images.files` has the last word, also on their number.
"""

import re
import zlib
from collections.abc import Iterator

MAX_PARTS = 20_000  # chunks or segments of a picture; each costs time
PICTURES = frozenset({"image/png", "image/jpeg"})
TEXTS = frozenset({"application/json", "application/xml"})

_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8\xff"
_OTHERS = {  # for messages
    b"GIF8": "GIF",
    b"RIFF": "WebP or another RIFF",
    b"II*\0": "TIFF",
    b"MM\0*": "TIFF",
    b"BM": "BMP",
    b"%PDF": "PDF",
    b"PK\x03\x04": "ZIP",
    b"\x1f\x8b": "gzip",
    b"\x7fELF": "a program",
    b"MZ": "a program",
}
# What a page or a document begins with, in lower case; none of it is in the bytes of a picture by chance.
_FOREIGN_TEXT = (b"<script", b"<iframe", b"<!doctype", b"<html", b"<?php", b"w3.org/2000/svg", b"%pdf-1", b"%pdf-2")
_FOREIGN_BYTES = (b"PK\x03\x04", b"PK\x05\x06", b"\x7fELF")  # looked for outside of pixels, which may be any bytes
_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]", re.DOTALL)  # in the pixels of a JPEG: the next that is no pixel


class ContentError(ValueError):
    """A content that is not taken; the message says what it is."""


def find_type(content: bytes) -> str:
    """The media type of a content, of `PICTURES` or `TEXTS`.

    Raises:
        ContentError: it is something else, is damaged, or holds more than its format says.

    >>> find_type(b'{"a": 1}')
    'application/json'
    >>> find_type(b"<html><body>Not found</body></html>")
    Traceback (most recent call last):
    viewbox.network.fetching.content.ContentError: it is HTML
    """
    if content.startswith(_PNG):
        _check_picture(content, _walk_png(content), "PNG")
        return "image/png"
    if content.startswith(_JPEG):
        _check_picture(content, _walk_jpeg(content), "JPEG")
        return "image/jpeg"
    return _find_text_type(content)


def _check_picture(content: bytes, metadata: Iterator[bytes], name: str) -> None:
    lower = content.lower()
    found: list[bytes] = [mark for mark in _FOREIGN_TEXT if mark in lower]
    found += [mark for part in metadata for mark in _FOREIGN_BYTES if mark in part]
    if found:
        raise ContentError(f"it is a {name} that holds something else ({found[0].decode('ascii', 'replace')!r})")


def _walk_png(content: bytes) -> Iterator[bytes]:
    """The chunks without pixels of a PNG (ISO/IEC 15948, section 5)."""
    place = len(_PNG)
    for number in range(MAX_PARTS):
        size, kind = int.from_bytes(content[place : place + 4], "big"), content[place + 4 : place + 8]
        body, end = content[place + 8 : place + 8 + size], place + 12 + size
        if end > len(content) or not (kind.isascii() and kind.isalpha()) or (number == 0) != (kind == b"IHDR"):
            raise ContentError("it is a damaged PNG")
        if zlib.crc32(kind + body) != int.from_bytes(content[end - 4 : end], "big"):
            raise ContentError("it is a damaged PNG (a checksum is wrong)")
        if kind != b"IDAT":
            yield body
        place = end
        if kind == b"IEND":
            break
    else:
        raise ContentError(f"it is a PNG of more than {MAX_PARTS} parts")
    if place != len(content):
        raise ContentError(f"it is a PNG with {len(content) - place} bytes behind its end")


def _walk_jpeg(content: bytes) -> Iterator[bytes]:
    """The segments of a JPEG (ITU T.81, annex B), without the pixels between them."""
    place = 2
    for _ in range(MAX_PARTS):
        kind, size = content[place : place + 2], int.from_bytes(content[place + 2 : place + 4], "big")
        if kind == b"\xff\xff":  # filling
            place += 1
            continue
        if kind == b"\xff\xd9":
            break
        end = place + 2 + size
        if not _MARKER.fullmatch(kind) or size < 2 or end > len(content):
            raise ContentError("it is a damaged JPEG")
        yield content[place + 4 : end]
        place = end
        if kind == b"\xff\xda":
            after = _MARKER.search(content, place)
            if after is None:
                raise ContentError("it is a damaged JPEG (it has no end)")
            place = after.start()
    else:
        raise ContentError(f"it is a JPEG of more than {MAX_PARTS} parts")
    rest = content[place + 2 :].rstrip(b"\0")  # some writers fill the last block
    if rest:
        raise ContentError(f"it is a JPEG with {len(rest)} bytes behind its end")


def _find_text_type(content: bytes) -> str:
    for mark, name in _OTHERS.items():
        if content.startswith(mark):
            raise ContentError(f"it is {name}")
    try:
        text = content.decode("utf-8-sig").lstrip()
    except UnicodeDecodeError:
        raise ContentError("it is neither PNG, JPEG nor text in UTF-8") from None
    if not text:
        raise ContentError("it is empty")
    if "\0" in text:
        raise ContentError("it is neither PNG, JPEG nor text: it has NUL characters")
    head = text[:1024].lower()
    if head[0] in "{[":
        return "application/json"
    if re.search(r"<!doctype\s+html|<html\b", head):
        raise ContentError("it is HTML")
    if re.search(r"<svg\b|<!doctype\s+svg", head):
        raise ContentError("it is SVG")
    if re.match(r"<[?!a-z]", head):
        return "application/xml"
    raise ContentError("it is text, and neither JSON nor XML")
