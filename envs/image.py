"""`View`: what the viewer shows now, as pixels to render and an exact map back to the original image.

A view is (source, affine map, operations). Geometry tools replace the map, intensity tools append an operation, and
the *native* pixels are sampled once, at render time, on a grid no larger than the view budget: ten zooms cost what
one costs and lose nothing. The affine map takes view fractions (u, v) to original fractions (x, y).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from PIL import Image, ImageOps

from viewbox.errors import ImageError

Box = tuple[float, float, float, float]
Point = tuple[float, float]


class Operation(Protocol):
    """An intensity change on rendered 8-bit pixels, (height, width[, 3]) uint8 → the same shape and type."""

    def __call__(self, pixels: np.ndarray, /) -> np.ndarray: ...


def open_image(image: Image.Image | np.ndarray) -> Image.Image:
    """An image in mode L or RGB, upright (EXIF rotation applied); raises `ImageError` for what cannot be shown."""
    if isinstance(image, np.ndarray):
        colour = image.ndim == 3 and image.shape[2] == 3
        if image.size == 0 or image.dtype != np.uint8 or not (image.ndim == 2 or colour):
            raise ImageError(
                f"array of shape {image.shape} and type {image.dtype}; allowed: uint8 of shape (h, w) or (h, w, 3)"
            )
        image = Image.fromarray(image)
    if 0 in image.size:
        raise ImageError(f"image of {image.width}x{image.height} pixels: nothing to show")
    image = ImageOps.exif_transpose(image)
    if image.mode in ("L", "RGB"):
        return image
    if image.mode in ("1", "LA"):
        return image.convert("L")
    if image.mode in ("P", "RGBA", "CMYK", "PA"):
        return image.convert("RGB")
    raise ImageError(f"image mode {image.mode}; allowed: 1, L, LA, P, RGB, RGBA, CMYK")


def fit(width: float, height: float, max_pixels: int, multiple: int = 1, *, enlarge: bool = False) -> tuple[int, int]:
    """The grid (width, height) of at most `max_pixels` that keeps the aspect of width × height pixels.

    Sides are multiples of `multiple`, at least one multiple long. Without `enlarge` nothing grows beyond its size.

    >>> fit(2048, 1024, 128 * 128), fit(30, 10, 4096), fit(30, 10, 4096, enlarge=True), fit(256, 256, 4096, 16)
    ((181, 90), (30, 10), (110, 36), (64, 64))
    """
    scale = math.sqrt(max_pixels / (width * height))
    if not enlarge:
        scale = min(1.0, scale)
    sides = [max(multiple, math.floor(side * scale / multiple + 1e-9) * multiple) for side in (width, height)]
    for i in (0, 1):  # a very long image: one side was raised to `multiple`, so the other gives way
        sides[1 - i] = min(sides[1 - i], max(multiple, max_pixels // sides[i] // multiple * multiple))
    return sides[0], sides[1]


@dataclass(frozen=True)
class View:
    """What is shown: `size` (width, height) pixels of the window that `matrix` cuts out of `source`.

    `matrix` is (a, b, c, d, e, f) with x = a·u + b·v + c and y = d·u + e·v + f; u, v are fractions of this view and
    x, y fractions of the original.

    >>> view = View.of(Image.new("L", (400, 200)), max_pixels=100 * 50)
    >>> view.size, view.zoom(2, (0.5, 0.5)).window
    ((100, 50), (0.25, 0.25, 0.75, 0.75))
    >>> view.zoom(2, (0.5, 0.5)).to_original((0.5, 0.0))
    (0.5, 0.25)
    """

    source: Image.Image
    size: tuple[int, int]
    max_pixels: int
    multiple: int = 1
    matrix: tuple[float, float, float, float, float, float] = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)
    operations: tuple[Operation, ...] = ()

    @classmethod
    def of(cls, image: Image.Image | np.ndarray, *, max_pixels: int = 512 * 512, multiple: int = 1) -> "View":
        """The overview: the whole image, at most `max_pixels` large."""
        source = open_image(image)
        return cls(source, fit(*source.size, max_pixels, multiple), max_pixels, multiple)

    # ------------------------------------------------------------------ coordinates
    def to_original(self, points: Sequence[float]) -> tuple[float, ...]:
        """Alternating x and y, fractions of this view → fractions of the original."""
        a, b, c, d, e, f = self.matrix
        pairs = zip(points[::2], points[1::2], strict=True)
        return tuple(value for u, v in pairs for value in (a * u + b * v + c, d * u + e * v + f))

    def from_original(self, points: Sequence[float]) -> tuple[float, ...]:
        """Alternating x and y, fractions of the original → fractions of this view (outside [0, 1]: not shown)."""
        a, b, c, d, e, f = self.matrix
        det = a * e - b * d
        pairs = ((x - c, y - f) for x, y in zip(points[::2], points[1::2], strict=True))
        return tuple(value for x, y in pairs for value in ((e * x - b * y) / det, (a * y - d * x) / det))

    @property
    def window(self) -> Box:
        """What is shown, as a box of the original (x1, y1, x2, y2) in fractions."""
        x1, y1, x2, y2 = self.to_original((0.0, 0.0, 1.0, 1.0))
        return min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)

    # ------------------------------------------------------------------ geometry
    def zoom(self, factor: float, center: Point = (0.5, 0.5)) -> "View":
        """`factor` times closer about `center` (fractions of this view), kept inside the image.

        The picture keeps its size in pixels, so a factor above 1 magnifies; below 1 it shows more, at most all.
        """
        x1, y1, x2, y2 = self.window
        width, height = min(1.0, (x2 - x1) / factor), min(1.0, (y2 - y1) / factor)
        cx, cy = self.to_original(center)
        left, top = (min(max(0.0, c - side / 2), 1.0 - side) for c, side in ((cx, width), (cy, height)))
        shown = (width * self.source.width, height * self.source.height)
        size = self.size
        if not math.isclose(width * (y2 - y1), height * (x2 - x1), rel_tol=1e-9):  # an edge changed the aspect
            size = fit(*shown, self.size[0] * self.size[1], self.multiple, enlarge=True)
        return replace(self, size=size, matrix=(width, 0.0, left, 0.0, height, top))

    def crop(self, box: Box) -> "View":
        """Only `box` (x1, y1, x2, y2 in fractions of this view), at native resolution or the budget."""
        x1, y1, x2, y2 = self.to_original(box)
        size = fit((x2 - x1) * self.source.width, (y2 - y1) * self.source.height, self.max_pixels, self.multiple)
        return replace(self, size=size, matrix=(x2 - x1, 0.0, x1, 0.0, y2 - y1, y1))

    def reset(self) -> "View":
        """The overview again."""
        return View.of(self.source, max_pixels=self.max_pixels, multiple=self.multiple)

    def then(self, operation: Callable[[np.ndarray], np.ndarray]) -> "View":
        """This view with one more intensity operation."""
        return replace(self, operations=(*self.operations, operation))

    # ------------------------------------------------------------------ pixels
    def render(self) -> Image.Image:
        """The picture, `size` pixels in the source's mode: one resampling of native pixels, then the operations.

        Bicubic; Pillow widens the kernel when minifying, so fine detail averages out instead of aliasing.
        """
        x1, y1, x2, y2 = self.window
        w, h = self.source.size
        box = (max(0.0, x1 * w), max(0.0, y1 * h), min(float(w), x2 * w), min(float(h), y2 * h))
        picture = self.source.resize(self.size, Image.Resampling.BICUBIC, box=box)
        if not self.operations:
            return picture
        pixels = np.asarray(picture)
        for operation in self.operations:
            pixels = operation(pixels)
        return Image.fromarray(pixels)
