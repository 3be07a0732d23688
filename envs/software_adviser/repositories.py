"""What `repo_info_batch` knows of GitHub repositories: a recorded snapshot, live facts if a config says so, and the
sentences of the catalogue. A snapshot is a JSONL file, a repository a line:

    {"repository": "owner/name", "recorded": "2026-11-23", "license": "MIT", "languages": ["Python", "C++"],
     "last_commit": "2026-10-01", "needs": ["torch"], "python": ">=3.10"}

Only facts are kept, no sentences of others. A line that cannot be read costs itself: it is left out with a warning.
"""

import datetime
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import httpx
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ...configs.sections import FilePath, Section
from ...errors import ConfigError, ToolError
from ...network import errors
from ...network.connection import Connection
from ...network.hosts import UrlError, split_url
from ...network.public import PublicTransport
from ...tools.search.wording import make_line
from .catalogue import SoftwareTool

log = logging.getLogger("viewbox.envs")
SHIPPED: Final = Path(__file__).with_name("repositories.jsonl")
MAX_SHOWN: Final = 8  # names of a list that a summary holds
API_HOST: Final = "api.github.com"
LIVE_TIMEOUT: Final = 10.0  # seconds for one repository
MAX_RESPONSE: Final = 2**20  # bytes
MAX_KEPT: Final = 4096  # live summaries of a process: a public service is asked once for each repository
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
    """An address that names no repository; its text is the word for the reason."""


def read_repository(address: str) -> str:
    """Return the repository of an address as "owner/name", in lower case: addresses of one repository read the same.

    Raises:
        AddressError: it is on another host (`NON_GITHUB_URL`), or no address of a repository (`INVALID_URL`).

    >>> read_repository("https://github.com/Owner/Name.git"), read_repository("github.com/owner/name/tree/main#use")
    ('owner/name', 'owner/name')
    >>> read_repository("https://gitlab.com/owner/name")
    Traceback (most recent call last):
    viewbox.envs.software_adviser.repositories.AddressError: NON_GITHUB_URL
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


def _read_name(value: object) -> object:
    try:
        return read_repository(f"https://github.com/{value}")
    except AddressError:
        raise ValueError("allowed: owner/name of a repository on GitHub") from None


Word = Annotated[str, Field(max_length=80)]
Words = Annotated[tuple[Word, ...], Field(max_length=64)]


class RepositoryFacts(BaseModel):
    """Facts of a repository on the day on which they were recorded; what is not known is empty.

    >>> facts = RepositoryFacts(repository="Owner/Name", recorded="2026-11-23", license="MIT", languages=["C++"])
    >>> facts.repository, facts.summarize()
    ('owner/name', 'license MIT; written in C++')
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    repository: Annotated[str, BeforeValidator(_read_name)]
    recorded: datetime.date
    license: Word = ""
    languages: Words = ()
    last_commit: datetime.date | None = None
    python: Word = ""
    needs: Words = ()
    topics: Words = ()
    stars: Annotated[int, Field(ge=0, le=10**9)] | None = None
    archived: bool = False

    def summarize(self) -> str:
        """Return the facts in a line; empty if there are none."""
        parts = [
            "archived: no longer maintained" if self.archived else "",
            f"license {self.license}" if self.license else "",
            f"written in {_list(self.languages)}" if self.languages else "",
            f"last commit {self.last_commit:%Y-%m-%d}" if self.last_commit else "",
            f"Python {self.python}" if self.python else "",
            f"needs {_list(self.needs)}" if self.needs else "",
            f"topics {_list(self.topics)}" if self.topics else "",
            f"{self.stars:,} stars" if self.stars is not None else "",
        ]
        return make_line("; ".join(filter(None, parts)), 600)


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(names[:MAX_SHOWN])


def read_facts(path: str | Path = SHIPPED) -> dict[str, RepositoryFacts]:
    """Read the facts of a snapshot by repository; of several lines about one, the last counts.

    Raises:
        ConfigError: the file cannot be read.
    """
    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError as error:
        reason = f"repositories {path}: {error.strerror or error}"
        raise ConfigError(reason, key="repositories.snapshot", given=str(path)) from None
    found: dict[str, RepositoryFacts] = {}
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                facts = RepositoryFacts.model_validate_json(line)
                found[facts.repository] = facts
            except ValidationError as error:
                problem = error.errors(include_url=False, include_input=False)[0]
                place = ".".join(map(str, problem["loc"])) or "it"
                log.warning("%s: line %d is left out: %s: %s", path, number, make_line(place, 80), problem["msg"])
    return found


@dataclass(frozen=True)
class Summary:
    """A line about a repository, and where it is from."""

    text: str
    origin: str


