"""Reads a server's reply: the body of a chat completion, in which every part may be of any type.

A reply is unusable if a part that it needs has the wrong type. Any other part of a wrong type counts as missing.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from viewbox.envs.messages import read_tool_calls
from viewbox.envs.sanitize import replace_surrogates
from viewbox.network import secrets
from viewbox.network.body import parse_body
from viewbox.network.errors import UnusableReplyError
from viewbox.records import ToolCall

MAX_CALLS = 256  # tool calls in one reply
MAX_COUNT = 2**53  # tokens: a larger number is not a count
LENGTH_REASONS = frozenset({"length", "max_tokens", "model_length"})
COUNTS = ("prompt_tokens", "completion_tokens")

_CALL_ID = re.compile(r"[\w.:|/+=-]{1,128}", re.ASCII)
_OWN_ID = re.compile(r"call_\d{1,3}")


@dataclass(frozen=True)
class Completion:
    """What a server's reply says; `usage` holds those of `COUNTS` that it counts."""

    text: str
    calls: tuple[ToolCall, ...]
    finish_reason: str
    usage: Mapping[str, int]


def parse_completion(body: bytes) -> Completion:
    """The reply in a body, without API keys and lone surrogates.

    Raises:
        UnusableReplyError: it is not JSON, or has no message.

    >>> parse_completion(b'{"choices": [{"message": {"content": "Hi"}, "finish_reason": ["stop"]}]}').finish_reason
    'stop'
    """
    try:
        data = parse_body(body)
    except (ValueError, RecursionError):
        raise UnusableReplyError("the reply is not JSON") from None
    choices = data.get("choices") if isinstance(data, dict) else None
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict):
        raise UnusableReplyError("the reply has no choices")
    content, listed = message.get("content"), message.get("tool_calls")
    if not isinstance(content, str | list | None) or (isinstance(listed, list) and len(listed) > MAX_CALLS):
        raise UnusableReplyError("the reply has no usable message")
    text = _clean(extract_text(content))
    calls = tuple(
        ToolCall(_clean(call.id), _clean(call.name), _clean(str(call.arguments))) for call in read_tool_calls(message)
    )
    reason = choice.get("finish_reason")
    is_cut = isinstance(reason, str) and reason in LENGTH_REASONS
    return Completion(text, calls, "length" if is_cut else "tool_calls" if calls else "stop", _read_usage(data))


def extract_text(content: Any) -> str:
    """The text of a message's content: a string, a list of parts, or None."""
    if isinstance(content, list):
        texts = (part.get("text") for part in content if isinstance(part, dict))
        return "".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""


def assign_call_ids(calls: tuple[ToolCall, ...], taken: Collection[str], prefix: str) -> tuple[ToolCall, ...]:
    """The calls, each with an id that is unique in the conversation; missing, repeated and odd ids are replaced.

    New ids begin with `prefix` and are letters and digits, which every server accepts. `call_0`, `call_1`, … are the
    ids of calls parsed from text, so they are replaced too.
    """
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
