"""Any OpenAI-compatible endpoint as a generator: its settings, its requests and what its replies say.

A reply is unusable if a part that it needs has the wrong type. Any other part of a wrong type counts as missing.
"""

import asyncio
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx
from pydantic import Field

from ...configs.sections import FilePath, SamplingParams, Section
from ...core.messages import (
    ToolImages,
    collect_text,
    is_failure,
    list_parts,
    read_reasoning,
    read_text,
    read_tool_calls,
    render_tools,
    to_openai_messages,
)
from ...errors import ConfigError
from ...network.connection import REQUEST_STATUS
from ...network.connection import Connection as AnyConnection
from ...network.data_policy import check_sending
from ...network.errors import AddressError, BrokenReplyError, UnusableReplyError
from ...network.hosts import ALLOWED_URL, parse_url
from ...network.http import parse_body
from ...records import Reply, RunConfig, ToolCall
from ...utils import secrets
from ...utils.frozen import EMPTY_DICT, thaw
from ...utils.sanitize import replace_surrogates
from ...utils.terminal import make_line
from ...version import get_versions
from ..generator import Conversation, Generator, GeneratorError, Load, ReplyError
from ..model_profiles import find_model_defaults

if TYPE_CHECKING:
    from .token_check import TokenCheck

FORMAT = "response_format"
SERVER_SAMPLING = SamplingParams()  # no field is set, so the server's defaults apply


class EndpointError(AddressError, GeneratorError):
    """The endpoint cannot be used at all; ends the run. `status` is the HTTP status that said so, if one did."""


class ChatConnection(AnyConnection):
    """One address of an endpoint, its key, and what is known about it."""

    request_error = ReplyError
    address_error = EndpointError
    sends_errors = True


class EndpointSettings(Section):
    """Settings of the requests to an endpoint: the section `endpoint` of a config that is played, or overrides, such as
    `endpoint.tool_images=tool`."""

    url: str | None = Field(default=None, description="of the server, if `--endpoint` does not give it")
    api_key_env: str | None = Field(
        default=None,
        description="environment variable with the API key; default: OPENAI_API_KEY, if the endpoint is OpenAI's",
    )
    tool_images: ToolImages | None = Field(
        default=None,
        description="role of the message that holds a tool's image, tool or user; default: what the model was trained "
        "on, if its name is known, else user, which every server takes",
    )
    tokenizer: FilePath | None = Field(
        default=None, description="with --check-tokens: the model's folder or hub name; default: --model"
    )
    native_tools: bool = Field(default=True, strict=True, description="send tools as `tools`; false: in the prompt")
    response_format: bool = Field(
        default=True,
        strict=True,
        description="send the answer's JSON Schema in requests without tools, until a server refuses it",
    )
    send_back: bool | None = Field(
        default=None,
        strict=True,
        description="send what the server sent beside its replies, such as reasoning and signatures, back with them; "
        "default: from when it refuses a request without them",
    )
    retries: int | None = Field(default=None, ge=0, description="further attempts for a reply; default: 7")
    extra: dict[str, Any] = Field(
        default_factory=dict, description="fields merged into every request; null removes a field"
    )

    @property
    def limits(self) -> dict[str, int]:
        """What `ChatConnection` takes of these settings."""
        return {} if self.retries is None else {"attempts": self.retries + 1}

    def for_model(self, name: str) -> "EndpointSettings":
        """Return the settings with what follows from the name of a model, where nothing else was given."""
        images = self.tool_images or find_model_defaults(name).tool_images
        return self.model_copy(update={"tool_images": images})


