"""Tools as the model sees them: a name, a docstring, a JSON Schema; and the one place that checks arguments.

A tool is a small function of (view, arguments). Its schema comes from its type hints, so a range is written once and
enforced here, in words the model can act on. Points and boxes are declared as such and arrive as fractions of the
current view, whatever convention the environment speaks.
"""

import inspect
import json
import logging
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from jsonschema import Draft202012Validator

from viewbox.envs.coordinates import Coordinates, limits, to_unit, unit_name
from viewbox.envs.frozen import thaw
from viewbox.envs.image import View
from viewbox.envs.types import ImageRef, ToolResult
from viewbox.errors import ToolError, unknown

log = logging.getLogger("viewbox.envs")


class Range(NamedTuple):
    """The values a number may take, ends included: `Annotated[float, Range(0.5, 4)]`."""

    low: float
    high: float


Point = Annotated[tuple[float, float], "point"]
Box = Annotated[tuple[float, float, float, float], "box"]


@dataclass(frozen=True)
class Outcome:
    """What a tool function returns: the new view (None: it only reads) and the numbers it found."""

    view: View | None
    description: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Tool:
    """A registered tool: its function and what the model is told about it."""

    name: str
    run: Callable[..., Outcome]
    description: str
    parameters: Mapping[str, Mapping[str, Any]]  # JSON Schema of each, with "x-kind" on points and boxes
    required: tuple[str, ...]

    def schema(self, coordinates: Coordinates = "unit") -> dict[str, Any]:
        """The tool in the OpenAI function format, points and boxes stated in `coordinates`."""
        properties = {name: _stated(spec, coordinates) for name, spec in self.parameters.items()}
        parameters = {"type": "object", "properties": properties, "required": list(self.required)}
        function = {"name": self.name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": function}

    def arguments(self, given: Mapping[str, Any], coordinates: Coordinates, size: tuple[int, int]) -> dict[str, Any]:
        """Checked arguments, points and boxes as fractions of the view; raises `ToolError` naming the argument."""
        for name in given:
            if name not in self.parameters:
                raise ToolError(unknown(f"argument of {self.name}", str(name), self.parameters))
        checked: dict[str, Any] = {}
        for name, spec in self.parameters.items():
            if name not in given or given[name] is None:
                if name in self.required:
                    raise ToolError(f"{self.name}: argument {name!r} is missing")
                continue
            kind, value = spec.get("x-kind"), thaw(given[name])
            bare = {key: item for key, item in spec.items() if key != "x-kind"}
            if not _finite(value):
                raise ToolError(f"{self.name}: {name} must be finite")
            problem = next(iter(Draft202012Validator(bare).iter_errors(value)), None)
            if problem is not None:
                raise ToolError(f"{self.name}: {name} = {json.dumps(value, default=str)[:80]}: {_words(problem, spec)}")
            if kind:
                value = to_unit(value, coordinates, size, f"{self.name}: {name}")
            elif spec.get("type") == "integer":
                value = int(value)
            elif spec.get("type") == "number":
                value = float(value)
            checked[name] = value
        return checked


def _stated(spec: Mapping[str, Any], coordinates: Coordinates) -> dict[str, Any]:
    kind = spec.get("x-kind")
    stated = {key: value for key, value in spec.items() if key != "x-kind"}
    if kind:
        corners = "[x, y]" if kind == "point" else "[x1, y1, x2, y2]"
        stated["description"] = f"{corners} in {unit_name(coordinates)}"
        if coordinates != "pixel":
            top = limits(coordinates, (1, 1))[0]
            stated["items"] = {"type": "number", "minimum": 0, "maximum": int(top)}
    return stated


def _finite(value: Any) -> bool:
    """Whether a float can hold every number in `value`."""
    if isinstance(value, list):
        return all(_finite(item) for item in value)
    try:
        return not isinstance(value, int | float) or math.isfinite(value)
    except OverflowError:
        return False


def _words(problem: Any, spec: Mapping[str, Any]) -> str:
    if problem.validator in ("minimum", "maximum") and "minimum" in spec:
        return f"out of range; allowed: {spec['minimum']:g} to {spec['maximum']:g}"
    if problem.validator == "enum":
        return f"allowed: {', '.join(map(str, spec['enum']))}"
    if spec.get("x-kind"):
        return f"a {spec['x-kind']} is {2 if spec['x-kind'] == 'point' else 4} numbers"
    return f"must be of type {spec.get('type')}"


def _parameter(hint: Any) -> dict[str, Any]:
    if get_origin(hint) is Annotated:
        base, *notes = get_args(hint)
        if "point" in notes or "box" in notes:
            kind = "point" if "point" in notes else "box"
            length = 2 if kind == "point" else 4
            items = {"type": "number"}
            return {"type": "array", "items": items, "minItems": length, "maxItems": length, "x-kind": kind}
        spec = _parameter(base)
        for note in notes:
            if isinstance(note, Range):
                spec |= {"minimum": note.low, "maximum": note.high}
        return spec
    if get_origin(hint) is Literal:
        return {"type": "string", "enum": list(get_args(hint))}
    inner = [item for item in get_args(hint) if item is not type(None)]
    if inner and len(inner) < len(get_args(hint)):  # X | None
        return _parameter(inner[0])
    return {"type": {float: "number", int: "integer", bool: "boolean", str: "string"}[hint]}


TOOLS: dict[str, Tool] = {}


def tool(function: Callable[..., Outcome]) -> Callable[..., Outcome]:
    """Registers a function of (view, arguments) under its own name; its docstring is what the model reads."""
    hints = get_type_hints(function, include_extras=True)
    parameters = list(inspect.signature(function).parameters.values())[1:]
    TOOLS[function.__name__] = Tool(
        function.__name__,
        function,
        re.sub(r"\s+", " ", inspect.getdoc(function) or "").strip(),
        {item.name: _parameter(hints[item.name]) for item in parameters},
        tuple(item.name for item in parameters if item.default is inspect.Parameter.empty),
    )
    return function


def get(name: str) -> Tool:
    """The tool of that name; raises `ToolError` with the nearest one."""
    if name not in TOOLS:
        raise ToolError(unknown("tool", name, TOOLS))
    return TOOLS[name]


def call(
    name: str, view: View, arguments: Mapping[str, Any] | str, *, coordinates: Coordinates = "unit"
) -> tuple[View, ToolResult]:
    """Runs a tool on a view. Whatever goes wrong is in the result's `error`; the view is then the old one.

    >>> from PIL import Image
    >>> view, result = call("zoom", View.of(Image.new("L", (64, 64))), {"factor": 9})
    >>> result.error
    'zoom: factor = 9: out of range; allowed: 0.5 to 4'
    """
    try:
        known = get(name)
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments or "{}")
            except (ValueError, RecursionError) as error:
                raise ToolError(f"{name}: the arguments are not JSON: {error}") from error
        if not isinstance(arguments, Mapping):
            raise ToolError(f"{name}: the arguments must be a JSON object")
        outcome = known.run(view, **known.arguments(arguments, coordinates, view.size))
        picture = None if outcome.view is None else ImageRef.of(outcome.view.render())
    except ToolError as error:
        return view, ToolResult(name, error=str(error))
    except Exception as error:  # a bug in a tool costs its call, not the episode
        log.exception("tool %s failed", name)
        return view, ToolResult(name, error=f"{name} failed ({type(error).__name__})")
    if outcome.view is None:
        return view, ToolResult(name, outcome.description, facts=outcome.facts)
    return outcome.view, ToolResult(name, outcome.description, image=picture, facts=outcome.facts)
