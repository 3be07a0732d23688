"""How every client of a server is set up: judges, endpoints, specialists, the sender of weights.

Their addresses were chosen by a person, so this machine and its network are allowed (addresses that a stranger may have
written are for `viewbox.network.public`). What is decided here, for all of them: the spelling of hosts, when a key
may travel, redirects, cookies, proxies and compression.
"""

import os
import ssl
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any
from urllib.request import getproxies

import httpx

from ..errors import ConfigError
from ..utils import secrets
from . import hosts
from .http import check_api_key


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
            if given := proxies.get(scheme):
                culprit = f"{scheme.upper()}_PROXY = {hosts.show_url(given)}"
                url = httpx.URL(given if "://" in given else f"http://{given}")
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
