"""The text of one model reply, parsed: tool calls, an answer, or what is wrong with it.

A policy may write anything, so no text makes this raise, and the work is linear in its length: a reply over 64 KB is
refused unread. `scan.py` says what a text holds, `decide` what that means. Strict JSON is tried first; common mistakes
are repaired if only one reading is possible, and flagged, so that a reward can see them. Nothing is filled in. Every
format of tool calls is read, whichever the prompt taught: `<tool_call>{…}</tool_call>`, a fenced ```tool block, a JSON
object with `tool` or `name` and `arguments`.
"""

import json
from collections.abc import Mapping
from typing import Any

from ...utils.frozen import Record
from ...utils.sanitize import replace_surrogates
from .answer_schema import AnswerFields, describe_echo
from .calls import ParsedCall, TagPairs, parse_native_call
from .scan import MAX_ITEMS, Items, ReplyObject, scan
from .strict_json import MAX_DEPTH, MAX_DIGITS, MAX_VALUES

__all__ = [
    "MAX_BYTES", "MAX_DEPTH", "MAX_DIGITS", "MAX_ITEMS", "MAX_VALUES", "THINKING", "Answer", "AnswerFields",
    "Malformed", "ParsedCall", "ParsedReply", "ToolCalls", "parse_native_call", "parse_reply",
]  # fmt: skip

MAX_BYTES = 64 * 1024  # of UTF-8
THINKING: TagPairs = (("<think>", "</think>"),)

_BOOLEANS = {"true": True, "yes": True, "false": False, "no": False}
_PLACEHOLDERS = ("…", "...")


class ToolCalls(Record, frozen=True):
    """The calls of a reply in order, including broken calls, and the valid answer beside them, if any.

    `answer` does not hold `continue`; `flags` are the flags of the answer. Every entry of `calls` must get an
    observation under its `call.id`.
    """

    calls: tuple[ParsedCall, ...]
    answer: Mapping[str, Any] | None = None
    flags: frozenset[str] = frozenset()

    @property
    def errors(self) -> tuple[str, ...]:
        """What is wrong with the broken calls."""
        return tuple(parsed.error for parsed in self.calls if parsed.error is not None)


class Answer(Record, frozen=True):
    """One JSON object. `value` does not hold `continue`; that is `wants_more`.

    `flags` holds "salvaged" if the reply was cut off, a broken object follows the answer, or fields were put under
    their parent. It holds "repaired" if the JSON was not strict, or the answer was under a wrong key.
    """

    value: Mapping[str, Any]
    wants_more: bool = False
    flags: frozenset[str] = frozenset()


class Malformed(Record, frozen=True):
    """A reply with neither calls nor an answer; `reason` is a sentence for the model.

    `kind` is one of empty, too_long, truncated, no_json, not_an_object, bad_continue, schema_echoed, invalid.
    """

    reason: str
    kind: str


ParsedReply = ToolCalls | Answer | Malformed


def parse_reply(
    text: str,
    *,
    finish_reason: str = "stop",
    answer_fields: AnswerFields | None = None,
    last: bool = False,
    thinking: TagPairs = THINKING,
    max_bytes: int = MAX_BYTES,
) -> ParsedReply:
    """Return the tool calls of a reply if it has any, else its JSON object as the answer. Never raises.

    Text between the tags of `thinking` does not count, nor does text before a closing tag whose opening tag is in the
    prompt. Of several objects, the last complete one that is not empty is the answer (with `answer_fields`: the last
    with a field of it). Objects inside a list or inside a broken object are fragments and never the answer.

    finish_reason: "length" if the token budget ended the reply.
    answer_fields: the fields of the answer, used to find it; they do not validate it.
    last: no further reply is possible. An object that was cut off is then closed after its last complete value.
        Of a list that was cut, the complete numbers are kept, unless the field needs more of them.
    thinking: pairs of tags around thinking.
    max_bytes: length in UTF-8 above which a reply is malformed.

    >>> parse_reply('The lesion is left. {"answer": "left", "continue": "No"}')
    Answer(value={'answer': 'left'}, wants_more=False, flags=frozenset())
    >>> reply = parse_reply('<tool_call>{"name": "zoom", "arguments": {"factor": 2}}</tool_call>')
    >>> reply.calls[0].call
    ToolCall(id='call_0', name='zoom', arguments={'factor': 2})
    >>> parse_reply("{'answer': 'left',}").flags
    frozenset({'repaired'})
    >>> parse_reply('{"side": "left", "reason": "the sha', finish_reason="length", last=True)
    Answer(value={'side': 'left'}, wants_more=False, flags=frozenset({'salvaged'}))
    >>> parse_reply("It is on the left.").kind
    'no_json'
    """
    if len(text) > max_bytes or len((text := replace_surrogates(text)).encode()) > max_bytes:
        return Malformed(f"the reply is longer than {max_bytes} bytes", "too_long")
    items = scan(text, tuple(thinking), answer_fields, finish_reason == "length")
    return decide(items, answer_fields, last)


