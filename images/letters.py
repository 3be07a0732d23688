"""Letters at the border of a shown slice that name the patient's side there. They are drawn on pictures only."""

from functools import cache

import numpy as np

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
    """A copy of uint8 `pixels`, (h, w) or (h, w, 3), with the first of `sides` at its left edge, the third at its top.

    Args:
        pixels: a picture; one with a side below `SMALLEST` gets no letters.
        sides: the letters of the left, the right, the top and the bottom.
    """
    height, width = pixels.shape[:2]
    if min(height, width) < SMALLEST:
        return pixels
    drawn, scale = pixels.copy(), max(1, min(height, width) // STEP)
    left, top = _draw_letter(sides[0], scale), _draw_letter(sides[2], scale)
    (high, wide), half = left.shape, (height - left.shape[0]) // 2
    for letter, place in (
        (left, drawn[half : half + high, :wide]),
        (top, drawn[:high, (width - wide) // 2 : (width - wide) // 2 + wide]),
    ):
        place[letter == 0], place[letter == 1] = 0, 255
    return drawn


@cache
def _draw_letter(name: str, scale: int) -> np.ndarray:
    """A letter of 1 with a rim of 0, so that it is legible on black and on white; 2 elsewhere."""
    inked = np.array([[row >> (4 - column) & 1 for column in range(5)] for row in GLYPHS[name]], bool)
    inked = np.pad(inked, 1)
    rim = np.zeros_like(inked)
    for down in (-1, 0, 1):
        for across in (-1, 0, 1):
            rim |= np.roll(inked, (down, across), (0, 1))
    return np.kron(np.where(inked, 1, np.where(rim, 0, 2)), np.ones((scale, scale), int))
