"""Conversations that somebody else wrote, one a row: for `viewbox import` and for supervised training.

    {"messages": [{"role": "user", "content": "<image>What is it?"}, …], "images": ["films/1.png"], "tools": […]}

Messages have the form of the OpenAI chat interface, or ShareGPT's (`conversations`, `from`, `value`). A picture stands
in its part, or beside the messages, as TRL and LLaMA-Factory write it: then `{"type": "image"}` or `<image>` marks its
place. A weight of 0 marks a reply that is not to be learned from. Nothing is dropped without a word: `unread` names it.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...core.messages import THINKING, list_parts, read_reasoning, read_tool_calls
from ...errors import ImageError, StoreError, describe_unknown
from ...images.ref import ImageRef
from ...records import Message
from ...utils.files import open_regular
from ...utils.frozen import FrozenDict
from ..store.layout import MAX_FILE
from ..store.lines import MAX_LINE, parse_line, read_lines
from .inspect_log import RECORD

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
SPEAKERS = {"human": "user", "gpt": "assistant"}  # of ShareGPT
MARK = "<image>"
WEIGHTS = "weight", "train", "train_on_turn", "loss"  # of a message
READ = {"role", "content", "tool_calls", "function_call", "tool_call_id", *WEIGHTS}
LABELS = (  # keys that say where a row or a message is from, and hold nothing of the conversation
    *("id", "idx", "index", "uuid", "name", "conversation_id", "prompt_id", "date", "timestamp", "created", "metadata"),
    *("source", "dataset", "split", "category", "task", "model", "language", "license", "parallel_tool_calls"),
    *("reference", "score", "reward"),
)
EMPTY: tuple[object, ...] = (None, "", [], {})
OpenPicture = Callable[[str | bytes], ImageRef]


class RowFormat(NamedTuple):
    """One row of a file: its place, and what stands there or the reason why it cannot be read."""

    place: str
    given: Any
    problem: str = ""


class ChatRow(NamedTuple):
    """A conversation, the schemas that its prompt lists, the places of replies of weight 0, and keys that are not
    read."""

    messages: list[Message]
    tools: list[FrozenDict]
    skipped: frozenset[int]
    unread: list[str]


def list_lines(file: Path) -> Iterator[RowFormat]:
    """Yield the lines of a JSONL file that are not blank; raise `OSError` if it cannot be read."""
    with open_regular(file, limit=MAX_FILE) as lines:
        for number, line in enumerate(read_lines(lines), 1):
            if line is None:
                yield RowFormat(f"line {number}", None, f"longer than {MAX_LINE:,} bytes")
            elif line.strip():
                try:
                    yield RowFormat(f"line {number}", parse_line(line))
                except ValueError as error:
                    yield RowFormat(f"line {number}", None, f"not JSON: {error}")


def read_chat_row(row: Mapping[str, Any], open_picture: OpenPicture) -> ChatRow:
    """Return the conversation in a row. Raise `StoreError` if it has another form, and `ImageError`.

    >>> reply = {"role": "assistant", "content": "No.", "weight": 0}
    >>> found = read_chat_row({"messages": [{"role": "user", "content": "Is it?"}, reply], "id": 7}, ImageRef.of)
    >>> found.messages[1].text, found.skipped, found.unread
    ('No.', frozenset({1}), ['id'])
    """
    name = "messages" if row.get("messages") else "conversations"
    if not isinstance(row.get(name), list) or not row[name]:
        raise StoreError(f'allowed: an object with a list of "messages"; given: {", ".join(sorted(row)):.200}')
    turns, read = [_to_openai(message) for message in row[name]], {name, "tools", "images", "image", RECORD}
    if row.get("system") and turns[0]["role"] not in ("system", "developer"):
        turns, read = [{"role": "system", "content": row["system"]}, *turns], read | {"system"}
    beside = [row.get(key) for key in ("images", "image")]
    _place_pictures(turns, [item for many in beside if many for item in (many if isinstance(many, list) else [many])])
    messages = [read_message(message, open_picture) for message in turns]
    unread = [key for key, value in row.items() if key not in read and value not in EMPTY]
    unread += [f"messages.{key}" for message in turns for key in _list_unread(message)]
    if not any(item.images for item in messages) and any(MARK in item.text for item in messages if item.role == "user"):
        unread.append(f"{MARK}, without images")
    tools = row.get("tools") or []
    tools = json.loads(tools) if isinstance(tools, str) else tools
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise StoreError('"tools": allowed: a list of function schemas')
    skipped = frozenset(place for place, message in enumerate(turns) if not _is_learned(message))
    return ChatRow(messages, [FrozenDict(tool) for tool in tools], skipped, list(dict.fromkeys(unread)))


def read_message(given: object, open_picture: OpenPicture) -> Message:
    """Return one message; raise `StoreError` if it has another form, and `ImageError` for an image that cannot be
    opened.

    >>> read_message({"role": "user", "content": [{"type": "text", "text": "What is it?"}]}, ImageRef.of).text
    'What is it?'
    """
    given = _to_openai(given)
    role: Any = ROLES.get(given["role"])
    if role is None:
        raise StoreError(describe_unknown("role", given["role"], ROLES))
    content = given.get("content") or given.get("refusal")
    parts = [content] if isinstance(content, str) else _read_parts(content or [], open_picture)
    calls, listed = read_tool_calls(given), given.get("tool_calls") or []
    if role == "assistant" and (not isinstance(listed, list) or len(calls) < len(listed)):
        shown = json.dumps(listed, default=str)
        raise StoreError(f'tool_calls is {shown:.80}; allowed: a list of {{"function": {{"name": …, "arguments": …}}}}')
    call_id, name = given.get("tool_call_id"), given.get("name")
    said = {key: value for key, value in given.items() if key not in LABELS}
    return Message(
        role,
        tuple(parts),
        tool_call_id=call_id if isinstance(call_id, str) else None,
        name=name if role == "tool" and isinstance(name, str) else None,
        tool_calls=calls if role == "assistant" else (),
        reasoning=read_reasoning(said) if role == "assistant" else "",
    )


def _to_openai(given: object) -> dict[str, Any]:
    """Return a copy of a message, with a role and content."""
    if isinstance(given, dict) and "role" not in given:
        speaker, said = given.get("from"), given.get("value", given.get("content"))
        if said is None:
            raise StoreError(f'a message of {speaker!s:.40} without "value"; allowed: {{"from": …, "value": …}}')
        given = {key: value for key, value in given.items() if key not in ("from", "value")}
        given |= {"role": SPEAKERS.get(str(speaker), speaker), "content": said}
    if not isinstance(given, dict) or not isinstance(given["role"], str):
        raise StoreError(f"a message is {json.dumps(given, default=str):.80}; allowed: an object with a role")
    return {"content": None, **given}


def _list_unread(message: Mapping[str, Any]) -> list[str]:
    """Return the keys of a message whose value is not read. Thinking has many names."""
    read = READ | {"name" if message["role"] == "tool" else "role", "content" if message["content"] else "refusal"}
    held = [key for key, value in message.items() if key not in read and value not in EMPTY]
    return [key for key in held if message["role"] != "assistant" or not re.search("reason|think", key)]


def _is_learned(message: Mapping[str, Any]) -> bool:
    said = {key: message[key] for key in WEIGHTS if message.get(key) is not None}
    for key, value in said.items():
        if value not in (0, 1) or (value and message["role"] != "assistant"):
            allowed = "0, and of the assistant 1 (false, true)"
            raise StoreError(f"messages.{key} = {value!r:.80} of the {message['role']}; allowed: {allowed}")
    return all(said.values())


def _place_pictures(messages: Sequence[dict[str, Any]], pictures: Sequence[Any]) -> None:
    """Put the pictures from beside the messages at their marks: parts, or else `<image>` in texts."""
    marks = _list_marks(messages)
    if pictures and not marks:
        for message in messages:
            if isinstance(text := message["content"], str):
                parts = filter(None, re.split(f"({MARK})", text))
                message["content"] = [{"type": "image"} if p == MARK else {"type": "text", "text": p} for p in parts]
        marks = _list_marks(messages)
    if len(marks) != len(pictures):
        raise StoreError(f"images: {len(pictures)} for {len(marks)} marks; allowed: one {MARK} in a text for each")
    for mark, picture in zip(marks, pictures, strict=True):
        mark["image"] = picture


def _list_marks(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the parts that say that a picture stands there, and not which."""
    parts = [part for message in messages if isinstance(message["content"], list) for part in message["content"]]
    shown = [part for part in parts if isinstance(part, dict) and part.get("type") in ("image", "image_url")]
    return [part for part in shown if not _find_picture(part)]


