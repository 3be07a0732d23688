"""Tools that choose the range of values shown from black to white: a window, or two limits.

They act on the current values. On an unchanged image these are native (the Hounsfield units of a CT, the counts of a
16-bit file), so a window shows detail that the 8-bit picture has lost; after any other intensity tool they are 0–255. A
window replaces an earlier window, as in any viewer. Presets are those that every environment offers, and those that a
run declares:

    windows:
      ct_ground_glass: {center: -650, width: 1000, unit: HU}
      mri_edema: {percentiles: [60, 99.8]}
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, Self

import cv2
import numpy as np
from pydantic import Field, StringConstraints, model_validator

from ...configs.sections import Section
from ...errors import ArgumentError, show_json
from ...images.source import Source, stretch
from ...images.statistics import to_luminance
from ...images.view import View
from ..arguments import Hidden, Range
from ..calling import ToolOutput
from ..tool import Tool, tool

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
        stated = [value is not None for value in (self.center, self.width)]
        if self.percentiles is None and not all(stated):
            raise ValueError("needs center and width, or percentiles")
        if self.percentiles is not None:
            if any(stated) or self.unit != "native":
                raise ValueError("has percentiles; allowed beside them: nothing")
            if self.percentiles[0] >= self.percentiles[1]:
                raise ValueError("percentiles: the first must be below the second")
        return self


def _window(center: float, width: float, unit: Literal["HU", "gray"] = "HU") -> WindowPreset:
    return WindowPreset(center=center, width=width, unit=unit)


PRESETS: Mapping[str, WindowPreset] = {
    "brain": _window(128, 230, "gray"),
    "flair": _window(110, 200, "gray"),
    "t2": _window(140, 220, "gray"),
    "stroke": _window(100, 180, "gray"),
    "posterior_fossa": _window(120, 210, "gray"),
    "mri": WindowPreset(percentiles=(1, 99.5)),
    "mri_dark": WindowPreset(percentiles=(1, 80)),
    "mri_bright": WindowPreset(percentiles=(50, 99.9)),
    "ct_brain": _window(40, 80),
    "ct_subdural": _window(75, 215),
    "ct_bone": _window(400, 1800),
    "ct_soft_tissue": _window(40, 400),
    "ct_stroke": _window(32, 80),
    "ct_stroke_narrow": _window(40, 40),
    "ct_posterior_fossa": _window(36, 120),
    "ct_lung": _window(-600, 1500),
    "ct_mediastinum": _window(50, 350),
    "ct_liver": _window(30, 150),
    "ct_angiography": _window(300, 600),
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


NARROWEST = 50  # gray levels: smallest width of a threshold

Preset = Literal[*PRESETS]  # type: ignore[valid-type]


@dataclass(frozen=True)
class WindowChoice:
    """`low` and below become black, `high` and above white, linear in between; color is dropped. If `low` is the higher
    of both, high values become black.

    Both are in the grid's own values if `native`, else in gray levels of the displayed picture (0–255). `preset` is the
    name under which a window was asked for."""

    tool: str
    low: float
    high: float
    native: bool
    preset: str = field(default="", compare=False)

    @property
    def shown_range(self) -> str:
        """The range in words, for the record of what a picture shows (`ShownView.window`)."""
        if self.tool != "window_level":
            return f"{self.low:.4g} to {self.high:.4g}"
        numbers = f"center {(self.low + self.high) / 2:.4g}, width {abs(self.high - self.low):.4g}"
        return f"{self.preset} ({numbers})" if self.preset else numbers

    def __call__(self, pixels: np.ndarray, view: View) -> np.ndarray:
        return stretch(to_luminance(pixels if self.native else view.source.to_uint8(pixels)), self.low, self.high)


@tool
def threshold(view: View, lower: Annotated[int, Range(0, 254)], upper: Annotated[int, Range(1, 255)]) -> ToolOutput:
    """Stretch the values from lower to upper over black to white and clip all others. 0 is the darkest displayed value,
    255 the brightest. Drops color.

    lower: displayed gray level that becomes black
    upper: displayed gray level that becomes white; at least 50 above lower
    """
    if upper - lower < NARROWEST:
        raise ArgumentError(f"threshold: upper - lower = {upper - lower}; allowed: at least {NARROWEST}")
    facts = {"lower": lower, "upper": upper, "size": list(view.size)}
    low, high = float(lower), float(upper)
    native = _is_deep(view) and view.source.curve is None
    if native:  # on the native values, which keeps apart what 8 bits would merge
        black, white = view.source.display
        low, high = (black + value / 255 * (white - black) for value in (low, high))
        facts |= {"values": [low, high], "unit": _name_unit(view, native)}
    return ToolOutput("thresholded", facts, view=view.apply(WindowChoice("threshold", low, high, native)))


@tool
def window_level(
    view: View,
    preset: Preset | None = None,
    center: float | None = None,
    width: Annotated[float, Range(0, float("inf"))] | None = None,
    windows: Hidden[Mapping[str, WindowPreset]] = PRESETS,
) -> ToolOutput:
    """Show center - width/2 as black and center + width/2 as white. Give a preset, or both center and width. Replaces
    an earlier window. Drops color.

    preset: ct_ presets are for Hounsfield units, mri presets adapt to the volume, the others are for gray levels 0
        to 255
    center: in the image's own values (CT: Hounsfield units)
    width: in the image's own values, above 0
    """
    only = len(view.operations) == 1 and _name_operation(view.operations[0]) == "window_level"
    base = replace(view, operations=(), parent=None) if only else view  # windows do not accumulate
    chosen = None if preset is None else (windows.get(preset) or PRESETS[preset])
    if chosen is not None:
        _check_preset(base, str(preset), chosen, {**PRESETS, **windows})
        center, width = chosen.center, chosen.width
        if chosen.percentiles is not None:
            low, high = find_percentiles(base.source, chosen.percentiles)
            if low >= high:
                what = f"all values of this volume are about {low:g}: there is no contrast to show"
                raise ArgumentError(f"window_level: {what}")
            center, width = (low + high) / 2, high - low
    if center is None or width is None:
        raise ArgumentError("window_level: give a preset, or both center and width")
    if width <= 0:
        raise ArgumentError(f"window_level: width = {width:g}; allowed: above 0")
    native = _is_deep(base) if chosen is None else chosen.unit != "gray"
    low, high, unit = center - width / 2, center + width / 2, _name_unit(base, native and _is_deep(base))
    darkest, brightest = cv2.minMaxLoc(to_luminance(base.get_values() if native else base.to_uint8()))[:2]
    if high < darkest or low > brightest:
        held = f"this view holds {darkest:g} to {brightest:g} ({unit})"
        raise ArgumentError(f"window_level: the window {low:g} to {high:g} does not overlap the data: {held}")
    ends = (high, low) if native and base.source.inverted else (low, high)
    shown = replace(base.apply(WindowChoice("window_level", *ends, native, str(preset or ""))), parent=view)
    named = {} if preset is None else {"preset": preset}
    facts = {"center": center, "width": width, **named, "unit": unit, "size": list(view.size)}
    return ToolOutput("windowed", facts, view=shown)


def add_windows(original: Tool, windows: Mapping[str, WindowPreset]) -> Tool:
    """Return the tool `window_level` with more presets; one of the same name replaces a built-in one.
    The function receives them as its hidden argument `windows`."""
    names = [*PRESETS, *(name for name in windows if name not in PRESETS)]
    preset = {**original.parameters["preset"], "enum": names}
    return replace(original, parameters={**original.parameters, "preset": preset})


def _check_preset(view: View, name: str, preset: WindowPreset, windows: Mapping[str, WindowPreset]) -> None:
    """Raise `ArgumentError` for a preset whose unit the view does not have."""
    purpose = {"HU": "Hounsfield units", "native": "the image's own values"}.get(preset.unit)
    what = f"window_level: preset {show_json(name)} is for"
    if preset.unit == "HU" and view.source.unit != "HU":
        others = ", ".join(name for name, other in windows.items() if other.unit != "HU")
        raise ArgumentError(f"{what} Hounsfield units, but this image has none; allowed: {others}")
    if purpose is not None and view.operations:
        names = [_name_operation(operation) for operation in view.operations]
        first = names[1] if names[0] == "window_level" and len(names) > 1 else names[0]  # a first window kept its depth
        raise ArgumentError(f"{what} {purpose}, but the picture is 8-bit since {first}. Call undo or reset first.")


def _name_operation(operation: object) -> str:
    return getattr(operation, "tool", "an earlier change")


def _is_deep(view: View) -> bool:
    """Return whether the grid still holds native values that 8 bits cannot."""
    return not view.operations and view.source.pixels.dtype != np.uint8


def _name_unit(view: View, native: bool) -> str:
    """Return the unit of the numbers: "HU", "native value", or "gray level" (0–255)."""
    return (view.source.unit or "native value") if native else "gray level"
