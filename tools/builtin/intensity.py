"""Tools that change brightness pixel by pixel, never coordinates; each is one table of 256 entries.

They act on the displayed picture (0–255): a 16-bit or Hounsfield image is first mapped to its display range. The table
is fixed when the tool is called, so a later zoom shows the same picture closer. The tools of `windows.py` act on native
values, those of `filters.py` look at neighboring pixels.
"""

from dataclasses import dataclass
from typing import Annotated

import cv2
import numpy as np

from ...images.view import View
from ..arguments import Range
from ..calling import ToolOutput
from ..tool import tool


@dataclass(frozen=True)
class ValueTable:
    """Replaces every value by its entry in `entries` (256 bytes); `grays`: drops color first.

    >>> ValueTable("invert", bytes(range(255, -1, -1))).entries[0]
    255
    """

    tool: str
    entries: bytes
    grays: bool = False

    @classmethod
    def from_levels(cls, name: str, levels: np.ndarray, *, grays: bool = False) -> "ValueTable":
        """Return the table of 256 numbers, rounded and clipped to 0–255."""
        return cls(name, np.clip(np.rint(levels), 0, 255).astype(np.uint8).tobytes(), grays)

    def __call__(self, pixels: np.ndarray, view: View) -> np.ndarray:
        shown = view.to_gray() if self.grays else view.source.to_uint8(pixels)
        return cv2.LUT(shown, np.frombuffer(self.entries, np.uint8))


LEVELS = np.arange(256, dtype=np.float32)


@tool
def adjust_contrast(view: View, factor: Annotated[float, Range(0.5, 3)]) -> ToolOutput:
    """Raise or lower the contrast of the current view.

    factor: above 1 raises it, below 1 lowers it, 1 changes nothing
    """
    mean = int(cv2.mean(view.to_gray(), get_mask(view))[0] + 0.5)  # as Pillow's ImageEnhance.Contrast
    stretched = ValueTable.from_levels("adjust_contrast", mean + np.float32(factor) * (LEVELS - mean))
    return ToolOutput("contrast adjusted", {"factor": factor, "size": list(view.size)}, view=view.apply(stretched))


@tool
def adjust_brightness(view: View, factor: Annotated[float, Range(0.5, 2)]) -> ToolOutput:
    """Make the current view brighter or darker.

    factor: above 1 is brighter, below 1 darker, 1 changes nothing
    """
    scaled = ValueTable.from_levels("adjust_brightness", np.float32(factor) * LEVELS)  # as ImageEnhance.Brightness
    return ToolOutput("brightness adjusted", {"factor": factor, "size": list(view.size)}, view=view.apply(scaled))


@tool
def equalize_histogram(view: View) -> ToolOutput:
    """Spread the gray levels of the current view evenly from black to white. Drops color."""
    table = ValueTable.from_levels("equalize_histogram", equalize_levels(view.to_gray(), get_mask(view)), grays=True)
    return ToolOutput("histogram equalized", {"size": list(view.size)}, view=view.apply(table))


def get_mask(view: View) -> np.ndarray | None:
    """Return which pixels of a view were measured, as OpenCV takes it: uint8 (h, w), 0 where not; None for all."""
    return None if view.measured is None else view.measured.astype(np.uint8)


def equalize_levels(pixels: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
    """256 levels, not rounded: the cumulative histogram of (h, w) uint8 pixels; lowest level black, highest white.
    `mask` says which pixels count, as `get_mask` does.
    (cdf(v) − cdf(lowest)) / (n − cdf(lowest)) · 255: Gonzalez & Woods, as OpenCV's `equalizeHist`. A picture with a
    single level does not change.

    >>> equalize_levels(np.array([[7, 7, 8, 9]], np.uint8))[[7, 8, 9]].tolist()
    [0.0, 127.5, 255.0]
    """
    counts = cv2.calcHist([pixels], [0], mask, [256], [0, 256]).ravel().astype(np.float64)
    cumulative = np.cumsum(counts)
    lowest = counts[np.argmax(counts > 0)]
    return LEVELS if lowest == cumulative[-1] else np.asarray((cumulative - lowest) / (cumulative[-1] - lowest) * 255)


@tool
def invert(view: View) -> ToolOutput:
    """Swap black and white. Drops color."""
    table = ValueTable.from_levels("invert", 255 - LEVELS, grays=True)
    return ToolOutput("inverted", {"size": list(view.size)}, view=view.apply(table))
