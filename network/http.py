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
_PASSES = re.compile(
    r"per.?(?:second|minute|hour)|[rt]pm\b|try.{0,9}again|retry|rate.?limit|overload|server.?error|timed?.?out|unavailable"
    r"|loading|busy|capacity",
    re.IGNORECASE,
)
_MONEY = re.compile("quota|billing|credit|payment", re.IGNORECASE)
_EXHAUSTED = re.compile(
    r"insufficient.{0,3}(?:quota|balance|credit|fund)|(?:credit|balance).{0,20}too low|out of credit|billing.{0,3}hard"
    r"|budget.{0,20}exceeded|exceeded.{0,20}budget|per.?day\b",
    re.IGNORECASE,
)
_FILTERED = re.compile(
    r"content.?(?:filter|policy|management|moderat)|moderation|flagged|data_inspection|safety system", re.IGNORECASE
)


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


def read_status(body: bytes) -> int:
    """Return the status that a 2xx body of no use stands for: that of the error in it, 401 for a page; 200 if another
    attempt may help.

    >>> [read_status(body) for body in (b'{"error": {"code": 429}}', b'{"detail": "no"}', b"<html>", b"", b'{"a')]
    [429, 404, 401, 200, 200]
    """
    text = body.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return 200 if text[:1] in ("", "{", "[") else 401  # torn JSON, or a page that asks to sign in
    error = next((data[key] for key in ERROR_KEYS if data.get(key)), None) if isinstance(data, dict) else None
    if error is None or (not isinstance(error, str) and error in (data.get("message"), data.get("msg"))):
        return 200  # of an object without an error, or with a message of another API
    for part in (*(error if isinstance(error, list) else [error]), data):
        codes = [str(part.get(key)) for key in ("code", "status", "status_code")] if isinstance(part, dict) else []
        if found := next((code for code in codes if re.fullmatch("[45][0-9][0-9]", code)), None):
            return int(found)
    return 200 if _PASSES.search(text) else 404


def is_temporary(status: int) -> bool:
    """Return whether another attempt after a pause may be answered.

    >>> [status for status in (200, 400, 402, 408, 429, 500, 511, 529) if is_temporary(status)]
    [408, 429, 500, 529]
    """
    return status in (408, 409, 425, 429) or (status >= 500 and status not in (501, 505, 511))


def is_exhausted(status: int, body: str) -> bool:
    """Return whether a refusal says that no money or quota is left, which no pause mends; a limit of a minute passes.

    >>> is_exhausted(429, '{"error": {"code": "insufficient_quota"}}'), is_exhausted(429, "quota per minute exceeded")
    (True, False)
    """
    if status == 429 and _MONEY.search(body) and not _PASSES.search(body):
        return True
    return status == 402 or (status in (400, 403, 429) and bool(_EXHAUSTED.search(body)))


def is_filtered(status: int, body: str) -> bool:
    """Return whether a server refuses a prompt for what it says.

    >>> is_filtered(400, '{"error": {"code": "content_filter"}}'), is_filtered(403, "<html>content filter</html>")
    (True, False)
    """
    return 400 <= status < 500 and body.lstrip()[:1] == "{" and bool(_FILTERED.search(body))


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
