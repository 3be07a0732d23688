"""What is inside of a mask: one rule for the values of any file, array or server, and the words that say which."""

from typing import NamedTuple

import numpy as np

from ..errors import ImageError
from .source import Source
from .statistics import count_values

FEW = 8  # values above 0, up to which gray levels are labels; four times as many of colors
LABELS = 40  # the highest label beside which the highest value of a type is void, however few labels there are
OVERSHOOT = 0.25  # by which resampled probabilities may leave 0 to 1
VOID = (224, 224, 192)  # the color of void in PASCAL VOC


class Inside(NamedTuple):
    """Pixels are inside if their value is `least` or above (above 0, if that is 0), but for `void`."""

    words: str
    least: float = 0.0
    void: float | None = None

    def find(self, mask: Source) -> np.ndarray:
        values = _get_values(mask.filled, mask)
        inside = (values >= self.least if self.least else values > 0) & (self.void is None or values != self.void)
        return inside if mask.measured is None else inside & mask.measured


def choose_inside(mask: Source) -> Inside:
    """Return what is inside of a mask, by the values of all its slices.

    Labels are inside above 0, fractions of a segment and probabilities from one half. So are gray levels that have soft
    edges, or more than `FEW` values. The highest value of a type beside small labels is void, as in PASCAL VOC,
    Cityscapes and ADE20K. Raise `ImageError` for values that are none of these.

    >>> choose_inside(Source.of(np.array([[0.1, 0.4, 0.9]]))).words
    'probabilities from one half'
    >>> choose_inside(Source.of(np.repeat([[0, 1, 255]], 2, axis=0).repeat(2, axis=1).astype(np.uint8)))
    Inside(words='labels up to 1; 255 is taken as void, and is outside', least=0.0, void=255.0)
    """
    pixels = mask.filled if mask.volume is None else mask.volume.all_voxels
    values = _get_values(pixels, mask)
    if mask.volume is not None and mask.blank is not None:
        values = np.where(np.isnan(values) if np.isnan(mask.blank) else values == mask.blank, 0, values)
    low, high = float(values.min()), float(values.max())
    if mask.full is not None and high > 1:  # some programs write 0 and 1, whatever they call full
        return Inside(f"fractions from {mask.full / 2:g} of {mask.full:g}", mask.full / 2)
    if values.dtype.kind == "f" and (values != np.rint(values)).any():
        if low < -OVERSHOOT or high > 1 + OVERSHOOT:
            what = f"values of {low:g} to {high:g}, which are neither whole numbers nor within 0 to 1"
            raise ImageError(f"it has {what}; allowed: labels above 0, or probabilities")
        return Inside("probabilities from one half", 0.5)
    colored = mask.color and bool((pixels != pixels[..., :1]).any())
    if colored and (pixels == VOID).all(axis=-1).any():
        return Inside(f"every color but black and {VOID}, which is taken as void, as in PASCAL VOC", void=max(VOID))
    if by_levels := _choose_by_levels(values, few=FEW * 4 if colored else FEW):
        return by_levels
    if mask.ground is not None:
        return Inside("all that is not transparent")
    if colored:
        return Inside("every color but black, in any of its channels")
    return Inside("values above 0" + f", up to {high:g}" * (high > 1) + "; values below 0 are outside" * (low < 0))


def _get_values(pixels: np.ndarray, mask: Source) -> np.ndarray:
    """Return gray values, the highest channel of colors, or how far they are from what is under a transparent mask."""
    if mask.ground is not None:
        ground = pixels.dtype.type(mask.ground)
        pixels = np.maximum(pixels, ground) - np.minimum(pixels, ground)
    return pixels.max(axis=-1) if mask.color else pixels


def _choose_by_levels(values: np.ndarray, few: float) -> Inside | None:
    """Return what is inside of whole gray levels of 8 or 16 bits; None if they are labels only."""
    if values.dtype != np.uint8 and values.min() >= 0 and values.max() <= 255:  # labels of wider types may be many
        values, few = values.astype(np.uint8), np.inf
    full = int(np.iinfo(values.dtype).max) if values.dtype.kind == "u" else 0
    half = (full + 1) // 2
    if not full or values.max() < (half if full == 255 else 0.9 * full):  # labels of 16 bits number instances
        return None
    levels = count_values(values)[0]
    between = levels[levels > 0][:-1]
    if not between.size:
        return None
    square = values[..., 1:, 1:]  # a label fills a square somewhere; what lies on edges only does not
    same = (square == values[..., :-1, :-1]) & (square == values[..., 1:, :-1]) & (square == values[..., :-1, 1:])
    soft, many = not np.isin(between, square[same]).any(), len(between) >= few
    if levels[-1] == full and between[-1] < half and ((many and not soft) or between[-1] <= (FEW if soft else LABELS)):
        return Inside(f"labels up to {between[-1]}; {full} is taken as void, and is outside", void=float(full))
    middle = (square > full // 16) & (square < full - full // 16)  # JPEG leaves flat parts of nearly 0 and nearly full
    if many and len(between) * 4 <= np.ptp(between) and same[middle].mean() > 0.5:  # a smooth map has all levels
        return None
    why = "as edges are soft" if soft else "as there are many"
    return Inside(f"gray levels from {half} of {full}, {why}", half) if soft or many else None
