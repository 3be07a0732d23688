"""The first stage: what the text of a reply holds, as spans in their order. What they mean is decided in `reply.py`.

No text makes `scan` raise, and its work is linear in the length of the text: no pattern reads far to no end, and what
strict decoding reads in vain is bounded. Tool calls are read in every syntax, whichever the prompt taught: JSON between
marks or in a fenced block, and what chat templates teach that do not write calls as JSON objects:

    <function=zoom>\\n<parameter=factor>\\n2\\n</parameter>\\n</function>   Qwen3.5, Qwen3-Coder
    zoom\\n<arg_key>factor</arg_key>\\n<arg_value>2</arg_value>            GLM-4.5V, GLM-4.6V
    zoom[ARGS]{"factor": 2}, zoom[CALL_ID]a1[ARGS]{…}, zoom{…}           Mistral, Ministral
    call:zoom{factor:2,side:<|"|>left<|"|>}                              Gemma 4
    zoom(factor=2, center=[0.5, 0.5]), print(zoom(factor=2))             LFM2, Gemma 3, Llama 3.2
    functions.zoom:0<|tool_call_argument_begin|>{"factor": 2}            Kimi
    function<｜tool▁sep｜>zoom\n```json\n{"factor": 2}\n```               DeepSeek
    <|channel|>commentary to=functions.zoom <|constrain|>json<|message|>{"factor": 2}    gpt-oss
    <invoke name="zoom"><parameter name="factor">2</parameter></invoke>  Claude, MiniMax
    Action: zoom\nAction Input: {"factor": 2}                            ReAct

A bracket after the name is read as JSON, repaired if need be; its values have the types in which they are written.
Between tags every value is text: the tool's schema alone says what it is (`read_by_schema`). Values without a name in
a Python call are the tool's parameters in their order, as in Python.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any, Literal, NamedTuple

from ...errors import show_json
from ...utils.frozen import FrozenDict
from .json_text import ReadJson, decode_json, describe_duplicate, parse_lenient_json, read_by_schema

TagPairs = tuple[tuple[str, str], ...]  # the tags that open and close the thinking
Tools = Mapping[str, Mapping[str, Any]]  # the parameters of each tool, as JSON Schema
EMPTY: Mapping[str, Any] = FrozenDict()

MAX_ITEMS = 256  # tool calls and top-level objects in one reply, and calls between two marks
MAX_BRACKETS = 10_000  # read in search of the end of a broken object
MAX_DECODED = 4  # times a reply's length: characters that strict decoding reads in vain; then all is read leniently

THINKING: TagPairs = (("<think>", "</think>"),)
_THOUGHTS = ("think", "thinking", "thought", "reasoning")
OTHER_THINKING: TagPairs = (  # whatever the model's own tags are
    *((f"<{name}>", f"</{name}>") for name in (*_THOUGHTS, *map(str.title, _THOUGHTS), "seed:think")),
    *((f"<|{begin}|>", f"<|{end}|>") for begin, end in (("START_THINKING", "END_THINKING"), ("think", "/think"))),
    *(("[THINK]", "[/THINK]"), ("◁think▷", "◁/think▷"), ("<|channel>thought", "<channel|>")),
)

_CALL = r"(?:[\w-]+:)?(?:tool[_▁]?call|function_calls?)"
# Marks that open calls, as <tool_call>, <|tool_call_begin|> or <minimax:tool_call>, and that close them. Without a
# closing mark a call ends with its bracket.
OPEN = rf"<{_CALL}>|<[|｜]{_CALL}(?:[_▁](?:begin|start))?[|｜]?>|\[TOOL_CALLS\]"
OPEN += r"|<\|channel\|>commentary(?:\s++json)?+<\|message\|>(?=\s*+\{)"  # a call without its recipient
CLOSE = rf"</{_CALL}>|<[|｜]?/?{_CALL}(?:[_▁]end)?[|｜]>"
MARK = f"{OPEN}|{CLOSE}"
_CLOSE = re.compile(CLOSE)
_NAME = r"[A-Za-z_][\w./-]{0,200}+"  # bounded: it is looked for at every word
_SPACE = r"(?:[^\s<>/]{1,24}[:|｜])?"  # a namespace of tags
_ACTION = r"(?:\*\*)?+Action:(?:\*\*)?+[ \t]*+`?+"
_FUNCTION = "(?:function<[|｜]tool[▁_ ]sep[|｜]>)"
# What may stand between a name and its arguments: marks, each with a word, the language of a fence.
_SIGNS = (
    r"(?:\s|:\d++|\*\*|[\"'`](?=[\s*<])|\[CALL_ID\]\s*+\w*+|\[ARGS\]|<[|｜][^<>\n]{1,40}[|｜]>(?:\w{1,16}+)?|```(?:json)?+"
    r"|Action Input:|✿ARGS✿:"
    r"|(?:json|code|commentary)(?=[\s{<]))*+"
)
# Calls without a mark: those whose name is a group must name a tool, since prose may look alike; a list fills its line.
UNMARKED = "|".join((
    "<function=", rf"<{_SPACE}invoke\s++name=", rf"(?<![\w:])call:(?P<bare_call>{_NAME})(?=\{{)",
    rf"^[ \t]*+\[(?P<listed_call>{_NAME})\([^\n]*\)\][ \t]*+$", rf"^[ \t]*+(?:print\()?(?P<last_call>{_NAME})\(",
    rf"(?:^|<\|assistant\|>)(?:>>>)?[ \t]*+(?P<line_call>{_NAME})[ \t]*+\n[ \t]*+(?=\{{)",
    rf"(?:\bto=[\"']?+|(?<![\w.]))functions\.{_NAME}{_SIGNS}(?=[({{])",
    rf"(?:commentary|<[|｜]channel[|｜]>\w++)\s++to=[\"']?+{_NAME}{_SIGNS}(?=\{{)",
    rf"(?:\b{_FUNCTION}|(?<![\w.])(?={_NAME}(?::\d++)?+<[|｜]tool[▁_ ](?:sep|call_argument_begin)[|｜]>))",
    rf"^[ \t]*+{_ACTION}{_NAME}{_SIGNS}(?=\{{)",
    rf"✿FUNCTION✿:\s*+{_NAME}{_SIGNS}(?=\{{)",
))  # fmt: skip
_PYTHON_CALL = rf"{_NAME}\([^()]*+(?:\([^()]*+\)[^()]*+)*+\)"
_PYTHON_LINE = re.compile(rf"\s*+(?:{_PYTHON_CALL}|print\({_PYTHON_CALL}\)|```\w*+)?\s*+")
_HEAD = re.compile(
    rf"<function=((?:<\|\w*+\|>|[^>\n]){{0,200}}+)>(?:\s*+(?=\{{))?+|{_FUNCTION}?<{_SPACE}invoke\s++name=[\"']?([^\"'>\n]*+)[^>\n]*+>"
    rf"|(?:(?:<[|｜]channel[|｜]>)?\w*+\s*+to=[\"']?+|{_FUNCTION}|{_ACTION}|✿FUNCTION✿:\s*+|>>>[ \t]*+|:?(?:call:)?)"
    rf"({_NAME}){_SIGNS}"
    r"(?=[({]|<arg_key>|</tool_call>)"
)
_BEFORE_CALLS = re.compile(r"\s*+(?:<\|assistant\|>)?+\s*+\[?+\s*+(?:print\()?+")
_BETWEEN = re.compile(r"\s*+\)?+\s*+([,;]?+)\s*+(?:print\()?+")
_PARAMETER, _ENDS = rf"<{_SPACE}parameter[=\s]", rf"</{_SPACE}(?:function|invoke)>"
_ARGUMENT = re.compile(
    rf"\s*+(?:<{_SPACE}parameter(?:=|\s++name=)[\"']?([^>\"'\n]*+)[^>\n]*+>\n?((?:(?!{_PARAMETER}|{_ENDS}).)*?)\n?"
    rf"(?:</{_SPACE}parameter>(?=\s*+(?:{_PARAMETER}|{_ENDS}|<function|\Z))|(?={_PARAMETER}|{_ENDS}))"
    r"|<arg_key>([^<]*+)</arg_key>\s*+<arg_value>((?:[^<]|<(?!/?arg_|function=))*+)</arg_value>)",
    re.DOTALL,
)
_END = re.compile(rf"\s*+(?:{_ENDS}|(?=<function=|<{_SPACE}invoke\s)|\Z)")


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
# After a call: space, and brackets that close nothing.
_CLOSING = re.compile(r"[\s,;}\])]*+(?:```\s*+|</(?:[^\s<>]{1,24}[:|｜])?(?:function|invoke)>\s*+)?+")
# A string (perhaps unclosed), or brackets.
_BRACKET = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[{\[]++|[}\]]++', re.DOTALL)
_FORMAT = 'write {"name": …, "arguments": {…}}'
CUT_OFF_CALL = "the tool call was cut off before its JSON was complete"
_BRACKETS = ("{", "[", "｛", "［")


class Span(NamedTuple):
    """What stands from `begin` to `end` of a text: its JSON value, why that cannot be used, and whether it is only
    lenient JSON.

    A "call" is what a tool call's marks hold, and "calls" if it may be several; `text` is its own text, without marks.
    A "value" is an object or a list outside any mark. "broken" is one that cannot be read, and "prose" one whose first
    key has no quotes besides, so that it may be only prose; `value` is its complete part if the text ended inside it.
    """

    kind: Literal["call", "calls", "value", "broken", "prose"]
    begin: int
    end: int
    value: Any
    complaint: str | None = None
    repaired: bool = False
    text: str = ""
    language: str = ""  # of the fenced block

    @property
    def is_code(self) -> bool:
        """Whether it stands in a fenced block of another language than JSON."""
        return bool(self.language) and not self.language.startswith("json")


@dataclass(slots=True)
class Scan:
    """What the text of a reply holds, in order; `cut` says that the token budget ended the reply."""

    text: str
    cut: bool
    count: int = 0  # of calls, objects and whatever else was read
    spans: list[Span] = field(default_factory=list)
    quoted: list[Span] = field(default_factory=list)  # of what is inside, if all of the text is one JSON string
    think_tag: str | None = None  # that closes the thinking, if there is any
    think_open: bool = False  # it is missing


def scan(text: str, thinking: TagPairs, cut: bool, tools: Tools) -> Scan:
    """Return what a reply holds; `tools` are the parameters of each tool, as JSON Schema.

    >>> found = scan('<tool_call>{"name": "reset", "arguments": {}}</tool_call> {"side": "left"}', (), False, {})
    >>> [(span.kind, span.value) for span in found.spans]
    [('calls', {'name': 'reset', 'arguments': {}}), ('value', {'side': 'left'})]
    """
    result = _Scanner(text, thinking, cut, tools).found
    try:
        inside = json.loads(text).strip() if text.lstrip().startswith('"') and not cut else ""
    except ValueError:
        inside = ""
    if inside.startswith("{") and inside.endswith("}"):
        result.quoted = _Scanner(inside, (), False, {}).found.spans
    return result


@lru_cache(maxsize=32)
def _build_patterns(thinking: TagPairs) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return patterns of the beginning of an item, and of the tags at which lenient reading stops."""
    tags = "|".join(re.escape(tag) for pair in thinking for tag in pair if tag)
    marks = (_ANALYSIS, _QUOTE, f"(?P<mark>{OPEN})", _FENCED_CALL, f"(?P<unmarked>{UNMARKED})")
    start = "|".join(filter(None, (tags, *marks, _LIST, _OBJECT)))
    return re.compile(start, re.DOTALL | re.MULTILINE), re.compile("|".join(filter(None, (tags, MARK))))


