"""Frontal chest films, drawn: 14-bit pixels, a known spacing, and findings with masks and boxes.

A ray loses `MU` of its strength in each millimeter of soft tissue and more in bone and metal. What is left, with
scattered light, noise and an exposure that varies, becomes the film. Left and right are the patient's: the patient's
left lung is on the right of the picture, and so is the letter L.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np

from .anatomy import AERATION, SIDES, SIZE, SPACING, Chest, Side, draw_chest
from .findings import DEVICES, LABELS, Device, Finding, Label, Layers, draw_device, draw_finding

MU, MU_BONE, MU_METAL = 0.0185, 0.07, 1.1  # of a mm
LEVELS = 2**14 - 1
DISPLAY = (600.0, 15400.0)
CACHED = 64  # films

__all__ = ["DISPLAY", "LABELS", "SIDES", "SIZE", "SPACING", "Film", "Finding", "Label", "Shown", "Side", "draw_film"]


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
    seed: int,
    findings: tuple[Finding, ...] = (),
    *,
    study: int = 0,
    difficulty: float = 0.5,
    device: bool | None = None,
) -> Film:
    """Draw a film.

    Args:
        seed: decides the patient.
        findings: what there is to see.
        study: decides exposure, position and noise: two studies of a seed are two films of one patient.
        difficulty: 0 (clear findings) to 1 (faint ones).
        device: whether there is a line, a pacemaker or electrodes; None: as the seed decides.
    """
    heart = next((finding for finding in findings if finding.side is None), None)
    chest = draw_chest(seed, None if heart is None else 0.56 + 0.09 * heart.size - 0.015 * difficulty)
    layers = Layers.empty()
    masks = [draw_finding(chest, finding, difficulty, layers) for finding in findings]
    rng = np.random.default_rng([seed, 3])
    has_device = rng.random() < 0.3 if device is None else device
    kind, side = DEVICES[int(rng.integers(3))], SIDES[int(rng.integers(2))]
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
    """What each ray loses: the line integral of attenuation."""
    lung = np.clip(chest.depth - np.maximum(chest.heart, chest.middle), 0, None)
    vessels = np.where(layers.bare, 0, chest.vessels) * (lung > 0)
    air = AERATION * lung + layers.air * (lung > 0)
    air = np.clip(air - vessels - layers.tissue, 0, lung) + np.minimum(chest.gas, 60)
    tissue = np.clip(chest.tissue - air, 0, None)
    loss: np.ndarray = MU * tissue + MU_BONE * chest.bone + MU_METAL * layers.metal
    return loss


def _draw_position(rng: np.random.Generator) -> np.ndarray:
    """How the patient stood: an affine map of pixels."""
    angle, scale = rng.normal(0, 1.6), rng.uniform(0.95, 1.03)
    center = SIZE / 2 - 0.5
    warp: np.ndarray = cv2.getRotationMatrix2D((center, center), angle, scale)
    warp[:, 2] += rng.normal(0, 5, 2)
    return warp


def _expose(loss: np.ndarray, warp: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The film of a projection: position, scatter, uneven exposure, noise, and the curve of the display."""
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


def _stamp_letter(value: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The lead letter L beside the patient's left shoulder."""
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
