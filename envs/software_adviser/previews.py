"""Drawings of kinds of images, and what all drawings share. They are small, deterministic, and meant to tell kinds of
pictures apart; `scenes.py` has those in which one thing is to be seen.
"""

from collections.abc import Callable

import cv2
import numpy as np

from ..chest_xray.radiographs import draw_film
from ..phantom.anatomy import draw_slice

SIZE = 256  # pixels of a side
Rng = np.random.Generator
Draw = Callable[[Rng, int], np.ndarray]  # of a generator and the number of a frame; uint8, gray or RGB
Y, X = np.mgrid[-1 : 1 : SIZE * 1j, -1 : 1 : SIZE * 1j].astype(np.float32)


def draw_fluorescence(rng: Rng, frame: int = 0) -> np.ndarray:  # bright nuclei that drift
    image = np.zeros((SIZE, SIZE), np.float32)
    for _ in range(int(rng.integers(14, 26))):
        center, drift = rng.uniform(12, SIZE - 12, 2), rng.normal(0, 5, 2)
        axes, angle, light = rng.uniform(7, 14, 2), rng.uniform(0, 180), rng.uniform(90, 230)
        x, y = (int(value) for value in center + frame * drift)
        cv2.ellipse(image, (x, y), (int(axes[0]), int(axes[1])), angle, 0, 360, float(light), -1)
    return finish(image + 10, rng, 5, 1.8)


