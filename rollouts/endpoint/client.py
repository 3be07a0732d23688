"""Any OpenAI-compatible endpoint as a generator, over httpx.

Endpoints refuse, stall, disconnect and send malformed bodies. After a temporary failure the request is sent again, with
growing pauses or after the pause that the server asks for. Other failures end that episode alone, as `error` with the
server's message, whatever a reply holds. Only an endpoint that cannot be used at all (unreachable, key refused, model
unknown) ends the run. A body is read up to a limit, and no attempt outlasts the timeout of the episode. The API key is
sent in one header only, and is masked in every message and reply. Cookies are not kept.
"""

import asyncio
import random
import time
from collections.abc import Mapping
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_exponential_jitter

from viewbox.configs.sections import SamplingParams
from viewbox.envs.messages import ToolImages, render_tools, to_openai_messages
from viewbox.errors import ViewboxError
from viewbox.frozen import thaw
from viewbox.network import hosts, secrets
from viewbox.network.data_policy import check_sending
from viewbox.records import Reply, RunConfig
from viewbox.rollouts.endpoint.body import read_body
from viewbox.rollouts.endpoint.http import (
    build_completions_url,
    check_api_key,
    encode_request,
    extract_error_message,
    parse_retry_after,
)
from viewbox.rollouts.endpoint.replies import Completion, UnusableReplyError, assign_call_ids, parse_completion
from viewbox.rollouts.generator import Conversation, GeneratorError, Load, ReplyError
from viewbox.terminal import make_line

MAX_BODY = 16 * 2**20  # bytes of the body of a reply
MAX_MESSAGE = 300  # characters kept of a server's message
MAX_ATTEMPTS = 8  # for one reply; the pauses between them add up to about a minute
MAX_ATTEMPTS_UNREACHABLE = 4  # if no connection was ever made, or none since all attempts for a reply failed
MAX_PAUSE = 30.0  # seconds, unless the server asks for more
MAX_PAUSE_WITHOUT_TIMEOUT = 300.0  # seconds a server may ask for if the episode has no timeout
CONNECT_TIMEOUT = 30.0  # seconds; also for writing the request
READ_TIMEOUT = 300.0  # seconds without a byte, after which an attempt fails; a long reply may be in progress
ATTEMPT_TIMEOUT = 1800.0  # seconds of a whole attempt: a server that sends a byte now and then would never end it
RETRIED_STATUS = frozenset({408, 409, 425, 429})  # and every 5xx
UNUSABLE_STATUS = frozenset({301, 302, 307, 308, 401, 403, 404, 405})  # before the first reply these end the run
SERVER_SAMPLING = SamplingParams()  # no field is set, so the server's defaults apply


class EndpointError(GeneratorError):
    """The endpoint cannot be used at all; ends the run. `status` is the HTTP status that said so, if one did."""

    status: int | None = None


