"""Messages as the OpenAI chat interface writes them: what goes to an endpoint, and what comes back.

Images travel as data URLs. Not every endpoint takes an image in a tool message: for those, the tool's text says that
its image follows, and the images of a round of tool messages come in one user message after it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from viewbox.envs.types import ImageRef, Message, ToolCall

ToolImages = Literal["tool", "user"]
FOLLOWS = "(The image follows in the next message.)"
SHOWN = "The image of tool call {id}:"


def to_wire(messages: Iterable[Message], *, tool_images: ToolImages = "tool") -> list[dict[str, Any]]:
    """The messages as chat-completion dicts; text alone stays a string.

    >>> to_wire([Message("system", ("Look.",)), Message("user", ("What is it?",))])
    [{'role': 'system', 'content': 'Look.'}, {'role': 'user', 'content': 'What is it?'}]
    """
    wire: list[dict[str, Any]] = []
    waiting: list[str | ImageRef] = []
    for message in messages:
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


def tool_calls_of(message: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    """The native tool calls of an assistant message; what is not shaped like one is passed over.

    >>> tool_calls_of({"tool_calls": [{"id": "a", "function": {"name": "zoom", "arguments": '{"factor": 2}'}}]})
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


def _one(message: Message, content: Sequence[str | ImageRef]) -> dict[str, Any]:
    one: dict[str, Any] = {"role": message.role, "content": _content(content)}
    if message.tool_calls:
        one["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments),
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
        else {"type": "image_url", "image_url": {"url": part.data_url()}}
        for part in content
    ]
