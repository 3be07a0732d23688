"""Resamples native pixels once: any window, at sub-pixel positions, on a grid of any size. The depth stays.

Minifying averages: every native pixel counts fully and once. If the window begins and ends between whole pixels, these
are the exact means of areas. Otherwise blocks of whole pixels are averaged first; the remaining factor, below 2, is
interpolated linearly at twice the grid and averaged in pairs. Magnifying interpolates with cubic kernels.
"""

import math
from typing import NamedTuple

import cv2
import numpy as np

MARGIN = 2  # (reduced) pixels around the window that cubic kernels reach
CLOSE = 1e-6  # of a pixel: more than windows lose to rounding, and far below what can be seen
MAX_SIDE = 16_000  # pixels: OpenCV warps less than 32,768 along a side
STARTS = 8  # starts tried to find one from which a plain resize has its pixels where the grid has them


def fit_size(
    width: float, height: float, max_pixels: int, multiple: int = 1, *, enlarge: bool = False
) -> tuple[int, int]:
    """Return the grid (width, height) of at most `max_pixels` that keeps the aspect ratio of width × height pixels.
    Sides are multiples of `multiple`, at least `multiple` and at most `MAX_SIDE` long. Without `enlarge` the grid is
    not larger than width × height.

    >>> fit_size(2048, 1024, 128 * 128), fit_size(256, 256, 4096, multiple=16)
    ((181, 90), (64, 64))
    >>> fit_size(30, 10, 4096), fit_size(30, 10, 4096, enlarge=True)
    ((30, 10), (110, 36))
    """
    scale = math.sqrt(max_pixels / (width * height))
    if not enlarge:
        scale = min(1.0, scale)
    sides = [math.floor(min(side * scale, MAX_SIDE) / multiple + 1e-9) * multiple for side in (width, height)]
    sides = [max(multiple, side) for side in sides]
    for i in (0, 1):  # a very long image: one side was raised to `multiple`, the other shrinks
        sides[1 - i] = min(sides[1 - i], max(multiple, max_pixels // sides[i] // multiple * multiple))
    return sides[0], sides[1]


def resample(pixels: np.ndarray, box: tuple[float, float, float, float], size: tuple[int, int]) -> np.ndarray:
    """Return a window of pixels (h, w[, 3]), of any depth of `Source`, on a grid of a size (width, height).
    The box is (x1, y1, x2, y2) in native pixels; whole numbers are corners of pixels. The result has the same depth,
    and may share memory with `pixels`.

    >>> resample(np.array([[0, 10], [20, 30]], np.uint8), (0, 0, 2, 2), (1, 1)).tolist()
    [[15]]
    """
    if all(abs(edge - round(edge)) < CLOSE for edge in box):
        left, top, right, bottom = map(round, box)
        if right - left == size[0] and bottom - top == size[1]:
            return pixels[top:bottom, left:right]
        if right - left >= size[0] and bottom - top >= size[1]:
            return cv2.resize(pixels[top:bottom, left:right], size, interpolation=cv2.INTER_AREA)
    x, y = (_plan_axis(box[i], box[i + 2], size[i], pixels.shape[1 - i]) for i in (0, 1))
    region = _average_blocks(pixels[y.start : y.stop, x.start : x.stop], x.block, y.block)
    matrix = np.array([[x.step, 0, x.offset], [0, y.step, y.offset]])
    fine = (size[0] * x.times, size[1] * y.times)
    kernel = cv2.INTER_CUBIC if x.times == y.times == 1 else cv2.INTER_LINEAR
    grid = _warp(region, matrix, fine, kernel)
    return grid if fine == size else cv2.resize(grid, size, interpolation=cv2.INTER_AREA)


class _Axis(NamedTuple):
    """How one axis is read: pixels from `start` to `stop`, averaged in blocks of `block`, then `times` points for each
    point of the grid. Point i lies at i·step + offset; whole numbers are centers of (averaged) pixels."""

    start: int
    stop: int
    block: int
    times: int
    step: float
    offset: float


def _plan_axis(low: float, high: float, count: int, side: int) -> _Axis:
    step = (high - low) / count
    block = max(1, math.floor(step + CLOSE))
    times = 2 if step / block > 1 + CLOSE else 1
    start = max(0, math.floor(low) - MARGIN * block)
    places = range(start, max(-1, start - STARTS * block), -block)
    start = next((place for place in places if _is_whole((low - place) * times / step)), start)
    stop = start + -(-(math.ceil(high) + MARGIN * block - start) // block) * block  # whole blocks
    step /= times
    return _Axis(start, min(side, stop), block, times, step / block, (low + step / 2 - start) / block - 0.5)


def _average_blocks(region: np.ndarray, by_x: int, by_y: int) -> np.ndarray:
    """Means of blocks; the last block of a row or column is filled up with its edge."""
    if by_x == by_y == 1:
        return region
    height, width = region.shape[:2]
    more_x, more_y = -width % by_x, -height % by_y
    if more_x or more_y:
        region = cv2.copyMakeBorder(region, 0, more_y, 0, more_x, cv2.BORDER_REPLICATE)
    return cv2.resize(region, (region.shape[1] // by_x, region.shape[0] // by_y), interpolation=cv2.INTER_AREA)


def _warp(region: np.ndarray, matrix: np.ndarray, size: tuple[int, int], kernel: int) -> np.ndarray:
    (scale_x, _, offset_x), (_, scale_y, offset_y) = matrix
    skip_x, skip_y = (offset_x + 0.5) / scale_x - 0.5, (offset_y + 0.5) / scale_y - 0.5
    if _is_whole(skip_x) and _is_whole(skip_y):  # the grid is a part of the resized region: ten times as fast
        left, top = round(skip_x), round(skip_y)
        resized = cv2.resize(region, None, fx=1 / scale_x, fy=1 / scale_y, interpolation=kernel)
        if resized.shape != region.shape:  # OpenCV only copies if the sizes are equal
            return resized[top : top + size[1], left : left + size[0]]
    if region.dtype == np.int16:  # as uint16, 32768 higher: OpenCV is faster there and places points more finely
        return (_warp(region.view(np.uint16) ^ 0x8000, matrix, size, kernel) ^ 0x8000).view(np.int16)
    return cv2.warpAffine(region, matrix, size, flags=kernel | cv2.WARP_INVERSE_MAP, borderMode=cv2.BORDER_REPLICATE)


def _is_whole(value: float) -> bool:
    return abs(value - round(value)) < CLOSE
