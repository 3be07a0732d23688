"""Answers queries from PubMed and Open-i, as they are now.

Everything is asked on the event loop of `network.background`, whatever loop a search comes from. Identical searches
that are in progress share one, and answers are kept (`cache`), so that each goes out once. Nothing but the two hosts is
reached.
"""

import asyncio
import hashlib
import json
import os
import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import httpx
import msgspec

from ...errors import ConfigError, ToolError
from ...network import background
from ...network.data_policy import check_sending
from ...network.errors import RequestError
from ...network.hosts import read_api_key
from ...network.http import check_api_key
from ...network.limiter import Limiter
from ...network.public import PublicTransport
from ...utils import secrets
from . import eutils, openi
from .cache import AnswerCache
from .records import Article, ArticleQuery, FoundImage, ImageQuery
from .service import FIRST_PAUSE, RETRY_TIMEOUT, Service

VERSION = 1  # of what is kept
_EMAIL = re.compile(r"[!-?A-~]{1,64}@[A-Za-z0-9.-]{1,190}")

T = TypeVar("T")


@dataclass(frozen=True)
class Setup:
    """What tests change: the transport, requests a second, pauses, and the folder of the limiters' files."""

    transport: Callable[[str], httpx.AsyncBaseTransport] = PublicTransport
    eutils_rate: int | None = None
    openi_rate: int = openi.RATE
    first_pause: float = FIRST_PAUSE
    retry_timeout: float = RETRY_TIMEOUT
    limiters: Path | None = None


class LiveSource:
    """A `SearchSource` that asks PubMed and Open-i.

    Args:
        api_key_env: the environment variable with a key of NCBI, if there is one. The key goes to NCBI alone and is
            masked in everything written.
        email_env: the same for an address that NCBI may write to.
        cache_dir: the folder for answers; None: they are kept in memory.
        cache_days: after which an answer is asked for anew.
        _setup: of tests.

    Raises:
        ConfigError: a variable does not hold what it should, or the key is another server's.
    """

    def __init__(
        self,
        api_key_env: str = "NCBI_API_KEY",
        email_env: str = "NCBI_EMAIL",
        cache_dir: str | Path | None = None,
        cache_days: float = 7.0,
        _setup: Setup = Setup(),
    ) -> None:
        self._setup = _setup
        self._key = None
        if os.environ.get(api_key_env, "").strip():
            self._key = check_api_key(read_api_key(f"https://{eutils.HOST}", api_key_env))
        self._email = _read_email(email_env)
        self._cache = AnswerCache(None if cache_dir is None else Path(cache_dir).expanduser(), cache_days)
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, _Clients] = WeakKeyDictionary()

    def prepare(self) -> None:
        """Check that searches may be sent and counted; nothing is sent.

        Raises:
            ConfigError: the data in use must stay on this machine, or the limiters' files cannot be used.
        """
        check_sending(f"https://{eutils.HOST}")
        try:
            for client in _build_services(self._setup, self._key):
                client.limiter.check()
        except RequestError as error:
            raise ConfigError(f"live search: {error}") from error

    async def search_articles(self, query: ArticleQuery) -> Sequence[Article]:
        """The articles of PubMed, the best first."""
        kind = "articles" if query.search_type != "recent" else f"articles {datetime.now(UTC).year}"
        key = _build_key(kind, asdict(query))
        read = msgspec.json.Decoder(list[Article]).decode
        return await self._answer(
            eutils.HOST, key, lambda clients: clients.eutils.search(query), msgspec.json.encode, read
        )

    async def search_images(self, query: ImageQuery) -> Sequence[FoundImage]:
        """The figures of Open-i, the best first."""
        key = _build_key("images", asdict(query))
        read = msgspec.json.Decoder(list[FoundImage]).decode
        return await self._answer(
            openi.HOST, key, lambda clients: clients.openi.search(query), msgspec.json.encode, read
        )

    async def load_image(self, found: FoundImage) -> bytes:
        """The file of a figure: PNG or JPEG, undecoded."""
        if not found.image_url:
            raise ToolError("the figure has no picture")
        key = _build_key("picture", {"url": found.image_url})
        return await self._answer(openi.HOST, key, lambda clients: clients.openi.load(found.image_url), bytes, bytes)

    async def _answer(
        self,
        host: str,
        key: str,
        ask: "Callable[[_Clients], Awaitable[T]]",
        encode: Callable[[T], bytes],
        decode: Callable[[bytes], T],
    ) -> T:
        check_sending(f"https://{host}")
        return await background.run_beside(self._share(key, ask, encode, decode))

    # ------------------------------------------------------------------ on the background's event loop
    async def _share(
        self,
        key: str,
        ask: "Callable[[_Clients], Awaitable[T]]",
        encode: Callable[[T], bytes],
        decode: Callable[[bytes], T],
    ) -> T:
        """What is kept, what another search in progress finds, or what the service answers."""
        clients = self._get_clients()

        async def find() -> T:
            kept = await asyncio.to_thread(self._cache.get, key)
            if kept is not None:
                try:
                    return decode(kept)
                except (msgspec.DecodeError, ValueError):  # written by another version
                    pass
            found = await ask(clients)
            await asyncio.to_thread(self._cache.put, key, encode(found))
            return found

        return await clients.in_flight.share(key, find)

    def _get_clients(self) -> "_Clients":
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            self._clients[loop] = _Clients(self._setup, self._key, self._email)
        return self._clients[loop]


