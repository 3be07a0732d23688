"""The arguments of a tool: from type hints to JSON Schema, and from what a model wrote to checked values.

A range, a choice or a note is written once, in the hint, and enforced here in words the model can act on: which
argument, what was given, what is allowed.
"""

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_origin

from jsonschema import Draft202012Validator

from viewbox.errors import ToolError, suggest_nearest
from viewbox.frozen import thaw
from viewbox.images.coordinates import Coordinates, limits, needs_size, to_unit, unit_name
from viewbox.images.view import View

T = TypeVar("T")


class Range(NamedTuple):
    """The values a number may take, ends included: `Annotated[float, Range(0.5, 4)]`; an end may be infinite."""

    low: float
    high: float


Point = Annotated[tuple[float, float], "point"]
Box = Annotated[tuple[float, float, float, float], "box"]
# A picture by name ("image_1", "view_3"): the model writes the name, the function is given the `View`.
Picture = Annotated[View, "picture"]
# An argument the environment fills in and the model never sees: `images: Hidden[Sequence[Source]]`.
Hidden = Annotated[T, "hidden"]


class Stated(tuple[float, ...]):
    """A point or box among a tool's facts, in fractions of the view: the model is told it in its own coordinates."""


_MARKS = ("point", "box", "picture", "hidden")
_NAMES_A_PICTURE = 'a picture by name: "image_1" (the first image given) or "view_3" (a picture shown since, by number)'
_TYPES = {float: "number", int: "integer", bool: "boolean", str: "string"}


def is_hidden(annotation: Any) -> bool:
    """Whether the environment gives the argument with this hint, not the model."""
    return get_origin(annotation) is Annotated and "hidden" in get_args(annotation)[1:]


def is_picture(annotation: Any) -> bool:
    """Whether the argument with this hint is a picture that the model names."""
    return get_origin(annotation) is Annotated and "picture" in get_args(annotation)[1:]


def parameter(annotation: Any) -> dict[str, Any]:
    """JSON Schema of an argument with this hint, points and boxes marked by "x-kind"; a plain string is its note.

    >>> parameter(Annotated[int, Range(1, 5), "how often"])
    {'type': 'integer', 'minimum': 1, 'maximum': 5, 'description': 'how often'}
    """
    if get_origin(annotation) is Annotated:
        base, *notes = get_args(annotation)
        kind = next((note for note in notes if note in ("point", "box", "picture")), None)
        spec = _kind(kind) if kind else parameter(base)
        for note in notes:
            if isinstance(note, Range):
                ends = {"minimum": note.low, "maximum": note.high}
                spec |= {key: end for key, end in ends.items() if math.isfinite(end)}
            elif isinstance(note, str) and note not in _MARKS:
                spec["description"] = note
        return spec
    if get_origin(annotation) is Literal:
        choices = get_args(annotation)
        return {"type": _TYPES[type(choices[0])], "enum": list(choices)}
    inner = [item for item in get_args(annotation) if item is not type(None)]
    if inner and len(inner) < len(get_args(annotation)):  # X | None
        return parameter(inner[0])
    if annotation not in _TYPES:
        allowed = "float, int, bool, str, Literal, Point, Box, Picture, each perhaps `| None`, or Hidden"
        raise TypeError(f"{annotation!r} is no type of an argument; allowed: {allowed}")
    return {"type": _TYPES[annotation]}


def _kind(kind: str) -> dict[str, Any]:
    if kind == "picture":
        return {"type": "string", "x-kind": kind}
    length = 2 if kind == "point" else 4
    return {"type": "array", "items": {"type": "number"}, "minItems": length, "maxItems": length, "x-kind": kind}


def stated(spec: Mapping[str, Any], coordinates: Coordinates) -> dict[str, Any]:
    """A parameter's schema as a model is told it: points and boxes in `coordinates`, pictures by name."""
    kind = spec.get("x-kind")
    told = {key: value for key, value in spec.items() if key != "x-kind"}
    if kind == "picture":
        told["description"] = ": ".join(filter(None, (spec.get("description"), _NAMES_A_PICTURE)))
    elif kind:
        written = f"{'[x, y]' if kind == 'point' else '[x1, y1, x2, y2]'} in {unit_name(coordinates)}"
        told["description"] = f"{spec['description']}: {written}" if "description" in spec else written
        if not needs_size(coordinates):
            top = limits(coordinates, (1, 1))[0]
            told["items"] = {"type": "number", "minimum": 0, "maximum": int(top)}
    return told


def checked(given: Any, spec: Mapping[str, Any], what: str, coordinates: Coordinates, size: tuple[int, int]) -> Any:
    """A checked value, a point or box as fractions of the view; `what` ("zoom: factor") begins every `ToolError`.

    >>> checked(2.0, {"type": "integer"}, "rotate: times", "unit", (64, 64))
    2
    >>> checked("sobell", {"type": "string", "enum": ["sobel", "laplacian"]}, "detect_edges: method", "unit", (64, 64))
    Traceback (most recent call last):
    viewbox.errors.ToolError: detect_edges: method = "sobell": allowed: sobel, laplacian (did you mean 'sobel'?)
    """
    value, kind = thaw(given), spec.get("x-kind")
    if not _finite(value):
        raise ToolError(f"{what} must be finite")
    bare = {key: item for key, item in spec.items() if key != "x-kind"}
    # Most calls: a validator takes longer than a tool that reads.
    words = isinstance(value, str) and spec["type"] == "string" and "enum" not in spec
    plain = words or ("minItems" in spec and _numbers(value, spec["minItems"]))
    problem = None if plain else next(iter(Draft202012Validator(bare).iter_errors(value)), None)
    if problem is not None:
        raise ToolError(f"{what} = {json.dumps(value, default=str)[:80]}: {_words(problem, spec, value)}")
    if kind in ("point", "box"):
        return to_unit(value, coordinates, size, what)
    if spec["type"] == "integer":
        return int(value)
    return float(value) if spec["type"] == "number" else value


def _numbers(value: Any, count: int) -> bool:
    return isinstance(value, list) and len(value) == count and all(type(item) in (int, float) for item in value)


def _finite(value: Any) -> bool:
    """Whether a float can hold every number in `value`."""
    if isinstance(value, list):
        return all(_finite(item) for item in value)
    try:
        return not isinstance(value, int | float) or math.isfinite(value)
    except OverflowError:
        return False


def _words(problem: Any, spec: Mapping[str, Any], value: Any) -> str:
    if problem.validator in ("minimum", "maximum"):
        return f"out of range; allowed: {between(spec)}"
    if problem.validator == "enum" or "enum" in spec:
        return f"allowed: {', '.join(map(str, spec['enum']))}{suggest_nearest(value, map(str, spec['enum']))}"
    if spec.get("x-kind") in ("point", "box"):
        return f"a {spec['x-kind']} is {2 if spec['x-kind'] == 'point' else 4} numbers"
    words = between(spec)
    return f"must be of type {spec['type']}" + (f"; allowed: {words}" if words else "")


def between(spec: Mapping[str, Any]) -> str:
    """The range of a number in words; nothing where it has none.

    >>> between({"minimum": 0.5, "maximum": 4}), between({"minimum": 0}), between({})
    ('0.5 to 4', 'at least 0', '')
    """
    low, high = spec.get("minimum"), spec.get("maximum")
    if low is not None and high is not None:
        return f"{low:g} to {high:g}"
    if low is not None:
        return f"at least {low:g}"
    return f"at most {high:g}" if high is not None else ""