class _Scanner:
    """One pass over a text."""

    def __init__(self, text: str, thinking: TagPairs, cut: bool, tools: Tools) -> None:
        self.text = text
        self.found = Scan(text, cut)
        self._cut, self._tools = cut, tools
        thinking = (*thinking, *OTHER_THINKING) if thinking else ()
        start, tags = _build_patterns(thinking)
        self._closing_tags = {opening: closing for opening, closing in thinking if opening}
        self._lone_closing_tags = {closing for _, closing in thinking if closing}
        self._tags = [(tag.start(), tag.end(), bool(_CLOSE.fullmatch(tag[0]))) for tag in tags.finditer(text)]
        self._fences = [(fence.start(), fence.end(), True) for fence in _FENCE.finditer(text)]
        self._languages = _list_languages(text)
        self._last_lines, self._left = _find_last_lines(text), MAX_DECODED * len(text)
        position = 0
        while self.found.count <= MAX_ITEMS and (match := start.search(text, position)):
            position = self._read_item(match)

    def _add_calls(self, begin: int, end: int, *calls: Span) -> int:
        """Add calls, whose marks reach from `begin` to `end`."""
        self.found.spans += [call._replace(begin=begin, end=end) for call in calls]
        return end

    def _decode(self, begin: int) -> ReadJson:
        """Return the JSON at a place, if any and if not too much was read in vain before."""
        if self._left < 0:
            return ReadJson(None, begin, "the reply holds too much that is no JSON")
        decoded = decode_json(self.text, begin)
        self._left -= decoded.end - begin if decoded.value is None else 0
        return decoded

    def _read_item(self, start: re.Match[str]) -> int:
        """Read the item that begins at `start`; return the position after it."""
        opening = start[0]
        if opening in self._closing_tags:
            closing = self._closing_tags[opening]
            end = self.text.find(closing, start.end())
            self.found.think_tag, self.found.think_open = closing, end < 0
            return len(self.text) if end < 0 else end + len(closing)
        if start["analysis"] is not None:
            after = _NEXT_CHANNEL.search(self.text, start.end())
            self.found.think_tag, self.found.think_open = "<|end|>", after is None
            return len(self.text) if after is None else after.start()
        if opening == "assistant" or opening in self._lone_closing_tags:
            if opening != "assistant" or self.text.startswith("analysis"):  # the prompt opened it
                self.found = Scan(self.text, self._cut, self.found.count, think_tag=opening)  # all before was thinking
            return start.end()
        self.found.count += 1
        if start["code"] is not None:
            end = self.text.find(closing := f"[/data {start['code']}]", start.end())
            return start.end() if end < 0 else end + len(closing)
        if start["mark"] is not None:
            return self._read_block(start, self._tags, closes=opening != "[TOOL_CALLS]")
        if start["unmarked"] is not None:
            name = start["bare_call"] or start["listed_call"] or start["line_call"] or start["last_call"]
            is_call = not name or find_tool(name, self._tools) in self._tools
            is_call = is_call and (start["last_call"] is None or start.start() >= self._last_lines)
            end = self._read_spelled(start.start(), start.start(), self._tags, False) if is_call else -1
            return end if end >= 0 else start.start() + 1
        if opening.startswith("```"):
            return self._read_block(start, self._fences, closes=True)
        return self._read_value(start.start(), bare=start["bare"] is not None)

    def _read_value(self, begin: int, bare: bool) -> int:
        """Read an object or a list outside any tag."""
        value, end, complaint, *_ = self._decode(begin)
        repaired = value is None
        if repaired:
            limit = self._find_next_mark(self._tags, begin)[0]
            lenient = parse_lenient_json(self.text, begin, limit, cut=self._cut and limit == len(self.text))
            value, end, complaint, depth, _, written = lenient
            if value is None:
                end, complaint = self._find_end(end, depth, limit), f"the JSON cannot be read: {complaint}"
                self.found.spans.append(Span("prose" if bare else "broken", begin, end, written, complaint, True))
                return end
        index = bisect_left(self._languages, (begin + 1,))
        language = self._languages[index - 1][1] if index else ""
        self.found.spans.append(Span("value", begin, end, value, complaint, repaired, language=language))
        return end

    def _read_block(self, start: re.Match[str], marks: list[Mark], closes: bool) -> int:
        """Read a tool call between marks; return the position after it. `closes`: whether there is a closing mark."""
        begin = _OPENING[marks is self._fences].match(self.text, start.end()).end()  # type: ignore[union-attr]
        if (end := self._read_spelled(start.start(), begin, marks, closes)) >= 0:
            return end
        value, end, complaint, *_ = self._decode(begin)
        stop, after, mark = self._find_next_mark(marks, begin if value is None else end)
        closed = closes and mark is True
        if value is None and self.text.startswith(_BRACKETS, begin):
            cut = self._cut and mark is None
            value, end, complaint, *_ = parse_lenient_json(self.text, begin, stop, cut=cut)
        if value is not None and not closed:
            stop = after = end  # complete, only its closing mark is missing
        text, rest = self.text[begin:stop].strip(), _CLOSING.match(self.text, end, stop)
        if value is None and not text.startswith(_BRACKETS):
            complaint = _FORMAT
        error = complaint and f"the tool call is not valid JSON: {complaint}"
        is_alone = rest is not None and rest.end() == stop
        if value is None and mark is None and (closes or self._cut):
            error = CUT_OFF_CALL
        elif error is None and not is_alone:
            error = "a tool call block must hold one JSON object and nothing after it"
        may_be_several = value is not None and (complaint is not None or is_alone)
        call = Span("calls" if may_be_several else "call", begin, stop, value, error, False, text)
        return self._add_calls(start.start(), after if closed else stop, call)

    def _read_spelled(self, start: int, begin: int, marks: list[Mark], closes: bool) -> int:
        """Read calls that are not JSON objects, the first at `begin`; return the position after them, -1 if there are
        none. `start`: of their mark."""
        limit, after, mark = self._find_next_mark(marks, begin)
        calls = self._read_calls(begin, limit, is_open=not closes)
        if not calls:
            return -1
        last = calls[-1]
        if last.end > limit:  # the mark stands in a string
            limit, after, mark = self._find_next_mark(marks, last.end)
        closed = closes and mark is True
        rest = _CLOSING.match(self.text, last.end, limit)
        error = last.complaint and f"the call of {show_json(last.value['name'][:64])} cannot be read: {last.complaint}"
        if error is None and closed and (rest is None or rest.end() < limit):
            error = "a tool call block must hold tool calls and nothing after them"
        self.found.count += len(calls) - 1
        stop = limit if closed or error else last.end
        calls[-1] = last._replace(complaint=error, text=self.text[last.begin : stop].strip())
        return self._add_calls(start, after if closed else stop, *calls)

    def _read_calls(self, begin: int, limit: int, *, is_open: bool) -> list[Span]:
        """Return the calls that begin at `begin` and end before `limit`, up to the first that cannot be read.
        is_open: no mark will close the calls, so that only a comma says that another one follows."""
        calls: list[Span] = []
        head = _HEAD.match(self.text, _BEFORE_CALLS.match(self.text, begin).end())  # type: ignore[union-attr]
        while head is not None and len(calls) <= MAX_ITEMS:
            name = mend_name((head[1] or head[2] or head[3] or "").strip())
            properties = self._tools.get(find_tool(name, self._tools), {}).get("properties", {})
            read = self._read_brackets if self.text.startswith(("{", "("), head.end()) else self._read_tags
            value, end, complaint, *_ = read(head.end(), limit, properties)
            text = self.text[head.start() : end].strip()
            calls.append(Span("call", head.start(), end, {"name": name, "arguments": value}, complaint, False, text))
            between = _BETWEEN.match(self.text, end)
            if complaint is not None or between is None or (is_open and between[1] != ","):
                break
            head = _HEAD.match(self.text, between.end())
            if head is not None and self.text.startswith("</tool_call>", head.end()):
                break  # a name alone is a call only if the block holds nothing else
        return calls

    def _read_brackets(self, begin: int, limit: int, properties: Mapping[str, Any]) -> ReadJson:
        """Return arguments in JSON, or those of a Python call."""
        value, end, complaint, *_ = self._decode(begin)
        if value is None:
            read = parse_lenient_json(self.text, begin, limit, cut=self._cut and limit == len(self.text))
            value, end, complaint, _, complete, _ = read
            if not complete and limit == len(self.text):
                complaint = "it is cut off"
        if complaint is not None:
            return ReadJson({}, end, complaint)
        names, count = list(properties), sum(isinstance(key, int) for key in value)  # the keys of values without a name
        if count > len(names) or any(isinstance(key, str) for key in list(value)[:count]):
            return ReadJson({}, end, "a value has no name: write each as name=value")
        twice = next((name for name in names[:count] if name in value), None)
        named = {names[key] if isinstance(key, int) else key: item for key, item in value.items()}
        return ReadJson(named, end, None if twice is None else describe_duplicate(twice))

    def _read_tags(self, begin: int, limit: int, properties: Mapping[str, Any]) -> ReadJson:
        """Return arguments that are text between tags."""
        value: dict[str, Any] = {}
        end, complaint, is_last = begin, None, limit == len(self.text)
        while (pair := _ARGUMENT.match(self.text, end, limit)) is not None:
            key, said = (group for group in pair.groups() if group is not None)
            if "parameter>" in said and not pair[0].endswith("parameter>"):
                break  # it may end at either
            key = key.strip()
            complaint = complaint or (describe_duplicate(key) if key in value else None)
            value[key] = read_by_schema(said, properties.get(key))
            end = pair.end()
        closing = _END.match(self.text, end, limit)
        if is_last and (closing is None or (self._cut and closing.end() == limit and not closing[0].endswith(">"))):
            return ReadJson(value, end, "it is cut off")
        if closing is None:
            near = self.text[end:limit].strip()[:24].partition("\n")[0]
            return ReadJson(value, end, complaint or f"an argument is not between its tags, before '{near}'")
        return ReadJson(value, closing.end(), complaint)

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
    places, opened = [], ""
    for mark in _LABEL.finditer(text):
        if not opened or (mark[3] and not mark[2]):
            opened = mark[1][0]
            places.append((mark.end(), mark[3].lower()))
        elif mark[1][0] == opened:
            opened = ""
            places.append((mark.end(1), ""))
    return places


