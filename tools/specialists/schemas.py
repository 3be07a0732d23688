"""From a JSON Schema that an author wrote, or a server sent, to the parameters of a tool.

A schema of a server is text of a stranger that ends in a prompt, and a program that runs on a model's arguments. So its
size and depth are bounded, its references are put in their place (one that leads outside it is refused), its
descriptions are cleaned and cut, and only keywords that bounded code checks are kept. `x-kind: picture`, `point` or
`box` marks a property that the model writes as it writes those of other tools.
"""

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...errors import ConfigError, describe_unknown
from ...utils.frozen import thaw
from ...utils.json_schema import check_schema
from ...utils.sanitize import clean
from ..arguments import Box, Picture, Point, build_parameter

MAX_PROPERTIES = 64  # of a tool
MAX_DEPTH = 12  # of a schema, with the parts it refers to in their places
MAX_NODES = 2_000  # objects, lists and values of a schema, likewise
MAX_TEXT = 200  # characters of a name, a choice or a pattern
MAX_NOTE = 1_000  # characters kept of the description of a property
MAX_DESCRIPTION = 4_000  # characters kept of the description of a tool
KINDS: Mapping[str, Any] = {"picture": Picture, "point": Point, "box": Box}

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_SCHEMA_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SCHEMAS = ("items", "additionalProperties", "not", "contains")
_LIMITS = (
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "minItems",
    "maxItems", "uniqueItems", "minProperties", "maxProperties",
)  # fmt: skip
_TYPES = ("string", "number", "integer", "boolean", "array", "object", "null")


class Parameters(NamedTuple):
    """The parameters of a tool, as `Tool` holds them."""

    properties: Mapping[str, Mapping[str, Any]]
    required: tuple[str, ...]

    def get_names(self, kind: str) -> list[str]:
        """The parameters of a kind: picture, point or box."""
        return [name for name, spec in self.properties.items() if spec.get("x-kind") == kind]


def read_parameters(schema: Mapping[str, Any], key: str) -> Parameters:
    """The parameters that a JSON Schema of type object describes.

    Args:
        schema: with `properties`, and the names of those that are `required`.
        key: where it stands, for messages.

    Raises:
        ConfigError: it is too large or too deep, refers outside itself, or cannot be checked in bounded time.

    >>> scale = {"anyOf": [{"$ref": "#/$defs/Scale"}, {"type": "null"}], "title": "Scale"}
    >>> found = read_parameters({"properties": {"scale": scale, "image": {"x-kind": "picture"}},
    ...     "required": ["image"], "$defs": {"Scale": {"type": "number", "minimum": 0}}}, "parameters")
    >>> dict(found.properties), found.required
    ({'scale': {'type': 'number', 'minimum': 0}, 'image': {'type': 'string', 'x-kind': 'picture'}}, ('image',))
    """
    return _Reader(schema, key).read()


def clean_note(text: object, limit: int = MAX_NOTE) -> str:
    """A description in one line, without invisible characters and the marks of chat templates, cut to `limit`.

    >>> clean_note("Counts\\n  nodules.\\u200b<|im_end|>")
    'Counts nodules.< |im_end|>'
    """
    return " ".join(clean(text, limit).split()) if isinstance(text, str) else ""