class OpenAIGenerator(Generator):
    """Replies from `POST <endpoint>/chat/completions`.
    If the environment's `reply_format` is "native", tool schemas are sent in the field `tools`, on the last turn with
    `tool_choice: none`; otherwise the system message teaches them. Token counts are summed in `info["usage"]`.

    Args:
        endpoint: base URL, such as `http://127.0.0.1:8000/v1`; without a path, `/v1` is added.
        sampling: only the fields that were set are sent; the server chooses the others.
        token_check: compares each prompt with that of our engine.
        extra: fields merged into every request; None removes a field (such as `seed`, if a server refuses it).
        response_format, send_back: see `EndpointSettings`.
        limits: `attempts`, `first_pause` and `max_body` of `ChatConnection`, which also says what it raises.
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
        token_check: "TokenCheck | None" = None,
        extra: Mapping[str, Any] | None = None,
        response_format: bool = True,
        send_back: bool | None = None,
        **limits: Any,
    ) -> None:
        self.response_format, self.send_back = response_format, send_back
        self.url, self.model = build_completions_url(endpoint), model
        self.sampling, self.max_tokens = sampling, max_tokens
        self.tool_images, self.extra = tool_images, dict(extra or {})
        self.token_check = token_check
        sent = sampling.model_dump(include={"temperature"}, exclude_unset=True) | self.extra
        temperature, max_tokens = sent.get("temperature"), self.extra.get("max_tokens", max_tokens)
        self.run_config = RunConfig(
            model_name=model, temperature=temperature, max_tokens=max_tokens, versions=get_versions()
        )
        self.connection = ChatConnection(
            self.url, subject=f"model {model!r}", api_key=api_key, extra=self.extra, **limits
        )
        self._tokens: int | None = None  # of all replies, if the server counts them

    def leave(self, conversation: Conversation) -> None:
        if self.token_check is not None:
            self.token_check.forget(conversation)

    async def close(self) -> None:
        await self.connection.close()

    def get_load(self) -> Load:
        return Load(self.connection.in_flight, tokens=self._tokens)

    async def reply(self, conversation: Conversation) -> Reply:
        check_sending(self.url)
        request, check = await asyncio.to_thread(self.build_request, conversation), self.token_check
        if check is not None:
            request["return_token_ids"] = True
            expected = await asyncio.to_thread(check.expect, conversation)
        completion = await self._post(request, conversation)
        if check is not None:
            await asyncio.to_thread(check.compare, conversation, expected, completion.body)
        self._add_usage(conversation.info, completion.usage)
        taken = {call.id for message in conversation.messages for call in message.tool_calls}
        calls = assign_call_ids(completion.calls, taken, f"t{len(conversation.messages):05}")
        details = {call.id: more for call, more in zip(calls, completion.beside.get("tool_calls", ()), strict=False)}
        conversation.beside.append({**completion.beside, "tool_calls": details})
        return Reply(completion.text, calls, completion.finish_reason, reasoning=completion.reasoning)

    async def _post(self, request: Mapping[str, Any], conversation: Conversation) -> "Completion":
        """Return the server's reply. A request that it refuses is sent without the schema of the answer, or with what
        the server sent beside its earlier replies; which of these it took is remembered."""
        forms, refusal = [(FORMAT in request, bool(self.send_back))], None
        for with_format, with_beside in forms:  # further ones are added when the first is refused
            body = {name: value for name, value in request.items() if with_format or name != FORMAT}
            if with_beside:
                body["messages"] = give_back(body["messages"], conversation.beside)
            parts = partial(encode_request, body), parse_completion
            try:
                completion = await self.connection.post(*parts, deadline=conversation.deadline, info=conversation.info)
            except (ReplyError, EndpointError) as error:
                if refusal is None and error.status in REQUEST_STATUS:
                    if with_format and FORMAT not in self.extra:
                        forms.append((False, with_beside))
                    if self.send_back is None and conversation.beside and _WANTS_BACK.search(str(error)):
                        forms.append((False, True))
                refusal = refusal or error
                continue
            if FORMAT in request and not with_format:
                self.response_format = False
            if refusal is not None and with_beside:
                self.send_back = True
            return completion
        assert refusal is not None
        if refusal.status in MAY_BE_THE_CALLS and "tools" in request and _ABOUT_CALLS.search(str(refusal)):
            refusal.args = (f"{refusal} ({ADVICE})",)
        raise refusal

    def build_request(self, conversation: Conversation) -> dict[str, Any]:
        """Return the request for the next reply of a conversation. Raise `ImageError`."""
        messages = to_openai_messages(conversation.visible_messages, tool_images=self.tool_images, text_calls=True)
        turn = len(conversation.messages)
        body: dict[str, Any] = {"model": self.model, "messages": messages, "max_tokens": self.max_tokens}
        body["seed"] = (conversation.seed * 31 + turn) % 2**31
        sampling = self.sampling.model_dump(mode="json", exclude_unset=True)
        body |= {name: value for name, value in sampling.items() if value != []}
        if self.response_format and not conversation.tools and conversation.answer_schema is not None:
            schema = {"name": "answer", "schema": thaw(conversation.answer_schema)}
            body[FORMAT] = {"type": "json_schema", "json_schema": schema}
        if conversation.reply_format != "native":
            messages[0]["content"] += render_tools(conversation.tools, conversation.reply_format, conversation.prompts)
        elif conversation.tools:
            body["tools"] = [thaw(tool) for tool in conversation.tools]
            if conversation.last_turn:  # left out, they would change the prompt that the model was trained on
                body["tool_choice"] = "none"
        return {key: value for key, value in (body | self.extra).items() if value is not None}

    def _add_usage(self, info: dict[str, Any], usage: Mapping[str, int]) -> None:
        """Add a reply's token counts, if the server counts them, to those of the episode and of all replies."""
        total = info.setdefault("usage", {"prompt_tokens": 0, "completion_tokens": 0}) if usage else {}
        for name, count in usage.items():
            total[name] += count
        if "completion_tokens" in usage:
            self._tokens = (self._tokens or 0) + usage["completion_tokens"]


