"""Draws an axial slice through the upper abdomen as CT values: fat, muscle, organs, vessels, bone, gas, and lesions.

Shapes are ellipses that vary with the seed; values are typical of unenhanced CT (Hounsfield units). The slice is a
phantom, made for tasks with an exact answer: it is not meant to look like any patient.

A *solid* lesion is a disc a few units darker than its organ. A *decoy* is a ring around a core that is not darker: it
darkens the picture as much as a solid lesion of its size, so that only a view near the native resolution tells them
apart. Both are smaller than a gray level of the whole CT range, so that only a narrow window shows them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, get_args

import cv2
import numpy as np

Organ = Literal["liver", "spleen", "right kidney", "left kidney"]
ORGANS: tuple[Organ, ...] = get_args(Organ)
SIZE, SPACING = 640, 0.5  # pixels of a side, millimeters of a pixel
FIELD = SIZE * SPACING  # millimeters of a side; shapes are drawn in millimeters
AIR, FAT, MUSCLE, LIVER, SPLEEN, KIDNEY, BLOOD, MARROW, CORTEX, GAS = -1000, -100, 55, 60, 50, 35, 42, 180, 900, -800
Place = Callable[[float, float], tuple[float, float]]  # a point in half axes of the body -> millimeters
NOISE, SOFTNESS = 1.5, 1.0  # standard deviation of the noise in HU; of the blur that a scanner adds, in pixels
FINE_BITS = 8  # of a pixel, to which shapes are placed
FINE = 2**FINE_BITS
_Y, _X = ((np.mgrid[:SIZE, :SIZE] + 0.5) * SPACING).astype(np.float32)  # centers of the pixels, in millimeters
ORGAN_VALUES: dict[Organ, int] = {"liver": LIVER, "spleen": SPLEEN, "right kidney": KIDNEY, "left kidney": KIDNEY}


@dataclass(frozen=True)
class Lesion:
    """A solid lesion or a decoy, in millimeters from the upper left corner of the slice."""

    organ: Organ
    x: float
    y: float
    diameter: float
    contrast: float  # how much darker than the organ a solid lesion is, in HU
    solid: bool

    @property
    def box(self) -> tuple[float, float, float, float]:
        """The smallest box around it, in fractions of the slice, to a thousandth (0.3 mm)."""
        radius = self.diameter / 2
        sides = (self.x - radius, self.y - radius, self.x + radius, self.y + radius)
        return tuple(round(side / FIELD, 3) for side in sides)  # type: ignore[return-value]


@dataclass(frozen=True)
class PhantomSlice:
    """A slice and what is in it: pixels (SIZE, SIZE) int16 in HU, the solid lesion (None: there is none), decoys."""

    pixels: np.ndarray
    lesion: Lesion | None
    decoys: tuple[Lesion, ...]


def draw_slice(seed: int, difficulty: float, *, has_lesion: bool) -> PhantomSlice:
    """Draw the slice of a seed, with a solid lesion or without; `difficulty` is 0 (large, dark, few decoys) to 1."""
    rng = np.random.default_rng([seed, 7])
    values = np.full((SIZE, SIZE), AIR, np.float32)
    lesions = _place_lesions(_draw_body(values, rng), rng, difficulty)
    if has_lesion:
        solid = int(rng.integers(len(lesions)))
        lesions[solid] = replace(lesions[solid], solid=True)
    for lesion in lesions:
        _draw_lesion(values, lesion)
    blurred: np.ndarray = cv2.GaussianBlur(values, (0, 0), SOFTNESS)
    blurred = blurred + NOISE * rng.standard_normal(values.shape, dtype=np.float32)
    pixels = np.clip(np.round(blurred), -1024, 3000).astype(np.int16)
    target = next((lesion for lesion in lesions if lesion.solid), None)
    return PhantomSlice(pixels, target, tuple(lesion for lesion in lesions if not lesion.solid))


def _draw_body(values: np.ndarray, rng: np.random.Generator) -> dict[Organ, np.ndarray]:
    """Draw everything but lesions, and return the mask of each organ."""
    wide, deep = rng.uniform(128, 140), rng.uniform(92, 104)
    center = np.array([160.0, 162.0])

    def place(x: float, y: float) -> tuple[float, float]:
        """Return a point given in half axes of the body: x to the viewer's right, y down."""
        return center[0] + x * wide, center[1] + y * deep

    _fill(values, place(0, 0), (wide, deep), 0, FAT)
    wall = rng.uniform(0.88, 0.91)
    _fill(values, place(0, 0), (wide * wall, deep * wall), 0, MUSCLE)
    inner = wall - rng.uniform(0.06, 0.08)
    _fill(values, place(0, -0.02), (wide * inner, deep * inner), 0, FAT)
    for side in (-1, 1):  # back muscles beside the spine
        _fill(values, place(0.2 * side, 0.72), (0.17 * wide, 0.17 * deep), 10 * side, MUSCLE)
    masks: dict[Organ, np.ndarray] = {
        "liver": _mask(place(-0.42, -0.12), (0.42 * wide, 0.52 * deep), rng.uniform(-12, 4))
        | _mask(place(-0.08, -0.38), (0.34 * wide, 0.24 * deep), rng.uniform(-6, 10)),
        "spleen": _mask(place(0.58, 0.22), (0.17 * wide, 0.33 * deep), rng.uniform(8, 22)),
        "right kidney": _mask(place(-0.36, 0.5), (0.13 * wide, 0.19 * deep), rng.uniform(-28, -12)),
        "left kidney": _mask(place(0.34, 0.52), (0.13 * wide, 0.19 * deep), rng.uniform(12, 28)),
    }
    masks["liver"] &= ~_mask(place(-0.36, 0.5), (0.17 * wide, 0.23 * deep), -20)
    for organ, mask in masks.items():
        values[mask] = ORGAN_VALUES[organ]
    for x in (-0.36, 0.34):  # the fat in the middle of a kidney
        _fill(values, place(x * 0.93, 0.52), (0.05 * wide, 0.07 * deep), 0, FAT)
    _draw_gut(values, place, rng, masks)
    _draw_bones(values, place, (wide, deep), rng)
    _draw_vessels(values, place, rng, masks["liver"])
    return {organ: masks[organ] & (values == ORGAN_VALUES[organ]) for organ in ORGANS}  # without what crosses them


