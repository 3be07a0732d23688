"""The arguments of a tool: from type hints to JSON Schema, and from what a model wrote to checked values.

A range, a choice or a note is written once, in the hint, and enforced here. Errors name the argument, what was given
and what is allowed, so that the model can correct its call.
"""

import math
import sys
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_origin

from ..errors import ArgumentError, show_json
from ..images.coordinates import Coordinates, describe_unit, get_limits, needs_size, refuse_fractions, to_unit
from ..images.view import View
from ..utils.field_paths import is_number_list
from ..utils.frozen import thaw
from ..utils.json_schema import find_violation

T = TypeVar("T")


class Range(NamedTuple):
    """The values that a number may take, ends included: `Annotated[float, Range(0.5, 4)]`; an end may be infinite."""

    low: float
    high: float


class ViewFractions(tuple[float, ...]):
    """A point or box in fractions of the view. Among a tool's facts, the model reads it in its own coordinates.
    Arguments that are points or boxes are `ViewFractions` already; a tool wraps those that it computes."""


Point = Annotated[tuple[float, float], "point"]
Box = Annotated[tuple[float, float, float, float], "box"]
# A picture by name ("image_1", "view_3"): the model writes the name, the function receives the `View`.
Picture = Annotated[View, "picture"]
# An image of the task by name. The function receives the name, which `find_named` reads.
ImageName = Annotated[str, 'name of the image, such as "image_2"']
# An argument that the environment fills in and the model never sees: `images: Hidden[Sequence[Source]]`.
Hidden = Annotated[T, "hidden"]

Spec = Mapping[str, Any]  # JSON Schema of an argument
_KINDS = ("point", "box", "picture")
_PICTURE_NOTE = 'a picture by name: "image_1" (the first image given) or "view_3" (a picture shown since, by number)'
_PLAIN_TEXT = {"type", "description", "default", "x-kind"}  # keys beside which any text is allowed
_TYPES: dict[Any, str] = {float: "number", int: "integer", bool: "boolean", str: "string"}


def is_hidden(annotation: object) -> bool:
    """Return whether the environment, not the model, fills in the argument with this hint."""
    return get_origin(annotation) is Annotated and "hidden" in get_args(annotation)[1:]


def is_picture(annotation: object) -> bool:
    """Return whether the argument with this hint is a picture that the model names."""
    return get_origin(annotation) is Annotated and "picture" in get_args(annotation)[1:]


def build_parameter(annotation: object) -> dict[str, Any]:
    """JSON Schema of an argument with this hint; "x-kind" marks points, boxes and pictures.
    A plain string among the annotations is the description.

    >>> build_parameter(list[str])
    {'type': 'array', 'items': {'type': 'string'}}
    >>> build_parameter(Annotated[int, Range(1, 5), "how often"])
    {'type': 'integer', 'minimum': 1, 'maximum': 5, 'description': 'how often'}
    """
    if get_origin(annotation) is Annotated:
        base, *notes = get_args(annotation)
        kind = next((note for note in notes if note in _KINDS), None)
        spec = _build_kind(kind) if kind else build_parameter(base)
        for note in notes:
            if isinstance(note, Range):
                ends = {"minimum": note.low, "maximum": note.high}
                spec |= {key: end for key, end in ends.items() if math.isfinite(end)}
            elif isinstance(note, str) and note not in (*_KINDS, "hidden"):
                spec["description"] = note
        return spec
    if get_origin(annotation) is Literal:
        choices = get_args(annotation)
        return {"type": _TYPES[type(choices[0])], "enum": list(choices)}
    if get_origin(annotation) is list:
        (item,) = get_args(annotation)
        if not isinstance(item, type) or item not in _TYPES:
            allowed = "a list of float, int, bool or str"
            raise TypeError(f"{annotation!r} cannot be the type of an argument; allowed: {allowed}")
        return {"type": "array", "items": {"type": _TYPES[item]}}
    inner = [item for item in get_args(annotation) if item is not type(None)]
    if inner and len(inner) < len(get_args(annotation)):  # X | None
        return build_parameter(inner[0])
    if annotation not in _TYPES:
        allowed = "float, int, bool, str, Literal, list, Point, Box, Picture (each may be `| None`), or Hidden"
        raise TypeError(f"{annotation!r} cannot be the type of an argument; allowed: {allowed}")
    return {"type": _TYPES[annotation]}


