"""Any OpenAI-compatible endpoint as a generator, over httpx.

Endpoints refuse, stall, break off and send nonsense. What may pass is tried again, with growing pauses or after the
pause the server asks for; what does not pass ends that episode alone, as `error` with the server's words. Only an
endpoint that cannot be used at all (nobody there, the key refused, the model unknown) ends the run. Bodies are read up
to a limit and the episode's time limit bounds everything. The key goes into one header and is cut out of every message.
"""

import asyncio
import json
import random
import re
from collections.abc import Mapping
from typing import Any

import httpx
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_exponential_jitter

from viewbox.configs.schema import SamplingParams
from viewbox.envs.messages import ToolImages, to_wire, tool_calls_of, tools_text
from viewbox.errors import ViewboxError
from viewbox.frozen import thaw
from viewbox.records import RunConfig, ToolCall
from viewbox.rollouts.endpoint.http import checked_key, completions_url, finite, is_loopback, retry_after, words_of
from viewbox.rollouts.generator import Conversation, GeneratedReply, Load, ReplyError

MAX_BODY = 16 * 2**20  # bytes of one reply's body
MAX_WORDS = 300  # characters of a server's message that are kept
MAX_CALLS = 256  # tool calls in one reply
ATTEMPTS = 8  # of one reply; the pauses between them add up to about a minute
ATTEMPTS_ABSENT = 4  # while nobody has ever answered, or since a whole round of attempts met nobody
LONGEST_PAUSE = 30.0  # seconds, unless the server asks for more
LONGEST_ASKED = 300.0  # seconds that a server may ask for where an episode has no time limit
PATIENCE = 300.0  # seconds without a byte after which an attempt is given up: a whole reply may be in the making
PASSING = frozenset({408, 409, 425, 429})  # and every 5xx
UNUSABLE = frozenset({301, 302, 307, 308, 401, 403, 404, 405})  # before the first answer: it will never come
SERVER_SAMPLING = SamplingParams()  # nothing set: the server chooses
LENGTH = frozenset({"length", "max_tokens", "model_length"})


class EndpointError(ViewboxError):
    """An endpoint that cannot be used at all; ends the run."""


class _Trouble(Exception):
    """A failure that may pass. `after`: seconds the server asks to wait; `absent`: nobody could be reached."""

    def __init__(self, words: str, *, after: float | None = None, absent: bool = False) -> None:
        super().__init__(words)
        self.after, self.absent = after, absent


