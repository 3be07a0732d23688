"""Which addresses are this machine, and which key may be sent to which host.

A URL is read by one strict grammar of ASCII characters. What does not fit it is refused, so no two libraries can read
the same URL as different hosts.
"""

import os
import re
import socket
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

from ..errors import ConfigError
from ..utils import secrets

_URL = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://"
    r"(?:\[(?P<v6>[0-9a-f:.]{2,45})\]|(?P<name>(?!-)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*\.?))(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>/[!\"$->@-\[\]-~]*)?(?P<query>\?[!\"$-\[\]-~]*)?",  # printable, without # and \, a path without ?
    re.IGNORECASE | re.ASCII,
)
MAX_URL = 8192  # characters
MAX_HOST = 253  # characters of a name
MAX_SHOWN = 200  # characters of a URL that a message repeats
ALLOWED_URL = "allowed: http(s)://host[:port][/path] in ASCII; pass an API key in an environment variable"
DEFAULT_KEY = "OPENAI_API_KEY"
# Where the key of a provider may be sent to if a file names it. On the command line a person decides.
KEY_HOSTS = {
    "ANTHROPIC_API_KEY": ("api.anthropic.com",),
    "DEEPSEEK_API_KEY": ("api.deepseek.com",),
    "GEMINI_API_KEY": ("generativelanguage.googleapis.com",),
    "GOOGLE_API_KEY": ("generativelanguage.googleapis.com",),
    "GROQ_API_KEY": ("api.groq.com",),
    "MISTRAL_API_KEY": ("api.mistral.ai",),
    "NCBI_API_KEY": ("eutils.ncbi.nlm.nih.gov",),
    DEFAULT_KEY: ("api.openai.com",),
    "OPENROUTER_API_KEY": ("openrouter.ai",),
    "TOGETHER_API_KEY": ("api.together.xyz", "api.together.ai"),
}
_KEY_NAME = re.compile(r"(?:[A-Z0-9_]+_)?(?:API_KEY|API_TOKEN|JUDGE_KEY)", re.IGNORECASE | re.ASCII)
# The first word of variables that end like the key of a model but open something else.
_OTHER_SERVICES = re.compile(
    "ALGOLIA|ATLASSIAN|AWS|BINANCE|BITBUCKET|BUILDKITE|CF|CI|CIRCLECI|CLEARML|CLOUDFLARE|CODECOV|COINBASE|COMET|DATADOG"
    "|DD|DIGITALOCEAN|DO|DOCKER|FLY|GH|GITEA|GITHUB|GITLAB|GRAFANA|HCLOUD|HEROKU|HF|HONEYCOMB|HUGGING|HUGGINGFACE"
    "|HUGGINGFACEHUB|JIRA|KAGGLE|LAMBDA|LANGSMITH|LINEAR|MAILGUN|MLFLOW|NEPTUNE|NETLIFY|NEW|NEWRELIC|NOTION|NPM|OKTA"
    "|PAGERDUTY|PINECONE|PYPI|ROLLBAR|RUNPOD|SENDGRID|SENTRY|SHODAN|SLACK|SNYK|SSH|STRIPE|TF|TWILIO|TWINE|VAST|VAULT"
    "|VERCEL|WANDB"
)


class UrlError(ValueError):
    """A text that is not read as a URL. The message says why, without repeating the text: it may hold a password."""


class Address(NamedTuple):
    """The parts of a URL; `host` in lower case, an IPv6 address without its brackets; `query` with its "?"."""

    scheme: str
    host: str
    port: int | None
    path: str
    query: str = ""


def split_url(url: object) -> Address:
    """Return the parts of a URL of any scheme; all that reads the host of a URL calls this. Raise `UrlError` for what
    does not fit the grammar, such as a user name or a fragment.

    >>> split_url("HTTPS://Example.org/a?b=c")
    Address(scheme='https', host='example.org', port=None, path='/a', query='?b=c')
    """
    parts = _URL.fullmatch(url) if isinstance(url, str) and len(url) <= MAX_URL else None
    name = None if parts is None else (parts["v6"] or parts["name"]).lower()
    if parts is None or name is None or len(name) > MAX_HOST:
        raise UrlError("it is not scheme://host[:port][/path][?query] in ASCII, without user name, fragment")
    port = int(parts["port"]) if parts["port"] else None
    if port is not None and not 0 < port < 2**16:
        raise UrlError(f"port {port}; allowed: 1 to 65535")
    if parts["v6"]:
        try:
            IPv6Address(name)
        except ValueError:
            raise UrlError("this is not an IPv6 address") from None
    return Address(parts["scheme"].lower(), name, port, parts["path"] or "", parts["query"] or "")


def parse_url(url: str) -> Address:
    """Return the parts of the URL of a server: http or https, without a query."""
    try:
        address = split_url(url)
        if address.scheme not in ("http", "https"):
            raise UrlError(f"its scheme is {address.scheme[:20]}")
        if address.query:
            raise UrlError("it has a query")
    except UrlError as error:
        problem = f"{show_url(url)} cannot be used; {ALLOWED_URL} ({error})"
        raise ConfigError(f"endpoint: {problem}", key="endpoint") from None
    return address


