"""Requests to one address of a server, with another attempt after every temporary failure.

Servers refuse, stall, disconnect and send malformed bodies. After a temporary failure the request is sent again, with
growing pauses or after the pause that the server asks for. Other failures are a `RequestError` with the server's
message, whatever a reply holds. An address that cannot be used at all (unreachable, key refused, path unknown, a page
that asks to sign in, no quota left, the first requests refused in the same words) is an `AddressError`. A body is read
up to a limit, and is never decompressed; redirects are not followed. The API key is sent in one header only, and is
masked in every message. Cookies are not kept.
"""

import asyncio
import logging
import math
import random
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar, TypeVar

import httpx

from ..errors import ViewboxError
from ..utils import secrets
from ..utils.terminal import make_line
from . import hosts, http
from .data_policy import check_sending
from .errors import AddressError, BrokenReplyError, RequestError, UnusableReplyError
from .public import Limiter

MAX_BODY = 16 * 2**20  # bytes of the body of a reply
LARGE = 2**18  # bytes of a body that is parsed in a thread
MAX_MESSAGE = 300  # characters kept of a server's message
MAX_ATTEMPTS = 8  # for one reply; the pauses between them add up to about a minute
MAX_ATTEMPTS_UNREACHABLE = 4  # if no connection was ever made, or none since all attempts for a reply failed
MAX_REFUSED = 3  # requests refused in the same words before the first good reply
MAX_PAUSE = 30.0  # seconds, unless the server asks for more
CONNECT_TIMEOUT = 30.0  # seconds; also for writing the request
READ_TIMEOUT = 300.0  # seconds without a byte, after which an attempt fails; a long reply may be in progress
ATTEMPT_TIMEOUT = 1800.0  # seconds of a whole attempt: a server that sends a byte now and then would never end it
REQUEST_STATUS = frozenset({400, 413, 422})  # about one request; before the first reply all other refusals end the run

T = TypeVar("T")
Parse = Callable[[bytes], T]  # of the body of a reply


@dataclass(eq=False)
class _RetryableError(Exception):
    """A temporary failure; the request may be sent again."""

    message: str
    status: int | None = None
    retry_after: float | None = None  # seconds that the server asks to wait
    unreachable: bool = False  # whether no connection could be made
    lasting: bool = False  # whether the server's words say nothing of another attempt