class OpenAIGenerator:
    """Replies from `POST <endpoint>/chat/completions`.

    `endpoint` is the base URL as clients of the interface take it (`http://127.0.0.1:8000/v1`; without a path, `/v1` is
    added). Of `sampling`, only the fields that were set are sent; the server chooses the others, and `max_tokens` (of a
    reply) if it is None. `extra` is merged into every request; a value of None removes a field (such as `seed`, if a
    server refuses it). Where the environment's
    `reply_format` is "native", the tools are advertised in `tools`, but not on the last turn; else the system message
    teaches them and calls are read from the text. `tool_images` is explained in `viewbox.envs.messages`. Token counts
    are summed in `info["usage"]`, the failed attempts in `info["failed_attempts"]`.
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
        attempts: int = ATTEMPTS,
        first_pause: float = 0.5,
        max_body: int = MAX_BODY,
    ) -> None:
        self.url, self.model = completions_url(endpoint), model
        self.sampling, self.max_tokens = sampling, max_tokens
        self.tool_images, self.extra = tool_images, dict(extra or {})
        self.attempts, self.first_pause, self.max_body = attempts, first_pause, max_body
        self.run_config = RunConfig(model_name=model, temperature=sampling.temperature, max_tokens=max_tokens)
        self._backoff = wait_exponential_jitter(initial=first_pause, max=LONGEST_PAUSE, jitter=first_pause)
        self._asking = 0  # requests under way
        self._tokens: int | None = None  # of all replies, where the server counts them
        self._answered = False  # a reply has been had
        self._reached = False  # somebody has spoken HTTP
        self._absent = True  # nobody has, or not since a whole round of attempts met nobody
        self._key = checked_key(api_key)
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}  # no bomb inside a small body
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        self._client = httpx.AsyncClient(
            headers=headers,
            timeout=httpx.Timeout(30.0, read=PATIENCE, pool=None),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
            trust_env=not is_loopback(endpoint),  # what is meant for this machine takes no proxy
        )

    # ------------------------------------------------------------------ the Generator protocol
    def join(self, conversation: Conversation) -> None: ...

    def leave(self, conversation: Conversation) -> None: ...

    async def close(self) -> None:
        await self._client.aclose()

    def now(self) -> Load:
        return Load(self._asking, tokens=self._tokens)

    async def reply(self, conversation: Conversation) -> GeneratedReply:
        request = await asyncio.to_thread(self.request, conversation)

        def pause(state: RetryCallState) -> float:
            return self._pause(state, conversation.deadline)

        def note(state: RetryCallState) -> None:
            conversation.info["failed_attempts"] = conversation.info.get("failed_attempts", 0) + 1
            conversation.info["last_failure"] = str(_trouble_of(state))  # names what a timeout was waiting for

        retrying = AsyncRetrying(
            retry=retry_if_exception_type(_Trouble), stop=self._enough, wait=pause, before_sleep=note, reraise=True
        )
        try:
            async for attempt in retrying:
                number = attempt.retry_state.attempt_number
                with attempt:
                    body = await asyncio.to_thread(_encoded, request, number)
                    message, finish_reason, usage = await self._ask(body)
        except _Trouble as trouble:
            raise self._given_up(trouble, number) from None
        self._answered = True
        said = _count(conversation.info, usage)
        self._tokens = self._tokens if said is None else (self._tokens or 0) + said
        calls = _with_ids(tool_calls_of(message), conversation)
        return GeneratedReply(_text(message.get("content")), finish_reason, calls)

    def request(self, conversation: Conversation) -> dict[str, Any]:
        """The body of a request for the conversation's next reply, as a dict. Raises `ImageError`."""
        messages = to_wire(conversation.shown(), tool_images=self.tool_images, text_calls=True)
        turn = len(conversation.messages)
        body: dict[str, Any] = {"model": self.model, "messages": messages, "max_tokens": self.max_tokens}
        body["seed"] = (conversation.seed * 31 + turn) % 2**31
        body |= self.sampling.model_dump(
            mode="json", exclude_unset=True, exclude=None if self.sampling.stop else {"stop"}
        )
        if conversation.reply_format != "native":
            messages[0]["content"] += tools_text(conversation.tools, conversation.reply_format, conversation.prompts)
        elif conversation.tools and not conversation.last_turn:
            body["tools"] = [thaw(tool) for tool in conversation.tools]
        return {key: value for key, value in (body | self.extra).items() if value is not None}

    # ------------------------------------------------------------------ one attempt
    async def _ask(self, body: bytes) -> tuple[Mapping[str, Any], str, Any]:
        """(assistant message, finish reason, usage) of one request; raises `_Trouble` for what may pass."""
        self._asking += 1
        try:
            async with self._client.stream("POST", self.url, content=body) as response:
                self._reached, self._absent = True, False
                received = await self._read(response)
        except httpx.TransportError as error:
            nobody = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
            words = self._clean(str(error)) or type(error).__name__
            raise _Trouble(f"no connection: {words}" if nobody else f"cut off: {words}", absent=nobody) from None
        finally:
            self._asking -= 1
        if not response.is_success:
            raise self._refused(response, received)
        return self._read_reply(received)

    async def _read(self, response: httpx.Response) -> bytes:
        """The body, never more of it than allowed."""
        limit = self.max_body if response.is_success else min(self.max_body, 64 * 1024)
        received = bytearray()
        async for chunk in response.aiter_raw(64 * 1024):
            received += chunk
            if len(received) > limit and response.is_success:
                raise ReplyError(f"the body of the reply is larger than {limit} bytes")
            if len(received) > limit:
                break
        return bytes(received[:limit])

    def _read_reply(self, received: bytes) -> tuple[Mapping[str, Any], str, Any]:
        said = self._clean(words_of(received[:4096]))
        try:
            data = json.loads(received, parse_constant=finite, parse_float=finite)
        except (ValueError, RecursionError):
            raise _Trouble(f"the reply is not JSON: {said!r}") from None
        choices = data.get("choices") if isinstance(data, dict) else None
        choice = choices[0] if isinstance(choices, list) and choices else None
        message = choice.get("message") if isinstance(choice, dict) else None
        if not isinstance(message, dict):
            raise _Trouble(f"the reply has no choices: {said}")
        content, calls = message.get("content"), message.get("tool_calls")
        if not isinstance(content, str | list | None) or (isinstance(calls, list) and len(calls) > MAX_CALLS):
            raise _Trouble(f"the reply has no usable message: {said}")
        given = choice.get("finish_reason")  # type: ignore[union-attr]
        reason = "length" if given in LENGTH else "tool_calls" if tool_calls_of(message) else "stop"
        return message, reason, data.get("usage")

    def _refused(self, response: httpx.Response, received: bytes) -> Exception:
        """What a status other than 2xx means."""
        status = response.status_code
        words = f"HTTP {status}: {self._clean(words_of(received)) or response.reason_phrase}"
        if status in PASSING or status >= 500:
            return _Trouble(words, after=retry_after(response.headers.get("retry-after")))
        if response.is_redirect:
            words += f" (it points to {self._clean(response.headers['location'])}; redirects are not followed)"
        if status in UNUSABLE and not self._answered:
            return EndpointError(f"{self.url}, model {self.model!r}: {words}")
        return ReplyError(words)

    # ------------------------------------------------------------------ between attempts
    def _enough(self, state: RetryCallState) -> bool:
        absent = self._absent and _trouble_of(state).absent
        return state.attempt_number >= (min(ATTEMPTS_ABSENT, self.attempts) if absent else self.attempts)

    def _pause(self, state: RetryCallState, deadline: float | None) -> float:
        """Seconds until the next attempt. A pause longer than the time left is halved, so that one more is made."""
        wait = self._backoff(state)
        after = _trouble_of(state).after
        if after is not None:
            wait = max(wait, after + random.uniform(0, self.first_pause))
        if deadline is None:
            return min(wait, LONGEST_ASKED)
        left = deadline - asyncio.get_running_loop().time()
        return wait if wait < left else max(0.0, left / 2)

    def _given_up(self, trouble: _Trouble, attempts: int) -> ViewboxError:
        words = f"{trouble} (after {attempts} attempts)"
        if trouble.absent and not self._reached:
            return EndpointError(f"{self.url} cannot be reached: {words}")
        self._absent = trouble.absent
        return ReplyError(words)

    def _clean(self, words: str) -> str:
        """Somebody else's words on one short line, without the key."""
        line = " ".join(words.replace(self._key or "\0", "***").split())
        return line if len(line) <= MAX_WORDS else line[:MAX_WORDS] + "…"


