"""The picture that comes with a request: what its kind of image looks like, as one frame or as a contact sheet.

Drawings are small, deterministic, and meant to tell kinds of pictures apart: they hold no finding.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache

import cv2
import numpy as np
from scipy.spatial import cKDTree

from ...images.source import Source
from ..chest_xray.radiographs import draw_film
from ..phantom.anatomy import draw_slice
from .request import Request

SIZE = 256  # pixels of a side
FRAMES = 6  # of a contact sheet
Draw = Callable[[np.random.Generator, int], np.ndarray]  # of a generator and the number of a frame
_Y, _X = np.mgrid[-1 : 1 : SIZE * 1j, -1 : 1 : SIZE * 1j].astype(np.float32)


def draw_fluorescence(rng: np.random.Generator, frame: int = 0) -> np.ndarray:
    """Bright nuclei on black, (SIZE, SIZE) uint8; they drift from frame to frame."""
    image = np.zeros((SIZE, SIZE), np.float32)
    for _ in range(int(rng.integers(14, 26))):
        center, drift = rng.uniform(12, SIZE - 12, 2), rng.normal(0, 5, 2)
        axes, angle, light = rng.uniform(7, 14, 2), rng.uniform(0, 180), rng.uniform(90, 230)
        x, y = (int(value) for value in center + frame * drift)
        cv2.ellipse(image, (x, y), (int(axes[0]), int(axes[1])), angle, 0, 360, float(light), -1)
    return _finish(cv2.GaussianBlur(image, (0, 0), 1.8) + 10, rng, 5)


def draw_brightfield(rng: np.random.Generator, frame: int = 0) -> np.ndarray:
    """Gray cells with a bright rim and a dark edge, (SIZE, SIZE) uint8; they drift from frame to frame."""
    image = np.full((SIZE, SIZE), 140, np.float32)
    for _ in range(int(rng.integers(8, 15))):
        center, drift = rng.uniform(20, SIZE - 20, 2), rng.normal(0, 5, 2)
        radius, (x, y) = int(rng.integers(11, 20)), (int(value) for value in center + frame * drift)
        cv2.circle(image, (x, y), radius, 205, 3)
        cv2.circle(image, (x, y), radius - 3, 95, 2)
        cv2.circle(image, (x, y), radius // 3, 115, -1)
    return _finish(cv2.GaussianBlur(image, (0, 0), 1.2), rng, 4)


def draw_histology(rng: np.random.Generator, frame: int = 0) -> np.ndarray:
    """Return a stained section: pink tissue with glands and purple nuclei, (SIZE, SIZE, 3) uint8."""
    texture = cv2.GaussianBlur(rng.standard_normal((SIZE, SIZE)).astype(np.float32), (0, 0), 6)
    image = np.array([232, 170, 200], np.float32) + texture[..., None] * np.array([60, 110, 70], np.float32)
    for _ in range(int(rng.integers(4, 8))):
        x, y = (int(value) for value in rng.integers(0, SIZE, 2))
        axes = tuple(int(value) for value in rng.integers(14, 32, 2))
        cv2.ellipse(image, (x, y), axes, float(rng.uniform(0, 180)), 0, 360, (245, 240, 244), -1)
    for _ in range(220):
        x, y = (int(value) for value in rng.integers(0, SIZE, 2))
        cv2.ellipse(image, (x, y), (4, 3), float(rng.uniform(0, 180)), 0, 360, (92, 58, 140), -1)
    return _finish(cv2.GaussianBlur(image, (0, 0), 0.8), rng, 4)


def draw_electron(rng: np.random.Generator, frame: int = 0) -> np.ndarray:
    """Return an electron micrograph: gray cytoplasm, dark membranes and vesicles, (SIZE, SIZE) uint8."""
    distances, _ = _find_nearest(rng, 24)
    image = 165 - 110 * np.exp(-(((distances[..., 1] - distances[..., 0]) / 3) ** 2))
    for _ in range(30):
        x, y = (int(value) for value in rng.integers(0, SIZE, 2))
        cv2.circle(image, (x, y), int(rng.integers(3, 9)), 70, 2)
    return _finish(cv2.GaussianBlur(image.astype(np.float32), (0, 0), 0.9), rng, 18)


def draw_brain(rng: np.random.Generator, frame: int = 0) -> np.ndarray:
    """Return an axial slice of a head in MR: scalp, folded cortex, white matter, ventricles, (SIZE, SIZE) uint8."""
    angle = np.arctan2(_Y, _X)
    wide, long = rng.uniform(0.6, 0.66), rng.uniform(0.76, 0.82)
    radius = np.hypot(_X / wide, _Y / long)
    fold = 0.05 * np.sin(rng.integers(17, 24) * angle + rng.uniform(0, 6)) + 0.03 * np.sin(41 * angle)
    image = np.zeros((SIZE, SIZE), np.float32)
    image[radius < 1.12] = 190  # scalp
    image[radius < 1.04] = 25  # skull and fluid
    image[radius + fold / 2 < 0.96] = 110  # gray matter
    image[radius + fold < 0.78] = 170  # white matter
    for side in (-1, 1):
        image[np.hypot((_X - 0.1 * side) / 0.06, (_Y + 0.02) / 0.26) < 1] = 30
    image[(np.abs(_X) < 0.012) & (radius < 0.95) & (np.abs(_Y) > 0.3)] = 50
    return _finish(cv2.GaussianBlur(image, (0, 0), 1.3), rng, 6)


def draw_ultrasound(rng: np.random.Generator, frame: int = 0) -> np.ndarray:
    """Return a fan of speckle with a dark cyst and its bright far wall, (SIZE, SIZE) uint8."""
    depth, angle = np.hypot(_X, _Y + 1.15), np.arctan2(_X, _Y + 1.15)
    noise = rng.standard_normal((2, SIZE, SIZE)).astype(np.float32)
    speckle = np.hypot(*(cv2.GaussianBlur(one, (0, 0), 1.6) for one in noise))
    x, y = rng.uniform(-0.25, 0.25), rng.uniform(-0.2, 0.3) + 0.02 * frame
    image = 300 * speckle * np.exp(-0.35 * depth) + 60 * (np.abs(depth - 1.5) < 0.015)
    image[np.hypot((_X - x) / 0.22, (_Y - y) / 0.18) < 1] *= 0.12
    image[(np.abs(angle) > 0.6) | (depth < 0.3) | (depth > 2.05)] = 0
    return _finish(image, rng, 1)


def draw_retina(rng: np.random.Generator, frame: int = 0) -> np.ndarray:
    """Return a fundus: an orange disc with the optic disc and branching vessels, (SIZE, SIZE, 3) uint8."""
    radius = np.hypot(_X, _Y)[..., None]
    image = np.array([190, 92, 40], np.float32) * np.clip(1.15 - 0.5 * radius, 0, 1)
    x, y = int(SIZE * rng.uniform(0.66, 0.72)), SIZE // 2
    cv2.circle(image, (x, y), 17, (246, 214, 130), -1)
    for turn in rng.uniform(-0.5, 0.5, 9) + np.linspace(0, 2 * np.pi, 9):
        reach = np.linspace(0, 150, 25)
        bend = turn + np.cumsum(rng.normal(0, 0.05, 25))
        path = np.stack([x + reach * np.cos(bend), y + reach * np.sin(bend)], -1).round().astype(np.int32)
        cv2.polylines(image, [path], False, (120, 28, 20), int(rng.integers(1, 4)), cv2.LINE_AA)
    return _finish(np.where(radius < 0.93, image, 4), rng, 3)


def draw_layers(rng: np.random.Generator, frame: int = 0) -> np.ndarray:
    """Optical coherence tomography: bright and dark layers with a pit, in speckle, (SIZE, SIZE) uint8."""
    pit = rng.uniform(0.1, 0.2) * np.exp(-((_X / rng.uniform(0.2, 0.35)) ** 2))
    image = np.zeros((SIZE, SIZE), np.float32)
    for top, light in ((-0.3, 150), (-0.2, 90), (-0.08, 130), (0.0, 60), (0.14, 220), (0.2, 110), (0.42, 20)):
        edge = top + pit * (1 if top < 0.05 else 0.25)
        image[edge < _Y] = light
    return _finish(image * rng.gamma(4, 0.25, (SIZE, SIZE)).astype(np.float32), rng, 2)


def draw_hot_spots(rng: np.random.Generator, frame: int = 0) -> np.ndarray:
    """Return a body in nuclear imaging: a soft outline with hot organs, black on white, (SIZE, SIZE) uint8."""
    image = 60 * (np.hypot(_X / 0.42, (_Y - 0.15) / 0.8) < 1).astype(np.float32)
    image += 200 * (np.hypot(_X / 0.17, (_Y + 0.72) / 0.19) < 1)
    for _ in range(int(rng.integers(3, 7))):
        x, y = rng.uniform(-0.28, 0.28), rng.uniform(-0.35, 0.7)
        image += 190 * np.exp(-((_X - x) ** 2 + (_Y - y) ** 2) / rng.uniform(0.002, 0.01))
    return _finish(255 - np.clip(cv2.GaussianBlur(image, (0, 0), 5), 0, 245), rng, 6)


def draw_photograph(rng: np.random.Generator, frame: int = 0) -> np.ndarray:
    """Return a photograph of skin with a brown spot, (SIZE, SIZE, 3) uint8."""
    texture = cv2.GaussianBlur(rng.standard_normal((SIZE, SIZE)).astype(np.float32), (0, 0), 3)[..., None]
    image = np.array([222, 176, 150], np.float32) + 40 * texture
    x, y = rng.uniform(-0.2, 0.2, 2)
    edge = 0.3 + 0.05 * np.sin(5 * np.arctan2(_Y - y, _X - x) + rng.uniform(0, 6))
    inside = (np.hypot(_X - x, _Y - y) < edge)[..., None]
    return _finish(cv2.GaussianBlur(np.where(inside, (112, 66, 48) + 50 * texture, image), (0, 0), 1.5), rng, 3)


def draw_scope(rng: np.random.Generator, frame: int = 0) -> np.ndarray:
    """Return a view through an endoscope: a pink tube with folds and a dark end, in a round frame, (SIZE, SIZE, 3)
    uint8."""
    x, y = rng.uniform(-0.2, 0.2, 2) + 0.02 * frame
    depth, angle = np.hypot(_X - x, _Y - y), np.arctan2(_Y - y, _X - x)
    folds = 0.8 + 0.2 * np.sin(14 * np.sqrt(depth) + 0.4 * np.sin(3 * angle + rng.uniform(0, 6)))
    light = (np.clip(depth / 0.9, 0.06, 1) * folds)[..., None]
    image = np.array([225, 110, 95], np.float32) * light
    return _finish(np.where(np.hypot(_X, _Y)[..., None] < 0.93, image, 4), rng, 3)


def draw_patches(rng: np.random.Generator, frame: int = 0) -> np.ndarray:
    """Anything else: patches of a few flat colors, (SIZE, SIZE, 3) uint8."""
    _, nearest = _find_nearest(rng, 60)
    colors = rng.integers(0, 2, (60, 3)) * 190 + 20
    return _finish(cv2.GaussianBlur(colors[nearest[..., 0]].astype(np.float32), (0, 0), 1.5), rng, 8)


def draw_broken(rng: np.random.Generator, frame: int = 0) -> np.ndarray:
    """Return what a viewer shows for a file that it cannot read: a crossed gray box, (SIZE, SIZE) uint8."""
    image = np.full((SIZE, SIZE), 205, np.uint8)
    cv2.rectangle(image, (48, 48), (SIZE - 48, SIZE - 48), 120, 3)
    cv2.line(image, (48, 48), (SIZE - 48, SIZE - 48), 120, 3)
    cv2.line(image, (SIZE - 48, 48), (48, SIZE - 48), 120, 3)
    return image


def draw_contact_sheet(draw: Draw, seed: int) -> np.ndarray:
    """Return the first frames of a time series side by side, in rows of three, with white lines between them; each is
    drawn with the same seed, so that only what moves differs."""
    side = SIZE // 3
    frames = [
        cv2.resize(draw(np.random.default_rng(seed), number), (side, side), interpolation=cv2.INTER_AREA)
        for number in range(FRAMES)
    ]
    framed = [cv2.copyMakeBorder(one, 1, 1, 1, 1, cv2.BORDER_CONSTANT, value=(255, 255, 255)) for one in frames]
    rows = [np.concatenate(framed[start : start + 3], axis=1) for start in range(0, FRAMES, 3)]
    return np.concatenate(rows, axis=0)


def _find_nearest(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """For each pixel the distances to the two nearest of `count` random points, and which they are, (SIZE, SIZE, 2)."""
    points = rng.uniform(-1, 1, (count, 2))
    distances, places = cKDTree(points).query(np.stack([_X, _Y], -1).reshape(-1, 2), k=2)
    shape = (SIZE, SIZE, 2)
    return np.asarray(distances).reshape(shape) * SIZE / 2, np.asarray(places).reshape(shape)


def _finish(image: np.ndarray, rng: np.random.Generator, noise: float) -> np.ndarray:
    grain = noise * rng.standard_normal(image.shape).astype(np.float32)
    finished: np.ndarray = np.clip(np.round(image + grain), 0, 255).astype(np.uint8)
    return finished


LOW, HIGH = -160.0, 240.0  # HU, shown black and white: soft tissue
CACHED = 64  # previews


def draw_ct(rng: np.random.Generator, frame: int = 0) -> np.ndarray:
    """Return a slice through the abdomen in a window for soft tissue, (SIZE, SIZE) uint8: the one of `phantom`."""
    values = draw_slice(int(rng.integers(2**31)), 0.5, has_lesion=False).pixels.astype(np.float32)
    return _shrink(np.clip((values - LOW) / (HIGH - LOW), 0, 1) * 255)


def draw_xray(rng: np.random.Generator, frame: int = 0) -> np.ndarray:
    """Return a chest radiograph, (SIZE, SIZE) uint8: the one of `chest_xray`."""
    values = draw_film(int(rng.integers(2**31))).pixels.astype(np.float32)
    return _shrink(255 * values / max(1.0, float(values.max())))


DRAWINGS: Mapping[str, Draw] = {
    "CT": draw_ct,
    "MR": draw_brain,
    "X-ray": draw_xray,
    "ultrasound": draw_ultrasound,
    "PET": draw_hot_spots,
    "SPECT": draw_hot_spots,
    "fluorescence": draw_fluorescence,
    "bright field": draw_brightfield,
    "phase contrast": draw_brightfield,
    "electron": draw_electron,
    "histology": draw_histology,
    "OCT": draw_layers,
    "fundus": draw_retina,
    "endoscopy": draw_scope,
    "photo": draw_photograph,
    "photoacoustic": draw_ultrasound,
}


def draw_preview(request: Request) -> Source:
    """Return the preview of a request: one picture, or a contact sheet of a time series. A file that cannot be read has
    a crossed box, and a kind of picture that no catalogue knows has patches of color."""
    series = request.dimensions.endswith("+t") and "dimensions" not in request.hidden
    kind = request.modality if request.reason != "invalid_files" else ""
    return Source.of(_draw(kind, request.seed, series))


@lru_cache(maxsize=CACHED)
def _draw(modality: str, seed: int, series: bool) -> np.ndarray:
    if not modality:
        return draw_broken(np.random.default_rng(seed))
    draw = DRAWINGS.get(modality, draw_patches)
    return draw_contact_sheet(draw, seed) if series else draw(np.random.default_rng(seed), 0)


def _shrink(values: np.ndarray) -> np.ndarray:
    small: np.ndarray = cv2.resize(values, (SIZE, SIZE), interpolation=cv2.INTER_AREA)
    return np.clip(np.round(small), 0, 255).astype(np.uint8)
