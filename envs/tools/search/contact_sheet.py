"""Several found pictures as one: a sheet of numbered tiles."""

import math
from collections.abc import Sequence

import cv2
import numpy as np

from viewbox.images.source import Source

TILE, GAP = 256, 4  # pixels
PAPER, INK = 32, 255


def draw_sheet(sources: Sequence[Source], numbers: Sequence[int]) -> np.ndarray:
    """A sheet of the pictures, uint8 (height, width, 3), each with its number at the upper left.

    >>> draw_sheet([Source.of(np.zeros((30, 60), np.uint8))] * 3, [1, 2, 4]).shape
    (520, 520, 3)
    """
    columns = math.ceil(math.sqrt(len(sources)))
    rows = math.ceil(len(sources) / columns)
    step = TILE + GAP
    sheet = np.full((rows * step, columns * step, 3), PAPER, np.uint8)
    for place, (source, number) in enumerate(zip(sources, numbers, strict=True)):
        row, column = divmod(place, columns)
        top, left = row * step + GAP // 2, column * step + GAP // 2
        sheet[top : top + TILE, left : left + TILE] = _draw_tile(source, str(number))
    return sheet


def _draw_tile(source: Source, label: str) -> np.ndarray:
    tile = np.full((TILE, TILE, 3), PAPER, np.uint8)
    shown = source.to_uint8(source.pixels)
    scale = TILE / max(shown.shape[:2])
    size = [max(1, round(side * scale)) for side in shown.shape[1::-1]]
    small = cv2.resize(shown, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR)
    colored = cv2.cvtColor(small, cv2.COLOR_GRAY2RGB) if small.ndim == 2 else small
    top, left = (TILE - size[1]) // 2, (TILE - size[0]) // 2
    tile[top : top + size[1], left : left + size[0]] = colored
    tile[:30, : 14 + 16 * len(label)] = 0
    cv2.putText(tile, label, (6, 23), cv2.FONT_HERSHEY_SIMPLEX, 0.8, (INK, INK, INK), 2, cv2.LINE_AA)
    return tile
