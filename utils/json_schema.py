"""JSON Schema (2020-12) with bounded work: a model chooses the value, so no value may hold up the event loop.

Every schema that a value is checked against costs a step, and so do large values and messages; after `MAX_STEPS` the
value is refused.
Patterns are matched in linear time by the regex engine of pydantic, which has no look-around. References lead nowhere
outside the schema. Large choices and `uniqueItems` are checked by hash.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, lru_cache, partial
from itertools import islice
from threading import local
from typing import Annotated, Any

from jsonschema import Draft202012Validator, SchemaError, ValidationError
from jsonschema.exceptions import best_match
from jsonschema.validators import SPECIFICATIONS, extend  # type: ignore[attr-defined]
from pydantic import Field, TypeAdapter

from ..errors import ConfigError
from .frozen import thaw

MAX_STEPS = 10_000  # at most 0.3 s; a list of 1,000 objects takes a quarter of them
MAX_ERRORS = 16  # of which the most relevant is reported
TOO_MUCH_WORK = "it takes too long to check against the schema; give a shorter and simpler one"
_LITERALS = frozenset({"const", "default", "enum", "examples"})  # what they hold is no schema
_PATTERN_ITEM = re.compile(
    r"\\[pPuUx]\{[^}]*\}|\\.|\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]|\{(?P<count>\d{1,9})(?:,(?P<most>\d{0,9}))?\}|.",
    re.DOTALL,
)
_REFERENCES = ("$ref", "$dynamicRef")


def find_violation(value: Mapping[str, Any], schema: Mapping[str, Any]) -> str | None:
    """The most relevant of the first few violations of `schema`, with its field; None if `value` is valid.

    Raises `ConfigError` if the schema cannot be used.

    >>> find_violation({"side": 3}, {"properties": {"side": {"type": "string"}}})
    "side: 3 is not of type 'string'"
    """
    errors: list[ValidationError] = []
    try:
        errors.extend(islice(iter_errors(value, schema), MAX_ERRORS))
    except TooMuchWorkError:
        if not errors:
            return TOO_MUCH_WORK
    error = best_match(iter(errors))
    if error is None:
        return None
    message = error.message if len(error.message) <= 240 else f"{error.message[:120]} … {error.message[-100:]}"
    path = error.json_path.removeprefix("$").removeprefix(".")
    return f"{path[:120]}: {message}" if path else message


def iter_errors(value: Any, schema: Mapping[str, Any]) -> Iterator[ValidationError]:
    """The violations of `schema`, in the order of its keywords; raises `TooMuchWorkError` after `MAX_STEPS`."""
    _BUDGET.left = MAX_STEPS
    try:
        yield from _get_validator(_to_text(schema)).iter_errors(value)
    except RecursionError:
        raise TooMuchWorkError from None


def check_schema(schema: Mapping[str, Any]) -> None:
    """Raise `ConfigError` if `find_violation` cannot use the schema; it names the pattern or reference."""
    _get_validator(_to_text(schema))


def _to_text(schema: Mapping[str, Any]) -> str:
    try:
        return json.dumps(thaw(schema))
    except RecursionError:
        raise ConfigError("answer schema: nested too deep", key="answer") from None


class TooMuchWorkError(Exception):
    """The value takes more than `MAX_STEPS` to check."""


class _Budget(local):
    left = MAX_STEPS


_BUDGET = _Budget()


def _spend(steps: int) -> None:
    _BUDGET.left -= steps
    if _BUDGET.left < 0:
        raise TooMuchWorkError


def _bound(keyword: Callable[..., Any], validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
    """A keyword with schemas inside it that costs steps, as many as it has parts to look at."""
    parts = (len(instance) if isinstance(instance, dict | list) else 0) + (
        len(value) >> 4 if type(value) is dict else 0
    )
    _spend(1 + (parts >> 2))
    yield from keyword(validator, value, instance, schema) or ()


def _bound_leaf(keyword: Callable[..., Any], validator: Any, value: Any, instance: Any, schema: Any) -> Any:
    """A keyword without schemas, whose messages cost steps: they quote the value."""
    errors = keyword(validator, value, instance, schema) or ()
    return _count(errors) if isinstance(instance, dict | list | str) else errors


def _count(errors: Iterable[ValidationError]) -> Iterator[ValidationError]:
    for error in errors:
        _spend(len(error.message) >> 9)
        yield error


# ---------------------------------------------------------------------- keywords of which jsonschema's take too long
class _Choices(list[Any]):
    """The values of an `enum`, found by hash."""

    @cached_property
    def keys(self) -> frozenset[Any]:
        return frozenset(map(_to_key, self))


def _to_key(value: Any) -> Any:
    """What two JSON values have in common if JSON Schema says they are equal: 1 equals 1.0, and not true."""
    if isinstance(value, dict):
        return "object", frozenset((key, _to_key(item)) for key, item in value.items())
    if isinstance(value, list):
        return "array", tuple(map(_to_key, value))
    return ("boolean", value) if isinstance(value, bool) else value


def _check_enum(validator: Any, choices: _Choices, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if _to_key(instance) not in choices.keys:
        yield ValidationError(f"{instance!r} is not one of {choices!r}")


def _check_unique(validator: Any, unique: bool, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if unique and isinstance(instance, list) and len(set(map(_to_key, instance))) < len(instance):
        yield ValidationError(f"{instance!r} has non-unique elements")


def _check_unevaluated_items(validator: Any, allowed: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, list):
        _spend(len(instance) ** 2 >> 12)  # jsonschema looks for each place in a list of places
    yield from Draft202012Validator.VALIDATORS["unevaluatedItems"](validator, allowed, instance, schema)


def _check_pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not _matches(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _check_pattern_properties(
    validator: Any, patterns: dict[str, Any], instance: Any, schema: Any
) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    for pattern, subschema in patterns.items():
        _spend(len(instance))
        for key, item in instance.items():
            if _matches(pattern, key):
                yield from validator.descend(item, subschema, path=key, schema_path=pattern)


def _check_additional_properties(validator: Any, allowed: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    patterns = schema.get("patternProperties", {})
    named = schema.get("properties", {})
    _spend(len(instance) * len(patterns))
    extras = [key for key in instance if key not in named and not any(_matches(each, key) for each in patterns)]
    if allowed is not False:
        for extra in extras:
            yield from validator.descend(instance[extra], allowed, path=extra)
    elif extras:
        names = ", ".join(map(repr, sorted(extras)))
        if patterns:
            verb, known = "does" if len(extras) == 1 else "do", ", ".join(map(repr, sorted(patterns)))
            yield ValidationError(f"{names} {verb} not match any of the regexes: {known}")
        else:
            verb = "was" if len(extras) == 1 else "were"
            yield ValidationError(f"Additional properties are not allowed ({names} {verb} unexpected)")


_BRANCHES: dict[str, Callable[..., Any]] = {
    name: Draft202012Validator.VALIDATORS[name]
    for name in (
        "$ref", "$dynamicRef", "properties", "propertyNames", "items", "prefixItems", "contains", "allOf", "anyOf",
        "oneOf", "not", "if", "dependentSchemas", "unevaluatedProperties",
    )
} | {
    "unevaluatedItems": _check_unevaluated_items,
    "patternProperties": _check_pattern_properties,
    "additionalProperties": _check_additional_properties,
}  # fmt: skip
_LEAVES = Draft202012Validator.VALIDATORS | {
    "enum": _check_enum,
    "uniqueItems": _check_unique,
    "pattern": _check_pattern,
}
_Validator = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator,
    {name: partial(_bound_leaf, function) for name, function in _LEAVES.items()}
    | {name: partial(_bound, function) for name, function in _BRANCHES.items()},
)


# ---------------------------------------------------------------------- the schema
@lru_cache(maxsize=64)
def _get_validator(text: str) -> Any:
    schema = json.loads(text)
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        where = error.json_path.removeprefix("$").removeprefix(".")
        raise ConfigError(f"answer schema: {where}: {error.message[:300]}", key="answer") from error
    except RecursionError:
        raise ConfigError("answer schema: nested too deep", key="answer") from None
    validator = _Validator(_prepare(schema, schema), registry=SPECIFICATIONS)
    for reference in _iter_references(validator.schema):
        try:
            if not reference.startswith("#"):
                raise ValueError("it leads outside the schema")
            validator._resolver.lookup(reference)
        except Exception as error:  # of the library of references, which is not ours to name
            raise ConfigError(
                f"answer schema: reference {reference!r:.200}: {error}; allowed: one inside the schema, such as "
                "'#/$defs/NAME'",
                key="answer",
                given=reference,
            ) from error
    return validator


def _prepare(schema: Any, root: Any) -> Any:
    """The schema with choices that are found by hash; raises `ConfigError` for what cannot be bounded."""
    if isinstance(schema, list):
        return [_prepare(item, root) for item in schema]
    if not isinstance(schema, dict):
        return schema
    patterns = [schema["pattern"]] if isinstance(schema.get("pattern"), str) else []
    by_pattern = schema.get("patternProperties")
    patterns += by_pattern if isinstance(by_pattern, dict) else []
    for pattern in patterns:
        _compile_pattern(pattern)
    if by_pattern and '"unevaluatedProperties"' in json.dumps(root):
        raise ConfigError(
            "answer schema: unevaluatedProperties beside patternProperties; allowed: additionalProperties", key="answer"
        )
    if schema is not root and isinstance(schema.get("$id"), str):
        raise ConfigError(f"answer schema: $id {schema['$id']!r:.100} inside the schema; allowed: none", key="answer")
    # jsonschema would check a part with its own `$schema` by that draft, without bounds.
    prepared = {
        key: item if key in _LITERALS else _prepare(item, root)
        for key, item in schema.items()
        if not (key == "$schema" and isinstance(item, str))
    }
    if isinstance(schema.get("enum"), list):
        prepared["enum"] = _Choices(schema["enum"])
    return prepared


def _iter_references(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for item in schema:
            yield from _iter_references(item)
    elif isinstance(schema, dict):
        for key, item in schema.items():
            if key in _REFERENCES and isinstance(item, str):
                yield item
            elif key not in _LITERALS:
                yield from _iter_references(item)


@lru_cache(maxsize=256)
def _compile_pattern(pattern: str) -> Any:
    try:
        return TypeAdapter(Annotated[str, Field(pattern=pattern, strict=True)]).validator
    except Exception as error:  # pydantic has no public name for it
        reason = " ".join(str(error).split())[-160:]
        raise ConfigError(
            f"answer schema: pattern {pattern!r:.200} cannot be used ({reason}); allowed: a regular expression of RE2 "
            "or Rust, without look-around and back-references",
            key="answer",
            given=pattern,
        ) from error


def _matches(pattern: str, text: str) -> bool:
    """Whether the pattern is found in the text; its time is at most the product of their lengths."""
    _spend(measure_pattern(pattern) * len(text) >> 10)
    return bool(_compile_pattern(pattern).isinstance_python(text))


@lru_cache(maxsize=256)
def measure_pattern(pattern: str) -> int:
    """About how many characters a pattern has when its counted repetitions are written out.

    >>> measure_pattern("^[a-z]+$"), measure_pattern("a{20}"), measure_pattern("(.{0,100}x){0,60}y")
    (3, 20, 6061)
    """
    groups, last = [0], 0  # the lengths of the open groups without their last item, and that item's length
    for match in _PATTERN_ITEM.finditer(pattern):
        text = match[0]
        if text in ("*", "+", "?"):
            continue
        if text == "(":
            groups[-1] += last
            groups.append(0)
            last = 0
        elif text == ")" and len(groups) > 1:
            last += groups.pop()
        elif match["count"] is not None:
            last *= max(1, int(match["most"] or match["count"]))
        else:
            groups[-1] += last
            last = 1
    return sum(groups) + last
