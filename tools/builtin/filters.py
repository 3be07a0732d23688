"""Tools that look at neighboring pixels; they change brightness, never coordinates.

They act on the displayed picture (0–255). Kernels and tiles are in pixels of the current view, so after a zoom the same
filter works on finer detail. The scale of edges is fixed when the tool is called, so that an edge keeps its brightness
after a zoom.
"""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import cv2
import numpy as np

from ...images.statistics import to_luminance
from ...images.view import View
from ..arguments import Range
from ..calling import ToolOutput
from ..tool import tool
from .intensity import get_mask

SMALLEST_TILE = 16  # pixels: in a smaller tile, equalization turns any gray into white

SMOOTH = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], np.float32) / 13  # Pillow's ImageFilter.SMOOTH


@dataclass(frozen=True)
class Sharpness:
    """smooth + factor · (pixel − smooth), rounded and clipped; the outermost pixels do not change, as in Pillow."""

    tool: ClassVar[str] = "adjust_sharpness"
    factor: float

    def __call__(self, pixels: np.ndarray, view: View) -> np.ndarray:
        pixels = view.source.to_uint8(pixels)
        smooth = cv2.filter2D(pixels, -1, SMOOTH)
        for edge in (np.s_[0], np.s_[-1], np.s_[:, 0], np.s_[:, -1]):
            smooth[edge] = pixels[edge]
        return cv2.addWeighted(pixels, self.factor, smooth, 1 - self.factor, 0, dst=smooth)


@tool
def adjust_sharpness(view: View, factor: Annotated[float, Range(0.1, 3)]) -> ToolOutput:
    """Sharpen or soften the current view.

    factor: above 1 sharpens, below 1 softens, 1 changes nothing
    """
    facts = {"factor": factor, "size": list(view.size)}
    return ToolOutput("sharpness adjusted", facts, view=view.apply(Sharpness(factor)))


@dataclass(frozen=True)
class Blur:
    """A Gaussian of `sigma` pixels, cut off at 3 sigma; the border is extended by reflection."""

    tool: ClassVar[str] = "denoise"
    sigma: float

    def __call__(self, pixels: np.ndarray, view: View) -> np.ndarray:
        return cv2.GaussianBlur(view.source.to_uint8(pixels), (0, 0), self.sigma, borderType=cv2.BORDER_REFLECT)


@tool
def denoise(view: View, sigma: Annotated[float, Range(0.5, 5)] = 1.0) -> ToolOutput:
    """Reduce noise with a Gaussian blur.

    sigma: standard deviation of the blur, in pixels of the picture
    """
    return ToolOutput("denoised", {"sigma": sigma, "size": list(view.size)}, view=view.apply(Blur(sigma)))


