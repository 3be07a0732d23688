"""Tools that change brightness values point by point, never coordinates: each is one table of 256 entries.

They act on the picture as it is shown (0–255): a 16-bit or Hounsfield image is first mapped as it is displayed. The
table is fixed when the tool is called, so a later zoom shows the same picture closer. `windows.py` holds the tools that
act on native values, `filters.py` those that look at neighbors.
"""

from dataclasses import dataclass
from typing import Annotated

import cv2
import numpy as np

from viewbox.envs.tools.arguments import Range
from viewbox.envs.tools.results import ToolOutput
from viewbox.envs.tools.tool import tool
from viewbox.images.view import View


def gray(pixels: np.ndarray) -> np.ndarray:
    """(height, width) of color or gray: ITU-R BT.601 luma, as Pillow's mode L within one level."""
    return cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY) if pixels.ndim == 3 else pixels


@dataclass(frozen=True)
class Table:
    """Every value of the picture becomes the entry of `entries` (256 bytes) at its place; `grays`: color is dropped.

    >>> Table("invert", bytes(range(255, -1, -1))).entries[0]
    255
    """

    tool: str
    entries: bytes
    grays: bool = False

    @classmethod
    def of(cls, name: str, levels: np.ndarray, *, grays: bool = False) -> "Table":
        """From 256 numbers, rounded and clipped to 0–255."""
        return cls(name, np.clip(np.rint(levels), 0, 255).astype(np.uint8).tobytes(), grays)

    def __call__(self, pixels: np.ndarray, view: View) -> np.ndarray:
        shown = view.to_gray() if self.grays else view.source.to_uint8(pixels)
        return cv2.LUT(shown, np.frombuffer(self.entries, np.uint8))


LEVELS = np.arange(256, dtype=np.float32)


@tool
def adjust_contrast(view: View, factor: Annotated[float, Range(0.5, 3)]) -> ToolOutput:
    """Raise (factor above 1) or lower the contrast of the current view."""
    mean = int(cv2.mean(view.to_gray())[0] + 0.5)  # as Pillow's ImageEnhance.Contrast
    stretched = Table.of("adjust_contrast", mean + np.float32(factor) * (LEVELS - mean))
    return ToolOutput("contrast adjusted", {"factor": factor, "size": list(view.size)}, view=view.apply(stretched))


@tool
def adjust_brightness(view: View, factor: Annotated[float, Range(0.5, 2)]) -> ToolOutput:
    """Make the current view brighter (factor above 1) or darker."""
    scaled = Table.of("adjust_brightness", np.float32(factor) * LEVELS)  # as Pillow's ImageEnhance.Brightness
    return ToolOutput("brightness adjusted", {"factor": factor, "size": list(view.size)}, view=view.apply(scaled))


@tool
def equalize_histogram(view: View) -> ToolOutput:
    """Spread the gray levels of the current view evenly over black to white. Drops color."""
    levels = equalized(view.to_gray())
    table = Table.of("equalize_histogram", levels, grays=True)
    return ToolOutput("histogram equalized", {"size": list(view.size)}, view=view.apply(table))


def equalized(pixels: np.ndarray) -> np.ndarray:
    """256 levels, not rounded: the cumulative histogram of (h, w) uint8, its lowest level black and its highest white.

    (cdf(v) − cdf(lowest)) / (n − cdf(lowest)) · 255: Gonzalez & Woods, as OpenCV's `equalizeHist`. Where there is one
    level only, it stays.

    >>> equalized(np.array([[7, 7, 8, 9]], np.uint8))[[7, 8, 9]].tolist()
    [0.0, 127.5, 255.0]
    """
    counts = cv2.calcHist([pixels], [0], None, [256], [0, 256]).ravel().astype(np.float64)
    cumulative = np.cumsum(counts)
    lowest = counts[np.flatnonzero(counts)[0]]
    if lowest == cumulative[-1]:
        return LEVELS
    return (cumulative - lowest) / (cumulative[-1] - lowest) * 255


@tool
def invert(view: View) -> ToolOutput:
    """Exchange black and white. Drops color."""
    return ToolOutput(
        "inverted", {"size": list(view.size)}, view=view.apply(Table.of("invert", 255 - LEVELS, grays=True))
    )
