"""One pass over a reply: its tool calls, its top-level objects, and the first thing that could not be read.

The work is linear. Reading begins only where an object can begin; what has been read, as JSON or in an attempt to
mend it, is never read again; and at most `MAX_ITEMS` things are looked at.
"""

import re
from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

from viewbox.envs.parsing.answer_schema import Shape
from viewbox.envs.parsing.calls import ParsedCall, calls_in, read_call
from viewbox.envs.parsing.lenient_json import mend
from viewbox.envs.parsing.strict_json import decoder
from viewbox.records import ToolCall

MAX_ITEMS = 256  # tool calls and top-level objects in one reply
MAX_BRACKETS = 10_000  # after which the end of a broken object is no longer looked for

Pairs = tuple[tuple[str, str], ...]  # what opens and what closes the thinking

# An object with its first key (or none at all); `bare` where the key has no quotes, so that it may be only prose.
_OBJECT = (
    r'[{｛]\s*+(?:[}｝]|"(?:[^"\\]|\\.)*+"\s*+[:：]|\'(?:[^\'\\]|\\.)*+\'\s*+[:：]|[“”][^“”\n]{0,200}+[“”]\s*+[:：]'
    r'|[‘’][^‘’\n]{0,200}+[‘’]\s*+[:：]|「[^「」\n]{0,200}+」\s*+[:：]|\\"|/[/*]|(?P<bare>[^\W\d]\w{0,63}+\s*+[:：]))'
)
_LIST = r"[\[［]\s*+[{｛]\s*+(?:[\"'“”‘’「}｝]|[^\W\d]\w{0,63}+\s*+[:：])"
_FENCED_CALL = r"```[ \t]*+(?:tool(?:_calls?+|_code|_use)?+|function_calls?+)\b"
_CALL_TAG = re.compile(r"</?tool_call>")
_FENCE = re.compile(r"```")
_OPENING = {"</tool_call>": re.compile(r"\s*+(?:```\w*+\s*+)?+"), "```": re.compile(r"\s*+")}  # before a block's JSON
_CLOSING = re.compile(r"[\s}\])]*+(?:```\s*+)?+")  # after it: space, and brackets that close nothing
# A string (perhaps unclosed), or brackets.
_BRACKET = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[{\[]++|[}\]]++', re.DOTALL)
_CALLISH = re.compile(
    r"""[{｛]\s*+["'“](?:tool|name)["'”]\s*+[:：]\s*+["'“]([\w.-]{1,64})["'”]\s*+[,，]\s*+["'“](?:arguments|parameters)["'”]"""
)
_FORMAT = 'write {"name": …, "arguments": {…}}'
_OPEN_CALL = "the tool call was cut off before its JSON was complete"


