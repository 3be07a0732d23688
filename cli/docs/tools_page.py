"""The reference of the built-in tools: Markdown (`docs/tools.md`), a table for a terminal, and a listing for prompts.

All three come from the registry, so they state exactly what the code enforces.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...images.coordinates import Coordinates, describe_unit
from ...tools import TOOLS, Tool, format_calls
from ...tools.arguments import describe_range

if TYPE_CHECKING:
    from rich.console import RenderableType

HEAD = """# Built-in tools

Printed by `viewbox tools --markdown` from the code that runs the tools; do not edit.

![Every tool on one CT slice, drawn by `viewbox tools sheet`](tools.png)

An environment names the tools that it offers to the model (`tools: [zoom, crop, undo]`). The model calls a tool with a
JSON object. If the call is wrong, the model reads what is wrong and what is allowed. Points `[x, y]` and boxes
`[x1, y1, x2, y2]` refer to the *current view*, x to the right and y down, in the environment's `coordinates`: fractions
(0 to 1), thousandths (0 to 1000) or pixels. A view has at most `max_pixels` pixels and is sampled from the original
pixels at their native depth. Every result with a picture of the view says which box of the open image it shows
(`shows`).

Slices of a volume are numbered from 0: axial ones from the feet up, coronal ones from the front, sagittal ones from
the patient's right. Axial and coronal slices are shown with the patient's right on the left, sagittal ones with the
front on the left. Letters at the border name the sides, if the header knows them ([data.md](data.md#boxes-on-volumes)).

An environment limits calls by `max_calls: {zoom: 3}` and `max_total_calls: 8`; `tools_of(task)` switches tools off for
a task. Try tools from the shell with `viewbox tools try IMAGE zoom factor=2 crop box=0.1,0.1,0.5,0.5`, or from Python
with `viewbox.tools.apply_tool("zoom", image, factor=2)`."""

PACKAGE = "viewbox.tools.builtin."
ORDER = (
    "geometry",
    "windows",
    "intensity",
    "filters",
    "symmetry",
    "analysis",
    "comparison",
    "volumes",
)  # other families follow


def group_by_family() -> dict[str, list[Tool]]:
    """The built-in tools by family, in the order of their definition."""
    families: dict[str, list[Tool]] = {family: [] for family in ORDER}
    for tool in TOOLS.values():
        if tool.function.__module__.startswith(PACKAGE):
            families.setdefault(tool.family, []).append(tool)
    return {family: members for family, members in families.items() if members}


def describe_family(family: str) -> str:
    """A family in one sentence: the first line of its module's docstring."""
    return (sys.modules[PACKAGE + family].__doc__ or "").strip().splitlines()[0]


def format_markdown() -> str:
    """The whole reference, as in `docs/tools.md`."""
    parts = [HEAD]
    for family, members in group_by_family().items():
        parts += [f"## {family.capitalize()}", describe_family(family)]
        for tool in members:
            limit = "" if tool.max_calls is None else f" At most {format_calls(tool.max_calls)} in an episode."
            parts += [f"### `{tool.name}`", tool.description + limit, _format_argument_table(tool)]
    return "\n\n".join(parts) + "\n"


def _format_argument_table(tool: Tool) -> str:
    if not tool.parameters:
        return "No arguments."
    rows = [("argument", "takes", "default", "meaning"), ("---",) * 4]
    rows += [
        (f"`{name}`", describe_values(spec), _format_default(tool, name), spec.get("description", ""))
        for name, spec in tool.parameters.items()
    ]
    columns = 4 if any(row[3] for row in rows[2:]) else 3
    return "\n".join(f"| {' | '.join(row[:columns])} |".replace("  ", " ") for row in rows)


def describe_values(spec: Mapping[str, Any], coordinates: Coordinates | None = None) -> str:
    """The values that an argument takes, in words.

    >>> describe_values({"type": "number", "minimum": 0.5, "maximum": 4})
    'a number, 0.5 to 4'
    >>> describe_values({"type": "string", "enum": ["a", "b"]})
    'a or b'
    """
    if spec.get("x-kind") == "picture":
        return "a picture by name"
    if spec.get("x-kind"):
        corners = "[x, y]" if spec["x-kind"] == "point" else "[x1, y1, x2, y2]"
        return f"a {spec['x-kind']} {corners}" + (f" in {describe_unit(coordinates)}" if coordinates else "")
    if "enum" in spec:
        *others, last = map(str, spec["enum"])
        return f"{', '.join(others)} or {last}" if others else last
    types = {"number": "a number", "integer": "a whole number", "boolean": "true or false", "string": "text"}
    return ", ".join(part for part in (types[spec["type"]], describe_range(spec)) if part)


def _format_default(tool: Tool, name: str) -> str:
    if name in tool.required:
        return "required"
    value = tool.defaults[name]
    return "none" if value is None else f"`{json.dumps(value)}`"


def format_listing(tools: Iterable[Tool], coordinates: Coordinates = "unit") -> str:
    """The tools for the prompt of a model that cannot read JSON Schema, one tool per line.

    >>> print(format_listing([TOOLS["adjust_contrast"], TOOLS["reset"]]))
    adjust_contrast(factor: a number, 0.5 to 3): Raise (factor above 1) or lower the contrast of the current view.
    reset(): Go back to the whole original image; drops every change.
    """
    return "\n".join(
        f"{tool.name}({'; '.join(_iter_arguments(tool, coordinates))}): {tool.description}" for tool in tools
    )


def _iter_arguments(tool: Tool, coordinates: Coordinates | None = None) -> Iterator[str]:
    for name, spec in tool.parameters.items():
        default = None if "x-kind" in spec else tool.defaults.get(name)  # points have another default in each frame
        optional = f" (default {json.dumps(default)})" if default is not None else " (optional)"
        yield f"{name}: {describe_values(spec, coordinates)}{'' if name in tool.required else optional}"


def build_table() -> "RenderableType":
    """The reference as a table for a terminal."""
    from rich.markup import escape
    from rich.table import Table

    table = Table("tool", "arguments", "what it does", title="Built-in tools", show_lines=False, expand=False)
    for family, members in group_by_family().items():
        table.add_section()
        table.add_row(f"[bold]{family}[/bold]", "", f"[dim]{describe_family(family)}[/dim]")
        for tool in members:
            table.add_row(tool.name, escape("\n".join(_iter_arguments(tool))), tool.description)
    return table
