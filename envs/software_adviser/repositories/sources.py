"""Where summaries of repositories come from: asked in order, until one of them knows the repository."""

import datetime
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final, Protocol

import httpx
from cachetools import LRUCache
from pydantic import ValidationError

from ....errors import ToolError
from ....network.connection import Connection
from ....network.errors import AddressError, RequestError
from ....network.public import PublicTransport
from ....tools.search.wording import make_line
from .facts import RepositoryFacts

API_HOST: Final = "api.github.com"
LIVE_TIMEOUT: Final = 10.0  # seconds for one repository
MAX_RESPONSE: Final = 2**20  # bytes
MAX_KEPT: Final = 4096  # live summaries of a process: a public service is asked once for each repository


@dataclass(frozen=True)
class Summary:
    """A line about a repository, and where it is from."""

    text: str
    origin: str


class SummarySource(Protocol):
    """Knows something of repositories."""

    async def summarize(self, repository: str) -> Summary | None:
        """What it knows of "owner/name" (lower case); None if it knows nothing. Raises `ToolError` if it fails."""
        ...


@dataclass(frozen=True)
class RecordedSource:
    """Facts of a snapshot, by repository."""

    facts: Mapping[str, RepositoryFacts]

    async def summarize(self, repository: str) -> Summary | None:
        known = self.facts.get(repository)
        text = known.summarize() if known else ""
        return Summary(text, f"recorded {known.recorded}") if known and text else None


@dataclass(frozen=True)
class CatalogueSource:
    """What the catalogue says of the software of a repository: sentences by repository."""

    sentences: Mapping[str, str]

    async def summarize(self, repository: str) -> Summary | None:
        text = make_line(self.sentences.get(repository, ""), 600)
        return Summary(text, "catalogue") if text else None


class LiveSource:
    """GitHub's public API, without a key: 60 requests an hour for an address. What it said is kept in this process."""

    def __init__(self, *, _transport: Callable[[str], httpx.AsyncBaseTransport] = PublicTransport) -> None:
        self._transport = _transport
        self._kept: LRUCache[str, Summary | None] = LRUCache(MAX_KEPT)
        self._lock = Lock()

    async def summarize(self, repository: str) -> Summary | None:
        with self._lock:  # several event loops may ask
            if repository in self._kept:
                return self._kept[repository]
        summary = await self._ask(repository)
        with self._lock:
            self._kept[repository] = summary
        return summary

    async def _ask(self, repository: str) -> Summary | None:
        url = f"https://{API_HOST}/repos/{repository}"
        connection = Connection(
            url,
            attempts=1,
            max_body=MAX_RESPONSE,
            whole=True,
            is_known=True,
            attempt_timeout=LIVE_TIMEOUT,
            transport=self._transport(API_HOST),
            redirects=True,  # of repositories with a new name
        )
        try:
            facts = await connection.request("GET", url, lambda content: read_api(repository, content))
        except (RequestError, AddressError) as error:
            if error.status == 404:
                return None
            reason = f"HTTP {error.status}" if error.status else "it could not be reached"
            raise ToolError(reason) from error
        finally:
            await connection.close()
        text = facts.summarize()
        return Summary(text, "GitHub") if text else None


def read_api(repository: str, content: bytes) -> RepositoryFacts:
    """The facts in a response of GitHub's API; fields of another type than documented are left out.

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
        try:
            facts = RepositoryFacts.model_validate({**facts.model_dump(), name: value})
        except ValidationError:
            continue
    return facts
