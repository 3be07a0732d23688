"""The body of a response: read up to a limit and never decompressed; and the JSON in it."""

import json
from typing import Any

import httpx

from .errors import RequestError
from .http import find_compression, parse_finite

MAX_ERROR = 64 * 1024  # bytes of the body of an error that are read
CHUNK = 64 * 1024


async def read_body(response: httpx.Response, limit: int) -> bytes:
    """Return the body; of an error, its beginning.

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
    body = bytearray()
    async for chunk in response.aiter_raw(CHUNK):
        body += chunk
        if not response.is_success and len(body) > MAX_ERROR:
            break
        if len(body) > limit:
            raise RequestError(f"the body of the reply is larger than {limit} bytes", status=response.status_code)
    return bytes(body)


def parse_body(body: bytes, *, finite: bool = True) -> Any:
    r"""Return the JSON in a body; bytes that are no text are replaced.

    Raises:
        ValueError: it is not JSON, or holds NaN or an infinity. With `finite=False` these are numbers, for callers that
            check each number they need.
        RecursionError: it is nested too deep.

    >>> parse_body(b'\xef\xbb\xbf{"a": 1}')
    {'a': 1}
    """
    text = body.decode(json.detect_encoding(body), "replace")
    check = parse_finite if finite else None
    return json.loads(text, parse_constant=check, parse_float=check)
