"""Exact statistics of all native pixels; those of integers come from counts of their values."""

import cv2
import numpy as np

BINS = 10  # of a histogram
STRIP = 2**20  # values that are counted at a time


def to_luminance(pixels: np.ndarray) -> np.ndarray:
    """Gray pixels as they are, RGB as 0.299 R + 0.587 G + 0.114 B (ITU-R BT.601), rounded if unsigned: (h, w)."""
    if pixels.ndim == 3 and pixels.dtype == np.int16:  # which OpenCV does not mix
        pixels = pixels.astype(np.float32)
    return cv2.cvtColor(np.ascontiguousarray(pixels), cv2.COLOR_RGB2GRAY) if pixels.ndim == 3 else pixels


def count_values(pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the values that occur in uint8, uint16 or int16 pixels of any shape, ascending, and how often each does.

    >>> values, often = count_values(np.array([[-3, 7, 7]], np.int16))
    >>> values.tolist(), often.tolist()
    ([-3, 7], [1, 2])
    """
    ends = np.iinfo(pixels.dtype)
    often = np.zeros(ends.max - ends.min + 1, np.int64)
    for strip in np.array_split(pixels.ravel(), pixels.size // STRIP + 1):
        often += np.bincount(strip.astype(np.intp) - ends.min, minlength=often.size)
    values = np.flatnonzero(often)
    return values + ends.min, often[values]


def describe_values(values: np.ndarray, often: np.ndarray | None = None) -> dict[str, float]:
    """Mean, standard deviation (of the population), min and max of values, each of which occurs so `often` (once). In
    two passes: the mean of the squares less the square of the mean loses a small spread."""
    lowest, highest = float(values.min()), float(values.max())
    mean, std = lowest, 0.0  # a sum of equal floats is rounded
    if lowest < highest and often is None:
        mean, std = float(values.mean(dtype=float)), float(values.std(dtype=float))
    elif lowest < highest:
        mean = float(np.average(values, weights=often))
        std = float(np.sqrt(np.average((values - mean) ** 2, weights=often)))
    return {"mean": mean, "std": std, "min": lowest, "max": highest}


def describe_pixels(pixels: np.ndarray, measured: np.ndarray | None = None) -> dict[str, float | list[int]]:
    """`describe_values` of all pixels that were `measured`, of RGB their luminance, their median, and a histogram of
    `BINS` equal bins from the lowest to the highest value; the sixth holds all if there is one value."""
    pixels = to_luminance(pixels)
    pixels = pixels if measured is None else pixels[measured][None]
    middle = [(pixels.size - 1) // 2, pixels.size // 2]
    if pixels.dtype.kind == "f":
        values, often = pixels.ravel(), None
        median = float(np.partition(values, middle)[middle].mean(dtype=float))
    else:
        values, often = count_values(pixels)
        median = float(values[np.searchsorted(np.cumsum(often), middle, side="right")].mean())
    numbers = describe_values(values, often)
    low, high = np.float64(numbers["min"]), np.float64(numbers["max"])  # bins may be narrower than a step of float32
    histogram = np.eye(BINS)[BINS // 2] * pixels.size
    if low < high:
        histogram = np.histogram(values, BINS, (low, high), weights=often)[0]
    return {**numbers, "median": median, "histogram": [int(count) for count in histogram]}
