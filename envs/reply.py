"""One model reply, read: tool calls, an answer, or what is wrong with it in words the model can act on.

A policy may say anything, so nothing here raises for any text and the work is linear in it: a reply over 64 KB is
refused before it is read, the JSON decoder starts only where an object can start and never reads a stretch twice, and
nesting, the number of values and the size of numbers are capped. Nothing is mended or filled in: an object that
cannot be read is `Malformed`, with the reason.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from viewbox.envs.frozen import Record, thaw
from viewbox.envs.types import ToolCall

MAX_BYTES = 64 * 1024  # of UTF-8
MAX_DEPTH = 64  # objects and lists inside each other
MAX_ITEMS = 256  # tool calls and top-level objects in one reply
MAX_VALUES = 10_000  # in one object, at any depth
MAX_DIGITS = 308  # of an integer: what still fits a float

# Where something can begin: a tag, a list of objects, or an object with its first key (or none at all).
_START = re.compile(
    r'<think>|</think>|<tool_call>|\[\s*+\{\s*+["}]|\{\s*+(?:\}|"(?:[^"\\]|\\.)*+"\s*+:)',
    re.DOTALL,
)
_TAG = re.compile(r"</?tool_call>|</?think>")
_CALL_TAG = re.compile(r"</?tool_call>")
_BRACKET = re.compile(r'"(?:[^"\\]|\\.?)*+"?|[{}\[\]]', re.DOTALL)  # a string (perhaps unclosed), or a bracket
_SPACE = re.compile(r"[ \t\r\n]*")
_WORDS = {"true": True, "yes": True, "false": False, "no": False}


@dataclass(frozen=True)
class ParsedCall(Record):
    """A tool call and, where it cannot be run as written, why; `call.arguments` is then the raw text of the block."""

    call: ToolCall
    error: str | None = None


@dataclass(frozen=True)
class ToolCalls(Record):
    """The calls in the order they were made, the broken ones among them, and a valid answer beside them, if any.

    `answer` is without `continue`. Every entry of `calls` is owed an observation under its `call.id`.
    """

    calls: tuple[ParsedCall, ...]
    answer: Mapping[str, Any] | None = None

    @property
    def errors(self) -> tuple[str, ...]:
        """What is wrong with the broken calls."""
        return tuple(parsed.error for parsed in self.calls if parsed.error is not None)


@dataclass(frozen=True)
class Answer(Record):
    """One JSON object: `value` is without `continue`, which is `wants_more`.

    `flags` holds "salvaged" where the object is whole but the reply was cut off, or went on with a broken object.
    """

    value: Mapping[str, Any]
    wants_more: bool = False
    flags: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Malformed(Record):
    """A reply that is neither; `reason` is a sentence for the model.

    `kind` is one of empty, too_long, truncated, no_json, not_an_object, bad_continue, invalid.
    """

    reason: str
    kind: str


def parse(
    text: str, *, finish_reason: str = "stop", schema: Mapping[str, Any] | None = None
) -> ToolCalls | Answer | Malformed:
    """What `text` says: tool calls if there is a `<tool_call>` block, else its JSON object as the answer.

    Text in `<think>…</think>` does not count, nor does what stands before a `</think>` that was opened in the prompt.
    Of several objects the last complete one that is not empty is the answer; objects inside a list or inside a broken
    object are fragments and never are. `finish_reason` is "length" where the token budget ended the reply. `schema`
    is a JSON Schema (2020-12) of the answer without `continue`. Never raises, whatever the text.

    >>> parse('The lesion is left. {"answer": "left", "continue": "No"}')
    Answer(value={'answer': 'left'}, wants_more=False, flags=frozenset())
    >>> reply = parse('<tool_call>{"name": "zoom", "arguments": {"factor": 2}}</tool_call>')
    >>> reply.calls[0].call
    ToolCall(id='call_0', name='zoom', arguments={'factor': 2})
    >>> parse("It is on the left.").kind
    'no_json'
    >>> parse('{"box": 3}', schema={"properties": {"box": {"type": "array"}}}).reason
    "box: 3 is not of type 'array'"
    """
    if len(text) > MAX_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        return Malformed(f"the reply is longer than {MAX_BYTES} bytes", "too_long")
    found = _Scan(text)
    if found.items > MAX_ITEMS:
        return Malformed(f"the reply holds more than {MAX_ITEMS} tool calls and JSON objects", "invalid")
    outcome = _answer(found, finish_reason == "length", schema)
    if not found.calls:
        return outcome
    return ToolCalls(tuple(found.calls), outcome.value if isinstance(outcome, Answer) else None)


def _answer(found: "_Scan", cut: bool, schema: Mapping[str, Any] | None) -> Answer | Malformed:
    if not found.objects:
        return _nothing(found, cut)
    value, complaint = next((pair for pair in reversed(found.objects) if pair[0]), found.objects[-1])
    if complaint is not None:
        return Malformed(complaint, "invalid")
    wants_more = _as_bool(value.pop("continue", None))
    if wants_more is None:
        return Malformed('"continue" must be true or false', "bad_continue")
    wrong = None if schema is None else violation(value, schema)
    if wrong is not None:
        return Malformed(wrong, "invalid")
    return Answer(value, wants_more, frozenset({"salvaged"} if cut or found.broken_last else ()))


def _nothing(found: "_Scan", cut: bool) -> Malformed:
    """Why there is no object to take."""
    body = found.text.strip()
    if cut:
        return Malformed("the reply was cut off before a JSON object was complete", "truncated")
    if not body:
        return Malformed("the reply is empty", "empty")
    if found.broken is not None:
        return Malformed(found.broken, "invalid")
    if found.open_think:
        return Malformed("the thinking was never closed with </think>, so there is no answer", "no_json")
    if body.startswith("```"):
        body = body.partition("\n")[2].removesuffix("```").strip()
    try:
        json.loads(body)
    except (ValueError, RecursionError) as error:
        if body.startswith("{"):
            return Malformed(f"the JSON object cannot be read: {error}", "invalid")
        if not found.lists:
            return Malformed("the reply holds no JSON object", "no_json")
    return Malformed("the answer must be one JSON object {…}, not a list or a bare value", "not_an_object")


def _as_bool(value: Any) -> bool | None:
    """`continue` as a bool (missing: False); None where it is neither true nor false."""
    if value is None:
        return False
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    return _WORDS.get(value.lower()) if isinstance(value, str) else None


def violation(value: Mapping[str, Any], schema: Mapping[str, Any]) -> str | None:
    """The most telling of the first few violations of `schema`, with the field it is in."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    error = best_match(islice(Draft202012Validator(thaw(schema)).iter_errors(value), 16))
    if error is None:
        return None
    message = error.message if len(error.message) <= 240 else f"{error.message[:120]} … {error.message[-100:]}"
    where = error.json_path.removeprefix("$").removeprefix(".")
    return f"{where[:120]}: {message}" if where else message


