"""`View`: what the viewer shows now, as pixels to render and an exact map back to the original image.

A view is (source, window and orientation, operations). Geometry tools replace the window or turn it, intensity tools
append an operation. The *native* values are sampled once for a view, on a grid no larger than the budget, and the
operations are applied to that grid in the order of their calls: ten zooms cost what one costs and lose nothing. Turning
and mirroring leave the window as it is, so that they add no rounding however often they are called.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import cv2
import numpy as np
from PIL import Image

from viewbox.images.ref import ImageRef
from viewbox.images.resample import CLOSE, sample
from viewbox.images.source import Source

Box = tuple[float, float, float, float]
Point = tuple[float, float]
Matrix = tuple[float, float, float, float, float, float]

WHOLE: Box = (0.0, 0.0, 1.0, 1.0)
LONGEST = 16_000  # pixels along a side: OpenCV warps less than 32,768


class Operation(Protocol):
    """An intensity change of the grid of a view.

    `pixels` are (height, width[, 3]): native values until an operation makes them uint8. `view` has the geometry of the
    grid and the operations before this one. What is returned has the same height and width. Statistics of the whole
    picture are fixed when the operation is made.
    """

    def __call__(self, pixels: np.ndarray, view: "View", /) -> np.ndarray: ...


def fit(width: float, height: float, max_pixels: int, multiple: int = 1, *, enlarge: bool = False) -> tuple[int, int]:
    """The grid (width, height) of at most `max_pixels` that keeps the aspect of width × height pixels.

    Sides are multiples of `multiple`, at least one multiple and at most `LONGEST` long. Without `enlarge` nothing grows
    beyond its size.

    >>> fit(2048, 1024, 128 * 128), fit(30, 10, 4096), fit(30, 10, 4096, enlarge=True), fit(256, 256, 4096, 16)
    ((181, 90), (30, 10), (110, 36), (64, 64))
    """
    scale = math.sqrt(max_pixels / (width * height))
    if not enlarge:
        scale = min(1.0, scale)
    sides = [math.floor(min(side * scale, LONGEST) / multiple + 1e-9) * multiple for side in (width, height)]
    sides = [max(multiple, side) for side in sides]
    for i in (0, 1):  # a very long image: one side was raised to `multiple`, so the other gives way
        sides[1 - i] = min(sides[1 - i], max(multiple, max_pixels // sides[i] // multiple * multiple))
    return sides[0], sides[1]


@dataclass(frozen=True)
class View:
    """What is shown: `size` (width, height) pixels of `window`, (x1, y1, x2, y2) in fractions of `source`.

    The window is first transposed where the view is `turned` (its x runs along y of the original), then each axis of
    the view that is `mirrored` (x, y) runs backwards. `parent` is the view before. Views are equal where they show the
    same of one source, however they came about.

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
    _kept: dict[str, np.ndarray] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, image: Source | Image.Image | np.ndarray, *, max_pixels: int = 512 * 512, multiple: int = 1) -> "View":
        """The overview: the whole image, at most `max_pixels` large."""
        source = Source.of(image)
        return cls(source, fit(*source.size, max_pixels, multiple), max_pixels, multiple)

    # ------------------------------------------------------------------ coordinates
    def to_original(self, points: Sequence[float]) -> tuple[float, ...]:
        """Alternating x and y, fractions of this view → fractions of the original."""
        x1, y1, x2, y2 = self.window
        found: list[float] = []
        for u, v in zip(points[::2], points[1::2], strict=True):
            s, t = self._oriented(u, v)
            s, t = (t, s) if self.turned else (s, t)
            found += ((1 - s) * x1 + s * x2, (1 - t) * y1 + t * y2)
        return tuple(found)

    def from_original(self, points: Sequence[float]) -> tuple[float, ...]:
        """Alternating x and y, fractions of the original → fractions of this view (outside [0, 1]: not shown)."""
        x1, y1, x2, y2 = self.window
        found: list[float] = []
        for x, y in zip(points[::2], points[1::2], strict=True):
            s, t = (x - x1) / (x2 - x1), (y - y1) / (y2 - y1)
            found += self._oriented(t, s) if self.turned else self._oriented(s, t)
        return tuple(found)

    def _oriented(self, u: float, v: float) -> Point:
        return (1 - u if self.mirrored[0] else u), (1 - v if self.mirrored[1] else v)

    def box_to_original(self, box: Sequence[float]) -> Box:
        """A box of this view as one of the original: (x1, y1, x2, y2) with x1 <= x2 and y1 <= y2, however turned."""
        return _upright(self.to_original(box))

    def box_from_original(self, box: Sequence[float]) -> Box:
        """A box of the original as one of this view."""
        return _upright(self.from_original(box))

    @property
    def matrix(self) -> Matrix:
        """(a, b, c, d, e, f) with x = a·u + b·v + c and y = d·u + e·v + f: `to_original` as an affine map."""
        c, f, ac, df, bc, ef = self.to_original((0.0, 0.0, 1.0, 0.0, 0.0, 1.0))
        return ac - c, bc - c, c, df - f, ef - f, f

    @property
    def native(self) -> Box:
        """What is shown, as a box of native pixels, not rounded."""
        x1, y1, x2, y2 = self.window
        width, height = self.source.size
        return x1 * width, y1 * height, x2 * width, y2 * height

    def pixel(self, point: Point) -> tuple[int, int]:
        """(column, row) of the native pixel that a point (fractions of this view) lies in; at far edges the last."""
        found = zip(self.to_original(point), self.source.size, strict=True)
        column, row = (min(side - 1, max(0, math.floor(part * side + CLOSE))) for part, side in found)
        return column, row

    def pixels_in(self, box: Sequence[float]) -> tuple[int, int, int, int]:
        """(left, top, right, bottom) of the native pixels whose centers lie in a box (fractions of this view).

        As in slices right and bottom are excluded, so boxes side by side share no pixel; there may be none at all.
        """
        edges = zip(self.box_to_original(box), self.source.size * 2, strict=True)
        left, top, right, bottom = (max(0, math.ceil(part * side - 0.5 - CLOSE)) for part, side in edges)
        return left, top, max(left, right), max(top, bottom)

    # ------------------------------------------------------------------ geometry
    def zoom(self, factor: float, center: Point = (0.5, 0.5)) -> "View":
        """`factor` times closer about `center` (fractions of this view), kept inside the image.

        The picture keeps its size in pixels, so a factor above 1 magnifies; below 1 it shows more, at most all.
        """
        x1, y1, x2, y2 = self.window
        width, height = min(1.0, (x2 - x1) / factor), min(1.0, (y2 - y1) / factor)
        cx, cy = self.to_original(center)
        left, top = (min(max(0.0, c - side / 2), 1.0 - side) for c, side in ((cx, width), (cy, height)))
        size = self.size
        if not math.isclose(width * (y2 - y1), height * (x2 - x1), rel_tol=1e-9):  # an edge changed the aspect
            size = fit(*self._extent(width, height), self.size[0] * self.size[1], self.multiple, enlarge=True)
        return self._next(size=size, window=(left, top, min(1.0, left + width), min(1.0, top + height)))

    def crop(self, box: Box) -> "View":
        """Only `box` (x1, y1, x2, y2 in fractions of this view), at native resolution or the budget."""
        x1, y1, x2, y2 = window = self.box_to_original(box)
        size = fit(*self._extent(x2 - x1, y2 - y1), self.max_pixels, self.multiple)
        return self._next(size=size, window=window)

    def rotate(self, clockwise: bool = True) -> "View":
        """This view turned by 90°."""
        x, y = self.mirrored  # transposing exchanges the axes; mirroring one of them then makes it a rotation
        mirrored = (not y, x) if clockwise else (y, not x)
        return self._next(size=self.size[::-1], turned=not self.turned, mirrored=mirrored)

    def flip_horizontal(self) -> "View":
        """This view mirrored: left and right exchanged."""
        return self._next(mirrored=(not self.mirrored[0], self.mirrored[1]))

    def flip_vertical(self) -> "View":
        """This view mirrored: up and down exchanged."""
        return self._next(mirrored=(self.mirrored[0], not self.mirrored[1]))

    @property
    def is_mirror_image(self) -> bool:
        """Whether no rotation makes this view like the original: left and right cannot be trusted."""
        return self.turned ^ self.mirrored[0] ^ self.mirrored[1]

    def reset(self) -> "View":
        """The overview again, without operations."""
        return self.show(self.source)

    def undo(self) -> "View":
        """The view before the last step; the first one stays."""
        return self.parent or self

    def then(self, operation: Operation) -> "View":
        """This view with one more intensity operation."""
        return self._next(operations=(*self.operations, operation))

    def show(self, source: Source) -> "View":
        """The overview of another image, with this view's budget."""
        return replace(View.of(source, max_pixels=self.max_pixels, multiple=self.multiple), parent=self)

    def _next(self, **changes: Any) -> "View":
        return replace(self, parent=self, **changes)

    def _extent(self, width: float, height: float) -> tuple[float, float]:
        """Native pixels along this view's x and y of a window of that many fractions of the original."""
        shown = width * self.source.width, height * self.source.height
        return shown[::-1] if self.turned else shown

    # ------------------------------------------------------------------ pixels
    def values(self) -> np.ndarray:
        """The grid, (height, width[, 3]): native values, or uint8 once an operation has made them so. Read-only.

        It is kept with this view and the one before, however long the chain. Threads may share views.
        """
        grid = self._kept.get("grid")
        if grid is None:
            grid = self._values().view()
            grid.flags.writeable = False
            self._kept["grid"] = grid
            older = self.parent and self.parent.parent
            while older is not None:
                older._kept.clear()
                older = older.parent
        return grid

    def _values(self) -> np.ndarray:
        before = self.parent
        grid = None if before is None else before._kept.get("grid")
        if grid is not None and before is not None and self.operations:
            last = self.operations[-1]
            if self == replace(before, operations=(*before.operations, last)):  # only that was added
                return last(grid, before)
        grid = self.sampled()
        for number, operation in enumerate(self.operations):
            so_far = replace(self, operations=self.operations[:number], parent=None)
            so_far._kept["grid"] = grid
            grid = operation(grid, so_far)
        return grid

    def sampled(self) -> np.ndarray:
        """The grid without any operation: native values, resampled once. May share memory with the source."""
        pixels = sample(self.source.pixels, self.native, self.size[::-1] if self.turned else self.size)
        if self.turned:
            pixels = cv2.transpose(pixels)
        if any(self.mirrored):
            code = {(True, False): 1, (False, True): 0, (True, True): -1}[self.mirrored]
            pixels = cv2.flip(pixels, code, pixels if self.turned else None)  # in place where they are not the source's
        return pixels

    def shown(self) -> np.ndarray:
        """The grid as it is shown: uint8, (height, width) or (height, width, 3)."""
        return self.source.to_uint8(self.values())

    def picture(self) -> ImageRef:
        """The grid as it is shown, by reference. Equal pictures share their pixels, and so do the views they are of."""
        ref = ImageRef.of(self.shown())
        grid = self._kept.get("grid")
        if grid is not None and grid.dtype == np.uint8 and isinstance(ref.pixels, np.ndarray):
            self._kept["grid"] = ref.pixels
        return ref

    def gray(self) -> np.ndarray:
        """`shown` without color, (height, width): ITU-R BT.601 luma. It is kept like the grid."""
        pixels = self.shown()
        if pixels.ndim == 2:
            return pixels
        kept = self._kept.get("gray")
        if kept is None:
            kept = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
            kept.flags.writeable = False
            self._kept["gray"] = kept
        return kept

    def render(self) -> Image.Image:
        """The picture, `size` pixels in mode L or RGB."""
        return Image.fromarray(self.shown())


def _upright(box: Sequence[float]) -> Box:
    x1, y1, x2, y2 = box
    return min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)
