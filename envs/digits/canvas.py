"""Canvases: one real handwritten digit, too small to read in the overview, among noise and distractors.

`digits.npz` holds the UCI Optical Recognition of Handwritten Digits test set (Alpaydin & Kaynak 1998,
https://doi.org/10.24432/C50P49, CC BY 4.0): 1,797 images of 8x8 pixels with values 0-16.
"""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal, get_args

import cv2
import numpy as np

from ...errors import ConfigError
from ..drawn import Split

Label = Literal["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
LABELS: tuple[Label, ...] = get_args(Label)
TEST_SHARE = 0.25
BACKGROUND, INK = 70.0, 150.0  # gray levels: the mean of the canvas, and what full ink adds


@cache
def load_digit_images(split: Split) -> tuple[np.ndarray, np.ndarray]:
    """Return the images of one split, (n, 8, 8) float32 in [0, 1], and their labels, (n,). No image is in both
    splits."""
    pixels, labels = _read_digits()
    order = np.random.default_rng(0).permutation(len(labels))
    test = int(len(order) * TEST_SHARE)
    selected = order[:test] if split == "test" else order[test:]
    return (pixels[selected].reshape(-1, 8, 8) / 16).astype(np.float32), labels[selected]


def _read_digits() -> tuple[np.ndarray, np.ndarray]:
    """Return pixels (n, 64) in 0-16 and labels (n,); the file says in `license` where they come from."""
    with (files(__package__) / "digits.npz").open("rb") as file:
        arrays = np.load(file)
        return arrays["pixels"].astype(float), arrays["labels"].astype(int)


@dataclass(frozen=True)
class CanvasDifficulty:
    """What makes a canvas hard. Lengths in native pixels, noise in gray levels."""

    canvas: int
    digit: int
    noise: float
    distractors: int
    margin: float  # smallest distance of the digit's center from an edge, as a share of the canvas
    places: int = 0  # 0: anywhere; n: on a lattice of n x n positions between the margins


def place_digit(seed: int, split: Split, difficulty: CanvasDifficulty) -> tuple[int, str, tuple[int, int, int]]:
    """Return the task of a seed: the image's number in its split, its label, and (left, top, side) in pixels."""
    rng = np.random.default_rng([seed, split == "test"])
    _, targets = load_digit_images(split)
    number = int(rng.integers(len(targets)))
    low = max(0, int(np.ceil(difficulty.margin * difficulty.canvas - difficulty.digit / 2)))
    high = difficulty.canvas - difficulty.digit - low
    if low > high:
        raise ConfigError(
            f"digits: a digit of {difficulty.digit} pixels with margin {difficulty.margin:g} does not fit on a canvas "
            f"of {difficulty.canvas}"
        )
    if difficulty.places:
        lattice = np.linspace(low, high, difficulty.places).round().astype(int)
        left, top = (int(lattice[v]) for v in rng.integers(difficulty.places, size=2))
    else:
        left, top = (int(v) for v in rng.integers(low, high + 1, size=2))
    return number, LABELS[targets[number]], (left, top, difficulty.digit)


def draw_canvas(seed: int, split: Split, difficulty: CanvasDifficulty) -> np.ndarray:
    """Return the canvas of a seed, uint8 of shape (canvas, canvas)."""
    number, _, (left, top, side) = place_digit(seed, split, difficulty)
    rng = np.random.default_rng([seed, split == "test", 1])
    size = difficulty.canvas
    field = rng.normal(BACKGROUND, difficulty.noise, (size, size)).astype(np.float32)
    box = (left, top, left + side, top + side)
    for _ in range(difficulty.distractors):
        field += _draw_distractor(rng, size, side, box)
    ink = cv2.resize(load_digit_images(split)[0][number], (side, side), interpolation=cv2.INTER_CUBIC).clip(0, 1)
    field[top : top + side, left : left + side] += ink * INK
    return field.clip(0, 255).astype(np.uint8)


def _draw_distractor(rng: np.random.Generator, size: int, side: int, clear: tuple[int, int, int, int]) -> np.ndarray:
    """Return a faint scratch, or a dot smaller than a digit, that does not touch the digit."""
    layer = np.zeros((size, size), np.float32)
    x, y = (int(v) for v in rng.integers(0, size, size=2))
    if rng.random() < 0.5:
        angle, length = rng.uniform(0, np.pi), rng.uniform(1.5, 3) * side
        end = (int(x + length * np.cos(angle)), int(y + length * np.sin(angle)))
        cv2.line(layer, (x, y), end, INK * 0.45, 1, cv2.LINE_AA)
    else:
        cv2.circle(layer, (x, y), max(1, side // 6), INK * 0.6, -1, cv2.LINE_AA)
    x1, y1, x2, y2 = clear
    layer[max(0, y1 - 2) : y2 + 2, max(0, x1 - 2) : x2 + 2] = 0
    return layer
