"""One model reply, read: tool calls, an answer, or what is wrong with it in words the model can act on.

A policy may say anything, so nothing here raises for any text and the work is linear in it: a reply over 64 KB is
refused before it is read. Strict JSON is tried first; what models commonly get wrong is mended where only one reading
is possible, and flagged, so that a reward can see it. Nothing is filled in. Every format of tool call is understood,
whichever the prompt taught: `<tool_call>{…}</tool_call>`, a fenced ```tool block, a JSON object with `tool` or `name`
and `arguments`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from viewbox.envs.parsing.answer_schema import Shape, echo, violation
from viewbox.envs.parsing.calls import ParsedCall, native
from viewbox.envs.parsing.scan import MAX_ITEMS, Found, Pairs, Scan, lone_call
from viewbox.envs.parsing.strict_json import MAX_DEPTH, MAX_DIGITS, MAX_VALUES
from viewbox.frozen import Record

__all__ = [
    "MAX_BYTES", "MAX_DEPTH", "MAX_DIGITS", "MAX_ITEMS", "MAX_VALUES", "THINKING", "Answer", "Malformed", "ParsedCall",
    "Shape", "ToolCalls", "native", "parse", "violation",
]  # fmt: skip

MAX_BYTES = 64 * 1024  # of UTF-8
THINKING: Pairs = (("<think>", "</think>"),)

_WORDS = {"true": True, "yes": True, "false": False, "no": False}
_PLACEHOLDERS = ("…", "...")


@dataclass(frozen=True)
class ToolCalls(Record):
    """The calls in the order they were made, the broken ones among them, and a valid answer beside them, if any.

    `answer` is without `continue`, and `flags` are its flags. Every entry of `calls` is owed an observation under its
    `call.id`.
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
    """One JSON object: `value` is without `continue`, which is `wants_more`.

    `flags` holds "salvaged" where the reply was cut off, or went on with a broken object, or its fields were put under
    their parent; and "repaired" where JSON had to be mended, or the answer stood under a wrong key.
    """

    value: Mapping[str, Any]
    wants_more: bool = False
    flags: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Malformed(Record):
    """A reply that is neither; `reason` is a sentence for the model.

    `kind` is one of empty, too_long, truncated, no_json, not_an_object, bad_continue, schema_echoed, invalid.
    """

    reason: str
    kind: str


def parse(
    text: str,
    *,
    finish_reason: str = "stop",
    schema: Mapping[str, Any] | None = None,
    shape: Shape | None = None,
    last: bool = False,
    thinking: Pairs = THINKING,
    max_bytes: int = MAX_BYTES,
) -> ToolCalls | Answer | Malformed:
    """What `text` says: tool calls if it makes any, else its JSON object as the answer.

    Text between the tags of `thinking` does not count, nor does what stands before a closing tag that was opened in
    the prompt. Of several objects the last complete one that is not empty is the answer (with a shape: the last that
    has a field of it); objects inside a list or inside a broken object are fragments and never are.

    `finish_reason` is "length" where the token budget ended the reply. `schema` is a JSON Schema (2020-12) of the
    answer without `continue`, which the answer must fit; its `shape` alone only helps to read. `last` says that
    nothing can follow: an object that was cut off is then closed after the last thing that was said whole. Never
    raises, whatever the text.

    >>> parse('The lesion is left. {"answer": "left", "continue": "No"}')
    Answer(value={'answer': 'left'}, wants_more=False, flags=frozenset())
    >>> reply = parse('<tool_call>{"name": "zoom", "arguments": {"factor": 2}}</tool_call>')
    >>> reply.calls[0].call
    ToolCall(id='call_0', name='zoom', arguments={'factor': 2})
    >>> parse("{'answer': 'left',}").flags
    frozenset({'repaired'})
    >>> parse('{"side": "left", "reason": "the sha', finish_reason="length", last=True)
    Answer(value={'side': 'left'}, wants_more=False, flags=frozenset({'salvaged'}))
    >>> parse("It is on the left.").kind
    'no_json'
    >>> parse('{"box": 3}', schema={"properties": {"box": {"type": "array"}}}).reason
    "box: 3 is not of type 'array'"
    """
    if len(text) > max_bytes or len(text.encode("utf-8", "surrogatepass")) > max_bytes:
        return Malformed(f"the reply is longer than {max_bytes} bytes", "too_long")
    if (lone := lone_call(text, tuple(thinking))) is not None:
        return ToolCalls((lone,))
    reading = _Reading(finish_reason == "length", last, schema, Shape.of(schema) if schema and not shape else shape)
    found = Scan(text, tuple(thinking), reading.shape, reading.cut)
    if found.items > MAX_ITEMS:
        return Malformed(f"the reply holds more than {MAX_ITEMS} tool calls and JSON objects", "invalid")
    if found.calls and not (found.objects or found.lists or found.partial or text.lstrip().startswith('"')):
        return ToolCalls(tuple(found.calls))  # most replies: nothing beside the calls
    outcome = reading.answer(found)
    if not found.calls:
        return outcome
    if isinstance(outcome, Malformed):
        return ToolCalls(tuple(found.calls))
    return ToolCalls(tuple(found.calls), outcome.value, outcome.flags)


