"""The text of one model reply, parsed: tool calls, an answer, or what is wrong with it.

A policy may write anything, so no text makes this raise, and the work is linear in its length: a reply over 64 KB is
refused unread, and what strict decoding reads in vain is bounded. `scan` says what a text holds, `decide` what that
means. Strict JSON is tried first; common mistakes are repaired if only one reading is possible, and flagged, so that a
reward can see them. Nothing is filled in. Every format of tool calls is read, whichever the prompt taught:
`<tool_call>{…}</tool_call>`, a fenced ```tool block, a JSON object with `tool` or `name` and `arguments`, what other
interfaces write, and what chat templates teach instead (`spelled`).
"""

import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any

from msgspec.structs import replace

from ...errors import show_json
from ...records import ToolCall
from ...utils.frozen import Record
from ...utils.sanitize import replace_surrogates
from .lenient_json import parse_lenient_json
from .objects import (
    EMPTY,
    AnswerFields,
    ParsedCall,
    TagPairs,
    Tools,
    describe_echo,
    find_calls,
    find_tool,
    parse_call,
)
from .spelled import CLOSE, MARK, OPEN, UNMARKED, find_last_lines, read_calls
from .strict_json import StrictJson, decode_json

MAX_BYTES = 64 * 1024  # of UTF-8
THINKING: TagPairs = (("<think>", "</think>"),)
_THOUGHTS = ("think", "thinking", "thought", "reasoning")
OTHER_THINKING: TagPairs = (  # whatever the model's own tags are
    *((f"<{name}>", f"</{name}>") for name in (*_THOUGHTS, *map(str.title, _THOUGHTS), "seed:think")),
    *((f"<|{begin}|>", f"<|{end}|>") for begin, end in (("START_THINKING", "END_THINKING"), ("think", "/think"))),
    *(("[THINK]", "[/THINK]"), ("◁think▷", "◁/think▷"), ("<|channel>thought", "<channel|>")),
)
_BOOLEANS = {"true": True, "yes": True, "false": False, "no": False}
_PLACEHOLDERS = ("…", "...")

MAX_ITEMS = 256  # tool calls and top-level objects in one reply
MAX_BRACKETS = 10_000  # read in search of the end of a broken object
MAX_DECODED = 4  # times a reply's length: characters that strict decoding reads in vain; then all is read leniently


# An object with its first key (or none at all); `bare` if the key has no quotes, so that it may be only prose.
_OBJECT = (
    r'[{｛]\s*+(?:[}｝]|"(?:[^"\\]|\\.)*+"\s*+[:：]|\'(?:[^\'\\]|\\.)*+\'\s*+[:：]|[“”][^“”\n]{0,200}+[“”]\s*+[:：]'
    r'|[‘’][^‘’\n]{0,200}+[‘’]\s*+[:：]|「[^「」\n]{0,200}+」\s*+[:：]|\\"|/[/*]|(?P<bare>[^\W\d]\w{0,63}+\s*+[:：]))'
)
_LIST = r"[\[［]\s*+[{｛]\s*+(?:[\"'“”‘’「}｝]|[^\W\d]\w{0,63}+\s*+[:：])"
_FENCED_CALL = r"```[ \t]*+(?:tool(?:_calls?+|_code|_use)?+|function_calls?+)\b"
_FENCE = re.compile(r"```")
_QUOTE = r"\[data (?P<code>[0-9a-f]{8})\]"  # what a tool wrote, as the model was shown it
# Thinking of gpt-oss, up to the next channel or message; without its marks if a server has removed them.
_ANALYSIS = r"(?P<analysis><\|channel\|>analysis(?!\s*+to=))|(?<=[^\s])assistant(?=final|commentary)"
CHANNELS: TagPairs = (("<|channel|>analysis", "<|channel|>final<|message|>"),)
_NEXT_CHANNEL = re.compile(r"<\|(?:end|start|channel|return|call)\|>")
_LABEL = re.compile(r"(`{3,}+|~{3,}+)([ \t]*+)([\w+-]*+)")  # of a fenced block: the language
_OPENING = (re.compile(r"\s*+(?:```\w*+\s*+)?+"), re.compile(r"\s*+"))  # before what a block, or a fence, holds
Mark = tuple[int, int, bool]  # where it begins and ends, and whether it closes
# After it: space, and brackets that close nothing.
_CLOSING = re.compile(r"[\s,;}\])]*+(?:```\s*+|</(?:[^\s<>]{1,24}[:|｜])?(?:function|invoke)>\s*+)?+")
# A string (perhaps unclosed), or brackets.
_BRACKET = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[{\[]++|[}\]]++', re.DOTALL)
_CALL_START = re.compile(
    r"""[{｛]\s*+["'“](?:tool|name)["'”]\s*+[:：]\s*+["'“]([\w.-]{1,64})["'”]\s*+[,，]\s*+["'“](?:arguments|parameters)["'”]"""
)
_FORMAT = 'write {"name": …, "arguments": {…}}'
_CUT_OFF_CALL = "the tool call was cut off before its JSON was complete"
_BRACKETS = ("{", "[", "｛", "［")


