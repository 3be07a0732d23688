"""From a JSON Schema that an author wrote, or a server sent, to the parameters of a tool.

A schema of a server is text of a stranger that ends in a prompt, and a program that runs on a model's arguments. So its
size and depth are bounded, its references are put in their place (one that leads outside it is refused), and its
descriptions are cleaned and cut. `x-kind: picture`, `point` or `box` marks a property that the model writes as it
writes those of other tools.
"""

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
_UNREAD = frozenset({"title", "examples", "$comment", "$defs", "definitions", "$schema", "$id"})


class Parameters(NamedTuple):
    """The parameters of a tool, as `Tool` holds them."""

    properties: Mapping[str, Mapping[str, Any]]
    required: tuple[str, ...]

    def get_names(self, kind: str) -> list[str]:
        """Return the parameters of a kind: picture, point or box."""
        return [name for name, spec in self.properties.items() if spec.get("x-kind") == kind]


def read_parameters(schema: Mapping[str, object], key: str) -> Parameters:
    """Return the parameters that a JSON Schema of type object describes; `key` is where it stands, for messages.

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
    """Return a description in one line, without invisible characters and the marks of chat templates, cut to `limit`.

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
        root = self._resolve(self.root)
        if root.get("type", "object") != "object":
            raise self._refuse(f"type = {root['type']!r:.80}; allowed: object")
        properties, required = root.get("properties", {}), root.get("required", [])
        if not isinstance(properties, dict) or len(properties) > MAX_PROPERTIES:
            raise self._refuse(f"properties must be a mapping of at most {MAX_PROPERTIES} names")
        read = {name: self._read_property(name, spec) for name, spec in properties.items()}
        if not isinstance(required, list) or any(str(name) not in read for name in required):
            allowed = ", ".join(read) or "none"
            raise self._refuse(f"required = {required!r:.80}; allowed: names of properties ({allowed:.200})")
        plain = {name: {k: v for k, v in spec.items() if k != "x-kind"} for name, spec in read.items()}
        try:
            check_schema({"type": "object", "properties": plain})
        except ConfigError as error:
            raise self._refuse(str(error).removeprefix("answer schema: ")) from error
        return Parameters(read, tuple(dict.fromkeys(required)))

    def _read_property(self, name: Any, spec: Any) -> dict[str, Any]:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise self._refuse(f"the name {str(name)[:80]!r}; allowed: letters, digits, _, . and -, 64 at most")
        kind = spec.get("x-kind") if isinstance(spec, dict) else None
        if not isinstance(spec, Mapping):
            raise self._refuse(f"{str(spec)[:80]!r} is not a schema; allowed: a mapping")
        if kind is None:
            read: dict[str, Any] = self._read_part(spec, 1)
            if all(isinstance(choice, str) for choice in read.get("enum", [0])):
                read.setdefault("type", "string")
            return read
        if kind not in KINDS:
            raise self._refuse(f"properties.{name}.x-kind: {describe_unknown('kind', str(kind)[:80], KINDS)}")
        note = clean_note(spec.get("description"))
        return build_parameter(KINDS[kind]) | ({"description": note} if note else {})

    def _read_part(self, given: Any, depth: int) -> Any:
        """Return a schema as it is kept, or a value in it, with the parts that it refers to in their places."""
        self.nodes += 1
        if depth > 2 * MAX_DEPTH:  # a schema in a schema is two steps: a keyword and a name or number
            raise self._refuse(f"nested deeper than {MAX_DEPTH}, or in a circle")
        if self.nodes > MAX_NODES:
            raise self._refuse(f"more than {MAX_NODES} parts")
        if isinstance(given, list):
            return [self._read_part(item, depth + 1) for item in given]
        if isinstance(given, str):
            return self._check_text(given)
        if not isinstance(given, Mapping):
            return given
        read: dict[str, Any] = {}
        for keyword, item in self._resolve(_drop_null(self._resolve(given))).items():
            if keyword == "description":
                read |= {keyword: note} if (note := clean_note(item)) else {}
            elif keyword == "properties" and isinstance(item, Mapping):
                read[keyword] = {self._check_text(name): self._read_part(one, depth + 2) for name, one in item.items()}
            elif keyword not in _UNREAD and (keyword, item) != ("default", None):
                read[self._check_text(keyword)] = self._read_part(item, depth + 1)
        return read

    def _resolve(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Return an object of the schema; if it is a reference, what that refers to, with the keywords beside it."""
        for _ in range(MAX_DEPTH):
            reference = spec.get("$ref")
            if reference is None:
                return dict(spec)
            spec = {**self._look_up(reference), **{key: item for key, item in spec.items() if key != "$ref"}}
        raise self._refuse("its references lead in a circle")

    def _look_up(self, reference: Any) -> Mapping[str, Any]:
        found: Any = self.root if str(reference).startswith("#/") else None
        for part in str(reference).split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, Mapping) else None
        if not isinstance(found, Mapping):
            raise self._refuse(f"reference {str(reference)[:80]!r}; allowed: one inside the schema, as '#/$defs/NAME'")
        return found

    def _check_text(self, text: Any) -> str:
        if not isinstance(text, str) or len(text) > MAX_TEXT or clean(text, MAX_TEXT) != text or "\n" in text:
            raise self._refuse(f"{str(text)[:80]!r}; allowed: at most {MAX_TEXT} visible characters")
        return text

    def _refuse(self, problem: str) -> ConfigError:
        return ConfigError(f"{self.key}: {problem}", key=self.key)


def _drop_null(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a schema that also allows null, as that of an optional argument, without null: it is left out instead."""
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