def _find_last_lines(text: str) -> int:
    """Return where the lines of Python calls begin that end a text."""
    begin = len(text)
    for line in reversed(text.splitlines(keepends=True)):
        if not _PYTHON_LINE.fullmatch(line):
            break
        begin -= len(line)
    return begin


_GLUED_NAME = re.compile(r"([\w./:-]++)\s*+(?:<[|/]\w+\|?>.*+|\(\s*+\))", re.DOTALL)
_NAMESPACE = re.compile(r"(?:functions?|tools?|default_api)[.:/]")


def find_tool(name: str, tools: Collection[str]) -> str:
    """Return the only tool that a name can mean, whatever its case and the namespace before it; else the name.

    >>> find_tool("functions.Zoom", ["zoom", "crop"]), find_tool("zoo", ["zoom", "crop"])
    ('zoom', 'zoo')
    """
    plain = _NAMESPACE.sub("", name, 1) if _NAMESPACE.match(name) else name
    matches = [tool for tool in tools if tool.casefold() == plain.casefold()] if name not in tools else []
    return matches[0] if len(matches) == 1 else name


def mend_name(name: str) -> str:
    """Return the name of a call without the control token that a model ran into it, or the ( ) of a Python call.

    >>> mend_name("zoom<|end|>"), mend_name("invert()"), mend_name("no name")
    ('zoom', 'invert', 'no name')
    """
    mended = _GLUED_NAME.fullmatch(name)
    return name if mended is None else mended[1]
