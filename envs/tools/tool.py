"""Tools as the model sees them: a name, a docstring, a JSON Schema; and the one place that runs them.

A tool is a small function of (view, arguments). Its schema comes from its type hints (see `parameters.py`), so a range
is written once and enforced centrally. Points and boxes are declared as such and arrive as fractions of the current
view, whatever convention the environment speaks. Arguments marked `Hidden` are the environment's to give: the model is
not told of them, and cannot give them.

A tool whose first argument is `view` is a *viewer's* tool: it looks at, or changes, the view that the calls before it
left. Any other is *free*: it runs beside the rest, on pictures the model names (see `free.py`).
"""

import inspect
import json
import logging
import re
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, get_type_hints, overload

import numpy as np
from PIL import Image

from viewbox.envs.tools.arguments import (
    Box,
    Hidden,
    Picture,
    Point,
    Range,
    checked,
    is_hidden,
    is_picture,
    parameter,
    stated,
)
from viewbox.envs.tools.results import GO_ON, shown_picture, stated_facts, storable
from viewbox.errors import ImageError, ToolError, describe_unknown
from viewbox.images.coordinates import Coordinates
from viewbox.images.view import View
from viewbox.records import ToolResult

__all__ = ["TOOLS", "Box", "Hidden", "Outcome", "Picture", "Point", "Range", "Tool", "call", "get", "tool"]

log = logging.getLogger("viewbox.envs")


@dataclass(frozen=True)
class Outcome:
    """What a viewer's tool returns: the new view (None: it only reads) and the numbers it found."""

    view: View | None
    description: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    image: Image.Image | np.ndarray | None = None  # of a tool that only reads: what to show without changing the view


Function = Callable[..., Any]
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")  # what endpoints allow


@dataclass(frozen=True)
class Tool:
    """A tool: its function and what the model is told about it."""

    name: str
    run: Function
    description: str
    parameters: Mapping[str, Mapping[str, Any]]  # JSON Schema of each, with "x-kind" on points and boxes
    required: tuple[str, ...]
    defaults: Mapping[str, Any] = field(default_factory=dict)  # of those that are not required
    hidden: tuple[str, ...] = ()  # arguments that the environment gives
    max_calls: int | None = None  # in an episode, where the environment says nothing else
    viewer: bool = True  # works on the episode's view; otherwise it is free, beside the others
    awaited: bool = False  # `run` is a coroutine function: it stays on the event loop, and must not block there

    @classmethod
    def of(
        cls,
        function: Function,
        name: str | None = None,
        description: str | None = None,
        max_calls: int | None = None,
    ) -> "Tool":
        """A function, method or object with `__call__` as a tool that is not registered; names by default its own.

        One object, or two of one class, can so be offered under two names. Raises `TypeError` for what no schema can
        say.

        >>> def count(image: Picture, what: str) -> str:
        ...     "Counts what is in a picture."
        >>> Tool.of(count, "count_nodules").schema()["function"]["parameters"]["required"]
        ['image', 'what']
        """
        return _read(function, name, description, max_calls)

    @property
    def takes_pictures(self) -> bool:
        """Whether the model names pictures to it."""
        return any(spec.get("x-kind") == "picture" for spec in self.parameters.values())

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

    def arguments(
        self,
        given: Mapping[str, Any],
        coordinates: Coordinates,
        size: tuple[int, int] | None,
        pictures: Callable[[str], View] | None = None,
    ) -> dict[str, Any]:
        """Checked arguments, points and boxes as fractions of the view; raises `ToolError` naming the argument.

        `size` (width, height) is of the view in pixels; of a free tool it is None: points and boxes are then of the
        first picture it is given, which `pictures` finds by name.
        """
        for name in given:
            if name not in self.parameters:
                raise ToolError(describe_unknown(f"argument of {self.name}", str(name)[:80], self.parameters))
        found: dict[str, Any] = {}
        for name, spec in sorted(self.parameters.items(), key=lambda item: item[1].get("x-kind") != "picture"):
            if given.get(name) is not None:
                what = f"{self.name}: {name}"
                found[name] = checked(given[name], spec, what, coordinates, size or (1, 1))
                if spec.get("x-kind") == "picture":
                    found[name] = _picture(found[name], what, pictures)
                    size = size or found[name].size
            elif name in self.required:
                raise ToolError(f"{self.name}: argument {name!r} is missing")
        return found


def _picture(name: str, what: str, pictures: Callable[[str], View] | None) -> View:
    try:
        if pictures is None:
            raise ToolError(f"there is no picture {name[:40]!r}; allowed: none")
        return pictures(name)
    except ToolError as error:
        raise ToolError(f"{what}: {error}") from error


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
    """Registers a function under its own name; its docstring is what the model reads.

    With `view` as its first argument it is a viewer's tool and returns an `Outcome`; without, it is a free one (`def`
    or `async def`) and returns a string, a mapping of facts, or `Found`.

    What an argument is may be said in its hint (`Annotated[int, Range(1, 5), "how often"]`) or in the docstring, on a
    line of its own (`times: how often`). `@tool(max_calls=3)` limits the calls in an episode.
    """

    def register(function: Function) -> Function:
        TOOLS[function.__name__] = Tool.of(function, max_calls=max_calls)
        return function

    return register if function is None else register(function)


