"""One pass over the text of a reply: its tool calls, its top-level objects, and the first thing that cannot be read.

The work is linear. Reading begins only where an object can begin; what has been read, as strict or as lenient JSON, is
never read again; and at most `MAX_ITEMS` items are read. A call that cannot be run as written keeps its raw text
and the reason, so that it gets an error and is not lost.
"""

import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

from viewbox.envs.parsing.answer_schema import AnswerFields, describe_echo, is_schema
from viewbox.envs.parsing.lenient_json import parse_lenient_json
from viewbox.envs.parsing.strict_json import decode_json
from viewbox.frozen import Record
from viewbox.records import ToolCall

MAX_ITEMS = 256  # tool calls and top-level objects in one reply
MAX_BRACKETS = 10_000  # read in search of the end of a broken object

TagPairs = tuple[tuple[str, str], ...]  # the tags that open and close the thinking

# An object with its first key (or none at all); `bare` if the key has no quotes, so that it may be only prose.
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
_CALL_START = re.compile(
    r"""[{｛]\s*+["'“](?:tool|name)["'”]\s*+[:：]\s*+["'“]([\w.-]{1,64})["'”]\s*+[,，]\s*+["'“](?:arguments|parameters)["'”]"""
)
_FORMAT = 'write {"name": …, "arguments": {…}}'
_CUT_OFF_CALL = "the tool call was cut off before its JSON was complete"
_CALL_TAGS = ("<tool_call>", "</tool_call>")
_BRACKETS = ("{", "[", "｛", "［")

_NAMES = ("name", "tool")
_ARGUMENTS = ("arguments", "parameters")
_IGNORED_KEYS = frozenset({"id", "call_id", "type", "continue", "thought", "thoughts", "reasoning", "reason"})


# ---------------------------------------------------------------------- one tool call
@dataclass(frozen=True)
class ParsedCall(Record):
    """A tool call and, if it cannot be run as written, the reason; `call.arguments` is then the raw text."""

    call: ToolCall
    error: str | None = None


def parse_native_call(call: ToolCall) -> ParsedCall:
    """A call that an API returned. Arguments that are a string of JSON are parsed, leniently if need be.

    >>> parse_native_call(ToolCall("c1", "zoom", '{"factor": 2,}')).call.arguments
    {'factor': 2}
    """
    arguments, error = _parse_arguments(call.name, call.arguments)
    if error is not None:
        return ParsedCall(call, error)
    return ParsedCall(ToolCall(call.id, call.name, arguments))


def parse_call(value: Any, text: str, identity: str) -> ParsedCall:
    """The call in the JSON `value` of a block; `text` is the text of the block."""
    if isinstance(value, Mapping):
        value = _unwrap_call(value)
    if not isinstance(value, Mapping):
        return ParsedCall(ToolCall(identity, "", text), 'a tool call is one JSON object {"name": …, "arguments": {…}}')
    names = [value[key] for key in _NAMES if key in value]
    name = names[0] if names and isinstance(names[0], str) and names.count(names[0]) == len(names) else ""
    arguments: Mapping[str, Any] = {}
    key = next((key for key in _ARGUMENTS if key in value), None)
    flat = [item for item in value if item not in _IGNORED_KEYS and item not in _NAMES]
    error = describe_echo(value, None)
    if error is None and not name:
        error = 'the tool call has no "name"'
    elif error is None and key is not None:
        arguments, error = _parse_arguments(name, value[key])
    elif error is None and flat:
        error = f'the call of {name[:64]!r} has no "arguments": put {flat[0][:64]!r} in "arguments": {{…}}'
    return ParsedCall(ToolCall(identity, name, text if error is not None else arguments), error)


def parse_single_call(text: str, thinking: TagPairs) -> ParsedCall | None:
    """The call of a reply that is one `<tool_call>` block of strict JSON and nothing else; None for any other reply.

    Most replies of a trained policy are such a block. This reads them in half the time of a scan.
    """
    text = text.strip()
    opening, closing = _CALL_TAGS
    if not (text.startswith(opening) and text.endswith(closing)) or text.count("tool_call>") != 2 or "```" in text:
        return None
    if any(tag and tag in text for pair in thinking for tag in pair):
        return None
    text = text[len(opening) : -len(closing)].strip()
    value, end, complaint = decode_json(text)
    if complaint is not None or end != len(text) or not isinstance(value, dict):
        return None
    return parse_call(value, text, "call_0") if value.keys() == {"name", "arguments"} else None


