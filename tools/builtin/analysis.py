"""Tools that only read: numbers from the original pixels, and marks on the picture. The view stays as it is.

Numbers come from native pixels, whatever the zoom and the filters: Hounsfield units stay Hounsfield units. A profile
begins and ends at the pixels that contain its points. A distance is measured between the points themselves.
"""

import math
from typing import Annotated, Any, Literal

import numpy as np

from ...errors import ArgumentError, show_json
from ...images.statistics import describe_pixels, describe_values, to_luminance
from ...images.view import WHOLE, View
from ..arguments import Box, Point, Range, ViewFractions
from ..calling import ToolOutput
from ..tool import tool
from .drawing import draw_grid, draw_outline, find_undrawn

Color = Literal["red", "green", "blue", "yellow", "cyan", "magenta", "white"]
LONGEST_PROFILE = 64  # numbers of a profile that are shown and saved
LONGEST_LABEL = 40  # characters


def _check_box(name: str, box: Box) -> Box:
    x1, y1, x2, y2 = box
    if x1 >= x2 or y1 >= y2:
        raise ArgumentError(f"{name}: box needs x1 < x2 and y1 < y2")
    return box


def _name_unit(view: View) -> dict[str, Any]:
    return {} if view.source.unit is None else {"unit": view.source.unit}


@tool
def get_intensity_stats(view: View, box: Box | None = None) -> ToolOutput:
    """Mean, standard deviation, minimum, maximum, median and histogram (10 equal bins from minimum to maximum) of the
    original pixel values in a box of the current view, or in the whole view. Filters have no effect; colors count as
    luminance.

    box: the area to look at; default: the whole view
    """
    left, top, right, bottom = _find_pixels(view, WHOLE if box is None else _check_box("get_intensity_stats", box))
    area, there = np.s_[top:bottom, left:right], view.source.measured
    measured = None if there is None else there[area]
    width, height = (bottom - top, right - left) if view.turned else (right - left, bottom - top)
    facts: dict[str, Any] = {"size": [width, height], **_name_unit(view)}
    if measured is not None and not measured.all():
        facts["pixels_not_measured"] = int((~measured).sum())
        if not measured.any():
            return ToolOutput("nothing was measured here: this is padding around the image", facts)
    return ToolOutput("intensities", {**describe_pixels(view.source.pixels[area], measured), **facts})


def _find_pixels(view: View, box: Box) -> tuple[int, int, int, int]:
    """(left, top, right, bottom) of the native pixels with their centers in `box`; at least the pixel it lies in."""
    left, top, right, bottom = view.find_pixels_in(box)
    column, row = view.find_pixel(((box[0] + box[2]) / 2, (box[1] + box[3]) / 2))
    if left == right:
        left, right = column, column + 1
    if top == bottom:
        top, bottom = row, row + 1
    return left, top, right, bottom


@tool
def intensity_profile(view: View, point1: Point, point2: Point) -> ToolOutput:
    """Original pixel values along the line between two points of the current view, both ends included.

    point1: start of the line
    point2: end of the line
    """
    (x1, y1), (x2, y2) = view.find_pixel(point1), view.find_pixel(point2)
    count = max(abs(x2 - x1), abs(y2 - y1)) + 1
    columns, rows = (np.rint(np.linspace(*ends, count)).astype(int) for ends in ((x1, x2), (y1, y2)))
    values = to_luminance(view.source.pixels[rows, columns][None])[0].astype(float)
    places, text = np.arange(count), "profile"
    if count > LONGEST_PROFILE:
        places = np.rint(np.linspace(0, count - 1, LONGEST_PROFILE)).astype(int)
        text = f"profile ({LONGEST_PROFILE} evenly spaced samples; the other numbers use all samples)"
    facts: dict[str, Any] = {"profile": values[places].tolist(), "n_samples": count}
    if view.source.measured is not None and not (there := view.source.measured[rows, columns]).all():
        facts["profile"] = [float(values[place]) if there[place] else None for place in places]
        facts["pixels_not_measured"] = int((~there).sum())
        text, values = text + "; null where nothing was measured (padding)", values[there]
    if values.size:
        facts |= describe_values(values)
    return ToolOutput(text, {**facts, "pixel_points": [[x1, y1], [x2, y2]], **_name_unit(view)})


@tool
def measure(view: View, point1: Point, point2: Point) -> ToolOutput:
    """Distance between two points of the current view, in pixels of the original and, if the spacing is known, in
    millimeters.

    point1: where the distance begins
    point2: where it ends
    """
    width, height = view.source.size
    x1, y1, x2, y2 = view.to_original((*point1, *point2))
    x1, y1, x2, y2 = x1 * width, y1 * height, x2 * width, y2 * height
    facts: dict[str, Any] = {"distance_pixels": math.hypot(x2 - x1, y2 - y1)}
    distance, text = view.source.measure(x1, y1, x2, y2), "measured"
    if distance is None and view.source.regions:
        text += "; millimeters are known only between two points in one region of the ultrasound with lengths as axes"
    elif distance is None:
        text += "; the size of a pixel in millimeters is not known"
    elif view.source.at_detector:
        facts["distance_mm_at_detector"] = distance
        text += "; millimeters are those at the detector: in the patient it is shorter, by an unknown magnification"
    else:
        facts["distance_mm"] = distance
    there = view.source.measured
    if there is not None and not all(there[row, column] for column, row in map(view.find_pixel, (point1, point2))):
        text += "; careful: an end lies where nothing was measured (padding)"
    points = [[round(x1, 3), round(y1, 3)], [round(x2, 3), round(y2, 3)]]
    return ToolOutput(text, {**facts, "pixel_points": points})


@tool
def annotate_region(view: View, box: Box, color: Color = "red", label: str = "") -> ToolOutput:
    """Show the current view with a labeled outline around a box. The view itself does not change.

    box: the area to outline
    color: color of the outline
    label: text beside the outline, in English letters, digits and ASCII signs; default: none
    """
    x1, y1, x2, y2 = _check_box("annotate_region", box)
    label = " ".join(label.split())
    if len(label) > LONGEST_LABEL:
        raise ArgumentError(f"annotate_region: label has {len(label)} characters; allowed: at most {LONGEST_LABEL}")
    if undrawn := find_undrawn(label):
        what = f"{show_json(undrawn)} cannot be drawn; allowed: English letters, digits and ASCII signs"
        raise ArgumentError(f"annotate_region: label: {what}")
    width, height = view.size
    left, top = min(int(x1 * width), width - 1), min(int(y1 * height), height - 1)
    right, bottom = max(left + 1, math.ceil(x2 * width - 1e-6)), max(top + 1, math.ceil(y2 * height - 1e-6))
    picture = draw_outline(view.to_picture(), (left, top, right, bottom), color, label)
    text = "outlined, with the label drawn beside it" if label else "outlined"
    return ToolOutput(text, {"box": ViewFractions(box), "color": color, "label": label}, picture)


@tool
def show_grid(view: View, divisions: Annotated[int, Range(2, 8)] = 4) -> ToolOutput:
    """Show the current view with a grid of labeled cells: letters from left to right, numbers from top to bottom.

    divisions: number of rows and of columns
    """
    labels = [f"{chr(ord('A') + column)}{row + 1}" for row in range(divisions) for column in range(divisions)]
    picture = draw_grid(view.to_picture(), divisions, labels)
    return ToolOutput("grid shown", {"divisions": divisions, "cell_labels": labels}, picture)
