"""Regions that a model marked in a picture: their numbers, and the picture with colors on them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....errors import ToolFault
from ....images.view import WHOLE, View
from ...fractions import ViewFractions
from ...results import ToolOutput
from ..serving import Request

COLORS = {  # of the overlay, in this order
    "red": (255, 60, 60),
    "green": (60, 220, 60),
    "blue": (80, 120, 255),
    "yellow": (240, 220, 40),
    "cyan": (40, 220, 220),
    "magenta": (230, 60, 230),
}
OPACITY = 0.4


@dataclass(frozen=True)
class Segment:
    """A region: its number in the map, its label, and how sure the model is, if it says so."""

    number: int
    label: str
    score: float | None = None


@dataclass(frozen=True)
class Segmented:
    """What a model marked in a picture.

    Args:
        map: (height, width) of the picture: the number of the region of each pixel, 0 for none.
        segments: the regions.
    """

    map: np.ndarray
    segments: tuple[Segment, ...]


def check_map(found: Any, request: Request) -> np.ndarray:
    """A map in the smallest type that holds it. Raises `ToolFault` unless it has the size of the picture.

    It is never resized here: only the processor of a model knows how its masks lie on the picture.
    """
    numbers = np.asarray(found)
    size = request.picture.height, request.picture.width
    if numbers.shape != size:
        shape = " x ".join(map(str, numbers.shape[::-1])) or "no"
        raise ToolFault(f"gave a mask of {shape} pixels for a picture of {size[1]} x {size[0]}")
    kept = numbers.astype(np.uint8 if numbers.max(initial=0) < 256 else np.int32)
    kept.flags.writeable = False
    return kept


def measure_pixel(view: View) -> float | None:
    """The area of a pixel of a view in mm²; None if the spacing of its image is not known."""
    spacing = view.source.spacing
    if spacing is None:
        return None
    x1, y1, x2, y2 = view.native
    width, height = view.size
    return (x2 - x1) * spacing[0] * (y2 - y1) * spacing[1] / (width * height)


def describe_regions(view: View, found: Segmented, label: str | None, most: int) -> ToolOutput:
    """The numbers of each region, the largest first, and the picture with a color on each.

    `mean_intensity` is of the gray values of the picture as it is shown, 0 to 255. Areas in mm² are given if the
    spacing is known.
    """
    gray, pixel = view.to_gray(), measure_pixel(view)
    wanted = [one for one in found.segments if label is None or one.label == label]
    masks = [(one, found.map == one.number) for one in wanted]
    masks = sorted(
        ((one, mask) for one, mask in masks if mask.any()), key=lambda item: (-item[1].sum(), item[0].number)
    )
    if not masks:
        return ToolOutput("nothing found" if label is None else f"no {label} found")
    regions = []
    names = list(COLORS)
    for place, (one, mask) in enumerate(masks[:most]):
        facts: dict[str, Any] = {"label": one.label}
        if one.score is not None:
            facts["score"] = round(one.score, 3)
        facts |= {
            "color": names[place % len(names)],
            "area_percent": round(100 * float(mask.mean()), 2),
            "box": ViewFractions(find_box(mask)),
            "mean_intensity": round(float(gray[mask].mean()), 1),
        }
        if pixel is not None:
            facts["area_mm2"] = round(float(mask.sum()) * pixel, 1)
        regions.append(facts)
    more = f"; the {most} largest" if len(masks) > most else ""
    text = f"{len(masks)} {'region' if len(masks) == 1 else 'regions'}{more}"
    picture = draw_overlay(view.to_picture(), [mask for _, mask in masks[:most]])
    return ToolOutput(text, {"regions": regions}, picture, beside=((view, WHOLE),))


def find_box(mask: np.ndarray) -> tuple[float, float, float, float]:
    """The smallest box around a mask, in fractions of the picture.

    >>> find_box(np.array([[False, True], [False, False]]))
    (0.5, 0.0, 1.0, 0.5)
    """
    rows, columns = np.nonzero(mask.any(1))[0], np.nonzero(mask.any(0))[0]
    height, width = mask.shape
    x1, x2 = float(columns[0]) / width, float(columns[-1] + 1) / width
    return x1, float(rows[0]) / height, x2, float(rows[-1] + 1) / height


def draw_overlay(pixels: np.ndarray, masks: Sequence[np.ndarray]) -> np.ndarray:
    """The picture, uint8 (height, width, 3), with a half-transparent color on each mask."""
    drawn = np.repeat(pixels[..., None], 3, axis=2) if pixels.ndim == 2 else pixels.copy()
    colors = list(COLORS.values())
    for place, mask in enumerate(masks):
        color = np.array(colors[place % len(colors)])
        drawn[mask] = np.rint((1 - OPACITY) * drawn[mask] + OPACITY * color).astype(np.uint8)
    return drawn
