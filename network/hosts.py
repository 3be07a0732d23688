"""Which addresses are this machine, and which key may be sent to which host.

A URL is read by one strict grammar of ASCII characters. What does not fit it is refused, so no two libraries can read
the same URL as different hosts.
"""

import os
import re
import socket
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

from viewbox.errors import ConfigError
from viewbox.network import secrets

_URL = re.compile(
    r"(?P<scheme>https?)://(?:\[(?P<v6>[0-9a-f:.]{2,45})\]|(?P<name>[a-z0-9_]([a-z0-9._-]{0,252})?))"
    r"(?::(?P<port>[0-9]{1,5}))?(?P<path>/[!-~]*)?",
    re.IGNORECASE | re.ASCII,
)
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


class Address(NamedTuple):
    """The parts of a URL; `host` in lower case, an IPv6 address without its brackets."""

    scheme: str
    host: str
    port: int | None
    path: str


def parse_url(url: str) -> Address:
    """The parts of the URL of a server.

    Raises:
        ConfigError: it does not fit the grammar, or carries a user name, a query or a fragment.

    >>> parse_url("HTTP://Localhost:8000/v1")
    Address(scheme='http', host='localhost', port=8000, path='/v1')
    """
    match = _URL.fullmatch(url) if isinstance(url, str) else None
    path = match["path"] or "" if match else ""
    if match is None or re.search(r"[?#\\]", path):
        shown = "its user name, query or fragment" if re.search(r"[@?#]", str(url)) else repr(url)  # may be a password
        raise ConfigError(f"endpoint: {shown:.200} cannot be used; {ALLOWED_URL}", key="endpoint")
    host, port = (match["v6"] or match["name"]).lower(), int(match["port"]) if match["port"] else None
    if match["v6"]:
        try:
            IPv6Address(host)
        except ValueError as error:
            raise ConfigError(f"endpoint: {url!r}: {error}; {ALLOWED_URL}", key="endpoint") from None
    elif any(not label or len(label) > 63 for label in host.removesuffix(".").split(".")):
        raise ConfigError(f"endpoint: {url!r}: this is not the name of a host; {ALLOWED_URL}", key="endpoint")
    if port is not None and not 0 < port < 2**16:
        raise ConfigError(f"endpoint: {url!r}: port {port}; allowed: 1 to 65535", key="endpoint", given=port)
    return Address(match["scheme"].lower(), host, port, path)


def is_loopback(url: str) -> bool:
    """Whether a URL leads to this machine. Only `localhost` and loopback addresses do, no other name.

    Raises:
        ConfigError: it is not the URL of a server.

    >>> is_loopback("http://127.0.0.1:8000/v1"), is_loopback("http://[::1]/"), is_loopback("http://localhost.org")
    (True, True, False)
    """
    host = parse_url(url).host
    if host == "localhost":
        return True
    if ":" in host:
        address = IPv6Address(host)
        return (address.ipv4_mapped or address).is_loopback
    try:
        return ip_address(socket.inet_aton(host)).is_loopback  # reads 127.1 and 0x7f.1 as connecting does
    except OSError:
        return False


def check_key_travels_safely(url: str) -> None:
    """Raises `ConfigError` if a key sent to this URL could be read on its way."""
    if parse_url(url).scheme != "https" and not is_loopback(url):
        raise ConfigError(
            f"endpoint: {url}: an API key is not sent over http to another machine, where others can read it; "
            "allowed: https, or a tunnel that ends on localhost",
            key="endpoint",
            given=url,
        )


def check_key_name(variable: str, key: str = "api_key_env") -> None:
    """Raises `ConfigError` unless a variable's name says that it holds the key of a model's server.

    Args:
        variable: the name of an environment variable.
        key: the setting that names it.

    >>> check_key_name("MY_API_KEY")
    >>> check_key_name("GITHUB_TOKEN")
    Traceback (most recent call last):
    viewbox.errors.ConfigError: api_key_env = 'GITHUB_TOKEN': only a variable whose name ends with API_KEY, API_TOKEN \
or JUDGE_KEY is sent to a server, and none of another service (AWS, GitHub, Hugging Face, W&B, …); store the key for \
this server under a name of its own, such as JUDGE_API_KEY
    """
    service = variable.upper().partition("_")[0]
    if not _KEY_NAME.fullmatch(variable) or _OTHER_SERVICES.fullmatch(service):
        raise ConfigError(
            f"{key} = {variable!r}: only a variable whose name ends with API_KEY, API_TOKEN or JUDGE_KEY is sent to a "
            "server, and none of another service (AWS, GitHub, Hugging Face, W&B, …); store the key for this server "
            "under a name of its own, such as JUDGE_API_KEY",
            key=key,
            given=variable,
        )


def read_api_key(url: str, variable: str | None, *, chosen: bool = False, key: str = "api_key_env") -> str | None:
    """The key to send to a server, from the environment. It is masked in everything written from now on.

    Args:
        url: of the server.
        variable: the name of the environment variable; None: `OPENAI_API_KEY`, for OpenAI's own host only.
        chosen: whether a person named the variable on the command line; false if a file did.
        key: the setting that names it.

    Returns:
        None if no variable is named and the default key is not for this host, or is not set.

    Raises:
        ConfigError: the variable is not set, not the key of a model's server, or of another provider; or the key would
            travel unencrypted.

    >>> read_api_key("https://example.org/v1", None)
    """
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
            given=variable,
            allowed=hosts,
        )
    value = (os.environ.get(variable) or "").strip()
    if not value:
        raise ConfigError(f"{key} is {variable!r}, but no such environment variable is set", key=key, given=variable)
    check_key_travels_safely(url)
    return secrets.remember(value)
