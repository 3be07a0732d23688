"""`View`: what the viewer shows now, as pixels to render and an exact map back to the original image.

A view is (source, window and orientation, operations). Geometry tools replace the window or turn it; intensity tools
append an operation. The *native* values are sampled once for each view, on a grid no larger than the pixel budget, and
the operations are applied to that grid in the order of their calls: ten zooms cost as much as one and lose nothing.
Turning and mirroring leave the window as it is and add no rounding, however often they are called. Where nothing was
measured, the grid has the nearest measured value, so that no filter sees an edge there; it is painted at the very end.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Protocol

import cv2
import numpy as np
from PIL import Image

from .ref import ImageRef
from .resample import CLOSE, fit_size, resample
from .source import Source

Box = tuple[float, float, float, float]
Point = tuple[float, float]
Matrix = tuple[float, float, float, float, float, float]

WHOLE: Box = (0.0, 0.0, 1.0, 1.0)


class Operation(Protocol):
    """An intensity change of the grid of a view. Statistics of the whole picture are fixed when it is made.

    Args:
        pixels: (height, width[, 3]); native values, or uint8 once an operation has made them so.
        view: has the geometry of the grid and the operations before this one.

    Returns:
        Pixels of the same height and width.
    """

    def __call__(self, pixels: np.ndarray, view: "View", /) -> np.ndarray: ...


def map_points(
    points: Sequence[float], source: Sequence[float], target: Sequence[float], *, turned: bool
) -> tuple[float, ...]:
    """Map alternating x and y by two corners, (x, y, x, y), of one box to those of another, in which it is `turned`."""
    (x1, y1, x2, y2), (left, top, right, bottom) = source, target
    moved: list[float] = []
    for x, y in zip(points[::2], points[1::2], strict=True):
        s, t = (x - x1) / (x2 - x1), (y - y1) / (y2 - y1)
        u, v = (t, s) if turned else (s, t)
        moved += ((1 - u) * left + u * right, (1 - v) * top + v * bottom)
    return tuple(moved)


@dataclass(frozen=True)
class View:
    """What is shown of a source. Views are equal if they show the same, whatever the steps that led to them.

    Args:
        source: the image.
        size: (width, height) of the grid in pixels.
        max_pixels: the largest grid that a view of this image may have.
        multiple: both sides of a grid are multiples of it.
        window: what is shown, (x1, y1, x2, y2) in fractions of the source.
        turned: whether the window is transposed: x of the view runs along y of the original.
        mirrored: whether x and y of the view run backwards, after transposing.
        operations: intensity changes, in the order of their calls.
        parent: the view before this one.

    >>> view = View.of(Image.new("L", (400, 200)), max_pixels=100 * 50)
    >>> view.size, view.zoom(2, (0.5, 0.5)).window
    ((100, 50), (0.25, 0.25, 0.75, 0.75))
    >>> view.rotate().to_original((1.0, 0.0))  # what was the upper left corner is the upper right one now
    (0.0, 0.0)
    """

    source: Source
    size: tuple[int, int]
    max_pixels: int
    multiple: int = 1
    window: Box = WHOLE
    turned: bool = False
    mirrored: tuple[bool, bool] = (False, False)
    operations: tuple[Operation, ...] = ()
    parent: "View | None" = field(default=None, repr=False, compare=False)
    # "grid" halves the time of a chain of six tools; "gray" saves 0.3 ms for each reading of a color view of 512 x 512.
    _kept: dict[str, np.ndarray] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, image: Source | Image.Image | np.ndarray, *, max_pixels: int = 512 * 512, multiple: int = 1) -> "View":
        """Return the overview: the whole image, to scale if `source.spacing` is known, at most `max_pixels` large."""
        source = Source.of(image)
        return cls(source, fit_size(*source.extent, max_pixels, multiple), max_pixels, multiple)

    def to_original(self, points: Sequence[float]) -> tuple[float, ...]:
        """Map alternating x and y from fractions of this view to fractions of the original."""
        return map_points(points, WHOLE, self.corners, turned=self.turned)

    def from_original(self, points: Sequence[float]) -> tuple[float, ...]:
        """Map alternating x and y from fractions of the original to fractions of this view (outside [0, 1]: hidden)."""
        return map_points(points, self.corners, WHOLE, turned=self.turned)

    @property
    def corners(self) -> Box:
        """Where the upper left and the lower right corner of this view lie in the original."""
        (x1, y1, x2, y2), (across, down) = self.window, self.mirrored[:: -1 if self.turned else 1]
        x1, x2 = (x2, x1) if across else (x1, x2)
        y1, y2 = (y2, y1) if down else (y1, y2)
        return x1, y1, x2, y2

    def box_to_original(self, box: Sequence[float]) -> Box:
        """Map a box of this view to the original: (x1, y1, x2, y2) with x1 <= x2 and y1 <= y2, for any rotation."""
        x1, y1, x2, y2 = self.to_original(box)
        return min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)

    @property
    def matrix(self) -> Matrix:
        """`to_original` as an affine map: (a, b, c, d, e, f) with x = a·u + b·v + c and y = d·u + e·v + f."""
        c, f, ac, df, bc, ef = self.to_original((0.0, 0.0, 1.0, 0.0, 0.0, 1.0))
        return ac - c, bc - c, c, df - f, ef - f, f

    @property
    def native(self) -> Box:
        """The window as a box of native pixels, not rounded."""
        x1, y1, x2, y2 = self.window
        width, height = self.source.size
        return x1 * width, y1 * height, x2 * width, y2 * height

    def find_pixel(self, point: Point) -> tuple[int, int]:
        """(column, row) of the native pixel that holds a point (fractions of this view); at a far edge, the last."""
        parts = zip(self.to_original(point), self.source.size, strict=True)
        column, row = (min(side - 1, max(0, math.floor(fraction * side + CLOSE))) for fraction, side in parts)
        return column, row

    def find_pixels_in(self, box: Sequence[float]) -> tuple[int, int, int, int]:
        """(left, top, right, bottom) of the native pixels whose centers lie in a box (fractions of this view).
        As in slices, right and bottom are excluded: boxes side by side share no pixel, and a box may hold none."""
        edges = zip(self.box_to_original(box), self.source.size * 2, strict=True)
        left, top, right, bottom = (max(0, math.ceil(fraction * side - 0.5 - CLOSE)) for fraction, side in edges)
        return left, top, max(left, right), max(top, bottom)

    def zoom(self, factor: float, center: Point = (0.5, 0.5)) -> "View":
        """Zoom in by `factor` about `center` (fractions of this view); the window stays inside the image.
        A factor above 1 magnifies: the sides of the grid grow by it too, up to the budget. One below 1 shows more, at
        most the whole image, on a grid of the same size."""
        x1, y1, x2, y2 = self.window
        width, height = min(1.0, (x2 - x1) / factor), min(1.0, (y2 - y1) / factor)
        cx, cy = self.to_original(center)
        left, top = (min(max(0.0, c - side / 2), 1.0 - side) for c, side in ((cx, width), (cy, height)))
        size, area = self.size, self.size[0] * self.size[1]
        extent = self._measure_extent(width, height)
        # the edge of the image may have changed the aspect ratio
        if not math.isclose(width * (y2 - y1), height * (x2 - x1), rel_tol=1e-9):
            size = fit_size(*extent, area, self.multiple, enlarge=True)
        if factor > 1:
            most = min(self.max_pixels, math.floor(area * factor**2))
            grown = fit_size(*extent, most, self.multiple, enlarge=True)
            size = grown if grown[0] > size[0] and grown[1] > size[1] else size
        return self._derive(size=size, window=(left, top, min(1.0, left + width), min(1.0, top + height)))

    def crop(self, box: Box) -> "View":
        """Show only `box` (x1, y1, x2, y2 in fractions of this view), at native resolution if the budget allows it."""
        x1, y1, x2, y2 = window = self.box_to_original(box)
        size = fit_size(*self._measure_extent(x2 - x1, y2 - y1), self.max_pixels, self.multiple)
        return self._derive(size=size, window=window)

    def rotate(self, clockwise: bool = True) -> "View":
        """Turn this view by 90°."""
        x, y = self.mirrored  # transposing and then mirroring one axis is a rotation
        mirrored = (not y, x) if clockwise else (y, not x)
        return self._derive(size=self.size[::-1], turned=not self.turned, mirrored=mirrored)

    def flip_horizontal(self) -> "View":
        """Mirror this view: left and right are exchanged."""
        return self._derive(mirrored=(not self.mirrored[0], self.mirrored[1]))

    def flip_vertical(self) -> "View":
        """Mirror this view: top and bottom are exchanged."""
        return self._derive(mirrored=(self.mirrored[0], not self.mirrored[1]))

    @property
    def is_mirror_image(self) -> bool:
        """Whether this view is mirrored: no rotation makes it like the original, and left and right may be swapped."""
        return self.turned ^ self.mirrored[0] ^ self.mirrored[1]

    def reset(self) -> "View":
        """Show the overview again, without operations."""
        return self.show(self.source)

    def undo(self) -> "View":
        """Return the view before the last step, or this one if it is the first."""
        return self.parent or self

    def apply(self, operation: Operation) -> "View":
        """Return this view with one more intensity operation."""
        return self._derive(operations=(*self.operations, operation))

    def show(self, source: Source) -> "View":
        """Return the overview of another image, with this view's budget."""
        return replace(View.of(source, max_pixels=self.max_pixels, multiple=self.multiple), parent=self)

    def at_resolution(self, max_pixels: int, *, all_levels: bool = False) -> "View":
        """Return what this view shows at the resolution of the file, on a grid of at most `max_pixels`.
        With `all_levels`, a DICOM that asks for no window is shown from the lowest to the highest value that it can
        hold, instead of those that were measured.

        >>> View.of(Image.new("L", (400, 200)), max_pixels=50 * 25).at_resolution(512 * 512).size
        (400, 200)
        """
        size = fit_size(*self.measure_window(), max_pixels)
        levels = self.source.levels if all_levels else None
        source = self.source if levels is None else replace(self.source, display=levels)
        return replace(self, source=source, size=size, max_pixels=max_pixels, multiple=1, parent=None)

    def _derive(self, **changes: Any) -> "View":
        return replace(self, parent=self, **changes)

    def measure_window(self) -> tuple[float, float]:
        """Width and height of what this view shows, to scale, in units of the shorter side of a native pixel."""
        x1, y1, x2, y2 = self.window
        return self._measure_extent(x2 - x1, y2 - y1)

    def _measure_extent(self, width: float, height: float) -> tuple[float, float]:
        """Return the sides along x and y of this view, to scale, of a window of that size (fractions of the image)."""
        extent = width * self.source.extent[0], height * self.source.extent[1]
        return extent[::-1] if self.turned else extent

    def get_values(self) -> np.ndarray:
        """Return the grid, (height, width[, 3]): native values, or uint8 once an operation has made them so. Read-only.
        This view and the view before it keep their grids, however long the chain. Threads may share views."""
        grid = self._kept.get("grid")
        if grid is None:
            grid = self._compute_values().view()
            grid.flags.writeable = False
            self._kept["grid"] = grid
            older = self.parent and self.parent.parent
            while older is not None:
                older._kept.clear()
                older = older.parent
        return grid

    def _compute_values(self) -> np.ndarray:
        before = self.parent
        grid = None if before is None else before._kept.get("grid")
        if grid is not None and before is not None and self.operations:
            last = self.operations[-1]
            if self == replace(before, operations=(*before.operations, last)):  # that is all that was added
                return last(grid, before)
        grid = self.sample_values()
        for number, operation in enumerate(self.operations):
            so_far = replace(self, operations=self.operations[:number], parent=None)
            so_far._kept["grid"] = grid
            grid = operation(grid, so_far)
        return grid

    def sample_values(self) -> np.ndarray:
        """Return the grid without any operation: native values, resampled once. May share memory with the source."""
        return self._sample(self.source.filled)

    def _sample(self, pixels: np.ndarray) -> np.ndarray:
        """Return pixels of the source's size, (h, w[, 3]), on the grid."""
        pixels = resample(pixels, self.native, self.size[::-1] if self.turned else self.size)
        if self.turned:
            pixels = cv2.transpose(pixels)
        if any(self.mirrored):
            code = {(True, False): 1, (False, True): 0, (True, True): -1}[self.mirrored]
            pixels = cv2.flip(pixels, code, pixels if self.turned else None)  # in place, unless they are the source's
        return pixels

    @property
    def measured(self) -> np.ndarray | None:
        """Which pixels of the grid are at least half of measured pixels, bool (height, width); None if all are."""
        there = self.source.measured
        if there is None:
            return None
        cached = self._kept.get("measured")
        if cached is None:
            cached = self._kept["measured"] = self._sample(there.astype(np.float32)) >= 0.5
        return cached

    def to_uint8(self) -> np.ndarray:
        """Return the grid as it is shown: uint8, (height, width) or (height, width, 3)."""
        return self.source.paint(self.source.to_uint8(self.get_values()), self.measured)

    @property
    def sides(self) -> str | None:
        """The patient's sides at the left, right, top and bottom of this view; None if they are not known."""
        sides = self.source.sides
        if sides is None:
            return None
        left_right, top_bottom = (sides[2:], sides[:2]) if self.turned else (sides[:2], sides[2:])
        return left_right[:: -1 if self.mirrored[0] else 1] + top_bottom[:: -1 if self.mirrored[1] else 1]

    def to_picture(self) -> np.ndarray:
        """`to_uint8` as a person or a model sees it: with the letters of the patient's sides at its border."""
        pixels, sides = self.to_uint8(), self.sides
        return pixels if sides is None else draw_sides(pixels, sides)

    def to_ref(self) -> ImageRef:
        """`to_picture` by reference. Equal pictures share their pixels, and their views share them too."""
        ref = ImageRef.of(self.to_picture())
        grid = self._kept.get("grid")
        same = grid is not None and grid.dtype == np.uint8 and self.sides is None and self.measured is None
        if same and isinstance(ref.pixels, np.ndarray):
            self._kept["grid"] = ref.pixels
        return ref

    def to_gray(self) -> np.ndarray:
        """Return the grid in gray levels, (height, width): ITU-R BT.601 luma, not painted where nothing was measured;
        kept."""
        pixels = self.source.to_uint8(self.get_values())
        if pixels.ndim == 2:
            return pixels
        cached = self._kept.get("gray")
        if cached is None:
            cached = self._kept["gray"] = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
            cached.flags.writeable = False
        return cached

    def render(self) -> Image.Image:
        """`to_picture` as a Pillow image of mode L or RGB."""
        return Image.fromarray(self.to_picture())