class _RetryableError(Exception):
    """A temporary failure; the request may be sent again.

    Args:
        message: what failed.
        status: of the response, if there was one.
        retry_after: seconds the server asks to wait.
        unreachable: whether no connection could be made.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        unreachable: bool = False,
    ) -> None:
        super().__init__(message)
        self.status, self.retry_after, self.unreachable = status, retry_after, unreachable


class OpenAIGenerator:
    """Replies from `POST <endpoint>/chat/completions`.

    If the environment's `reply_format` is "native", tool schemas are sent in the field `tools`; on the last turn with
    `tool_choice: none`. Otherwise the system message teaches them, and calls are parsed from the text. Token counts are
    summed in `conversation.info["usage"]`, failed attempts in `info["failed_attempts"]`.

    Args:
        endpoint: base URL, such as `http://127.0.0.1:8000/v1`; without a path, `/v1` is added.
        model: its name at the endpoint.
        api_key: sent as a bearer token.
        sampling: only the fields that were set are sent; the server chooses the others.
        max_tokens: limit of one reply; None: the server's.
        tool_images: which message carries the image of a tool result (see `viewbox.envs.messages`).
        extra: fields merged into every request; None removes a field (such as `seed`, if a server refuses it).
        attempts: attempts for one reply, the first included.
        first_pause: seconds before the second attempt.
        max_body: limit of a reply's body, in bytes.

    Raises:
        ConfigError: the endpoint is not a URL, or the key cannot be sent, or not safely.
    """

    def __init__(
        self,
        endpoint: str,
        model: str,
        *,
        api_key: str | None = None,
        sampling: SamplingParams = SERVER_SAMPLING,
        max_tokens: int | None = None,
        tool_images: ToolImages = "user",
        extra: Mapping[str, Any] | None = None,
        attempts: int = MAX_ATTEMPTS,
        first_pause: float = 0.5,
        max_body: int = MAX_BODY,
    ) -> None:
        self.url, self.model = build_completions_url(endpoint), model
        self.sampling, self.max_tokens = sampling, max_tokens
        self.tool_images, self.extra = tool_images, dict(extra or {})
        self.attempts, self.first_pause, self.max_body = attempts, first_pause, max_body
        self.run_config = RunConfig(model_name=model, temperature=sampling.temperature, max_tokens=max_tokens)
        self._backoff = wait_exponential_jitter(initial=first_pause, max=MAX_PAUSE, jitter=first_pause)
        self._in_flight = 0  # requests
        self._tokens: int | None = None  # of all replies, if the server counts them
        self._has_replied = False
        self._has_connected = False
        self._unreachable = True  # never connected, or not since all attempts for a reply failed
        self._key = secrets.remember(check_api_key(api_key))
        if secrets.remember_settings(self.extra) or self._key:
            hosts.check_key_travels_safely(endpoint)
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}  # no decompression bombs
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        is_local = hosts.is_loopback(endpoint)
        self._client = httpx.AsyncClient(
            headers=headers,
            timeout=httpx.Timeout(CONNECT_TIMEOUT, read=READ_TIMEOUT, pool=None),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),  # none: they would tie episodes together
            trust_env=not is_local,  # requests to this machine use no proxy
            verify=not is_local or hosts.parse_url(endpoint).scheme == "https",  # certificates take 40 ms to load
        )

    # ------------------------------------------------------------------ the Generator protocol
    def join(self, conversation: Conversation) -> None: ...

    def leave(self, conversation: Conversation) -> None: ...

    async def close(self) -> None:
        await self._client.aclose()

    def get_load(self) -> Load:
        return Load(self._in_flight, tokens=self._tokens)

    async def reply(self, conversation: Conversation) -> Reply:
        check_sending(self.url)
        request = await asyncio.to_thread(self.build_request, conversation)

        failed_since: float | None = None

        def get_pause(state: RetryCallState) -> float:
            return self._compute_pause(state, conversation.deadline)

        def record_failure(state: RetryCallState) -> None:
            nonlocal failed_since
            failed_since = failed_since or time.monotonic()
            conversation.info["failed_attempts"] = conversation.info.get("failed_attempts", 0) + 1
            conversation.info["last_failure"] = str(_get_failure(state))  # shown if the episode then times out

        retrying = AsyncRetrying(
            retry=retry_if_exception_type(_RetryableError),
            stop=self._should_stop,
            wait=get_pause,
            before_sleep=record_failure,
            reraise=True,
        )
        try:
            async for attempt in retrying:
                number = attempt.retry_state.attempt_number
                with attempt:
                    body = await asyncio.to_thread(encode_request, request, number)
                    completion = await self._send(body)
        except _RetryableError as failure:
            raise self._build_final_error(failure, number, failed_since) from None
        except ViewboxError:
            raise
        except Exception as error:  # one reply never ends the run
            reason = self._clean(f"{type(error).__name__}: {error}")
            raise ReplyError(f"the reply cannot be read: {reason}") from error
        self._has_replied = True
        self._add_usage(conversation.info, completion.usage)
        taken = {call.id for message in conversation.messages for call in message.tool_calls}
        calls = assign_call_ids(completion.calls, taken, f"t{len(conversation.messages):05}")
        return Reply(completion.text, calls, completion.finish_reason)

    def build_request(self, conversation: Conversation) -> dict[str, Any]:
        """The request for the next reply of a conversation. Raises `ImageError`."""
        messages = to_openai_messages(conversation.visible_messages, tool_images=self.tool_images, text_calls=True)
        turn = len(conversation.messages)
        body: dict[str, Any] = {"model": self.model, "messages": messages, "max_tokens": self.max_tokens}
        body["seed"] = (conversation.seed * 31 + turn) % 2**31
        sampling = self.sampling.model_dump(mode="json", exclude_unset=True)
        body |= {name: value for name, value in sampling.items() if value != []}
        if conversation.reply_format != "native":
            messages[0]["content"] += render_tools(conversation.tools, conversation.reply_format, conversation.prompts)
        elif conversation.tools:
            body["tools"] = [thaw(tool) for tool in conversation.tools]
            if conversation.last_turn:  # left out, they would change the prompt that the model was trained on
                body["tool_choice"] = "none"
        return {key: value for key, value in (body | self.extra).items() if value is not None}

    # ------------------------------------------------------------------ one attempt
    async def _send(self, body: bytes) -> Completion:
        """What a request returns; raises `_RetryableError`."""
        self._in_flight += 1
        try:
            async with (
                asyncio.timeout(ATTEMPT_TIMEOUT),
                self._client.stream("POST", self.url, content=body) as response,
            ):
                self._has_connected, self._unreachable = True, False
                received = await read_body(response, self.max_body)
        except TimeoutError:
            raise _RetryableError(f"no whole reply within {ATTEMPT_TIMEOUT:g} s") from None
        except httpx.TransportError as error:
            unreachable = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            reason = self._clean(str(error)) or type(error).__name__
            message = f"no connection: {reason}" if unreachable else f"disconnected: {reason}"
            raise _RetryableError(message, unreachable=unreachable) from None
        finally:
            self._in_flight -= 1
        if not response.is_success:
            raise self._to_error(response, received)
        try:
            return parse_completion(received)
        except UnusableReplyError as error:
            excerpt = self._clean(extract_error_message(received[:4096]))
            raise _RetryableError(f"{error}: {excerpt!r}", status=response.status_code) from None

    def _to_error(self, response: httpx.Response, received: bytes) -> Exception:
        """The error for a status other than 2xx."""
        status = response.status_code
        message = f"HTTP {status}: {self._clean(extract_error_message(received) or response.reason_phrase)}"
        if status in RETRIED_STATUS or status >= 500:
            pause = parse_retry_after(response.headers.get("retry-after"))
            return _RetryableError(message, status=status, retry_after=pause)
        if response.is_redirect:
            target = self._clean(response.headers.get("location", "nowhere"))
            message += f" (it points to {target}; redirects are not followed)"
        if status == 401 and not self._key:
            message += " (no API key was sent; the setting api_key_env names its variable)"
        if status not in UNUSABLE_STATUS or self._has_replied:
            return ReplyError(message, status=status)
        error = EndpointError(f"{self.url}, model {self.model!r}: {message}")
        error.status = status
        return error

    # ------------------------------------------------------------------ between attempts
    def _should_stop(self, state: RetryCallState) -> bool:
        unreachable = self._unreachable and _get_failure(state).unreachable
        return state.attempt_number >= (min(MAX_ATTEMPTS_UNREACHABLE, self.attempts) if unreachable else self.attempts)

    def _compute_pause(self, state: RetryCallState, deadline: float | None) -> float:
        """Seconds until the next attempt. A pause that exceeds the time left becomes half of that time."""
        pause = self._backoff(state)
        retry_after = _get_failure(state).retry_after
        if retry_after is not None:
            pause = max(pause, retry_after + random.uniform(0, self.first_pause))
        if deadline is None:
            return min(pause, MAX_PAUSE_WITHOUT_TIMEOUT)
        left = deadline - asyncio.get_running_loop().time()
        return pause if pause < left else max(0.0, left / 2)

    def _build_final_error(self, failure: _RetryableError, attempts: int, since: float | None) -> ViewboxError:
        message = f"{failure} (after {attempts} attempts)"
        if failure.unreachable and not self._has_connected:
            return EndpointError(f"{self.url} cannot be reached: {message}")
        self._unreachable = failure.unreachable
        return ReplyError(message, status=failure.status, failed_since=None if failure.unreachable else since)

    def _clean(self, message: str) -> str:
        """A server's message on one short printable line, without the key."""
        message = message[: 100 * MAX_MESSAGE].replace(self._key or "\0", secrets.MASK)
        return make_line(" ".join(secrets.mask_message(message).split()), MAX_MESSAGE)

    def _add_usage(self, info: dict[str, Any], usage: Mapping[str, int]) -> None:
        """Adds a reply's token counts, if the server counts them, to those of the episode and of all replies."""
        total = info.setdefault("usage", {"prompt_tokens": 0, "completion_tokens": 0}) if usage else {}
        for name, count in usage.items():
            total[name] += count
        if "completion_tokens" in usage:
            self._tokens = (self._tokens or 0) + usage["completion_tokens"]


def _get_failure(state: RetryCallState) -> _RetryableError:
    failure = state.outcome.exception() if state.outcome else None
    assert isinstance(failure, _RetryableError)
    return failure