def show_url(url: object) -> str:
    """Return a URL as messages repeat it: without its user name, query and fragment, which may hold a key.

    >>> show_url("https://me:hunter2@example.org/a?key=hunter2")
    "'https://***@example.org/a?***'"
    >>> show_url("https://example.org/a?@hunter2")
    "'https://***@'"
    """
    if not isinstance(url, str):
        return f"a {type(url).__name__}"
    before, at, rest = url.rpartition("@")
    if at:
        scheme, colon, _ = before.partition("://")
        rest = "" if re.search("[?#]", before) else rest  # a query or a password: neither is shown
        rest = f"{scheme}{colon}***@{rest}" if colon and scheme.isalpha() else f"***@{rest}"
    rest = re.sub(r"([?#]).*", r"\1***", rest, count=1, flags=re.DOTALL)
    return repr(rest if len(rest) <= MAX_SHOWN else rest[: MAX_SHOWN - 1] + "…")


def read_address(host: str) -> IPv4Address | IPv6Address | None:
    """Return the IP address that the host of a URL spells; None for a name.
    IPv4 is read as connecting does: 127.1, 0x7f.1, 0177.0.0.1 and 2130706433 are all 127.0.0.1.

    >>> read_address("0x7f.1"), read_address("::1"), read_address("example.org")
    (IPv4Address('127.0.0.1'), IPv6Address('::1'), None)
    """
    if ":" in host:
        return IPv6Address(host)
    try:
        return IPv4Address(socket.inet_aton(host))
    except OSError:
        return None


def is_loopback(url: str) -> bool:
    """Return whether a URL leads to this machine. Only `localhost` and loopback addresses do, no other name."""
    host = parse_url(url).host
    address = read_address(host)
    return host == "localhost" if address is None else (getattr(address, "ipv4_mapped", None) or address).is_loopback


def is_read_by_others(url: str) -> bool:
    """Return whether a request to this URL could be read on its way: it goes over http to another machine."""
    return parse_url(url).scheme != "https" and not is_loopback(url)


def check_key_travels_safely(url: str) -> None:
    """Raise `ConfigError` if a key sent to this URL could be read on its way."""
    if is_read_by_others(url):
        raise ConfigError(
            f"endpoint: {url}: an API key is not sent over http to another machine, where others can read it; "
            "allowed: https, or a tunnel that ends on localhost",
            key="endpoint",
        )


def check_key_name(variable: str, key: str = "api_key_env") -> None:
    """Raise `ConfigError` unless a variable's name says that it holds the key of a model's server."""
    if not _KEY_NAME.fullmatch(variable) or _OTHER_SERVICES.fullmatch(variable.upper().partition("_")[0]):
        raise ConfigError(
            f"{key} = {variable!r}: only a variable whose name ends with API_KEY, API_TOKEN or JUDGE_KEY is sent to a "
            "server, and none of another service (AWS, GitHub, Hugging Face, W&B, …); store the key for this server "
            "under a name of its own, such as JUDGE_API_KEY",
            key=key,
        )


def check_settings(url: str, api_key_env: str | None, key: str, *, private: bool = False) -> None:
    """Raise `ConfigError` for a URL that is none, or can be read on its way where it must be `private`, and for a
    variable that `check_key_name` refuses. `key` is where `url` and `api_key_env` stand."""
    try:
        is_open = is_read_by_others(url)
    except ConfigError as error:
        raise ConfigError(f"{key}.url: {error}", key=f"{key}.url") from error
    if private and is_open:
        raise ConfigError(f"{key}.url = {url!r}; allowed: https, or an address on localhost", key=f"{key}.url")
    if api_key_env is not None:
        check_key_name(api_key_env, f"{key}.api_key_env")


def read_api_key(url: str, variable: str | None, *, chosen: bool = False, key: str = "api_key_env") -> str | None:
    """Return the key to send to a server, from the environment; it is masked in everything written from now on.

    Without a variable it is `OPENAI_API_KEY`, for OpenAI's own host only, or None. `chosen`: a person named the
    variable on the command line. Raise `ConfigError` if the variable is not set, not the key of a model's server, or of
    another provider, or if the key would travel unencrypted."""
    address = parse_url(url)
    if variable is None:
        if address.scheme != "https" or address.host not in KEY_HOSTS[DEFAULT_KEY]:
            return None
        return secrets.remember(os.environ.get(DEFAULT_KEY))
    check_key_name(variable, key)
    hosts = KEY_HOSTS.get(variable.upper())
    if hosts is not None and not chosen and address.host not in hosts and not is_loopback(url):
        raise ConfigError(
            f"{key} = {variable!r}: this key goes to {' and '.join(hosts)} only, the address is {url}; "
            "store the key for this server under a name of its own, such as JUDGE_API_KEY",
            key=key,
        )
    value = (os.environ.get(variable) or "").strip()
    if not value:
        raise ConfigError(f"{key} is {variable!r}, but no such environment variable is set", key=key)
    check_key_travels_safely(url)
    return secrets.remember(value)
