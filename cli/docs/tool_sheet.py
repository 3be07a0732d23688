"""The contact sheet: every visual tool on one image, a cell each, with what the model reads under it.

`viewbox tools sheet IMAGE --out PNG` draws it; `docs/tools.png` is that of a CT slice that pydicom brings along.
"""

import json
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from viewbox.cli.docs import tools_page
from viewbox.cli.tool_trial import Call
from viewbox.envs.tools import Tool
from viewbox.envs.tools.apply import apply_tools, open_view
from viewbox.images.source import Source
from viewbox.images.view import View

# What a tool is called with here, where its defaults do not show what it does.
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
    "open_image": {"index": 0},
    "select_slice": {"index": 0},
    "intensity_profile": {"point1": [0.1, 0.5], "point2": [0.9, 0.5]},
    "measure": {"point1": [0.2, 0.5], "point2": [0.8, 0.5]},
    "annotate_region": {"box": [0.2, 0.3, 0.5, 0.6], "label": "here"},
    "show_grid": {"divisions": 4},
}
BEFORE: Call = ("zoom", {"factor": 3})  # what `undo` and `reset` take back
COLUMNS, SIDE, MARGIN = 6, 256, 24
TITLE, LINE, WORDS = 44, 18, 4  # pixels over a picture, pixels a line, lines of what the model reads
CELL = TITLE + SIDE + WORDS * LINE + MARGIN
BLACK, GRAY, PALE = "#111111", "#777777", "#f2f2f2"


@dataclass(frozen=True)
class Cell:
    """A tool, its arguments as they are written, its picture (None: it only reads), and what the model reads."""

    name: str
    arguments: str
    family: str
    picture: Image.Image | None
    words: str


def example() -> str:
    """The path of a real CT slice, 128 x 128, that pydicom brings along."""
    from pydicom.data import get_testdata_file

    return str(get_testdata_file("CT_small.dcm"))


def cells(image: str | Source) -> list[Cell]:
    """A cell for every tool that applies, family by family; the image itself, untouched, is the first of them."""
    start = open_view(image)
    source = start.source
    about = f"{source.width}x{source.height} pixels, {source.pixels.dtype}{f', {source.unit}' if source.unit else ''}"
    families = tools_page.families()
    if source.volume is None:
        families.pop("volumes", None)  # there is no slice to choose
    found = [_cell(one, start) for members in families.values() for one in members if one.stateful]
    return [Cell("the image", "", "", start.render(), about), *found]


def _cell(one: Tool, start: View) -> Cell:
    given = dict(EXAMPLES.get(one.name, {}))
    before = [BEFORE] if one.name in ("undo", "reset") else []
    _, result = apply_tools(start, [*before, (one.name, given)], hidden={"images": [start.source]})[-1]
    arguments = " ".join(f"{name}={_written(value)}" for name, value in given.items())
    return Cell(one.name, arguments, one.family, None if result.image is None else result.image.open(), result.text)


def _written(value: Any) -> str:
    return ",".join(f"{item:g}" for item in value) if isinstance(value, list) else json.dumps(value).strip('"')


def draw(image: str | Source) -> Image.Image:
    """The contact sheet of an image, mode RGB."""
    found = cells(image)
    rows = -(-len(found) // COLUMNS)
    sheet = Image.new("RGB", (COLUMNS * (SIDE + MARGIN) + MARGIN, rows * CELL + MARGIN), "white")
    for i, cell in enumerate(found):
        row, column = divmod(i, COLUMNS)
        _draw_cell(sheet, cell, MARGIN + column * (SIDE + MARGIN), MARGIN + row * CELL)
    return sheet


def _draw_cell(sheet: Image.Image, cell: Cell, left: int, top: int) -> None:
    pen = ImageDraw.Draw(sheet)
    small, medium, large = (ImageFont.load_default(size) for size in (13, 15, 18))
    pen.text((left, top), cell.name, BLACK, large)
    pen.text((left + SIDE, top + 4), cell.family, GRAY, small, anchor="ra")
    pen.text((left, top + 22), cell.arguments, GRAY, small)
    top += TITLE
    if cell.picture is None:  # its words are what it gives
        pen.rectangle((left, top, left + SIDE - 1, top + SIDE - 1), fill=PALE)
        _lines(pen, cell.words, left + 12, top + 10, 32, SIDE // LINE - 1, medium)
        return
    scale = SIDE / max(cell.picture.size)
    size = (max(1, round(cell.picture.width * scale)), max(1, round(cell.picture.height * scale)))
    kind = Image.Resampling.NEAREST if scale >= 1 else Image.Resampling.BOX  # pixels as they are
    sheet.paste(cell.picture.convert("RGB").resize(size, kind), (left, top))
    _lines(pen, cell.words, left, top + size[1] + 4, 41, WORDS, small)


def _lines(pen: ImageDraw.ImageDraw, words: str, left: int, top: int, width: int, most: int, font: Any) -> None:
    for i, line in enumerate(textwrap.wrap(words, width, max_lines=most, placeholder=" …")):
        pen.text((left, top + i * LINE), line, BLACK, font)
