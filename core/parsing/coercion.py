"""One rule for values of another JSON type than the answer's, the same for pydantic models and JSON Schema.

A string that is exactly how JSON writes a number, true, false or null is that value, where the schema allows the value
and no such string: "3.5" is 3.5, while "3.50", "95%" and "Yes" stay strings. A whole float is an integer where only
integers are allowed. Nothing else is converted.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...errors import ToolError

_MAX_OPTIONS = 64  # readings of a value; of those, and of references inside each other, further ones are not looked at
_MAX_REFERENCES = 8
_OUTER = ("$ref", "allOf", "anyOf", "oneOf")
_SCALAR = re.compile(r"true|false|null|-?[0-9]{1,40}(?:[.][0-9]{1,40})?(?:e[-+]?[0-9]{1,3})?")
_TYPES = {"string": str, "boolean": bool, "null": type(None), "array": list, "object": dict}

Options = Sequence[Mapping[str, Any]]


def coerce(value: Any, schema: Mapping[str, Any]) -> Any:
    """A copy of `value` with its scalars as the schema wants them, by the rule above; it may still not fit.

    Raises `ToolError` for true, false or a number where only the other is allowed and Python calls them equal.

    >>> size, sure = {"type": ["number", "null"]}, {"type": "boolean"}
    >>> schema = {"properties": {"size": size, "sure": sure, "names": {"items": {"type": "string"}}}}
    >>> coerce({"size": "3.5", "sure": "true", "names": ["3"]}, schema)
    {'size': 3.5, 'sure': True, 'names': ['3']}
    >>> coerce({"size": "3.50", "sure": 1}, schema)
    {'size': '3.50', 'sure': 1}
    """
    return _Coercion(schema).convert(value, [schema])


class _Coercion:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root
        self._expanded: dict[tuple[int, ...], list[Mapping[str, Any]]] = {}

    def convert(self, value: Any, specs: Sequence[Any], path: tuple[object, ...] = ()) -> Any:
        """The value as one of the schemas `specs` wants it."""
        options = self._expanded.get(key := tuple(map(id, specs)))
        if options is None:
            options = [option for spec in specs for option in self._expand(spec)][:_MAX_OPTIONS]
            self._expanded[key] = options
        if not options:
            return value
        if isinstance(value, dict):
            return {
                name: self.convert(item, list(_iter_fields(options, name)), (*path, name))
                for name, item in value.items()
            }
        if isinstance(value, list):
            return [
                self.convert(item, list(_iter_items(options, place)), (*path, place))
                for place, item in enumerate(value)
            ]
        fits, settled = _settle(value, options)
        if not fits and isinstance(value, str) and _SCALAR.fullmatch(value):
            decoded = json.loads(value) if value.lstrip("-")[:2] not in _LEADING_ZERO else None
            if json.dumps(decoded) == value:
                fits, settled = _settle(decoded, options)
        if not fits and any(value in choices for choices in map(_get_choices, options) if choices is not None):
            problem = "no number" if isinstance(value, bool) else "neither true nor false"
            raise ToolError(f"{'.'.join(map(str, path))[:120]}: {json.dumps(value)} is {problem}")
        return settled if fits else value

    def _expand(self, spec: Any, depth: int = 0) -> list[Mapping[str, Any]]:
        """The schemas that a value may fit, without references and compounds."""
        if not isinstance(spec, Mapping) or depth > _MAX_REFERENCES:
            return [{}]
        options: list[Mapping[str, Any]] = [{key: item for key, item in spec.items() if key not in _OUTER}]
        every = [self._find_target(spec["$ref"])] if "$ref" in spec else []
        for choices in (*([part] for part in [*every, *spec.get("allOf", ())]), spec.get("anyOf"), spec.get("oneOf")):
            if choices:
                inner = [option for choice in choices for option in self._expand(choice, depth + 1)]
                options = [_merge(one, other) for other in options for one in inner][:_MAX_OPTIONS]
        return options

    def _find_target(self, reference: Any) -> Any:
        found: Any = self.root
        for step in str(reference).removeprefix("#").strip("/").split("/"):
            key = step.replace("~1", "/").replace("~0", "~")
            found = found if not step else found.get(key) if isinstance(found, Mapping) else None
        return found


_LEADING_ZERO = frozenset(f"0{digit}" for digit in range(10))


def _merge(inner: Mapping[str, Any], outer: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = {**inner.get("properties", {}), **outer.get("properties", {})}
    return {**inner, **outer, **({"properties": properties} if properties else {})}


def _iter_fields(options: Options, name: str) -> Iterator[Any]:
    for option in options:
        spec = option.get("properties", {}).get(name, option.get("additionalProperties"))
        if isinstance(spec, Mapping):
            yield spec


def _iter_items(options: Options, place: int) -> Iterator[Any]:
    for option in options:
        first = option.get("prefixItems", ())
        spec = first[place] if place < len(first) else option.get("items")
        if isinstance(spec, Mapping):
            yield spec


def _get_choices(option: Mapping[str, Any]) -> Sequence[Any] | None:
    return [option["const"]] if "const" in option else option.get("enum")


def _settle(value: Any, options: Options) -> tuple[bool, Any]:
    """Whether a scalar fits one of the schemas, and the scalar as that schema writes it."""
    for option in options:
        choices = _get_choices(option)
        if choices is not None:
            for choice in choices if value in choices else ():
                if choice == value and isinstance(choice, bool) == isinstance(value, bool):
                    return True, choice
            continue
        kinds = option.get("type")
        if kinds is None:
            return True, value
        for kind in [kinds] if isinstance(kinds, str) else kinds:
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if kind == "integer" and is_number and value == value // 1 and abs(value) < float("inf"):
                return True, int(value)
            if (kind == "number" and is_number) or isinstance(value, _TYPES.get(kind, ())):
                return True, value
    return False, value
