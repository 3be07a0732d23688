"""What `http` and `mcp` share: the parameters of a tool by JSON Schema, what a call sends, and how a reply is read.

A schema of a server is text of a stranger that ends in a prompt, and a program that runs on a model's arguments. So its
size and depth are bounded, its references are put in their place (one that leads outside it is refused), and its
descriptions are cleaned and cut. `x-kind: picture`, `point` or `box` marks a property that the model writes as it
writes those of other tools.

A server may say anything. Numbers that are no box of the picture, a mask of another size and a picture that cannot be
decoded are a fault of the server's. Pictures are decoded in other processes (`images.files`).
"""

import base64
import binascii
import math
import re
import struct
from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from ...configs.sections import Section
from ...errors import ConfigError, ImageError, ToolError, ToolFault, describe_unknown
from ...images.coordinates import to_unit
from ...images.files import open_image
from ...images.masks import choose_inside
from ...images.ref import ImageRef
from ...images.source import Source
from ...images.view import WHOLE, View
from ...utils.field_paths import convert_at
from ...utils.frozen import thaw
from ...utils.json_schema import check_schema, find_reference
from ...utils.sanitize import clean, replace_surrogates
from ...utils.secrets import mask_text, mask_values
from ...utils.values import to_finite_float
from ..arguments import Box, Picture, Point, ViewFractions, build_parameter
from ..builtin.drawing import COLORS, draw_mask, find_mask_box
from ..calling import MAX_CHARACTERS, ToolOutput
from ..tool import Tool, is_tool_name

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
    """Return the parameters that a JSON Schema of type object describes; `key` is where it stands, for messages. Raise
    `ConfigError` if it is too large or too deep, refers outside itself, or cannot be checked in bounded time.

    >>> scale = {"anyOf": [{"$ref": "#/$defs/Scale"}, {"type": "null"}], "title": "Scale"}
    >>> found = read_parameters({"properties": {"scale": scale, "image": {"x-kind": "picture"}},
    ...     "required": ["image"], "$defs": {"Scale": {"type": "number", "minimum": 0}}}, "parameters")
    >>> dict(found.properties), found.required
    ({'scale': {'type': 'number', 'minimum': 0}, 'image': {'type': 'string', 'x-kind': 'picture'}}, ('image',))
    """
    return _SchemaReader(schema, key).read()


def clean_note(text: object, limit: int = MAX_NOTE) -> str:
    """Return a description in one line, without invisible characters and the marks of chat templates, cut to `limit`.

    >>> clean_note("Counts\\n  nodules.\\u200b<|im_end|>")
    'Counts nodules.< |im_end|>'
    """
    return " ".join(clean(text, limit).split()) if isinstance(text, str) else ""


class _SchemaReader:
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
            target = find_reference(self.root, str(reference)) if str(reference).startswith("#/") else None
            if not isinstance(target, Mapping):
                allowed = "allowed: one inside the schema, as '#/$defs/NAME'"
                raise self._refuse(f"reference {str(reference)[:80]!r}; {allowed}")
            spec = {**target, **{key: item for key, item in spec.items() if key != "$ref"}}
        raise self._refuse("its references lead in a circle")

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
        left = [kind for kind in spec["type"] if kind != "null"]
        return {**spec, "type": left[0] if len(left) == 1 else left}
    return spec


MAX_MASKS = 100  # of a reply
MAX_PICTURE = 2**26  # pixels of a picture that a server sends
PNG, JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"

Unit = Literal["fraction", "pixel"]
Form = Literal["data_url", "base64"]
FieldName = Annotated[str, Field(min_length=1)]


class Returns(Section):
    """What the fields of a server's reply mean; every other field is a fact.

    A path of boxes, points or masks is a field (`box`), a list (`boxes[]`), or a key in a list of objects
    (`findings[].box`)."""

    text: Annotated[FieldName | None, Field(description="the field with the text that the model reads")] = None
    image: Annotated[FieldName | None, Field(description="the field with a picture to show: a PNG as Base64")] = None
    mask: Annotated[
        FieldName | None,
        Field(
            description="the field with a mask of the picture, or the path of several: a PNG as Base64, or rows of 0 "
            "and 1; it is drawn"
        ),
    ] = None
    boxes: Annotated[tuple[FieldName, ...], Field(description="paths of boxes [x1, y1, x2, y2]")] = ()
    points: Annotated[tuple[FieldName, ...], Field(description="paths of points [x, y]")] = ()


