"""Tool calls in JSON: which objects are calls, and what each of them says.

A call that cannot be run as written keeps its raw text and the reason, so that it is answered and never lost.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from viewbox.envs.parsing.answer_schema import Shape, echo, is_schema
from viewbox.envs.parsing.lenient_json import mend
from viewbox.envs.parsing.strict_json import StrictDecoder
from viewbox.frozen import Record
from viewbox.records import ToolCall

NAMES = ("name", "tool")
ARGUMENTS = ("arguments", "parameters")
_ASIDE = frozenset({"id", "call_id", "type", "continue", "thought", "thoughts", "reasoning", "reason"})


@dataclass(frozen=True)
class ParsedCall(Record):
    """A tool call and, where it cannot be run as written, why; `call.arguments` is then the raw text of the block."""

    call: ToolCall
    error: str | None = None


def native(call: ToolCall) -> ParsedCall:
    """A call that an API gave: arguments that are a string of JSON are read, and mended where that is clear.

    >>> native(ToolCall("c1", "zoom", '{"factor": 2,}')).call.arguments
    {'factor': 2}
    """
    arguments, error = _arguments(call.name, call.arguments)
    if error is not None:
        return ParsedCall(call, error)
    return ParsedCall(ToolCall(call.id, call.name, arguments))


def read_call(value: Any, raw: str, identity: str) -> ParsedCall:
    """The call that a block holds, whatever JSON is in it; `raw` is its text."""
    if isinstance(value, Mapping):
        value = _inner(value)
    if not isinstance(value, Mapping):
        return ParsedCall(ToolCall(identity, "", raw), 'a tool call is one JSON object {"name": …, "arguments": {…}}')
    names = [value[key] for key in NAMES if key in value]
    name = names[0] if names and isinstance(names[0], str) and names.count(names[0]) == len(names) else ""
    arguments: Mapping[str, Any] = {}
    error = None
    key = next((key for key in ARGUMENTS if key in value), None)
    flat = [item for item in value if item not in _ASIDE and item not in NAMES]
    if (given_back := echo(value, None)) is not None:
        error = given_back
    elif not name:
        error = 'the tool call has no "name"'
    elif key is not None:
        arguments, error = _arguments(name, value[key])
    elif flat:
        error = f'the call of {name[:64]!r} has no "arguments": put {flat[0][:64]!r} in "arguments": {{…}}'
    return ParsedCall(ToolCall(identity, name, raw if error is not None else arguments), error)


def calls_in(value: Any, shape: Shape | None) -> list[Any] | None:
    """The calls that an object or a list outside any tag makes; None where it is something else.

    >>> calls_in({"tool": "zoom", "arguments": {"factor": 2}}, None)
    [{'tool': 'zoom', 'arguments': {'factor': 2}}]
    >>> calls_in({"answer": "left"}, None)
    """
    fields = shape.fields if shape is not None else frozenset()
    if isinstance(value, list):
        return value if value and all(_is_call(item, shape) for item in value) else None
    if not isinstance(value, dict):
        return None
    listed = value.get("tool_calls")
    if "tool_calls" not in fields and isinstance(listed, list):
        return listed if listed and all(_is_call(item, shape) for item in listed) else None
    return [value] if _is_call(value, shape) else None


def _inner(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """The call in {"type": "function", "function": {…}} or {"tool_call": {…}}; else `value`."""
    for key in ("function", "tool_call", "function_call"):
        if isinstance(value.get(key), Mapping) and not any(name in value for name in NAMES):
            return value[key]
    return value


def _is_call(value: Any, shape: Shape | None) -> bool:
    fields = shape.fields if shape is not None else frozenset()
    if not isinstance(value, dict):
        return False
    inner = _inner(value)
    if inner is not value and not value.keys().isdisjoint(fields - _ASIDE):
        return False
    names = [key for key in NAMES if isinstance(inner.get(key), str)]
    given = next((key for key in ARGUMENTS if key in inner), None)
    if not names or is_schema(inner.get("parameters")):
        return False
    if given == "arguments" or (given is not None and isinstance(inner[given], Mapping | str)):
        return not {names[0], given} <= fields
    return "tool" in names and "tool" not in fields and (shape is not None or inner.keys() <= _ASIDE | {"tool"})


def _arguments(name: str, given: Any) -> tuple[Mapping[str, Any], str | None]:
    """The arguments as an object, or why they are none; a string is read as JSON."""
    if given is None or (isinstance(given, str) and not given.strip()):
        return {}, None
    if isinstance(given, Mapping):
        return given, None
    if isinstance(given, str):
        text = given.strip()
        value, end, complaint = StrictDecoder().decode(text, 0)
        if value is None and text[0] in "{｛":
            mended = mend(text, 0, len(text))
            value, end, complaint = (mended.value if mended.whole else None), mended.end, mended.complaint
        if isinstance(value, dict) and complaint is None and not text[end:].strip():
            return value, None
        if complaint is not None:
            return {}, f'the "arguments" of {name[:64]!r} must be a JSON object: {complaint}'
    return {}, f'the "arguments" of {name[:64]!r} must be a JSON object'
