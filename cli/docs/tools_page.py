"""What the tools are, for people and for prompts: Markdown (`docs/tools.md`), a table on a terminal, a plain listing.

All three are read off the registry, so they cannot say anything else than what is enforced.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from viewbox.envs.tools import TOOLS, Tool, format_calls
from viewbox.envs.tools.arguments import describe_range
from viewbox.images.coordinates import Coordinates, describe_unit

if TYPE_CHECKING:
    from rich.console import RenderableType

HEAD = """# The viewer's tools

Printed by `viewbox tools --markdown` from the code that runs them; do not edit.

![Every tool on one CT slice, drawn by `viewbox tools sheet`](tools.png)

A model is offered the tools that its environment names (`tools: [zoom, crop, undo]`). It calls one with a JSON object;
what is wrong with a call is told to it in words, with what is allowed. Points `[x, y]` and boxes `[x1, y1, x2, y2]`
are of the *current view*, x right, y down, in the environment's `coordinates`: fractions (0 to 1), thousandths (0 to
1000) or pixels. Whatever is shown is at most the view budget (`max_pixels`) large and drawn from the original pixels
at their native depth. Every result says which box of the open image is shown (`shows`).

An environment limits calls by `max_calls: {zoom: 3}` and `max_total_calls: 8`; `tools_of(task)` switches tools off for
a task. `viewbox tools try IMAGE zoom factor=2 crop box=0.1,0.1,0.5,0.5` tries them from the shell, and
`viewbox.envs.tools.apply_tool("zoom", image, factor=2)` from Python."""

PACKAGE = "viewbox.envs.tools.builtin."
ORDER = ("geometry", "windows", "intensity", "filters", "symmetry", "analysis", "volumes")  # then any other


def families() -> dict[str, list[Tool]]:
    """The tools that viewbox brings, by family, in the order they are written."""
    found: dict[str, list[Tool]] = {family: [] for family in ORDER}
    for one in TOOLS.values():
        if one.function.__module__.startswith(PACKAGE):
            found.setdefault(one.family, []).append(one)
    return {family: members for family, members in found.items() if members}


def about(family: str) -> str:
    """A family in one sentence: the first line of its module."""
    return (sys.modules[PACKAGE + family].__doc__ or "").strip().splitlines()[0]


def markdown() -> str:
    """The whole reference."""
    parts = [HEAD]
    for family, members in families().items():
        parts += [f"## {family.capitalize()}", about(family)]
        for one in members:
            limit = "" if one.max_calls is None else f" At most {format_calls(one.max_calls)} in an episode."
            parts += [f"### `{one.name}`", one.description + limit, _arguments(one)]
    return "\n\n".join(parts) + "\n"


def _arguments(one: Tool) -> str:
    if not one.parameters:
        return "No arguments."
    rows = [("argument", "takes", "default", "meaning"), ("---",) * 4]
    rows += [
        (f"`{name}`", takes(spec), _default(one, name), spec.get("description", ""))
        for name, spec in one.parameters.items()
    ]
    columns = 4 if any(row[3] for row in rows[2:]) else 3
    return "\n".join(f"| {' | '.join(row[:columns])} |".replace("  ", " ") for row in rows)


def takes(spec: Mapping[str, Any], coordinates: Coordinates | None = None) -> str:
    """What an argument takes, in words.

    >>> takes({"type": "number", "minimum": 0.5, "maximum": 4}), takes({"type": "string", "enum": ["a", "b"]})
    ('a number, 0.5 to 4', 'a or b')
    """
    if spec.get("x-kind") == "picture":
        return "a picture by name"
    if spec.get("x-kind"):
        corners = "[x, y]" if spec["x-kind"] == "point" else "[x1, y1, x2, y2]"
        return f"a {spec['x-kind']} {corners}" + (f" in {describe_unit(coordinates)}" if coordinates else "")
    if "enum" in spec:
        *others, last = map(str, spec["enum"])
        return f"{', '.join(others)} or {last}" if others else last
    words = {"number": "a number", "integer": "a whole number", "boolean": "true or false", "string": "text"}
    return ", ".join(part for part in (words[spec["type"]], describe_range(spec)) if part)


def _default(one: Tool, name: str) -> str:
    if name in one.required:
        return "required"
    value = one.defaults[name]
    return "none" if value is None else f"`{json.dumps(value)}`"


def listing(tools: Iterable[Tool], coordinates: Coordinates = "unit") -> str:
    """Tools for a prompt, one a line: for models that read no JSON Schema.

    >>> print(listing([TOOLS["adjust_contrast"], TOOLS["reset"]]))
    adjust_contrast(factor: a number, 0.5 to 3): Raise (factor above 1) or lower the contrast of the current view.
    reset(): Go back to the whole original image; drops every change.
    """
    return "\n".join(f"{one.name}({'; '.join(_given(one, coordinates))}): {one.description}" for one in tools)


def _given(one: Tool, coordinates: Coordinates | None = None) -> Iterator[str]:
    for name, spec in one.parameters.items():
        default = one.defaults.get(name)
        words = f" (default {json.dumps(default)})" if default is not None else " (optional)"
        yield f"{name}: {takes(spec, coordinates)}{'' if name in one.required else words}"


def table() -> "RenderableType":
    """The reference for a terminal."""
    from rich.markup import escape
    from rich.table import Table

    drawn = Table("tool", "arguments", "what it does", title="The viewer's tools", show_lines=False, expand=False)
    for family, members in families().items():
        drawn.add_section()
        drawn.add_row(f"[bold]{family}[/bold]", "", f"[dim]{about(family)}[/dim]")
        for one in members:
            drawn.add_row(one.name, escape("\n".join(_given(one))), one.description)
    return drawn