def _read(function: Function, name: str | None, description: str | None, max_calls: int | None) -> Tool:
    name = name or str(getattr(function, "__name__", ""))
    if not _NAME.fullmatch(name):
        raise TypeError(f"{function!r:.80}: {name!r} is no name of a tool; allowed: letters, digits, _ and -")
    spoken = function if inspect.isroutine(function) else type(function).__call__
    hints = get_type_hints(spoken, include_extras=True)
    arguments = list(inspect.signature(function).parameters.values())
    viewer = bool(arguments) and arguments[0].name == "view" and not is_picture(hints.get("view"))
    arguments = arguments[1:] if viewer else arguments
    for item in arguments:
        if item.name not in hints:
            raise TypeError(f"{name}: argument {item.name!r} has no type hint (a viewer's tool begins with `view`)")
    shown = [item for item in arguments if not is_hidden(hints[item.name])]
    words, notes = _docstring(spoken, {item.name for item in shown})
    specs = {item.name: parameter(hints[item.name]) for item in shown}
    for argument, note in notes.items():
        specs[argument]["description"] = note
    empty = inspect.Parameter.empty
    made = Tool(
        name,
        function,
        words if description is None else description,
        specs,
        tuple(item.name for item in shown if item.default is empty),
        {item.name: item.default for item in shown if item.default is not empty},
        tuple(item.name for item in arguments if item not in shown),
        max_calls,
        viewer,
        inspect.iscoroutinefunction(spoken),
    )
    _check(made)
    return made


def _check(made: Tool) -> None:
    """Raises `TypeError` for a tool that could not be called as it is declared."""
    kinds = {name: spec.get("x-kind") for name, spec in made.parameters.items()}
    pictures = [name for name, kind in kinds.items() if kind == "picture"]
    if made.viewer and made.awaited:
        raise TypeError(f"{made.name}: a viewer's tool is a plain function: its calls run in order, in a thread")
    if made.viewer and pictures:
        raise TypeError(f"{made.name}: {pictures[0]!r} is a Picture, but a viewer's tool works on the view")
    if not made.viewer and not pictures and any(kinds.values()):
        raise TypeError(f"{made.name}: a Point or Box needs a Picture that it is of")
    if any(made.defaults.get(name) is not None for name in pictures):
        raise TypeError(f"{made.name}: a Picture has no default but None")


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
        raise ToolError(describe_unknown("tool", name, TOOLS))
    return TOOLS[name]


def call(
    tool: str | Tool,
    view: View,
    arguments: Mapping[str, Any] | str,
    *,
    coordinates: Coordinates = "unit",
    hidden: Mapping[str, Any] | None = None,
) -> tuple[View, ToolResult]:
    """Runs a viewer's tool (or the one of that name) on a view. Whatever goes wrong is in the result's `error`.

    The view is then the old one. `arguments` are the model's, `hidden` the environment's: of those the tool is given
    the ones it declares.

    >>> view, result = call("zoom", View.of(Image.new("L", (64, 64))), {"factor": 9})
    >>> result.error
    'zoom: factor = 9: out of range; allowed: 0.5 to 4'
    """
    name = tool if isinstance(tool, str) else tool.name
    try:
        known = get(name) if isinstance(tool, str) else tool
        if not known.viewer:
            raise ToolError(f"{name} is no viewer's tool: it does not work on a view, and is called in an episode only")
        checked_ = known.arguments(mapping(name, arguments), coordinates, view.size)
        outcome = known.run(view, **checked_, **own(known, hidden))
        if not isinstance(outcome, Outcome):
            raise ToolError(f"{name} returned nothing that can be shown ({type(outcome).__name__}); {GO_ON}")
        after = outcome.view or view
        shown = outcome.image if outcome.view is None else after
        picture = None if shown is None else shown_picture(shown, name)
        facts = stated_facts(outcome.facts, coordinates, view.size)
        return after, ToolResult(name, storable(outcome.description), image=picture, facts=facts)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise
        return view, failure(name, error)


def mapping(name: str, arguments: Mapping[str, Any] | str) -> Mapping[str, Any]:
    """The arguments of a call, which some models write as a string of JSON; raises `ToolError`."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError) as error:
            raise ToolError(f"{name}: the arguments are not JSON: {error}") from error
    if not isinstance(arguments, Mapping):
        raise ToolError(f"{name}: the arguments must be a JSON object")
    return arguments


def own(tool: Tool, hidden: Mapping[str, Any] | None) -> dict[str, Any]:
    """Of the environment's arguments, those the tool declares."""
    return {key: value for key, value in (hidden or {}).items() if key in tool.hidden}


def failure(name: str, error: BaseException) -> ToolResult:
    """A failed call as the model reads it: a `ToolError` in full, of anything else only its kind."""
    if isinstance(error, ToolError):
        return ToolResult(name, error=storable(str(error)))
    if isinstance(error, ImageError):  # it names the file, which may say more than the model is to know
        log.warning("tool %s: %s", name, error)
        return ToolResult(name, error=f"{name}: the image cannot be opened")
    log.error("tool %s failed", name, exc_info=error)  # a bug in a tool costs its call, not the episode
    return ToolResult(name, error=f"{name} failed ({type(error).__name__}); {GO_ON}")
