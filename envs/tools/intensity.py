"""Tools that change brightness values, never coordinates."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from viewbox.envs.image import View
from viewbox.envs.tools.registry import Outcome, Range, tool


@dataclass(frozen=True)
class Contrast:
    """mean + factor · (pixel − mean), rounded and clipped to 0–255; `mean` was fixed when the tool was called."""

    factor: float
    mean: float

    def __call__(self, pixels: np.ndarray) -> np.ndarray:
        stretched = self.mean + self.factor * (pixels.astype(np.float32) - self.mean)
        return np.clip(np.rint(stretched), 0, 255).astype(np.uint8)


@tool
def adjust_contrast(view: View, factor: Annotated[float, Range(0.5, 3)]) -> Outcome:
    """Raise (factor above 1) or lower the contrast of the current view."""
    mean = float(round(np.asarray(view.render().convert("L")).mean()))  # as Pillow's ImageEnhance.Contrast
    return Outcome(view.then(Contrast(factor, mean)), "contrast adjusted", {"factor": factor, "size": list(view.size)})
