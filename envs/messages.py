"""Messages as a model is shown them, and as the OpenAI chat interface writes them.

Images travel as data URLs. Not every endpoint accepts an image in a tool message. For those, the tool's text says that
the image follows, and one user message after a round of tool messages carries the images. A tool message answers a
native call. A call that stood in the reply's text is answered by a user message in Hermes form: the text that Qwen's
chat templates make of it. `render_tools` is the text that teaches a format, for every path alike.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from viewbox.envs.prompts.templates import Prompts
from viewbox.envs.settings import ReplyFormat
from viewbox.frozen import thaw
from viewbox.images.ref import ImageRef
from viewbox.records import Message, ToolCall

ToolImages = Literal["tool", "user"]
FOLLOWS = "(The image follows in the next message.)"
SHOWN = "The image of tool call {id}:"


def drop_older_images(messages: Sequence[Message], last_images: int, dropped: Callable[[int], str]) -> list[Message]:
    """The messages with their last `last_images` images; `dropped(n)` replaces the n-th image (from 0).

    If the last message shows the first image of the conversation again, that image is not counted: it would push out
    what the model has just asked for.

    >>> import numpy as np
    >>> first, second = (ImageRef.of(np.full((2, 2), shade, np.uint8)) for shade in (1, 2))
    >>> conversation = [Message("user", (first, "What is it?")), Message("tool", ("zoomed in", second))]
    >>> visible = drop_older_images(conversation, 1, "image {} is gone".format)
    >>> [len(message.images) for message in visible]
    [0, 1]
    """
    left = last_images
    original = next((image.hash for message in messages for image in message.images), None)
    number = sum(len(message.images) for message in messages)
    selected: list[Message] = []
    for place, message in zip(range(len(messages) - 1, -1, -1), reversed(messages), strict=True):
        parts: list[str | ImageRef] = []
        for part in reversed(message.content):
            if isinstance(part, ImageRef):
                number -= 1
                again = number > 0 and place == len(messages) - 1 and part.hash == original
                if not again and left <= 0:
                    part = dropped(number)
                elif not again:
                    left -= 1
            parts.append(part)
        selected.append(replace(message, content=tuple(reversed(parts))) if message.images else message)
    return selected[::-1]


def to_openai_messages(
    messages: Iterable[Message], *, tool_images: ToolImages = "tool", text_calls: bool = False
) -> list[dict[str, Any]]:
    """The messages as chat-completion dicts; text alone stays a string.

    With `text_calls`, a tool message that answers no native call of the reply before it becomes a user message.

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
    if waiting:
        wire.append({"role": "user", "content": _content(waiting)})
    return wire


def render_tools(
    tools: Iterable[Mapping[str, Any]], reply_format: ReplyFormat = "hermes", prompts: Prompts | None = None
) -> str:
    """The end of a system message, which teaches the model to call these tools in a format; "" without tools.

    An API or a chat template teaches the format "native" itself. If neither does, the Hermes text is used.

    >>> print(render_tools([{"name": "zoom"}], "json").rpartition("\\n")[2])
    {"tool": <function-name>, "arguments": <args-json-object>}
    """
    listed = [json.dumps(thaw(tool), ensure_ascii=False) for tool in tools]
    name = f"tools_{'hermes' if reply_format == 'native' else reply_format}"
    return "\n\n" + (prompts or Prompts()).render(name, tools=listed) if listed else ""


def read_tool_calls(message: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    """The native tool calls of an assistant message; malformed ones are skipped.

    >>> read_tool_calls({"tool_calls": [{"id": "a", "function": {"name": "zoom", "arguments": '{"factor": 2}'}}]})
    (ToolCall(id='a', name='zoom', arguments='{"factor": 2}'),)
    """
    found = []
    listed = message.get("tool_calls")
    for number, call in enumerate(listed if isinstance(listed, list) else ()):
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            continue
        arguments = function.get("arguments")
        if not isinstance(arguments, str | Mapping):
            arguments = "{}" if arguments is None else json.dumps(arguments)
        found.append(ToolCall(str(call.get("id") or f"call_{number}"), str(function.get("name") or ""), arguments))
    return tuple(found)


def _answered(messages: Iterable[Message]) -> Iterator[Message]:
    """The messages with results of calls from the text as user messages, one message per round."""
    native: set[str] = set()
    round_: list[str | ImageRef] = []
    for message in messages:
        if message.role == "tool" and message.tool_call_id not in native:
            opening = "\n<tool_response>\n" if round_ else "<tool_response>\n"
            for part in (opening, *message.content, "\n</tool_response>"):
                last = round_[-1] if round_ else None
                if isinstance(part, str) and isinstance(last, str):
                    round_[-1] = last + part  # one text: servers differ in how they join two
                else:
                    round_.append(part)
            continue
        if round_:
            yield Message("user", tuple(round_))
            round_ = []
        if message.role == "assistant":
            native = {call.id for call in message.tool_calls}
        yield message
    if round_:
        yield Message("user", tuple(round_))


def _arguments(call: ToolCall) -> str:
    """A call's arguments as JSON text; any other value is wrapped in an object, because servers parse it."""
    if not isinstance(call.arguments, str) or not call.arguments:
        return json.dumps(call.arguments or {})
    try:
        if isinstance(json.loads(call.arguments), dict):
            return call.arguments
    except (ValueError, RecursionError):
        pass
    return json.dumps({"malformed": call.arguments})


def _one(message: Message, content: Sequence[str | ImageRef]) -> dict[str, Any]:
    one: dict[str, Any] = {"role": message.role, "content": _content(content)}
    if message.tool_calls:
        one["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": _arguments(call),
                },
            }
            for call in message.tool_calls
        ]
    if message.tool_call_id is not None:
        one["tool_call_id"] = message.tool_call_id
    if message.role == "tool" and message.name is not None:
        one["name"] = message.name
    return one


def _content(content: Sequence[str | ImageRef]) -> str | list[dict[str, Any]]:
    if all(isinstance(part, str) for part in content):
        return "".join(str(part) for part in content)
    return [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {"type": "image_url", "image_url": {"url": part.to_data_url()}}
        for part in content
    ]