def build_remote_tool(name: str, function: Any, parameters: Parameters, words: str, max_calls: int | None) -> Tool:
    """Return a stateless tool whose coroutine function takes these parameters; raise `TypeError` for a name that is
    none."""
    if not is_tool_name(name):
        raise TypeError(f"{name!r} is not a tool name; allowed: letters, digits, _ and -")
    return Tool(
        name,
        function,
        words,
        parameters.properties,
        required=parameters.required,
        defaults={key: spec["default"] for key, spec in parameters.properties.items() if "default" in spec},
        max_calls=max_calls,
        takes_pictures=bool(parameters.get_names("picture")),
        stateful=False,
        is_async=True,
    )


def check_places(parameters: Parameters, returns: Returns, key: str) -> None:
    """Raise `ConfigError` if a point, box or mask would have no picture that it refers to."""
    takes = parameters.get_names("point") + parameters.get_names("box")
    if parameters.get_names("picture") or not (takes or returns.mask or returns.boxes or returns.points):
        return
    what = f"properties.{takes[0]} is a place" if takes else "returns names a box, point or mask"
    raise ConfigError(f"{key}: {what} in no picture; allowed: a property with `x-kind: picture` beside it", key=key)


def find_picture(parameters: Parameters, arguments: Mapping[str, Any]) -> View | None:
    """Return the first picture of a call, in which its points and boxes lie."""
    return next((arguments[name] for name in parameters.get_names("picture") if name in arguments), None)


