"""The chest that a drawn radiograph shows: maps of how many millimeters of tissue, air and bone a ray crosses.

x is in millimeters from the midline, to the viewer's right, which is the patient's left; y from the upper edge. Shapes
vary with the seed. It is a drawing for tasks with an exact answer, made of no patient's data.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

import cv2
import numpy as np
from numpy.random import Generator as Rng

Point = tuple[float, float]
Side = Literal["right", "left"]
SIDES: tuple[Side, ...] = get_args(Side)
SIGNS: dict[Side, int] = {"right": -1, "left": 1}  # of x: the patient's left is on the right of the picture
SIZE, SPACING = 400, 0.9  # pixels of a side, millimeters of a pixel
FIELD = SIZE * SPACING
FINE = 16  # parts of a pixel in which lines are drawn
X: np.ndarray  # of the centers of the pixels, in millimeters
Y: np.ndarray
Y, X = ((np.mgrid[:SIZE, :SIZE] + 0.5) * SPACING).astype(np.float32)
X -= FIELD / 2


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
    return np.asarray(np.round(moved * FINE).astype(np.int32))


def draw_bones(width: float, apex: float, rng: Rng) -> np.ndarray:
    """Return how many millimeters of bone each ray crosses."""
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


def _draw_spine(bone: np.ndarray, rng: Rng) -> None:
    step = rng.uniform(21, 24)
    y = (Y - 6 + step / 2) % step - step / 2  # from the middle of the vertebra
    half = 15 + 0.35 * Y / step
    bone += 8 * np.sqrt(np.clip(1 - (X / half) ** 6 - (y / (0.44 * step)) ** 6, 0, 1))
    bone += 4 * np.sqrt(np.clip(1 - (X / 3.2) ** 2 - ((y - 5) / 7) ** 2, 0, 1))
    for sign in (-1, 1):
        bone += 5 * np.sqrt(np.clip(1 - ((X - sign * 9) / 3.4) ** 2 - ((y + 2) / 5) ** 2, 0, 1))


def _draw_rib(number: int, sign: int, width: float, apex: float, step: float, rng: Rng) -> np.ndarray:
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


def _draw_blade(sign: int, width: float, apex: float, rng: Rng) -> np.ndarray:
    x, y = width - rng.uniform(-8, 8), apex + 42
    corners = np.array([(x + 8, y), (x + 46, y + 6), (x + 24, y + 60), (x + 6, y + 112), (x - 4, y + 54)])
    corners[:, 0] *= sign
    blade = np.zeros((SIZE, SIZE), np.float32)
    cv2.fillPoly(blade, [to_pixels(corners)], 2.0, cv2.LINE_8, 4)
    draw_curve(blade, corners[[0, 4, 3]], 3.5, 4.0)
    head = (X - sign * (x + 44)) ** 2 + (Y - y - 2) ** 2
    return np.asarray(blade + 9 * np.sqrt(np.clip(1 - head / 21**2, 0, 1)))


NORMAL_RATIO = (0.41, 0.47)  # the cardiothoracic ratio of a heart that is not enlarged
CACHED = 8  # chests: the films of a patient are drawn one after the other
AERATION = 0.76  # share of air in a lung


@dataclass(frozen=True)
class Chest:
    """A drawn chest: lengths in mm, and arrays of them, (SIZE, SIZE)."""

    tissue: np.ndarray  # soft tissue, if the lungs were solid
    depth: np.ndarray  # of the lungs along the ray, 0 outside of them
    vessels: np.ndarray  # soft tissue of those in the lungs
    bone: np.ndarray
    gas: np.ndarray  # of the trachea and the stomach
    lungs: dict[Side, np.ndarray]  # masks of the lung fields
    wall: np.ndarray  # distance from the chest wall, at the sides and above; 0 outside
    middle: np.ndarray  # depth of the mediastinum
    heart: np.ndarray  # its depth
    width: float  # greatest distance of a lung's outer border from the midline
    domes: dict[Side, float]  # y of the top of each half of the diaphragm
    apex: float  # y of the top of the lungs
    heart_width: float

    @property
    def heart_mask(self) -> np.ndarray:
        """Where the heart is seen, above the diaphragm."""
        return np.asarray((self.heart > 12) & (self.depth > 0))

    @property
    def ratio(self) -> float:
        return self.heart_width / (2 * self.width)


@lru_cache(maxsize=CACHED)
def draw_chest(seed: int, ratio: float | None = None) -> Chest:
    """Return the chest of a patient. `ratio` is the cardiothoracic ratio of an enlarged heart; it changes nothing
    else."""
    rng = np.random.default_rng([seed, 1])
    width, apex = rng.uniform(122, 137), rng.uniform(40, 52)
    bottom = rng.uniform(268, 284)
    right_dome = bottom - rng.uniform(22, 32)
    domes: dict[Side, float] = {"right": right_dome, "left": right_dome + rng.uniform(4, 15)}
    rise = np.clip((bottom - Y) / (bottom - apex), 0, 1)
    border = 38 + (width - 38) * (1 - rise**2.3) ** 0.62  # of the lungs in each row, in mm from the midline
    depth = 2 * rng.uniform(0.62, 0.7) * border * np.sqrt(np.clip(1 - (X / border) ** 2, 0, 1))
    shift = rng.uniform(-3, 3)  # of the mediastinum
    edges = {side: _find_middle(side, shift, rng) for side in SIDES}
    inside = {side: _draw_lung(side, border, apex, domes[side], width, rng) for side in SIDES}
    lungs = {side: inside[side] & (X * SIGNS[side] > edges[side]) for side in SIDES}
    depth = depth * (inside["right"] | inside["left"])
    half = np.where(X < 0, edges["right"], edges["left"])
    middle = (148 * np.sqrt(np.clip(1 - (X / half) ** 2, 0, 1))).astype(np.float32)
    x = np.abs(X)
    body = (x < border) & (_find_top(np.maximum(x, 44), apex) < Y)
    wall = np.asarray(SPACING * cv2.distanceTransform(body.astype(np.uint8), cv2.DIST_L2, 5))
    heart, heart_width = _draw_heart(width, right_dome, shift, ratio, rng)
    tissue = _draw_body(border, rng) + _draw_breasts(right_dome, rng)
    bone = draw_bones(width, apex, rng)
    gas = _draw_gas(domes["left"], shift, apex, rng)
    vessels = _draw_vessels(width, domes, shift, rng)
    return Chest(tissue, depth, vessels, bone, gas, lungs, wall, middle, heart, width, domes, apex, heart_width)


def _find_middle(side: Side, shift: float, rng: Rng) -> np.ndarray:
    """Return the border of the mediastinum in each row, in mm from the midline."""
    edge = 17 + 6 * np.exp(-(((Y - 165) / 35) ** 2)) + shift * SIGNS[side] - 5 * np.exp(-(((Y - 70) / 30) ** 2))
    if side == "right":
        return np.asarray(edge + 6 * np.clip((Y - 60) / 90, 0, 1))
    arch, trunk = rng.uniform(12, 19), rng.uniform(8, 14)  # of the aorta, of the pulmonary artery
    edge = edge + arch * np.sqrt(np.clip(1 - ((Y - 112) / 19) ** 2, 0, 1)) + 4 * (Y > 112)
    soft = cv2.GaussianBlur(edge.astype(np.float32), (1, 0), 0.1, sigmaY=3.0)
    return np.asarray(soft + trunk * np.exp(-(((Y - 152) / 16) ** 2)))


def _draw_lung(side: Side, border: np.ndarray, apex: float, dome: float, width: float, rng: Rng) -> np.ndarray:
    x = X * SIGNS[side]
    peak = rng.uniform(52, 62)
    outward = np.clip((x - peak) / (width - peak), 0, 1)
    inward = np.clip((peak - x) / peak, 0, 1)
    floor = dome + rng.uniform(36, 46) * outward**2.3 + rng.uniform(8, 14) * inward**2
    return (x > 0) & (x < border) & (floor > Y) & (_find_top(x, apex) < Y)


def _find_top(x: np.ndarray, apex: float) -> np.ndarray:
    return np.where(x < 80, apex + 22 * ((x - 44) / 34) ** 2 * (np.abs(x - 44) < 60), 0)


def _draw_heart(width: float, dome: float, shift: float, enlarged: float | None, rng: Rng) -> tuple[np.ndarray, float]:
    ratio = rng.uniform(*NORMAL_RATIO)
    tall = rng.uniform(50, 56) * (1.0 if enlarged is None else 1 + 1.1 * (enlarged - ratio))
    total = 2 * width * (ratio if enlarged is None else enlarged)
    tilt = np.radians(rng.uniform(24, 34))
    center = (0.17 * total + shift, dome - 0.62 * tall + 12)
    # the long half axis of a tilted ellipse that reaches `total / 2` to each side
    long = float(np.sqrt(max((total / 2) ** 2 - (tall * np.sin(tilt)) ** 2, 30.0**2)) / np.cos(tilt))
    x, y = X - center[0], Y - center[1]
    along, across = x * np.cos(tilt) + y * np.sin(tilt), -x * np.sin(tilt) + y * np.cos(tilt)
    inside = np.clip(1 - (along / long) ** 2 - (across / tall) ** 2, 0, 1)
    return (165 * inside**0.4).astype(np.float32), total


def _draw_body(border: np.ndarray, rng: Rng) -> np.ndarray:
    wall = rng.uniform(16, 28)
    slope = np.clip((Y - rng.uniform(14, 26)) / 58, 0, 1)
    half = 47 + 155 * slope**1.25 * (3 - 2 * slope**1.25) / 1.0
    half = half + (border + wall + 12 - half) * np.clip((Y - 96) / 74, 0, 1) ** 0.8
    deep = 92 + 12 * np.clip((Y - 200) / 100, 0, 1) - 26 * np.clip((70 - Y) / 60, 0, 1)
    trunk = 2 * deep * np.clip(1 - (np.abs(X) / half) ** 2.8, 0, 1) ** 0.55
    arm = np.clip((np.abs(X) - half - 5) / 26, 0, 1) * (Y > 96)
    return np.asarray(trunk + 75 * np.sqrt(arm), np.float32)


def _draw_breasts(dome: float, rng: Rng) -> np.ndarray:
    size = rng.uniform(15, 34) if rng.random() < 0.5 else 0.0
    y = dome - rng.uniform(8, 26)
    parts = [
        np.sqrt(np.clip(1 - ((X - sign * 78) / 62) ** 2 - ((Y - y) / np.where(y < Y, 36, 85)) ** 2, 0, 1))
        for sign in (-1, 1)
    ]
    return (size * (parts[0] + parts[1])).astype(np.float32)


def _draw_gas(dome: float, shift: float, apex: float, rng: Rng) -> np.ndarray:
    gas = np.zeros((SIZE, SIZE), np.float32)
    fork = (shift, rng.uniform(138, 148))
    draw_curve(gas, [(shift + rng.uniform(-2, 2), 0), (shift, 80), fork], 15, 24)
    for sign, drop in ((-1, 34), (1, 24)):
        draw_curve(gas, [fork, (shift + sign * 16, fork[1] + 0.5 * drop), (shift + sign * 34, fork[1] + drop)], 9, 16)
    x, y = rng.uniform(48, 66), dome + rng.uniform(20, 26)
    bubble = 1 - ((X - x) / rng.uniform(20, 34)) ** 2 - ((Y - y) / rng.uniform(9, 15)) ** 2
    soft = cv2.GaussianBlur(gas, (0, 0), 2.0)
    return np.asarray(soft + 45 * np.sqrt(np.clip(bubble, 0, 1)) * (rng.random() < 0.8))


def _draw_vessels(width: float, domes: dict[Side, float], shift: float, rng: Rng) -> np.ndarray:
    vessels = np.zeros((SIZE, SIZE), np.float32)
    for side in SIDES:
        sign = SIGNS[side]
        root = (shift + sign * rng.uniform(30, 36), rng.uniform(160, 168) - (6 if side == "left" else 0))
        draw_curve(vessels, [(root[0], root[1] - 20), root, (root[0] + sign * 5, root[1] + 24)], 14, 26)
        for angle in np.linspace(-1.45, 1.45, 9) + rng.uniform(-0.12, 0.12, 9):
            long = rng.uniform(70, 100) if angle > 0 else rng.uniform(60, 88)
            _grow_vessel(vessels, root, angle, sign, long, rng.uniform(6.5, 8.5), rng, 3)
    return cv2.GaussianBlur(vessels, (0, 0), 0.9)


def _grow_vessel(
    vessels: np.ndarray, start: Point, angle: float, sign: int, long: float, thick: float, rng: Rng, levels: int
) -> None:
    bent = angle + rng.uniform(-0.25, 0.25)
    half = (start[0] + sign * 0.5 * long * np.cos(angle), start[1] + 0.5 * long * np.sin(angle))
    end = (half[0] + sign * 0.5 * long * np.cos(bent), half[1] + 0.5 * long * np.sin(bent))
    draw_curve(vessels, [start, half, end], 0.62 * thick, 1.6 * thick, smooth=False)
    if levels == 0:
        return
    for origin, turn in ((half, rng.uniform(0.3, 0.75)), (end, rng.uniform(0.1, 0.5)), (end, rng.uniform(-0.5, -0.1))):
        turn = turn * rng.choice((-1, 1)) if origin is half else turn
        _grow_vessel(vessels, origin, bent + turn, sign, 0.5 * long, 0.6 * thick, rng, levels - 1)
