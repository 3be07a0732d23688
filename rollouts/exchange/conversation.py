"""An episode as messages, and messages as an episode.

Both directions agree: the messages of an episode made of messages are the same ones. `chat_rows.py` reads messages that
somebody else wrote.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import chain, groupby
from typing import Any

from ...core.messages import to_openai_messages, write_call
from ...errors import StoreError
from ...images.ref import ImageRef
from ...records import Episode, Message, ToolCall, ToolResult, Turn
from ...utils.frozen import thaw

RESPONSE = "<tool_response>\n", "\n</tool_response>"


def list_messages(episode: Episode, count_written: Callable[[Turn], int] | None = None) -> list[Message]:
    """Return the messages of an episode, as far as its turns tell them; native calls stand beside the text.

    Args:
        count_written: how many calls a reply has in its text: its last ones. Then `StoreError` is raised if the texts
            of several results cannot be told apart. Default: a call whose name stands in quotes in its reply is in the
            text, and such results have each its own text, without the marks around it.
    """
    messages = [Message("system", (episode.system_prompt,))] if episode.system_prompt else []
    for number, turn in enumerate(episode.turns):
        if turn.role == "assistant":
            if count_written is None:
                native = tuple(call for call in turn.tool_calls if json.dumps(call.name) not in turn.content)
            else:
                native = turn.tool_calls[: len(turn.tool_calls) - count_written(turn)]
            messages.append(Message("assistant", (turn.content,), tool_calls=native, reasoning=turn.reasoning))
        elif turn.role == "tool_result" and turn.tool_results:
            messages += _list_results(turn, exact=count_written is not None)
        elif number == 0 and turn.images:
            messages.append(Message("user", _drop_empty((*turn.images, turn.content))))
        else:
            messages.append(Message("user", _drop_empty((turn.content, *turn.images))))
    return messages


def _drop_empty(parts: Sequence[str | ImageRef]) -> tuple[str | ImageRef, ...]:
    return tuple(part for part in parts if part != "") or ("",)


def _list_results(turn: Turn, exact: bool) -> list[Message]:
    results, pictures = turn.tool_results, list(turn.images)
    texts = [result.text for result in results]
    if exact:
        texts = _split_texts(turn.content, texts)
    elif len(results) == 1:
        texts = [turn.content or texts[0]]
    elif turn.content != "\n".join(texts):
        texts[-1] += turn.content.rpartition(texts[-1])[2] if texts[-1] in turn.content else ""
    messages = []
    for text, result in zip(texts, results, strict=True):
        parts: list[str | ImageRef] = [text]
        if result.image is not None and (pictures or not exact):
            parts.append(pictures.pop(0) if pictures else result.image)
        if result is results[-1]:
            parts += pictures  # the original, shown again before the last turn
        messages.append(Message("tool", _drop_empty(parts), tool_call_id=result.call_id or None, name=result.tool_name))
    return messages


def _split_texts(joined: str, results: Sequence[str]) -> list[str]:
    """Return the texts whose lines `joined` holds; each begins with a boundary mark, or is the text of its result."""
    starts = [0]
    for number, text in enumerate(results[1:], 1):
        after = joined.find(results[number - 1], starts[-1])
        start = -1 if after < 0 else joined.find(text, after + len(results[number - 1]))
        mark = joined.rfind("\n[data ", starts[-1] + 1, start) if start > 0 else -1
        if mark >= 0 and joined.find("]\n", mark) + 2 == start:
            start = mark + 1
        if start < 1 or joined[start - 1] != "\n":
            raise StoreError("the texts of several tool results cannot be told apart")
        starts.append(start)
    ends = [start - 1 for start in starts[1:]] + [len(joined)]
    return [joined[start:end] for start, end in zip(starts, ends, strict=True)]


def build_turns(messages: Sequence[Message]) -> tuple[str, tuple[Turn, ...]]:
    """Return the system prompt and the turns of a conversation.

    >>> system, turns = build_turns([Message("system", ("Look.",)), Message("user", ("What?",))])
    >>> system, [turn.content for turn in turns]
    ('Look.', ['What?'])
    """
    system, turns = "", list[Turn]()
    names: dict[str, str] = {}
    for is_result, group in groupby(messages, lambda message: message.role == "tool"):
        if is_result:
            turns.append(_build_results([*group], names))
            continue
        for message in group:
            if message.role == "system" and not turns and not system:
                system = message.text
            elif message.role == "assistant":
                names |= {call.id: call.name for call in message.tool_calls}
                said = message.text, message.tool_calls
                turns.append(Turn("assistant", *said, images=message.images, reasoning=message.reasoning))
            else:
                turns.append(Turn("user", message.text, images=message.images))
    return system, tuple(turns)


def _build_results(messages: Sequence[Message], names: Mapping[str, str]) -> Turn:
    results = []
    for message in messages:
        name, picture = message.name or names.get(message.tool_call_id or "", ""), next(iter(message.images), None)
        results.append(ToolResult(name, formatted_results=message.text, image=picture, call_id=message.tool_call_id))
    text, images = "\n".join(message.text for message in messages), [message.images for message in messages]
    return Turn("tool_result", text, tool_results=tuple(results), images=tuple(chain(*images)))


def to_plain_messages(messages: Sequence[Message]) -> list[Message]:
    """Return the messages with calls and their results as text, as Qwen's chat templates write both."""
    plain: list[Message] = []
    for message in messages:
        if message.role == "assistant" and message.tool_calls:
            calls = [_write_call(call) for call in message.tool_calls]
            plain.append(Message("assistant", ("\n".join([*([message.text] if message.text else []), *calls]),)))
        elif message.role == "tool":
            plain.append(Message("user", (RESPONSE[0], *message.content, RESPONSE[1])))
        else:
            plain.append(message)
    return plain


def _write_call(call: ToolCall) -> str:
    arguments = call.arguments
    if isinstance(arguments, str):
        with suppress(ValueError, RecursionError):
            arguments = json.loads(arguments or "{}")
    return write_call(call.name, thaw(arguments))


def split_images(messages: Sequence[Message]) -> tuple[list[dict[str, Any]], list[ImageRef]]:
    """Messages with a placeholder for each image, and the images in order: the form of TRL's datasets."""
    rows, images = [], []
    for message in to_plain_messages(messages):
        parts = []
        for part in message.content:
            if isinstance(part, ImageRef):
                images.append(part)
                parts.append({"type": "image", "text": None})
            else:
                text = to_openai_messages([Message(message.role, (part,))])[0]["content"]
                parts.append({"type": "text", "text": text})
        rows.append({"role": message.role, "content": parts})
    return rows, images