def find_calls(value: Any, answer_fields: AnswerFields | None) -> list[Any] | None:
    """The calls in an object or a list outside any tag; None if it is something else.

    >>> find_calls({"tool": "zoom", "arguments": {"factor": 2}}, None)
    [{'tool': 'zoom', 'arguments': {'factor': 2}}]
    >>> find_calls({"answer": "left"}, None)
    """
    names = answer_fields.names if answer_fields is not None else frozenset()
    if isinstance(value, list):
        return value if value and all(_is_call(item, answer_fields) for item in value) else None
    if not isinstance(value, dict):
        return None
    listed = value.get("tool_calls")
    if "tool_calls" not in names and isinstance(listed, list):
        return listed if listed and all(_is_call(item, answer_fields) for item in listed) else None
    return [value] if _is_call(value, answer_fields) else None


def _unwrap_call(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """The call in {"type": "function", "function": {…}} or {"tool_call": {…}}; else `value`."""
    for key in ("function", "tool_call", "function_call"):
        inner = value.get(key)
        if isinstance(inner, Mapping) and not any(name in value for name in _NAMES):
            return inner
    return value


def _is_call(value: Any, answer_fields: AnswerFields | None) -> bool:
    fields = answer_fields.names if answer_fields is not None else frozenset()
    if not isinstance(value, dict):
        return False
    inner = _unwrap_call(value)
    if inner is not value and not value.keys().isdisjoint(fields - _IGNORED_KEYS):
        return False
    names = [key for key in _NAMES if isinstance(inner.get(key), str)]
    key = next((key for key in _ARGUMENTS if key in inner), None)
    if not names or is_schema(inner.get("parameters")):
        return False
    if key == "arguments" or (key is not None and isinstance(inner[key], Mapping | str)):
        return not {names[0], key} <= fields
    has_only_tool = answer_fields is not None or inner.keys() <= _IGNORED_KEYS | {"tool"}
    return "tool" in names and "tool" not in fields and has_only_tool


def _parse_arguments(name: str, arguments: Any) -> tuple[Mapping[str, Any], str | None]:
    """The arguments as an object, or what is wrong with them; a string is read as JSON."""
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return {}, None
    if isinstance(arguments, Mapping):
        return arguments, None
    if isinstance(arguments, str):
        text = arguments.strip()
        value, end, complaint = decode_json(text)
        if value is None and text[0] in "{｛":
            value, end, complaint = parse_lenient_json(text, 0, len(text)).to_strict()
        if isinstance(value, dict) and complaint is None and not text[end:].strip():
            return value, None
        if complaint is not None:
            return {}, f'the "arguments" of {name[:64]!r} must be a JSON object: {complaint}'
    return {}, f'the "arguments" of {name[:64]!r} must be a JSON object'


# ---------------------------------------------------------------------- the whole reply
@lru_cache(maxsize=32)
def _build_patterns(thinking: TagPairs) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Patterns of the beginning of an item, and of the tags at which lenient reading stops."""
    tags = "|".join(re.escape(tag) for pair in thinking for tag in pair if tag)
    start = "|".join(filter(None, (tags, "<tool_call>", _FENCED_CALL, _LIST, _OBJECT)))
    return re.compile(start, re.DOTALL), re.compile("|".join(filter(None, (tags, _CALL_TAG.pattern))))


@dataclass(frozen=True, slots=True)
class ReplyObject:
    """An object outside any call, why it cannot be used, and whether it is only lenient JSON."""

    value: dict[str, Any]
    complaint: str | None = None
    repaired: bool = False


class ReplyScan:
    """What the text of a reply holds, in order; `cut` says that the token budget ended the reply."""

    def __init__(self, text: str, thinking: TagPairs, answer_fields: AnswerFields | None, cut: bool) -> None:
        self.text = text
        self.items = 0
        self.open_think: str | None = None  # the closing tag that is missing
        self._answer_fields, self._cut = answer_fields, cut
        self._clear_items()
        start, tags = _build_patterns(thinking)
        self._closing_tags = {opening: closing for opening, closing in thinking if opening}
        self._lone_closing_tags = {closing for _, closing in thinking if closing}
        self._tags = [(tag.start(), tag.end(), tag[0]) for tag in tags.finditer(text)]
        self._fences = [(fence.start(), fence.end(), "```") for fence in _FENCE.finditer(text)]
        position = 0
        while self.items <= MAX_ITEMS and (match := start.search(text, position)):
            position = self._read_item(match)

    def _clear_items(self) -> None:
        """Removes all items, because everything up to here was thinking."""
        self.calls: list[ParsedCall] = []
        self.objects: list[ReplyObject] = []
        self.lists: list[list[Any]] = []
        self.partial: ReplyObject | None = None  # the complete part of an object that the end of the text cut off
        self.broken: str | None = None
        self.broken_last = False  # the last object is broken

    def _read_item(self, start: re.Match[str]) -> int:
        """Reads the item that begins at `start`; returns the position after it."""
        opening = start[0]
        if opening in self._closing_tags:
            closing = self._closing_tags[opening]
            end = self.text.find(closing, start.end())
            self.open_think = closing if end < 0 else None
            return len(self.text) if end < 0 else end + len(closing)
        if opening in self._lone_closing_tags:  # the prompt opened it: everything before was thinking
            self._clear_items()
            return start.end()
        self.items += 1
        if opening == "<tool_call>":
            return self._read_block(start.end(), self._tags, "</tool_call>")
        if opening.startswith("```"):
            return self._read_block(start.end(), self._fences, "```")
        return self._read_value(start.start(), bare=start["bare"] is not None)

    def _read_value(self, begin: int, bare: bool) -> int:
        """Reads an object or a list outside any tag."""
        value, end, complaint = decode_json(self.text, begin)
        repaired = value is None
        if repaired:
            limit = self._find_next_mark(self._tags, begin)[0]
            lenient = parse_lenient_json(self.text, begin, limit, cut=self._cut and limit == len(self.text))
            value, end, complaint = lenient.to_strict()
            if value is None:
                end = self._find_end(lenient.end, lenient.depth, limit)
                self._note_unreadable(begin, end, f"the JSON cannot be read: {complaint}", bare)
                if not lenient.complete and isinstance(lenient.value, dict):
                    self.partial = ReplyObject(lenient.value, None, True)
                return end
        calls = find_calls(value, self._answer_fields)
        if calls is not None:
            for call in calls:
                self._add_call(call, self.text[begin:end], complaint)
        elif isinstance(value, dict):
            self.objects.append(ReplyObject(value, complaint, repaired))
            self.broken_last = False
        else:
            self.lists.append(value)
        return end

    def _note_unreadable(self, begin: int, end: int, complaint: str, bare: bool) -> None:
        start = _CALL_START.match(self.text, begin, end)
        if start is not None and find_calls({"name": start[1], "arguments": {}}, self._answer_fields):
            complaint = _CUT_OFF_CALL if self._cut and end == len(self.text) else complaint
            self._refuse_call(start[1], self.text[begin:end], complaint)
        elif not bare:
            self.broken = self.broken or complaint
            self.broken_last = True
        elif not self.objects:  # {x: …} is a broken object only if there is no other
            self.broken = self.broken or complaint

    def _read_block(self, begin: int, marks: list[tuple[int, int, str]], closing: str) -> int:
        """Reads a tool call between marks; returns the position after it."""
        begin = _OPENING[closing].match(self.text, begin).end()  # type: ignore[union-attr]
        value, end, complaint = decode_json(self.text, begin)
        stop, after, mark = self._find_next_mark(marks, begin if value is None else end)
        closed = mark == closing
        if value is None and self.text.startswith(_BRACKETS, begin):
            value, end, complaint = parse_lenient_json(self.text, begin, stop, cut=self._cut and not mark).to_strict()
        if value is not None and not closed:
            stop = after = end  # complete, only its closing mark is missing
        text = self.text[begin:stop].strip()
        rest = _CLOSING.match(self.text, end, stop)
        if value is None and not mark:
            self._refuse_call("", text, _CUT_OFF_CALL)
        elif value is None:
            reason = (text.startswith(_BRACKETS) and complaint) or _FORMAT
            self._refuse_call("", text, f"the tool call is not valid JSON: {reason}")
        elif complaint is None and (rest is None or rest.end() < stop):
            self._add_call(value, text, "a tool call block must hold one JSON object and nothing after it")
        else:
            error = None if complaint is None else f"the tool call is not valid JSON: {complaint}"
            for call in find_calls(value, None) or [value]:
                self._add_call(call, text, error)
        return after if closed else stop

    def _add_call(self, value: Any, text: str, error: str | None) -> None:
        """Adds a call as it was read; with an `error` it is kept but not run."""
        parsed = parse_call(value, text, f"call_{len(self.calls)}")
        if error is None:
            self.calls.append(parsed)
        else:
            self._refuse_call(parsed.call.name, text, error)

    def _refuse_call(self, name: str, text: str, error: str) -> None:
        self.calls.append(ParsedCall(ToolCall(f"call_{len(self.calls)}", name, text), error))

    def _find_next_mark(self, marks: list[tuple[int, int, str]], position: int) -> tuple[int, int, str]:
        """The first of `marks` from `position` on; the end of the text if there is none."""
        index = bisect_left(marks, (position,))
        return marks[index] if index < len(marks) else (len(self.text), len(self.text), "")

    def _find_end(self, begin: int, depth: int, limit: int) -> int:
        """Where an object ends that became unreadable at `begin`, `depth` brackets deep."""
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
