r"""The body of a response, bounded as it arrives.

Of a model's text only 64 KB are read, so the middle of a much longer JSON string is dropped as it arrives, unless the
body is kept whole, as one that holds pictures is. What is left is still JSON, and its text is still longer than 64 KB,
so that the loop sees that it was too long.
"""

import json
import re
from typing import Any

import httpx

from .errors import RequestError
from .http import find_compression, parse_finite

MAX_WHOLE = 256 * 1024  # bytes of a body that is kept as it is
MAX_STRING = 512 * 1024  # bytes of a string that are kept: 64 KB of text even if every letter is written as \u0041
MAX_KEPT = 4 * 2**20  # bytes of a body without the middle of its long strings
MAX_ERROR = 64 * 1024  # bytes of the body of an error that are read
CHUNK = 64 * 1024

_OPEN_ESCAPE = re.compile(rb"\\(?:u[0-9a-fA-F]{0,3})?\Z")


async def read_body(response: httpx.Response, limit: int, *, whole: bool = False) -> bytes:
    """The body, without the middle of its long strings unless it is kept `whole`; of an error, its beginning.

    Raises:
        RequestError: a reply is larger than allowed, or compressed although that was not asked for.
    """
    compression = find_compression(response.headers.get("content-encoding"))
    if compression:
        if response.is_success:
            raise RequestError(
                f"the body of the reply is compressed ({compression}); allowed: identity", status=response.status_code
            )
        return b""
    body, received = BodyBuffer(whole=whole), 0
    async for chunk in response.aiter_raw(CHUNK):
        received += len(chunk)
        body.add(chunk)
        if not response.is_success and received > MAX_ERROR:
            break
        if received > limit:
            raise RequestError(f"the body of the reply is larger than {limit} bytes", status=response.status_code)
        if not whole and len(body.kept) > MAX_KEPT:
            raise RequestError(
                f"the body of the reply is larger than {MAX_KEPT} bytes without its long texts",
                status=response.status_code,
            )
    return body.close()


def parse_body(body: bytes) -> Any:
    r"""The JSON in a body; bytes that are no text are replaced.

    Raises:
        ValueError: it is not JSON, or holds NaN or an infinity.
        RecursionError: it is nested too deep.

    >>> parse_body(b'\xef\xbb\xbf{"a": 1}')
    {'a': 1}
    """
    text = body.decode(json.detect_encoding(body), "replace")
    return json.loads(text, parse_constant=parse_finite, parse_float=parse_finite)


class BodyBuffer:
    """Collects a body of JSON in chunks. Unless it is kept whole, chunks that lie within a long string are dropped."""

    def __init__(self, *, whole: bool = False) -> None:
        self.kept = bytearray()
        self._whole = whole
        self._scans = False  # only a body over `MAX_WHOLE` is looked at
        self._rest = b""  # an escape that the next chunk completes
        self._in_string = False
        self._length = 0  # bytes kept of the string at the end of the buffer

    def add(self, chunk: bytes) -> None:
        """Add the next chunk."""
        if self._whole or (not self._scans and len(self.kept) + len(chunk) <= MAX_WHOLE):
            self.kept += chunk
            return
        if not self._scans:
            self._scans, chunk = True, bytes(self.kept) + chunk
            self.kept.clear()
        chunk = self._rest + chunk
        end = _find_open_escape(chunk)
        chunk, self._rest = chunk[:end], chunk[end:]
        quotes = chunk.replace(b"\\\\", b"").replace(b'\\"', b"").count(b'"')
        if not quotes and self._in_string and self._length > MAX_STRING:
            return
        self.kept += chunk
        self._length = len(chunk) - chunk.rfind(b'"') if quotes else self._length + len(chunk)
        self._in_string ^= bool(quotes % 2)

    def close(self) -> bytes:
        """What was kept of the body."""
        return bytes(self.kept) + self._rest


def _find_open_escape(chunk: bytes) -> int:
    """Where an escape begins that the end of the chunk cuts; the end if there is none."""
    found = _OPEN_ESCAPE.search(chunk[-5:])
    if found is None:
        return len(chunk)
    place = len(chunk) - len(found[0])
    before = place - len(chunk[:place].rstrip(b"\\"))
    return place if before % 2 == 0 else len(chunk)
