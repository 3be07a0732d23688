"""What an object of a reply is: the answer, a tool call, or a schema that was repeated.

`AnswerFields` is the answer's JSON Schema as far as it helps to read a reply: it decides which of two objects is the
answer, and whether it is under a wrong key. Whether an answer is valid is decided by `json_schema.py`. A call that
cannot be run as written keeps its raw text and the reason, so that it gets an error and is not lost.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice, starmap
from typing import Any, NamedTuple

from msgspec.structs import replace

from ...errors import find_nearest, show_json
from ...records import ToolCall
from ...utils.frozen import Record, thaw
from ...utils.json_schema import list_options
from .json_text import decode_json, parse_lenient_json, read_by_schema
from .scan import EMPTY, Tools, find_tool, mend_name

_TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})
_KEYWORDS = frozenset({"type", "$ref", "enum", "anyOf", "allOf", "oneOf", "const", "items", "properties"})
_MAX_KEYS = 64  # of a call, of which one may be a misspelt "arguments"


@dataclass(frozen=True)
class AnswerFields:
    """The fields of an answer; `objects` holds, for each field that is an object, the fields inside it, and `lengths`
    for fields that are lists how many items they need.

    >>> fields = AnswerFields.from_schema({"properties": {"answer": {"type": "string"}}, "required": ["answer"]})
    >>> fields.unwrap({"result": {"answer": "left"}})
    {'answer': 'left'}
    """

    names: frozenset[str] = frozenset()
    required: frozenset[str] = frozenset()
    objects: tuple[tuple[str, frozenset[str]], ...] = ()
    lengths: tuple[tuple[str, int], ...] = ()

    @classmethod
    def from_schema(cls, schema: Mapping[str, object]) -> "AnswerFields":
        """Return the fields of `schema` (JSON Schema, local references followed); cached by schema."""
        return _read_fields(json.dumps(thaw(schema)))

    @cached_property
    def plain(self) -> frozenset[str]:
        """The fields whose names no call and no schema has, in whatever case."""
        names = {*_NAMES, *_OTHER_NAMES, *_MISNAMED, *_WRAPPERS, *_LISTS, "properties", "continue"}
        return frozenset(name for name in self.names if _flatten(name) not in names)

    def unwrap(self, value: dict[str, Any]) -> dict[str, object]:
        """Return the answer nested under a key that the schema does not have, with the outer `continue`; else `value`.
        The answer is moved only if one reading is possible: there is no field of the answer beside it, and exactly one
        object inside has all required fields."""
        inner_fields = dict(self.objects)
        known = [key for key in value if key in self.names]
        if known and not (len(value.keys() - {"continue"}) == 1 and known[0] not in inner_fields):
            return value
        inside = [item for item in value.values() if isinstance(item, dict) and self._is_complete(item)]
        if len(inside) != 1:
            return value
        outer = {"continue": value["continue"]} if "continue" in value else {}
        return outer | inside[0]

    def unwrap_list(self, value: list[Any]) -> dict[str, object] | None:
        """Return the answer in a list that holds nothing else; None if the list is anything else."""
        only = value[0] if len(value) == 1 else None
        return only if isinstance(only, dict) and self._is_complete(only) else None

    def wrap(self, value: dict[str, Any]) -> dict[str, object]:
        """Put the fields of one nested object under its name; return `value` unless exactly one object has them."""
        keys = value.keys() - {"continue"}
        if not keys or keys & self.names:
            return value
        parents = [name for name, fields in self.objects if keys <= fields]
        if len(parents) != 1:
            return value
        outer = {"continue": value["continue"]} if "continue" in value else {}
        return outer | {parents[0]: {key: value[key] for key in value if key in keys}}

    def drop_short_lists(self, value: dict[str, Any]) -> dict[str, object]:
        """Return an answer that was cut, without lists that hold less than they need: half a box is none."""
        needed = dict(self.lengths)
        is_short = {key: isinstance(item, list) and len(item) < needed.get(key, 0) for key, item in value.items()}
        return {key: item for key, item in value.items() if not is_short[key]}

    def is_in(self, value: dict[str, Any]) -> bool:
        """Return whether `value` has a field of the answer, perhaps under a wrong key."""
        return bool(value.keys() & self.names) or self.unwrap(value) is not value

    def _is_complete(self, value: dict[str, Any]) -> bool:
        return bool(value.keys() & self.names) and self.required <= value.keys()


def describe_echo(value: Mapping[str, object], answer_fields: AnswerFields | None) -> str | None:
    """Return the complaint about a reply that repeats the schema of the answer or of a tool; None if it repeats
    neither.

    >>> describe_echo({"type": "object", "properties": {"answer": {"type": "string"}}}, None)
    "this is the answer's schema, not an answer: give the values themselves"
    """
    names = answer_fields.names if answer_fields is not None else frozenset()
    inner = value.get("function", value)
    if isinstance(inner, Mapping) and is_schema(inner.get("parameters")) and "parameters" not in names:
        return 'this is the schema of a tool, not a call: give its "name" and "arguments"'
    if (is_schema(value) and "properties" not in names) or _is_properties(value, names):
        return "this is the answer's schema, not an answer: give the values themselves"
    return None


def is_schema(value: object) -> bool:
    """Return whether `value` is the JSON Schema of an object, rather than an object."""
    if not isinstance(value, Mapping) or not isinstance(value.get("properties"), Mapping):
        return False
    schemas = all(isinstance(item, Mapping) and item.keys() & _KEYWORDS for item in value["properties"].values())
    return schemas and (value.get("type") == "object" or not value.keys().isdisjoint(("$schema", "$defs", "required")))


def _is_properties(value: Mapping[str, Any], names: frozenset[str]) -> bool:
    """Return whether `value` is the inside of the schema: the answer's fields, each with a type in place of its
    value."""
    inside = [item for key, item in value.items() if key in names]
    return bool(inside) and all(
        isinstance(item, Mapping) and isinstance(item.get("type"), str) and item["type"] in _TYPES for item in inside
    )


@lru_cache(maxsize=64)
def _read_fields(schema: str) -> AnswerFields:
    root = json.loads(schema)

    def find(spec: object, kind: str, keyword: str) -> Mapping[str, Any] | None:
        """Return the first schema of a kind that `spec` allows."""
        return next((one for one in list_options(root, spec) if keyword in one or one.get("type") == kind), None)

    top = find(root, "object", "properties") or EMPTY
    properties = top.get("properties", {})
    inner = {name: find(spec, "object", "properties") for name, spec in properties.items()}
    lists = {name: find(spec, "array", "items") or EMPTY for name, spec in properties.items()}
    return AnswerFields(
        frozenset(properties),
        frozenset(top.get("required", ())) - {"continue"},
        tuple((name, frozenset(spec.get("properties", ()))) for name, spec in inner.items() if spec is not None),
        tuple((name, spec["minItems"]) for name, spec in lists.items() if isinstance(spec.get("minItems"), int)),
    )


_NAMES = ("name", "tool")
_OTHER_NAMES = ("tool_name", "function", "function_name", "action", "recipient_name")  # of a tool, or of anything else
_ARGUMENTS = ("arguments", "parameters")
_MISNAMED = (*_ARGUMENTS, "args", "kwargs", "params", "input", "tool_input", "action_input")
_WRAPPERS = ("function", "tool_call", "function_call", "tool_use", "tool", "action", "command", "params")
_LISTS = ("tool_calls", "function_calls", "tool_uses")
_REASONS = ("thought", "thoughts", "reasoning", "reason", "explanation", "rationale")  # which nothing reads
_IGNORED_KEYS = frozenset({"id", "call_id", "tool_call_id", "type", "continue", *_REASONS})
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")


class ParsedCall(Record, frozen=True):
    """A tool call and, if it cannot be run as written, the reason; `call.arguments` is then the raw text.
    `ignored` says that it has a key that nothing reads; `note` tells the model what was read otherwise than written."""

    call: ToolCall
    error: str | None = None
    ignored: bool = False
    note: str = ""


def parse_native_call(call: ToolCall, tools: Tools = EMPTY) -> ParsedCall:
    """Return a call that an API or a policy returned, its arguments as `write_arguments` writes them, parsed.

    >>> parse_native_call(ToolCall("c1", "zoom", '{"factor": 2,}')).call.arguments
    {'factor': 2}
    """
    written, name = write_arguments(call.arguments), mend_name(call.name)
    arguments, error = _parse_arguments(name, written)
    if error is not None:
        return ParsedCall(ToolCall(call.id, find_tool(name, tools), written), error)
    return _fit_call(call.id, name, arguments, tools)


def _fit_call(identity: str, name: str, arguments: Mapping[str, Any], tools: Tools, *notes: str) -> ParsedCall:
    """Return a call as its tool's schema wants it, as far as one reading is possible, and notes of what was changed."""
    tool = find_tool(name, tools)
    fitted, changes = dict(arguments), list(notes)
    if not name.endswith(tool):
        changes.append(f"{show_json(name[:64])} was read as {tool}")
    properties = tools.get(tool, {}).get("properties", {})
    for key, value in arguments.items() if tool in tools else ():
        if key in _REASONS and key not in properties:
            del fitted[key]
            changes.append(f"{tool} has no argument {show_json(key)}: it was not read")
        elif key in properties and isinstance(value, str):
            fitted[key] = read_by_schema(value, properties[key])
            if not isinstance(fitted[key], str | None):
                changes.append(f"{key} = {show_json(value)} was read as {show_json(fitted[key])}")
    return ParsedCall(ToolCall(identity, tool, fitted), note="; ".join(changes))