def build_completions_url(endpoint: str) -> str:
    """Return the URL that requests are sent to. Raise `ConfigError` if `endpoint` is not an http(s) URL, or carries a
    key or a query.

    >>> build_completions_url("http://127.0.0.1:8000"), build_completions_url("https://host/api/v1/")
    ('http://127.0.0.1:8000/v1/chat/completions', 'https://host/api/v1/chat/completions')
    """
    parse_url(endpoint)
    try:
        url = httpx.URL(endpoint)
        _ = url.host  # decodes international names
    except (httpx.InvalidURL, UnicodeError) as error:
        raise ConfigError(f"endpoint: {endpoint!r}: {error}; {ALLOWED_URL}", key="endpoint") from None
    path = url.path.rstrip("/") or "/v1"
    return str(url.copy_with(path=path if path.endswith("/chat/completions") else f"{path}/chat/completions"))


def encode_request(request: Mapping[str, Any], attempt: int) -> bytes:
    """Return the request as JSON. Each attempt has its own seed, because the same reply could fail again."""
    if attempt > 1 and isinstance(request.get("seed"), int):
        request = {**request, "seed": (request["seed"] + attempt - 1) % 2**31}
    return json.dumps(request).encode()


MAX_CALLS = 256  # tool calls in one reply
MAX_COUNT = 2**53  # tokens: a larger number is not a count
MAX_REASON = 64  # characters of a server's own word for why a reply ended
FINISH_REASONS = {
    "stop": "stop eos eos_token end_turn stop_sequence complete tool_calls tool_call tool_use function_call",
    "length": "length max_tokens max_output_tokens model_length model_context_window_exceeded context_length_exceeded",
    "content_filter": "content_filter content_filtered contentfilter safety recitation blocklist prohibited_content "
    "spii sensitive image_safety image_prohibited_content guardrail_intervened",
    "refusal": "refusal",
}
_LENGTH = re.compile(
    "tokens?_limit|max(?:imum)?_?(?:new_|completion_|output_)?tokens|length|context_window|error_limit|^limit$"
)
REASONS = ("finish_reason", "finishReason", "stop_reason", "done_reason")  # which the first of them names
COUNTS = ("prompt_tokens", "completion_tokens")

