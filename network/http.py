"""Parts of HTTP that send nothing: pauses that a server asks for, bodies and the JSON in them, errors, keys; and how
every client of a server is set up: judges, endpoints, specialists, the sender of weights.

Their addresses were chosen by a person, so this machine and its network are allowed (addresses that a stranger may have
written are for `viewbox.network.public`). What is decided here, for all of them: the spelling of hosts, when a key may
travel, redirects, cookies, proxies and compression.
"""

import json
import math
import os
import re
import ssl
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any
from urllib.request import getproxies

import httpx

from ..errors import ConfigError
from ..utils import secrets
from ..utils.terminal import make_line
from . import hosts
from .errors import RequestError

MAX_ERROR = 64 * 1024  # bytes of the body of an error that are read
CHUNK = 64 * 1024
MAX_CODING = 40  # characters of the name of a compression that a message repeats
# What the body of a refusal says if a pause helps; if one may help; if no money is left; if a prompt is not wanted.
_PASSES = (
    "per.?(second|minute|hour)|[rt]pm\\b|again|retry|rate.?limit|overload|loading|server.?error|timed?.?out|busy"
    "|unavailable"
)
_MONEY = "(?<!check )quota|billing|credit|payment"
_EXHAUSTED = "insufficient.{0,3}(quota|balance|credit|fund)|balance.{0,20}too low|budget.{0,20}exceeded|out of credit"
_EXHAUSTED += "|欠费|余额不足"  # of Zhipu and others
# unless the server asks for a short pause
_LONG = "per.?(day|week|month)|\\b(daily|weekly|monthly|today|[rt]pd)\\b|usage limit"
SHORT_PAUSE, LONG_PAUSE = 300.0, 3600.0  # seconds
MAX_PAUSE = 32 * 86400.0  # that a server may mean
_FILTERED = "content.?(filter|policy|management|moderat)|moderation|flagged|data_inspection|safety system"


_SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*(ms|milli|[smhd])[a-z]*[\s,]*", re.IGNORECASE)
_UNITS = {"ms": 0.001, "milli": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SPANS = re.compile(rf"(?:{_SPAN.pattern})+", re.IGNORECASE)
_ASKS = re.compile(rf"(?:again|retry|wait|resets?)\s+(?:(?:in|after|for)\s+)?({_SPANS.pattern})", re.I)


def find_pause(headers: Mapping[str, str], said: str, status: int = 429) -> float | None:
    """Return the seconds that a server asks to wait, in a header or in the words of its error; with a 429 also those
    after which a limit of it is reset.

    >>> find_pause({"retry-after-ms": "700"}, ""), find_pause({}, "Please try again in 1m2.5s.")
    (0.7, 62.5)
    """
    thousandths, match = parse_retry_after(headers.get("retry-after-ms")), _ASKS.search(said)
    if thousandths is not None:
        return thousandths / 1000
    if "retry-after" in headers or match is not None:
        return parse_retry_after(headers.get("retry-after") or (match and match[1]))
    names = [name for name in headers if status == 429 and "ratelimit-reset" in name]
    resets = [(name.replace("reset", "remaining"), headers[name]) for name in names]
    pauses = [parse_retry_after(reset) for left, reset in resets if headers.get(left, "0") == "0"]
    return max((pause for pause in pauses if pause is not None and pause <= SHORT_PAUSE), default=None)


def parse_retry_after(header: str | None) -> float | None:
    """Return the seconds a `Retry-After` header asks for, as a number or an HTTP date (RFC 9110, section 10.2.3); or,
    as other headers say it, with units, or as the time (of Unix) itself.

    >>> parse_retry_after("2"), parse_retry_after("Thu, 01 Jan 1970 00:00:00 GMT"), parse_retry_after("soon")
    (2.0, 0.0, None)
    """
    if header is None:
        return None
    if _SPANS.fullmatch(header):
        return sum(float(number) * _UNITS[unit.lower()] for number, unit in _SPAN.findall(header))
    try:
        seconds = float(header)
        if seconds > 1.5e9:  # of Unix, or thousandths of them
            seconds = (seconds if seconds < 1e11 else seconds / 1000) - time.time()
    except ValueError:
        try:
            seconds = parsedate_to_datetime(header).timestamp() - time.time()
        except Exception:  # dates in odd forms raise odd errors
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def is_temporary(status: int) -> bool:
    """Return whether another attempt after a pause may be answered.

    >>> [status for status in (200, 400, 408, 429, 500, 511, 529) if is_temporary(status)]
    [408, 429, 500, 529]
    """
    return status in (408, 409, 425, 429, 498) or (status >= 500 and status not in (501, 505, 511))


def read_error(body: bytes) -> tuple[str, int | None, str]:
    """Return the message in the body of an error, under any of the usual keys, otherwise the body; the status that it
    names: None if it names none, 401 of a page, 200 of what is no error, or only of this reply; and the codes beside
    the message. Nothing else is read: servers repeat the question in their errors.

    >>> read_error(b'{"error": {"message": "full", "code": 429}}')[:2], read_error(b'{"detail": "no"}')[:2]
    (('full', 429), ('no', None))
    >>> read_error(b"<p>Sign in")[:2], read_error(b'{"choi')[:2]
    (('<p>Sign in', 401), ('{"choi', 200))
    """
    text = body.decode("utf-8", "replace")
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):  # a page, a stream of events; or torn JSON
        return text, 401 if text.lstrip("\ufeff \t\r\n").startswith(("<", "data:", "event:")) else 200, ""
    codes, choices = "", value.get("choices") if isinstance(value, dict) else None
    halves = choices if isinstance(choices, list) else []  # of a reply, with an error in it or beside it
    value = halves[0] if halves and not value.get("error") else value
    for key in ("error", "errors", "detail", "message", "msg"):
        value = value[0] if isinstance(value, list) and value else value
        if isinstance(value, dict):
            codes += " ".join(str(value.get(name, "")) for name in ("", "code", "status", "status_code", "type"))
            value = value.get(key) or value
    match = re.search(r"\b[45][0-9][0-9]\b", codes)
    if not isinstance(value, str):
        return text, 200, codes
    return value, 200 if halves else int(match[0]) if match else None, codes


