"""Requests to one public service: in its rate, again after a temporary failure, and never anywhere else.

Requests go out through `network.fetching`: https to the service's own name at a public address, bounded in bytes and
time. Statuses 429, 408 and 5xx, lost connections and answers that say that the service failed are tried again with
growing pauses until a deadline, or after the pause that the server asks for (`Retry-After`), which then holds for all
processes of this machine. Every other status is final.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import TypeVar
from urllib.parse import urlencode

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_exponential_jitter

from ...errors import ToolFault
from ...network.errors import UnusableReplyError
from ...network.fetching import TEXTS, FetchError, fetch_url
from ...network.fetching.network import Network
from ...utils.secrets import mask_message
from ...utils.terminal import make_line
from .limiter import Busy, Limiter

MAX_ATTEMPTS = 8
MAX_UNUSABLE = 3  # attempts if the server answers, but says that it failed or nothing that can be read
TIMEOUT = 30.0  # seconds of an attempt; less than the limiter's `LEASE`
RETRY_TIMEOUT = 50.0  # seconds after the first attempt began within which there is another
FIRST_PAUSE, MAX_PAUSE = 0.5, 20.0  # seconds
MAX_BYTES = 10 * 2**20  # of an answer

T = TypeVar("T")


class Service:
    """One host.

    Args:
        host: its full name.
        title: its name for people and models.
        limiter: of requests to it.
        advice: why it may refuse a request, for messages about statuses 400 to 403.
        first_pause: seconds before the second attempt.
        retry_timeout: seconds after the first attempt began within which there is another.
        network: of tests.
    """

    def __init__(
        self,
        host: str,
        title: str,
        limiter: Limiter,
        *,
        advice: str = "",
        first_pause: float = FIRST_PAUSE,
        retry_timeout: float = RETRY_TIMEOUT,
        network: Network | None = None,
    ) -> None:
        self.host, self.title, self.limiter, self.advice = host, title, limiter, advice
        self.retry_timeout, self.network = retry_timeout, network
        self._backoff = wait_exponential_jitter(initial=first_pause, max=MAX_PAUSE, jitter=first_pause)

    async def ask(self, path: str, parameters: Mapping[str, str], read: Callable[[bytes], T]) -> T:
        """What `read` makes of the answer to a query.

        Args:
            path: of the URL.
            parameters: of its query.
            read: is called in a thread; `UnusableReplyError` is a temporary failure.

        Raises:
            ToolError: there is no answer.
            ConfigError: data that must stay on this machine would be sent.
        """
        return await self.load(f"https://{self.host}{path}?{urlencode(parameters)}", TEXTS, read)

    async def load(self, url: str, types: frozenset[str], read: Callable[[bytes], T]) -> T:
        """The same for a URL of this service as a stranger may have written it."""
        clock = asyncio.get_running_loop().time
        deadline: float | None = None  # the time in the queue before the first attempt does not count

        async def send() -> T:
            nonlocal deadline
            if (pause := self.limiter.get_pause()) > self.retry_timeout:
                raise Busy(f"it asked for a pause, which lasts for another {pause:.0f} s")
            async with self.limiter.enter(deadline):
                deadline = deadline or clock() + self.retry_timeout
                try:
                    fetched = await fetch_url(
                        url,
                        allowed_hosts=[self.host],
                        types=types,
                        max_bytes=MAX_BYTES,
                        timeout=TIMEOUT,
                        max_redirects=0,  # each would be a request that the limiter does not know
                        _network=self.network,
                    )
                except FetchError as error:
                    if error.temporary and error.retry_after:
                        self.limiter.pause(error.retry_after)
                    raise
            return await asyncio.to_thread(read, fetched.content)

        def compute_pause(state: RetryCallState) -> float:
            return max(self._backoff(state), getattr(_get_failure(state), "retry_after", None) or 0.0)

        def should_stop(state: RetryCallState) -> bool:
            most = MAX_UNUSABLE if isinstance(_get_failure(state), UnusableReplyError) else MAX_ATTEMPTS
            return state.attempt_number >= most or clock() + compute_pause(state) >= (deadline or 0.0)

        attempts = 0
        try:
            async for attempt in AsyncRetrying(
                retry=retry_if_exception(_is_temporary), stop=should_stop, wait=compute_pause, reraise=True
            ):
                attempts = attempt.retry_state.attempt_number
                with attempt:
                    return await send()
        except (FetchError, UnusableReplyError, Busy, OSError) as error:
            raise self._build_error(error, attempts) from None
        raise AssertionError("unreachable")

    def _build_error(self, error: Exception, attempts: int) -> ToolFault:
        tries = f" ({attempts} attempts)" if attempts > 1 else ""
        reason = make_line(mask_message(str(error)[:2000]), 300)
        if getattr(error, "status", None) in (400, 401, 403) and self.advice:
            reason += f" ({self.advice})"
        return ToolFault(f"{self.title} gave no answer{tries}: {reason}")


def _is_temporary(error: BaseException) -> bool:
    return isinstance(error, UnusableReplyError) or (isinstance(error, FetchError) and error.temporary)


def _get_failure(state: RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome else None
