"""Messages as a model is shown them, and as the OpenAI chat interface writes them.

Images travel as data URLs. Not every endpoint accepts an image in a tool message. For those, the tool's text says that
the image follows, and one user message after a round of tool messages carries the images. A tool message answers a
native call. A call that stood in the reply's text is answered by a user message in Hermes form: the text that Qwen's
chat templates make of it. Control tokens in any text are broken, because a server's tokenizer would find them.
`render_tools` is the text that teaches a format, for every path alike.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import Any, Literal

from msgspec.structs import replace

from ..images.ref import ImageRef
from ..records import Message, ToolCall
from ..utils.frozen import thaw
from ..utils.sanitize import break_control_tokens, map_texts
from .contract import AuthoredEnv
from .parsing.objects import write_arguments
from .prompts.templates import Prompts
from .settings import ReplyFormat

ToolImages = Literal["tool", "user"]
EMPTY = "(no reply)"  # for an empty reply: many servers refuse a message without content
FOLLOWS = "(The image follows in the next message.)"
TEXT_KEYS = ("text", "thinking", "reasoning", "reasoning_content", "content", "summary", "refusal")
THINKING = "thinking", "reasoning"  # parts of a message's content
MAX_FIELDS = 64  # of a message that are looked at
_NO_TEXT = re.compile(  # fields of a message that are read elsewhere, or hold no text of the model
    r"^(?:content|encrypted_content|refusal|tool_calls|function_call|audio|annotations|images?|context|provider|phase)$"
    r"|(?:^|_)(?:role|name|id|type|object|model|status|signature|reason|channel)$"
)
SHOWN = "The image of tool call {id}:"
# What a server says of a reply that it, and not the model, ended.
_FAILED = re.compile(
    "error|fail|abort|cancel|time_?d?_?(?:out|limit)|interrupt|insufficient|unavailable|exceeded|overload|malformed|unexpected"
    "|incomplete|disconnect|exception|missing|too_many|preempt|rate_?limit|(?:^|[._])other$"
    "|not_?finished|terminat|kill|crash|evict|memory|shut_?down|dropp|stall|expired|capacity",
    re.IGNORECASE,
)
_CALL_NAME = re.compile("[A-Za-z0-9_-]{1,64}")  # that every server takes
CALLS: dict[ReplyFormat, str] = {  # how a reply's text writes a call
    "native": "<tool_call>\n{}\n</tool_call>",
    "hermes": "<tool_call>\n{}\n</tool_call>",
    "fenced": "```tool\n{}\n```",
    "json": "{}",
}


def apply_history(env: AuthoredEnv, messages: Sequence[Message]) -> list[Message]:
    """Return the messages as the model gets them under the `history` policy; the record keeps every image."""
    if env.history == "full":  # messages only ever grow, as training on sampled tokens needs
        return list(messages)
    if env.history.last_turns is not None:
        messages = drop_older_words(messages, env.history.last_turns)
    if env.history.last_images is None:
        return list(messages)
    return drop_older_images(
        messages, env.history.last_images, lambda number: env.prompts.render("dropped", number=number)
    )


def drop_older_words(messages: Sequence[Message], last_turns: int) -> list[Message]:
    """Return the messages with a placeholder for the words of results and notes before the last `last_turns` replies.
    The system prompt, the question, every reply with its calls, and all images stay.

    >>> old = [Message("user", ("What?",)), Message("assistant", ("Look.",))]
    >>> old.append(Message("tool", ("much text",), name="look"))
    >>> [message.text for message in drop_older_words([*old, Message("assistant", ("And?",))], 1)]
    ['What?', 'Look.', '(9 characters of look, left out)', 'And?']
    """
    replies = [place for place, message in enumerate(messages) if message.role == "assistant"]
    first = replies[-last_turns] if len(replies) > last_turns else 0
    opening = next((place for place, message in enumerate(messages) if message.role == "user"), 0)
    shown = list(messages)
    for place, message in enumerate(messages[:first]):
        if place > opening and message.role in ("tool", "user"):
            note = f"({len(message.text)} characters of {message.name or 'a note'}, left out)"
            shown[place] = replace(message, content=(note, *message.images))
    return shown


def drop_older_images(messages: Sequence[Message], last_images: int, dropped: Callable[[int], str]) -> list[Message]:
    """Return the messages with their last `last_images` images; `dropped(n)` replaces the n-th image (from 0).
    The pictures at the start count as one: all are kept, or none. If the last message shows one of them again, it is
    not counted: it would push out what the model has just asked for.

    >>> import numpy as np
    >>> first, second = (ImageRef.of(np.full((2, 2), shade, np.uint8)) for shade in (1, 2))
    >>> conversation = [Message("user", (first, "What is it?")), Message("tool", ("zoomed in", second))]
    >>> visible = drop_older_images(conversation, 1, "image {} is gone".format)
    >>> [len(message.images) for message in visible]
    [0, 1]
    """
    left = last_images
    opening = next((message for message in messages if message.images), None)
    originals = {image.hash for image in opening.images} if opening is not None else set()
    number = sum(len(message.images) for message in messages)
    selected: list[Message] = []
    for place, message in zip(range(len(messages) - 1, -1, -1), reversed(messages), strict=True):
        parts: list[str | ImageRef] = []
        is_opening = message is opening
        for part in reversed(message.content):
            if isinstance(part, ImageRef):
                number -= 1
                again = not is_opening and place == len(messages) - 1 and part.hash in originals
                if not again and left <= 0:
                    part = dropped(number)
                elif not again and not is_opening:
                    left -= 1
            parts.append(part)
        selected.append(replace(message, content=tuple(reversed(parts))) if message.images else message)
    return selected[::-1]


def to_openai_messages(
    messages: Iterable[Message], *, tool_images: ToolImages = "tool", text_calls: bool = False
) -> list[dict[str, Any]]:
    """Return the messages as chat-completion dicts; text alone stays a string.
    With `text_calls`, as servers take them: a tool message that answers no native call of the reply before it becomes a
    user message, so does one of a call whose name no server takes back, and an empty reply says that it is none.

    >>> to_openai_messages([Message("system", ("Look.",)), Message("user", ("What is it?",))])
    [{'role': 'system', 'content': 'Look.'}, {'role': 'user', 'content': 'What is it?'}]
    """
    wire: list[dict[str, Any]] = []
    waiting: list[str | ImageRef] = []
    for message in _answered(messages) if text_calls else messages:
        content: Sequence[str | ImageRef] = message.content
        if message.role == "tool" and tool_images == "user" and message.images:
            for image in message.images:
                waiting += [SHOWN.format(id=message.tool_call_id or message.name), image]
            content = (f"{message.text}\n{FOLLOWS}",)
        elif message.role != "tool" and waiting:
            wire.append({"role": "user", "content": _content(waiting)})
            waiting = []
        wire.append(_one(message, content))
        if text_calls and message.role == "assistant" and not message.text.strip() and not message.images:
            wire[-1]["content"] = None if message.tool_calls else EMPTY
    if waiting:
        wire.append({"role": "user", "content": _content(waiting)})
    return wire


def render_tools(
    tools: Iterable[Mapping[str, object]], reply_format: ReplyFormat = "hermes", prompts: Prompts | None = None
) -> str:
    """Return the end of a system message, which teaches the model to call these tools in a format; "" without tools.
    An API or a chat template teaches the format "native" itself. If neither does, the Hermes text is used.

    >>> print(render_tools([{"name": "zoom"}], "json").rpartition("\\n")[2])
    {"tool": <function-name>, "arguments": <args-json-object>}
    """
    listed = [json.dumps(thaw(tool), ensure_ascii=False) for tool in tools]
    name = f"tools_{'hermes' if reply_format == 'native' else reply_format}"
    return "\n\n" + (prompts or Prompts()).render(name, tools=listed) if listed else ""


def write_call(name: str, arguments: object, reply_format: ReplyFormat = "hermes") -> str:
    """Return a tool call as a model writes it in the text of its reply.

    >>> write_call("zoom", {"factor": 2}, "json")
    '{"tool": "zoom", "arguments": {"factor": 2}}'
    """
    key = "tool" if reply_format == "json" else "name"
    return CALLS[reply_format].format(json.dumps({key: name, "arguments": arguments}, ensure_ascii=False))


def read_tool_calls(message: Mapping[str, object]) -> tuple[ToolCall, ...]:
    """Return the native tool calls of an assistant message, one in the old form included; malformed ones are skipped.

    >>> read_tool_calls({"tool_calls": [{"id": "a", "function": {"name": "zoom", "arguments": '{"factor": 2}'}}]})
    (ToolCall(id='a', name='zoom', arguments='{"factor": 2}'),)
    """
    calls: list[ToolCall] = []
    listed, legacy = message.get("tool_calls"), message.get("function_call")
    for number, call in enumerate([*(listed if isinstance(listed, list) else ()), {"function": legacy}]):
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            continue
        identity, name = call.get("id"), function.get("name")
        identity = identity if isinstance(identity, str) and identity else f"call_{number}"
        arguments = write_arguments(function.get("arguments"))
        if function is not legacy or all((call.name, call.arguments) != (name, arguments) for call in calls):
            calls.append(ToolCall(identity, name if isinstance(name, str) else "", arguments))
    return tuple(calls)


def is_failure(finish_reason: str | None) -> bool:
    """Return whether a reply with this finish reason is a part of one: its server failed, and the model did not end it.

    >>> is_failure("network_error"), is_failure("OTHER"), is_failure("stop"), is_failure("length")
    (True, True, False, False)
    """
    return _FAILED.search((finish_reason or "").replace(" ", "_").replace("-", "_")) is not None


def read_reasoning(message: Mapping[str, Any]) -> str:
    """Return the thinking in an assistant message: parts of its content, and what other fields of it hold as text.

    >>> read_reasoning({"content": "Six.", "reasoning": "3 + 3", "reasoning_details": [{"text": "3 + 3"}]})
    '3 + 3'
    """
    thoughts: dict[str, str] = {}  # by their letters: servers say it in two fields
    fields = [value for key, value in islice(message.items(), MAX_FIELDS) if not _NO_TEXT.search(key)]
    for value in (list_parts(message.get("content"), *THINKING), *fields):
        text = collect_text(value)
        letters = "".join(text.split())
        if letters and not any(letters in thought for thought in thoughts):
            thoughts[letters] = text
    return "\n".join(thoughts.values())


def list_parts(content: object, *kinds: str) -> list[Mapping[str, Any]]:
    """Return the parts of a message's content whose type begins so."""
    parts = [part for part in content if isinstance(part, Mapping)] if isinstance(content, list) else []
    return [part for part in parts if isinstance(kind := part.get("type"), str) and kind.startswith(kinds)]


