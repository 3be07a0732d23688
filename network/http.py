"""Parts of HTTP that send nothing: pauses that a server asks for, what its errors say, numbers, keys."""

import json
import math
import re
import time
from email.utils import parsedate_to_datetime

from ..errors import ConfigError
from ..utils.terminal import make_line

MAX_CODING = 40  # characters of the name of a compression that a message repeats
ERROR_KEYS = ("error", "errors", "detail", "message", "msg")
# What the body of a refusal says if a pause helps; if one may help; if no money is left; if a prompt is not wanted.
_PASSES = "per.?(second|minute|hour)|[rt]pm\\b|again|retry|rate.?limit|overload|loading|server.?error|timed?.?out|busy"
_MONEY = "quota|billing|credit|payment"
_EXHAUSTED = (
    "insufficient.{0,3}(quota|balance|credit|fund)|balance.{0,20}too low|budget.{0,20}exceeded|out of credit|per.?day"
)
_FILTERED = "content.?(filter|policy|management|moderat)|moderation|flagged|data_inspection|safety system"


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
    for key in ERROR_KEYS:
        value = value[0] if isinstance(value, list) and value else value
        if isinstance(value, dict) and value.get(key):
            value = value[key]
    return value if isinstance(value, str) else text


def is_temporary(status: int) -> bool:
    """Return whether another attempt after a pause may be answered.

    >>> [status for status in (200, 400, 408, 429, 500, 511, 529) if is_temporary(status)]
    [408, 429, 500, 529]
    """
    return status in (408, 409, 425, 429) or (status >= 500 and status not in (501, 505, 511))


def read_status(status: int, body: bytes) -> int:
    """Return the status that a response of no use stands for, whatever its own is: 402 if no money or quota is left,
    451 if the prompt was refused for what it says, 401 for a page, that of an error in a 2xx; 200: none.

    >>> read_status(429, b"quota of a minute: try again"), read_status(429, b'{"code": "insufficient_quota"}')
    (429, 402)
    >>> [read_status(200, body) for body in (b'{"error": {"code": 429}}', b'{"detail": "no"}', b"<html>", b'{"a')]
    [429, 404, 401, 200]
    """
    text = body.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")

    def says(words: str) -> bool:
        return re.search(words, text, re.IGNORECASE) is not None

    if status < 300:
        status = _read_error_status(text) or (200 if says(_PASSES) else 404)
    may_pay = status == 429 and says(_MONEY) and not says(_PASSES)
    if may_pay or status == 402 or (status in (400, 403, 429) and says(_EXHAUSTED)):
        return 402
    return 451 if 400 <= status < 500 and text.startswith("{") and says(_FILTERED) else status


def _read_error_status(text: str) -> int | None:
    """Return the status of the error in a 2xx; None if it says none, 200 if there is no error."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return 401 if text.startswith(("<", "data:", "event:")) else 200  # a page, a stream of events; or torn JSON
    data = data if isinstance(data, dict) else {}
    error = next((data[key] for key in ERROR_KEYS if data.get(key)), None)
    if error is None or (isinstance(error, dict) and error is data.get("message")):
        return 200
    for part in (data, *(error if isinstance(error, list) else [error])):
        codes = [str(part.get(key)) for key in ("code", "status", "status_code")] if isinstance(part, dict) else []
        if found := re.search(r"\b[45][0-9][0-9]\b", " ".join(codes)):
            return int(found[0])
    return None


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