class _Reader:
    """Reads one schema, whose nodes it counts as often as they are referred to."""

    def __init__(self, schema: Mapping[str, Any], key: str) -> None:
        self.key, self.nodes = key, 0
        try:
            self.root: Mapping[str, Any] = thaw(schema)
        except RecursionError:
            raise self._refuse(f"nested deeper than {MAX_DEPTH}") from None

    def read(self) -> Parameters:
        root = self._resolve(self.root, 0)
        if root.get("type", "object") != "object":
            raise self._refuse(f"type = {root['type']!r:.80}; allowed: object")
        properties, required = root.get("properties", {}), root.get("required", [])
        if not isinstance(properties, dict) or len(properties) > MAX_PROPERTIES:
            raise self._refuse(f"properties must be a mapping of at most {MAX_PROPERTIES} names")
        read = {self._check_name(name): self._read_property(name, spec) for name, spec in properties.items()}
        if not isinstance(required, list) or any(name not in read for name in required):
            allowed = ", ".join(read) or "none"
            raise self._refuse(f"required = {required!r:.80}; allowed: names of properties ({allowed:.200})")
        plain = {name: {k: v for k, v in spec.items() if k != "x-kind"} for name, spec in read.items()}
        try:
            check_schema({"type": "object", "properties": plain})
        except ConfigError as error:
            raise self._refuse(str(error).removeprefix("answer schema: ")) from error
        return Parameters(read, tuple(dict.fromkeys(required)))

    def _read_property(self, name: str, spec: Any) -> dict[str, Any]:
        kind = spec.get("x-kind") if isinstance(spec, dict) else None
        if kind is None:
            return self._read_schema(spec, 1)
        if kind not in KINDS:
            raise self._refuse(f"properties.{name}.x-kind: {describe_unknown('kind', str(kind)[:80], KINDS)}")
        note = clean_note(spec.get("description"))
        return build_parameter(KINDS[kind]) | ({"description": note} if note else {})

    def _read_schema(self, given: Any, depth: int) -> dict[str, Any]:
        """The part of a schema that is kept, with the parts that it refers to in their places."""
        if isinstance(given, bool):
            return {} if given else {"not": {}}
        spec = self._resolve(_drop_null(self._resolve(given, depth)), depth)
        read: dict[str, Any] = {}
        if "type" in spec:
            read["type"] = self._read_type(spec["type"])
        for name in _LIMITS:
            if isinstance(spec.get(name), int | float) and math.isfinite(spec[name]):
                read[name] = spec[name]
        if "enum" in spec or "const" in spec:
            read["enum"] = self._read_choices(spec.get("enum", [spec.get("const")]))
            if all(isinstance(choice, str) for choice in read["enum"]):
                read.setdefault("type", "string")
        for name in ("pattern", "format"):
            if isinstance(spec.get(name), str):
                read[name] = self._check_text(spec[name])
        for name in _SCHEMA_LISTS:
            if isinstance(spec.get(name), list):
                read[name] = [self._read_schema(item, depth + 1) for item in spec[name]]
        for name in _SCHEMAS:
            if name in spec:
                is_plain = name == "additionalProperties" and isinstance(spec[name], bool)
                read[name] = spec[name] if is_plain else self._read_schema(spec[name], depth + 1)
        if isinstance(spec.get("properties"), dict):
            items = spec["properties"].items()
            read["properties"] = {self._check_name(key): self._read_schema(item, depth + 1) for key, item in items}
            read["required"] = [self._check_name(key) for key in _to_list(spec.get("required"))]
        if isinstance(spec.get("default"), bool | int | float | str) and self._is_plain(spec["default"]):
            read["default"] = spec["default"]
        if note := clean_note(spec.get("description")):
            read["description"] = note
        return read

    def _resolve(self, spec: Any, depth: int) -> dict[str, Any]:
        """An object of the schema; if it is a reference, what that refers to, with the keywords beside it."""
        for _ in range(MAX_DEPTH):
            self._count(spec, depth)
            if not isinstance(spec, Mapping):
                raise self._refuse(f"{str(spec)[:80]!r} is not a schema; allowed: a mapping")
            reference = spec.get("$ref")
            if reference is None:
                return dict(spec)
            spec = {**self._look_up(reference), **{key: item for key, item in spec.items() if key != "$ref"}}
        raise self._refuse("its references lead in a circle")

    def _look_up(self, reference: Any) -> Mapping[str, Any]:
        found: Any = self.root
        for part in str(reference).removeprefix("#").split("/")[1:] if str(reference).startswith("#/") else [None]:
            name = None if part is None else part.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, Mapping) else None
        if not isinstance(found, Mapping):
            raise self._refuse(f"reference {str(reference)[:80]!r}; allowed: one inside the schema, as '#/$defs/NAME'")
        return found

    def _count(self, spec: Any, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise self._refuse(f"nested deeper than {MAX_DEPTH}, or in a circle")
        self.nodes += 1 + (len(spec) if isinstance(spec, Mapping | list) else 0)
        if self.nodes > MAX_NODES:
            raise self._refuse(f"more than {MAX_NODES} parts")

    def _read_type(self, given: Any) -> Any:
        types = given if isinstance(given, list) else [given]
        if not types or any(one not in _TYPES for one in types):
            raise self._refuse(f"type = {given!r:.80}; allowed: {', '.join(_TYPES)}")
        return given

    def _read_choices(self, choices: Any) -> list[Any]:
        if not isinstance(choices, list) or not choices or not all(self._is_plain(item) for item in choices):
            raise self._refuse(f"enum must be a list of texts and numbers, each of at most {MAX_TEXT} characters")
        self._count(choices, 1)
        return choices

    def _check_name(self, name: Any) -> str:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise self._refuse(f"the name {str(name)[:80]!r}; allowed: letters, digits, _, . and -, 64 at most")
        return name

    def _check_text(self, text: str) -> str:
        if not self._is_plain(text):
            raise self._refuse(f"{text[:80]!r}; allowed: at most {MAX_TEXT} visible characters")
        return text

    @staticmethod
    def _is_plain(value: Any) -> bool:
        if isinstance(value, str):
            return len(value) <= MAX_TEXT and clean(value, MAX_TEXT) == value and "\n" not in value
        return value is None or isinstance(value, bool) or (isinstance(value, int | float) and math.isfinite(value))

    def _refuse(self, problem: str) -> ConfigError:
        return ConfigError(f"{self.key}: {problem}", key=self.key)


def _drop_null(spec: dict[str, Any]) -> dict[str, Any]:
    """A schema that also allows null, as that of an optional argument does, without null: it is left out instead."""
    for name in ("anyOf", "oneOf"):
        options = spec.get(name)
        if isinstance(options, list) and {"type": "null"} in options:
            left = [option for option in options if option != {"type": "null"}]
            rest = {key: item for key, item in spec.items() if key != name}
            return {**left[0], **rest} if len(left) == 1 and isinstance(left[0], Mapping) else {**rest, name: left}
    if isinstance(spec.get("type"), list) and "null" in spec["type"]:
        left = [one for one in spec["type"] if one != "null"]
        return {**spec, "type": left[0] if len(left) == 1 else left}
    return spec


def _to_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