def write_arguments(given: object) -> str:
    """Return a call's arguments as text, whatever they are: what they hold is checked in one place, the parser.

    >>> write_arguments({"factor": 2}), write_arguments(None), write_arguments(b"{}")
    ('{"factor": 2}', '{}', '{}')
    """
    if isinstance(given, bytes | bytearray):
        given = bytes(given).decode(errors="replace")
    if isinstance(given, str):
        return given
    try:
        return "{}" if given is None else json.dumps(thaw(given), ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):  # keys that JSON does not have, or a list that holds itself
        return "[…not JSON…]"


class _Shape(NamedTuple):
    """What the keys of an object would be if it is a call: those of its name, its sets of arguments, and the others."""

    value: Mapping[str, Any]
    name: str
    names: Sequence[str]
    sets: Sequence[tuple[str, Any]]
    others: Sequence[str]


def _read_shape(outer: Mapping[str, Any], tools: Collection[str]) -> _Shape:
    value = _unwrap_call(outer)
    around = [] if outer is value else [item for item in outer.items() if value is not item[1]]
    beside = [item for item in (*around, *value.items()) if item[0] not in _IGNORED_KEYS]
    if len(beside) == 1 and isinstance(beside[0][1], Mapping) and beside[0][0] in tools:  # {"zoom": {"factor": 2}}
        return _Shape(value, beside[0][0], (beside[0][0],), [("arguments", beside[0][1])], ())
    names = [key for key in _NAMES if key in value]
    names = names or [key for key, item in value.items() if _flatten(key) in _OTHER_NAMES and isinstance(item, str)]
    said = [value[key] for key in names]
    name = mend_name(said[0]) if said and isinstance(said[0], str) and said.count(said[0]) == len(said) else ""
    rest = [item for item in beside if item[0] not in names]
    sets = [
        item
        for number, item in enumerate(rest)
        if (item[0] in _ARGUMENTS and item[1] is not None) or (name and number < _MAX_KEYS and _is_misnamed(*item))
    ]
    return _Shape(value, name, names, sets, [key for key, _ in rest if key not in (*dict(sets), *_ARGUMENTS)])