def _encoded(request: Mapping[str, Any], attempt: int) -> bytes:
    """The request as JSON. Every attempt has its own seed: a reply that breaks a server would break it again."""
    if attempt > 1 and isinstance(request.get("seed"), int):
        request = {**request, "seed": (request["seed"] + attempt - 1) % 2**31}
    return json.dumps(request).encode()


def _trouble_of(state: RetryCallState) -> _Trouble:
    trouble = state.outcome.exception() if state.outcome else None
    assert isinstance(trouble, _Trouble)
    return trouble


def _text(content: Any) -> str:
    """A message's text: a string, a list of parts, or nothing."""
    if isinstance(content, list):
        texts = (part.get("text") for part in content if isinstance(part, dict))
        return "".join(text for text in texts if isinstance(text, str))
    return content or ""


def _with_ids(calls: tuple[ToolCall, ...], conversation: Conversation) -> tuple[ToolCall, ...]:
    """The calls, each with an id of its own in the conversation: missing and repeated ones are made up.

    Made-up ids are nine letters and digits, which every server takes; `call_0` is what calls in the text are named.
    """
    taken = {call.id for message in conversation.messages for call in message.tool_calls}
    found = []
    for number, call in enumerate(calls):
        if call.id in taken or re.fullmatch(r"call_\d{1,3}", call.id):
            call = ToolCall(f"t{len(conversation.messages):05}{number:03}", call.name, call.arguments)
        taken.add(call.id)
        found.append(call)
    return tuple(found)


def _count(info: dict[str, Any], usage: Any) -> int | None:
    """Adds a reply's token counts to those of the episode; returns how many tokens the reply has, where it is known."""
    if not isinstance(usage, dict):
        return None
    total = info.setdefault("usage", {"prompt_tokens": 0, "completion_tokens": 0})
    for name in total:
        if isinstance(usage.get(name), int):
            total[name] += usage[name]
    said = usage.get("completion_tokens")
    return said if isinstance(said, int) else None
