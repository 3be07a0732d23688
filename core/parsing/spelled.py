"""Tool calls in the syntaxes of chat templates that do not write them as JSON objects: a name, then its arguments.

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
Between tags every value is text: the tool's schema alone says what it is. Where the schema allows text, or the tool or
the parameter is not known, the text stays, to the character. Elsewhere it becomes the one JSON value or Python literal
that all of it is (2, [0.1, 0.5], True), and stays text if it is none: the tool then says what is wrong. Values without
a name in a Python call are the tool's parameters in their order, as in Python.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from .lenient_json import parse_lenient_json, read_by_schema
from .objects import Tools, find_tool, mend_name
from .strict_json import StrictJson, describe_duplicate

MAX_CALLS = 256  # read between two marks
_CALL = r"(?:[\w-]+:)?(?:tool[_▁]?call|function_calls?)"
# Marks that open calls, as <tool_call>, <|tool_call_begin|> or <minimax:tool_call>, and that close them. Without a
# closing mark a call ends with its bracket.
OPEN = rf"<{_CALL}>|<[|｜]{_CALL}(?:[_▁](?:begin|start))?[|｜]?>|\[TOOL_CALLS\]"
OPEN += r"|<\|channel\|>commentary(?:\s++json)?+<\|message\|>(?=\s*+\{)"  # a call without its recipient
CLOSE = rf"</{_CALL}>|<[|｜]?/?{_CALL}(?:[_▁]end)?[|｜]>"
MARK = f"{OPEN}|{CLOSE}"
_NAME = r"[A-Za-z_][\w./-]*+"
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
_OPENING = re.compile(r"\s*+(?:<\|assistant\|>)?+\s*+\[?+\s*+(?:print\()?+")
_BETWEEN = re.compile(r"\s*+\)?+\s*+([,;]?+)\s*+(?:print\()?+")
_PARAMETER, _ENDS = rf"<{_SPACE}parameter[=\s]", rf"</{_SPACE}(?:function|invoke)>"
_ARGUMENT = re.compile(
    rf"\s*+(?:<{_SPACE}parameter(?:=|\s++name=)[\"']?([^>\"'\n]*+)[^>\n]*+>\n?((?:(?!{_PARAMETER}|{_ENDS}).)*?)\n?"
    rf"(?:</{_SPACE}parameter>(?=\s*+(?:{_PARAMETER}|{_ENDS}|<function|\Z))|(?={_PARAMETER}|{_ENDS}))"
    r"|<arg_key>([^<]*+)</arg_key>\s*+<arg_value>((?:[^<]|<(?!/?arg_|function=))*+)</arg_value>)",
    re.DOTALL,
)
_END = re.compile(rf"\s*+(?:{_ENDS}|(?=<function=|<{_SPACE}invoke\s)|\Z)")


class SpelledCall(NamedTuple):
    """A call as an object of JSON, from `begin` to `end` of the text; `complaint` says why it cannot be run."""

    value: dict[str, Any]
    begin: int
    end: int
    complaint: str | None


def find_last_lines(text: str) -> int:
    """Return where the lines of Python calls begin that end a text."""
    begin = len(text)
    for line in reversed(text.splitlines(keepends=True)):
        if not _PYTHON_LINE.fullmatch(line):
            break
        begin -= len(line)
    return begin


def read_calls(
    text: str, begin: int, limit: int, tools: Tools, decode: Callable[[int], StrictJson], *, cut: bool, is_open: bool
) -> list[SpelledCall]:
    """Return the calls that begin at `begin` and end before `limit`, up to the first that cannot be read.

    decode: reads the JSON at a place of the text.
    cut: the token budget ended the text.
    is_open: no mark will close the calls, so that only a comma says that another one follows.

    >>> text = "[zoom(2, center=[0.5, 0.5]), reset()]"
    >>> tools = {"zoom": {"properties": {"factor": {"type": "number"}, "center": {"type": "array"}}}}
    >>> from viewbox.core.parsing.strict_json import decode_json
    >>> decode = lambda place: decode_json(text, place)
    >>> [one.value["arguments"] for one in read_calls(text, 0, len(text), tools, decode, cut=False, is_open=False)]
    [{'factor': 2, 'center': [0.5, 0.5]}, {}]
    """
    calls: list[SpelledCall] = []
    head = _HEAD.match(text, _OPENING.match(text, begin).end())  # type: ignore[union-attr]
    while head is not None and len(calls) <= MAX_CALLS:
        name = mend_name((head[1] or head[2] or head[3] or "").strip())
        properties = tools.get(find_tool(name, tools), {}).get("properties", {})
        if text.startswith(("{", "("), head.end()):
            value, end, complaint = _read_brackets(text, head.end(), limit, properties, cut, decode)
        else:
            value, end, complaint = _read_tags(text, head.end(), limit, properties, cut)
        calls.append(SpelledCall({"name": name, "arguments": value}, head.start(), end, complaint))
        between = _BETWEEN.match(text, end)
        if complaint is not None or between is None or (is_open and between[1] != ","):
            break
        head = _HEAD.match(text, between.end())
        if head is not None and text.startswith("</tool_call>", head.end()):
            break  # a name alone is a call only if the block holds nothing else
    return calls


def _read_brackets(
    text: str, begin: int, limit: int, properties: Mapping[str, Any], cut: bool, decode: Callable[[int], StrictJson]
) -> StrictJson:
    """Return arguments in JSON, or those of a Python call."""
    value, end, complaint = decode(begin)
    if value is None:
        found = parse_lenient_json(text, begin, limit, cut=cut and limit == len(text))
        value, end, complaint = found.to_strict()
        if not found.complete and limit == len(text):
            complaint = "it is cut off"
    if complaint is not None:
        return StrictJson({}, end, complaint)
    names, count = list(properties), sum(isinstance(key, int) for key in value)  # the keys of values without a name
    if count > len(names) or any(isinstance(key, str) for key in list(value)[:count]):
        return StrictJson({}, end, "a value has no name: write each as name=value")
    twice = next((name for name in names[:count] if name in value), None)
    named = {names[key] if isinstance(key, int) else key: item for key, item in value.items()}
    return StrictJson(named, end, None if twice is None else describe_duplicate(twice))


def _read_tags(text: str, begin: int, limit: int, properties: Mapping[str, Any], cut: bool) -> StrictJson:
    """Return arguments that are text between tags."""
    value: dict[str, Any] = {}
    end, complaint = begin, None
    while (pair := _ARGUMENT.match(text, end, limit)) is not None:
        key, said = (part for part in pair.groups() if part is not None)
        if "parameter>" in said and not pair[0].endswith("parameter>"):
            break  # it may end at either
        complaint = complaint or (describe_duplicate(key.strip()) if key.strip() in value else None)
        value[key.strip()] = read_by_schema(said, properties.get(key.strip()))
        end = pair.end()
    closing = _END.match(text, end, limit)
    if limit == len(text) and (closing is None or (cut and closing.end() == limit and not closing[0].endswith(">"))):
        return StrictJson(value, end, "it is cut off")
    if closing is None:
        near = text[end:limit].strip()[:24].partition("\n")[0]
        return StrictJson(value, end, complaint or f"an argument is not between its tags, before '{near}'")
    return StrictJson(value, closing.end(), complaint)
