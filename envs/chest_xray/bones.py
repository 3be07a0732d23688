"""The bones of a drawn chest: spine, ribs, collar bones, shoulder blades."""

import cv2
import numpy as np

from .grid import SIDES, SIGNS, SIZE, draw_curve, get_grid, to_pixels

_X, _Y = get_grid()


def draw_bones(width: float, apex: float, rng: np.random.Generator) -> np.ndarray:
    """How many millimeters of bone each ray crosses."""
    bone = np.zeros((SIZE, SIZE), np.float32)
    _draw_spine(bone, rng)
    step = rng.uniform(20.5, 22.5)
    for number in range(11):
        for side in SIDES:
            bone += _draw_rib(number, SIGNS[side], width, apex, step, rng)
    lift = rng.uniform(-4, 8)
    for sign in (-1, 1):  # collar bones and shoulder blades
        collar = np.zeros_like(bone)
        y = apex + 44 + rng.uniform(-3, 3)
        points = [(sign * 13, y + 5), (sign * 50, y - 4), (sign * 95, y - 20 - lift), (sign * 142, y - 22 - lift)]
        draw_curve(collar, points, 12, 8)
        draw_curve(collar, points, 7, 5.5)
        bone += collar
        bone += _draw_blade(sign, width, apex, rng)
    return cv2.GaussianBlur(bone, (0, 0), 1.0)


def _draw_spine(bone: np.ndarray, rng: np.random.Generator) -> None:
    step = rng.uniform(21, 24)
    y = (_Y - 6 + step / 2) % step - step / 2  # from the middle of the vertebra
    half = 15 + 0.35 * _Y / step
    bone += 8 * np.sqrt(np.clip(1 - (_X / half) ** 6 - (y / (0.44 * step)) ** 6, 0, 1))
    bone += 4 * np.sqrt(np.clip(1 - (_X / 3.2) ** 2 - ((y - 5) / 7) ** 2, 0, 1))
    for sign in (-1, 1):
        bone += 5 * np.sqrt(np.clip(1 - ((_X - sign * 9) / 3.4) ** 2 - ((y + 2) / 5) ** 2, 0, 1))


def _draw_rib(number: int, sign: int, width: float, apex: float, step: float, rng: np.random.Generator) -> np.ndarray:
    """A rib as a tilted ring around the chest: high behind, low in front."""
    rib = np.zeros((SIZE, SIZE), np.float32)
    half = (width + 5) * min(1.0, 0.46 + 0.15 * number) if number < 4 else (width + 5) * (1 - 0.008 * (number - 4))
    drop = (0.36 + 0.028 * number) * half
    y = apex + 2 + step * number
    front = min(1.15, 0.75 + 0.07 * number) if number < 9 else 0.25
    angles = np.linspace(-np.pi / 2 + 0.13, front, 40)
    rise = 7 * np.exp(-(((angles + 1.25) / 0.3) ** 2))
    points = np.stack([sign * half * np.cos(angles), y + drop * (np.sin(angles) + 1) - rise], axis=1)
    draw_curve(rib, points, 11.5, 4.4, smooth=False)
    draw_curve(rib, points, 8.0, 3.0, smooth=False)
    front_part = angles > 0.35
    if front_part.any():  # the front is thinner
        draw_curve(rib, points[front_part], 11.5, 2.2, smooth=False)
        draw_curve(rib, points[front_part], 8.5, 1.5, smooth=False)
    return rib


def _draw_blade(sign: int, width: float, apex: float, rng: np.random.Generator) -> np.ndarray:
    x, y = width - rng.uniform(-8, 8), apex + 42
    corners = np.array([(x + 8, y), (x + 46, y + 6), (x + 24, y + 60), (x + 6, y + 112), (x - 4, y + 54)])
    corners[:, 0] *= sign
    blade = np.zeros((SIZE, SIZE), np.float32)
    cv2.fillPoly(blade, [to_pixels(corners)], 2.0, cv2.LINE_8, 4)
    draw_curve(blade, corners[[0, 4, 3]], 3.5, 4.0)
    head = (_X - sign * (x + 44)) ** 2 + (_Y - y - 2) ** 2
    whole: np.ndarray = blade + 9 * np.sqrt(np.clip(1 - head / 21**2, 0, 1))
    return whole
