"""Exact statistics of all native pixels; those of integers come from counts of their values."""

import cv2
import numpy as np

BINS = 10  # of a histogram
STRIP = 2**20  # values that are held in 64 bits at a time


def to_luminance(pixels: np.ndarray) -> np.ndarray:
    """Gray pixels as they are, RGB as 0.299 R + 0.587 G + 0.114 B (ITU-R BT.601), rounded; (height, width)."""
    if pixels.ndim == 2:
        return pixels
    if pixels.dtype == np.int16:  # which OpenCV does not mix
        return np.rint(to_luminance(pixels.astype(np.float32))).astype(np.int16)
    return cv2.cvtColor(np.ascontiguousarray(pixels), cv2.COLOR_RGB2GRAY)


def count_values(pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the values that occur in uint8, uint16 or int16 pixels (height, width), ascending, and how often each
    occurs.

    >>> values, often = count_values(np.array([[-3, 7, 7]], np.int16))
    >>> values.tolist(), often.tolist()
    ([-3, 7], [1, 2])
    """
    ends = np.iinfo(pixels.dtype)
    often = np.zeros(ends.max - ends.min + 1, np.int64)
    for strip in _split(pixels):
        often += np.bincount(strip.astype(np.intp) - ends.min, minlength=often.size)
    values = np.flatnonzero(often)
    return values + ends.min, often[values]


def _split(values: np.ndarray) -> list[np.ndarray]:
    """Return values of any shape, flat, in parts of which each may be held in 64 bits a value."""
    return np.array_split(values.ravel(), values.size // STRIP + 1)


def describe_values(values: np.ndarray, often: np.ndarray | None = None) -> dict[str, float]:
    """Mean, standard deviation (of the population), min and max of values, each of which occurs so `often` (once).

    In float64, in two passes: the mean of squares less the square of the mean would lose a small spread of large
    values.
    """
    lowest, highest = float(values.min()), float(values.max())
    mean = float(values.mean(dtype=float) if often is None else np.average(values, weights=often))
    mean, count = min(max(mean, lowest), highest), values.size if often is None else often.sum()  # a sum is rounded
    weights = 1 if often is None else often
    parts = (_split(values) if often is None else [values]) if lowest < highest else []
    spread = sum(float((weights * (part - np.float64(mean)) ** 2).sum()) for part in parts)
    return {"mean": mean, "std": float(np.sqrt(spread / count)), "min": lowest, "max": highest}


def describe_pixels(pixels: np.ndarray, measured: np.ndarray | None = None) -> dict[str, float | list[int]]:
    """`describe_values` of all pixels, their median, and a histogram.

    The histogram has `BINS` equal bins from the lowest to the highest value; the sixth holds all if there is one value.
    `pixels` are (height, width); for RGB, (height, width, 3), their luminance is described. `measured`, bool (height,
    width), says which pixels count.

    >>> describe_pixels(np.array([[0, 10], [20, 70]], np.uint8))["median"]
    15.0
    """
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
    if low < high:
        histogram = np.histogram(values, BINS, (low, high), weights=often)[0]
    else:
        histogram = np.eye(BINS)[BINS // 2] * pixels.size
    return {**numbers, "median": median, "histogram": [int(count) for count in histogram]}