# 5 x 7 pixels each, as seven rows of five bits: the same pixels on every machine
GLYPHS = {
    "R": (0x1E, 0x11, 0x11, 0x1E, 0x14, 0x12, 0x11),
    "L": (0x10, 0x10, 0x10, 0x10, 0x10, 0x10, 0x1F),
    "A": (0x0E, 0x11, 0x11, 0x1F, 0x11, 0x11, 0x11),
    "P": (0x1E, 0x11, 0x11, 0x1E, 0x10, 0x10, 0x10),
    "H": (0x11, 0x11, 0x11, 0x1F, 0x11, 0x11, 0x11),
    "F": (0x1F, 0x10, 0x10, 0x1E, 0x10, 0x10, 0x10),
}
SMALLEST = 24  # pixels of the shorter side: on smaller pictures a letter would hide too much
STEP = 160  # pixels of the shorter side for which a letter grows by its first size


def draw_sides(pixels: np.ndarray, sides: str) -> np.ndarray:
    """Return a copy of uint8 `pixels`, (h, w) or (h, w, 3), with the first of `sides` at its left edge, the third at
    its top. A picture with a side below `SMALLEST` gets no letters."""
    height, width = pixels.shape[:2]
    if min(height, width) < SMALLEST:
        return pixels
    drawn, scale = pixels.copy(), max(1, min(height, width) // STEP)
    left, top = _draw_letter(sides[0], scale), _draw_letter(sides[2], scale)
    (high, wide), half = left.shape, (height - left.shape[0]) // 2
    middle = (width - wide) // 2
    for letter, place in ((left, drawn[half : half + high, :wide]), (top, drawn[:high, middle : middle + wide])):
        place[letter == 0], place[letter == 1] = 0, 255
    return drawn


@cache
def _draw_letter(name: str, scale: int) -> np.ndarray:
    """Return a letter of 1 with a rim of 0, so that it is legible on black and on white; 2 elsewhere."""
    inked = np.pad(np.array([[row >> (4 - column) & 1 for column in range(5)] for row in GLYPHS[name]], np.uint8), 1)
    rim = cv2.dilate(inked, np.ones((3, 3), np.uint8))
    return np.kron(np.where(inked, 1, np.where(rim, 0, 2)), np.ones((scale, scale), int))
