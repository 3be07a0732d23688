"""Tools as the model sees them: a name, a docstring, a JSON Schema; and the one place that runs them.

A tool is a small function of (view, arguments). Its schema comes from its type hints (see `parameters.py`), so a range
is written once and enforced centrally. Points and boxes are declared as such and arrive as fractions of the current
view, whatever convention the environment speaks. Arguments marked `Hidden` are the environment's to give: the model is
not told of them, and cannot give them.
"""

import inspect
import json
import logging
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, get_type_hints, overload

import numpy as np
from PIL import Image

from viewbox.envs.coordinates import Coordinates, from_unit
from viewbox.envs.image import View
from viewbox.envs.tools.parameters import Box, Hidden, Point, Range, Stated, checked, is_hidden, parameter, stated
from viewbox.envs.types import ImageRef, ToolResult
from viewbox.errors import ImageError, ToolError, unknown

__all__ = ["TOOLS", "Box", "Hidden", "Outcome", "Point", "Range", "Tool", "call", "get", "tool"]

log = logging.getLogger("viewbox.envs")


@dataclass(frozen=True)
class Outcome:
    """What a tool function returns: the new view (None: it only reads) and the numbers it found."""

    view: View | None
    description: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    image: Image.Image | np.ndarray | None = None  # of a tool that only reads: what to show without changing the view


Function = Callable[..., Outcome]


@dataclass(frozen=True)
class Tool:
    """A registered tool: its function and what the model is told about it."""

    name: str
    run: Function
    description: str
    parameters: Mapping[str, Mapping[str, Any]]  # JSON Schema of each, with "x-kind" on points and boxes
    required: tuple[str, ...]
    defaults: Mapping[str, Any] = field(default_factory=dict)  # of those that are not required
    hidden: tuple[str, ...] = ()  # arguments that the environment gives
    max_calls: int | None = None  # in an episode, where the environment says nothing else

    @property
    def family(self) -> str:
        """The module it is written in: geometry, intensity, …"""
        return self.run.__module__.rpartition(".")[2]

    def schema(self, coordinates: Coordinates = "unit", *, max_calls: int | None = None) -> dict[str, Any]:
        """The tool in the OpenAI function format: points and boxes in `coordinates`, a limit in the description."""
        properties = {name: stated(spec, coordinates) for name, spec in self.parameters.items()}
        parameters = {"type": "object", "properties": properties, "required": list(self.required)}
        words = self.description if max_calls is None else f"{self.description} At most {times(max_calls)}."
        return {"type": "function", "function": {"name": self.name, "description": words, "parameters": parameters}}

    def arguments(self, given: Mapping[str, Any], coordinates: Coordinates, size: tuple[int, int]) -> dict[str, Any]:
        """Checked arguments, points and boxes as fractions of the view; raises `ToolError` naming the argument."""
        for name in given:
            if name not in self.parameters:
                raise ToolError(unknown(f"argument of {self.name}", str(name), self.parameters))
        found: dict[str, Any] = {}
        for name, spec in self.parameters.items():
            if given.get(name) is not None:
                found[name] = checked(given[name], spec, f"{self.name}: {name}", coordinates, size)
            elif name in self.required:
                raise ToolError(f"{self.name}: argument {name!r} is missing")
        return found


def times(limit: int) -> str:
    """A number of calls in words.

    >>> times(1), times(3)
    ('1 call', '3 calls')
    """
    return f"{limit} call{'' if limit == 1 else 's'}"


TOOLS: dict[str, Tool] = {}


@overload
def tool(function: Function, /) -> Function: ...
@overload
def tool(*, max_calls: int | None = None) -> Callable[[Function], Function]: ...
def tool(function: Function | None = None, /, *, max_calls: int | None = None) -> Any:
    """Registers a function of (view, arguments) under its own name; its docstring is what the model reads.

    What an argument is may be said in its hint (`Annotated[int, Range(1, 5), "how often"]`) or in the docstring, on a
    line of its own (`times: how often`). `@tool(max_calls=3)` limits the calls in an episode.
    """

    def register(function: Function) -> Function:
        TOOLS[function.__name__] = _read(function, max_calls)
        return function

    return register if function is None else register(function)


def _read(function: Function, max_calls: int | None) -> Tool:
    hints = get_type_hints(function, include_extras=True)
    arguments = list(inspect.signature(function).parameters.values())[1:]
    shown = [item for item in arguments if not is_hidden(hints[item.name])]
    words, notes = _docstring(function, {item.name for item in shown})
    specs = {item.name: parameter(hints[item.name]) for item in shown}
    for name, note in notes.items():
        specs[name]["description"] = note
    empty = inspect.Parameter.empty
    return Tool(
        function.__name__,
        function,
        words,
        specs,
        tuple(item.name for item in shown if item.default is empty),
        {item.name: item.default for item in shown if item.default is not empty},
        tuple(item.name for item in arguments if item not in shown),
        max_calls,
    )


def _docstring(function: Function, names: Collection[str]) -> tuple[str, dict[str, str]]:
    """The words on one line, and what the lines that begin with `name:` say about arguments."""
    words, notes = [], {}
    for line in (inspect.getdoc(function) or "").splitlines():
        name, colon, note = line.strip().partition(": ")
        if colon and name in names:
            notes[name] = note.strip()
        else:
            words.append(line)
    return re.sub(r"\s+", " ", " ".join(words)).strip(), notes


def get(name: str) -> Tool:
    """The tool of that name; raises `ToolError` with the nearest one."""
    if name not in TOOLS:
        raise ToolError(unknown("tool", name, TOOLS))
    return TOOLS[name]


def call(
    name: str,
    view: View,
    arguments: Mapping[str, Any] | str,
    *,
    coordinates: Coordinates = "unit",
    hidden: Mapping[str, Any] | None = None,
) -> tuple[View, ToolResult]:
    """Runs a tool on a view. Whatever goes wrong is in the result's `error`; the view is then the old one.

    `arguments` are the model's, `hidden` the environment's: of those the tool is given the ones it declares.

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
        own = {key: value for key, value in (hidden or {}).items() if key in known.hidden}
        outcome = known.run(view, **known.arguments(arguments, coordinates, view.size), **own)
        shown = outcome.image if outcome.view is None else outcome.view.shown()
        picture = None if shown is None else ImageRef.of(shown)
    except ToolError as error:
        return view, ToolResult(name, error=str(error))
    except ImageError as error:  # it names the file, which may say more than the model is to know
        log.warning("tool %s: %s", name, error)
        return view, ToolResult(name, error=f"{name}: the image cannot be opened")
    except Exception as error:  # a bug in a tool costs its call, not the episode
        log.exception("tool %s failed", name)
        return view, ToolResult(name, error=f"{name} failed ({type(error).__name__})")
    facts = {
        key: from_unit(value, coordinates, view.size) if isinstance(value, Stated) else value
        for key, value in outcome.facts.items()
    }
    return outcome.view or view, ToolResult(name, outcome.description, image=picture, facts=facts)
