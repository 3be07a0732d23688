"""What the picture of a request shows: a scene in which one thing is to be seen, or else its kind of image."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final

import cv2
import numpy as np

from ...images.source import Source
from . import previews
from .previews import SIZE, Draw, Rng, X, Y, finish
from .request import Request

FRAMES: Final = 6  # of a contact sheet
CACHED: Final = 64  # pictures


@dataclass(frozen=True)
class Scene:
    """What a picture shows, in words of the catalogue, and its drawing."""

    modality: str
    structure: str
    variant: str
    draw: Draw


def draw_preview(request: Request) -> Source:
    """Return the preview of a request: one picture, or a contact sheet of a time series. A file that cannot be read has
    a crossed box, and a kind of picture that no catalogue knows has patches of color."""
    series = request.dimensions.endswith("+t") and "dimensions" not in request.hidden
    if request.reason == "invalid_files":
        return Source.of(_draw(_draw_broken, request.seed, series=False))
    shown = (request.modality, None if "structure" in request.hidden else request.structure)
    scenes = (one for one in SCENES if (one.modality, one.structure) == shown)
    fits = (one.draw for one in scenes if not request.variant or one.variant in ("", request.variant))
    draw = next(fits, DRAWINGS.get(request.modality, previews.draw_patches))
    return Source.of(_draw(draw, request.seed, series))


@lru_cache(maxsize=CACHED)
def _draw(draw: Draw, seed: int, series: bool) -> np.ndarray:
    """Return a picture, or six frames side by side, in rows of three with white lines between them; each is drawn with
    the same seed, so that only what moves differs."""
    if not series:
        return draw(np.random.default_rng(seed), 0)
    size = (SIZE // 3, SIZE // 3)
    frames = [draw(np.random.default_rng(seed), number) for number in range(FRAMES)]
    small = [cv2.resize(frame, size, interpolation=cv2.INTER_AREA) for frame in frames]
    framed = [cv2.copyMakeBorder(frame, 1, 1, 1, 1, cv2.BORDER_CONSTANT, value=(255, 255, 255)) for frame in small]
    return np.concatenate([np.concatenate(framed[start : start + 3], axis=1) for start in range(0, FRAMES, 3)])


def _measure(x: float, y: float, wide: float, high: float, turn: float = 0.0) -> np.ndarray:
    """Return how far each pixel is from a center, 1 on the edge of the ellipse, (SIZE, SIZE)."""
    across, along = (X - x) * np.cos(turn) + (Y - y) * np.sin(turn), (Y - y) * np.cos(turn) - (X - x) * np.sin(turn)
    far: np.ndarray = np.hypot(across / wide, along / high)
    return far


def _make_texture(rng: Rng, blur: float) -> np.ndarray:
    return cv2.GaussianBlur(rng.standard_normal((SIZE, SIZE)).astype(np.float32), (0, 0), blur)


def _draw_broken(rng: Rng, frame: int) -> np.ndarray:
    image, low, high = np.full((SIZE, SIZE), 205, np.uint8), 48, SIZE - 48
    cv2.rectangle(image, (low, low), (high, high), 120, 3)
    cv2.line(image, (low, low), (high, high), 120, 3)
    cv2.line(image, (high, low), (low, high), 120, 3)
    return image


# ---------------------------------------------------------------------- radiology
def _draw_lungs(rng: Rng, frame: int) -> np.ndarray:  # dark, with vessels, beside a heart in a thorax with ribs
    image = np.where(_measure(0, 0, 0.9, 0.66) < 1, 130.0, 5.0)
    for side in (-1, 1):
        lung = _measure(0.44 * side, 0.0, rng.uniform(0.3, 0.34), rng.uniform(0.45, 0.5)) < 1
        image[lung] = 35
        for _ in range(18):
            x, y = 0.44 * side + rng.uniform(-0.25, 0.25), rng.uniform(-0.38, 0.38)
            image[(_measure(x, y, 0.018, 0.018) < 1) & lung] = 130
    image[_measure(-0.05, -0.15, 0.24, 0.2) < 1] = 150
    image[_measure(0, 0.48, 0.1, 0.1) < 1] = 230
    for turn in np.linspace(0, 2 * np.pi, 18):
        image[_measure(0.8 * np.cos(turn), 0.58 * np.sin(turn), 0.05, 0.02, turn + np.pi / 2) < 1] = 230
    return finish(image, rng, 5, 1)


def _draw_teeth(rng: Rng, frame: int) -> np.ndarray:  # an arch of bright ones in a jaw
    image = np.where(_measure(0, 0.1, 0.75, 0.85) < 1, 95.0, 5.0)
    image[(np.abs(_measure(0, 0.35, 0.5, 0.9) - 1) < 0.22) & (Y < 0.4)] = 160
    for turn in np.linspace(-2.6, -0.54, 14):
        image[_measure(0.5 * np.cos(turn), 0.35 + 0.9 * np.sin(turn), 0.055, 0.07, turn) < 1] = 250
    return finish(image, rng, 8, 1)


def _draw_tumor(rng: Rng, frame: int) -> np.ndarray:  # a bright ring around a dark core in one half of a brain
    image = previews.draw_brain(rng).astype(np.float32)
    far = _measure(rng.choice((-1, 1)) * rng.uniform(0.2, 0.32), rng.uniform(-0.3, 0.3), 0.19, 0.17)
    image[far < 1] = 240
    image[far < 0.6] = 50
    return finish(image, rng, 1, 0.8)


def _draw_plaques(rng: Rng, frame: int) -> np.ndarray:  # small bright ovals beside the ventricles of a brain
    image = previews.draw_brain(rng).astype(np.float32)
    for _ in range(12):
        x, y = rng.choice((-1, 1)) * rng.uniform(0.17, 0.36), rng.uniform(-0.4, 0.4)
        image[_measure(x, y, 0.045, 0.025, rng.uniform(0, 3)) < 1] = 250
    return finish(image, rng, 1, 0.8)


def _draw_pathways(rng: Rng, frame: int) -> np.ndarray:  # of a brain, colored by their direction
    brain = previews.draw_brain(rng)[..., None].astype(np.float32)
    turn = 3 * np.arctan2(Y, X) + 6 * np.hypot(X, Y)
    colors = np.stack([np.abs(np.cos(turn)), np.abs(np.sin(turn)), np.abs(np.cos(turn + 1))], -1) * 230
    inside = (brain > 135) & (_measure(0, 0, 0.54, 0.675) < 1)[..., None]
    return finish(colors * inside + brain * 0.15, rng, 3)


def _draw_spine(rng: Rng, frame: int) -> np.ndarray:  # from the side: vertebrae with dark discs, and the cord
    image = np.where(np.abs(X) < 0.8, 70.0, 5.0)
    bend = 0.12 * np.sin(2 * Y + rng.uniform(-0.4, 0.4))
    image[np.abs(X - bend - 0.3) < 0.06] = 210
    image[np.abs(X - bend - 0.3) < 0.03] = 120
    column = np.abs(X - bend) < 0.17
    image[column] = 40
    image[column & (np.mod(Y + 1, 0.25) > 0.06)] = 150
    return finish(image, rng, 7, 1)


def _draw_echo(rng: Rng, frame: int) -> np.ndarray:  # a fan with the four dark chambers of a heart
    depth, angle = np.hypot(X, Y + 1.15), np.arctan2(X, Y + 1.15)
    image = 260 * np.hypot(_make_texture(rng, 1.6), _make_texture(rng, 1.6))
    chambers = ((-0.2, -0.1, 0.17, 0.34), (0.2, -0.1, 0.15, 0.3), (-0.2, 0.5, 0.18, 0.2), (0.2, 0.5, 0.18, 0.2))
    for x, y, wide, high in chambers:
        image[_measure(x, y, wide + 0.01 * frame, high) < 1] *= 0.1
    image[(np.abs(angle) > 0.6) | (depth < 0.3) | (depth > 2.05)] = 0
    return finish(image, rng, 1, 0.6)


# ---------------------------------------------------------------------- microscopy
def _draw_rods(rng: Rng, frame: int, back: float = 10, light: float = 190) -> np.ndarray:
    image = np.full((SIZE, SIZE), back, np.float32)
    for _ in range(45):
        x, y, turn = *rng.uniform(-0.9, 0.9, 2), rng.uniform(0, np.pi)
        image[_measure(x + 0.01 * frame, y, 0.03, rng.uniform(0.09, 0.15), turn) < 1] = light
    return finish(image, rng, 5, 1)


def _draw_neuron(rng: Rng, frame: int) -> np.ndarray:  # a body with branches that branch again
    image = np.full((SIZE, SIZE), 8, np.float32)

    def grow(x: float, y: float, turn: float, length: int, wide: int) -> None:
        for _ in range(length):
            turn += rng.normal(0, 0.15)
            ahead = x + 5 * np.cos(turn), y + 5 * np.sin(turn)
            cv2.line(image, (int(x), int(y)), (int(ahead[0]), int(ahead[1])), 208.0, wide, cv2.LINE_AA)
            x, y = ahead
        for side in (-0.5, 0.5) if wide > 1 or length > 9 else ():
            grow(x, y, turn + side, length * 2 // 3, max(1, wide - 1))

    for turn in np.linspace(0, 2 * np.pi, 6)[:-1] + rng.uniform(0, 1):
        grow(128, 128, float(turn), 12, 3)
    cv2.circle(image, (128, 128), 13, 238, -1)
    return finish(image, rng, 5, 1)


def _draw_stained(rng: Rng, frame: int) -> np.ndarray:  # blue nuclei, many of them brown
    image = np.full((SIZE, SIZE, 3), (228, 230, 236), np.float32)
    for x, y in rng.integers(0, SIZE, (150, 2)):
        color = (122, 72, 34) if rng.random() < 0.5 else (120, 140, 190)
        cv2.ellipse(image, (int(x), int(y)), (6, 5), float(rng.uniform(0, 180)), 0, 360, color, -1)
    return finish(image, rng, 4, 0.8)


def _draw_mitochondria(rng: Rng, frame: int) -> np.ndarray:  # long dark ovals with stripes inside
    image = np.full((SIZE, SIZE), 170, np.float32)
    for _ in range(9):
        x, y, turn = *rng.uniform(-0.8, 0.8, 2), rng.uniform(0, np.pi)
        far, along = _measure(x, y, 0.12, 0.28, turn), (Y - y) * np.cos(turn) - (X - x) * np.sin(turn)
        image[far < 1] = 110
        image[(far < 0.9) & (np.mod(along * 22, 1) < 0.4)] = 60
        image[np.abs(far - 1) < 0.08] = 40
    return finish(image, rng, 16, 0.8)


def _draw_particles(rng: Rng, frame: int) -> np.ndarray:  # faint dark blobs in much noise
    image = np.full((SIZE, SIZE), 135, np.float32)
    for x, y in rng.integers(12, SIZE - 12, (40, 2)).tolist():
        cv2.circle(image, (x, y), 7, 100, -1)
        cv2.circle(image, (x + 3, y - 2), 3, 80, -1)
    return finish(image, rng, 28, 1.5)


# ---------------------------------------------------------------------- cameras
def _draw_instruments(rng: Rng, frame: int) -> np.ndarray:  # two of gray metal that reach over red tissue
    image = np.array([190, 70, 65], np.float32) + 300 * _make_texture(rng, 8)[..., None]
    for side in (-1, 1):
        end = (128 + side * int(rng.integers(8, 30)) + 2 * frame, 128 + int(rng.integers(-20, 20)))
        cv2.line(image, (128 + side * 127, 255), end, (150, 155, 160), 20)
        cv2.line(image, (128 + side * 127, 250), end, (215, 220, 225), 5)
        cv2.line(image, end, (end[0] - side * 22, end[1] - 14), (120, 125, 130), 7)
    return finish(image, rng, 3, 1)


def _draw_mouse(rng: Rng, frame: int) -> np.ndarray:  # dark, with ears and a tail, from above
    image, left = np.full((SIZE, SIZE, 3), (205, 200, 190), np.float32), int(rng.integers(-20, 20)) + 4 * frame
    for x, y, wide, high, end in ((110, 150, 52, 32, 360), (172, 145, 24, 18, 360), (164, 125, 10, 10, 360),
                                  (164, 165, 10, 10, 360), (40, 150, 30, 18, 180)):  # fmt: skip
        color = (70, 60, 55) if wide > 20 and end == 360 else (150, 105, 100)
        cv2.ellipse(image, (x + left, y), (wide, high), 180, 0, end, color, -1 if end == 360 else 4)
    return finish(image, rng, 3, 1)


SCENES: Final = (  # of each kind of image the one first that also stands for others
    Scene("CT", "liver", "", previews.draw_ct),
    Scene("CT", "lung", "", _draw_lungs),
    Scene("CT", "tooth", "cone-beam CT", _draw_teeth),
    Scene("MR", "brain", "structural MR", previews.draw_brain),
    Scene("MR", "brain tumor", "structural MR", _draw_tumor),
    Scene("MR", "MS lesion", "structural MR", _draw_plaques),
    Scene("MR", "white matter", "diffusion MR", _draw_pathways),
    Scene("MR", "vertebra", "", _draw_spine),
    Scene("X-ray", "lung", "chest film", previews.draw_xray),
    Scene("ultrasound", "heart chamber", "echocardiogram", _draw_echo),
    Scene("fluorescence", "nucleus", "", previews.draw_fluorescence),
    Scene("fluorescence", "bacterium", "", _draw_rods),
    Scene("fluorescence", "neuron", "", _draw_neuron),
    Scene("phase contrast", "cell", "", previews.draw_brightfield),
    Scene("phase contrast", "bacterium", "", partial(_draw_rods, back=150, light=60)),
    Scene("histology", "nucleus", "H&E", previews.draw_histology),
    Scene("histology", "cell", "IHC", _draw_stained),
    Scene("electron", "mitochondrion", "volume EM", _draw_mitochondria),
    Scene("electron", "particle", "cryo-EM", _draw_particles),
    Scene("OCT", "retinal layer", "", previews.draw_layers),
    Scene("fundus", "retinal vessel", "", previews.draw_retina),
    Scene("endoscopy", "polyp", "colonoscopy", partial(previews.draw_scope, polyp=True)),
    Scene("endoscopy", "instrument", "surgical video", _draw_instruments),
    Scene("PET", "whole body", "", previews.draw_hot_spots),
    Scene("photo", "animal", "", _draw_mouse),
)
# Where no scene shows what a request is about: its kind of image
DRAWINGS: Final[Mapping[str, Draw]] = {scene.modality: scene.draw for scene in reversed(SCENES)} | {
    "SPECT": previews.draw_hot_spots,
    "bright field": previews.draw_brightfield,
    "photoacoustic": _draw_echo,
    "endoscopy": previews.draw_scope,
}