class ToolCalls(Record, frozen=True):
    """The calls of a reply in order, including broken calls, and the valid answer beside them, if any.

    `answer` does not hold `continue`; `flags` are the flags of the answer. Every entry of `calls` must get an
    observation under its `call.id`.
    """

    calls: tuple[ParsedCall, ...]
    answer: Mapping[str, Any] | None = None
    flags: frozenset[str] = frozenset()
    written: tuple[str, ...] = ()  # the text of each call, with its marks

    @property
    def errors(self) -> tuple[str, ...]:
        """What is wrong with the broken calls."""
        return tuple(parsed.error for parsed in self.calls if parsed.error is not None)


class Answer(Record, frozen=True):
    """One JSON object. `value` does not hold `continue`; that is `wants_more`.

    `flags` holds "salvaged" if the reply was cut off, a broken object follows the answer, or fields were put under
    their parent. It holds "repaired" if the JSON was not strict, or the answer was under a wrong key, and "ignored" if
    the reply holds another object that was not taken.
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


# ---------------------------------------------------------------------- what a text holds
@lru_cache(maxsize=32)
def _build_patterns(thinking: TagPairs) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Patterns of the beginning of an item, and of the tags at which lenient reading stops."""
    tags = "|".join(re.escape(tag) for pair in thinking for tag in pair if tag)
    marks = (_ANALYSIS, _QUOTE, f"(?P<mark>{OPEN})", _FENCED_CALL, f"(?P<unmarked>{UNMARKED})")
    start = "|".join(filter(None, (tags, *marks, _LIST, _OBJECT)))
    return re.compile(start, re.DOTALL | re.MULTILINE), re.compile("|".join(filter(None, (tags, MARK))))


@dataclass(frozen=True, slots=True)
class ReplyObject:
    """An object outside any call, why it cannot be used, whether it is only lenient JSON, and its block's language."""

    value: dict[str, Any]
    complaint: str | None = None
    repaired: bool = False
    language: str = ""

    @property
    def is_code(self) -> bool:
        return bool(self.language) and not self.language.startswith("json")


@dataclass(slots=True)
class Items:
    """What the text of a reply holds, in order; `cut` says that the token budget ended the reply."""

    text: str
    cut: bool
    count: int = 0  # of calls, objects and whatever else was read
    calls: list[ParsedCall] = field(default_factory=list)
    spans: list[tuple[int, int, int]] = field(default_factory=list)  # where calls stand, with marks, and how many
    objects: list[ReplyObject] = field(default_factory=list)
    lists: list[list[Any]] = field(default_factory=list)
    partial: ReplyObject | None = None  # the complete part of an object that the end of the text cut off
    broken: str | None = None  # the first thing that cannot be read
    broken_after: list[int] = field(default_factory=list)  # for each broken object, how many whole ones are before it
    think_tag: str | None = None  # that closes the thinking, if there is any
    think_open: bool = False  # it is missing

    def add_call(self, value: object, text: str, error: str | None, tools: Tools = EMPTY) -> None:
        """Add a call as it was read; with an `error` it is kept but not run."""
        self.calls.append(parse_call(value, text, f"call_{len(self.calls)}", tools, error))