def _flatten(key: str) -> str:
    """Return a key as snake_case: functionCall is function_call."""
    return _HUMP.sub("_", key[:32]).lower()


def parse_call(outer: object, text: str, identity: str, tools: Tools = EMPTY, error: str | None = None) -> ParsedCall:
    """Return the call in the JSON value of a block, whose text is `text`; `error`: what is wrong with the block."""
    if not isinstance(outer, Mapping):
        error = error or 'a tool call is one JSON object {"name": …, "arguments": {…}}'
        return ParsedCall(ToolCall(identity, "", text), error)
    value, name, names, sets, others = _read_shape(outer, tools)
    arguments: Mapping[str, Any] = {}
    error = error or describe_echo(value, None)
    if error is None and not name:
        keys = " and the ".join(map(show_json, names))
        error = f"the {keys} of the call differ" if len(names) > 1 else 'the tool call has no "name"'
        error += ': write {"name": …, "arguments": {…}}'
    elif error is None and len(sets) > 1:
        keys = " and ".join(show_json(key) for key, _ in sets)
        error = f'the call of {show_json(name[:64])} has two sets of arguments, {keys}: write one, as "arguments"'
    elif error is None and sets:
        arguments, error = _parse_arguments(name, sets[0][1])
    elif error is None and others:
        keys = ", ".join(map(show_json, others))[:200]
        error = f'the call of {show_json(name[:64])} has no "arguments": put {keys} in "arguments": {{…}}'
    if error is not None:
        return ParsedCall(ToolCall(identity, find_tool(name, tools), text), error)
    written = [key for key, _ in sets if key not in _ARGUMENTS] + [key for key in names if key not in (*_NAMES, name)]
    notes = [", ".join(map(show_json, written)) + ': write {"name": …, "arguments": {…}}'] if written else []
    return replace(_fit_call(identity, name, arguments, tools, *notes), ignored=bool(others))


