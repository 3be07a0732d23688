"""The reference of the built-in tools, from their registry: `docs/tools.md`, and `docs/tools.png`.

The picture shows every tool on one CT slice, a cell for each with the text that the model reads below it.

`python docs/tools_page.py` writes both.
"""

import json
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from viewbox.images.source import Source
from viewbox.images.view import View
from viewbox.tools import TOOLS, Tool, format_calls
from viewbox.tools.calling import apply_tools, open_view
from viewbox.utils.json_schema import describe_range

HEAD = """# Built-in tools

Written by `python docs/tools_page.py` from the code that runs the tools; do not edit. `viewbox tools` prints it.

![Every tool on one CT slice](tools.png)

An environment names the tools that it offers (`tools: [zoom, crop, undo]`), and limits their calls by
`max_calls: {zoom: 3}` and `max_total_calls: 8`. If a call is wrong, the model reads what is wrong and what is allowed.
Points `[x, y]` and boxes `[x1, y1, x2, y2]` refer to the *current view*, x to the right and y down, in the
environment's `coordinates`: fractions (0 to 1), thousandths (0 to 1000) or pixels. A view has at most `max_pixels`
pixels and is sampled from the original pixels at their native depth. Every result with a picture of the view says which
box of the open image it shows (`shows`). [data.md](data.md#boxes-on-volumes) says how slices are numbered and which
sides of the patient they show.

Try tools with `viewbox tools try IMAGE zoom factor=2 crop box=0.1,0.1,0.5,0.5`, or from Python with
`viewbox.tools.apply_tool("zoom", image, factor=2)`."""

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


def name_family(tool: Tool) -> str:
    """Return the module that defines a tool: geometry, intensity, …"""
    return tool.function.__module__.rpartition(".")[2]


def group_by_family() -> dict[str, list[Tool]]:
    """Return the built-in tools by family, in the order of their definition."""
    families: dict[str, list[Tool]] = {family: [] for family in ORDER}
    for tool in TOOLS.values():
        if tool.function.__module__.startswith(PACKAGE):
            families.setdefault(name_family(tool), []).append(tool)
    return {family: members for family, members in families.items() if members}


def describe_family(family: str) -> str:
    """Return a family in one sentence: the first line of its module's docstring."""
    return (sys.modules[PACKAGE + family].__doc__ or "").strip().splitlines()[0]


def format_markdown() -> str:
    """Return the whole reference, as in `docs/tools.md`."""
    parts = [HEAD]
    for family, members in group_by_family().items():
        parts += [f"## {family.capitalize()}", describe_family(family)]
        for tool in members:
            limit = "" if tool.max_calls is None else f" At most {format_calls(tool.max_calls)} in an episode."
            parts += [f"### `{tool.name}`", tool.description + limit]
            if tool.parameters:
                parts.append(_format_arguments(tool))
    return "\n\n".join(parts) + "\n"


def _format_arguments(tool: Tool) -> str:
    return "\n".join(
        f"- `{name}` ({describe_values(spec)}; {_format_default(tool, name)}): {spec['description']}"
        for name, spec in tool.parameters.items()
    )


def describe_values(spec: Mapping[str, Any]) -> str:
    """Return the values that an argument takes, in words.

    >>> describe_values({"type": "number", "minimum": 0.5, "maximum": 4})
    'a number, 0.5 to 4'
    >>> describe_values({"type": "string", "enum": ["a", "b"]})
    'a or b'
    """
    if spec.get("x-kind") == "picture":
        return "a picture by name"
    if spec.get("x-kind"):
        corners = "[x, y]" if spec["x-kind"] == "point" else "[x1, y1, x2, y2]"
        return f"a {spec['x-kind']} {corners}"
    if "enum" in spec:
        *others, last = map(str, spec["enum"])
        return f"{', '.join(others)} or {last}" if others else last
    types = {"number": "a number", "integer": "a whole number", "boolean": "true or false", "string": "text"}
    return ", ".join(part for part in (types[spec["type"]], describe_range(spec)) if part)


def _format_default(tool: Tool, name: str) -> str:
    if name in tool.required:
        return "required"
    value = tool.defaults[name]
    return "optional" if value is None else f"default {json.dumps(value)}"


# The arguments of a tool on the sheet, if its defaults do not show what it does.
EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    "zoom": {"factor": 2.5, "center": [0.35, 0.45]},
    "crop": {"box": [0.1, 0.25, 0.6, 0.6]},
    "adjust_contrast": {"factor": 2},
    "adjust_brightness": {"factor": 1.6},
    "adjust_sharpness": {"factor": 3},
    "threshold": {"lower": 100, "upper": 200},
    "window_level": {"preset": "ct_soft_tissue"},
    "denoise": {"sigma": 2},
    "morphological": {"operation": "erode", "iterations": 2},
    "open_image": {"image": "image_1"},
    "show_beside": {"image": "image_1"},
    "select_slice": {"index": 0},
    "intensity_profile": {"point1": [0.1, 0.5], "point2": [0.9, 0.5]},
    "measure": {"point1": [0.2, 0.5], "point2": [0.8, 0.5]},
    "annotate_region": {"box": [0.2, 0.3, 0.5, 0.6], "label": "here"},
    "show_grid": {"divisions": 4},
}
BEFORE: tuple[str, dict[str, Any]] = ("zoom", {"factor": 3})  # the change that `undo` and `reset` take back
COLUMNS, SIDE, MARGIN = 6, 256, 24
HEADER, LINE, CAPTION_LINES = 44, 18, 4  # pixels above a picture, pixels per line, lines of text below a picture
CELL = HEADER + SIDE + CAPTION_LINES * LINE + MARGIN
BLACK, GRAY, PALE = "#111111", "#777777", "#f2f2f2"


