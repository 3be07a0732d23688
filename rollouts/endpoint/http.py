"""What is known about an endpoint before it is asked (its address, the key, what its model writes), and its words."""

import json
import math
import re
import time
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from typing import Any

import httpx

from viewbox.envs import model_profiles
from viewbox.errors import ConfigError


def view_settings(model: str) -> dict[str, Any]:
    """The environment settings that follow from a model's name; none where the name says nothing.

    >>> view_settings("Qwen/Qwen2.5-VL-7B-Instruct"), view_settings("gpt-x")
    ({'coordinates': 'pixel', 'pixel_multiple': 28, 'reply_format': 'hermes'}, {})
    """
    kind = model_profiles.type_of(model)
    return {} if kind is None else model_profiles.of(kind).settings()


def completions_url(endpoint: str) -> str:
    """The address that requests go to; raises `ConfigError` where `endpoint` is none.

    >>> completions_url("http://127.0.0.1:8000"), completions_url("https://host/api/v1/")
    ('http://127.0.0.1:8000/v1/chat/completions', 'https://host/api/v1/chat/completions')
    """
    try:
        url = httpx.URL(endpoint)
    except httpx.InvalidURL as error:
        raise ConfigError(f"endpoint: {error}") from None
    if url.userinfo or url.query or url.fragment:
        raise ConfigError("endpoint: allowed is http(s)://host[:port][/path]; a key belongs into the environment")
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigError(f"endpoint {endpoint!r}: allowed is http(s)://host[:port][/path]")
    path = url.path.rstrip("/") or "/v1"
    return str(url.copy_with(path=path if path.endswith("/chat/completions") else f"{path}/chat/completions"))


def is_loopback(endpoint: str) -> bool:
    """Whether the endpoint is this machine.

    >>> is_loopback("http://127.0.0.1:8000/v1"), is_loopback("http://[::1]/"), is_loopback("http://localhost.org")
    (True, True, False)
    """
    host = httpx.URL(endpoint).host
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def retry_after(header: str | None) -> float | None:
    """The seconds a `Retry-After` header asks for, given as a number or as an HTTP date (RFC 9110, 10.2.3).

    >>> retry_after("2"), retry_after("Thu, 01 Jan 1970 00:00:00 GMT"), retry_after("soon")
    (2.0, 0.0, None)
    """
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(header).timestamp() - time.time()
        except (ValueError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def words_of(received: bytes) -> str:
    """The message in an error's body, wherever servers put it; else the body.

    >>> words_of(b'{"error": {"message": "full"}}'), words_of(b"Bad Gateway")
    ('full', 'Bad Gateway')
    """
    text = received.decode("utf-8", "replace")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    for key in ("error", "detail", "message"):
        if isinstance(found, dict) and found.get(key):
            found = found[key]
    return found if isinstance(found, str) else text


def finite(text: str) -> float:
    """A number of a reply's JSON; raises `ValueError` for NaN and the infinities, which JSON does not have."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is no JSON number")
    return value


def checked_key(key: str | None) -> str | None:
    """A key fit for a header, None where there is none; raises `ConfigError` (which does not show it)."""
    key = (key or "").strip()
    if not re.fullmatch(r"[!-~]*", key):
        raise ConfigError("the API key holds characters that no HTTP header can carry")
    return key or None
