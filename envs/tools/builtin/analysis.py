"""Tools that only read: numbers of the original's own pixels, and marks on what is shown. They leave the view alone.

Numbers are of native pixels, whatever the zoom and whatever filters are on: Hounsfield units stay Hounsfield units. A
point stands for the pixel it lies in, in measurements as in profiles.
"""

import math
from typing import Annotated, Any, Literal

import numpy as np

from viewbox.envs.tools.arguments import Box, Point, Range
from viewbox.envs.tools.builtin.drawing import gridded, outlined
from viewbox.envs.tools.results import ToolOutput, ViewFractions
from viewbox.envs.tools.tool import tool
from viewbox.errors import ToolError
from viewbox.images.statistics import describe, luminance
from viewbox.images.view import WHOLE, View

Color = Literal["red", "green", "blue", "yellow", "cyan", "magenta", "white"]
LONGEST_PROFILE = 64  # numbers that are told and kept of a profile
LONGEST_LABEL = 40  # characters


def _checked(name: str, box: Box) -> Box:
    x1, y1, x2, y2 = box
    if x1 >= x2 or y1 >= y2:
        raise ToolError(f"{name}: box needs x1 < x2 and y1 < y2")
    return box


def _unit(view: View) -> dict[str, Any]:
    return {} if view.source.unit is None else {"unit": view.source.unit}


@tool
def get_intensity_stats(view: View, box: Box | None = None) -> ToolOutput:
    """Mean, standard deviation, lowest, highest, median and histogram (10 equal bins, lowest to highest) of the
    original pixel values in a box of the current view, or in all of it; filters do not count, colors as luminance."""
    left, top, right, bottom = view.pixels_in(WHOLE if box is None else _checked("get_intensity_stats", box))
    if left == right or top == bottom:
        raise ToolError("get_intensity_stats: no pixel of the image has its center in there; take a larger region")
    numbers = describe(view.source.pixels[top:bottom, left:right])
    width, height = (bottom - top, right - left) if view.turned else (right - left, bottom - top)
    return ToolOutput("intensities", {**numbers, "size": [width, height], **_unit(view)})


@tool
def intensity_profile(view: View, point1: Point, point2: Point) -> ToolOutput:
    """Original pixel values along the line from one point of the current view to another, ends included."""
    (x1, y1), (x2, y2) = view.pixel(point1), view.pixel(point2)
    count = max(abs(x2 - x1), abs(y2 - y1)) + 1
    columns, rows = (np.rint(np.linspace(*ends, count)).astype(int) for ends in ((x1, x2), (y1, y2)))
    values = luminance(view.source.pixels[rows, columns][None])[0].astype(float)
    told, words = values, "profile"
    if count > LONGEST_PROFILE:
        told = values[np.rint(np.linspace(0, count - 1, LONGEST_PROFILE)).astype(int)]
        words = f"profile ({LONGEST_PROFILE} of the samples, evenly spaced; the other numbers are of all)"
    facts = {
        "profile": told.tolist(),
        "n_samples": count,
        "mean": float(values.mean()),
        "std": float(values.std()),
        "min": float(values.min()),
        "max": float(values.max()),
        "pixel_points": [[x1, y1], [x2, y2]],
    }
    return ToolOutput(words, {**facts, **_unit(view)})


@tool
def measure(view: View, point1: Point, point2: Point) -> ToolOutput:
    """Distance between two points of the current view: in pixels of the original, and in millimeters where known."""
    (x1, y1), (x2, y2) = view.pixel(point1), view.pixel(point2)
    facts: dict[str, Any] = {"distance_pixels": math.hypot(x2 - x1, y2 - y1)}
    spacing = view.source.spacing
    if spacing is not None:
        facts["distance_mm"] = math.hypot((x2 - x1) * spacing[0], (y2 - y1) * spacing[1])
    words = "measured" if spacing is not None else "measured; the size of a pixel in millimeters is not known"
    return ToolOutput(words, {**facts, "pixel_points": [[x1, y1], [x2, y2]]})


@tool
def annotate_region(view: View, box: Box, color: Color = "red", label: str = "") -> ToolOutput:
    """Show the current view with a box outlined and labeled; the view itself stays as it is."""
    x1, y1, x2, y2 = _checked("annotate_region", box)
    label = " ".join(label.split())
    if len(label) > LONGEST_LABEL:
        raise ToolError(f"annotate_region: label has {len(label)} characters; allowed: at most {LONGEST_LABEL}")
    width, height = view.size
    left, top = min(int(x1 * width), width - 1), min(int(y1 * height), height - 1)
    right, bottom = max(left + 1, math.ceil(x2 * width - 1e-6)), max(top + 1, math.ceil(y2 * height - 1e-6))
    picture = outlined(view.shown(), (left, top, right, bottom), color, label)
    return ToolOutput("outlined", {"box": ViewFractions(box), "color": color, "label": label}, picture)


@tool
def show_grid(view: View, divisions: Annotated[int, Range(2, 8)] = 4) -> ToolOutput:
    """Show the current view under a grid of labeled cells: letters from left to right, numbers from top to bottom."""
    labels = [f"{chr(ord('A') + column)}{row + 1}" for row in range(divisions) for column in range(divisions)]
    picture = gridded(view.shown(), divisions, labels)
    return ToolOutput("grid shown", {"divisions": divisions, "cell_labels": labels}, picture)