def draw_brightfield(rng: Rng, frame: int = 0) -> np.ndarray:  # gray cells that drift
    image = np.full((SIZE, SIZE), 140, np.float32)
    for _ in range(int(rng.integers(8, 15))):
        center, drift = rng.uniform(20, SIZE - 20, 2), rng.normal(0, 5, 2)
        radius, (x, y) = int(rng.integers(11, 20)), (int(value) for value in center + frame * drift)
        cv2.circle(image, (x, y), radius, 205, 3)
        cv2.circle(image, (x, y), radius - 3, 95, 2)
        cv2.circle(image, (x, y), radius // 3, 115, -1)
    return finish(image, rng, 4, 1.2)


def draw_histology(rng: Rng, frame: int = 0) -> np.ndarray:  # pink, with glands
    texture = cv2.GaussianBlur(rng.standard_normal((SIZE, SIZE)).astype(np.float32), (0, 0), 6)
    image = np.array([232, 170, 200], np.float32) + texture[..., None] * np.array([60, 110, 70], np.float32)
    for _ in range(int(rng.integers(4, 8))):
        x, y = (int(value) for value in rng.integers(0, SIZE, 2))
        axes = tuple(int(value) for value in rng.integers(14, 32, 2))
        cv2.ellipse(image, (x, y), axes, float(rng.uniform(0, 180)), 0, 360, (245, 240, 244), -1)
    for _ in range(220):
        x, y = (int(value) for value in rng.integers(0, SIZE, 2))
        cv2.ellipse(image, (x, y), (4, 3), float(rng.uniform(0, 180)), 0, 360, (92, 58, 140), -1)
    return finish(image, rng, 4, 0.8)


def draw_brain(rng: Rng, frame: int = 0) -> np.ndarray:
    angle = np.arctan2(Y, X)
    wide, long = rng.uniform(0.6, 0.66), rng.uniform(0.76, 0.82)
    radius = np.hypot(X / wide, Y / long)
    fold = 0.05 * np.sin(rng.integers(17, 24) * angle + rng.uniform(0, 6)) + 0.03 * np.sin(41 * angle)
    image = np.zeros((SIZE, SIZE), np.float32)
    image[radius < 1.12] = 190  # scalp
    image[radius < 1.04] = 25  # skull and fluid
    image[radius + fold / 2 < 0.96] = 110  # gray matter
    image[radius + fold < 0.78] = 170  # white matter
    for side in (-1, 1):
        image[np.hypot((X - 0.1 * side) / 0.06, (Y + 0.02) / 0.26) < 1] = 30
    image[(np.abs(X) < 0.012) & (radius < 0.95) & (np.abs(Y) > 0.3)] = 50
    return finish(image, rng, 6, 1.3)


def draw_retina(rng: Rng, frame: int = 0) -> np.ndarray:  # vessels leave a disc
    radius = np.hypot(X, Y)[..., None]
    image = np.array([190, 92, 40], np.float32) * np.clip(1.15 - 0.5 * radius, 0, 1)
    x, y = int(SIZE * rng.uniform(0.66, 0.72)), SIZE // 2
    cv2.circle(image, (x, y), 17, (246, 214, 130), -1)
    for turn in rng.uniform(-0.5, 0.5, 9) + np.linspace(0, 2 * np.pi, 9):
        reach = np.linspace(0, 150, 25)
        bend = turn + np.cumsum(rng.normal(0, 0.05, 25))
        path = np.stack([x + reach * np.cos(bend), y + reach * np.sin(bend)], -1).round().astype(np.int32)
        cv2.polylines(image, [path], False, (120, 28, 20), int(rng.integers(1, 4)), cv2.LINE_AA)
    return finish(np.where(radius < 0.93, image, 4), rng, 3)


def draw_layers(rng: Rng, frame: int = 0) -> np.ndarray:  # with a pit, in speckle
    pit = rng.uniform(0.1, 0.2) * np.exp(-((X / rng.uniform(0.2, 0.35)) ** 2))
    image = np.zeros((SIZE, SIZE), np.float32)
    for top, light in ((-0.3, 150), (-0.2, 90), (-0.08, 130), (0.0, 60), (0.14, 220), (0.2, 110), (0.42, 20)):
        edge = top + pit * (1 if top < 0.05 else 0.25)
        image[edge < Y] = light
    return finish(image * rng.gamma(4, 0.25, (SIZE, SIZE)).astype(np.float32), rng, 2)


def draw_hot_spots(rng: Rng, frame: int = 0) -> np.ndarray:  # a body, hot organs
    image = 60 * (np.hypot(X / 0.42, (Y - 0.15) / 0.8) < 1).astype(np.float32)
    image += 200 * (np.hypot(X / 0.17, (Y + 0.72) / 0.19) < 1)
    for _ in range(int(rng.integers(3, 7))):
        x, y = rng.uniform(-0.28, 0.28), rng.uniform(-0.35, 0.7)
        image += 190 * np.exp(-((X - x) ** 2 + (Y - y) ** 2) / rng.uniform(0.002, 0.01))
    return finish(255 - np.clip(cv2.GaussianBlur(image, (0, 0), 5), 0, 245), rng, 6)


def draw_scope(rng: Rng, frame: int = 0, *, polyp: bool = False) -> np.ndarray:
    x, y = rng.uniform(-0.2, 0.2, 2) + 0.02 * frame
    depth, angle = np.hypot(X - x, Y - y), np.arctan2(Y - y, X - x)
    folds = 0.8 + 0.2 * np.sin(14 * np.sqrt(depth) + 0.4 * np.sin(3 * angle + rng.uniform(0, 6)))
    image = np.array([225, 110, 95], np.float32) * (np.clip(depth / 0.9, 0.06, 1) * folds)[..., None]
    if polyp:
        right, down = (x, y) + rng.choice((-1, 1), 2) * rng.uniform(0.15, 0.35, 2)
        far = np.hypot((X - right) / 0.24, (Y - down) / 0.2)[..., None]
        image = np.where(far < 1, np.array([235, 95, 80], np.float32) * (1.1 - 0.4 * far), image)
        image[np.hypot(X - right + 0.06, Y - down + 0.06) < 0.035] = 250
    return finish(np.where(np.hypot(X, Y)[..., None] < 0.93, image, 4), rng, 3)


def draw_patches(rng: Rng, frame: int = 0) -> np.ndarray:  # anything else
    colors = (rng.integers(0, 2, (8, 8, 3)) * 190 + 20).astype(np.float32)
    return finish(cv2.resize(colors, (SIZE, SIZE), interpolation=cv2.INTER_NEAREST), rng, 8)


def finish(image: np.ndarray, rng: Rng, noise: float, blur: float = 0.0) -> np.ndarray:
    """Return an image with grain, perhaps blurred before, as uint8."""
    soft = cv2.GaussianBlur(image.astype(np.float32), (0, 0), blur) if blur else image
    finished: np.ndarray = np.clip(np.round(soft + noise * rng.standard_normal(soft.shape)), 0, 255).astype(np.uint8)
    return finished


def draw_ct(rng: Rng, frame: int = 0) -> np.ndarray:
    values = draw_slice(int(rng.integers(2**31)), 0.5, has_lesion=False).pixels.astype(np.float32)
    return _shrink(np.clip((values + 160) / 400, 0, 1) * 255)  # a window for soft tissue


def draw_xray(rng: Rng, frame: int = 0) -> np.ndarray:
    values = draw_film(int(rng.integers(2**31))).pixels.astype(np.float32)
    return _shrink(255 * values / max(1.0, float(values.max())))


def _shrink(values: np.ndarray) -> np.ndarray:
    small: np.ndarray = cv2.resize(values, (SIZE, SIZE), interpolation=cv2.INTER_AREA)
    return np.clip(np.round(small), 0, 255).astype(np.uint8)