def _find_picture(given: Any) -> str | bytes:
    """Return a path, a URL or the bytes of a file, however they are nested; "" if there is none."""
    if isinstance(given, str | bytes):
        return given
    for key in ("image_url", "image", "bytes", "url", "path"):
        if isinstance(given, dict) and (picture := _find_picture(given.get(key))):
            return f"data:;base64,{picture}" if key == "bytes" and isinstance(picture, str) else picture
    return ""


def _read_parts(content: Any, open_picture: OpenPicture) -> Sequence[str | ImageRef]:
    if not isinstance(content, list):
        raise StoreError(f"content is a {type(content).__name__}; allowed: text or a list of parts")
    parts: list[str | ImageRef] = []
    for part in content:
        kind, picture = part.get("type") if isinstance(part, dict) else None, _find_picture(part)
        if kind == "text" and isinstance(part.get("text"), str) and not picture:
            parts.append(part["text"])
        elif kind in ("image_url", "image") and picture:
            parts.append(open_picture(picture))
        elif not list_parts([part], *THINKING):
            raise StoreError(f"a part is {json.dumps(part, default=str):.80}; allowed: text, image_url, image")
    return parts


def find_folder(where: str | bytes, folder: Path) -> Path | None:
    """Return the folder in which a picture must be, None if its bytes are given; raise `ImageError` for an address."""
    if isinstance(where, bytes) or where[:5].lower() == "data:":
        return None
    if "://" in where:
        raise ImageError(f"image {where[:80]!r}: is not fetched; allowed: data URLs, and files beside this one")
    return folder
