"""What is kept of a reply: it is sent back in every later turn and stored, so it is bounded when it arrives."""

import json
from collections.abc import Mapping
from dataclasses import replace

from ..records import Reply, ToolCall
from ..utils.frozen import thaw
from ..utils.sanitize import replace_surrogates
from .parsing.reply import MAX_BYTES

MAX_NAME = 128  # characters of a call's name and of its id


def shorten_reply(reply: Reply, max_bytes: int = MAX_BYTES) -> Reply:
    """The reply with at most `max_bytes` of text, and at most as much in all its calls; calls beyond that are left out.

    A lone surrogate becomes U+FFFD, because no file can hold it. Tokens and log-probs stay as they are.

    Raises:
        TypeError: the text or a call is of another type.

    >>> shorten_reply(Reply("fine"), 3).text
    'fin'
    """
    if not isinstance(reply.text, str):
        raise TypeError(f"the text of a reply is {type(reply.text).__name__}; allowed: str")
    text = _shorten(replace_surrogates(reply.text), max_bytes)
    if not reply.tool_calls:
        return reply if text == reply.text else replace(reply, text=text)
    calls: list[ToolCall] = []
    left = max_bytes
    for call in reply.tool_calls:
        if left <= 0:
            break
        calls.append(_shorten_call(call, left))
        left -= _count_bytes(calls[-1])
    return replace(reply, text=text, tool_calls=tuple(calls))


def is_cut(reply: Reply, kept: Reply) -> bool:
    """Whether `shorten_reply` left anything out of a reply."""
    if len(kept.text) < len(reply.text) or len(kept.tool_calls) < len(reply.tool_calls):
        return True
    return any(map(is_cut_call, reply.tool_calls, kept.tool_calls))


def is_cut_call(call: ToolCall, kept: ToolCall) -> bool:
    """Whether a part of a call's arguments was left out."""
    return len(_write(kept)) < len(_write(call))


def _shorten_call(call: ToolCall, max_bytes: int) -> ToolCall:
    if not isinstance(call, ToolCall) or not isinstance(call.id, str) or not isinstance(call.name, str):
        raise TypeError(f"a call of a reply is {type(call).__name__}; allowed: ToolCall, its id and name of type str")
    written = _write(call)
    short = _shorten(replace_surrogates(written), max_bytes)
    return ToolCall(
        replace_surrogates(call.id[:MAX_NAME]),
        replace_surrogates(call.name[:MAX_NAME]),
        call.arguments if short == written else short,
    )


def _write(call: ToolCall) -> str:
    """The arguments as text."""
    given = call.arguments
    return json.dumps(thaw(given), ensure_ascii=False, default=str) if isinstance(given, Mapping) else given


def _count_bytes(call: ToolCall) -> int:
    return 64 + len(f"{call.id}{call.name}{_write(call)}".encode())


def _shorten(text: str, max_bytes: int) -> str:
    if len(text) <= max_bytes and (text.isascii() or len(text.encode()) <= max_bytes):
        return text
    return text[: max(0, max_bytes)].encode()[: max(0, max_bytes)].decode(errors="ignore")