def read_status(status: int, body: bytes, *, pause: float | None = None) -> int:
    """Return the status that a response of no use stands for: 402 if no money or quota is left, 451 if the prompt was
    refused for what it says, that of the error in a 2xx. `pause`: seconds
    that the server asks to wait.

    >>> read_status(429, b"quota of a minute: try again"), read_status(429, b'{"code": "insufficient_quota"}')
    (429, 402)
    >>> read_status(200, b'{"error": "no such model"}'), read_status(200, b'{"error": "busy"}')
    (404, 200)
    """
    message, named, codes = read_error(body)

    def says(words: str) -> bool:
        return re.search(words, f"{message} {codes}", re.IGNORECASE) is not None

    if status < 300:
        status = named or (200 if says(_PASSES) else 404)
    passes = pause is not None and pause <= SHORT_PAUSE
    may_pay = status == 429 and not passes and says(_MONEY) and not says(_PASSES)
    exhausted = says(_EXHAUSTED) or (not passes and says(_LONG))
    may_pay = may_pay or (status == 429 and pause is not None and LONG_PAUSE < pause < MAX_PAUSE)
    if may_pay or status == 402 or (status in (400, 403, 429) and exhausted):
        return 402
    return 451 if 400 <= status < 500 and body.lstrip().startswith(b"{") and says(_FILTERED) else status


def is_lasting(status: int, body: bytes) -> bool:
    """Return whether a failure of a server may come from how it was started: words of JSON that promise nothing.

    >>> is_lasting(500, b'{"error": "start me with --jinja"}'), is_lasting(500, b'{"error": "Internal Server Error"}')
    (True, False)
    """
    message, named, _ = read_error(body)
    return status == 500 and named not in (200, 401) and re.search(_PASSES, message, re.IGNORECASE) is None


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


async def read_body(response: httpx.Response, limit: int) -> bytes:
    """Return the body; of an error, its beginning."""
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
    r"""Return the JSON in a body; bytes that are no text are replaced. Raise `ValueError` if it is not JSON, or holds
    NaN or an infinity (unless not `finite`), and `RecursionError` if it is nested too deep.

    >>> parse_body(b'\xef\xbb\xbf{"a": 1}')
    {'a': 1}
    """
    text = body.decode(json.detect_encoding(body), "replace")
    check = parse_finite if finite else None
    return json.loads(text, parse_constant=check, parse_float=check)


def check_api_key(key: str | None, name: str = "the API key") -> str | None:
    key = (key or "").strip()
    if not re.fullmatch(r"[!-~]*", key):
        raise ConfigError(f"{name} contains characters that an HTTP header cannot carry; allowed: printable ASCII")
    return key or None


def build_client_settings(url: str, api_key: str | None = None) -> dict[str, Any]:
    """Return arguments of a client of `httpx` or `httpx2`, for requests to one server. Raise `ConfigError` if the URL
    is none, the key cannot be sent, or not safely, or proxies or certificates of the environment cannot be used.

    Redirects are not followed, so neither key nor data go where a server points. Cookies are not kept: they would tie
    episodes together. Compressed replies are not asked for. Requests to this machine use no proxy of the environment.
    """
    is_local = hosts.is_loopback(url)
    headers = {"Accept-Encoding": "identity"}  # no decompression bombs
    key = secrets.remember(check_api_key(api_key))
    if key is not None:
        hosts.check_key_travels_safely(url)
        headers["Authorization"] = f"Bearer {key}"
    return {
        "headers": headers,
        "follow_redirects": False,
        "cookies": CookieJar(DefaultCookiePolicy(allowed_domains=())),
        "trust_env": not is_local,
        # certificates take 40 ms to load
        "verify": hosts.parse_url(url).scheme == "https" if is_local else load_certificates(),
    }


def load_certificates() -> ssl.SSLContext:
    """Return the certificates that the environment names; raise `ConfigError` if it names what no client can use."""
    proxies = getproxies()
    try:
        for scheme in () if "*" in proxies.get("no", "").split(",") else ("http", "https", "all"):
            if address := proxies.get(scheme):
                culprit = f"{scheme.upper()}_PROXY = {hosts.show_url(address)}"
                url = httpx.URL(address if "://" in address else f"http://{address}")
                httpx.Client(proxy=url, verify=False).close()
                if not url.host or (url.port or 1) >= 2**16:
                    raise ValueError("allowed: http://host:port")
        culprit = "NO_PROXY"
        httpx.Client(verify=False).close()
        culprit = ", ".join(name for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE") if os.environ.get(name))
        return httpx.create_ssl_context()
    except (ImportError, ValueError, OSError, httpx.InvalidURL) as error:
        shown = isinstance(error, ImportError) or "***" not in culprit  # which may repeat a password
        reason = error if shown else "allowed: http://host:port"
        raise ConfigError(f"{culprit} cannot be used ({reason}); correct or unset it") from None