@dataclass(frozen=True)
class LocalContrast:
    """CLAHE (Zuiderveld 1994) in `tiles` × `tiles` tiles, as OpenCV's `createCLAHE(clip_limit, (tiles, tiles))`.
    A picture of one level does not change. Tiles that would hold fewer than `SMALLEST_TILE` pixels are made larger."""

    tool: ClassVar[str] = "adaptive_equalize"
    clip_limit: float
    tiles: int

    def __call__(self, pixels: np.ndarray, view: View) -> np.ndarray:
        pixels = to_luminance(view.source.to_uint8(pixels))
        height, width = pixels.shape
        if pixels.min() == pixels.max():
            return pixels
        grid = (self.tiles, self.tiles)
        if math.ceil(width / self.tiles) * math.ceil(height / self.tiles) < SMALLEST_TILE:
            grid = min(max(1, width // 4), self.tiles), min(max(1, height // 4), self.tiles)
        return cv2.createCLAHE(self.clip_limit, grid).apply(pixels)


@tool
def adaptive_equalize(
    view: View, clip_limit: Annotated[float, Range(1, 4)] = 2.0, tile_size: Annotated[int, Range(2, 32)] = 8
) -> ToolOutput:
    """Raise local contrast (CLAHE). Drops color.

    clip_limit: how far contrast may be raised; 1 is least
    tile_size: number of tiles along each side
    """
    facts = {"clip_limit": clip_limit, "tile_size": tile_size, "size": list(view.size)}
    return ToolOutput("local contrast equalized", facts, view=view.apply(LocalContrast(clip_limit, tile_size)))


@dataclass(frozen=True)
class Edges:
    """The strength of edges; `top` (fixed at the call) and above is white.
    sobel: the length of the gradient; laplacian: the absolute second derivative; both with 3×3 kernels. There are no
    edges between native pixels: a picture magnified beyond them shows the edges of the native pixels, equally bright,
    not the faint slopes and rounding steps of its interpolation."""

    tool: ClassVar[str] = "detect_edges"
    method: str
    top: float

    def __call__(self, pixels: np.ndarray, view: View) -> np.ndarray:
        pixels = reduce_magnified(to_luminance(view.source.to_uint8(pixels)), view)
        edges = cv2.convertScaleAbs(find_edges(pixels, self.method), alpha=255 / self.top if self.top > 0 else 0)
        return edges if edges.shape == view.size[::-1] else cv2.resize(edges, view.size)


def reduce_magnified(pixels: np.ndarray, view: View) -> np.ndarray:
    """Return the grid of a view, (h, w), reduced to at most one pixel for each native pixel."""
    x1, y1, x2, y2 = view.native
    sides = (y2 - y1, x2 - x1) if view.turned else (x2 - x1, y2 - y1)
    width, height = (min(count, max(1, round(side))) for count, side in zip(view.size, sides, strict=True))
    return pixels if (width, height) == view.size else cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA)


def find_edges(pixels: np.ndarray, method: str) -> np.ndarray:
    """Return the strength of the edges of uint8 pixels, which may be negative; the border is reflected."""
    if method == "laplacian":
        return cv2.Laplacian(pixels, cv2.CV_16S, ksize=1)
    return cv2.magnitude(*(cv2.Sobel(pixels, cv2.CV_32F, *order) for order in ((1, 0), (0, 1))))


@tool
def detect_edges(view: View, method: Literal["sobel", "laplacian"] = "sobel") -> ToolOutput:
    """Show edges bright on black; the strongest edge is white. Drops color.

    method: sobel shows borders, laplacian also thin lines and specks
    """
    pixels, mask = reduce_magnified(view.to_gray(), view), get_mask(view)
    if mask is not None:
        mask = cv2.resize(mask, pixels.shape[::-1], interpolation=cv2.INTER_NEAREST)
    top = cv2.norm(find_edges(pixels, method), cv2.NORM_INF, mask)
    return ToolOutput("edges shown", {"method": method, "size": list(view.size)}, view=view.apply(Edges(method, top)))


MORPHOLOGY = {"erode": cv2.MORPH_ERODE, "dilate": cv2.MORPH_DILATE, "open": cv2.MORPH_OPEN, "close": cv2.MORPH_CLOSE}


@dataclass(frozen=True)
class Morphology:
    """3×3 `operation`, `iterations` times; open: that many erosions, then as many dilations; close: the reverse.
    With a `level`, values above it first become white, all others black."""

    tool: ClassVar[str] = "morphological"
    operation: str
    iterations: int
    level: int | None

    def __call__(self, pixels: np.ndarray, view: View) -> np.ndarray:
        pixels = to_luminance(view.source.to_uint8(pixels))
        if self.level is not None:
            pixels = cv2.threshold(pixels, self.level, 255, cv2.THRESH_BINARY)[1]
        square = np.ones((3, 3), np.uint8)
        return cv2.morphologyEx(pixels, MORPHOLOGY[self.operation], square, iterations=self.iterations)


@tool
def morphological(
    view: View,
    operation: Literal["erode", "dilate", "open", "close"],
    iterations: Annotated[int, Range(1, 5)] = 1,
    threshold_value: Annotated[int, Range(0, 255)] | None = None,
) -> ToolOutput:
    """Shrink (erode) or grow (dilate) bright areas, remove bright specks (open) or fill dark gaps (close) with a 3x3
    square. Drops color.

    operation: what to do
    iterations: how many times
    threshold_value: pixels above this gray level (0 to 255) first become white and all others black; default: no change
    """
    chosen = {} if threshold_value is None else {"threshold_value": threshold_value}
    facts = {"operation": operation, "iterations": iterations, **chosen, "size": list(view.size)}
    return ToolOutput("morphology applied", facts, view=view.apply(Morphology(operation, iterations, threshold_value)))
