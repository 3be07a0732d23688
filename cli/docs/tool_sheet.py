"""The contact sheet: one image after every tool, a cell for each, with the text that the model reads below it.

`viewbox tools sheet IMAGE --out PNG` draws it; `docs/tools.png` shows a CT slice that pydicom includes.
"""

import json
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ...images.source import Source
from ...images.view import View
from ...tools import Tool
from ...tools.apply import apply_tools, open_view
from ..tool_trial import Call
from . import tools_page

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
BEFORE: Call = ("zoom", {"factor": 3})  # the change that `undo` and `reset` take back
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
    """The path of a real CT slice, 128 x 128, that pydicom includes."""
    from pydicom.data import get_testdata_file

    return str(get_testdata_file("CT_small.dcm"))


def build_cells(image: str | Source) -> list[Cell]:
    """The unchanged image, then a cell for every tool that applies to it, family by family."""
    start = open_view(image)
    source = start.source
    unit = f", {source.unit}" if source.unit else ""
    families = tools_page.group_by_family()
    if source.volume is None:
        families.pop("volumes", None)  # the image has no slices
    cells = [_build_cell(tool, start) for members in families.values() for tool in members if tool.stateful]
    size = f"{source.width}x{source.height} pixels, {source.pixels.dtype}{unit}"
    return [Cell("the image", "", "", start.render(), size), *cells]


def _build_cell(tool: Tool, start: View) -> Cell:
    arguments = dict(EXAMPLES.get(tool.name, {}))
    before = [BEFORE] if tool.name in ("undo", "reset") else []
    bright = start.source.pixels > np.percentile(start.source.pixels, 90)  # stands for a segmentation
    hidden = {"images": [start.source], "mask": bright}
    _, result = apply_tools(start, [*before, (tool.name, arguments)], hidden=hidden)[-1]
    written = " ".join(f"{name}={_format_value(value)}" for name, value in arguments.items())
    return Cell(tool.name, written, tool.family, None if result.image is None else result.image.open(), result.text)


def _format_value(value: Any) -> str:
    return ",".join(f"{item:g}" for item in value) if isinstance(value, list) else json.dumps(value).strip('"')


def draw_sheet(image: str | Source) -> Image.Image:
    """The contact sheet of an image, in mode RGB."""
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
