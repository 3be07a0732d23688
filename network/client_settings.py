"""How every client of a server is set up: judges, endpoints, specialists, the sender of weights.

Their addresses were chosen by a person, so this machine and its network are allowed (addresses that a stranger may have
written are for `viewbox.network.public`). What is decided here, for all of them: the spelling of hosts, when a key
may travel, redirects, cookies, proxies and compression.
"""

from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

from ..utils import secrets
from . import hosts
from .http import check_api_key


def build_client_settings(url: str, api_key: str | None = None) -> dict[str, Any]:
    """Arguments of a client of `httpx` or `httpx2`, for requests to one server.

    Redirects are not followed, so neither key nor data go where a server points. Cookies are not kept: they would tie
    episodes together. Compressed replies are not asked for. Requests to this machine use no proxy of the environment.

    Args:
        url: of the server.
        api_key: sent as a bearer token; it is masked in everything written from now on.

    Raises:
        ConfigError: the URL is none, or the key cannot be sent, or not safely.

    >>> build_client_settings("http://127.0.0.1:8000/v1", "abc")["headers"]
    {'Accept-Encoding': 'identity', 'Authorization': 'Bearer abc'}
    >>> build_client_settings("http://example.org/v1", "abc")
    Traceback (most recent call last):
    viewbox.errors.ConfigError: endpoint: http://example.org/v1: an API key is not sent over http to another machine, \
where others can read it; allowed: https, or a tunnel that ends on localhost
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
        "verify": not is_local or hosts.parse_url(url).scheme == "https",  # certificates take 40 ms to load
    }
