"""The picture that comes with a request: what its kind of image looks like, as one frame or as a contact sheet."""

from collections.abc import Mapping
from functools import lru_cache

import cv2
import numpy as np

from viewbox.envs.chest_xray.radiographs import draw_film
from viewbox.envs.phantom.anatomy import draw_slice
from viewbox.envs.software_adviser.requests import drawings
from viewbox.envs.software_adviser.requests.drawings import SIZE, Draw
from viewbox.envs.software_adviser.requests.request import Request
from viewbox.images.source import Source

WINDOW = (-160.0, 240.0)  # HU, shown black and white: soft tissue
CACHED = 64  # previews


def draw_ct(rng: np.random.Generator, frame: int = 0) -> np.ndarray:
    """A slice through the abdomen in a window for soft tissue, (SIZE, SIZE) uint8: the one of `phantom`."""
    values = draw_slice(int(rng.integers(2**31)), 0.5, has_lesion=False).pixels.astype(np.float32)
    low, high = WINDOW
    return _shrink(np.clip((values - low) / (high - low), 0, 1) * 255)


def draw_xray(rng: np.random.Generator, frame: int = 0) -> np.ndarray:
    """A chest radiograph, (SIZE, SIZE) uint8: the one of `chest_xray`."""
    values = draw_film(int(rng.integers(2**31))).pixels.astype(np.float32)
    return _shrink(255 * values / max(1.0, float(values.max())))


DRAWINGS: Mapping[str, Draw] = {
    "CT": draw_ct,
    "MR": drawings.draw_brain,
    "X-ray": draw_xray,
    "ultrasound": drawings.draw_ultrasound,
    "PET": drawings.draw_hot_spots,
    "SPECT": drawings.draw_hot_spots,
    "fluorescence": drawings.draw_fluorescence,
    "bright field": drawings.draw_brightfield,
    "phase contrast": drawings.draw_brightfield,
    "electron": drawings.draw_electron,
    "histology": drawings.draw_histology,
    "OCT": drawings.draw_layers,
    "fundus": drawings.draw_retina,
    "endoscopy": drawings.draw_scope,
    "photo": drawings.draw_photograph,
    "photoacoustic": drawings.draw_ultrasound,
}


def draw_preview(request: Request) -> Source:
    """The preview of a request: one picture, or a contact sheet of a time series.

    If the dimensions are hidden, it is one picture. A file that cannot be read has a crossed box, and a kind of picture
    that no catalogue knows has patches of color.
    """
    series = request.dimensions.endswith("+t") and "dimensions" not in request.hidden
    kind = request.modality if request.reason != "invalid_files" else ""
    return Source.of(_draw(kind, request.seed, series))


@lru_cache(maxsize=CACHED)
def _draw(modality: str, seed: int, series: bool) -> np.ndarray:
    if not modality:
        return drawings.draw_broken(np.random.default_rng(seed))
    draw = DRAWINGS.get(modality, drawings.draw_patches)
    return drawings.draw_contact_sheet(draw, seed) if series else draw(np.random.default_rng(seed), 0)


def _shrink(values: np.ndarray) -> np.ndarray:
    small: np.ndarray = cv2.resize(values, (SIZE, SIZE), interpolation=cv2.INTER_AREA)
    return np.clip(np.round(small), 0, 255).astype(np.uint8)