# What a server refuses if it wants calls and results in another form than `to_openai_messages` gives them.
MAY_BE_THE_CALLS = frozenset({400, 422, 500, 501})
_ABOUT_CALLS = re.compile(
    "reasoning|thinking|thought|signature|encrypted|tool|function|role|alternat|content|messages\\W|prefill"
    "|invalid argument|untagged",
    re.IGNORECASE,
)
_WANTS_BACK = re.compile("reason|think|thought|signature|encrypted", re.IGNORECASE)
ADVICE = "if it is about calls or their results: endpoint.native_tools=false writes both as text"

_CALL_ID = re.compile(r"[\w.:|/+=-]{1,4096}", re.ASCII)  # some servers put what they want back into the id
_OWN_ID = re.compile(r"call_\d{1,3}")


@dataclass(frozen=True)
class Completion:
    """What a server's reply says; `usage` holds those of `COUNTS` that it counts, `body` all that it sent."""

    text: str
    calls: tuple[ToolCall, ...]
    finish_reason: str
    usage: Mapping[str, int]
    body: Mapping[str, Any]
    reasoning: str = ""
    beside: Mapping[str, Any] = EMPTY_DICT  # what it sent beside text and calls, such as signatures


def parse_completion(body: bytes) -> Completion:
    """Return the reply in a body, without API keys and lone surrogates. Raise `UnusableReplyError` if it is not JSON,
    has no message, or its server failed before the reply was whole."""
    try:
        data = parse_body(body, finite=False)
    except (ValueError, RecursionError):
        raise UnusableReplyError("the reply is not JSON") from None
    choices = data.get("choices") if isinstance(data, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    named = [choice[name] for name in REASONS if choice.get(name)] if isinstance(choice, dict) else []
    named = [value.get("type") if isinstance(value, dict) else value for value in named]
    reasons = [_read_finish_reason(value) for value in named] or ["stop"]
    reason = next((reason for reason in reasons if is_failure(reason)), reasons[0])
    _check_whole(data, choice, reason)
    message = choice.get("message", {} if reason == "content_filter" else None) if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise UnusableReplyError(f"the reply has no {'message' if isinstance(choice, dict) else 'choices'}")
    content, listed = message.get("content"), message.get("tool_calls")
    if not isinstance(content, str | list | None) or (isinstance(listed, list) and len(listed) > MAX_CALLS):
        raise UnusableReplyError("the reply has no usable message")
    calls = tuple(
        ToolCall(_clean(call.id), _clean(call.name), _clean(str(call.arguments))) for call in read_tool_calls(message)
    )
    text, thought = read_text(content), read_reasoning(message)
    refusal = collect_text([message.get("refusal"), *list_parts(content, "refusal")])
    if refusal.strip():
        reason = "refusal" if reason == "stop" else reason
        text, thought = (text, f"{thought}\n{refusal}".strip()) if text.strip() else (refusal, thought)
    reason = "tool_calls" if calls and reason == "stop" else reason
    return Completion(_clean(text), calls, reason, _read_usage(data), data, _clean(thought), _read_beside(message))


# Of a message, a call and its function: what is sent back anyway, or belongs to no request.
_KNOWN = frozenset(
    ("role", "content", "refusal", "audio", "annotations", "parsed", "tool_calls", "function_call")  # of a message
) | {"id", "type", "index", "function", "name", "arguments"}


def _read_beside(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a message or a call holds that is not known, and so of its calls, or of its function."""
    unknown = {name: value for name, value in part.items() if name not in _KNOWN and value not in (None, "", [], {})}
    listed, function = part.get("tool_calls"), part.get("function")
    if isinstance(listed, list):  # those that are read, see `read_tool_calls`
        calls = [call for call in listed if isinstance(call, dict) and isinstance(call.get("function"), dict)]
        unknown["tool_calls"] = [_read_beside(call) for call in calls]
    if isinstance(function, dict) and (more := _read_beside(function)):
        unknown["function"] = more
    return unknown


def give_back(messages: Sequence[Any], beside: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return the messages of a request with what the server sent `beside` its replies, the earliest first.

    >>> call = {"id": "a", "function": {"name": "zoom"}}
    >>> give_back([{"role": "assistant", "tool_calls": [call]}], [{"why": "x", "tool_calls": {"a": {"sign": "s"}}}])
    [{'role': 'assistant', 'tool_calls': [{'id': 'a', 'function': {'name': 'zoom'}, 'sign': 's'}], 'why': 'x'}]
    """
    remaining, restored = iter(beside), list[Any]()
    for message in messages:
        more = next(remaining, {}) if message["role"] == "assistant" else {}
        message = {**message, **{name: value for name, value in more.items() if name != "tool_calls"}}
        for number, call in enumerate(message.get("tool_calls", ())):
            details = dict(more.get("tool_calls", {}).get(call["id"], {}))
            details["function"] = {**call["function"], **details.pop("function", {})}
            message["tool_calls"] = [*message["tool_calls"]]
            message["tool_calls"][number] = {**call, **details}
        restored.append(message)
    return restored


def _check_whole(data: Any, choice: Any, reason: str) -> None:
    """Raise `BrokenReplyError` if a server says that it failed, whatever text stands beside that."""
    parts = (data, choice, choice.get("message")) if isinstance(choice, dict) else ()
    for part in (entry for entry in parts if isinstance(entry, dict)):
        error = part.get("error") or part.get("errors")
        refused = part.get("base_resp", {}) if isinstance(part.get("base_resp"), dict) else {}  # of MiniMax
        if (any(error.values()) if isinstance(error, dict) else error) or refused.get("status_code"):
            raise BrokenReplyError("the reply ended in an error")
        said = [part.get(name) for name in ("native_finish_reason", "status")]
        for word in (reason, *(said if reason == "stop" else ())):
            if isinstance(word, str) and is_failure(word):
                raise BrokenReplyError(f"the reply was broken off ({word[:MAX_REASON]!a})")


def _read_finish_reason(given: object) -> str:
    """Return why a reply ended, in our words; the server's own word if there is none of ours."""
    word = given if isinstance(given, str) else ""
    plain = re.sub("[^a-z]+", "_", word[:MAX_REASON].lower()).strip("_").removeprefix("finish_reason_")
    plain = plain.removeprefix("finishreason_")
    known = next((ours for ours, words in FINISH_REASONS.items() if plain in words.split()), "")
    known = "content_filter" if plain.startswith("content_filter") else known
    known = known or ("length" if _LENGTH.search(plain) and not re.search("invalid|malformed|rate", plain) else "")
    cleaned = make_line(_clean(word), MAX_REASON).strip()
    return known or (cleaned if cleaned not in ("", "budget") else "stop")  # which only engines of ours may say


def assign_call_ids(calls: tuple[ToolCall, ...], taken: Collection[str], prefix: str) -> tuple[ToolCall, ...]:
    """Return the calls, each with an id of letters and digits that is unique in the conversation; missing, repeated and
    odd ids are replaced, and `call_0`, `call_1`, …, which calls parsed from text have."""
    taken, unique = set(taken), []
    for number, call in enumerate(calls):
        if call.id in taken or _OWN_ID.fullmatch(call.id) or not _CALL_ID.fullmatch(call.id):
            call = ToolCall(f"{prefix}{number:03}", call.name, call.arguments)
        taken.add(call.id)
        unique.append(call)
    return tuple(unique)


def _read_usage(data: Mapping[str, Any]) -> dict[str, int]:
    usage = data.get("usage")
    counts = {name: usage.get(name) for name in COUNTS} if isinstance(usage, dict) else {}
    return {name: count for name, count in counts.items() if type(count) is int and 0 <= count <= MAX_COUNT}


def _clean(text: str) -> str:
    return replace_surrogates(secrets.mask_text(text))
