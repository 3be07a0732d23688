"""Helpers of the client that send nothing: URLs, API keys, error bodies, and the settings that a model implies."""

import json
import math
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from viewbox.envs import model_profiles
from viewbox.errors import ConfigError
from viewbox.network.hosts import ALLOWED_URL, parse_url


def get_view_settings(model: str) -> dict[str, Any]:
    """The environment settings that follow from a model's name; {} if the name is unknown.

    >>> get_view_settings("Qwen/Qwen2.5-VL-7B-Instruct"), get_view_settings("gpt-x")
    ({'coordinates': 'pixel', 'pixel_multiple': 28, 'reply_format': 'hermes'}, {})
    """
    kind = model_profiles.find_model_type(model)
    return {} if kind is None else model_profiles.get_model_defaults(kind).to_settings()


def build_completions_url(endpoint: str) -> str:
    """The URL that requests are sent to.

    Raises:
        ConfigError: `endpoint` is not an http(s) URL, or carries a key or a query.

    >>> build_completions_url("http://127.0.0.1:8000"), build_completions_url("https://host/api/v1/")
    ('http://127.0.0.1:8000/v1/chat/completions', 'https://host/api/v1/chat/completions')
    """
    parse_url(endpoint)
    try:
        url = httpx.URL(endpoint)
        _ = url.host  # decodes international names
    except (httpx.InvalidURL, UnicodeError) as error:
        raise ConfigError(f"endpoint: {endpoint!r}: {error}; {ALLOWED_URL}", key="endpoint", given=endpoint) from None
    path = url.path.rstrip("/") or "/v1"
    return str(url.copy_with(path=path if path.endswith("/chat/completions") else f"{path}/chat/completions"))


def encode_request(request: Mapping[str, Any], attempt: int) -> bytes:
    """The request as JSON. Each attempt has its own seed, because the same reply could fail again."""
    if attempt > 1 and isinstance(request.get("seed"), int):
        request = {**request, "seed": (request["seed"] + attempt - 1) % 2**31}
    return json.dumps(request).encode()


def parse_retry_after(header: str | None) -> float | None:
    """The seconds a `Retry-After` header asks for, as a number or an HTTP date (RFC 9110, section 10.2.3).

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
    """The message in the body of an error, under any of the usual keys; otherwise the body.

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


def parse_finite(text: str) -> float:
    """A number of a JSON body. Raises `ValueError` for NaN and infinities, which JSON does not allow."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a JSON number")
    return value


def check_api_key(key: str | None) -> str | None:
    """The key without surrounding spaces; None if it is empty.

    Raises:
        ConfigError: no HTTP header can carry it; the message does not contain the key.
    """
    key = (key or "").strip()
    if not re.fullmatch(r"[!-~]*", key):
        raise ConfigError("the API key contains characters that an HTTP header cannot carry; allowed: printable ASCII")
    return key or None
