"""The text of one model reply, parsed: tool calls, an answer, or what is wrong with it.

A policy may write anything, so no text makes this raise; a reply over 64 KB is refused unread. `scan` says what a text
holds (`scan.py`), `decide` what that means: which objects are calls and which is the answer, by its fields. Strict JSON
is tried first; common mistakes are repaired if only one reading is possible, and flagged, so that a reward can see
them. Nothing is filled in.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from ...errors import show_json
from ...records import ToolCall
from ...utils.frozen import Record
from ...utils.sanitize import replace_surrogates
from .json_text import decode_json
from .objects import AnswerFields, ParsedCall, describe_echo, find_calls, parse_call
from .scan import CUT_OFF_CALL, EMPTY, MAX_ITEMS, THINKING, Scan, Span, TagPairs, Tools, scan

MAX_BYTES = 64 * 1024  # of UTF-8
_BOOLEANS = {"true": True, "yes": True, "false": False, "no": False}
_PLACEHOLDERS = ("…", "...")
_CALL_START = re.compile(
    r"""[{｛]\s*+["'“](?:tool|name)["'”]\s*+[:：]\s*+["'“]([\w.-]{1,64})["'”]\s*+[,，]\s*+["'“](?:arguments|parameters)["'”]"""
)
_BEFORE_OBJECT = re.compile(r"\s*+(?:```json\s*+)?(?=\{)")
_AFTER_OBJECT = re.compile(r"\s*+(?:```)?\s*+")


class ToolCalls(Record, frozen=True):
    """The calls of a reply in order, including broken calls, and the valid answer beside them, if any.
    `answer` does not hold `continue`; `flags` are the flags of the answer. Every entry of `calls` must get an
    observation under its `call.id`."""

    calls: tuple[ParsedCall, ...]
    answer: Mapping[str, Any] | None = None
    flags: frozenset[str] = frozenset()
    written: tuple[str, ...] = ()  # the text of each call, with its marks

    @property
    def errors(self) -> tuple[str, ...]:
        """What is wrong with the broken calls."""
        return tuple(parsed.error for parsed in self.calls if parsed.error is not None)


class ParsedAnswer(Record, frozen=True):
    """One JSON object. `value` does not hold `continue`; that is `wants_more`.

    `flags` holds "salvaged" if the reply was cut off, a broken object follows the answer, or fields were put under
    their parent. It holds "repaired" if the JSON was not strict, or the answer was under a wrong key, and "ignored" if
    the reply holds another object that was not taken."""

    value: Mapping[str, Any]
    wants_more: bool = False
    flags: frozenset[str] = frozenset()


class Malformed(Record, frozen=True):
    """A reply with neither calls nor an answer; `reason` is a sentence for the model.
    `kind` is one of empty, too_long, truncated, no_json, not_an_object, bad_continue, schema_echoed, invalid."""

    reason: str
    kind: str


ParsedReply = ToolCalls | ParsedAnswer | Malformed


def parse_reply(
    text: str,
    *,
    finish_reason: str = "stop",
    answer_fields: AnswerFields | None = None,
    last: bool = False,
    thinking: TagPairs = THINKING,
    tools: Iterable[Mapping[str, Any]] = (),
) -> ParsedReply:
    """Return the tool calls of a reply if it has any, else its JSON object as the answer. Never raises.

    Text between the tags of `thinking` does not count, nor does text before a closing tag whose opening tag is in the
    prompt. Of several objects, the last complete one that is not empty is the answer (with `answer_fields`: the last
    with a field of it). But strict JSON goes before code that must be repaired, and in a fenced block that says json
    before all code and all that must be repaired. Objects inside a list or inside a broken object are fragments and
    never the answer.

    finish_reason: "length" if the token budget ended the reply.
    answer_fields: the fields of the answer, used to find it; they do not validate it.
    last: no further reply is possible. An object that was cut off is then closed after its last complete value.
        Of a list that was cut, the complete numbers are kept, unless the field needs more of them.
    thinking: pairs of tags around thinking.
    tools: schemas in the OpenAI function format; they say what the text of an XML parameter is.

    >>> parse_reply('The lesion is left. {"answer": "left", "continue": "No"}')
    ParsedAnswer(value={'answer': 'left'}, wants_more=False, flags=frozenset())
    >>> reply = parse_reply('<tool_call>{"name": "zoom", "arguments": {"factor": 2}}</tool_call>')
    >>> reply.calls[0].call
    ToolCall(id='call_0', name='zoom', arguments={'factor': 2})
    >>> parse_reply("{'answer': 'left',}").flags
    frozenset({'repaired'})
    >>> parse_reply('{"side": "left", "reason": "the sha', finish_reason="length", last=True)
    ParsedAnswer(value={'side': 'left'}, wants_more=False, flags=frozenset({'salvaged'}))
    >>> parse_reply("It is on the left.").kind
    'no_json'
    """
    if len(text) > MAX_BYTES or len((text := replace_surrogates(text)).encode()) > MAX_BYTES:
        return Malformed(f"the reply is longer than {MAX_BYTES} bytes", "too_long")
    if answer_fields is not None and finish_reason != "length":
        answer = _read_plain_answer(text, answer_fields, last)
        if answer is not None:
            return answer
    parameters = get_parameters(tools)
    return decide(scan(text, tuple(thinking), finish_reason == "length", parameters), answer_fields, parameters, last)


def _read_plain_answer(text: str, fields: AnswerFields, last: bool) -> ParsedAnswer | Malformed | None:
    """Return what `decide` says, in a third of the time, of a reply that is one flat object of strict JSON, bare or
    fenced, all of whose keys are fields of the answer and none a word of calls; None for any other reply."""
    begin = _BEFORE_OBJECT.match(text)
    if begin is None:
        return None
    value, end, complaint, *_ = decode_json(text, begin.end())
    if complaint is not None or not value or not value.keys() <= fields.plain or not _AFTER_OBJECT.fullmatch(text, end):
        return None
    return None if dict in map(type, value.values()) else _read_answer(value, set(), fields, last)


def get_parameters(tools: Iterable[Mapping[str, Any]]) -> Tools:
    """Return the parameters of each tool, as JSON Schema, of schemas in the OpenAI function format."""
    return {tool["function"]["name"]: tool["function"].get("parameters") or {} for tool in tools}


def split_calls(text: str, tools: Iterable[Mapping[str, Any]]) -> tuple[str, tuple[ToolCall, ...]]:
    """Return a reply's text without its calls, and these; all of its text, and none, if one cannot be run as written.

    >>> split_calls('Closer. <tool_call>{"name": "zoom", "arguments": {"factor": 2}}</tool_call>', ())
    ('Closer.', (ToolCall(id='call_0', name='zoom', arguments={'factor': 2}),))
    """
    parameters = get_parameters(tools)
    contents = _Contents(scan(text, THINKING, False, parameters), None, parameters)
    if not contents.calls or any(call.error is not None for call in contents.calls):
        return text, ()
    borders = [0, *(border for place in dict.fromkeys(contents.places) for border in place), len(text)]
    pieces = (text[begin:end].strip() for begin, end in zip(borders[::2], borders[1::2], strict=True))
    return "\n".join(filter(None, pieces)), tuple(call.call for call in contents.calls)


def decide(found: Scan, fields: AnswerFields | None, tools: Tools, last: bool) -> ParsedReply:
    """Return what a text means that was scanned; `last` as in `parse_reply`."""
    quoted = _Contents(Scan(found.text, False, spans=found.quoted), fields, EMPTY).objects
    if len(quoted) == 1:
        found, tools = Scan(found.text, False, spans=[quoted[0]._replace(repaired=True)]), EMPTY
    if found.count > MAX_ITEMS:
        return Malformed(f"the reply holds more than {MAX_ITEMS} tool calls and JSON objects", "invalid")
    contents = _Contents(found, fields, tools)
    answer = _find_answer(contents, fields or AnswerFields(), last)
    if not contents.calls:
        return answer
    written = tuple(found.text[begin:end] for begin, end in contents.places)
    calls = ToolCalls(tuple(contents.calls), written=written)
    return replace(calls, answer=answer.value, flags=answer.flags) if isinstance(answer, ParsedAnswer) else calls


class _Contents:
    """The spans of a text by what they are: calls, and objects and lists outside any call."""

    def __init__(self, found: Scan, fields: AnswerFields | None, tools: Tools) -> None:
        self.found = found
        self.calls: list[ParsedCall] = []
        self.places: list[tuple[int, int]] = []  # where each call stands, with its marks
        self.objects: list[Span] = []
        self.lists: list[list[Any]] = []
        self.partial: dict[str, Any] | None = None  # the complete part of an object that the end of the text cut off
        self.broken: str | None = None  # the first thing that cannot be read
        self.broken_after: list[int] = []  # for each broken object, how many whole ones are before it
        for span in found.spans:
            if span.kind == "call":
                self._add_calls(span, [span.value], tools)
            elif span.kind == "calls":
                calls = find_calls(span.value, None, tools)
                self._add_calls(span, calls or ([span.value] if span.value != [] else []), tools)  # [] calls no tool
            elif span.kind == "value":
                self._sort_value(span, fields, tools)
            else:
                self._sort_broken(span, fields)

    def _add_calls(self, span: Span, calls: list[Any], tools: Tools) -> None:
        is_marked = span.kind in ("call", "calls")
        text = span.text if is_marked else self.found.text[span.begin : span.end]
        for call in calls:
            self.calls.append(parse_call(call, text, f"call_{len(self.calls)}", tools, span.complaint))
            self.places.append((span.begin, span.end))

    def _sort_value(self, span: Span, fields: AnswerFields | None, tools: Tools) -> None:
        if (calls := find_calls(span.value, fields, tools)) is not None:
            self._add_calls(span, calls, tools)
        elif isinstance(span.value, dict):
            self.objects.append(span)
        elif span.complaint is None:
            self.lists.append(span.value)
        else:
            self.broken = self.broken or span.complaint

    def _sort_broken(self, span: Span, fields: AnswerFields | None) -> None:
        start = _CALL_START.match(self.found.text, span.begin, span.end)
        call: Any = {"name": start[1], "arguments": {}} if start is not None else None
        if find_calls(call, fields):
            is_cut = self.found.cut and span.end == len(self.found.text)
            self._add_calls(span._replace(complaint=CUT_OFF_CALL if is_cut else span.complaint), [call], EMPTY)
        elif span.kind == "broken" or not self.objects:  # {x: …} is a broken object only if there is no other
            self.broken = self.broken or span.complaint
            self.broken_after += [len(self.objects)] if span.kind == "broken" else []
        self.partial = span.value if span.value and isinstance(span.value, dict) else self.partial


def _find_answer(contents: _Contents, fields: AnswerFields, last: bool) -> ParsedAnswer | Malformed:
    objects, broken_after = contents.objects, contents.broken_after
    echoes = [describe_echo(span.value, fields) for span in objects]
    candidates = [span for span, echo in zip(objects, echoes, strict=True) if echo is None]
    chosen = _select_object(candidates, contents, fields)
    if chosen is not None:
        if chosen.complaint is not None:
            return Malformed(chosen.complaint, "invalid")
        flags = {"salvaged"} if contents.found.cut or len(objects) in broken_after else set()
        others = [span.value for span in candidates if span.value and span.value != chosen.value]
        if others or any(place < len(objects) for place in broken_after) or (contents.lists and candidates):
            flags.add("ignored")
        return _read_answer(chosen.value, flags | {"repaired"} if chosen.repaired else flags, fields, last)
    if echoed := list(filter(None, echoes)):
        return Malformed(echoed[0], "schema_echoed")
    if last and contents.partial is not None:
        return _read_answer(fields.drop_short_lists(contents.partial), {"salvaged"}, fields, last)
    return _describe_no_answer(contents)


def _select_object(objects: list[Span], contents: _Contents, fields: AnswerFields) -> Span | None:
    """Return the object that is the answer."""
    filled = [span for span in objects if span.value] or objects
    filled = [span for span in filled if fields.is_in(span.value)] or filled
    strict = [span for span in filled if not span.repaired and not span.is_code]
    if any(span.language and span.complaint is None for span in strict):
        filled = strict
    elif strict:
        filled = [span for span in filled if not (span.repaired and span.is_code)]
    if filled:
        return filled[-1]
    only = fields.unwrap_list(contents.lists[0]) if len(contents.lists) == 1 else None
    return None if only is None else Span("value", 0, 0, only, None, True)


def _read_answer(value: dict[str, Any], flags: set[str], fields: AnswerFields, last: bool) -> ParsedAnswer | Malformed:
    """Return the chosen object as an answer; `flags` are the flags known so far."""
    inner = fields.unwrap(value)
    wrapped = fields.wrap(inner) if last else inner
    flags |= {"repaired"} if inner is not value else set()
    flags |= {"salvaged"} if wrapped is not inner else set()
    value = dict(wrapped)
    wants_more = _parse_continue(flag := value.pop("continue", None))
    if wants_more is None:
        return Malformed(f'"continue" must be true or false, not {show_json(flag)}', "bad_continue")
    copied = next((key for key, item in value.items() if item in _PLACEHOLDERS), None)
    if copied is not None:
        return Malformed(f"{copied[:64]}: {value[copied]} is a placeholder: write the value itself", "invalid")
    return ParsedAnswer(value, wants_more, frozenset(flags))


def _describe_no_answer(contents: _Contents) -> Malformed:
    """Return why the reply holds no usable object."""
    scanned, lists = contents.found, contents.lists
    text = scanned.text.strip()
    if scanned.cut:
        where = "while thinking" if scanned.think_open else "before a JSON object was complete"
        return Malformed(f"the reply was cut off {where}", "truncated")
    if not text:
        return Malformed("the reply is empty", "empty")
    if contents.broken is not None:
        return Malformed(contents.broken, "invalid")
    if scanned.think_open:
        return Malformed(f"the thinking, which is not read, is not closed with {scanned.think_tag}", "no_json")
    if scanned.think_tag is not None and not lists:
        where = "after the thinking, which is not read: write the call or the answer there"
        return Malformed(f"the reply holds no JSON object {where}", "no_json")
    if text.startswith("```"):
        text = text.partition("\n")[2].removesuffix("```").strip()
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        if text.startswith("{"):
            return Malformed(f"the JSON object cannot be read: {error}", "invalid")
        if not lists:
            return Malformed("the reply holds no JSON object", "no_json")
    return Malformed("the answer must be one JSON object {…}, not a list or a bare value", "not_an_object")


def _parse_continue(value: Any) -> bool | None:
    """`continue` as a bool (missing: False); None if it is neither true nor false."""
    if value is None:
        return False
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    return _BOOLEANS.get(value.strip().lower()) if isinstance(value, str) else None
