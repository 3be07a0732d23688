"""`Source`: what was measured. Pixels at their native depth, how they are shown, and what they mean.

Images keep their 8, 16 or 32 bits; only what is shown is 8-bit. `display` are the native values shown as black and as
white; `unit` is "HU" where the values are Hounsfield units, and then (and only then) the CT windows apply.
"""

import os
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from PIL import Image

from viewbox.errors import ImageError

if TYPE_CHECKING:
    from viewbox.images.volume import Volume

DEPTHS = ("uint8", "uint16", "int16", "float32")


@dataclass(frozen=True, eq=False)
class Source:
    """Native pixels, (height, width) or (height, width, 3) for color, of a type in `DEPTHS`; never written to.

    `spacing` is (x, y) in millimeters per pixel. `volume` is the stack this is a slice of.

    >>> source = Source.of(np.array([[0, 1000]], dtype=np.uint16))
    >>> source.size, source.display, source.to_uint8(source.pixels).tolist()
    ((2, 1), (0.0, 1000.0), [[0, 255]])
    """

    pixels: np.ndarray
    display: tuple[float, float] = (0.0, 255.0)
    spacing: tuple[float, float] | None = None
    unit: Literal["HU"] | None = None
    volume: "Volume | None" = None

    def __post_init__(self) -> None:
        pixels = self.pixels
        if pixels.dtype.name not in DEPTHS or not (pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 3)):
            raise ImageError(
                f"pixels of shape {pixels.shape} and type {pixels.dtype}; allowed: {', '.join(DEPTHS)} of shape "
                "(h, w), or uint8 (h, w, 3)"
            )
        if 0 in pixels.shape:
            raise ImageError(f"image of {pixels.shape[1]}x{pixels.shape[0]} pixels: nothing to show")
        if pixels.dtype == np.uint8 and self.display != (0.0, 255.0):
            pixels = pixels.astype(np.int16)  # uint8 is what is shown, here and after any operation
        pixels = np.ascontiguousarray(pixels).view()
        pixels.flags.writeable = False  # of the view: an array that was given stays its owner's
        object.__setattr__(self, "pixels", pixels)

    @classmethod
    def of(cls, image: "Source | Image.Image | np.ndarray | str | os.PathLike[str] | bytes", **about: Any) -> "Source":
        """The source of pixels in memory or of a file (see `viewbox.images.files`).

        8-bit is shown as it is, deeper images from their lowest to highest value, a file as it asks for. `about` sets
        fields: `unit="HU"` says what a format cannot say; `unit` and `display` then hold for all slices of a volume.
        """
        from viewbox.images.files import source_of

        if not isinstance(image, Source):
            return source_of(image, **about)
        if image.volume is not None and "volume" not in about and about.keys() & {"display", "unit"}:
            common = {name: about[name] for name in ("display", "unit") if name in about}
            about = {**about, "volume": replace(image.volume, **common)}
        return replace(image, **about) if about else image

    @property
    def width(self) -> int:
        return self.pixels.shape[1]

    @property
    def height(self) -> int:
        return self.pixels.shape[0]

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) in native pixels."""
        return self.width, self.height

    @property
    def color(self) -> bool:
        return self.pixels.ndim == 3

    @cached_property
    def limits(self) -> tuple[float, float]:
        """The lowest and the highest native value."""
        return float(self.pixels.min()), float(self.pixels.max())

    def to_uint8(self, values: np.ndarray) -> np.ndarray:
        """Values as they are shown: `display` stretched over 0–255, rounded and clipped; uint8 stays as it is."""
        if values.dtype == np.uint8:
            return values
        return stretch(values, *self.display)


def stretch(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """`values` as 0–255: `low` and below black, `high` and above white, linear in between, rounded.

    >>> stretch(np.array([-5.0, 0.0, 5.0, 10.0, 20.0], np.float32), 0, 10).tolist()
    [0, 0, 128, 255, 255]
    """
    import cv2

    scale = 255.0 / (high - low) if high > low else 0.0
    if values.dtype == np.uint8:
        table = np.clip(np.rint((np.arange(256) - low) * scale), 0, 255).astype(np.uint8)
        return cv2.LUT(values, table)
    scaled = values.astype(np.float32)
    scaled -= low
    scaled *= scale
    np.rint(scaled, out=scaled)
    return np.clip(scaled, 0, 255, out=scaled).astype(np.uint8)
