"""`Source`: the measured pixels at their native depth, the range that is shown, and their meaning. `Volume`: a stack.

Images keep their 8, 16 or 32 bits; only the rendered picture is 8-bit. `display` are the native values shown as black
and as white. `unit` is "HU" if the values are Hounsfield units; the CT windows apply then, and only then.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations
from typing import Any, Literal

import numpy as np
from PIL import Image

from ..errors import ImageError, describe_unknown
from .pixels import CODES, DEPTHS, to_native_pixels

Plane = Literal["axial", "coronal", "sagittal"]
# The axis that a plane cuts, for an array of axes (z, y, x): z toward the head, y toward the back, x toward the left.
AXES: dict[Plane, int] = {"axial": 0, "coronal": 1, "sagittal": 2}
SIDES: dict[Plane, str] = {"axial": "RLAP", "coronal": "RLHF", "sagittal": "APHF"}  # left, right, top, bottom
MAX_ASPECT = 100.0  # times as long as wide that a pixel may be drawn
SQUARE = 1e-3  # difference of its sides, as a share, up to which a pixel counts as square


@dataclass(frozen=True, eq=False)
class Source:
    """One image, or one slice of a volume.

    Args:
        pixels: (height, width), or (height, width, 3) for RGB, of a type in `DEPTHS`; never written to.
        display: the native values shown as black and as white.
        spacing: millimeters per pixel along x and y, if known.
        unit: "HU" for Hounsfield units.
        volume: the stack of which this is a slice.

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
        if pixels.dtype.str[1:] not in CODES or not (pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 3)):
            raise ImageError(
                f"pixels of shape {pixels.shape} and type {pixels.dtype}; allowed: {', '.join(DEPTHS)} of shape "
                "(h, w), or uint8 (h, w, 3)"
            )
        if 0 in pixels.shape:
            raise ImageError(f"image of {pixels.shape[1]}x{pixels.shape[0]} pixels: nothing to show")
        if pixels.dtype == np.uint8 and self.display != (0.0, 255.0):
            pixels = pixels.astype(np.int16)  # uint8 always means pixels as they are shown
        pixels = np.ascontiguousarray(pixels).view()
        pixels.flags.writeable = False  # of this view only: the owner of the array may still write to it
        object.__setattr__(self, "pixels", pixels)

    @classmethod
    def of(cls, image: "Source | Image.Image | np.ndarray", **fields: Any) -> "Source":
        """Return the source of pixels in memory; `viewbox.images.open_image` opens files.

        8-bit pixels are shown as they are, deeper ones from their lowest to their highest value.

        Args:
            image: a Pillow image, an array (see `to_native_pixels`), or a source.
            fields: fields of the source to set, such as `unit="HU"` if the file format cannot say it. `unit` and
                `display` then hold for all slices of a volume.

        Raises:
            ImageError: something else, or pixels that cannot be shown.
        """
        if isinstance(image, np.ndarray | Image.Image):
            pixels, display = to_native_pixels(image)
            return cls(pixels, **{"display": display, **fields})
        if not isinstance(image, Source):
            raise ImageError(
                f"{type(image).__name__} is not an image in memory; allowed: a Pillow image, a NumPy array, a Source "
                "(`viewbox.open_image` opens a path)"
            )
        if image.volume is not None and "volume" not in fields and fields.keys() & {"display", "unit"}:
            common = {name: fields[name] for name in ("display", "unit") if name in fields}
            fields = {**fields, "volume": replace(image.volume, **common)}
        return replace(image, **fields) if fields else image

    @property
    def width(self) -> int:
        return int(self.pixels.shape[1])

    @property
    def height(self) -> int:
        return int(self.pixels.shape[0])

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) in native pixels."""
        return self.width, self.height

    @property
    def extent(self) -> tuple[float, float]:
        """(width, height) to scale, in units of the shorter side of a pixel: the size if pixels are square.

        A spacing that makes pixels more than `MAX_ASPECT` times as long as wide is taken for a damaged header.

        >>> Source.of(np.zeros((3, 17), np.uint8), spacing=(4.0, 8.0)).extent
        (17.0, 6.0)
        """
        x, y = self.spacing or (1.0, 1.0)
        if not (x > 0 and y > 0 and 1 / MAX_ASPECT <= x / y <= MAX_ASPECT) or abs(x / y - 1) < SQUARE:
            x = y = 1.0
        return self.width * max(1.0, x / y), self.height * max(1.0, y / x)

    @property
    def color(self) -> bool:
        """Whether the pixels are RGB."""
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


@dataclass(frozen=True, eq=False)
class Volume:
    """A stack of slices (a series, a multi-frame file, a NIfTI volume) that is seen one slice at a time.

    Slices are shown as radiologists expect: axial and coronal with the patient's right on the left of the picture,
    sagittal with the face to the left, and the head up. All slices share one array: a slice that is contiguous
    in memory is a view of it; any other slice is copied on demand.

    Args:
        voxels: (z, y, x), or frames (n, height, width[, 3]) if `planes` is False.
        display: the native values shown as black and as white.
        spacing: (z, y, x) in millimeters, if known; frames have no distance, their z spacing is 0.
        unit: "HU" for Hounsfield units.
        planes: whether the stack can be cut along all three planes.
        plane, index: of the slice that a source shows.
        times: the stack at all its time points, (t, z, y, x), if there are several; `voxels` is one of them.
        time: which of them.
        unread_times: how many more time points the file has (`limits.MAX_TIMES`).
        oriented: whether it is known how the axes lie in the patient; only then do pictures name the patient's sides.

    >>> volume = Volume(np.zeros((10, 30, 20), np.uint8), (0, 255), spacing=(5, 1, 2))
    >>> [(plane, volume.count_slices(plane), volume.get_slice(0, plane).size) for plane in AXES]
    [('axial', 10, (20, 30)), ('coronal', 30, (20, 10)), ('sagittal', 20, (30, 10))]
    >>> [volume.get_slice(0, plane).spacing for plane in AXES]
    [(2, 1), (2, 5), (1, 5)]
    """

    voxels: np.ndarray
    display: tuple[float, float]
    spacing: tuple[float, float, float] | None = None
    unit: Literal["HU"] | None = None
    planes: bool = True
    plane: Plane = "axial"
    index: int = 0
    times: np.ndarray | None = None
    time: int = 0
    unread_times: int = 0
    oriented: bool = False

    @property
    def sides(self) -> str | None:
        """The patient's sides at the left, right, top and bottom of the slice; None if they are not known.

        They are R, L, A (front), P (back), H and F (feet), as in DICOM PS3.3 C.7.6.1.1.1.
        """
        return SIDES[self.plane] if self.oriented and self.planes else None

    @property
    def all_voxels(self) -> np.ndarray:
        """The voxels at all time points: `times`, or `voxels` if there is one."""
        return self.voxels if self.times is None else self.times

    def is_same_stack(self, other: "Volume") -> bool:
        """Return whether two slices are of one stack, at whatever time: a place in one is the same place in the
        other."""
        return self.voxels is other.voxels or (self.times is not None and self.times is other.times)

    def count_times(self) -> int:
        """Return how many time points there are."""
        return 1 if self.times is None else int(self.times.shape[0])

    def at_time(self, time: int) -> "Volume":
        """Return the stack at time point `time` (from 0)."""
        count = self.count_times()
        if not 0 <= time < count:
            allowed = f"0 to {count - 1}" if count > 1 else "0; there is one time point"
            raise ImageError(f"time point {time}; allowed: {allowed}")
        return self if self.times is None or time == self.time else replace(self, voxels=self.times[time], time=time)

    @property
    def allowed_planes(self) -> tuple[Plane, ...]:
        """The planes along which the stack can be cut; frames have one, called axial."""
        return tuple(AXES) if self.planes else ("axial",)

    def count_slices(self, plane: Plane = "axial") -> int:
        """Return how many slices there are along a plane; raise `ImageError` for a plane this stack does not have."""
        if plane not in self.allowed_planes:
            raise ImageError(describe_unknown("plane", plane, self.allowed_planes))
        return int(self.voxels.shape[AXES[plane]])

    def get_slice(self, index: int, plane: Plane = "axial") -> Source:
        """Slice `index` (from 0) of a plane, as a source that knows its volume and its place in it."""
        count = self.count_slices(plane)
        if not 0 <= index < count:
            what = f"{plane} slice" if self.planes else "frame"
            raise ImageError(f"{what} {index}; allowed: 0 to {count - 1}")
        pixels = self.voxels[(slice(None),) * AXES[plane] + (index,)]
        if plane != "axial":
            pixels = pixels[::-1]  # z grows toward the head
        return Source(pixels, self.display, self.get_spacing(plane), self.unit, replace(self, plane=plane, index=index))

    def get_middle_slice(self, plane: Plane = "axial") -> Source:
        """Return the slice in the middle of a plane."""
        return self.get_slice(self.count_slices(plane) // 2, plane)

    def get_spacing(self, plane: Plane) -> tuple[float, float] | None:
        """Millimeters per pixel along x and y of the slices of a plane."""
        if self.spacing is None:
            return None
        z, y, x = self.spacing
        return {"axial": (x, y), "coronal": (x, z), "sagittal": (y, z)}[plane]

    def get_slice_distance(self, plane: Plane) -> float | None:
        """Millimeters from one slice of a plane to the next; None if that is not known."""
        return (self.spacing[AXES[plane]] or None) if self.spacing else None


def reorient(
    voxels: np.ndarray, axes: np.ndarray, steps: tuple[float, float, float]
) -> tuple[np.ndarray, tuple[float, float, float], Plane]:
    """Turn voxels of any orientation to (z, y, x). Oblique volumes are turned to the nearest axes, not resampled.

    Args:
        voxels: an array of three axes, or of more: the first ones stay.
        axes: row i is the direction (x to the left, y to the back, z to the head) in which axis i of `voxels` grows.
        steps: the millimeters between neighbors along each axis of `voxels`.

    Returns:
        A view of `voxels` with axes (z, y, x), the spacing (z, y, x), and the plane of their original axis 0.
    """
    absolute = np.abs(axes)
    order = max(permutations(range(3)), key=lambda order: sum(absolute[order[i], 2 - i] for i in range(3)))
    first = voxels.ndim - 3
    voxels = voxels.transpose((*range(first), *(first + axis for axis in order)))
    for i, axis in enumerate(order):
        if axes[axis, 2 - i] < 0:
            voxels = np.flip(voxels, first + i)
    z, y, x = (steps[axis] for axis in order)
    return voxels, (z, y, x), tuple(AXES)[order.index(0)]


def stretch(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Stretch values over 0–255: `low` and below become 0, `high` and above 255, linear in between, rounded.

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
