"""Tools as the model sees them: a name, a description and a JSON Schema; and the registry that holds them.

A tool is a small function. Its schema comes from its type hints (`arguments.py`), so a range is written once and
enforced in one place. Points and boxes arrive as fractions of the current view, whatever coordinates the environment
uses. Arguments marked `Hidden` are filled in by the environment: the model neither sees nor sets them.

A tool whose first argument is `view` is stateful: it reads or changes the view that the calls before it left. Any
other tool is stateless: it runs beside the others, on pictures that the model names. `calling.py` runs both kinds.
"""

import inspect
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_type_hints, overload

from ..errors import ArgumentError, ConfigError, ToolError, describe_unknown, show_json
from ..images.coordinates import Coordinates
from ..images.view import View
from ..utils.docstrings import read_docstring
from .arguments import build_parameter, check_value, describe_parameter, is_hidden, is_null_text, is_picture

ToolFunction = Callable[..., Any]
F = TypeVar("F", bound=ToolFunction)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")  # what endpoints allow


@dataclass(frozen=True)
class Tool:
    """A tool: its function and what the model reads about it."""

    name: str
    function: ToolFunction
    description: str
    parameters: Mapping[str, Mapping[str, Any]]  # JSON Schema of each, with "x-kind" on points, boxes and pictures
    required: tuple[str, ...]
    defaults: Mapping[str, Any] = field(default_factory=dict)  # of the arguments that are not required
    hidden: tuple[str, ...] = ()  # arguments that the environment fills in
    max_calls: int | None = None  # per episode, unless the environment sets its own limit
    takes_pictures: bool = False  # the model names pictures in a call
    stateful: bool = True  # works on the episode's view; a stateless tool runs beside the others
    max_pixels: int | None = None  # of the pictures that `function` gets; None: those that the model sees
    all_levels: bool = False  # with `max_pixels`: as in `View.at_resolution`
    is_async: bool = False  # `function` is a coroutine function: it runs on the event loop and must not block

    @classmethod
    def from_function(
        cls,
        function: ToolFunction,
        name: str | None = None,
        description: str | None = None,
        max_calls: int | None = None,
    ) -> "Tool":
        """Build a tool from a function, a method or an object with `__call__`; does not register it.
        `name` and `description` default to the function's name and docstring. Under several names, one function can be
        several tools. Raise `TypeError` if an argument has a type that no schema can express.

        >>> from viewbox.tools.arguments import Picture
        >>> def count(image: Picture, what: str) -> str:
        ...     "Counts what is in a picture."
        >>> Tool.from_function(count, "count_nodules").build_schema()["function"]["parameters"]["required"]
        ['image', 'what']
        """
        new_tool = _read_signature(function, name, description, max_calls)
        _check_declaration(new_tool)
        return new_tool

    def build_schema(self, coordinates: Coordinates = "unit", *, max_calls: int | None = None) -> dict[str, object]:
        """Return the tool in the OpenAI function format; points and boxes in `coordinates`, the limit in the
        description."""
        properties = {name: self._describe(name, spec, coordinates) for name, spec in self.parameters.items()}
        parameters = {"type": "object", "properties": properties, "required": list(self.required)}
        limit = "" if max_calls is None else f" At most {format_calls(max_calls)}."
        function = {"name": self.name, "description": self.description + limit, "parameters": parameters}
        return {"type": "function", "function": function}

    def _describe(self, name: str, spec: Mapping[str, Any], coordinates: Coordinates) -> dict[str, Any]:
        """Return a parameter's schema with its default in words, unless the schema of a server has it already."""
        described, default = describe_parameter(spec, coordinates), self.defaults.get(name)
        if isinstance(default, bool | int | float | str) and default != "" and "default" not in spec:
            words = f"{default:g}" if isinstance(default, float) else json.dumps(default, ensure_ascii=False)
            described["description"] = "; ".join(filter(None, (described.get("description"), f"default {words}")))
        return described

    def check_arguments(
        self,
        arguments: Mapping[str, object],
        coordinates: Coordinates,
        size: tuple[int, int] | None,
        find_picture: Callable[[str], View] | None = None,
    ) -> dict[str, object]:
        """Return the arguments as the function takes them, points and boxes as fractions; raise `ArgumentError`.
        `size` (width, height) is the size of the view in pixels. It is None for a stateless tool: its points and boxes
        refer to the first picture of the call, which `find_picture` returns by name."""
        for name in arguments:
            if name not in self.parameters:
                problem = describe_unknown(f"argument of {self.name}", str(name)[:80], self.parameters, show_json)
                raise ArgumentError(problem)
        checked: dict[str, Any] = {}
        for name, spec in sorted(self.parameters.items(), key=lambda item: item[1].get("x-kind") != "picture"):
            value, label = arguments.get(name), f"{self.name}: {name}"
            if name in self.required:
                if value is None:
                    raise ArgumentError(f"{self.name}: argument {show_json(name)} is missing")
            elif value is None or is_null_text(value, spec):
                continue
            checked[name] = check_value(value, spec, label, coordinates, size or (1, 1))
            if spec.get("x-kind") == "picture":
                checked[name] = _find_picture(checked[name], label, find_picture)
                size = size or checked[name].size
        return checked

    def record_arguments(self, given: Mapping[str, object], checked: Mapping[str, object]) -> dict[str, object]:
        """Return the arguments of a call for its record: checked, with defaults filled in, and pictures by their names.

        >>> get_tool("zoom").record_arguments({"factor": 3}, {"factor": 3.0})
        {'factor': 3.0, 'center': (0.5, 0.5)}
        """
        return {
            name: given.get(name) if spec.get("x-kind") == "picture" else checked.get(name, self.defaults.get(name))
            for name, spec in self.parameters.items()
        }


