"""Tool calls in the syntaxes of chat templates that do not write them as JSON objects: a name, then its arguments.

    <function=zoom>\\n<parameter=factor>\\n2\\n</parameter>\\n</function>   Qwen3.5, Qwen3-Coder
    zoom\\n<arg_key>factor</arg_key>\\n<arg_value>2</arg_value>            GLM-4.5V, GLM-4.6V
    zoom[ARGS]{"factor": 2}, zoom[CALL_ID]a1[ARGS]{…}, zoom{…}           Mistral, Ministral
    call:zoom{factor:2,side:<|"|>left<|"|>}                              Gemma 4
    zoom(factor=2, center=[0.5, 0.5])                                    LFM2, Gemma 3, Llama 3.2

A bracket after the name is read as JSON, repaired if need be; its values have the types in which they are written.
Between tags every value is text: the tool's schema alone says what it is. Where the schema allows text, or the tool or
the parameter is not known, the text stays, to the character. Elsewhere it becomes the one JSON value or Python literal
that all of it is (2, [0.1, 0.5], True), and stays text if it is none: the tool then says what is wrong. Values without
a name in a Python call are the tool's parameters in their order, as in Python.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from .lenient_json import parse_lenient_json
from .objects import mend_name
from .strict_json import StrictJson, decode_json, describe_duplicate

Tools = Mapping[str, Mapping[str, Any]]  # the parameters of each tool, as JSON Schema

MAX_CALLS = 256  # read between two marks
MARKS = {  # that open calls, and close them; without a closing mark a call ends with its bracket
    "<tool_call>": "</tool_call>",
    "<|tool_call_start|>": "<|tool_call_end|>",
    "<|tool_call>": "<tool_call|>",
    "[TOOL_CALLS]": "",
}
MARK = "|".join(map(re.escape, filter(None, (*MARKS, *MARKS.values()))))
_NAME = r"[A-Za-z_][\w./-]*+"
# Calls without a mark: those with a name here must name a tool, since prose may look alike; a list fills its line.
UNMARKED = rf"<function=|(?<![\w:])call:(?P<bare_call>{_NAME})(?=\{{)|"
UNMARKED += rf"^[ \t]*+\[(?P<listed_call>{_NAME})\([^\n]*\)\][ \t]*+$"
_HEAD = re.compile(
    rf"<function=((?:<\|\w*+\|>|[^>\n])*+)>|:?(?:call:)?({_NAME})\s*+(?:\[CALL_ID\]\s*+\w*+\s*+)?(?:\[ARGS\]\s*+)?"
    r"(?=[({]|<arg_key>|</tool_call>)"
)
_OPENING = re.compile(r"\s*+\[?+\s*+")
_BETWEEN = re.compile(r"\s*+([,;]?+)\s*+")
_ARGUMENT = re.compile(
    r"\s*+(?:<parameter=([^>\n]*+)>\n?((?:(?!<parameter=|</function>).)*?)\n?"
    r"(?:</parameter>(?=\s*+(?:<parameter=|</?function|\Z))|(?=<parameter=|</function>))"
    r"|<arg_key>([^<]*+)</arg_key>\s*+<arg_value>((?:[^<]|<(?!/?arg_|function=))*+)</arg_value>)",
    re.DOTALL,
)
_END = re.compile(r"\s*+(?:</function>|(?=<function=)|\Z)")


class SpelledCall(NamedTuple):
    """A call as an object of JSON, from `begin` to `end` of the text; `complaint` says why it cannot be run."""

    value: dict[str, Any]
    begin: int
    end: int
    complaint: str | None


def read_calls(text: str, begin: int, limit: int, tools: Tools, *, cut: bool, is_open: bool) -> list[SpelledCall]:
    """Return the calls that begin at `begin` and end before `limit`, up to the first that cannot be read.

    cut: the token budget ended the text.
    is_open: no mark will close the calls, so that only a comma says that another one follows.

    >>> text = "[zoom(2, center=[0.5, 0.5]), reset()]"
    >>> tools = {"zoom": {"properties": {"factor": {"type": "number"}, "center": {"type": "array"}}}}
    >>> [one.value["arguments"] for one in read_calls(text, 0, len(text), tools, cut=False, is_open=False)]
    [{'factor': 2, 'center': [0.5, 0.5]}, {}]
    """
    calls: list[SpelledCall] = []
    head = _HEAD.match(text, _OPENING.match(text, begin).end())  # type: ignore[union-attr]
    while head is not None and len(calls) <= MAX_CALLS:
        name = mend_name((head[1] or head[2] or "").strip())
        read = _read_brackets if text.startswith(("{", "("), head.end()) else _read_tags
        value, end, complaint = read(text, head.end(), limit, tools.get(name, {}).get("properties", {}), cut)
        calls.append(SpelledCall({"name": name, "arguments": value}, head.start(), end, complaint))
        between = _BETWEEN.match(text, end)
        if complaint is not None or between is None or (is_open and between[1] != ","):
            break
        head = _HEAD.match(text, between.end())
        if head is not None and text.startswith("</tool_call>", head.end()):
            break  # a name alone is a call only if the block holds nothing else
    return calls


def _read_brackets(text: str, begin: int, limit: int, properties: Mapping[str, Any], cut: bool) -> StrictJson:
    """Return arguments in JSON, or those of a Python call."""
    value, end, complaint = decode_json(text, begin)
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
        if "</parameter>" in said and not pair[0].endswith("</parameter>"):
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


def read_by_schema(text: str, schema: object) -> object:
    """Return the value that a parameter's schema makes of a text.

    >>> read_by_schema("2", {"type": "integer"}), read_by_schema("2", {"type": "string"}), read_by_schema("2", None)
    (2, '2', '2')
    >>> read_by_schema("two", {"type": "integer"}), read_by_schema("['a', True]", {"type": "array"})
    ('two', ['a', True])
    """
    if _allows_text(schema):
        return text
    listed = f"[{text}]"
    value, end, complaint = decode_json(listed)
    if value is None:
        value, end, complaint = parse_lenient_json(listed, 0, len(listed)).to_strict()
    return value[0] if complaint is None and end == len(listed) and value is not None and len(value) == 1 else text


def _allows_text(schema: object) -> bool:
    if not isinstance(schema, Mapping):
        return True
    kinds, options = schema.get("type"), [*(schema.get("anyOf") or ()), *(schema.get("oneOf") or ())]
    return any(map(_allows_text, options)) if kinds is None and options else kinds is None or "string" in kinds
