"""Windows by name: those that every environment offers, and those that a run declares under `windows`.

windows:
  ct_ground_glass: {center: -650, width: 1000, unit: HU}
  mri_edema: {percentiles: [60, 99.8]}
"""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, StringConstraints, model_validator

from ..configs.sections import Section
from ..images.source import Source
from ..images.statistics import to_luminance

WindowName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,39}$")]
Percent = Annotated[float, Field(ge=0, le=100)]
SAMPLES = 2**20  # voxels of a volume that its percentiles are taken from


class WindowPreset(Section):
    """A window: a center and a width in `unit`, or two percentiles of the volume's own values.

    Args:
        center, width: the middle of the shown range and its size; the width may be as narrow as you like.
        unit: "HU" for Hounsfield units (refused for other images), "native" for the values of the file, "gray" for gray
            levels 0 to 255 of the displayed picture.
        percentiles: of the values above the lowest one, which is background in MRI.

    >>> WindowPreset(center=-600, width=1500, unit="HU").unit
    'HU'
    """

    center: float | None = None
    width: Annotated[float, Field(gt=0)] | None = None
    unit: Literal["HU", "native", "gray"] = "native"
    percentiles: tuple[Percent, Percent] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        given = [value is not None for value in (self.center, self.width)]
        if self.percentiles is None and not all(given):
            raise ValueError("needs center and width, or percentiles")
        if self.percentiles is not None:
            if any(given) or self.unit != "native":
                raise ValueError("has percentiles; allowed beside them: nothing")
            if self.percentiles[0] >= self.percentiles[1]:
                raise ValueError("percentiles: the first must be below the second")
        return self


def _hounsfield(center: float, width: float) -> WindowPreset:
    return WindowPreset(center=center, width=width, unit="HU")


def _gray(center: float, width: float) -> WindowPreset:
    return WindowPreset(center=center, width=width, unit="gray")


PRESETS: Mapping[str, WindowPreset] = {
    "brain": _gray(128, 230),
    "flair": _gray(110, 200),
    "t2": _gray(140, 220),
    "stroke": _gray(100, 180),
    "posterior_fossa": _gray(120, 210),
    "mri": WindowPreset(percentiles=(1, 99.5)),
    "mri_dark": WindowPreset(percentiles=(1, 80)),
    "mri_bright": WindowPreset(percentiles=(50, 99.9)),
    "ct_brain": _hounsfield(40, 80),
    "ct_subdural": _hounsfield(75, 215),
    "ct_bone": _hounsfield(400, 1800),
    "ct_soft_tissue": _hounsfield(40, 400),
    "ct_stroke": _hounsfield(32, 80),
    "ct_stroke_narrow": _hounsfield(40, 40),
    "ct_posterior_fossa": _hounsfield(36, 120),
    "ct_lung": _hounsfield(-600, 1500),
    "ct_mediastinum": _hounsfield(50, 350),
    "ct_liver": _hounsfield(30, 150),
    "ct_angiography": _hounsfield(300, 600),
}


def find_percentiles(source: Source, percentiles: tuple[float, float]) -> tuple[float, float]:
    """Return the values at two percentiles of the volume of a source (or of the image), the lowest value left out.

    >>> find_percentiles(Source.of(np.array([[0, 0, 0, 0, 10, 20, 30]], np.uint8)), (0, 100))
    (10.0, 30.0)
    """
    volume, blank = source.volume, source.blank
    values = source.pixels if volume is None else volume.voxels
    if values.ndim == 4 or source.color:
        values = to_luminance(values.reshape(values.shape[0], -1, 3))
    step = max(1, int(np.ceil((values.size / SAMPLES) ** (1 / values.ndim))))
    values = values[(slice(None, None, step),) * values.ndim]
    if blank is not None:
        values = values[~np.isnan(values) if np.isnan(blank) else values != blank]
        if not values.size:
            return 0.0, 0.0
    inside = values[values > values.min()]
    low, high = np.percentile(inside if inside.size else values, percentiles)
    return float(low), float(high)
