"""Which URLs may be fetched: https, the usual port, and a name that is exactly one of those allowed."""

import re
from collections.abc import Collection
from typing import NamedTuple
from urllib.parse import urljoin

from ...errors import ConfigError
from ..hosts import UrlError, read_address, show_url, split_url
from .errors import FetchError

PORT = 443
# Labels of letters, digits and inner hyphens (RFC 1123); the last one begins with a letter, so no number is a name.
_NAME = re.compile(r"(?=.{1,253}\Z)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?\Z")


class Target(NamedTuple):
    """Where a request goes: the name, and what is asked for there (path and query)."""

    host: str
    resource: str

    @property
    def url(self) -> str:
        """The same as a URL."""
        return f"https://{self.host}{self.resource}"


def check_allowed_hosts(allowed_hosts: Collection[str]) -> frozenset[str]:
    """The hosts as a set.

    Raises:
        ConfigError: there is none, or one is not the full name of a host in lower case: an address, a pattern.

    >>> sorted(check_allowed_hosts(["openi.nlm.nih.gov"]))
    ['openi.nlm.nih.gov']
    """
    names = frozenset([allowed_hosts] if isinstance(allowed_hosts, str) else allowed_hosts)
    wrong = [name for name in names if not (isinstance(name, str) and _NAME.match(name))]
    if wrong or not names:
        raise ConfigError(
            f"allowed_hosts: {wrong[0]!r:.80} is not the full name of a host in lower case, such as example.org"
            if wrong
            else "allowed_hosts: no host is allowed; name at least one",
            key="allowed_hosts",
            given=wrong,
        )
    return names


def judge_url(url: object, allowed_hosts: frozenset[str]) -> Target:
    """Where a URL leads.

    Raises:
        FetchError: it may not be fetched.

    >>> judge_url("https://Example.org/a?b=c", frozenset({"example.org"}))
    Target(host='example.org', resource='/a?b=c')
    >>> judge_url("https://127.1/", frozenset({"example.org"}))
    Traceback (most recent call last):
    viewbox.network.fetching.errors.FetchError: 'https://127.1/' is not fetched: its host is an IP address (127.0.0.1) \
and not a name; allowed: https://example.org
    """
    try:
        parts = split_url(url)
        problem = _find_problem(parts.scheme, parts.host, parts.port, allowed_hosts)
    except UrlError as error:
        problem = str(error)
    if problem is not None:
        raise FetchError(f"{show_url(url)} is not fetched: {problem}; allowed: {_list(allowed_hosts)}")
    return Target(parts.host, (parts.path or "/") + parts.query)


def judge_redirect(target: Target, locations: Collection[bytes], allowed_hosts: frozenset[str]) -> Target:
    """Where a redirect leads.

    Args:
        target: whose response redirects.
        locations: the values of its headers `Location`.
        allowed_hosts: as for `judge_url`.

    Raises:
        FetchError: it may not be followed.
    """
    try:
        (location,) = (value.decode("ascii") for value in locations)
        if not re.fullmatch(r"[!-~]+", location) or "\\" in location:
            raise ValueError("characters that a URL does not have")
        url = urljoin(target.url, location)
    except ValueError as error:  # none or several, not ASCII, or not readable
        problem = str(error) if isinstance(error, UnicodeDecodeError) or len(locations) == 1 else "not one address"
        raise FetchError(f"{show_url(target.url)} redirects, and that is not followed: {problem}") from None
    try:
        return judge_url(url, allowed_hosts)
    except FetchError as error:
        raise FetchError(f"{show_url(target.url)} redirects, and that is not followed: {error}") from None


def _find_problem(scheme: str, host: str, port: int | None, allowed_hosts: frozenset[str]) -> str | None:
    if scheme != "https":
        return f"its scheme is {scheme[:20]}"
    address = read_address(host.removesuffix("."))
    if address is not None:
        return f"its host is an IP address ({address}) and not a name"
    if port not in (None, PORT):
        return f"its port is {port}; allowed: {PORT}"
    if host not in allowed_hosts:
        return "its host is not an allowed one"
    return None


def _list(hosts: Collection[str]) -> str:
    return ", ".join(f"https://{host}" for host in sorted(hosts))