def scan(text: str, thinking: TagPairs, answer_fields: AnswerFields | None, cut: bool, tools: Tools) -> Items:
    """Return what a reply holds; `tools` are the parameters of each tool, as JSON Schema.

    >>> found = scan('<tool_call>{"name": "reset", "arguments": {}}</tool_call> {"side": "left"}', (), None, False, {})
    >>> found.calls[0].call.name, found.objects[0].value
    ('reset', {'side': 'left'})
    """
    encoded = None if cut else _read_encoded(text, answer_fields)
    return encoded or _Scanner(text, thinking, answer_fields, cut, tools).items


def _read_encoded(text: str, answer_fields: AnswerFields | None) -> Items | None:
    """Return a reply that is one JSON string with one object in it; None for any other."""
    if not text.lstrip().startswith('"'):
        return None
    try:
        inside = json.loads(text).strip()
    except ValueError:
        return None
    is_object = inside.startswith("{") and inside.endswith("}")
    objects = _Scanner(inside, (), answer_fields, False, {}).items.objects if is_object else []
    if len(objects) != 1:
        return None
    return Items(text, False, 1, objects=[ReplyObject(objects[0].value, objects[0].complaint, True)])


class _Scanner:
    """One pass over a text."""

    def __init__(
        self, text: str, thinking: TagPairs, answer_fields: AnswerFields | None, cut: bool, tools: Tools
    ) -> None:
        self.text = text
        self.items = Items(text, cut)
        self._answer_fields, self._cut, self._tools = answer_fields, cut, tools
        thinking = (*thinking, *OTHER_THINKING) if thinking else ()
        start, tags = _build_patterns(thinking)
        self._closing_tags = {opening: closing for opening, closing in thinking if opening}
        self._lone_closing_tags = {closing for _, closing in thinking if closing}
        closes = re.compile(CLOSE)
        self._tags = [(tag.start(), tag.end(), bool(closes.fullmatch(tag[0]))) for tag in tags.finditer(text)]
        self._fences = [(fence.start(), fence.end(), True) for fence in _FENCE.finditer(text)]
        self._languages = _list_languages(text)
        self._last_lines, self._left = find_last_lines(text), MAX_DECODED * len(text)
        position = 0
        while self.items.count <= MAX_ITEMS and (match := start.search(text, position)):
            known = len(self.items.calls)
            position = self._read_item(match)
            if (added := len(self.items.calls) - known) > 0:
                self.items.spans.append((match.start(), position, added))

    def _decode(self, begin: int) -> StrictJson:
        """Return the JSON at a place, if any and if not too much was read in vain before."""
        if self._left < 0:
            return StrictJson(None, begin, "the reply holds too much that is no JSON")
        found = decode_json(self.text, begin)
        self._left -= found.end - begin if found.value is None else 0
        return found

    def _read_item(self, start: re.Match[str]) -> int:
        """Read the item that begins at `start`; return the position after it."""
        opening = start[0]
        if opening in self._closing_tags:
            closing = self._closing_tags[opening]
            end = self.text.find(closing, start.end())
            self.items.think_tag, self.items.think_open = closing, end < 0
            return len(self.text) if end < 0 else end + len(closing)
        if start["analysis"] is not None:
            after = _NEXT_CHANNEL.search(self.text, start.end())
            self.items.think_tag, self.items.think_open = "<|end|>", after is None
            return len(self.text) if after is None else after.start()
        if opening == "assistant" or opening in self._lone_closing_tags:
            if opening != "assistant" or self.text.startswith("analysis"):  # the prompt opened it
                self.items = Items(self.text, self._cut, self.items.count, think_tag=opening)  # all before was thinking
            return start.end()
        self.items.count += 1
        if start["code"] is not None:
            end = self.text.find(closing := f"[/data {start['code']}]", start.end())
            return start.end() if end < 0 else end + len(closing)
        if start["mark"] is not None:
            return self._read_block(start.end(), self._tags, closes=opening != "[TOOL_CALLS]")
        if start["unmarked"] is not None:
            name = start["bare_call"] or start["listed_call"] or start["line_call"] or start["last_call"]
            is_call = not name or find_tool(name, self._tools) in self._tools
            is_call = is_call and (start["last_call"] is None or start.start() >= self._last_lines)
            return (self._read_spelled(start.start(), self._tags, False) if is_call else None) or start.start() + 1
        if opening.startswith("```"):
            return self._read_block(start.end(), self._fences, closes=True)
        return self._read_value(start.start(), bare=start["bare"] is not None)

    def _read_value(self, begin: int, bare: bool) -> int:
        """Read an object or a list outside any tag."""
        value, end, complaint = self._decode(begin)
        repaired = value is None
        if repaired:
            limit = self._find_next_mark(self._tags, begin)[0]
            lenient = parse_lenient_json(self.text, begin, limit, cut=self._cut and limit == len(self.text))
            value, end, complaint = lenient.to_strict()
            if value is None:
                end = self._find_end(lenient.end, lenient.depth, limit)
                self._note_unreadable(begin, end, f"the JSON cannot be read: {complaint}", bare)
                if not lenient.complete and isinstance(lenient.value, dict):
                    self.items.partial = ReplyObject(lenient.value, None, True)
                return end
        calls = find_calls(value, self._answer_fields, self._tools)
        if calls is not None:
            for call in calls:
                self.items.add_call(call, self.text[begin:end], complaint, self._tools)
        elif isinstance(value, dict):
            index = bisect_left(self._languages, (begin + 1,))
            language = self._languages[index - 1][1] if index else ""
            self.items.objects.append(ReplyObject(value, complaint, repaired, language))
        elif complaint is None:
            self.items.lists.append(value)
        else:
            self.items.broken = self.items.broken or complaint
        return end

    def _note_unreadable(self, begin: int, end: int, complaint: str, bare: bool) -> None:
        start = _CALL_START.match(self.text, begin, end)
        call: Any = {"name": start[1], "arguments": {}} if start is not None else None
        if find_calls(call, self._answer_fields):
            complaint = _CUT_OFF_CALL if self._cut and end == len(self.text) else complaint
            self.items.add_call(call, self.text[begin:end], complaint)
        elif not bare or not self.items.objects:  # {x: …} is a broken object only if there is no other
            self.items.broken = self.items.broken or complaint
            self.items.broken_after += [] if bare else [len(self.items.objects)]

    def _read_block(self, begin: int, marks: list[Mark], closes: bool) -> int:
        """Read a tool call between marks; return the position after it. `closes`: whether there is a closing mark."""
        begin = _OPENING[marks is self._fences].match(self.text, begin).end()  # type: ignore[union-attr]
        if (end := self._read_spelled(begin, marks, closes)) is not None:
            return end
        value, end, complaint = self._decode(begin)
        stop, after, mark = self._find_next_mark(marks, begin if value is None else end)
        closed = closes and mark is True
        if value is None and self.text.startswith(_BRACKETS, begin):
            cut = self._cut and mark is None
            value, end, complaint = parse_lenient_json(self.text, begin, stop, cut=cut).to_strict()
        if value is not None and not closed:
            stop = after = end  # complete, only its closing mark is missing
        text, calls = self.text[begin:stop].strip(), [value]
        rest = _CLOSING.match(self.text, end, stop)
        if value is None and not text.startswith(_BRACKETS):
            complaint = _FORMAT
        error = complaint and f"the tool call is not valid JSON: {complaint}"
        if value is None and mark is None and (closes or self._cut):
            error = _CUT_OFF_CALL
        elif error is None and (rest is None or rest.end() < stop):
            error = "a tool call block must hold one JSON object and nothing after it"
        elif value is not None:
            calls = find_calls(value, None, self._tools) or ([value] if value != [] else [])  # [] calls no tool
        for call in calls:
            self.items.add_call(call, text, error, self._tools)
        return after if closed else stop

    def _read_spelled(self, begin: int, marks: list[Mark], closes: bool) -> int | None:
        """Read calls that are not JSON objects; return the position after them, None if there are none."""
        limit, after, mark = self._find_next_mark(marks, begin)
        calls = read_calls(self.text, begin, limit, self._tools, self._decode, cut=self._cut, is_open=not closes)
        if not calls:
            return None
        last = calls[-1]
        if last.end > limit:  # the mark stands in a string
            limit, after, mark = self._find_next_mark(marks, last.end)
        closed = closes and mark is True
        rest = _CLOSING.match(self.text, last.end, limit)
        error = last.complaint and f"the call of {show_json(last.value['name'][:64])} cannot be read: {last.complaint}"
        if error is None and closed and (rest is None or rest.end() < limit):
            error = "a tool call block must hold tool calls and nothing after them"
        self.items.count += len(calls) - 1
        for call in calls:
            stop = limit if call is last and (closed or error) else call.end
            text = self.text[call.begin : stop].strip()
            self.items.add_call(call.value, text, error if call is last else None, self._tools)
        return after if closed else limit if error else last.end

    def _find_next_mark(self, marks: list[Mark], position: int) -> tuple[int, int, bool | None]:
        """Return the first of `marks` from `position` on; the end of the text, and None, if there is none."""
        index = bisect_left(marks, (position,))
        return marks[index] if index < len(marks) else (len(self.text), len(self.text), None)

    def _find_end(self, begin: int, depth: int, limit: int) -> int:
        """Return where an object ends that became unreadable at `begin`, `depth` brackets deep."""
        if depth == 0:
            return begin
        for token in islice(_BRACKET.finditer(self.text, begin, limit), MAX_BRACKETS):
            brackets = token[0]
            if brackets[0] in "{[":
                depth += len(brackets)
            elif brackets[0] != '"':
                depth -= len(brackets)
                if depth <= 0:
                    return token.end() + depth  # of several brackets only those that close the object
        return limit