@lru_cache(maxsize=32)
def _patterns(thinking: Pairs) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Where something can begin, and the tags that no mended object reaches over."""
    tags = "|".join(re.escape(tag) for pair in thinking for tag in pair if tag)
    start = "|".join(filter(None, (tags, "<tool_call>", _FENCED_CALL, _LIST, _OBJECT)))
    return re.compile(start, re.DOTALL), re.compile("|".join(filter(None, (tags, _CALL_TAG.pattern))))


_LONE = ("<tool_call>", "</tool_call>")


@dataclass(frozen=True, slots=True)
class Found:
    """An object outside any call, why it cannot be used, and whether it had to be mended."""

    value: dict[str, Any]
    complaint: str | None = None
    mended: bool = False


def lone_call(text: str, thinking: Pairs) -> ParsedCall | None:
    """The call of a reply that is one `<tool_call>` block of strict JSON and nothing else; None for any other.

    Most replies of a trained policy are such and need no scan: this reads them twice as fast.
    """
    body = text.strip()
    if not (body.startswith(_LONE[0]) and body.endswith(_LONE[1])) or body.count("tool_call>") != 2 or "```" in body:
        return None
    if any(tag and tag in body for pair in thinking for tag in pair):
        return None
    raw = body[len(_LONE[0]) : -len(_LONE[1])].strip()
    value, end, complaint = decoder().decode(raw, 0)
    if complaint is not None or end != len(raw) or not isinstance(value, dict):
        return None
    return read_call(value, raw, "call_0") if value.keys() == {"name", "arguments"} else None


class Scan:
    """What a reply holds, in order; `cut` says that the reply was ended by its token budget."""

    def __init__(self, text: str, thinking: Pairs, shape: Shape | None, cut: bool) -> None:
        self.text = text
        self.items = 0
        self.open_think: str | None = None  # the tag that is missing
        self._shape, self._cut = shape, cut
        self._decoder = decoder()
        self._begin()
        start, tags = _patterns(thinking)
        self._closes = {opening: closing for opening, closing in thinking if opening}
        self._ends = {closing for _, closing in thinking if closing}
        self._tags = [(tag.start(), tag.end(), tag[0]) for tag in tags.finditer(text)]
        self._fences = [(fence.start(), fence.end(), "```") for fence in _FENCE.finditer(text)]
        position = 0
        while self.items <= MAX_ITEMS and (match := start.search(text, position)):
            position = self._item(match)

    def _begin(self) -> None:
        """Nothing has been said yet, or all of it was thinking."""
        self.calls: list[ParsedCall] = []
        self.objects: list[Found] = []
        self.lists: list[list[Any]] = []
        self.partial: Found | None = None  # what had been said of the last object when the text ended
        self.broken: str | None = None
        self.broken_last = False  # the last object is a broken one

    def _item(self, start: re.Match[str]) -> int:
        """Reads what begins at `start`; returns where to go on."""
        word = start[0]
        if word in self._closes:
            closing = self._closes[word]
            end = self.text.find(closing, start.end())
            self.open_think = closing if end < 0 else None
            return len(self.text) if end < 0 else end + len(closing)
        if word in self._ends:  # the prompt opened it: all of this was thinking
            self._begin()
            return start.end()
        self.items += 1
        if word == "<tool_call>":
            return self._block(start.end(), self._tags, "</tool_call>")
        if word.startswith("```"):
            return self._block(start.end(), self._fences, "```")
        return self._value(start.start(), bare=start["bare"] is not None)

    def _value(self, begin: int, bare: bool) -> int:
        """An object or a list that stands in the text."""
        value, end, complaint = self._decoder.decode(self.text, begin)
        repaired = value is None
        limit = self._next(self._tags, begin)[0]
        if repaired:
            mended = mend(self.text, begin, limit, cut=self._cut and limit == len(self.text))
            value, end, complaint = (mended.value if mended.whole else None), mended.end, mended.complaint
            if value is None:
                end = self._extent(mended.end, mended.deep, limit)
                self._unreadable(begin, end, f"the JSON cannot be read: {complaint}", bare)
                if not mended.whole and isinstance(mended.value, dict):
                    self.partial = Found(mended.value, None, True)
                return end
        calls = calls_in(value, self._shape)
        if calls is not None:
            for call in calls:
                self._add(call, self.text[begin:end], complaint)
        elif isinstance(value, dict):
            self.objects.append(Found(value, complaint, repaired))
            self.broken_last = False
        else:
            self.lists.append(value)
        return end

    def _unreadable(self, begin: int, end: int, why: str, bare: bool) -> None:
        callish = _CALLISH.match(self.text, begin, end)
        if callish is not None and calls_in({"name": callish[1], "arguments": {}}, self._shape):
            why = _OPEN_CALL if self._cut and end == len(self.text) else why
            self._refuse(callish[1], self.text[begin:end], why)
        elif not bare:
            self.broken = self.broken or why
            self.broken_last = True
        elif not self.objects:  # {x: …} is a broken object only where there is no other
            self.broken = self.broken or why

    def _block(self, begin: int, marks: list[tuple[int, int, str]], closing: str) -> int:
        """A tool call between marks; returns where it ends."""
        begin = _OPENING[closing].match(self.text, begin).end()  # type: ignore[union-attr]
        value, end, complaint = self._decoder.decode(self.text, begin)
        stop, after, mark = self._next(marks, begin if value is None else end)
        closed = mark == closing
        if value is None and self.text[begin : begin + 1] in tuple("{[｛［"):
            mended = mend(self.text, begin, stop, cut=self._cut and not mark)
            value, end, complaint = (mended.value if mended.whole else None), mended.end, mended.complaint
        if value is not None and not closed:
            stop = after = end  # whole, only its closing mark is missing
        raw = self.text[begin:stop].strip()
        rest = _CLOSING.match(self.text, end, stop)
        if value is None and not mark:
            self._refuse("", raw, _OPEN_CALL)
        elif value is None:
            given = raw[:1] in tuple("{[｛［") and complaint
            self._refuse("", raw, f"the tool call is not valid JSON: {given or _FORMAT}")
        elif complaint is None and (rest is None or rest.end() < stop):
            self._add(value, raw, "the block of a tool call holds one JSON object and nothing after it")
        else:
            wrong = None if complaint is None else f"the tool call is not valid JSON: {complaint}"
            for call in calls_in(value, None) or [value]:
                self._add(call, raw, wrong)
        return after if closed else stop

    def _add(self, value: Any, raw: str, complaint: str | None) -> None:
        """A call as it was read; with a `complaint` it is kept, and not run."""
        parsed = read_call(value, raw, f"call_{len(self.calls)}")
        if complaint is None:
            self.calls.append(parsed)
        else:
            self._refuse(parsed.call.name, raw, complaint)

    def _refuse(self, name: str, raw: str, why: str) -> None:
        self.calls.append(ParsedCall(ToolCall(f"call_{len(self.calls)}", name, raw), why))

    def _next(self, marks: list[tuple[int, int, str]], position: int) -> tuple[int, int, str]:
        """The first of `marks` from `position` on; the end of the text where there is none."""
        index = bisect_left(marks, (position,))
        return marks[index] if index < len(marks) else (len(self.text), len(self.text), "")

    def _extent(self, begin: int, depth: int, limit: int) -> int:
        """Where an object that broke off at `begin`, `depth` brackets deep, ends; what is inside it is a fragment."""
        if depth == 0:
            return begin
        for token in islice(_BRACKET.finditer(self.text, begin, limit), MAX_BRACKETS):
            run = token[0]
            if run[0] in "{[":
                depth += len(run)
            elif run[0] != '"':
                depth -= len(run)
                if depth <= 0:
                    return token.end() + depth  # of a longer run only what closes it
        return limit