def _draw_gut(values: np.ndarray, place: Place, rng: np.random.Generator, masks: dict[Organ, np.ndarray]) -> None:
    """Draw the stomach with its bubble of gas, and loops of gut."""
    taken = np.logical_or.reduce(list(masks.values()))
    before = values.copy()
    _fill(values, place(0.34, -0.3), (36, 26), rng.uniform(-15, 15), 35)
    _fill(values, place(0.32, -0.42), (22, 9), 0, GAS)
    for _ in range(5):
        x, y = rng.uniform(-0.05, 0.3), rng.uniform(-0.05, 0.3)
        _fill(values, place(x, y), (rng.uniform(8, 13), rng.uniform(7, 11)), rng.uniform(0, 90), 30)
        if rng.random() < 0.4:
            _fill(values, place(x, y - 0.03), (4, 3), 0, GAS)
    values[taken] = before[taken]


def _draw_bones(values: np.ndarray, place: Place, half: tuple[float, float], rng: np.random.Generator) -> None:
    """Draw a vertebra with its arch and canal, and ribs cut across in the wall of the body."""
    _fill(values, place(0, 0.48), (21, 17), 0, CORTEX)
    _fill(values, place(0, 0.48), (19, 15), 0, MARROW)
    _fill(values, place(0, 0.76), (14, 11), 0, CORTEX)
    _fill(values, place(0, 0.75), (8, 7), 0, 30)
    for side in (-1, 1):
        _fill(values, place(0.17 * side, 0.72), (12, 4), -25 * side, CORTEX)
    _fill(values, place(0, 0.92), (3.5, 9), 0, CORTEX)
    for angle in np.arange(rng.uniform(0, 0.2), 2 * np.pi, 2 * np.pi / 13):
        if abs(np.sin(angle) - 1) < 0.12:  # not over the spine
            continue
        x, y = 0.84 * np.cos(angle), 0.83 * np.sin(angle)
        tilt = np.degrees(np.arctan2(half[1] * np.cos(angle), -half[0] * np.sin(angle)))
        _fill(values, place(x, y), (9, 3.6), tilt, CORTEX)
        _fill(values, place(x, y), (7, 2), tilt, MARROW)


def _draw_vessels(values: np.ndarray, place: Place, rng: np.random.Generator, liver: np.ndarray) -> None:
    """Draw the aorta and the inferior vena cava before the spine, and large veins in the liver."""
    _fill(values, place(0.07, 0.24), (9, 9), 0, BLOOD)
    _fill(values, place(-0.14, 0.24), (11, 8), rng.uniform(-20, 20), BLOOD)
    veins = np.zeros_like(liver)
    root = np.array(place(-0.2, 0.0))
    for angle in rng.uniform(0.6, 1.1, 3) + np.array([2.2, 3.0, 3.8]) - 1.0:
        end = root + rng.uniform(35, 55) * np.array([np.cos(angle), np.sin(angle)])
        veins |= _draw_line(root, end, 3)
    values[veins & liver] = BLOOD