def _find_picture(name: str, label: str, find_picture: Callable[[str], View] | None) -> View:
    try:
        if find_picture is None:
            raise ArgumentError(f"there is no picture {show_json(name[:40])}; allowed: none")
        return find_picture(name)
    except ToolError as error:
        raise ArgumentError(f"{label}: {error}") from error


def is_tool_name(name: str) -> bool:
    """Return whether endpoints accept a tool of this name."""
    return _NAME.fullmatch(name) is not None


def format_calls(count: int) -> str:
    """Return a number of calls in words.

    >>> format_calls(1), format_calls(3)
    ('1 call', '3 calls')
    """
    return f"{count} call{'' if count == 1 else 's'}"


TOOLS: dict[str, Tool] = {}


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(*, max_calls: int | None = None) -> Callable[[F], F]: ...
def tool(function: ToolFunction | None = None, /, *, max_calls: int | None = None) -> Any:
    """Register a function as a tool under its own name; its docstring is what the model reads.
    With `view` as its first argument the tool is stateful; otherwise it is stateless, and may be `async def`. Either
    kind returns a `ToolOutput`, a string, or a mapping of facts.

    Describe an argument in its hint (`Annotated[int, Range(1, 5), "how often"]`) or on its own line of the docstring
    (`times: how often`). `@tool(max_calls=3)` limits the calls per episode."""

    def register(function: ToolFunction) -> ToolFunction:
        new_tool = Tool.from_function(function, max_calls=max_calls)
        TOOLS[new_tool.name] = new_tool
        return function

    return register if function is None else register(function)


def get_tool(name: str) -> Tool:
    """Return the registered tool of that name; raise `ToolError` with the nearest name."""
    if name not in TOOLS:
        raise ToolError(describe_unknown("tool", name, TOOLS))
    return TOOLS[name]


def collect_tools(listed: Iterable[object]) -> dict[str, Tool]:
    """Return the tools among `listed`, by name; names are skipped.
    An entry is a name, a function or a `Tool`, as in the setting `tools` of an environment. A function that `@tool`
    registered keeps its limit. Raise `ConfigError` if two different tools have one name."""
    tools: dict[str, Tool] = {}
    for item in listed:
        if isinstance(item, str):
            continue
        new_tool = _to_tool(item)
        if tools.setdefault(new_tool.name, new_tool).function != new_tool.function:
            raise ConfigError(f"tools: two different tools are named {new_tool.name!r}", key="tools")
    return tools


