"""The difference between the two halves of a view: structures on one side only are bright."""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import cv2
import numpy as np

from ...errors import ArgumentError
from ...images.statistics import to_luminance
from ...images.view import View
from ..calling import ToolOutput
from ..tool import tool


@dataclass(frozen=True)
class MirrorDifference:
    """|picture − its mirror image|; `top` is white. Pixels without a measured counterpart in the image are black.
    The mirror axis is a line of the *original*, at the fraction `center` of its x (`axis` 0) or y (1). After a zoom the
    view shows a part of the same difference; its counterpart is then rendered from the other side."""

    tool: ClassVar[str] = "symmetry_diff"
    axis: int
    center: float
    top: int

    def __call__(self, pixels: np.ndarray, view: View) -> np.ndarray:
        pixels = to_luminance(view.source.to_uint8(pixels))
        difference = np.zeros_like(pixels)
        if self.top == 0:
            return difference
        along = self.axis ^ view.turned  # of the view: 0 columns, 1 rows
        first, last, other, measured = self._mirror(pixels, view, along)
        half = np.s_[:, first:last] if along == 0 else np.s_[first:last]
        if last > first:
            difference[half] = cv2.convertScaleAbs(cv2.absdiff(pixels[half], other), alpha=255 / self.top)
            if measured is not None:
                difference[half][~measured] = 0
        return difference

    def _mirror(self, pixels: np.ndarray, view: View, along: int) -> tuple[int, int, np.ndarray, np.ndarray | None]:
        """(first, last, mirror image, what was measured) of the columns (or rows) whose mirror image is inside."""
        low, high = view.window[self.axis], view.window[self.axis + 2]
        count, backwards = view.size[along], view.mirrored[along]
        if abs(low + high - 2 * self.center) < 1e-9:  # the view is its own counterpart
            there = view.measured
            return 0, count, cv2.flip(pixels, 1 - along), None if there is None else np.flip(there, 1 - along)
        ends = [min(max(0.0, (2 * self.center - side - low) / (high - low)), 1.0) for side in (1.0, 0.0)]
        if backwards:
            ends = [1 - ends[1], 1 - ends[0]]
        first, last = math.ceil(ends[0] * count - 1e-6), math.floor(ends[1] * count + 1e-6)
        if last <= first:
            return 0, 0, pixels, None
        start, stop = (count - last, count - first) if backwards else (first, last)
        window, size, mirrored = list(view.window), list(view.size), list(view.mirrored)
        step = (high - low) / count
        window[self.axis] = max(0.0, 2 * self.center - (low + stop * step))
        window[self.axis + 2] = min(1.0, 2 * self.center - (low + start * step))
        size[along], mirrored[along] = last - first, not backwards
        changes: dict[str, Any] = {"window": tuple(window), "size": tuple(size), "mirrored": tuple(mirrored)}
        other = replace(view, **changes, parent=None)
        return first, last, other.to_gray(), other.measured


@tool
def symmetry_diff(view: View) -> ToolOutput:
    """Show how the left and right halves of the current view differ: equal areas are black. Drops color."""
    if any(isinstance(item, MirrorDifference) for item in view.operations):  # each doubles the work of a zoom
        raise ArgumentError("symmetry_diff: the view already shows a mirror difference. Call undo or reset first.")
    pixels, there = view.to_gray(), view.measured
    axis = int(view.turned)
    center = (view.window[axis] + view.window[axis + 2]) / 2
    both = None if there is None else (there & there[:, ::-1]).astype(np.uint8)
    top = int(cv2.norm(cv2.absdiff(pixels, cv2.flip(pixels, 1)), cv2.NORM_INF, both))
    shown = view.apply(MirrorDifference(axis, center, top))
    return ToolOutput("mirror difference shown", {"size": list(view.size)}, view=shown)
