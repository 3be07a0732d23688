"""Exact statistics of all native pixels; those of integers come from counts of their values."""

import cv2
import numpy as np

BINS = 10  # of a histogram
EXACT = 2**24  # OpenCV counts in float32, which holds every whole number up to here


def to_luminance(pixels: np.ndarray) -> np.ndarray:
    """Gray pixels as they are, RGB as 0.299 R + 0.587 G + 0.114 B (ITU-R BT.601), rounded; (height, width)."""
    return cv2.cvtColor(np.ascontiguousarray(pixels), cv2.COLOR_RGB2GRAY) if pixels.ndim == 3 else pixels


def count_values(pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the values that occur in uint8, uint16 or int16 pixels (height, width), ascending, and how often each
    occurs.

    >>> values, often = count_values(np.array([[-3, 7, 7]], np.int16))
    >>> values.tolist(), often.tolist()
    ([-3, 7], [1, 2])
    """
    signed = pixels.dtype == np.int16
    levels = 256 if pixels.dtype == np.uint8 else 65536
    rows = max(1, EXACT // pixels.shape[1])
    often = np.zeros(levels, np.int64)
    for top in range(0, len(pixels), rows):
        strip = pixels[top : top + rows]
        strip = strip.view(np.uint16) if signed else strip  # −1 reads as 65535
        often += cv2.calcHist([strip], [0], None, [levels], [0, levels]).ravel().astype(np.int64)
    values = np.arange(levels)
    if signed:
        values, often = values - levels // 2, np.roll(often, levels // 2)
    return values[often > 0], often[often > 0]


def describe_pixels(pixels: np.ndarray, measured: np.ndarray | None = None) -> dict[str, float | list[int]]:
    """Mean, standard deviation (of the population), min, max and median of all pixels, and a histogram.

    The histogram has `BINS` equal bins from the lowest to the highest value. `pixels` are (height, width); for RGB,
    (height, width, 3), their luminance is described. `measured`, bool (height, width), says which pixels count.

    >>> describe_pixels(np.array([[0, 10], [20, 70]], np.uint8))["median"]
    15.0
    """
    pixels = to_luminance(pixels)
    pixels = pixels if measured is None else pixels[measured][None]
    if pixels.dtype.kind == "f":
        mean, std = (float(value.item()) for value in cv2.meanStdDev(pixels))
        median, histogram = float(np.median(pixels)), np.histogram(pixels, BINS)[0]
        lowest, highest = float(pixels.min()), float(pixels.max())
    else:
        values, often = count_values(pixels)
        mean = float(np.average(values, weights=often))
        std = float(np.sqrt(np.average((values - mean) ** 2, weights=often)))
        below = np.cumsum(often)
        middle = np.searchsorted(below, [(pixels.size - 1) // 2, pixels.size // 2], side="right")
        median, histogram = float(values[middle].mean()), np.histogram(values, BINS, weights=often)[0]
        lowest, highest = float(values[0]), float(values[-1])
    numbers = {"mean": mean, "std": std, "min": lowest, "max": highest, "median": median}
    return {**numbers, "histogram": [int(count) for count in histogram]}
