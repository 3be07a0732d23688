"""Checks the `answer` that an environment declares: any answer of a model must be checked in bounded time.

A model chooses the answers. pydantic checks them in one call that nothing can interrupt, so a declaration that lets the
time grow without bounds is refused.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from re import Pattern
from typing import Any

from pydantic import BaseModel

from ..errors import ConfigError
from ..utils.json_schema import check_schema, measure_pattern

MAX_PATTERN = 500  # characters of a pattern with its repetitions written out: 64 KB then take 3 s at most
# Parts of a pydantic core schema whose JSON shows every number as a number.
_OPEN = {
    "bool", "default", "definition-ref", "definitions", "float", "int", "list", "literal", "model", "model-field",
    "model-fields", "none", "nullable", "str", "tagged-union", "union",
}  # fmt: skip


def check_declaration(answer: type[BaseModel] | Mapping[str, Any] | None) -> None:
    """Raise `ConfigError` for an answer that takes unbounded time to check, or a schema that cannot be used."""
    if isinstance(answer, type):
        _check_model(answer)
    elif answer is not None:
        check_schema(answer)


@cache
def runs_code(env: type, base: type) -> bool:
    """Whether an author's code sees an answer: methods of `base` that `env` replaces, validators, serializers."""
    replaced = any(getattr(env, name) is not getattr(base, name) for name in ("check_answer", "validate_answer"))
    answer: Any = env.answer  # type: ignore[attr-defined]
    return replaced or (isinstance(answer, type) and any(map(_is_code, _iter_parts(_get_core_schema(answer)))))


@cache
def hides_numbers(model: type[BaseModel]) -> bool:
    """Whether a number of the model may be text in its JSON: a Decimal, a key, or what an author's code makes."""
    kinds = {part.get("type") for part in _iter_parts(_get_core_schema(model))}
    return any(isinstance(kind, str) and kind not in _OPEN for kind in kinds)


@cache
def _check_model(model: type[BaseModel]) -> None:
    if any(map(_is_backtracking, _iter_parts(_get_core_schema(model)))):
        raise ConfigError(
            f"{model.__name__}: a pattern is matched by Python's `re`, which may never end; allowed: a pattern given "
            "as text, without regex_engine='python-re'",
            key="answer",
        )
    for part in _iter_parts(_get_core_schema(model)):
        pattern = part.get("pattern")
        if isinstance(pattern, str) and measure_pattern(pattern) > MAX_PATTERN:
            raise ConfigError(
                f"{model.__name__}: pattern {pattern!r:.200} is {measure_pattern(pattern):,} characters long with its "
                f"repetitions written out; allowed: {MAX_PATTERN}. Give a length as max_length",
                key="answer",
            )
    definitions = model.model_json_schema().get("$defs", {})
    for name, part in definitions.items():
        if any(_branches_into(name, union, definitions) for union in _iter_unions(part)):
            raise ConfigError(
                f"{model.__name__}: two members of a union in {name} hold {name} again, so the time to check an answer "
                "doubles with each level; allowed: Field(discriminator=...), or one such member",
                key="answer",
            )


def _get_core_schema(model: type) -> Any:
    model.model_json_schema()  # type: ignore[attr-defined]  # completes a model with forward references
    return model.__pydantic_core_schema__  # type: ignore[attr-defined]


def _iter_parts(schema: Any) -> Iterator[Mapping[str, Any]]:
    """Every part of a pydantic core schema."""
    if isinstance(schema, Mapping):
        yield schema
        for key, item in schema.items():
            if key not in ("metadata", "config"):
                yield from _iter_parts(item)
    elif isinstance(schema, list | tuple):
        for item in schema:
            yield from _iter_parts(item)


def _is_backtracking(part: Mapping[str, Any]) -> bool:
    config = part.get("config")
    by_config = isinstance(config, Mapping) and config.get("regex_engine") == "python-re"
    return by_config or part.get("regex_engine") == "python-re" or isinstance(part.get("pattern"), Pattern)


def _is_code(part: Mapping[str, Any]) -> bool:
    kind = part.get("type")
    is_function = isinstance(kind, str) and kind.startswith("function-")
    return is_function or any(part.get(key) for key in ("custom_init", "post_init", "computed_fields"))


# ---------------------------------------------------------------------- unions of the JSON Schema
def _iter_unions(schema: Any) -> Iterator[list[Any]]:
    if isinstance(schema, Mapping):
        if isinstance(schema.get("anyOf"), list):
            yield schema["anyOf"]
        for item in schema.values():
            yield from _iter_unions(item)
    elif isinstance(schema, list):
        for item in schema:
            yield from _iter_unions(item)


def _branches_into(name: str, union: list[Any], definitions: Mapping[str, Any]) -> bool:
    """Whether an answer can be read as two members of the union that both hold `name`: two objects, or two lists."""
    kinds = Counter(_get_kind(member, definitions) for member in union if name in _find_references(member, definitions))
    return any(count > 1 for count in kinds.values())


def _get_kind(member: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    seen: set[str] = set()
    while isinstance(member.get("$ref"), str) and member["$ref"] not in seen:
        seen.add(member["$ref"])
        member = definitions.get(member["$ref"].rpartition("/")[2], {})
    return str(member.get("type", "object"))


def _find_references(schema: Any, definitions: Mapping[str, Any]) -> set[str]:
    """The definitions that a part reaches."""
    found: set[str] = set()
    pending = [schema]
    while pending:
        item = pending.pop()
        if isinstance(item, list):
            pending += item
        elif isinstance(item, Mapping):
            pending += item.values()
            reference = item.get("$ref")
            name = reference.rpartition("/")[2] if isinstance(reference, str) else None
            if name is not None and name not in found:
                found.add(name)
                pending.append(definitions.get(name))
    return found
