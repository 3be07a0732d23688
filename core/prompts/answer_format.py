"""Describes the answer format in prompts. It is made from the answer's JSON Schema, so the two always agree.

The first line is JSON with a placeholder for every value, also in nested objects and lists. A further line follows for
each field that needs one: its meaning, whether it may be left out, and the allowed numbers.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...images.task_images import name_image
from ...utils.field_paths import BoxPath
from ...utils.json_schema import describe_range, find_reference
from ..parsing.objects import AnswerFields

BOX = "[x1, y1, x2, y2]"
BOX_3D = "[x1, y1, z1, x2, y2, z2]"
NONE: Mapping[str, Any] = {}
DEEPEST = 8  # levels of nested objects and lists; deeper ones are left empty
COMPOUND = ("allOf", "anyOf", "oneOf")


@dataclass(frozen=True)
class AnswerFormat:
    """The form of an environment's answers: as JSON Schema, for the parser, in words for a prompt, and its keys.
    Of plain text answers, `schema` and `fields` are None and there are no keys."""

    schema: Mapping[str, Any] | None
    fields: AnswerFields | None
    text: str
    keys: list[str]

    @classmethod
    def of(
        cls,
        schema: Mapping[str, Any] | None,
        boxes: Sequence[str] = (),
        boxes_3d: Sequence[str] = (),
        *,
        image_field: str | None = None,
        turns: bool = True,
    ) -> "AnswerFormat":
        """Derive all of it from the schema and the fields that hold boxes; `image_field` names a box's image."""
        if schema is None:
            return cls(None, None, describe_answer_format(None), [])
        fields, parsed = AnswerFields.from_schema(schema), [BoxPath.parse(path) for path in boxes]
        lengths = {**dict.fromkeys(boxes_3d, 6), **{box.field: 4 for box in parsed if not box.is_list}}
        fields = replace(fields, lengths=tuple({**dict(fields.lengths), **lengths}.items()))
        shown = schema
        if image_field is not None:  # the model writes the name, which the schema has as a number
            properties = schema["properties"]
            image_schema = {
                key: properties[image_field][key]
                for key in ("description", "default")
                if key in properties[image_field]
            }
            shown = {**schema, "properties": {**properties, image_field: {**image_schema, "const": name_image(0)}}}
        text = describe_answer_format(shown, boxes, boxes_3d, turns=turns)
        return cls(schema, fields, text, [*schema.get("properties", {}), "continue"])


def describe_answer_format(
    schema: Mapping[str, Any] | None, boxes: Sequence[str] = (), boxes_3d: Sequence[str] = (), *, turns: bool = True
) -> str:
    """Return the answer format of a JSON Schema, with the schema's examples, or else placeholders.
    `boxes` are the paths of boxes (`field_paths.py`), `boxes_3d` those of boxes of a volume. `turns` adds the key
    `continue`, for episodes of several turns.

    >>> fields = {"label": {"enum": ["cat", "dog"]}, "where": {"type": "array"}}
    >>> describe_answer_format({"properties": fields}, ["where"])
    '{"label": "cat|dog", "where": [x1, y1, x2, y2], "continue": false}'
    >>> name = {"type": "string", "description": "what is seen"}
    >>> finding = {"properties": {"name": name, "size": {"type": "number", "minimum": 0}}, "required": ["name"]}
    >>> print(describe_answer_format({"properties": {"findings": {"type": "array", "items": finding}}}, turns=False))
    {"findings": [{"name": "…", "size": 0.0}]}
    findings[].name: what is seen
    findings[].size: may be left out; at least 0
    """
    if schema is None:
        return "plain text"
    shape = _FormatShape(schema)
    filled = shape.fill(schema)
    filled = filled if isinstance(filled, dict) else {}
    for path in boxes:
        filled |= fill_path(path, filled, "<box>")
    for path in boxes_3d:
        filled |= fill_path(path, filled, "<box 3d>")
    if turns:
        filled["continue"] = False
    line = json.dumps(filled, ensure_ascii=False).replace('"<box>"', BOX).replace('"<box 3d>"', BOX_3D)
    return "\n".join([line, *shape.build_notes(schema)])


def fill_path(path: str, filled: Mapping[str, Any], box: str) -> dict[str, object]:
    """Return the field of a box's path, with a placeholder for the box.

    >>> fill_path("items[].box", {"items": [{"label": "…", "box": [0.0]}]}, "<box>")
    {'items': [{'label': '…', 'box': '<box>'}]}
    """
    field, is_list, key = BoxPath.parse(path)
    if not is_list:
        return {field: box}
    item: Any = next(iter(filled.get(field) or ()), {})
    return {field: [{**(item if isinstance(item, dict) else {}), key: box} if key else box]}


