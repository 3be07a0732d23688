"""The text of one model reply, parsed: tool calls, an answer, or what is wrong with it.

A policy may write anything, so no text makes this raise, and the work is linear in its length: a reply over 64 KB is
refused unread. Strict JSON is tried first; common mistakes are repaired if only one reading is possible, and flagged,
so that a reward can see them. Nothing is filled in. Every format of tool calls is read, whichever the prompt taught:
`<tool_call>{…}</tool_call>`, a fenced ```tool block, a JSON object with `tool` or `name` and `arguments`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import ToolError
from ...utils.frozen import Record
from ...utils.json_schema import find_violation
from ...utils.sanitize import replace_surrogates
from .answer_schema import AnswerFields, describe_echo
from .calls import ParsedCall, TagPairs, find_calls, parse_native_call, parse_single_call
from .coercion import coerce
from .scan import MAX_ITEMS, ReplyObject, ReplyScan
from .strict_json import MAX_DEPTH, MAX_DIGITS, MAX_VALUES, decode_json

__all__ = [
    "MAX_BYTES", "MAX_DEPTH", "MAX_DIGITS", "MAX_ITEMS", "MAX_VALUES", "THINKING", "Answer", "AnswerFields",
    "Malformed", "ParsedCall", "ParsedReply", "ToolCalls", "find_violation", "parse_native_call", "parse_reply",
]  # fmt: skip

MAX_BYTES = 64 * 1024  # of UTF-8
THINKING: TagPairs = (("<think>", "</think>"),)

_BOOLEANS = {"true": True, "yes": True, "false": False, "no": False}
_PLACEHOLDERS = ("…", "...")


@dataclass(frozen=True)
class ToolCalls(Record):
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


@dataclass(frozen=True)
class Answer(Record):
    """One JSON object. `value` does not hold `continue`; that is `wants_more`.

    `flags` holds "salvaged" if the reply was cut off, a broken object follows the answer, or fields were put under
    their parent. It holds "repaired" if the JSON was not strict, or the answer was under a wrong key.
    """

    value: Mapping[str, Any]
    wants_more: bool = False
    flags: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Malformed(Record):
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
    schema: Mapping[str, Any] | None = None,
    answer_fields: AnswerFields | None = None,
    last: bool = False,
    thinking: TagPairs = THINKING,
    max_bytes: int = MAX_BYTES,
) -> ParsedReply:
    """Parses a reply: its tool calls if it has any, else its JSON object as the answer. Never raises.

    Text between the tags of `thinking` does not count, nor does text before a closing tag whose opening tag is in the
    prompt. Of several objects, the last complete one that is not empty is the answer (with `answer_fields`: the last
    with a field of it). Objects inside a list or inside a broken object are fragments and never the answer.

    finish_reason: "length" if the token budget ended the reply.
    schema: JSON Schema (2020-12) of the answer without `continue`; the answer must fit it.
    answer_fields: the fields of the answer, used to find it; they do not validate it. Default: those of `schema`.
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
    >>> parse_reply('{"box": 3}', schema={"properties": {"box": {"type": "array"}}}).reason
    'box: 3 is not of type "array"'
    """
    if len(text) > max_bytes or len((text := replace_surrogates(text)).encode()) > max_bytes:
        return Malformed(f"the reply is longer than {max_bytes} bytes", "too_long")
    single = parse_single_call(text, tuple(thinking))
    if single is not None:
        return ToolCalls((single,))
    if schema and not answer_fields:
        answer_fields = AnswerFields.from_schema(schema)
    cut = finish_reason == "length"
    reader = _AnswerReader(cut, last, schema, answer_fields)
    whole = parse_single_object(text)
    if whole is not None and find_calls(whole, answer_fields) is None:
        return reader.read_object(whole)
    scan = ReplyScan(text, tuple(thinking), answer_fields, cut)
    if scan.items > MAX_ITEMS:
        return Malformed(f"the reply holds more than {MAX_ITEMS} tool calls and JSON objects", "invalid")
    calls = tuple(scan.calls)
    if calls and not (scan.objects or scan.lists or scan.partial or text.lstrip().startswith('"')):
        return ToolCalls(calls)  # most replies: nothing beside the calls
    answer = reader.find_answer(scan)
    if not calls:
        return answer
    if isinstance(answer, Malformed):
        return ToolCalls(calls)
    return ToolCalls(calls, answer.value, answer.flags)


def parse_single_object(text: str) -> dict[str, Any] | None:
    """The object of a reply that is one object of strict JSON and nothing else; None for any other reply.

    Most answers of a trained policy are such an object: it needs no scan.
    """
    text = text.strip()
    if not (text.startswith("{") and text.endswith("}")):
        return None
    value, end, complaint = decode_json(text)
    return value if complaint is None and end == len(text) else None


@dataclass(frozen=True)
class _AnswerReader:
    """Finds and checks the answer of a reply."""

    cut: bool
    last: bool
    schema: Mapping[str, Any] | None
    fields: AnswerFields | None

    def read_object(self, value: dict[str, Any]) -> Answer | Malformed:
        """The answer in a reply that is one object."""
        echo = describe_echo(value, self.fields)
        if echo is not None:
            return Malformed(echo, "schema_echoed")
        return self._check_value(value, {"salvaged"} if self.cut else set())

    def find_answer(self, scan: ReplyScan) -> Answer | Malformed:
        """The answer in a scanned reply, or why there is none."""
        echoes = [describe_echo(item.value, self.fields) for item in scan.objects]
        candidates = [item for item, echo in zip(scan.objects, echoes, strict=True) if echo is None]
        chosen = self._select_object(candidates, scan.lists)
        if chosen is not None:
            return self._check_object(chosen, {"salvaged"} if self.cut or scan.broken_last else set())
        echo = next((echo for echo in echoes if echo is not None), None)
        if echo is not None:
            return Malformed(echo, "schema_echoed")
        if self.last and scan.partial is not None:
            kept = scan.partial.value if self.fields is None else self.fields.drop_short_lists(scan.partial.value)
            return self._check_value(kept, {"salvaged"})
        return self._describe_no_answer(scan)

    def _select_object(self, objects: list[ReplyObject], lists: list[list[Any]]) -> ReplyObject | None:
        """The object that is the answer."""
        filled = [item for item in objects if item.value] or objects
        if self.fields is not None:
            filled = [item for item in filled if self.fields.is_in(item.value)] or filled
        if filled:
            return filled[-1]
        if self.fields is None or len(lists) != 1:
            return None
        only = self.fields.unwrap_list(lists[0])
        return None if only is None else ReplyObject(only, None, True)

    def _check_object(self, chosen: ReplyObject, flags: set[str]) -> Answer | Malformed:
        """The chosen object as an answer; `flags` are the flags known so far."""
        if chosen.complaint is not None:
            return Malformed(chosen.complaint, "invalid")
        return self._check_value(chosen.value, flags | {"repaired"} if chosen.repaired else flags)

    def _check_value(self, value: dict[str, Any], flags: set[str]) -> Answer | Malformed:
        value = dict(value)
        if self.fields is not None:
            inner = self.fields.unwrap(value)
            if inner is not value:
                flags.add("repaired")
            value = self.fields.wrap(inner) if self.last else inner
            if value is not inner:
                flags.add("salvaged")
            value = dict(value)
        wants_more = _parse_continue(value.pop("continue", None))
        if wants_more is None:
            return Malformed('"continue" must be true or false', "bad_continue")
        copied = next((key for key, item in value.items() if item in _PLACEHOLDERS), None)
        if copied is not None:
            return Malformed(f"{copied[:64]}: {value[copied]} is a placeholder: write the value itself", "invalid")
        try:
            value = value if self.schema is None else coerce(value, self.schema)
            violation = None if self.schema is None else find_violation(value, self.schema)
        except ToolError as error:
            return Malformed(str(error), "invalid")
        if violation is not None:
            return Malformed(str(violation), "invalid")
        return Answer(value, wants_more, frozenset(flags))

    def _describe_no_answer(self, scan: ReplyScan) -> Answer | Malformed:
        """Why the reply holds no usable object."""
        text = scan.text.strip()
        if self.cut:
            return Malformed("the reply was cut off before a JSON object was complete", "truncated")
        if not text:
            return Malformed("the reply is empty", "empty")
        encoded = self._read_encoded(text)
        if encoded is not None:
            return encoded
        if scan.broken is not None:
            return Malformed(scan.broken, "invalid")
        if scan.open_think is not None:
            tag = scan.open_think
            return Malformed(f"the thinking is not closed with {tag}, so there is no answer", "no_json")
        if text.startswith("```"):
            text = text.partition("\n")[2].removesuffix("```").strip()
        try:
            json.loads(text)
        except (ValueError, RecursionError) as error:
            if text.startswith("{"):
                return Malformed(f"the JSON object cannot be read: {error}", "invalid")
            if not scan.lists:
                return Malformed("the reply holds no JSON object", "no_json")
        return Malformed("the answer must be one JSON object {…}, not a list or a bare value", "not_an_object")

    def _read_encoded(self, text: str) -> Answer | Malformed | None:
        """The answer in a reply that is a single JSON string."""
        if not text.startswith('"'):
            return None
        try:
            text = json.loads(text)
        except ValueError:
            return None
        objects = ReplyScan(text, (), self.fields, False).objects
        if len(objects) != 1 or not text.lstrip().startswith("{") or not text.rstrip().endswith("}"):
            return None
        return self._check_object(ReplyObject(objects[0].value, objects[0].complaint, True), set())


def _parse_continue(value: Any) -> bool | None:
    """`continue` as a bool (missing: False); None if it is neither true nor false."""
    if value is None:
        return False
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    return _BOOLEANS.get(value.strip().lower()) if isinstance(value, str) else None