def read_text(content: object) -> str:
    """Return the text of a message's content, without its thinking: a string, a list of parts, or None."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    spoken = [part for part in content if not list_parts([part], *THINKING)]
    texts = (part.get("text") if isinstance(part, Mapping) else part for part in spoken)
    return "".join(text for text in texts if isinstance(text, str))


def collect_text(value: object, depth: int = 4) -> str:
    """Return the text in a field of a message, however a server nests it."""
    if isinstance(value, list) and depth:
        return "\n".join(filter(None, (collect_text(item, depth - 1) for item in value)))
    if isinstance(value, Mapping) and depth:
        return next(filter(None, (collect_text(value.get(key), depth - 1) for key in TEXT_KEYS)), "")
    return value if isinstance(value, str) else ""


def join_texts(content: Iterable[str | ImageRef]) -> list[str | ImageRef]:
    """Return the parts of a message with adjacent texts as one: a chat template puts nothing between them.

    >>> join_texts(["<|im_", "end|>"])
    ['<|im_end|>']
    """
    joined: list[str | ImageRef] = []
    for is_text, group in groupby(content, lambda part: isinstance(part, str)):
        parts = list(group)
        joined += ["".join(map(str, parts))] if is_text else parts
    return joined


def _answered(messages: Iterable[Message]) -> Iterator[Message]:
    """Yield the messages with results of calls from the text as user messages, one message per round.
    A call whose name a model made up of other letters than servers take becomes text of its reply."""
    native: set[str] = set()
    round_: list[str | ImageRef] = []
    for message in messages:
        if message.role == "tool" and message.tool_call_id in native:
            yield message
            continue
        if message.role == "tool":
            opening = "\n<tool_response>\n" if round_ else "<tool_response>\n"
            round_ = join_texts([*round_, opening, *message.content, "\n</tool_response>"])  # servers join differently
            continue
        if round_:
            yield Message("user", tuple(round_))
            round_ = []
        if message.role == "assistant":
            taken = tuple(call for call in message.tool_calls if _CALL_NAME.fullmatch(call.name))
            native = {call.id for call in taken}
            odd = [write_call(one.name, json.loads(_arguments(one))) for one in message.tool_calls if one not in taken]
            if odd:
                parts = (*message.content, *(f"\n{text}" for text in odd))
                message = replace(message, content=parts, tool_calls=taken)
        yield message
    if round_:
        yield Message("user", tuple(round_))


def _arguments(call: ToolCall) -> str:
    """Return a call's arguments as JSON text; any other value is wrapped in an object, because servers parse it. A
    server may also put their texts through a chat template, so control tokens in them are broken, escaped ones too."""
    written = call.arguments
    try:
        value = json.loads(written) if isinstance(written, str) and written else thaw(written or {})
        if isinstance(value, dict):
            safe = map_texts(value, break_control_tokens)
            return written if isinstance(written, str) and written and safe == value else json.dumps(safe)
    except (ValueError, RecursionError):
        pass
    return json.dumps({"malformed": break_control_tokens(str(written))})


def _one(message: Message, content: Sequence[str | ImageRef]) -> dict[str, Any]:
    entry: dict[str, Any] = {"role": message.role, "content": _content(content)}
    if message.reasoning.strip():
        entry["reasoning_content"] = message.reasoning
    if message.tool_calls:
        entry["content"] = entry["content"] or None  # "" makes some chat templates write an empty line before the call
        entry["tool_calls"] = [
            {
                "id": break_control_tokens(call.id),
                "type": "function",
                "function": {"name": break_control_tokens(call.name), "arguments": _arguments(call)},
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        entry["tool_call_id"] = break_control_tokens(message.tool_call_id)
    if message.role == "tool" and message.name is not None:
        entry["name"] = break_control_tokens(message.name)
    return entry


def _content(content: Sequence[str | ImageRef]) -> str | list[dict[str, Any]]:
    if all(isinstance(part, str) for part in content):
        return break_control_tokens("".join(str(part) for part in content))
    return [
        {"type": "text", "text": break_control_tokens(part)}
        if isinstance(part, str)
        else {"type": "image_url", "image_url": {"url": part.render().to_data_url()}}
        for part in join_texts(content)
    ]
