"""Marks on a displayed picture: outlines, lines and labels that are legible on black and on white."""

from functools import lru_cache

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

Corners = tuple[int, int, int, int]
Color = tuple[int, int, int]

COLORS = {
    "red": (255, 0, 0), "green": (0, 255, 0), "blue": (64, 128, 255), "yellow": (255, 255, 0),
    "cyan": (0, 255, 255), "magenta": (255, 0, 255), "white": (255, 255, 255),
}  # fmt: skip
GRID = (255, 150, 0)  # orange: visible on black and on white
OUTLINE = 2  # pixels
RIM = 2  # pixels of black around text
SMALLEST_LETTERS, LARGEST_LETTERS = 10, 32  # pixels


def _to_color(pixels: np.ndarray) -> np.ndarray:
    return pixels.copy() if pixels.ndim == 3 else cv2.cvtColor(pixels, cv2.COLOR_GRAY2RGB)


@lru_cache
def _load_font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def find_undrawn(text: str) -> str:
    """Return the letters of a text for which the font has only an empty box, each once.

    >>> find_undrawn("T2 10 mm, 5%"), find_undrawn("µ ≥ é, é")
    ('', 'µ≥é')
    """
    font = _load_font(LARGEST_LETTERS)
    empty = bytes(font.getmask("\uffff"))
    return "".join(dict.fromkeys(letter for letter in text if letter != " " and bytes(font.getmask(letter)) == empty))


def draw_outline(pixels: np.ndarray, box: Corners, color: str, label: str = "") -> np.ndarray:
    """Return a copy of uint8 `pixels`, (h, w) or (h, w, 3), in RGB with the outline of a box and the label above it.
    `box` is (left, top, right, bottom) in pixels, right and bottom excluded; the outline lies inside."""
    marked = _to_color(pixels)
    left, top, right, bottom = box
    inside = marked[top:bottom, left:right]
    for side in (inside[:OUTLINE], inside[-OUTLINE:], inside[:, :OUTLINE], inside[:, -OUTLINE:]):
        side[:] = COLORS[color]
    if label:
        _write_label(marked, (left, top), label, COLORS[color], min(marked.shape[:2]) // 20, above=True)
    return marked


def draw_mask(pixels: np.ndarray, inside: np.ndarray, color: Color, opacity: float = 0.4) -> np.ndarray:
    """Return a copy of uint8 `pixels`, (h, w) or (h, w, 3), in RGB with the color over all that is `inside` (bool)."""
    marked = _to_color(pixels)
    marked[inside] = np.rint(marked[inside] * (1 - opacity) + np.array(color) * opacity).astype(np.uint8)
    return marked


def find_mask_box(inside: np.ndarray) -> tuple[float, ...] | None:
    """Return the box around a bool mask of shape (h, w) as fractions (x1, y1, x2, y2); None if the mask is empty.

    >>> find_mask_box(np.array([[False, False], [False, True]]))
    (0.5, 0.5, 1.0, 1.0)
    """
    if not inside.any():
        return None
    rows, columns = (np.flatnonzero(inside.any(axis=axis)) for axis in (1, 0))
    height, width = inside.shape
    ends = (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1)
    return tuple(float(end) / side for end, side in zip(ends, (width, height) * 2, strict=True))


def draw_grid(pixels: np.ndarray, divisions: int, labels: list[str]) -> np.ndarray:
    """Return a copy of uint8 `pixels` in RGB, cut by lines into divisions x divisions cells, labeled row by row."""
    marked = _to_color(pixels)
    height, width = marked.shape[:2]
    columns, rows = ([round(i * side / divisions) for i in range(divisions)] for side in (width, height))
    for x, y in zip(columns[1:], rows[1:], strict=True):
        marked[:, x : x + 1] = GRID
        marked[y : y + 1] = GRID
    letters = min(width, height) // divisions // 4
    for place, label in zip([(x, y) for y in rows for x in columns], labels, strict=True):
        _write_label(marked, place, label, GRID, letters, above=False)
    return marked


def _write_label(marked: np.ndarray, at: tuple[int, int], text: str, color: Color, letters: int, above: bool) -> None:
    """Write text on black, its corner at `at` (left, top), or above it if there is room; stays within the picture."""
    font = _load_font(min(max(letters, SMALLEST_LETTERS), LARGEST_LETTERS))
    bounds = ImageDraw.Draw(Image.new("RGB", (1, 1))).textbbox((0, 0), text, font=font, anchor="lt")
    width, height = (round(edge) + 2 * RIM for edge in bounds[2:])
    left, top = max(0, min(at[0], marked.shape[1] - width)), at[1]
    top = top - height if above and top >= height else max(0, min(top, marked.shape[0] - height))
    tag = Image.new("RGB", (width, height))
    ImageDraw.Draw(tag).text((RIM, RIM), text, color, font, anchor="lt")
    place = marked[top : top + height, left : left + width]
    place[:] = np.asarray(tag)[: place.shape[0], : place.shape[1]]