def _place_lesions(organs: dict[Organ, np.ndarray], rng: np.random.Generator, difficulty: float) -> list[Lesion]:
    """Return decoys that do not touch each other, a vessel or the edge of their organ. One of them may be made solid
    afterwards, so that neither their number nor their places tell whether one is."""
    count = round(3 + 6 * difficulty)
    placed: list[Lesion] = []
    depths = {name: _measure_depth(mask) for name, mask in organs.items()}
    for _ in range(count):
        diameter = rng.uniform(5.5, 7) - 2.2 * difficulty
        contrast = rng.uniform(4.5, 6) - 1.5 * difficulty
        organ = ORGANS[int(rng.choice(len(ORGANS), p=(0.5, 0.2, 0.15, 0.15)))]
        for attempt in range(40):
            name = organ if attempt < 20 else ORGANS[attempt % len(ORGANS)]
            depth, left, top = depths[name]
            rows, columns = np.nonzero(depth > (diameter / 2 + 2) / SPACING)
            if not len(rows):
                continue
            pick = int(rng.integers(len(rows)))
            x, y = (float(left + columns[pick]) + 0.5) * SPACING, (float(top + rows[pick]) + 0.5) * SPACING
            if all(np.hypot(x - other.x, y - other.y) > (diameter + other.diameter) / 2 + 6 for other in placed):
                placed.append(Lesion(name, x, y, diameter, contrast, solid=False))
                break
    return placed


def _measure_depth(mask: np.ndarray) -> tuple[np.ndarray, int, int]:
    """Return how far each pixel of an organ is from its edge, in pixels, in the rectangle around it; its left and
    top."""
    x, y, width, height = cv2.boundingRect(mask.astype(np.uint8))
    inside = np.pad(mask[y : y + height, x : x + width].astype(np.uint8), 1)
    return cv2.distanceTransform(inside, cv2.DIST_L2, 5)[1:-1, 1:-1], x, y


def _draw_lesion(values: np.ndarray, lesion: Lesion) -> None:
    """Draw a disc, or a ring that darkens the organ by the same sum."""
    radius = lesion.diameter / 2
    around = _cut_window((lesion.x, lesion.y), radius)
    distance = np.hypot(_X[around] - np.float32(lesion.x), _Y[around] - np.float32(lesion.y))
    disc = np.clip((radius - distance) / SPACING + 0.5, 0, 1)
    if lesion.solid:
        values[around] -= lesion.contrast * disc
        return
    ring = disc - np.clip((0.66 * radius - distance) / SPACING + 0.5, 0, 1)
    values[around] -= lesion.contrast * ring * disc.sum() / ring.sum()


def _mask(center: tuple[float, float], half: tuple[float, float], angle: float) -> np.ndarray:
    """Return the pixels (SIZE, SIZE) of the slice that lie inside an ellipse; `angle` in degrees."""
    mask = np.zeros((SIZE, SIZE), np.uint8)
    _fill(mask, center, half, angle, 1)
    return mask.astype(bool)


def _fill(values: np.ndarray, center: tuple[float, float], half: tuple[float, float], angle: float, to: float) -> None:
    """Draw an ellipse; center and half axes are in millimeters, the angle is in degrees."""
    x, y = (round((value / SPACING - 0.5) * FINE) for value in center)
    axes = (round(half[0] / SPACING * FINE), round(half[1] / SPACING * FINE))
    cv2.ellipse(values, (x, y), axes, angle, 0, 360, to, thickness=-1, shift=FINE_BITS)


def _cut_window(center: tuple[float, float], reach: float) -> tuple[slice, slice]:
    """Return the part of the slice around a point, in which a small shape is drawn."""
    ends = [(int((at - reach) / SPACING) - 2, int((at + reach) / SPACING) + 3) for at in reversed(center)]
    rows, columns = (slice(max(0, low), max(0, high)) for low, high in ends)
    return rows, columns


def _draw_line(start: np.ndarray, end: np.ndarray, width: int) -> np.ndarray:
    line = np.zeros((SIZE, SIZE), np.uint8)
    first, last = (tuple(round(value / SPACING) for value in point) for point in (start, end))
    cv2.line(line, first, last, 1, round(width / SPACING))
    return line.astype(bool)