class Connection:
    """One address, its key, and what is known about it. Raise `ConfigError` if the URL is none, or the key cannot be
    sent.

    Args:
        subject: what is asked for, for messages, such as "model 'm'".
        extra: fields of every request; those that look like secrets are masked, too.
        attempts: attempts for one reply, the first included.
        first_pause: seconds before the second attempt.
        is_known: whether the server has replied before; what fails then costs a reply, not the run.
        is_up: whether another attempt makes sense.
        attempt_timeout: seconds of a whole attempt.
        retry_timeout: seconds after the first failure within which there is another attempt.
        read_refusal: is shown every response that is not a 2xx, and may raise what this service means by it.
    """

    request_error: ClassVar[type[RequestError]] = RequestError  # raised for one request
    address_error: ClassVar[type[AddressError]] = AddressError  # raised if no request can be answered
    sends_errors: ClassVar[bool] = False  # whether a 2xx may hold an error: chat servers do that

    def __init__(
        self,
        url: str,
        *,
        subject: str = "",
        api_key: str | None = None,
        extra: Mapping[str, Any] | None = None,
        attempts: int = MAX_ATTEMPTS,
        first_pause: float = 0.5,
        max_body: int = MAX_BODY,
        is_known: bool = False,
        is_up: Callable[[], bool] = lambda: True,
        attempt_timeout: float = ATTEMPT_TIMEOUT,
        retry_timeout: float = math.inf,
        limiter: Limiter | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        read_refusal: Callable[[httpx.Response], None] = lambda response: None,
    ) -> None:
        self.url, self.subject, self.is_up, self.read_refusal = url, subject, is_up, read_refusal
        self.attempt_timeout, self.retry_timeout, self.limiter = attempt_timeout, retry_timeout, limiter
        self.attempts, self.first_pause, self.max_body = attempts, first_pause, max_body
        self.in_flight = 0  # requests
        self._has_replied = self._has_connected = is_known
        self._unreachable = True  # never connected, or not since all attempts for a reply failed
        self._refused: deque[str] = deque(maxlen=MAX_REFUSED)  # the last refusals before the first good reply
        self._lasts = False  # whether a request failed MAX_REFUSED times in the same words, which promise nothing
        self._open = 0  # calls of `post` that may still be answered
        self._key = secrets.remember(http.check_api_key(api_key))
        if secrets.remember_settings(dict(extra or {})):
            hosts.check_key_travels_safely(url)
        self._client = httpx.AsyncClient(
            transport=transport,
            timeout=httpx.Timeout(CONNECT_TIMEOUT, read=READ_TIMEOUT, pool=None),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
            **http.build_client_settings(url, self._key),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def post(
        self, encode: Callable[[int], bytes], parse: Parse[T], *, deadline: float | None, info: dict[str, Any]
    ) -> T:
        """Send a request until its reply can be used. Raise `RequestError` if there is none for this request,
        `AddressError` if the address cannot be used at all.

        Args:
            encode: the body of attempt 1, 2, …
            parse: reads the body of a reply; `UnusableReplyError` is a temporary failure.
            deadline: when the caller stops waiting, on the event loop's clock; None: never.
            info: of the caller, in which failed attempts are counted.
        """

        async def send(attempt: int) -> T:
            return await self._send("POST", self.url, await asyncio.to_thread(encode, attempt), parse)

        self._open += 1
        try:
            result = await self._repeat(send, deadline, info)
            self._has_replied = True
            return result
        except RequestError as error:
            failure = error
        finally:
            self._open -= 1
        await self._check_refused(failure)
        raise failure

    async def _check_refused(self, error: RequestError) -> None:
        """Raise `AddressError` if the first requests were refused in the same words, once no other one is open."""
        lasts = self._lasts and error.status == 500
        if self._has_replied or error.status in (None, 451) or (http.is_temporary(error.status or 0) and not lasts):
            return
        words = _drop_ids(str(error))
        self._refused.extend([words] * (MAX_REFUSED if lasts else 1))
        if self._refused.count(words) < MAX_REFUSED:
            return
        while self._open and not self._has_replied:  # a refusal comes sooner than a reply
            await asyncio.sleep(0.05)
        if not self._has_replied:
            raise self._build_address_error(
                f"{error} (so were the first {MAX_REFUSED} requests answered)", error.status
            )

    async def request(self, method: str, url: str, parse: Parse[T]) -> T:
        """Return the same for another address of the same server, such as its list of models."""
        return await self._repeat(lambda attempt: self._send(method, url, None, parse), None, {})

    async def reach(self) -> None:
        """Connect once, without data. Any status will do."""
        try:
            await self._client.head(self.url)
        except httpx.TransportError as error:
            raise self.address_error(f"no connection: {self.clean(str(error)) or type(error).__name__}") from None

    async def _repeat(self, send: Callable[[int], Awaitable[T]], deadline: float | None, info: dict[str, Any]) -> T:
        check_sending(self.url)
        failed_since, said = math.inf, list[str]()
        for number in count(1):
            try:
                return await send(number)
            except _RetryableError as failure:
                now = time.monotonic()
                failed_since = min(failed_since, now)
                said.append(_drop_ids(str(failure)))
                self._lasts |= failure.lasting and said[-MAX_REFUSED:] == [said[-1]] * MAX_REFUSED
                pause = self._compute_pause(failure, number, deadline)
                if self._should_stop(failure, number) or now + pause > failed_since + self.retry_timeout:
                    raise self._build_final_error(failure, number, failed_since) from None
                info["failed_attempts"] = info.get("failed_attempts", 0) + 1
                info["last_failure"] = str(failure)  # shown if the caller then stops waiting
                await asyncio.sleep(pause)
            except RequestError as error:
                if isinstance(error, self.request_error):
                    raise
                raise self.request_error(str(error), status=error.status) from None
            except ViewboxError:
                raise
            except Exception as error:  # one reply never ends the run
                reason = self.clean(f"{type(error).__name__}: {error}")
                raise self.request_error(f"the reply cannot be read: {reason}") from error
        raise AssertionError("unreachable")

    async def _send(self, method: str, url: str, body: bytes | None, parse: Parse[T]) -> T:
        """Return what a request returns; raise `_RetryableError`."""
        turn = nullcontext() if self.limiter is None else self.limiter.turn(self.retry_timeout)
        self.in_flight += 1
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            async with (
                turn,
                asyncio.timeout(self.attempt_timeout),
                self._client.stream(method, url, content=body, headers=headers) as response,
            ):
                self._has_connected, self._unreachable = True, False
                received = await http.read_body(response, self.max_body)
        except TimeoutError:
            raise _RetryableError(f"no whole reply within {self.attempt_timeout:g} s") from None
        except httpx.TransportError as error:
            reason = self.clean(str(error)) or type(error).__name__
            unreachable = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout) or reason.startswith("407 ")
            message = f"no connection: {reason}" if unreachable else f"disconnected: {reason}"
            raise _RetryableError(message, unreachable=unreachable) from None
        finally:
            self.in_flight -= 1
        if not response.is_success:
            self.read_refusal(response)
            raise self._to_error(response, received)
        try:
            return await asyncio.to_thread(parse, received) if len(received) > LARGE else parse(received)
        except UnusableReplyError as error:
            broken = isinstance(error, BrokenReplyError)
            raise self._to_error(
                response, received[: http.MAX_ERROR], str(error), status=502 if broken else 200
            ) from None

    def _to_error(self, response: httpx.Response, received: bytes, problem: str = "", status: int = 200) -> Exception:
        """Return the error for a status other than 2xx, or for a body with a `problem`, which stands for a status."""
        said = self.clean(http.read_error(received)[0])
        pause = http.find_pause(response.headers, "" if problem else said, response.status_code)
        message = (
            f"{problem}: {said!r}" if problem else f"HTTP {response.status_code}: {said or response.reason_phrase}"
        )
        if not problem or (self.sends_errors and status == 200):
            status = http.read_status(response.status_code, received, pause=pause)
        if status == 200 or http.is_temporary(status):
            if self.limiter is not None and pause:
                self.limiter.pause(pause)
            return _RetryableError(
                message, status=status, retry_after=pause, lasting=http.is_lasting(response.status_code, received)
            )
        if response.is_redirect:
            target = self.clean(response.headers.get("location", "nowhere"))
            message += f" (it points to {target}; redirects are not followed)"
        if status == 401 and (problem or not self._key):
            hint = "no API key was sent; the setting api_key_env names its variable"
            message += f" ({'is this the right address, and is a sign-in needed?' if problem else hint})"
        if status == 451:
            return self.request_error(f"content_filter: {message}", status=status)
        if status != 402 and (status in REQUEST_STATUS or self._has_replied):
            return self.request_error(message, status=status)
        return self._build_address_error(message + " (no pause helps)" * (status == 402), status)

    def _build_address_error(self, message: str, status: int | None) -> AddressError:
        error = self.address_error(", ".join(filter(None, [self.url, self.subject])) + f": {message}")
        error.status = status
        return error

    def _should_stop(self, failure: _RetryableError, attempts: int) -> bool:
        unreachable = (self._unreachable and failure.unreachable) or (failure.status == 200 and not self._has_replied)
        most = min(MAX_ATTEMPTS_UNREACHABLE, self.attempts) if unreachable else self.attempts
        return not self.is_up() or attempts >= most or (failure.lasting and self._lasts and not self._has_replied)

    def _compute_pause(self, failure: _RetryableError, attempts: int, deadline: float | None) -> float:
        """Return the seconds until the next attempt; a pause that exceeds the time left becomes half of that time."""
        pause = min(MAX_PAUSE, self.first_pause * (2.0 ** min(attempts - 1, 30) + random.random()))
        if failure.retry_after is not None:
            pause = max(pause, failure.retry_after + random.uniform(0, self.first_pause))
        if deadline is None:
            return min(pause, http.SHORT_PAUSE)
        left = deadline - asyncio.get_running_loop().time()
        return pause if pause < left else max(0.0, left / 2)

    def _build_final_error(self, failure: _RetryableError, attempts: int, since: float) -> ViewboxError:
        message = f"{failure} (after {attempts} attempts)"
        if failure.unreachable and not self._has_connected:
            return self.address_error(f"{self.url} cannot be reached: {message}")
        self._unreachable = failure.unreachable
        failed_since = None if failure.unreachable or attempts == 1 else since
        return self.request_error(message, status=failure.status, failed_since=failed_since)

    def clean(self, message: str) -> str:
        """Return a server's message on one short printable line, without the key."""
        message = message[: 100 * MAX_MESSAGE].replace(self._key or "\0", secrets.MASK)
        return make_line(" ".join(secrets.mask_message(message).split()), MAX_MESSAGE)


def _drop_ids(message: str) -> str:
    return re.sub(r"\S*\d\S*", "", message)


def _mask_record(record: logging.LogRecord) -> bool:
    record.msg, record.args = secrets.mask_text(record.getMessage()), None
    return True


# These write URLs, whose query may hold a key, and at level DEBUG the headers of responses.
for _name in ("httpx", "httpcore.connection", "httpcore.http11"):
    logging.getLogger(_name).addFilter(_mask_record)