def _list_languages(text: str) -> list[tuple[int, str]]:
    """Return where fenced blocks begin, with the language that each names, and where they end, with none."""
    found, opened = [], ""
    for mark in _LABEL.finditer(text):
        if not opened or (mark[3] and not mark[2]):
            opened = mark[1][0]
            found.append((mark.end(), mark[3].lower()))
        elif mark[1][0] == opened:
            opened = ""
            found.append((mark.end(1), ""))
    return found


# ---------------------------------------------------------------------- what that means
ParsedReply = ToolCalls | Answer | Malformed


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
    if len(text) > MAX_BYTES or len((text := replace_surrogates(text)).encode()) > MAX_BYTES:
        return Malformed(f"the reply is longer than {MAX_BYTES} bytes", "too_long")
    items = scan(text, tuple(thinking), answer_fields, finish_reason == "length", get_parameters(tools))
    return decide(items, answer_fields, last)


def get_parameters(tools: Iterable[Mapping[str, Any]]) -> Tools:
    """Return the parameters of each tool, as JSON Schema, of schemas in the OpenAI function format."""
    return {tool["function"]["name"]: tool["function"].get("parameters") or {} for tool in tools}


def split_calls(text: str, tools: Iterable[Mapping[str, Any]]) -> tuple[str, tuple[ToolCall, ...]]:
    """Return a reply's text without its calls, and these; all of its text, and none, if one cannot be run as written.

    >>> split_calls('Closer. <tool_call>{"name": "zoom", "arguments": {"factor": 2}}</tool_call>', ())
    ('Closer.', (ToolCall(id='call_0', name='zoom', arguments={'factor': 2}),))
    """
    items = scan(text, THINKING, None, False, get_parameters(tools))
    if not items.calls or any(call.error is not None for call in items.calls):
        return text, ()
    borders = [0, *(border for span in items.spans for border in span[:2]), len(text)]
    parts = (text[begin:end].strip() for begin, end in zip(borders[::2], borders[1::2], strict=True))
    return "\n".join(filter(None, parts)), tuple(call.call for call in items.calls)