@dataclass(frozen=True)
class _Reading:
    """How one reply is read."""

    cut: bool
    last: bool
    schema: Mapping[str, Any] | None
    shape: Shape | None

    def answer(self, found: Scan) -> Answer | Malformed:
        """The answer in what was found, or why there is none."""
        given_back = next((words for one in found.objects if (words := echo(one.value, self.shape))), None)
        chosen = self._chosen([one for one in found.objects if not echo(one.value, self.shape)], found)
        if chosen is not None:
            flags = {"salvaged"} if self.cut or found.broken_last else set()
            return self._checked(chosen, flags)
        if given_back is not None:
            return Malformed(given_back, "schema_echoed")
        if self.last and found.partial is not None:
            return self._checked(Found(found.partial.value), {"salvaged"})
        return self._nothing(found)

    def _chosen(self, objects: list[Found], found: Scan) -> Found | None:
        """The object that is the answer."""
        filled = [one for one in objects if one.value] or objects
        if self.shape is not None:
            filled = [one for one in filled if self.shape.knows(one.value)] or filled
        if filled:
            return filled[-1]
        only = self.shape.unlist(found.lists[0]) if self.shape is not None and len(found.lists) == 1 else None
        return None if only is None else Found(only, None, True)

    def _checked(self, chosen: Found, flags: set[str]) -> Answer | Malformed:
        """The chosen object as an answer; `flags` are those it has already."""
        if chosen.complaint is not None:
            return Malformed(chosen.complaint, "invalid")
        value = dict(chosen.value)
        if chosen.mended:
            flags.add("repaired")
        if self.shape is not None:
            inner = self.shape.unwrap(value)
            if inner is not value:
                flags.add("repaired")
            value = self.shape.wrap(inner) if self.last else inner
            if value is not inner:
                flags.add("salvaged")
            value = dict(value)
        wants_more = _as_bool(value.pop("continue", None))
        if wants_more is None:
            return Malformed('"continue" must be true or false', "bad_continue")
        copied = next((key for key, item in value.items() if item in _PLACEHOLDERS), None)
        if copied is not None:
            return Malformed(f"{copied[:64]}: {value[copied]} is a placeholder: write the value itself", "invalid")
        wrong = None if self.schema is None else violation(value, self.schema)
        if wrong is not None:
            return Malformed(wrong, "invalid")
        return Answer(value, wants_more, frozenset(flags))

    def _nothing(self, found: Scan) -> Answer | Malformed:
        """Why there is no object to take."""
        body = found.text.strip()
        if self.cut:
            return Malformed("the reply was cut off before a JSON object was complete", "truncated")
        if not body:
            return Malformed("the reply is empty", "empty")
        encoded = self._encoded(body)
        if encoded is not None:
            return encoded
        if found.broken is not None:
            return Malformed(found.broken, "invalid")
        if found.open_think is not None:
            return Malformed(f"the thinking was never closed with {found.open_think}, so there is no answer", "no_json")
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

    def _encoded(self, body: str) -> Answer | Malformed | None:
        """The answer in a reply that is one JSON string holding it."""
        if not body.startswith('"'):
            return None
        try:
            text = json.loads(body)
        except ValueError:
            return None
        inside = Scan(text, (), self.shape, False)
        if len(inside.objects) != 1 or not text.lstrip().startswith("{") or not text.rstrip().endswith("}"):
            return None
        return self._checked(Found(inside.objects[0].value, inside.objects[0].complaint, True), set())


def _as_bool(value: Any) -> bool | None:
    """`continue` as a bool (missing: False); None where it is neither true nor false."""
    if value is None:
        return False
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    return _WORDS.get(value.strip().lower()) if isinstance(value, str) else None