@dataclass(frozen=True)
class _Spec:
    """A schema after its references were followed. `nullable`: null is allowed too. `names`: the references."""

    own: Mapping[str, Any]
    nullable: bool
    names: frozenset[str]

    @property
    def kind(self) -> str:
        if "type" in self.own:
            return str(self.own["type"])
        return next((kind for key, kind in _TELLING.items() if key in self.own), "string")

    @property
    def takes_null(self) -> bool:
        """Whether null must be written where there is no value: the field cannot be left out instead."""
        return "default" not in self.own and (self.nullable or None in self.own.get("enum", ()))

    @property
    def fields(self) -> Mapping[str, Any]:
        return self.own.get("properties", NONE) if self.kind == "object" else NONE


_TELLING = {"properties": "object", "items": "array", "prefixItems": "array"}


class _FormatShape:
    """A schema with its definitions. A schema that contains itself is not expanded."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root

    def resolve(self, given: object) -> _Spec:
        """Return the resolved schema: the first choice of `anyOf` that is not null. Outer keys override inner ones."""
        schema, nullable, names = given if isinstance(given, Mapping) else NONE, False, set()
        for _ in range(DEEPEST):  # a reference may lead to itself
            name = str(schema.get("$ref", ""))
            choices = (
                [find_reference(self.root, name) or NONE]
                if name
                else [alternative for key in COMPOUND for alternative in schema.get(key, ())]
            )
            choices = [choice for choice in choices if isinstance(choice, Mapping)]
            if not choices:
                break
            names |= {name} if name else set()
            nullable |= any(choice.get("type") == "null" for choice in choices)
            first = next((choice for choice in choices if choice.get("type") != "null"), NONE)
            schema = {**first, **{key: value for key, value in schema.items() if key not in ("$ref", *COMPOUND)}}
        kinds = schema.get("type")
        if isinstance(kinds, list | tuple):
            nullable |= "null" in kinds
            schema = {**schema, "type": next((kind for kind in kinds if kind != "null"), "null")}
        return _Spec(schema, nullable, frozenset(names))

    def fill(self, given: object, within: frozenset[str] = frozenset({"#"}), depth: int = 0) -> object:
        """Return an example value or a placeholder for a schema. `within` are the references that enclose it."""
        spec = self.resolve(given)
        own, inside = spec.own, within | spec.names
        if own.get("examples"):
            return own["examples"][0]
        if "const" in own:
            return own["const"]
        if own.get("enum"):
            words = [choice for choice in own["enum"] if choice is not None]
            if words and _are_strings(words):
                return "|".join([*words, "null"] if spec.takes_null else words)
            return own["enum"][0]
        deeper = depth < DEEPEST and not spec.names & within
        if spec.kind == "object":
            return {name: self.fill(item, inside, depth + 1) for name, item in spec.fields.items()} if deeper else {}
        if spec.kind == "array":
            items = [*own.get("prefixItems", ())] or [own.get("items")] * max(1, min(4, own.get("minItems", 1)))
            known = [item for item in items if isinstance(item, Mapping) and not self.resolve(item).names & inside]
            return [self.fill(item, inside, depth + 1) for item in known] if deeper else []
        return {"number": 0.0, "integer": 0, "boolean": False, "null": None}.get(spec.kind, "…")

    def build_notes(self, given: object, path: str = "", within: frozenset[str] = frozenset({"#"})) -> Iterator[str]:
        """Yield a line for each field, at any depth, that the placeholder does not fully describe."""
        spec = self.resolve(given)
        inside = within | spec.names
        if spec.names & within or path.count(".") + path.count("[") >= DEEPEST:
            return
        if spec.kind == "array":
            yield from self.build_notes(spec.own.get("items"), f"{path}[]", inside)
        for name, value in spec.fields.items():
            field, here = self.resolve(value), f"{path}.{name}" if path else name
            words = [
                " ".join(str(field.own.get("description") or "").split()).rstrip("."),
                *_describe_presence(field, name, spec.own.get("required")),
                *(_describe_choices(field) or [describe_range(field.own)]),
            ]
            if any(words):
                yield f"{here}: {'; '.join(filter(None, words))}"
            yield from self.build_notes(value, here, inside)


def _are_strings(values: Sequence[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _describe_presence(field: _Spec, name: str, required: Sequence[str] | None) -> list[str]:
    if "default" in field.own or (required is not None and name not in required):
        return ["may be left out"]
    return ["may be null"] if field.nullable and not field.own.get("enum") else []


def _describe_choices(field: _Spec) -> list[str]:
    """Return the allowed values that the placeholder does not show as they are written."""
    choices = [choice for choice in field.own.get("enum", ()) if choice is not None]
    if not choices or (_are_strings(choices) and not field.takes_null):
        return []
    *first, last = [json.dumps(choice, ensure_ascii=False) for choice in [*choices, *([None] * field.takes_null)]]
    return [f"{', '.join(first)} or {last}" if first else last]