class GitHub:
    """GitHub's public API, without a key: 60 requests an hour for an address. What it said is kept in this process."""

    def __init__(self, *, _transport: Callable[[str], httpx.AsyncBaseTransport] = PublicTransport) -> None:
        self._transport = _transport
        self._kept: dict[str, str] = {}

    async def summarize(self, repository: str) -> str:
        """Return the facts of "owner/name" in a line; empty if there are none. Raise `ToolError` if it fails."""
        if repository not in self._kept:
            text = await self._ask(repository)
            if len(self._kept) < MAX_KEPT:
                self._kept[repository] = text
            return text
        return self._kept[repository]

    async def _ask(self, repository: str) -> str:
        url = f"https://{API_HOST}/repos/{repository}"
        connection = Connection(
            url,
            attempts=1,
            max_body=MAX_RESPONSE,
            is_known=True,
            attempt_timeout=LIVE_TIMEOUT,
            transport=self._transport(API_HOST),
            redirects=True,  # of repositories with a new name
        )
        try:
            facts = await connection.request("GET", url, lambda content: read_api(repository, content))
        except (errors.RequestError, errors.AddressError) as error:
            if error.status == 404:
                return ""
            raise ToolError(f"HTTP {error.status}" if error.status else "it could not be reached") from error
        finally:
            await connection.close()
        return facts.summarize()


def read_api(repository: str, content: bytes) -> RepositoryFacts:
    """Read the facts in a response of GitHub's API; fields of another type than documented are left out.

    Raises:
        ToolError: it is no JSON object.

    >>> content = b'{"full_name": "a/b", "license": {"spdx_id": "MIT"}, "stargazers_count": "many"}'
    >>> read_api("a/b", content).summarize()
    'license MIT'
    """
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ToolError("its answer could not be read")
    terms = found.get("license")
    license_id = terms.get("spdx_id") if isinstance(terms, dict) else None
    given: dict[str, Any] = {
        "license": "" if license_id == "NOASSERTION" else license_id,
        "languages": [found.get("language")],
        "last_commit": str(found.get("pushed_at"))[:10],
        "topics": found.get("topics"),
        "stars": found.get("stargazers_count"),
        "archived": found.get("archived"),
    }
    facts = RepositoryFacts(repository=repository, recorded=datetime.date.today())
    for name, value in given.items():
        with suppress(ValidationError):
            facts = RepositoryFacts.model_validate({**facts.model_dump(), name: value})
    return facts


@dataclass(frozen=True)
class Repositories:
    """What is known of repositories, by "owner/name" in lower case, in the order in which it is asked.

    github: GitHub itself; None: it is not asked.
    recorded: facts of a snapshot.
    sentences: of the catalogue.
    """

    recorded: Mapping[str, RepositoryFacts]
    sentences: Mapping[str, str]
    github: GitHub | None = None

    async def summarize(self, repository: str) -> Summary | None:
        """Return the first thing that is known; None if nothing is. Raise `ToolError` if only GitHub failed."""
        failed = None
        try:
            text = await self.github.summarize(repository) if self.github else ""
        except ToolError as error:
            text, failed = "", error
        origin = "GitHub"
        if not text and repository in self.recorded:
            facts = self.recorded[repository]
            text, origin = facts.summarize(), f"recorded {facts.recorded}"
        if not text:
            text, origin = make_line(self.sentences.get(repository, ""), 600), "catalogue"
        if failed and not text:
            raise failed
        return Summary(text, origin) if text else None


class RepositorySettings(Section):
    """Where facts of repositories come from."""

    snapshot: Annotated[
        FilePath | None,
        Field(min_length=1, description="a recorded snapshot (JSONL); default: the one that is shipped"),
    ] = None
    live: Annotated[bool, Field(description="ask GitHub's public API first, which allows 60 requests an hour")] = False
    live_in_training: Annotated[
        bool, Field(description="a policy may be trained with live facts, which change from day to day")
    ] = False

    @property
    def why_not_in_training(self) -> str | None:
        """Why no policy may be trained with these settings, and what is allowed instead; None if it may."""
        if not self.live or self.live_in_training:
            return None
        return (
            "live facts of repositories change from day to day and ask a public service for every episode; allowed in "
            "training: repositories.live: false, or repositories.live_in_training: true"
        )

    def open(self, tools: Iterable[SoftwareTool]) -> Repositories:
        """Read the snapshot, and the sentences of a catalogue. Raise `ConfigError` if the snapshot cannot be read."""
        sentences = {}
        for tool in tools:
            with suppress(AddressError):
                sentences[read_repository(tool.repository)] = tool.features
        return Repositories(read_facts(self.snapshot or SHIPPED), sentences, GitHub() if self.live else None)
