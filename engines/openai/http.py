"""Helpers of the client that send nothing: URLs, requests as bytes, and the settings that a model implies."""

import json
from collections.abc import Mapping
from typing import Any

import httpx

from ...core import model_profiles
from ...errors import ConfigError
from ...network.hosts import ALLOWED_URL, parse_url


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
