"""What `repo_info_batch` knows of GitHub repositories: a recorded snapshot, and the sentences of the catalogue. A
snapshot is a JSONL file, a repository a line:

    {"repository": "owner/name", "recorded": "2026-11-23", "license": "MIT", "languages": ["Python", "C++"],
     "last_commit": "2026-10-01", "needs": ["torch"], "python": ">=3.10"}

Only facts are kept, no sentences of others.
"""

import datetime
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

import msgspec

from ...network.hosts import UrlError, split_url
from ...tools.search.wording import make_line
from .catalogue import SoftwareTool

SHIPPED: Final = files(__package__) / "repositories.jsonl"
MAX_SHOWN: Final = 8  # names of a list that a summary holds
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


class RepositoryAddressError(ValueError):
    """An address that names no repository; its text is the word for the reason."""


def read_repository(address: str) -> str:
    """Return the repository of an address as "owner/name", in lower case. Raise `RepositoryAddressError` if it is on
    another host (`NON_GITHUB_URL`), or no address of a repository (`INVALID_URL`).

    >>> read_repository("https://github.com/Owner/Name.git"), read_repository("github.com/owner/name/tree/main#use")
    ('owner/name', 'owner/name')
    """
    text = address.strip().strip("<>").partition("#")[0]
    if not text or len(text) > MAX_ADDRESS:
        raise RepositoryAddressError(INVALID_URL)
    ssh = _SSH.fullmatch(text)
    if ssh:
        text = f"https://{ssh[1]}/{ssh[2]}"
    elif _HOST_FIRST.match(text):
        text = f"https://{text}"
    try:
        parts = split_url(text)
    except UrlError:
        raise RepositoryAddressError(INVALID_URL) from None
    if parts.scheme not in ("http", "https"):
        raise RepositoryAddressError(INVALID_URL)
    if parts.host not in HOSTS or parts.port is not None:
        raise RepositoryAddressError(NON_GITHUB_URL)
    names = [segment for segment in (parts.path or "").split("/") if segment]
    if len(names) < 2 or names[0].lower() in _PAGES:
        raise RepositoryAddressError(INVALID_URL)
    owner, name = names[0], names[1].removesuffix(".git")
    if not _OWNER.fullmatch(owner) or not _NAME.fullmatch(name) or name.strip(".") == "":
        raise RepositoryAddressError(INVALID_URL)
    return f"{owner}/{name}".lower()


class RepositoryFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Facts of a repository on the day on which they were recorded; what is not known is empty.

    >>> RepositoryFacts("owner/name", datetime.date(2026, 11, 23), license="MIT", languages=("C++",)).summarize()
    'license MIT; written in C++'
    """

    repository: str
    recorded: datetime.date
    license: str = ""
    languages: tuple[str, ...] = ()
    last_commit: datetime.date | None = None
    python: str = ""
    needs: tuple[str, ...] = ()

    def summarize(self) -> str:
        """Return the facts in a line; empty if there are none."""
        parts = [
            f"license {self.license}" if self.license else "",
            f"written in {_list(self.languages)}" if self.languages else "",
            f"last commit {self.last_commit:%Y-%m-%d}" if self.last_commit else "",
            f"Python {self.python}" if self.python else "",
            f"needs {_list(self.needs)}" if self.needs else "",
        ]
        return make_line("; ".join(filter(None, parts)), 600)


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(names[:MAX_SHOWN])


def read_facts() -> dict[str, RepositoryFacts]:
    lines = msgspec.json.Decoder(RepositoryFacts).decode_lines(SHIPPED.read_bytes())
    return {facts.repository.lower(): facts for facts in lines}


@dataclass(frozen=True)
class Repositories:
    """What is known of repositories, by "owner/name" in lower case."""

    recorded: Mapping[str, RepositoryFacts]  # of a snapshot, which are looked at first
    sentences: Mapping[str, str]  # of the catalogue

    def summarize(self, repository: str) -> str:
        """Return the first thing that is known, behind its origin; empty if nothing is."""
        facts = self.recorded.get(repository)
        if facts is not None and (text := facts.summarize()):
            return f"(recorded {facts.recorded}): {text}"
        text = make_line(self.sentences.get(repository, ""), 600)
        return f"(catalogue): {text}" if text else ""


def open_repositories(tools: Iterable[SoftwareTool]) -> Repositories:
    """Return what the shipped snapshot knows, and the sentences of a catalogue."""
    sentences = {}
    for tool in tools:
        with suppress(RepositoryAddressError):
            sentences[read_repository(tool.repository)] = tool.features
    return Repositories(read_facts(), sentences)