def decide(items: Items, fields: AnswerFields | None, last: bool) -> ParsedReply:
    """Return what the items of a reply mean; `last` as in `parse_reply`."""
    if items.count > MAX_ITEMS:
        return Malformed(f"the reply holds more than {MAX_ITEMS} tool calls and JSON objects", "invalid")
    answer = _find_answer(items, fields or AnswerFields(), last)
    if not items.calls:
        return answer
    written = tuple(items.text[begin:end] for begin, end, count in items.spans for _ in range(count))
    found = ToolCalls(tuple(items.calls), written=written)
    return replace(found, answer=answer.value, flags=answer.flags) if isinstance(answer, Answer) else found


def _find_answer(items: Items, fields: AnswerFields, last: bool) -> Answer | Malformed:
    echoes = [describe_echo(item.value, fields) for item in items.objects]
    candidates = [item for item, echo in zip(items.objects, echoes, strict=True) if echo is None]
    chosen = _select_object(candidates, items.lists, fields)
    if chosen is not None:
        if chosen.complaint is not None:
            return Malformed(chosen.complaint, "invalid")
        flags = {"salvaged"} if items.cut or len(items.objects) in items.broken_after else set()
        others = [item.value for item in candidates if item.value and item.value != chosen.value]
        if others or any(place < len(items.objects) for place in items.broken_after) or (items.lists and candidates):
            flags.add("ignored")
        return _read_answer(chosen.value, flags | {"repaired"} if chosen.repaired else flags, fields, last)
    if echoed := list(filter(None, echoes)):
        return Malformed(echoed[0], "schema_echoed")
    if last and items.partial is not None:
        return _read_answer(fields.drop_short_lists(items.partial.value), {"salvaged"}, fields, last)
    return _describe_no_answer(items)


