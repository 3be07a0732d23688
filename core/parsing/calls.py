"""Tool calls in the JSON of a reply: which objects are calls, and what a call says.

A call that cannot be run as written keeps its raw text and the reason, so that it gets an error and is not lost.
"""

import json
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from ...records import ToolCall
from ...utils.frozen import Record, thaw
from .answer_schema import AnswerFields, describe_echo, is_schema
from .lenient_json import parse_lenient_json
from .strict_json import decode_json

TagPairs = tuple[tuple[str, str], ...]  # the tags that open and close the thinking

_NAMES = ("name", "tool")
_ARGUMENTS = ("arguments", "parameters")
_IGNORED_KEYS = frozenset({"id", "call_id", "type", "continue", "thought", "thoughts", "reasoning", "reason"})


class ParsedCall(Record, frozen=True):
    """A tool call and, if it cannot be run as written, the reason; `call.arguments` is then the raw text."""

    call: ToolCall
    error: str | None = None


def parse_native_call(call: ToolCall) -> ParsedCall:
    """A call that an API returned. Arguments that are a string of JSON are parsed, leniently if need be; an object has
    the limits of one that was parsed.

    >>> parse_native_call(ToolCall("c1", "zoom", '{"factor": 2,}')).call.arguments
    {'factor': 2}
    """
    given = call.arguments
    if isinstance(given, Mapping):
        written = json.dumps(thaw(given), default=str)
        _, error = _parse_arguments(call.name, written)
        return ParsedCall(call) if error is None else ParsedCall(replace(call, arguments=written), error)
    arguments, error = _parse_arguments(call.name, given)
    if error is not None:
        return ParsedCall(call, error)
    return ParsedCall(ToolCall(call.id, call.name, arguments))


def parse_call(value: Any, text: str, identity: str) -> ParsedCall:
    """The call in the JSON `value` of a block; `text` is the text of the block."""
    if isinstance(value, Mapping):
        value = _unwrap_call(value)
    if not isinstance(value, Mapping):
        return ParsedCall(ToolCall(identity, "", text), 'a tool call is one JSON object {"name": …, "arguments": {…}}')
    name = get_call_name(value)
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


def get_call_name(value: Any) -> str:
    """The name in a call, which may be beyond a limit: nothing else of it is read. Empty if there is none, or two."""
    if isinstance(value, Mapping):
        value = _unwrap_call(value)
    if not isinstance(value, Mapping):
        return ""
    names = [value[key] for key in _NAMES if key in value]
    return names[0] if names and isinstance(names[0], str) and names.count(names[0]) == len(names) else ""


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