def encode_arguments(
    parameters: Parameters, arguments: Mapping[str, Any], *, unit: Unit, form: Form
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the arguments of a call in JSON's types, and its pictures as PNG by name."""
    view, pictures = find_picture(parameters, arguments), {}
    plain: dict[str, Any] = {}
    for name, value in arguments.items():
        if isinstance(value, View):
            picture = ImageRef.of(value.to_uint8())  # without letters, which a model would take for anatomy
            pictures[name] = picture.to_data_url()
            if form == "base64":
                pictures[name] = pictures[name].partition(",")[2]
        elif isinstance(value, ViewFractions):
            sides = view.size if view is not None and unit == "pixel" else (1, 1)
            plain[name] = [share * sides[place % 2] for place, share in enumerate(value)]
        else:
            plain[name] = value
    return plain, pictures


def read_reply(reply: Mapping[str, object], returns: Returns, unit: Unit, view: View | None, name: str) -> ToolOutput:
    """Return the reply of a server as the output of the tool `name`, whose call had the picture `view`. Raise
    `ToolFault` if a field does not hold what `returns` says."""
    facts = dict(reply)
    colors = islice(cycle(COLORS), MAX_MASKS)
    drawn: np.ndarray | None = None
    words: list[str] = []  # what was assumed of the masks

    def measure(value: Any, place: str) -> dict[str, Any] | None:
        nonlocal drawn
        if value is None or view is None:
            return None
        if (color := next(colors, None)) is None:
            raise ToolError(f"{place} is one mask too many; allowed: {MAX_MASKS}")
        inside, measured = _read_mask(value, view, place)
        drawn = draw_mask(view.to_picture() if drawn is None else drawn, inside, COLORS[color])
        words.extend(filter(None, (measured,)))
        box = find_mask_box(inside)
        named = {"color": color} if "[]" in str(returns.mask) else {}
        return {**named, "share": float(inside.mean()), "box": box and ViewFractions(box)}

    try:
        for path in returns.boxes:
            facts = convert_at(facts, path, lambda value, place: _read_place(value, 4, unit, view, place))
        for path in returns.points:
            facts = convert_at(facts, path, lambda value, place: _read_place(value, 2, unit, view, place))
        text = facts.pop(returns.text, None) if returns.text else None
        if not isinstance(text, str | None):
            raise ToolError(f"{returns.text} is not text")
        picture = facts.pop(returns.image, None) if returns.image else None
        if returns.mask:
            facts = convert_at(facts, returns.mask, measure)
        image: Source | np.ndarray | None = None if picture is None else read_picture(picture, str(returns.image))
        beside: Sequence[tuple[View, Sequence[float]]] = ()
        text = "; ".join(filter(None, (text, *words)))
        if image is None and drawn is not None and view is not None:
            image, beside = drawn, ((view, WHOLE),)
    except ToolError as error:
        raise ToolFault(f"{name} gave a reply that cannot be used: {error}") from None
    return ToolOutput(clean_text(text), mask_values(facts), image, beside=beside)


def clean_text(text: str) -> str:
    """Return a server's text without the keys of this process and halves of characters, cut to what is stored at
    most."""
    return replace_surrogates(mask_text(text[:MAX_CHARACTERS]))


def read_picture(value: object, place: str, formats: Sequence[bytes] = (PNG,)) -> Source:
    """Return a picture that a server sent as Base64 or as a data URL; raise `ToolError`, which names the place.
    `formats` are the first bytes of the files that are allowed."""
    if not isinstance(value, str):
        raise ToolError(f"{place} is no picture: a {type(value).__name__}; expected: a PNG as Base64")
    text = value.partition(",")[2] if value.startswith("data:") else value
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ToolError(f"{place} is not Base64") from None
    return decode_picture(content, place, formats)


def decode_picture(content: bytes, place: str, formats: Sequence[bytes] = (PNG, JPEG)) -> Source:
    """Return the file of a picture, decoded in another process; raise `ToolError`, which names the place."""
    if not content.startswith(tuple(formats)):
        expected = "PNG or JPEG" if JPEG in formats else "PNG"
        raise ToolError(f"{place} is a picture of another format; expected: {expected}")
    if content.startswith(PNG) and len(content) >= 24 and math.prod(struct.unpack(">II", content[16:24])) > MAX_PICTURE:
        raise ToolError(f"{place} has more than {MAX_PICTURE} pixels")
    try:
        return open_image(content)
    except ImageError as error:
        raise ToolError(f"{place} cannot be decoded ({error})") from None


def _read_place(value: Any, length: int, unit: Unit, view: View | None, place: str) -> ViewFractions | None:
    """Return a point or box of a reply as fractions of the picture; None if the reply has none."""
    if value is None:
        return None
    is_list = isinstance(value, list | tuple) and len(value) == length
    if not is_list or any(to_finite_float(number) is None for number in value):
        raise ToolError(f"{place} is not {length} numbers")
    size = view.size if view is not None else (1, 1)
    fractions = ViewFractions(to_unit(value, "pixel" if unit == "pixel" else "unit", size, place))
    if length == 4 and not (fractions[0] <= fractions[2] and fractions[1] <= fractions[3]):
        raise ToolError(f"{place} ends before it begins; expected: [x1, y1, x2, y2]")
    return fractions


def _read_mask(value: Any, view: View, place: str) -> tuple[np.ndarray, str]:
    """Return a mask as bool (height, width) of the picture, and of a PNG, what is inside; raise `ToolError` if it is of
    another size."""
    width, height = view.size
    if isinstance(value, list):
        rows = [row if isinstance(row, list) and len(row) == width else None for row in value[: height + 1]]
        if len(value) != height or None in rows:
            raise ToolError(f"{place} is not a mask of the picture: {height} rows of {width} numbers are expected")
        if any(pixel not in (0, 1) for row in rows for pixel in row or ()):
            raise ToolError(f"{place} is not a mask: its numbers are not all 0 or 1")
        return np.array(rows, dtype=bool), ""
    source = read_picture(value, place)
    if source.size != view.size:
        sides = "{}x{}".format(*source.size)
        raise ToolError(f"{place} is a mask of {sides} pixels; the picture is of {width}x{height}")
    rule = choose_inside(source)
    return rule.find(source), f"inside of {place}: {rule.words}"
