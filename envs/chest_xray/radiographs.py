"""Frontal chest films, drawn: 14-bit pixels, a known spacing, and findings with masks and boxes.

A ray loses `MU` of its strength in each millimeter of soft tissue and more in bone and metal. What is left, with
scattered light, noise and an exposure that varies, becomes the film. Left and right are the patient's: the patient's
left lung is on the right of the picture, and so is the letter L.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

import cv2
import numpy as np
from numpy.random import Generator as Rng

from .anatomy import AERATION, SIDES, SIGNS, SIZE, SPACING, Chest, Side, X, Y, draw_chest, draw_curve

Label = Literal["effusion", "pneumothorax", "consolidation", "nodule", "cardiomegaly"]
LABELS: tuple[Label, ...] = get_args(Label)
Device = Literal["central line", "pacemaker", "electrodes"]
DEVICES: tuple[Device, ...] = get_args(Device)
MU, MU_BONE, MU_METAL = 0.0185, 0.07, 1.1  # of a mm
LEVELS = 2**14 - 1
DISPLAY = (600.0, 15400.0)
CACHED = 64  # films


@dataclass(frozen=True)
class Finding:
    """A finding as it is planned; `size` is from 0 (small) to 1 (large), `seed` decides its place and texture."""

    label: Label
    side: Side | None  # None: cardiomegaly
    size: float
    seed: int


Findings = tuple[Finding, ...]


@dataclass
class Layers:
    """What a film shows beside the chest itself: soft tissue and metal that is added, air that replaces lung, in mm."""

    tissue: np.ndarray
    air: np.ndarray
    metal: np.ndarray
    bare: np.ndarray  # where no vessels are

    @classmethod
    def empty(cls) -> "Layers":
        tissue, air, metal = (np.zeros((SIZE, SIZE), np.float32) for _ in range(3))
        return cls(tissue, air, metal, np.zeros((SIZE, SIZE), bool))


@dataclass(frozen=True)
class Shown:
    """A finding as a film shows it; `size_mm` is the longer side of its box."""

    label: Label
    side: Side | None
    mask: np.ndarray
    box: tuple[float, float, float, float]
    size_mm: float


@dataclass(frozen=True)
class Film:
    """A film: pixels (SIZE, SIZE) uint16, its findings, masks of lungs and heart, the cardiothoracic ratio."""

    pixels: np.ndarray
    findings: tuple[Shown, ...]
    device: Device | None
    masks: dict[str, np.ndarray]
    ratio: float


@lru_cache(maxsize=CACHED)
def draw_film(
    seed: int, findings: Findings = (), *, study: int = 0, difficulty: float = 0.5, device: Device | bool | None = None
) -> Film:
    """Draw a film of the patient of a seed; two studies differ in exposure, position and noise. `difficulty` is 0
    (clear findings) to 1 (faint ones); `device` says which one there is, or whether there is a line, a pacemaker or
    electrodes (None: drawn)."""
    heart = next((finding for finding in findings if finding.side is None), None)
    chest = draw_chest(seed, None if heart is None else 0.56 + 0.09 * heart.size - 0.015 * difficulty)
    layers = Layers.empty()
    masks = [draw_finding(chest, finding, difficulty, layers) for finding in findings]
    rng = np.random.default_rng([seed, 3])
    has_device = rng.random() < 0.3 if device is None else bool(device)
    kind, side = DEVICES[int(rng.integers(3))], SIDES[int(rng.integers(2))]
    kind = device if isinstance(device, str) else kind
    if has_device:
        draw_device(chest, kind, side, rng, layers)
    take = np.random.default_rng([seed, 4, study])
    warp = _draw_position(take)
    values = _expose(_project(chest, layers), warp, take)
    shown = tuple(_show(finding, mask, warp) for finding, mask in zip(findings, masks, strict=True))
    organs = {f"{name} lung": chest.lungs[name] for name in SIDES} | {"heart": chest.heart_mask}
    moved = {name: _move(mask, warp) for name, mask in organs.items()}
    return Film(values, shown, kind if has_device else None, moved, chest.ratio)


def _project(chest: Chest, layers: Layers) -> np.ndarray:
    lung = np.clip(chest.depth - np.maximum(chest.heart, chest.middle), 0, None)
    vessels = np.where(layers.bare, 0, chest.vessels) * (lung > 0)
    air = AERATION * lung + layers.air * (lung > 0)
    air = np.clip(air - vessels - layers.tissue, 0, lung) + np.minimum(chest.gas, 60)
    tissue = np.clip(chest.tissue - air, 0, None)
    return np.asarray(MU * tissue + MU_BONE * chest.bone + MU_METAL * layers.metal)


def _draw_position(rng: Rng) -> np.ndarray:
    """Return how the patient stood: an affine map of pixels."""
    angle, scale = rng.normal(0, 1.6), rng.uniform(0.95, 1.03)
    center = SIZE / 2 - 0.5
    warp: np.ndarray = cv2.getRotationMatrix2D((center, center), angle, scale)
    warp[:, 2] += rng.normal(0, 5, 2)
    return warp


def _expose(loss: np.ndarray, warp: np.ndarray, rng: Rng) -> np.ndarray:
    """Return the film of a projection: position, scatter, uneven exposure, noise, and the curve of the display."""
    loss = cv2.warpAffine(loss, warp, (SIZE, SIZE), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    loss = cv2.GaussianBlur(loss, (0, 0), rng.uniform(0.55, 0.8))
    light = np.exp(-loss)
    light = 0.86 * light + 0.14 * cv2.GaussianBlur(light, (0, 0), 45)
    y, x = np.mgrid[-1 : 1 : SIZE * 1j, -1 : 1 : SIZE * 1j].astype(np.float32)
    light = light * (1 + rng.normal(0, 0.06) * x + rng.normal(0, 0.05) * y)
    dose = rng.uniform(9_000, 26_000)
    grain = rng.standard_normal((SIZE, SIZE), dtype=np.float32)
    grain = 0.55 * grain + 1.3 * cv2.GaussianBlur(grain, (0, 0), 1.0)
    light = light + grain * np.sqrt(light / dose)
    seen = -np.log(np.clip(light, 1e-4, None))
    middle, soft = 2.3 + rng.normal(0, 0.12), rng.uniform(0.58, 0.7)
    value = LEVELS / (1 + np.exp(-(seen - middle) / soft))
    value = _stamp_letter(value, rng)
    return np.clip(np.round(value), 0, LEVELS).astype(np.uint16)


def _stamp_letter(value: np.ndarray, rng: Rng) -> np.ndarray:
    mark = np.zeros((SIZE, SIZE), np.float32)
    x, y = int(rng.integers(352, 372)), int(rng.integers(18, 34))
    mark[y : y + 16, x : x + 3] = mark[y + 13 : y + 16, x : x + 10] = 1.0
    return value + (0.97 * LEVELS - value) * cv2.GaussianBlur(mark, (0, 0), 0.6)


def _move(mask: np.ndarray, warp: np.ndarray) -> np.ndarray:
    return cv2.warpAffine(mask.astype(np.uint8), warp, (SIZE, SIZE), flags=cv2.INTER_NEAREST).astype(bool)


def _show(finding: Finding, mask: np.ndarray, warp: np.ndarray) -> Shown:
    moved = _move(mask, warp)
    x, y, width, height = cv2.boundingRect(moved.astype(np.uint8))
    sides: Sequence[float] = (x / SIZE, y / SIZE, (x + width) / SIZE, (y + height) / SIZE)
    left, top, right, bottom = (round(float(side), 4) for side in sides)
    return Shown(finding.label, finding.side, moved, (left, top, right, bottom), max(width, height) * SPACING)


def draw_finding(chest: Chest, finding: Finding, difficulty: float, layers: Layers) -> np.ndarray:
    """Draw a finding into the layers. Returns its mask (SIZE, SIZE); a heart is enlarged when the chest is drawn."""
    rng = np.random.default_rng([finding.seed, LABELS.index(finding.label), 5])
    faint = 1 - 0.45 * difficulty
    if finding.side is None:
        return chest.heart_mask
    draw = {
        "effusion": _draw_effusion, "pneumothorax": _draw_pneumothorax, "consolidation": _draw_consolidation,
        "nodule": _draw_nodule,
    }[finding.label]  # fmt: skip
    return draw(chest, finding.side, finding.size, faint, rng, layers)


def _draw_effusion(chest: Chest, side: Side, size: float, faint: float, rng: Rng, layers: Layers) -> np.ndarray:
    outward = X * SIGNS[side]
    level = (chest.domes[side] + 40) - (34 + 95 * size) + 8 * rng.random()
    surface = level + (24 + 14 * size) * (1 - np.clip(outward / chest.width, 0, 1) ** 2.2)
    mask: np.ndarray = chest.lungs[side] & ~chest.heart_mask & (surface < Y)
    depth = np.clip((Y - surface) / (16 + 10 * size), 0, 1) ** 0.7
    layers.tissue += np.where(mask, (0.35 + 0.65 * depth) * faint**0.5 * AERATION * chest.depth, 0)
    return mask


def _draw_pneumothorax(chest: Chest, side: Side, size: float, faint: float, rng: Rng, layers: Layers) -> np.ndarray:
    """Air between the chest wall and a lung that has drawn back: no vessels, and a thin line along the lung."""
    reach = chest.domes[side] - 70 + 75 * size
    down = np.clip((Y - chest.apex) / (reach - chest.apex), 0, 1)
    gap = (11 + 27 * size) * (1 - down**2.2) * (1 + 0.12 * np.sin(Y / rng.uniform(16, 26) + rng.uniform(0, 6)))
    gap = gap * np.clip((X * SIGNS[side] - 24) / 24, 0, 1)
    outer = X * SIGNS[side] > 26
    mask = _keep_largest(chest.lungs[side] & (chest.wall < gap) & outer & (reach > Y))
    line = np.exp(-(((chest.wall - gap - 1.2) / 1.0) ** 2)) * (chest.lungs[side] & outer & (gap > 3))
    layers.air += np.where(mask, (0.6 + 0.4 * faint) * (1 - AERATION) * chest.depth, 0)
    layers.tissue += 15 * faint * line + np.where(chest.lungs[side] & ~mask, 9 * size * faint, 0)
    layers.bare |= mask
    return mask


def _draw_consolidation(chest: Chest, side: Side, size: float, faint: float, rng: Rng, layers: Layers) -> np.ndarray:
    half = (19 + 17 * size, 16 + 15 * size)
    cx, cy = _place_inside(chest, side, 27, rng)
    warp = _draw_clouds(rng, 24) * 0.9
    radius = np.sqrt(((X - cx) / half[0]) ** 2 + ((Y - cy) / half[1]) ** 2) + warp
    density = 1 / (1 + np.exp(np.clip((radius - 0.92) / 0.2, -30, 30)))
    texture = 1 + 0.22 * _draw_clouds(rng, 9)
    bronchi = np.zeros((SIZE, SIZE), np.float32)
    for _ in range(3):
        angle = rng.uniform(-0.9, 0.9)
        step = np.array([SIGNS[side] * np.cos(angle), np.sin(angle)]) * half[0] * 0.6
        start = np.array([cx, cy]) - step + rng.uniform(-6, 6, 2)
        draw_curve(bronchi, [start, start + step, start + 1.8 * step], 2.4, 7.0)
    mask = chest.lungs[side] & ~chest.heart_mask & (density > 0.4)
    amount = (38 + 22 * size) * faint * density * np.clip(texture, 0.3, 2)
    amount = amount - cv2.GaussianBlur(bronchi, (0, 0), 1.0) * density
    layers.tissue += np.where(chest.lungs[side], np.clip(amount, 0, AERATION * chest.depth), 0)
    return _keep_largest(mask)


def _draw_nodule(chest: Chest, side: Side, size: float, faint: float, rng: Rng, layers: Layers) -> np.ndarray:
    radius = 5.5 + 9.5 * size
    cx, cy = _place_inside(chest, side, 20, rng)
    bumps = 1 + 0.1 * _draw_clouds(rng, 7)
    inside = np.clip(1 - ((X - cx) ** 2 + (Y - cy) ** 2) / (radius * bumps) ** 2, 0, 1)
    layers.tissue += 1.9 * radius * faint * np.sqrt(inside) + np.where(inside > 0, 3.5 * faint, 0)
    return inside > 0


def draw_device(chest: Chest, device: Device, side: Side, rng: Rng, layers: Layers) -> None:
    """Draw a device, which is no finding."""
    sign = SIGNS[side]
    if device == "electrodes":
        for left, top in ((-70, 95), (75, 95), (88, 230)):
            cx, cy = left + rng.uniform(-8, 8), top + rng.uniform(-8, 8)
            layers.metal += 1.2 * (np.hypot(X - cx, Y - cy) < 4.5)
            draw_curve(layers.metal, [(cx, cy), (cx * 0.8, cy + 40), (cx * 1.2, cy + 90), (cx * 0.6, 360)], 1.2, 0.7)
        return
    tip = (-18 + rng.uniform(-3, 3), 150 + rng.uniform(-8, 14))
    if device == "central line":
        start = (sign * 40, 0) if rng.random() < 0.5 else (sign * 120, chest.apex + 28)
        middle = (sign * 26, chest.apex + 38)
        draw_curve(layers.metal, [start, middle, (-16, 105), tip], 2.4, 0.75)
        return
    cx, cy = sign * rng.uniform(84, 96), chest.apex + rng.uniform(54, 66)
    case = np.clip(1 - np.abs((X - cx) / 23) ** 4 - np.abs((Y - cy) / 19) ** 4, 0, 1)
    layers.metal += 2.6 * (case > 0) + 1.6 * (case > 0.35)
    lead = [(cx - sign * 18, cy - 12), (sign * 40, chest.apex + 34), (-14, 110), (-22, 180), (0, 226), (34, 236)]
    draw_curve(layers.metal, lead, 2.2, 1.5)
    layers.metal += 2.0 * (np.hypot(X - 34, Y - 236) < 2.5)


def _place_inside(chest: Chest, side: Side, margin: float, rng: Rng) -> tuple[float, float]:
    """Return a point of a lung field, at least `margin` mm from its edge and the heart, off the base and from
    pacemakers: wherever the finding may grow between two studies."""
    pacemaker = np.hypot(X - 90 * SIGNS[side], Y - chest.apex - 60) < 36
    base = chest.domes[side] - 52 < Y  # a small effusion lies there
    free = (chest.lungs[side] & (chest.heart < 5) & ~pacemaker & ~base).astype(np.uint8)
    depth = cv2.distanceTransform(free, cv2.DIST_L2, 5) * SPACING
    rows, columns = np.nonzero(depth >= min(margin, float(depth.max())))
    pick = int(rng.integers(len(rows)))
    return float(X[rows[pick], columns[pick]]), float(Y[rows[pick], columns[pick]])


def _draw_clouds(rng: Rng, grain: float) -> np.ndarray:
    """Smooth noise (SIZE, SIZE) with a standard deviation of about 0.35; `grain` is the size of its spots in mm."""
    cells = max(3, round(SIZE * SPACING / grain))
    coarse = rng.standard_normal((cells, cells)).astype(np.float32)
    return 0.45 * cv2.resize(coarse, (SIZE, SIZE), interpolation=cv2.INTER_CUBIC)


def _keep_largest(mask: np.ndarray) -> np.ndarray:
    count, parts, figures, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8))
    if count <= 1:
        return mask
    return np.asarray(parts == 1 + int(np.argmax(figures[1:, cv2.CC_STAT_AREA])))
