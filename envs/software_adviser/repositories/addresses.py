"""Reads the address of a GitHub repository, as a model or a catalogue writes it."""

import re
from typing import Final

from ....network.hosts import UrlError, split_url

HOSTS: Final = ("github.com", "www.github.com")
MAX_ADDRESS: Final = 300  # characters
NON_GITHUB_URL: Final = "NON_GITHUB_URL"  # an address of another host
INVALID_URL: Final = "INVALID_URL"  # no address, or one on GitHub that names no repository

_OWNER = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,38})")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_HOST_FIRST = re.compile(r"(?:www\.)?[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+/", re.ASCII)
_SSH = re.compile(r"(?:ssh://)?git@([A-Za-z0-9.-]+)[:/](.*)", re.ASCII | re.DOTALL)
# First parts of paths on github.com that are pages of GitHub itself.
_PAGES = frozenset({"about", "apps", "collections", "explore", "features", "login", "marketplace", "orgs", "search"})
_PAGES |= {"settings", "topics"}


class AddressError(ValueError):
    """An address that names no repository; `reason` is the word for it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def read_repository(address: str) -> str:
    """The repository of an address as "owner/name", in lower case: addresses of one repository read the same.

    Raises:
        AddressError: it is on another host (`NON_GITHUB_URL`), or no address of a repository (`INVALID_URL`).

    >>> read_repository("https://github.com/Owner/Name.git"), read_repository("github.com/owner/name/tree/main#use")
    ('owner/name', 'owner/name')
    >>> read_repository("https://gitlab.com/owner/name")
    Traceback (most recent call last):
    viewbox.envs.software_adviser.repositories.addresses.AddressError: NON_GITHUB_URL
    """
    text = address.strip().strip("<>").partition("#")[0]
    if not text or len(text) > MAX_ADDRESS:
        raise AddressError(INVALID_URL)
    ssh = _SSH.fullmatch(text)
    if ssh:
        text = f"https://{ssh[1]}/{ssh[2]}"
    elif _HOST_FIRST.match(text):
        text = f"https://{text}"
    try:
        parts = split_url(text)
    except UrlError:
        raise AddressError(INVALID_URL) from None
    if parts.scheme not in ("http", "https"):
        raise AddressError(INVALID_URL)
    if parts.host not in HOSTS or parts.port is not None:
        raise AddressError(NON_GITHUB_URL)
    names = [part for part in (parts.path or "").split("/") if part]
    if len(names) < 2 or names[0].lower() in _PAGES:
        raise AddressError(INVALID_URL)
    owner, name = names[0], names[1].removesuffix(".git")
    if not _OWNER.fullmatch(owner) or not _NAME.fullmatch(name) or name.strip(".") == "":
        raise AddressError(INVALID_URL)
    return f"{owner}/{name}".lower()
