"""What `repo_info_batch` knows of GitHub repositories: what GitHub says now (`github.py`), or a recorded snapshot. That
is a JSONL file, a repository a line:

    {"repository": "owner/name", "recorded": "2026-11-23", "license": "MIT", "languages": ["Python", "C++"],
     "last_commit": "2026-10-01", "needs": ["torch"], "python": ">=3.10"}

Only facts are kept, no sentences of others.
"""

import asyncio
import datetime
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

import msgspec

from ...errors import ToolError, ToolFault
from ...network.hosts import UrlError, split_url
from ...tools.search.wording import make_line

SHIPPED: Final = files(__package__) / "repositories.jsonl"
MAX_SHOWN: Final = 8  # names of a list that a summary holds
HOSTS: Final = ("github.com", "www.github.com")
API_HOST: Final = "api.github.com"
MAX_ADDRESS: Final = 300  # characters
NON_GITHUB_URL: Final = "NON_GITHUB_URL"  # an address of another host
INVALID_URL: Final = "INVALID_URL"  # no address, or one on GitHub that names no repository
NOT_RECORDED: Final = "nothing is recorded of it"

_OWNER = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,38})")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_HOST_FIRST = re.compile(r"(?:www\.)?[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+/", re.ASCII)
_SSH = re.compile(r"(?:ssh://)?git@([A-Za-z0-9.-]+)[:/](.*)", re.ASCII | re.DOTALL)
# First parts of paths on github.com that are pages of GitHub itself.
_PAGES = frozenset({"about", "apps", "collections", "explore", "features", "login", "marketplace", "orgs", "search"})
_PAGES |= {"settings", "topics"}


def read_repository(address: str) -> tuple[str, str]:
    """Return the repository of an address as "owner/name", in lower case, and why it names none: it is on another host
    (`NON_GITHUB_URL`), or no address of a repository (`INVALID_URL`).

    >>> read_repository("https://github.com/Owner/Name.git"), read_repository("https://gitlab.com/owner/name")
    (('owner/name', ''), ('', 'NON_GITHUB_URL'))
    """
    text = address.strip().strip("<>").partition("#")[0]
    if not text or len(text) > MAX_ADDRESS:
        return "", INVALID_URL
    ssh = _SSH.fullmatch(text)
    if ssh:
        text = f"https://{ssh[1]}/{ssh[2]}"
    elif _HOST_FIRST.match(text):
        text = f"https://{text}"
    try:
        parts = split_url(text)
    except UrlError:
        return "", INVALID_URL
    if parts.scheme not in ("http", "https"):
        return "", INVALID_URL
    if parts.host not in HOSTS or parts.port is not None:
        return "", NON_GITHUB_URL
    names = [segment for segment in (parts.path or "").split("/") if segment]
    if len(names) < 2 or names[0].lower() in _PAGES:
        return "", INVALID_URL
    owner, name = names[0], names[1].removesuffix(".git")
    if not _OWNER.fullmatch(owner) or not _NAME.fullmatch(name) or name.strip(".") == "":
        return "", INVALID_URL
    return f"{owner}/{name}".lower(), ""


class RepositoryFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Facts of a repository on the day on which they were recorded or asked for; what is not known is empty.

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
    moved_to: str = ""  # its name now
    archived: bool = False
    stars: int | None = None
    topics: tuple[str, ...] = ()
    last_push: datetime.date | None = None
    last_release: str = ""  # its tag and day, or "none"
    description: str = ""  # its own words

    def summarize(self) -> str:
        """Return the facts in a line; empty if there are none."""
        parts = [
            f"now {self.moved_to}" if self.moved_to else "",
            "archived" if self.archived else "",
            f"license {self.license}" if self.license else "",
            f"written in {_list(self.languages)}" if self.languages else "",
            f"last commit {self.last_commit:%Y-%m-%d}" if self.last_commit else "",
            f"last push {self.last_push:%Y-%m-%d}" if self.last_push else "",
            f"last release {self.last_release}" if self.last_release else "",
            f"stars {self.stars}" if self.stars is not None else "",
            f"topics {_list(self.topics)}" if self.topics else "",
            f"Python {self.python}" if self.python else "",
            f"needs {_list(self.needs)}" if self.needs else "",
            f"says of itself {json.dumps(self.description, ensure_ascii=False)}" if self.description else "",
        ]
        return make_line("; ".join(filter(None, parts)), 600)


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(names[:MAX_SHOWN])


@cache
def read_facts() -> Mapping[str, RepositoryFacts]:
    lines = msgspec.json.Decoder(RepositoryFacts).decode_lines(SHIPPED.read_bytes())
    return {facts.repository.lower(): facts for facts in lines}


@dataclass(frozen=True)
class Repositories:
    """What is known of repositories, by "owner/name" in lower case."""

    recorded: Mapping[str, RepositoryFacts]
    look_up: Callable[[str], Awaitable[RepositoryFacts]] | None = None  # asked first
    patience: float = 45.0  # seconds for its answer

    async def summarize(self, name: str) -> str:
        """Return what is known, behind its date and source; the record, if GitHub is not asked or gives no answer.
        Raise `ToolError` that says why there is nothing."""
        problem = ""
        if self.look_up is not None:
            try:
                async with asyncio.timeout(self.patience):
                    asked = await self.look_up(name)
                return f"(GitHub, asked on {asked.recorded}): {asked.summarize()}"
            except ToolFault as fault:
                problem = make_line(str(fault), 300)
            except TimeoutError:
                problem = f"GitHub gave no answer within {self.patience:g} s"
        facts = self.recorded.get(name)
        if facts is None:
            raise ToolError(problem or NOT_RECORDED)
        source = f"recorded {facts.recorded} from a clone"
        return f"({'; '.join(filter(None, (problem, source)))}): {facts.summarize()}"