class _Scan:
    """One pass over a reply: its tool calls, its top-level objects and the first thing that could not be read."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.calls: list[ParsedCall] = []
        self.objects: list[tuple[dict[str, Any], str | None]] = []  # and why each cannot be used
        self.lists = 0
        self.broken: str | None = None
        self.broken_last = False  # the last object is a broken one
        self.open_think = False
        self.items = 0
        self._complaints: list[str] = []
        self._decoder = json.JSONDecoder(
            object_pairs_hook=self._object,
            parse_constant=lambda name: self._complaints.append(f"{name} is not a JSON number"),
            parse_int=self._int,
            parse_float=self._float,
        )
        position = 0
        while self.items <= MAX_ITEMS and (start := _START.search(text, position)):
            position = self._item(start)

    def _item(self, start: re.Match[str]) -> int:
        """Reads what begins at `start`; returns where to go on."""
        match start[0]:
            case "<think>":
                close = self.text.find("</think>", start.end())
                self.open_think = close < 0
                return len(self.text) if close < 0 else close + len("</think>")
            case "</think>":  # the prompt opened it: all of this was thinking
                self.calls, self.objects, self.broken, self.broken_last, self.lists = [], [], None, False, 0
                return start.end()
        self.items += 1
        return self._call(start.end()) if start[0] == "<tool_call>" else self._value(start.start())

    def _value(self, begin: int) -> int:
        value, end, complaint = self._decode(begin)
        if isinstance(value, dict):
            self.objects.append((value, complaint))
            self.broken_last = False
        elif value is not None:
            self.lists += 1
        else:
            self.broken = self.broken or f"the JSON cannot be read: {complaint}"
            self.broken_last = True
            end = self._extent(begin)
        return end

    def _call(self, begin: int) -> int:
        begin = _SPACE.match(self.text, begin).end()  # type: ignore[union-attr]
        value, end, complaint = self._decode(begin)
        tag = _CALL_TAG.search(self.text, begin if value is None else end)
        closed = tag is not None and tag[0] == "</tool_call>"
        stop = tag.start() if tag is not None else len(self.text)
        if value is not None and not closed:
            stop = end  # whole, only its closing tag is missing
        name = value.get("name") if isinstance(value, dict) else None
        known = name if isinstance(name, str) else ""
        arguments = value.get("arguments", {}) if isinstance(value, dict) else None
        error = None
        if value is None and tag is None:
            error = "the tool call was cut off before its JSON was complete"
        elif complaint is not None:
            error = f"the tool call is not valid JSON: {complaint}"
        elif not isinstance(value, dict):
            error = 'a tool call is one JSON object {"name": …, "arguments": {…}}'
        elif self.text[end:stop].strip():
            error = "a <tool_call> block holds one JSON object and nothing after it"
        elif not known:
            error = 'the tool call has no "name"'
        elif not isinstance(arguments, dict):
            error = f'the "arguments" of {known[:64]!r} must be a JSON object'
        given = arguments if error is None else self.text[begin:stop].strip()
        self.calls.append(ParsedCall(ToolCall(f"call_{len(self.calls)}", known, given), error))  # type: ignore[arg-type]
        return tag.end() if closed and tag is not None else stop

    def _extent(self, begin: int) -> int:
        """Where a broken object ends: at its closing bracket or the next tag; what is inside it is a fragment."""
        tag = _TAG.search(self.text, begin)
        limit = tag.start() if tag is not None else len(self.text)
        depth = 0
        for token in _BRACKET.finditer(self.text, begin, limit):
            depth += (token[0] in "{[") - (token[0] in "}]")
            if depth == 0:
                return token.end()
        return limit

    def _decode(self, begin: int) -> tuple[Any, int, str | None]:
        """(value, end, complaint) of the JSON at `begin`; the value is None where it cannot be read."""
        self._complaints.clear()
        try:
            value, end = self._decoder.raw_decode(self.text, begin)
        except json.JSONDecodeError as error:
            return None, begin, f"{error.msg} at character {error.pos}"
        except RecursionError:
            return None, begin, f"nested more than {MAX_DEPTH} deep"
        excess = _excess(value) if isinstance(value, dict | list) else None
        return value, end, self._complaints[0] if self._complaints else excess

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) != len(pairs) and not self._complaints:
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            self._complaints.append(f"the key {twice[:64]!r} is given twice")
        return value

    def _int(self, digits: str) -> int:
        if len(digits) <= MAX_DIGITS:
            return int(digits)
        self._complaints.append(f"a number of {len(digits)} digits is too large")
        return 0

    def _float(self, digits: str) -> float:
        value = float(digits)
        if not math.isfinite(value):
            self._complaints.append(f"the number {digits[:32]} is too large")
        return value


def _excess(value: Any) -> str | None:
    """What is too much about `value`: its nesting, or how many values it holds."""
    layer, held, levels = [value], 1, 0
    while layer:
        if levels > MAX_DEPTH:
            return f"nested more than {MAX_DEPTH} deep"
        inner = [item for outer in layer for item in (outer.values() if isinstance(outer, dict) else outer)]
        held += len(inner)
        if held > MAX_VALUES:
            return f"holds more than {MAX_VALUES} values"
        layer = [item for item in inner if isinstance(item, dict | list)]
        levels += 1
    return None