def to_tool_names(listed: object) -> object:
    """Return `listed` with every function and `Tool` replaced by its name, for a setting that holds names.
    Anything but a list or tuple is returned unchanged: the setting's own check refuses it."""
    if not isinstance(listed, list | tuple):
        return listed
    return [_to_tool(item).name if isinstance(item, Tool) or callable(item) else item for item in listed]


def _to_tool(item: Any) -> Tool:
    if isinstance(item, Tool):
        return item
    registered = TOOLS.get(str(getattr(item, "__name__", "")))
    if registered is not None and registered.function is item:
        return registered
    try:
        return Tool.from_function(item)
    except TypeError as error:  # the author's declaration
        raise ConfigError(str(error), key="tools") from error


def _read_signature(function: ToolFunction, name: str | None, description: str | None, max_calls: int | None) -> Tool:
    name = name or str(getattr(function, "__name__", ""))
    if not _NAME.fullmatch(name):
        raise TypeError(f"{function!r:.80}: {name!r} is not a tool name; allowed: letters, digits, _ and -")
    documented = function if inspect.isroutine(function) else type(function).__call__
    try:
        hints = get_type_hints(documented, include_extras=True)
    except Exception as error:  # a hint in quotes is evaluated now
        code = inspect.unwrap(documented).__code__
        raise TypeError(
            f"{name}: a type hint cannot be read: {type(error).__name__}: {error} ({code.co_filename}, line "
            f"{code.co_firstlineno})"
        ) from error
    arguments = list(inspect.signature(function).parameters.values())
    stateful = bool(arguments) and arguments[0].name == "view" and not is_picture(hints.get("view"))
    arguments = arguments[1:] if stateful else arguments
    for argument in arguments:
        if argument.name not in hints:
            problem = f"argument {argument.name!r} has no type hint (a stateful tool takes `view` as its first)"
            raise TypeError(f"{name}: {problem}")
    visible = [argument for argument in arguments if not is_hidden(hints[argument.name])]
    text, notes = _split_docstring(documented, {argument.name for argument in visible})
    parameters = {argument.name: build_parameter(hints[argument.name]) for argument in visible}
    for argument_name, note in notes.items():
        parameters[argument_name]["description"] = note
    empty = inspect.Parameter.empty
    return Tool(
        name,
        function,
        text if description is None else description,
        parameters,
        required=tuple(argument.name for argument in visible if argument.default is empty),
        defaults={argument.name: argument.default for argument in visible if argument.default is not empty},
        hidden=tuple(argument.name for argument in arguments if argument not in visible),
        max_calls=max_calls,
        takes_pictures=any(spec.get("x-kind") == "picture" for spec in parameters.values()),
        stateful=stateful,
        is_async=inspect.iscoroutinefunction(documented),
    )


def _check_declaration(new_tool: Tool) -> None:
    """Raise `TypeError` for a tool that could not be called as it is declared."""
    kinds = {name: spec.get("x-kind") for name, spec in new_tool.parameters.items()}
    pictures = [name for name, kind in kinds.items() if kind == "picture"]
    if new_tool.stateful and new_tool.is_async:
        raise TypeError(f"{new_tool.name}: a stateful tool is a plain function: its calls run in order, in a thread")
    if new_tool.stateful and pictures:
        raise TypeError(f"{new_tool.name}: {pictures[0]!r} is a Picture, but a stateful tool works on the view")
    if not new_tool.stateful and not pictures and any(kinds.values()):
        raise TypeError(f"{new_tool.name}: a Point or Box needs a Picture to refer to")
    if any(new_tool.defaults.get(name) is not None for name in pictures):
        raise TypeError(f"{new_tool.name}: a Picture can only have the default None")


def _split_docstring(function: ToolFunction, names: Collection[str]) -> tuple[str, dict[str, str]]:
    """Return the description on one line, and the notes on arguments: the lines that begin with `name:`, and those
    indented below them."""
    text, notes, last = [], {}, None
    for line in read_docstring(function).splitlines():
        name, colon, note = line.strip().partition(": ")
        if colon and name in names:
            notes[name], last = note.strip(), name
        elif last is not None and line.startswith(" "):
            notes[last] += f" {line.strip()}"
        else:
            text.append(line)
            last = None
    return re.sub(r"\s+", " ", " ".join(text)).strip(), notes
