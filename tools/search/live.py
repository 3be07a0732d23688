"""Answers queries from PubMed and Open-i, as they are now; `LiveAnswers` asks any public service.

Everything is asked on the event loop of `network.background`, whatever loop a search comes from. Identical searches
wait for each other, and answers are kept (`cache`), so that each goes out once. Nothing but the hosts named is reached.
"""

import asyncio
import json
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

import msgspec

from ...errors import ConfigError, ToolError
from ...network import background
from ...network.answers import AnswerCache
from ...network.data_policy import check_sending
from ...network.hosts import read_api_key
from ...network.http import check_api_key
from ...utils import secrets
from . import eutils, openi
from .eutils import PubMed
from .openi import OpenI
from .records import Article, ArticleQuery, FoundImage, ImageQuery

VERSION = 1  # of what is kept
FILE = "viewbox-search.sqlite"
KEY, EMAIL = "NCBI_API_KEY", "NCBI_EMAIL"  # environment variables
CACHE_DAYS = 7.0  # after which an answer is asked for anew
_EMAIL = re.compile(r"[!-?A-~]{1,64}@[A-Za-z0-9.-]{1,190}")

C = TypeVar("C")
T = TypeVar("T")
Locks = WeakValueDictionary[str, asyncio.Lock]  # of questions that are asked


class LiveAnswers(Generic[C]):
    """What public services answer. A subclass connects its clients, which belong to one event loop; a forked process
    has another. `cache_dir`: the folder for answers; None: they are kept in memory."""

    def __init__(self, cache_dir: str | Path | None = None) -> None:
        self._cache = AnswerCache(None if cache_dir is None else Path(cache_dir) / FILE, CACHE_DAYS)
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[C, Locks]] = WeakKeyDictionary()

    def connect(self) -> C:
        raise NotImplementedError

    async def answer(self, host: str, key: str, ask: Callable[[C], Awaitable[T]], kind: type[T]) -> T:
        """Return what is kept under the key, or what the service answers."""
        check_sending(f"https://{host}")
        return await background.run_beside(self._find(key, ask, kind))

    async def _find(self, key: str, ask: Callable[[C], Awaitable[T]], kind: type[T]) -> T:
        clients, locks = self._get_clients()
        async with locks.setdefault(key, asyncio.Lock()):
            stored = await asyncio.to_thread(self._cache.get, key)
            if stored is not None:
                with suppress(msgspec.DecodeError):  # written by another version
                    return stored if kind is bytes else msgspec.json.decode(stored, type=kind)  # type: ignore[return-value]
            answer = await ask(clients)
            content = answer if isinstance(answer, bytes) else msgspec.json.encode(answer)
            await asyncio.to_thread(self._cache.put, key, content)
            return answer

    def _get_clients(self) -> tuple[C, Locks]:
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            self._clients[loop] = self.connect(), Locks()
        return self._clients[loop]


class _Clients(NamedTuple):
    pubmed: PubMed
    openi: OpenI


class LiveSource(LiveAnswers[_Clients]):
    """A `SearchSource` that asks PubMed and Open-i. NCBI_API_KEY may hold a key of NCBI, and NCBI_EMAIL an address that
    NCBI may write to. The key goes to NCBI alone and is masked in everything written. Raise `ConfigError` if a variable
    does not hold what it should."""

    def __init__(self, cache_dir: str | Path | None = None) -> None:
        super().__init__(cache_dir)
        self._key = None
        if os.environ.get(KEY, "").strip():
            self._key = check_api_key(read_api_key(f"https://{eutils.HOST}", KEY))
        self._email = _read_email()

    def connect(self) -> _Clients:
        return _Clients(PubMed(self._key, self._email), OpenI())

    def prepare(self) -> None:
        """Raise `ConfigError` if the data in use must stay on this machine; nothing is sent."""
        check_sending(f"https://{eutils.HOST}")

    async def search_articles(self, query: ArticleQuery) -> Sequence[Article]:
        """Return the articles of PubMed, the best first."""
        kind = "articles" if query.search_type != "recent" else f"articles {datetime.now(UTC).year}"
        key = _build_key(kind, asdict(query))
        return await self.answer(eutils.HOST, key, lambda clients: clients.pubmed.search(query), list[Article])

    async def search_images(self, query: ImageQuery) -> Sequence[FoundImage]:
        """Return the figures of Open-i, the best first."""
        key = _build_key("images", asdict(query))
        return await self.answer(openi.HOST, key, lambda clients: clients.openi.search(query), list[FoundImage])

    async def load_image(self, found: FoundImage) -> bytes:
        """Return the file of a figure: PNG or JPEG, undecoded."""
        if not found.image_url:
            raise ToolError("the figure has no picture")
        key = _build_key("picture", {"url": found.image_url})
        return await self.answer(openi.HOST, key, lambda clients: clients.openi.load_picture(found.image_url), bytes)


def _read_email() -> str | None:
    email = os.environ.get(EMAIL, "").strip()
    if email and not _EMAIL.fullmatch(email):
        raise ConfigError(f"{EMAIL}: the variable does not hold an address such as name@example.org")
    return secrets.remember(email)


def _build_key(kind: str, query: dict[str, object]) -> str:
    words = query.get("words")
    if isinstance(words, str):
        query = {**query, "words": " ".join(words.split())}
    return json.dumps([VERSION, kind, query], sort_keys=True)