def _is_misnamed(key: str, value: object) -> bool:
    """Return whether a key of a call holds its arguments under another name."""
    is_object = isinstance(value, Mapping) or (isinstance(value, str) and value.lstrip().startswith("{"))
    return is_object and len(key) < 32 and find_nearest(_flatten(key), _MISNAMED, cutoff=0.8) is not None


def find_calls(value: Any, answer_fields: AnswerFields | None, tools: Collection[str] = ()) -> list[Any] | None:
    """Return the calls in an object or a list outside any tag; None if it is something else.

    >>> find_calls({"tool": "zoom", "arguments": {"factor": 2}}, None)
    [{'tool': 'zoom', 'arguments': {'factor': 2}}]
    >>> find_calls({"answer": "left"}, None)
    """
    names = answer_fields.names if answer_fields is not None else frozenset()
    if isinstance(value, dict):
        listed = next((value[key] for key in value if _flatten(key) in _LISTS and key not in names), None)
        value = listed if isinstance(listed, list) else [value]
    is_list = isinstance(value, list) and bool(value)
    return value if is_list and all(_is_call(item, answer_fields, tools) for item in value) else None


def _unwrap_call(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the call in {"type": "function", "function": {…}} or {"tool_call": {…}}; else `value`."""
    if any(isinstance(value.get(name), str) for name in _NAMES):
        return value
    inside = [item for key, item in value.items() if isinstance(item, Mapping) and _flatten(key) in _WRAPPERS]
    return next((item for item in inside if not item.keys().isdisjoint(_NAMES)), value)


def _is_call(value: Any, answer_fields: AnswerFields | None, tools: Collection[str] = ()) -> bool:
    fields = answer_fields.names if answer_fields is not None else frozenset()
    if not isinstance(value, dict):
        return False
    shape = _read_shape(value, tools)
    inner = shape.value
    is_beside = inner is not value and not value.keys().isdisjoint(fields - _IGNORED_KEYS)
    if is_beside or is_schema(inner.get("parameters")):
        return False
    names = [key for key in _NAMES if isinstance(inner.get(key), str)]
    key = next((key for key in _ARGUMENTS if key in inner), None)
    if not names:
        is_tool = find_tool(shape.name, tools) in tools
        if answer_fields is None:
            return is_tool and bool(shape.sets)
        if "continue" in value or not value.keys().isdisjoint(fields):  # notes, or an answer
            return False
        if is_tool or any(isinstance(item, str) and item in tools for item in value.values()):
            return True
        return bool(shape.sets) and not answer_fields.is_in(value)
    if key == "arguments" or (key is not None and isinstance(inner[key], Mapping | str)):
        return not {names[0], key} <= fields
    if (
        answer_fields is not None
        and names[0] not in fields
        and any(starmap(_is_misnamed, islice(inner.items(), _MAX_KEYS)))
    ):
        return True
    has_only_tool = answer_fields is not None or inner.keys() <= _IGNORED_KEYS | {"tool"}
    return "tool" in names and "tool" not in fields and has_only_tool


def _parse_arguments(name: str, arguments: Any) -> tuple[Mapping[str, Any], str | None]:
    """Return the arguments as an object, or what is wrong with them; a string is read as JSON."""
    if arguments is None or (isinstance(arguments, str) and arguments.strip() in ("", "null")):
        return {}, None
    if isinstance(arguments, Mapping):
        return arguments, None
    if isinstance(arguments, str):
        text = arguments.strip()
        value, end, complaint, *_ = decode_json(text)
        if value is None and text[0] in "{｛":
            value, end, complaint, *_ = parse_lenient_json(text, 0, len(text))
        if isinstance(value, dict) and complaint is None and not text[end:].strip():
            return value, None
        if complaint is not None:
            return {}, f'the "arguments" of {show_json(name[:64])} must be a JSON object: {complaint}'
    return {}, f'the "arguments" of {show_json(name[:64])} must be a JSON object, not {show_json(arguments)}'
