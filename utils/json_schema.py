"""JSON Schema (2020-12) with bounded work: a model chooses the value, so no value may hold up the event loop.

Verdicts are those of jsonschema-rs: it looks at a part of a value once, and its patterns, without look-around and
large counts, take linear time. Its errors are another matter: for a schema that refers to itself they double with each
level, until the memory is full. So the part that does not fit is looked for by verdicts, from the outside in, and only
keywords with no schema inside are asked for their words.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote

from jsonschema_rs import Draft202012Validator, RegexOptions, Registry

from ..errors import MAX_LISTED, ConfigError, describe_unknown, show_json, suggest_nearest
from .frozen import thaw
from .values import to_text

MAX_STEPS = 500  # from a value to the part of it that does not fit, and from reference to reference
_MAX_OPTIONS = 64  # readings of a value; of those, and of references inside each other, further ones are not looked at
_MAX_REFERENCES = 8
_OUTER = ("$ref", "allOf", "anyOf", "oneOf")
_PATTERNS = RegexOptions(size_limit=2**20, dfa_size_limit=2**20)
_BASE = "urn:answer"
_LEAVES = frozenset({
    "type", "enum", "const", "required", "dependentRequired", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern", "minItems", "maxItems", "uniqueItems",
    "minProperties", "maxProperties",
})  # fmt: skip
_CHOICES = ("anyOf", "oneOf")
_OTHERS = ("oneOf", "contains", "not", "unevaluatedItems", "unevaluatedProperties", "$ref", "$dynamicRef")
_NOUNS = {
    "string": "a string", "number": "a number", "integer": "an integer", "boolean": "true or false", "array": "a list",
    "object": "an object", "null": "null",
}  # fmt: skip
_SIZES = {"Length": "characters", "Items": "items", "Properties": "keys"}


class Violation(NamedTuple):
    """Where a value does not fit its schema, the keyword that says so, and what a model is told of it, in JSON's words.
    `given` is the value as JSON; empty if it is not to be repeated."""

    path: str
    keyword: str
    message: str
    given: str = ""

    def __str__(self) -> str:
        place = " = ".join(filter(None, (self.path[:120], self.given)))
        return f"{place}: {self.message}" if place else self.message


class _Part(NamedTuple):
    """A part of a schema (its JSON pointer), and the part of a value that must fit it."""

    pointer: str
    value: Any
    path: str


def find_violation(value: object, schema: Mapping[str, object]) -> Violation | None:
    """Return the outermost violation of `schema`, with its field; None if `value` is valid.
    Raise `ConfigError` if the schema cannot be used.

    >>> str(find_violation({"side": 3}, {"properties": {"side": {"type": "string"}}}))
    'side = 3: allowed: a string'
    """
    text = _to_text(schema)
    validator = _get_validator(text)
    try:
        return None if validator.is_valid(value) else _find_part(text, _Part("", value, ""))
    except UnicodeError:
        return Violation("", "", "it holds half of a surrogate pair, which is no character")
    except ValueError:  # jsonschema-rs stops at 255 levels
        return Violation("", "", "it is nested too deep")


def check_schema(schema: Mapping[str, object]) -> None:
    """Raise `ConfigError` if `find_violation` cannot use the schema; it names the pattern or reference."""
    _get_validator(_to_text(schema))


def _to_text(schema: Mapping[str, Any]) -> str:
    try:
        return json.dumps({key: item for key, item in thaw(schema).items() if key not in ("$schema", "$id")})
    except RecursionError:
        raise ConfigError("answer schema: nested too deep", key="answer") from None


@lru_cache(maxsize=64)
def _get_validator(text: str) -> Draft202012Validator:
    try:
        return Draft202012Validator(json.loads(text), pattern_options=_PATTERNS, offline=True)
    except (ValueError, RecursionError) as error:  # a `ValidationError` is a `ValueError`
        message = str(getattr(error, "message", error))
        path = write_path(getattr(error, "instance_path", ()))
        if message.endswith('is not a "regex"'):
            pattern = message.removesuffix(' is not a "regex"')
            message = f"pattern {pattern:.200} cannot be used; allowed: no look-around, back-references or large counts"
        elif "not present in a registry" in message or "external" in message:
            message = f"{message:.200}; allowed: references inside the schema, such as '#/$defs/NAME'"
        elif "ecursion" in message:
            message = "nested too deep"
        raise ConfigError(f"answer schema: {f'{path}: ' if path else ''}{message:.400}", key="answer") from error


def write_path(steps: Iterable[object]) -> str:
    """Return the keys and places that lead to a part of a value as one text.

    >>> write_path(["boxes", 0, "label"])
    'boxes[0].label'
    """
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")


def list_types(spec: Mapping[str, Any], *default: str) -> Sequence[str]:
    """Return the types that a schema names."""
    kinds = spec.get("type", default)
    return [kinds] if isinstance(kinds, str) else kinds


def describe_range(spec: Mapping[str, Any]) -> str:
    """Return the range of a number in words; empty if it has none.

    >>> describe_range({"minimum": 0.5, "maximum": 4}), describe_range({"minimum": 0}), describe_range({})
    ('0.5 to 4', 'at least 0', '')
    """
    ends = [spec.get(key) for key in ("minimum", "maximum")]
    if None not in ends:
        return " to ".join(dict.fromkeys(map(to_text, ends)))
    words = {"minimum": "at least", "maximum": "at most", "exclusiveMinimum": "above", "exclusiveMaximum": "below"}
    return "; ".join(f"{word} {to_text(spec[key])}" for key, word in words.items() if spec.get(key) is not None)


def describe_allowed(spec: Mapping[str, Any], given: object = None) -> str:
    """Return in words what a schema allows, but for the schemas inside it, with the choice that is nearest to `given`.

    >>> describe_allowed({"type": ["number", "null"], "minimum": 0}), describe_allowed({"enum": ["left", None]}, "lefd")
    ('a number or null; at least 0', '"left", null (did you mean "left"?)')
    """
    choices = [spec["const"]] if "const" in spec else spec.get("enum")
    if choices is not None:
        texts = [choice for choice in choices if isinstance(choice, str)]
        near = suggest_nearest(given, texts, show_json) if isinstance(given, str) else ""
        many = f"one of {len(choices)} values, such as " if len(choices) > MAX_LISTED else ""
        return many + ", ".join(map(show_json, choices[:5] if many else choices)) + near
    keys = f" with {', '.join(map(show_json, spec['required']))}" if spec.get("required") else ""
    words = [" or ".join(_NOUNS[kind] for kind in list_types(spec)) + keys, describe_range(spec)]
    for name, unit in _SIZES.items():
        limits = describe_range({"minimum": spec.get(f"min{name}"), "maximum": spec.get(f"max{name}")})
        words.append(f"{limits} {unit}" if limits else "")
    words.append(f"a multiple of {to_text(spec['multipleOf'])}" if "multipleOf" in spec else "")
    words.append(f"text that matches {show_json(spec['pattern'], 200)}" if "pattern" in spec else "")
    words.append("items that all differ" if spec.get("uniqueItems") else "")
    return "; ".join(filter(None, words))


def _describe_leaf(error: Any, schema: Mapping[str, Any], part: "_Part") -> Violation:
    """Return what is said of a keyword that holds no schema."""
    keyword, value = error.kind.name, part.value
    if keyword == "required":
        return Violation(part.path, keyword, f"{show_json(error.kind.property)} is missing")
    if keyword == "additionalProperties":
        unknown = error.kind.unexpected[0][:80]
        return Violation(part.path, keyword, describe_unknown("key", unknown, schema.get("properties", ()), show_json))
    is_range = keyword.lower().endswith("imum")
    size = f"{len(value)} {_SIZES[keyword[3:]]}; " if keyword[3:] in _SIZES else ""
    allowed = (
        f"out of range; allowed: {describe_range(schema)}"
        if is_range
        else f"{size}allowed: {describe_allowed(schema, value)}"
    )
    return Violation(part.path, keyword, allowed, show_json(value))


def _find_part(text: str, part: _Part) -> Violation:
    for _ in range(MAX_STEPS):
        schema = _get_part(text, part.pointer)
        if not isinstance(schema, dict):
            return Violation(part.path, "not", "is not allowed here", show_json(part.value))
        error = next(iter(_get_leaves(text, part.pointer).iter_errors(part.value)), None)
        if error is not None:
            return _describe_leaf(error, schema, part)
        inner = next((child for child in _list_parts(text, schema, part) if not _fits(text, child)), None)
        if inner is None:
            return _describe(text, schema, part)
        part = inner
    return Violation(part.path, "$ref", "does not fit the schema", show_json(part.value))


def _list_parts(text: str, schema: dict[str, Any], part: _Part) -> Iterator[_Part]:
    """Yield the parts that must all fit, and the one choice that a value of this type has."""
    pointer, value, path = part
    reference = schema.get("$ref")
    if isinstance(reference, str) and (reference == "#" or reference.startswith("#/")):
        yield _Part(reference[1:], value, path)
    for number in range(len(schema.get("allOf", ()))):
        yield _Part(f"{pointer}/allOf/{number}", value, path)
    if isinstance(value, dict):
        yield from _list_fields(schema, part)
    if isinstance(value, list):
        first = len(schema.get("prefixItems", ()))
        for number, item in enumerate(value):
            name = f"prefixItems/{number}" if number < first else "items"
            if number < first or "items" in schema:
                yield _Part(f"{pointer}/{name}", item, f"{path}[{number}]")
    if "if" in schema:
        name = "then" if _fits(text, _Part(f"{pointer}/if", value, path)) else "else"
        if name in schema:
            yield _Part(f"{pointer}/{name}", value, path)
    for name in _CHOICES:
        choices = [_Part(f"{pointer}/{name}/{number}", value, path) for number in range(len(schema.get(name, ())))]
        fitting = [choice for choice in choices if _is_of_type(text, choice)]
        if len(fitting) == 1:
            yield fitting[0]


def _list_fields(schema: dict[str, Any], part: _Part) -> Iterator[_Part]:
    pointer, value, path = part
    names, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for key, item in value.items():
        place = f"{path}.{key}".removeprefix(".")
        if key in names:
            yield _Part(f"{pointer}/properties/{_escape(key)}", item, place)
        matching = [pattern for pattern in patterns if _matches(pattern, key)]
        for pattern in matching:
            yield _Part(f"{pointer}/patternProperties/{_escape(pattern)}", item, place)
        if key not in names and not matching and "additionalProperties" in schema:
            yield _Part(f"{pointer}/additionalProperties", item, place)
        if key in schema.get("dependentSchemas", {}):
            yield _Part(f"{pointer}/dependentSchemas/{_escape(key)}", value, path)
        if "propertyNames" in schema:
            yield _Part(f"{pointer}/propertyNames", key, place)


def _describe(text: str, schema: dict[str, Any], part: _Part) -> Violation:
    """Return what is said of a keyword that no single part of the value violates."""
    shown = show_json(part.value)
    for name in _CHOICES:
        choices = [_Part(f"{part.pointer}/{name}/{number}", *part[1:]) for number in range(len(schema.get(name, ())))]
        if choices and not any(_fits(text, choice) for choice in choices):
            words = [describe_allowed(_resolve(text, choice.pointer), part.value) for choice in choices]
            return Violation(part.path, name, f"allowed: {' or '.join(dict.fromkeys(filter(None, words)))}", shown)
    keyword = next((name for name in _OTHERS if name in schema), "schema")
    wanted = f": {show_json(schema[keyword])}" if keyword in schema else ""
    return Violation(part.path, keyword, f'does not fit "{keyword}"{wanted}', shown)


def _fits(text: str, part: _Part) -> bool:
    return _get_part_validator(text, part.pointer).is_valid(part.value)


def _is_of_type(text: str, part: _Part) -> bool:
    """Return whether the type of a value is one that a choice allows at its top."""
    allowed = list_types(_resolve(text, part.pointer))
    return not allowed or Draft202012Validator({"type": [*allowed]}).is_valid(part.value)


def _resolve(text: str, pointer: str) -> Mapping[str, Any]:
    """Return a part of a schema, its references at the top followed."""
    for _ in range(MAX_STEPS):
        schema = _get_part(text, pointer)
        reference = schema.get("$ref", "") if isinstance(schema, dict) else ""
        if not reference.startswith("#/"):
            break
        pointer = reference[1:]
    return schema if isinstance(schema, dict) else {}


def list_options(root: object, spec: Any, depth: int = 0) -> list[Mapping[str, Any]]:
    """Return the schemas that a value may fit, without references and compounds.

    >>> root = {"$defs": {"size": {"type": "number"}}}
    >>> list_options(root, {"anyOf": [{"$ref": "#/$defs/size"}, {"type": "null"}], "default": None})
    [{'type': 'number', 'default': None}, {'type': 'null', 'default': None}]
    """
    if not isinstance(spec, Mapping) or depth > _MAX_REFERENCES:
        return [{}]
    options: list[Mapping[str, Any]] = [{key: item for key, item in spec.items() if key not in _OUTER}]
    every = [find_reference(root, str(spec["$ref"]))] if "$ref" in spec else []
    for choices in (*([part] for part in [*every, *spec.get("allOf", ())]), spec.get("anyOf"), spec.get("oneOf")):
        if choices:
            inner = [option for choice in choices for option in list_options(root, choice, depth + 1)]
            options = [_merge(alternative, other) for other in options for alternative in inner][:_MAX_OPTIONS]
    return options


def _merge(inner: Mapping[str, Any], outer: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = {**inner.get("properties", {}), **outer.get("properties", {})}
    return {**inner, **outer, **({"properties": properties} if properties else {})}


def find_reference(root: object, reference: str) -> Any:
    """Return what a reference inside a schema, or a JSON pointer, leads to; None if it leads nowhere."""
    first, *steps = reference.removeprefix("#").split("/")
    target: Any = None if first else root  # an anchor, or another schema
    for step in steps:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(target, list):
            target = target[int(key)] if key.isdecimal() and int(key) < len(target) else None
        else:
            target = target.get(key) if isinstance(target, Mapping) else None
    return target


@lru_cache(maxsize=1024)
def _get_part(text: str, pointer: str) -> Any:
    return find_reference(json.loads(text), pointer)


@lru_cache(maxsize=1024)
def _get_part_validator(text: str, pointer: str) -> Draft202012Validator:
    registry = Registry([(_BASE, json.loads(text))])
    reference = {"$ref": f"{_BASE}#{quote(pointer)}"}
    return Draft202012Validator(reference, registry=registry, pattern_options=_PATTERNS, offline=True)


@lru_cache(maxsize=1024)
def _get_leaves(text: str, pointer: str) -> Draft202012Validator:
    """Return a validator of those keywords of a part that hold no schema."""
    schema = _get_part(text, pointer)
    leaves = {key: item for key, item in schema.items() if key in _LEAVES}
    if schema.get("additionalProperties") is False:
        patterns = dict.fromkeys(schema.get("patternProperties", {}), True)
        names = dict.fromkeys(schema.get("properties", {}), True)
        leaves |= {"additionalProperties": False, "properties": names, "patternProperties": patterns or {"^\\b$": True}}
    return Draft202012Validator(leaves, pattern_options=_PATTERNS, offline=True)


@lru_cache(maxsize=1024)
def _get_pattern(pattern: str) -> Draft202012Validator:
    return Draft202012Validator({"pattern": pattern}, pattern_options=_PATTERNS)


def _matches(pattern: str, text: str) -> bool:
    return _get_pattern(pattern).is_valid(text)


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
