"""Parts of HTTP that send nothing: pauses that a server asks for, the messages of its errors, numbers, keys."""

import json
import math
import re
import time
from email.utils import parsedate_to_datetime

from ..errors import ConfigError
from ..utils.terminal import make_line

MAX_CODING = 40  # characters of the name of a compression that a message repeats


def parse_retry_after(header: str | None) -> float | None:
    """Return the seconds a `Retry-After` header asks for, as a number or an HTTP date (RFC 9110, section 10.2.3).

    >>> parse_retry_after("2"), parse_retry_after("Thu, 01 Jan 1970 00:00:00 GMT"), parse_retry_after("soon")
    (2.0, 0.0, None)
    """
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(header).timestamp() - time.time()
        except Exception:  # dates in odd forms raise odd errors
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def extract_error_message(body: bytes) -> str:
    """Return the message in the body of an error, under any of the usual keys; otherwise the body.

    >>> extract_error_message(b'{"error": {"message": "full"}}'), extract_error_message(b"Bad Gateway")
    ('full', 'Bad Gateway')
    """
    text = body.decode("utf-8", "replace")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    for key in ("error", "detail", "message"):
        if isinstance(value, dict) and value.get(key):
            value = value[key]
    return value if isinstance(value, str) else text


def find_compression(header: str | None) -> str | None:
    """Return how a `Content-Encoding` header says that a body is compressed; None if it is not.

    >>> find_compression("gzip, br"), find_compression(" Identity"), find_compression(None)
    ('gzip, br', None, None)
    """
    coding = (header or "").strip().lower()
    return None if coding in ("", "identity") else make_line(coding, MAX_CODING)


def parse_finite(text: str) -> float:
    """Return a number of a JSON body. Raise `ValueError` for NaN and infinities, which JSON does not allow."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a JSON number")
    return value


def check_api_key(key: str | None) -> str | None:
    """Return the key without surrounding spaces; None if it is empty.

    Raises:
        ConfigError: no HTTP header can carry it; the message does not contain the key.
    """
    key = (key or "").strip()
    if not re.fullmatch(r"[!-~]*", key):
        raise ConfigError("the API key contains characters that an HTTP header cannot carry; allowed: printable ASCII")
    return key or None