@dataclass(frozen=True)
class Cell:
    """One cell of the sheet.

    name: of the tool.
    arguments: as `viewbox tools try` takes them.
    family: of the tool.
    picture: what the tool shows; None if it returns only text.
    text: what the model reads.
    """

    name: str
    arguments: str
    family: str
    picture: Image.Image | None
    text: str


def get_example_path() -> str:
    """Return the path of a real CT slice, 128 x 128, that pydicom includes."""
    from pydicom.data import get_testdata_file

    return str(get_testdata_file("CT_small.dcm"))


def build_cells(image: str | Source) -> list[Cell]:
    """Return the unchanged image, then a cell for every tool that applies to it, family by family."""
    start = open_view(image)
    source = start.source
    unit = f", {source.unit}" if source.unit else ""
    families = group_by_family()
    if source.volume is None or source.volume.count_slices(source.volume.plane) == 1:
        families.pop("volumes", None)  # the image has no other slices
    cells = [_build_cell(tool, start) for members in families.values() for tool in members if tool.stateful]
    size = f"{source.width}x{source.height} pixels, {source.pixels.dtype}{unit}"
    return [Cell("the image", "", "", start.render(), size), *cells]


def _build_cell(tool: Tool, start: View) -> Cell:
    arguments = dict(EXAMPLES.get(tool.name, {}))
    before = [BEFORE] if tool.name in ("undo", "reset") else []
    bright = start.source.pixels > np.percentile(start.source.pixels, 90)  # stands for a segmentation
    hidden = {"images": [start.source], "mask": bright}
    _, result = apply_tools(start, [*before, (tool.name, arguments)], hidden=hidden)[-1]
    written = " ".join(f"{name}={_format_argument(value)}" for name, value in arguments.items())
    picture = None if result.image is None else result.image.open()
    return Cell(tool.name, written, name_family(tool), picture, result.text)


def _format_argument(value: Any) -> str:
    return ",".join(f"{item:g}" for item in value) if isinstance(value, list) else json.dumps(value).strip('"')


def draw_sheet(image: str | Source) -> Image.Image:
    """Return the contact sheet of an image, in mode RGB."""
    cells = build_cells(image)
    rows = -(-len(cells) // COLUMNS)
    sheet = Image.new("RGB", (COLUMNS * (SIDE + MARGIN) + MARGIN, rows * CELL + MARGIN), "white")
    for i, cell in enumerate(cells):
        row, column = divmod(i, COLUMNS)
        _draw_cell(sheet, cell, MARGIN + column * (SIDE + MARGIN), MARGIN + row * CELL)
    return sheet


def _draw_cell(sheet: Image.Image, cell: Cell, left: int, top: int) -> None:
    pen = ImageDraw.Draw(sheet)
    small, medium, large = (ImageFont.load_default(size) for size in (13, 15, 18))
    pen.text((left, top), cell.name, BLACK, large)
    pen.text((left + SIDE, top + 4), cell.family, GRAY, small, anchor="ra")
    pen.text((left, top + 22), cell.arguments, GRAY, small)
    top += HEADER
    if cell.picture is None:  # the text takes the picture's place
        pen.rectangle((left, top, left + SIDE - 1, top + SIDE - 1), fill=PALE)
        _draw_text(pen, cell.text, left + 12, top + 10, 32, SIDE // LINE - 1, medium)
        return
    scale = SIDE / max(cell.picture.size)
    size = (max(1, round(cell.picture.width * scale)), max(1, round(cell.picture.height * scale)))
    kind = Image.Resampling.NEAREST if scale >= 1 else Image.Resampling.BOX  # keeps single pixels visible
    sheet.paste(cell.picture.convert("RGB").resize(size, kind), (left, top))
    _draw_text(pen, cell.text, left, top + size[1] + 4, 41, CAPTION_LINES, small)


def _draw_text(pen: ImageDraw.ImageDraw, text: str, left: int, top: int, width: int, max_lines: int, font: Any) -> None:
    for i, line in enumerate(textwrap.wrap(text, width, max_lines=max_lines, placeholder=" …")):
        pen.text((left, top + i * LINE), line, BLACK, font)


if __name__ == "__main__":
    folder = Path(__file__).parent
    (folder / "tools.md").write_text(format_markdown())
    draw_sheet(get_example_path()).save(folder / "tools.png", optimize=True)
