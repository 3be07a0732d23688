"""Marks on a picture that is shown: outlines, lines and labels that can be read on black and on white."""

from functools import lru_cache

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from viewbox.envs.image import picture

Corners = tuple[int, int, int, int]

COLORS = {
    "red": (255, 0, 0),
    "green": (0, 255, 0),
    "blue": (64, 128, 255),
    "yellow": (255, 255, 0),
    "cyan": (0, 255, 255),
    "magenta": (255, 0, 255),
    "white": (255, 255, 255),
}
GRID = (255, 150, 0)  # orange: seen on black and on white
OUTLINE = 2  # pixels
RIM = 2  # pixels of black around words
SMALLEST_LETTERS, LARGEST_LETTERS = 10, 32  # pixels


def _colour(pixels: np.ndarray) -> Image.Image:
    """A copy that may be drawn on."""
    return picture(pixels if pixels.ndim == 3 else cv2.cvtColor(pixels, cv2.COLOR_GRAY2RGB))


@lru_cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def outlined(pixels: np.ndarray, box: Corners, color: str, label: str = "") -> Image.Image:
    """A picture of uint8 `pixels`, (h, w) or (h, w, 3), with the outline of a box and the label above it.

    `box` is (left, top, right, bottom) in pixels, right and bottom excluded; the outline, `OUTLINE` pixels wide, lies
    inside.
    """
    marked = _colour(pixels)
    draw = ImageDraw.Draw(marked)
    left, top, right, bottom = box
    draw.rectangle((left, top, right - 1, bottom - 1), outline=COLORS[color], width=OUTLINE)
    if label:
        _write(draw, (left, top), label, COLORS[color], min(marked.size) // 20, marked.size, above=True)
    return marked


def gridded(pixels: np.ndarray, divisions: int, labels: list[str]) -> Image.Image:
    """A picture of uint8 `pixels` cut by lines into divisions x divisions cells, each with its label; row by row."""
    marked = _colour(pixels)
    draw = ImageDraw.Draw(marked)
    width, height = marked.size
    columns, rows = ([round(i * side / divisions) for i in range(divisions)] for side in (width, height))
    for x, y in zip(columns[1:], rows[1:], strict=True):
        draw.line((x, 0, x, height), GRID)
        draw.line((0, y, width, y), GRID)
    letters = min(width, height) // divisions // 4
    for place, label in zip([(x, y) for y in rows for x in columns], labels, strict=True):
        _write(draw, place, label, GRID, letters, marked.size)
    return marked


def _write(
    draw: ImageDraw.ImageDraw,
    at: tuple[int, int],
    words: str,
    color: tuple[int, int, int],
    letters: int,
    size: tuple[int, int],
    above: bool = False,
) -> None:
    """Words on black with their corner at `at` (left, top), or above it where there is room; within `size`."""
    font = _font(min(max(letters, SMALLEST_LETTERS), LARGEST_LETTERS))
    _, _, width, height = (round(edge) + 2 * RIM for edge in draw.textbbox((0, 0), words, font=font, anchor="lt"))
    left, top = max(0, min(at[0], size[0] - width)), at[1]
    top = top - height if above and top >= height else max(0, min(top, size[1] - height))
    draw.rectangle((left, top, left + width - 1, top + height - 1), fill="black")
    draw.text((left + RIM, top + RIM), words, color, font, anchor="lt")
