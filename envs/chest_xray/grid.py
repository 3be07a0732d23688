"""The field of a drawn film: its size, its coordinates, and lines drawn in millimeters.

x is in millimeters from the midline, to the viewer's right, which is the patient's left; y from the upper edge.
"""

from typing import Literal, get_args

import cv2
import numpy as np

Side = Literal["right", "left"]
SIDES: tuple[Side, ...] = get_args(Side)
SIGNS: dict[Side, int] = {"right": -1, "left": 1}  # of x: the patient's left is on the right of the picture
SIZE, SPACING = 400, 0.9  # pixels of a side, millimeters of a pixel
FIELD = SIZE * SPACING
FINE = 16  # parts of a pixel in which lines are drawn
_Y, _X = ((np.mgrid[:SIZE, :SIZE] + 0.5) * SPACING).astype(np.float32)
_X -= FIELD / 2


def get_grid() -> tuple[np.ndarray, np.ndarray]:
    """x and y of the centers of the pixels, in mm."""
    return _X, _Y


def draw_curve(values: np.ndarray, points: object, wide: float, to: float, *, smooth: bool = True) -> None:
    """Draw a curve through points (mm), `wide` mm wide, as the value `to`."""
    path = np.asarray(points, np.float64)
    path = _smooth(path) if smooth and len(path) > 2 else path
    cv2.polylines(values, [to_pixels(path)], False, to, max(1, round(wide / SPACING)), cv2.LINE_8, 4)


def _smooth(path: np.ndarray) -> np.ndarray:
    """Cut the corners of a path twice (Chaikin)."""
    for _ in range(3):
        ahead = 0.75 * path[:-1] + 0.25 * path[1:]
        behind = 0.25 * path[:-1] + 0.75 * path[1:]
        inner = np.stack([ahead, behind], axis=1).reshape(-1, 2)
        path = np.concatenate([path[:1], inner, path[-1:]])
    return path


def to_pixels(points: np.ndarray) -> np.ndarray:
    """Points in mm as the fixed-point pixels of OpenCV's drawing."""
    moved = (points + np.array([FIELD / 2, 0])) / SPACING - 0.5
    fixed: np.ndarray = np.round(moved * FINE).astype(np.int32)
    return fixed