class _Clients:
    """What belongs to one event loop; a forked process has another."""

    def __init__(self, setup: Setup, key: str | None, email: str | None) -> None:
        pubmed, figures = _build_services(setup, key)
        self.eutils = eutils.EutilsClient(pubmed, key, email)
        self.openi = openi.OpeniClient(figures)
        self.in_flight = InFlight()


class InFlight:
    """Work in progress by key, which all who ask for the same share. It ends early only if none of them waits."""

    def __init__(self) -> None:
        self._work: dict[str, tuple[asyncio.Task[Any], list[int]]] = {}

    async def share(self, key: str, start: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of `start`, or of the same work that another caller has started."""
        if key not in self._work:
            task: asyncio.Task[T] = asyncio.ensure_future(start())
            self._work[key] = task, [0]
            task.add_done_callback(lambda done: self._end(key, done))
        shared, waiting = self._work[key]
        waiting[0] += 1
        try:
            result: T = await asyncio.shield(shared)
            return result
        finally:
            waiting[0] -= 1
            if not waiting[0] and not shared.done():
                self._work.pop(key, None)
                shared.cancel()

    def _end(self, key: str, task: asyncio.Task[Any]) -> None:
        if key in self._work and self._work[key][0] is task:
            del self._work[key]
        if not task.cancelled():
            task.exception()  # it has been told to those who waited


def _build_services(setup: Setup, key: str | None) -> tuple[Service, Service]:
    """The service of PubMed, whose rate is counted by key, or by user without one, and that of Open-i."""
    lane = f"ncbi-{hashlib.sha256(key.encode()).hexdigest()[:16]}" if key else "ncbi"
    rate = setup.eutils_rate or (eutils.RATE_WITH_KEY if key else eutils.RATE)
    advice = "is the key in NCBI_API_KEY valid?" if key else ""

    def build(host: str, title: str, limiter: Limiter, advice: str = "") -> Service:
        return Service(
            host,
            title,
            limiter,
            advice=advice,
            first_pause=setup.first_pause,
            retry_timeout=setup.retry_timeout,
            transport=setup.transport,
        )

    return (
        build(eutils.HOST, "PubMed", Limiter(lane, rate, setup.limiters), advice),
        build(openi.HOST, "Open-i", Limiter("openi", setup.openi_rate, setup.limiters)),
    )


def _read_email(variable: str) -> str | None:
    email = os.environ.get(variable, "").strip()
    if email and not _EMAIL.fullmatch(email):
        raise ConfigError(
            f"email_env = {variable!r}: the variable does not hold an address such as name@example.org", key="email_env"
        )
    return secrets.remember(email)


def _build_key(kind: str, query: dict[str, object]) -> str:
    words = query.get("words")
    if isinstance(words, str):
        query = {**query, "words": " ".join(words.split())}
    return json.dumps([VERSION, kind, query], sort_keys=True)
