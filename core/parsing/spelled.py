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
from dataclasses import dataclass
from typing import Any

from .lenient_json import parse_lenient_json
from .objects import mend_name
from .strict_json import decode_json, describe_duplicate

MARKS = {  # that open calls, and close them; without a closing mark a call ends with its bracket
    "<tool_call>": "</tool_call>",
    "<|tool_call_start|>": "<|tool_call_end|>",
    "<|tool_call>": "<tool_call|>",
    "[TOOL_CALLS]": "",
}
MARK = "|".join(map(re.escape, filter(None, (*MARKS, *MARKS.values()))))
_NAME = r"[A-Za-z_][\w./-]*+"
_HEAD = re.compile(
    rf"<function=(?P<tag>(?:<\|\w*+\|>|[^>\n])*+)>|:?(?:call:)?(?P<name>{_NAME})\s*+(?:\[CALL_ID\]\s*+\w*+\s*+)?(?:\[ARGS\]\s*+)?"
    r"(?=[({]|<arg_key>|</tool_call>)"
)
# Calls without a mark: `bare` ones must name a tool, since prose may look like them; a list of them fills its line.
UNMARKED = (
    rf"<function=|(?<![\w:])call:(?P<bare_name>{_NAME})(?=\{{)|^[ \t]*+\[(?P<first_name>{_NAME})\([^\n]*\)\][ \t]*+$"
)
_OPENING = re.compile(r"\s*+\[?+\s*+")
_BETWEEN = re.compile(r"\s*+[,;]?+\s*+")
_ARGUMENT = re.compile(
    r"\s*+(?:<parameter=([^>\n]*+)>\n?((?:(?!<parameter=|</function>).)*?)\n?"
    r"(?:</parameter>(?=\s*+(?:<parameter=|</?function|\Z))|(?=<parameter=|</function>))"
    r"|<arg_key>([^<]*+)</arg_key>\s*+<arg_value>((?:[^<]|<(?!/?arg_|function=))*+)</arg_value>)",
    re.DOTALL,
)
_END = re.compile(r"\s*+(?:</function>|(?=<function=)|\Z)")


@dataclass(frozen=True, slots=True)
class SpelledCall:
    """A call, the text of which is from `begin` to `end`; `complaint` says why it cannot be run.

    `complete` is False if the text or the block ends inside it.
    """

    name: str
    arguments: Mapping[str, Any]
    begin: int
    end: int
    complaint: str | None = None
    complete: bool = True


def read_calls(
    text: str,
    begin: int,
    limit: int,
    tools: Mapping[str, Mapping[str, Any]],
    *,
    cut: bool,
    is_open: bool,
    most: int = 8,
) -> list[SpelledCall]:
    """Return the calls that begin at `begin` and end before `limit`, up to the first that cannot be read.

    tools: the parameters of each tool, as JSON Schema.
    cut: the token budget ended the text at `limit`.
    is_open: no mark will close the calls, so that only a comma says that another one follows.
    most: calls that are read.

    >>> text = "[zoom(2, center=[0.5, 0.5]), reset()]"
    >>> tools = {"zoom": {"properties": {"factor": {"type": "number"}, "center": {"type": "array"}}}}
    >>> [(one.name, one.arguments) for one in read_calls(text, 0, len(text), tools, cut=False, is_open=False)]
    [('zoom', {'factor': 2, 'center': [0.5, 0.5]}), ('reset', {})]
    """
    calls: list[SpelledCall] = []
    head = _HEAD.match(text, _OPENING.match(text, begin).end())  # type: ignore[union-attr]
    while head is not None and len(calls) < most:
        calls.append(_read_call(text, head, limit, tools, cut))
        between = _BETWEEN.match(text, calls[-1].end)
        if not calls[-1].complete or calls[-1].complaint or between is None or (is_open and "," not in between[0]):
            break
        head = _HEAD.match(text, between.end())
        if head is not None and text.startswith("</tool_call>", head.end()):
            break  # a name alone is a call only if the block holds nothing else
    return calls


def _read_call(
    text: str, head: re.Match[str], limit: int, tools: Mapping[str, Mapping[str, Any]], cut: bool
) -> SpelledCall:
    name = mend_name((head["name"] or head["tag"] or "").strip())
    schema, begin = tools.get(name, {}), head.start()
    if not text.startswith(("{", "("), head.end()):
        return _read_tags(text, name, head, limit, schema.get("properties", {}), cut)
    value, end, complaint = decode_json(text, head.end())
    if value is None:
        found = parse_lenient_json(text, head.end(), limit, cut=cut)
        value, end, complaint = found.to_strict()
        if not found.complete:
            return SpelledCall(name, {}, begin, end, complaint, complete=False)
    if complaint is None:
        value, complaint = _name_arguments(value, list(schema.get("properties", ())))
    return SpelledCall(name, value or {}, begin, end, complaint)


def _name_arguments(arguments: dict[Any, Any], names: list[str]) -> tuple[dict[str, Any], str | None]:
    """Return the arguments of a Python call by name; those without one have their place as key."""
    count = sum(isinstance(key, int) for key in arguments)
    if count > len(names) or any(isinstance(key, str) for key in list(arguments)[:count]):
        return {}, "a value has no name: write each as name=value"
    twice = next((name for name in names[:count] if name in arguments), None)
    named = {names[key] if isinstance(key, int) else key: value for key, value in arguments.items()}
    return named, None if twice is None else describe_duplicate(twice)


def _read_tags(
    text: str, name: str, head: re.Match[str], limit: int, properties: Mapping[str, Any], cut: bool
) -> SpelledCall:
    """Return a call whose arguments are text between tags."""
    arguments: dict[str, Any] = {}
    end, complaint = head.end(), None
    while (pair := _ARGUMENT.match(text, end, limit)) is not None:
        key, value = (part for part in pair.groups() if part is not None)
        if "</parameter>" in value and not pair[0].endswith("</parameter>"):
            break  # its end is one of two
        complaint = complaint or (describe_duplicate(key.strip()) if key.strip() in arguments else None)
        arguments[key.strip()] = read_by_schema(value, properties.get(key.strip()))
        end = pair.end()
    closing = _END.match(text, end, limit)
    if closing is None:
        near = text[end:limit].strip()[:24].partition("\n")[0]
        complaint = complaint or f"an argument is not between its tags, before '{near}'"
        return SpelledCall(name, arguments, head.start(), end, complaint, complete=False)
    complete = not cut or closing.end() < limit or closing[0].endswith(">")
    return SpelledCall(name, arguments, head.start(), closing.end(), complaint, complete)


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
