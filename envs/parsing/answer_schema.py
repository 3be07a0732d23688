"""The outline of an answer, from its JSON Schema: which fields it has, which it must have, which of them are objects.

It only helps to read a reply (which of two objects is the answer, whether it stands under a wrong key, whether the
schema itself was given back); whether an answer is valid is for `violation` to say.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

from viewbox.frozen import thaw

_TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})
_KEYWORDS = frozenset({"type", "$ref", "enum", "anyOf", "allOf", "oneOf", "const", "items", "properties"})
_DEPTH = 8  # of references followed


@dataclass(frozen=True)
class Shape:
    """The fields of an answer; `objects` holds, for each field that is an object, the fields inside it.

    >>> shape = Shape.of({"properties": {"answer": {"type": "string"}}, "required": ["answer"]})
    >>> shape.unwrap({"result": {"answer": "left"}})
    {'answer': 'left'}
    """

    fields: frozenset[str] = frozenset()
    required: frozenset[str] = frozenset()
    objects: tuple[tuple[str, frozenset[str]], ...] = ()

    @classmethod
    def of(cls, schema: Mapping[str, Any]) -> "Shape":
        """The shape of `schema` (JSON Schema, local references followed); the same one for the same schema."""
        return _shape(_written(schema))

    def unwrap(self, value: dict[str, Any]) -> dict[str, Any]:
        """The answer that stands under a key the schema does not have, with its `continue`; else `value` itself.

        Only where one reading is possible: no field of the answer stands beside it, and one object inside has all
        the fields that are required.
        """
        inner_fields = dict(self.objects)
        known = [key for key in value if key in self.fields]
        if known and not (len(value.keys() - {"continue"}) == 1 and known[0] not in inner_fields):
            return value
        inside = [item for item in value.values() if isinstance(item, dict) and self._covered_by(item)]
        if len(inside) != 1:
            return value
        outer = {"continue": value["continue"]} if "continue" in value else {}
        return outer | inside[0]

    def unlist(self, value: list[Any]) -> dict[str, Any] | None:
        """The answer in a list that holds nothing else; None where it is not clearly that."""
        only = value[0] if len(value) == 1 else None
        return only if isinstance(only, dict) and self._covered_by(only) else None

    def wrap(self, value: dict[str, Any]) -> dict[str, Any]:
        """Fields of one inner object, put under their parent; `value` itself where they are not clearly that."""
        keys = value.keys() - {"continue"}
        if not keys or keys & self.fields:
            return value
        parents = [name for name, fields in self.objects if keys <= fields]
        if len(parents) != 1:
            return value
        outer = {"continue": value["continue"]} if "continue" in value else {}
        return outer | {parents[0]: {key: value[key] for key in value if key in keys}}

    def knows(self, value: dict[str, Any]) -> bool:
        """Whether `value` has a field of the answer, perhaps under a wrong key."""
        return bool(value.keys() & self.fields) or self.unwrap(value) is not value

    def _covered_by(self, value: dict[str, Any]) -> bool:
        return bool(value.keys() & self.fields) and self.required <= value.keys()


def echo(value: Mapping[str, Any], shape: Shape | None) -> str | None:
    """What a reply gave back instead of an answer: the answer's schema, or a tool's; None where it did not.

    >>> echo({"type": "object", "properties": {"answer": {"type": "string"}}}, None)
    "this is the answer's schema, not an answer: give the values themselves"
    """
    fields = shape.fields if shape is not None else frozenset()
    inner = value.get("function", value)
    if isinstance(inner, Mapping) and is_schema(inner.get("parameters")) and "parameters" not in fields:
        return 'this is the schema of a tool, not a call: give its "name" and "arguments"'
    if (is_schema(value) and "properties" not in fields) or _is_properties(value, fields):
        return "this is the answer's schema, not an answer: give the values themselves"
    return None


def is_schema(value: Any) -> bool:
    """Whether `value` is the JSON Schema of an object, rather than an object."""
    if not isinstance(value, Mapping) or not isinstance(value.get("properties"), Mapping):
        return False
    inside = value["properties"].values()
    schemas = all(isinstance(item, Mapping) and item.keys() & _KEYWORDS for item in inside)
    return schemas and (value.get("type") == "object" or not value.keys().isdisjoint(("$schema", "$defs", "required")))


def _is_properties(value: Mapping[str, Any], fields: frozenset[str]) -> bool:
    """The inside of the schema: the answer's fields, each with its type where its value should be."""
    inside = [item for key, item in value.items() if key in fields]
    return bool(inside) and all(
        isinstance(item, Mapping) and isinstance(item.get("type"), str) and item["type"] in _TYPES for item in inside
    )


def violation(value: Mapping[str, Any], schema: Mapping[str, Any]) -> str | None:
    """The most telling of the first few violations of `schema`, with the field it is in."""
    from jsonschema.exceptions import best_match

    error = best_match(islice(_validator(_written(schema)).iter_errors(value), 16))
    if error is None:
        return None
    message = error.message if len(error.message) <= 240 else f"{error.message[:120]} … {error.message[-100:]}"
    where = error.json_path.removeprefix("$").removeprefix(".")
    return f"{where[:120]}: {message}" if where else message


def _written(schema: Mapping[str, Any]) -> str:
    return json.dumps(thaw(schema))


@lru_cache(maxsize=64)
def _validator(schema: str) -> Any:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(json.loads(schema))


@lru_cache(maxsize=64)
def _shape(schema: str) -> Shape:
    root = json.loads(schema)
    top = next(_objects(root, root), {})
    properties = top.get("properties", {})
    inner = {name: next(_objects(spec, root), None) for name, spec in properties.items()}
    return Shape(
        frozenset(properties),
        frozenset(top.get("required", ())) - {"continue"},
        tuple((name, frozenset(found.get("properties", ()))) for name, found in inner.items() if found is not None),
    )


def _objects(spec: Any, root: Mapping[str, Any], depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """The schemas of objects that `spec` allows, itself first; references outside the schema are not followed."""
    if not isinstance(spec, Mapping) or depth > _DEPTH:
        return
    if "properties" in spec or spec.get("type") == "object":
        yield spec
    reference = spec.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        target: Any = root
        for part in reference[2:].split("/"):
            target = target.get(part) if isinstance(target, Mapping) else None
        yield from _objects(target, root, depth + 1)
    for choices in (spec.get("anyOf"), spec.get("oneOf"), spec.get("allOf")):
        for choice in choices or ():
            yield from _objects(choice, root, depth + 1)