def decide(items: Items, fields: AnswerFields | None, last: bool) -> ParsedReply:
    """Return what the items of a reply mean; `last` as in `parse_reply`."""
    if items.count > MAX_ITEMS:
        return Malformed(f"the reply holds more than {MAX_ITEMS} tool calls and JSON objects", "invalid")
    calls = tuple(items.calls)
    answer = _find_answer(items, fields, last) if items.objects or items.lists or items.partial or not calls else None
    if not calls:
        assert answer is not None
        return answer
    return ToolCalls(calls, answer.value, answer.flags) if isinstance(answer, Answer) else ToolCalls(calls)


def _find_answer(items: Items, fields: AnswerFields | None, last: bool) -> Answer | Malformed:
    echoes = [describe_echo(item.value, fields) for item in items.objects]
    candidates = [item for item, echo in zip(items.objects, echoes, strict=True) if echo is None]
    chosen = _select_object(candidates, items.lists, fields)
    if chosen is not None:
        if chosen.complaint is not None:
            return Malformed(chosen.complaint, "invalid")
        flags = {"salvaged"} if items.cut or items.broken_last else set()
        return _read_answer(chosen.value, flags | {"repaired"} if chosen.repaired else flags, fields, last)
    echo = next((echo for echo in echoes if echo is not None), None)
    if echo is not None:
        return Malformed(echo, "schema_echoed")
    if last and items.partial is not None:
        kept = items.partial.value if fields is None else fields.drop_short_lists(items.partial.value)
        return _read_answer(kept, {"salvaged"}, fields, last)
    return _describe_no_answer(items)


def _select_object(
    objects: list[ReplyObject], lists: list[list[Any]], fields: AnswerFields | None
) -> ReplyObject | None:
    """The object that is the answer."""
    filled = [item for item in objects if item.value] or objects
    if fields is not None:
        filled = [item for item in filled if fields.is_in(item.value)] or filled
    if filled:
        return filled[-1]
    only = fields.unwrap_list(lists[0]) if fields is not None and len(lists) == 1 else None
    return None if only is None else ReplyObject(only, None, True)


def _read_answer(value: dict[str, Any], flags: set[str], fields: AnswerFields | None, last: bool) -> Answer | Malformed:
    """The chosen object as an answer; `flags` are the flags known so far."""
    if fields is not None:
        inner = fields.unwrap(value)
        if inner is not value:
            flags.add("repaired")
        value = fields.wrap(inner) if last else inner
        if value is not inner:
            flags.add("salvaged")
    value = dict(value)
    wants_more = _parse_continue(value.pop("continue", None))
    if wants_more is None:
        return Malformed('"continue" must be true or false', "bad_continue")
    copied = next((key for key, item in value.items() if item in _PLACEHOLDERS), None)
    if copied is not None:
        return Malformed(f"{copied[:64]}: {value[copied]} is a placeholder: write the value itself", "invalid")
    return Answer(value, wants_more, frozenset(flags))


def _describe_no_answer(items: Items) -> Malformed:
    """Why the reply holds no usable object."""
    text = items.text.strip()
    if items.cut:
        return Malformed("the reply was cut off before a JSON object was complete", "truncated")
    if not text:
        return Malformed("the reply is empty", "empty")
    if items.broken is not None:
        return Malformed(items.broken, "invalid")
    if items.open_think is not None:
        tag = items.open_think
        return Malformed(f"the thinking is not closed with {tag}, so there is no answer", "no_json")
    if text.startswith("```"):
        text = text.partition("\n")[2].removesuffix("```").strip()
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        if text.startswith("{"):
            return Malformed(f"the JSON object cannot be read: {error}", "invalid")
        if not items.lists:
            return Malformed("the reply holds no JSON object", "no_json")
    return Malformed("the answer must be one JSON object {…}, not a list or a bare value", "not_an_object")


def _parse_continue(value: Any) -> bool | None:
    """`continue` as a bool (missing: False); None if it is neither true nor false."""
    if value is None:
        return False
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    return _BOOLEANS.get(value.strip().lower()) if isinstance(value, str) else None