def _build_kind(kind: str) -> dict[str, Any]:
    if kind == "picture":
        return {"type": "string", "x-kind": kind}
    length = 2 if kind == "point" else 4
    return {"type": "array", "items": {"type": "number"}, "minItems": length, "maxItems": length, "x-kind": kind}


def describe_parameter(spec: Spec, coordinates: Coordinates) -> dict[str, Any]:
    """Return a parameter's schema as the model reads it: points and boxes in `coordinates`, pictures by name."""
    kind = spec.get("x-kind")
    described = {key: value for key, value in spec.items() if key != "x-kind"}
    if kind == "picture":
        described["description"] = ": ".join(filter(None, (spec.get("description"), _PICTURE_NOTE)))
    elif kind:
        form = f"{'[x, y]' if kind == 'point' else '[x1, y1, x2, y2]'} in {describe_unit(coordinates)}"
        described["description"] = "; ".join(filter(None, (form, spec.get("description"))))
        if not needs_size(coordinates):
            top = get_limits(coordinates, (1, 1))[0]
            described["items"] = {"type": "number", "minimum": 0, "maximum": int(top)}
    return described


def is_null_text(value: Any, spec: Spec) -> bool:
    """Return whether a model wrote "null" or "none" as text for an argument that is not free text.

    >>> is_null_text("null", {"type": "array", "x-kind": "box"}), is_null_text("null", {"type": "string"})
    (True, False)
    """
    if not isinstance(value, str) or value.strip().lower() not in ("null", "none"):
        return False
    return spec.get("type") != "string" or spec.get("x-kind") == "picture" or value not in spec.get("enum", [value])


def check_value(given: Any, spec: Spec, label: str, coordinates: Coordinates, size: tuple[int, int]) -> Any:
    """Return the value that the schema `spec` allows; a point or box as fractions of the view of `size` pixels.
    Raise `ArgumentError`, which begins with `label` ("zoom: factor").

    >>> check_value(2.0, {"type": "integer"}, "rotate: times", "unit", (64, 64))
    2
    >>> check_value("sobell", {"type": "string", "enum": ["sobel", "scharr"]}, "edges: method", "unit", (64, 64))
    Traceback (most recent call last):
    viewbox.errors.ArgumentError: edges: method = "sobell": allowed: "sobel", "scharr" (did you mean "sobel"?)
    """
    value, kind = thaw(given), spec.get("x-kind")
    if not _is_finite(value):
        raise ArgumentError(f"{label} must be finite")
    # Most calls skip the validator: it takes longer than a tool that only reads.
    is_text = isinstance(value, str) and spec.keys() <= _PLAIN_TEXT and spec["type"] == "string"
    is_place = kind in ("point", "box") and is_number_list(value, spec["minItems"])
    if not is_text and not is_place:
        problem = find_violation(value, {key: item for key, item in spec.items() if key != "x-kind"})
        if problem is not None and kind in ("point", "box"):
            raise ArgumentError(f"{label} = {show_json(value)}: a {kind} is {spec['minItems']} numbers")
        if problem is not None:
            path = f"{label}.{problem.path}".replace(".[", "[") if problem.path else label
            raise ArgumentError(str(problem._replace(path=path)))
    if kind in ("point", "box"):
        refuse_fractions(value, coordinates, size, label)
        return ViewFractions(to_unit(value, coordinates, size, label))
    if spec.get("type") == "integer":
        return int(value)
    return float(value) if spec.get("type") == "number" else value


def _is_finite(value: Any) -> bool:
    """Return whether a float can hold every number in `value`."""
    if isinstance(value, list):
        return all(_is_finite(item) for item in value)
    if isinstance(value, dict):
        return all(_is_finite(item) for item in value.values())
    return not isinstance(value, int | float) or abs(value) <= sys.float_info.max