def _select_object(objects: list[ReplyObject], lists: list[list[Any]], fields: AnswerFields) -> ReplyObject | None:
    """Return the object that is the answer."""
    filled = [item for item in objects if item.value] or objects
    filled = [item for item in filled if fields.is_in(item.value)] or filled
    strict = [item for item in filled if not item.repaired and not item.is_code]
    if any(item.language and item.complaint is None for item in strict):
        filled = strict
    elif strict:
        filled = [item for item in filled if not (item.repaired and item.is_code)]
    if filled:
        return filled[-1]
    only = fields.unwrap_list(lists[0]) if len(lists) == 1 else None
    return None if only is None else ReplyObject(only, None, True)


def _read_answer(value: dict[str, Any], flags: set[str], fields: AnswerFields, last: bool) -> Answer | Malformed:
    """Return the chosen object as an answer; `flags` are the flags known so far."""
    inner = fields.unwrap(value)
    wrapped = fields.wrap(inner) if last else inner
    flags |= {"repaired"} if inner is not value else set()
    flags |= {"salvaged"} if wrapped is not inner else set()
    value = dict(wrapped)
    wants_more = _parse_continue(given := value.pop("continue", None))
    if wants_more is None:
        return Malformed(f'"continue" must be true or false, not {show_json(given)}', "bad_continue")
    copied = next((key for key, item in value.items() if item in _PLACEHOLDERS), None)
    if copied is not None:
        return Malformed(f"{copied[:64]}: {value[copied]} is a placeholder: write the value itself", "invalid")
    return Answer(value, wants_more, frozenset(flags))


def _describe_no_answer(items: Items) -> Malformed:
    """Return why the reply holds no usable object."""
    text = items.text.strip()
    if items.cut:
        where = "while thinking" if items.think_open else "before a JSON object was complete"
        return Malformed(f"the reply was cut off {where}", "truncated")
    if not text:
        return Malformed("the reply is empty", "empty")
    if items.broken is not None:
        return Malformed(items.broken, "invalid")
    if items.think_open:
        return Malformed(f"the thinking, which is not read, is not closed with {items.think_tag}", "no_json")
    if items.think_tag is not None and not items.lists:
        where = "after the thinking, which is not read: write the call or the answer there"
        return Malformed(f"the reply holds no JSON object {where}", "no_json")
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
