"""`Source`: the measured pixels at their native depth, where there are any, how they are shown. `Volume`: a stack.

Images keep their 8, 16 or 32 bits; only the rendered picture is 8-bit. `display` are the native values shown as black
and as white. `unit` is "HU" if the values are Hounsfield units; the CT windows apply then, and only then. A `Volume`
knows where its voxels lie in the patient by one affine: from indices (x, y, z), which are columns, rows and slices of
`voxels`, to millimeters in DICOM's frame (LPS: x to the patient's left, y to the back, z to the head; PS3.3
C.7.6.2.1.1). Whole numbers are the centers of voxels.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import permutations
from typing import Any, Literal

import numpy as np
from PIL import Image

from ..errors import ImageError, describe_unknown
from .pixels import CODES, DEPTHS, Range, to_native_pixels

Plane = Literal["axial", "coronal", "sagittal"]
# The axis that a plane cuts, for an array of axes (z, y, x): z toward the head, y toward the back, x toward the left.
AXES: dict[Plane, int] = {"axial": 0, "coronal": 1, "sagittal": 2}
SIDES: dict[Plane, str] = {"axial": "RLAP", "coronal": "RLHF", "sagittal": "APHF"}  # left, right, top, bottom
TILES = 8  # along a side of a picture that `shuffle` cuts
MAX_ASPECT = 100.0  # times as long as wide that a pixel may be drawn
SQUARE = 1e-3  # difference of its sides, as a share, up to which a pixel counts as square
SHEARED = 0.01  # cosine of the angle between rows and columns, up to which a plane is shown
Unit = Literal["HU", "Gy"]
Region = tuple[float, float, float, float, float, float]  # left, top, right, bottom in pixels; mm of a pixel, 0: none
StoredAxes = tuple[tuple[int, bool], tuple[int, bool], tuple[int, bool]]


@dataclass(frozen=True, eq=False, kw_only=True)
class Facts:
    """What is known of one image or of all slices of a volume alike.

    Args:
        unit: "HU" for Hounsfield units, "Gy" for a dose.
        curve: gray levels 0 to 255 at even steps from the first to the second of `display`; None: a straight line.
        blank: the value of pixels that were not measured (padding; NaN in floats); None if all were.
        aspect: height of a pixel by its width, if no spacing is known.
        full: of a segmentation by fractions: the value of what lies wholly in the segment.
        at_detector: whether the spacing is that at the detector of a radiograph, so that what is nearer is smaller.
        notes: what the reader of the file left out or took differently, as sentences.
        sides: the patient's sides at the left, right, top and bottom, if known: R, L, A (front), P (back), H and F
            (feet), as in DICOM PS3.3 C.7.6.1.1.1.
        regions: the only parts of the picture, of an ultrasound, in which lengths are known.
        levels: what a DICOM that asks for no window can hold, as the values shown as black and as white; else None.
    """

    unit: Unit | None = None
    curve: bytes | None = None
    blank: float | None = None
    full: float | None = None
    aspect: float = 1.0
    at_detector: bool = False
    notes: tuple[str, ...] = ()
    sides: str | None = None
    regions: tuple[Region, ...] = ()
    levels: Range | None = None


@dataclass(frozen=True, eq=False)
class Source(Facts):
    """One image, or one slice of a volume. See `Facts` for more fields.

    Args:
        pixels: (height, width), or (height, width, 3) for RGB, of a type in `DEPTHS`; never written to.
        display: the native values shown as black and as white; the first is higher if high values are dark.
        spacing: millimeters per pixel along x and y, if known.
        volume: the stack of which this is a slice.
        ground: the value on which transparent pixels were laid, if that was not black.

    >>> source = Source.of(np.array([[0, 1000]], dtype=np.uint16))
    >>> source.size, source.display, source.to_uint8(source.pixels).tolist()
    ((2, 1), (0.0, 1000.0), [[0, 255]])
    """

    pixels: np.ndarray
    display: Range = (0.0, 255.0)
    spacing: tuple[float, float] | None = None
    volume: "Volume | None" = None
    ground: float | None = None

    def __post_init__(self) -> None:
        pixels = self.pixels
        if pixels.dtype.str[1:] not in CODES or not (pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 3)):
            allowed = f"{', '.join(DEPTHS)} of shape (h, w), or uint8 (h, w, 3)"
            raise ImageError(f"pixels of shape {pixels.shape} and type {pixels.dtype}; allowed: {allowed}")
        if 0 in pixels.shape:
            raise ImageError(f"image of {pixels.shape[1]}x{pixels.shape[0]} pixels: nothing to show")
        if pixels.dtype == np.uint8 and (self.display != (0.0, 255.0) or self.curve is not None):
            pixels = pixels.astype(np.int16 if pixels.ndim == 2 else np.uint16)  # uint8 means pixels as they are shown
        pixels = np.ascontiguousarray(pixels).view()
        pixels.flags.writeable = False  # of this view only: the owner of the array may still write to it
        object.__setattr__(self, "pixels", pixels)

    @classmethod
    def of(cls, image: "Source | Image.Image | np.ndarray", **fields: Any) -> "Source":
        """Return the source of pixels in memory; `viewbox.open_image` opens files.
        8-bit pixels are shown as they are, deeper ones from their lowest to their highest value.

        Args:
            image: a Pillow image, an array (see `to_native_pixels`), or a source.
            fields: fields of the source to set, such as `unit="HU"` if the file format cannot say it. `unit` and
                `display` then hold for all slices of a volume.

        Raises:
            ImageError: something else, or pixels that cannot be shown.
        """
        if isinstance(image, np.ndarray | Image.Image):
            return cls(**{**to_native_pixels(image)._asdict(), **fields})
        if not isinstance(image, Source):
            allowed = "a Pillow image, a NumPy array, a Source (`viewbox.open_image` opens a path)"
            raise ImageError(f"{type(image).__name__} is not an image in memory; allowed: {allowed}")
        if image.volume is not None and "volume" not in fields and fields.keys() & {"display", "unit"}:
            common: dict[str, Any] = {name: fields[name] for name in ("display", "unit") if name in fields}
            if "display" in fields:
                common |= {"curve": None, "displays": None}
                fields = {"curve": None, **fields}
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
        x, y = self.spacing or (1.0, self.aspect)
        if not (x > 0 and y > 0 and 1 / MAX_ASPECT <= x / y <= MAX_ASPECT) or abs(x / y - 1) < SQUARE:
            x = y = 1.0
        return self.width * max(1.0, x / y), self.height * max(1.0, y / x)

    @property
    def color(self) -> bool:
        return self.pixels.ndim == 3

    @property
    def inverted(self) -> bool:
        """Whether high values are dark, as in MONOCHROME1."""
        return self.display[0] > self.display[1]

    @cached_property
    def measured(self) -> np.ndarray | None:
        """Which pixels were measured, bool (height, width); None if all were."""
        if self.blank is None:
            return None
        there = np.asarray(np.isfinite(self.pixels) if math.isnan(self.blank) else self.pixels != self.blank)
        there = np.asarray(there.all(axis=2)) if self.color else there
        return None if there.all() else there

    @cached_property
    def filled(self) -> np.ndarray:
        """The pixels, with the nearest measured value where there is none, so that no filter sees an edge there."""
        there = self.measured
        if there is None:
            return self.pixels
        if not there.any():
            return np.zeros_like(self.pixels)
        import cv2

        how = cv2.DIST_L2, cv2.DIST_MASK_5
        labels = cv2.distanceTransformWithLabels((~there).astype(np.uint8), *how, labelType=cv2.DIST_LABEL_PIXEL)[1]
        nearest = np.empty((int(labels.max()) + 1, *self.pixels.shape[2:]), self.pixels.dtype)
        nearest[labels[there]] = self.pixels[there]
        return np.asarray(nearest[labels])

    @property
    def limits(self) -> tuple[float, float]:
        return float(self.filled.min()), float(self.filled.max())

    def is_same_stack(self, other: "Source") -> bool:
        """Return whether two sources are slices of one volume, at whatever time: a place is the same in both."""
        ours, two = self.volume, other.volume
        return ours is not None and two is not None and ours.all_voxels is two.all_voxels

    def measure(self, x1: float, y1: float, x2: float, y2: float) -> float | None:
        """Return the millimeters between two points, in pixels; None if the size of a pixel is not known there."""
        right, down, spacing = x2 - x1, y2 - y1, self.spacing
        if self.volume is not None and self.volume.affine is not None:
            u, v, _ = self.volume.get_directions()
            return float(np.linalg.norm(right * u + down * v))
        if self.regions:  # both points must lie in the same of them, and these must agree
            ends = (x1, y1), (x2, y2)
            held = [{r for r in self.regions if r[0] <= x <= r[2] and r[1] <= y <= r[3]} for x, y in ends]
            scales = {region[4:] for region in held[0]} if held[0] == held[1] else set()
            spacing = scales.pop() if len(scales) == 1 and max(scales)[0] > 0 else None
        return None if spacing is None else math.hypot(right * spacing[0], down * spacing[1])

    def to_uint8(self, values: np.ndarray) -> np.ndarray:
        """Values as they are shown: `display` stretched over 0–255, rounded and clipped; uint8 stays as it is."""
        if values.dtype == np.uint8:
            return values
        if self.curve is None:
            return stretch(values, *self.display)
        black, white = self.display
        steps = (values.astype(np.float32) - black) * ((len(self.curve) - 1) / (white - black))
        places = np.clip(np.rint(steps), 0, len(self.curve) - 1).astype(np.intp)
        return np.asarray(np.frombuffer(self.curve, np.uint8)[places])

    def paint(self, shown: np.ndarray, there: np.ndarray | None) -> np.ndarray:
        """Return a picture, uint8, that is black (white if high values are dark) where `there` is False."""
        if there is None:
            return shown
        painted = shown.copy()
        painted[~there] = 255 if self.inverted else 0
        return painted

    def render(self) -> np.ndarray:
        """All pixels as they are shown: uint8, (height, width) or (height, width, 3)."""
        return self.paint(self.to_uint8(self.filled), self.measured)


def render_picture(picture: Image.Image) -> Image.Image:
    """Return what is seen of a picture, as RGB: deep values from the lowest to the highest, and no color that is
    transparent. Pillow alone cuts the former off at 255, and shows the latter.

    >>> deep = Image.fromarray(np.array([[0, 4000]], dtype=np.uint16))
    >>> render_picture(deep).getpixel((1, 0)), deep.convert("RGB").getpixel((0, 0))
    ((255, 255, 255), (0, 0, 0))
    """
    deep = picture.mode in ("I", "F") or picture.mode.startswith("I;16")
    if deep or picture.has_transparency_data:
        picture = Image.fromarray(Source.of(np.asarray(picture if deep else picture.convert("RGBA"))).render())
    return picture.convert("RGB")


def wipe(source: Source) -> Source:
    """Return a source of the same size and kind that shows one gray, in the middle of what is shown of this one."""
    shade = sum(source.display) / 2
    return _alter(source, lambda pixels: np.broadcast_to(np.array(shade, pixels.dtype), pixels.shape))


def shuffle(source: Source) -> Source:
    """Return a source of the same size and values, whose slices are cut into tiles that lie in another order."""
    edges = (-3, -2) if source.pixels.ndim == 3 else (-2, -1)  # rows and columns, of a picture and of a stack

    def move(pixels: np.ndarray) -> np.ndarray:
        moved, (high, wide) = pixels.copy(), (pixels.shape[edge] // TILES for edge in edges)
        first, after = (np.moveaxis(array, edges, (0, 1)) for array in (pixels, moved))
        order = np.random.default_rng(0).permutation(TILES**2)
        for (y, x), (row, column) in zip(
            np.ndindex(TILES, TILES), zip(*divmod(order, TILES), strict=True), strict=True
        ):
            tile = first[row * high : (row + 1) * high, column * wide : (column + 1) * wide]
            after[y * high : (y + 1) * high, x * wide : (x + 1) * wide] = tile
        return moved

    return _alter(source, move)


def _alter(source: Source, change: Callable[[np.ndarray], np.ndarray]) -> Source:
    """Return a source with other pixels; of a volume at one time point."""
    volume = source.volume
    if volume is None:
        return replace(source, pixels=change(source.pixels))
    return replace(volume, voxels=change(volume.voxels), times=None).get_slice(volume.index, volume.plane)


@dataclass(frozen=True, eq=False)
class Volume(Facts):
    """A stack of slices (a series, a multi-frame file, a NIfTI volume) that is seen one slice at a time.

    Slices are shown as radiologists expect: axial and coronal with the patient's right on the left of the picture,
    sagittal with the face to the left, and the head up. All slices share one array: a slice that is contiguous
    in memory is a view of it; any other slice is copied on demand. See `Facts` for more fields; sides are those of the
    slice.

    Args:
        voxels: (z, y, x), or frames (n, height, width[, 3]) if `planes` is False.
        display: the native values shown as black and as white.
        spacing: (z, y, x) in millimeters, if known; frames have no distance, their z spacing is 0.
        planes: whether the stack can be cut along all three planes.
        plane, index: of the slice that a source shows.
        times: the stack at all its time points, (t, z, y, x), if there are several; `voxels` is one of them.
        time: which of them.
        unread_times: how many more time points the file has (`limits.MAX_TIMES`).
        affine: (4, 4), from indices (x, y, z) to millimeters in the patient (LPS), if known; only then do pictures name
            the patient's sides.
        frame_of_reference: what places in the patient count from, as a hash; two that are known and differ cannot be
            compared.
        stored_axes: for each of x, y and z, the axis of the file's own array (0 to 2), and whether it runs backwards.
        displays: (`display`, `curve`) of each slice along the file's own third axis, if they differ.

    >>> volume = Volume(np.zeros((10, 30, 20), np.uint8), (0, 255), spacing=(5, 1, 2))
    >>> [(plane, volume.count_slices(plane), volume.get_slice(0, plane).size) for plane in AXES]
    [('axial', 10, (20, 30)), ('coronal', 30, (20, 10)), ('sagittal', 20, (30, 10))]
    >>> [volume.get_slice(0, plane).spacing for plane in AXES]
    [(2, 1), (2, 5), (1, 5)]
    """

    voxels: np.ndarray
    display: Range
    spacing: tuple[float, float, float] | None = None
    planes: bool = True
    plane: Plane = "axial"
    index: int = 0
    times: np.ndarray | None = None
    time: int = 0
    unread_times: int = 0
    affine: np.ndarray | None = None
    frame_of_reference: str = ""
    stored_axes: StoredAxes = ((0, False), (1, False), (2, False))
    displays: tuple[tuple[Range, bytes | None], ...] | None = None

    @property
    def stacked(self) -> Plane:
        """The plane of the slices along the file's own third axis."""
        return next(plane for plane, axis in AXES.items() if self.stored_axes[2 - axis][0] == 2)

    @property
    def all_voxels(self) -> np.ndarray:
        """The voxels at all time points: `times`, or `voxels` if there is one."""
        return self.voxels if self.times is None else self.times

    def count_times(self) -> int:
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
        """The planes along which the stack can be cut; frames have one, called axial. A plane whose rows and columns
        are not at right angles, because the scanner was tilted, is none."""
        if not self.planes:
            return ("axial",)
        return tuple(plane for plane in AXES if abs(self._get_shear(plane)) <= SHEARED)

    def _get_shear(self, plane: Plane) -> float:
        """Return the cosine of the angle between the rows and the columns of a plane."""
        if self.affine is None:
            return 0.0
        u, v = (self.affine[:3, axis] for axis in range(3) if axis != 2 - AXES[plane])
        return float(u @ v / (np.linalg.norm(u) * np.linalg.norm(v)))

    def count_slices(self, plane: Plane = "axial") -> int:
        """Return how many slices there are along a plane; raise `ImageError` for a plane this stack does not have."""
        allowed = self.allowed_planes
        if plane not in allowed and self.planes and plane in AXES:
            tilt = abs(math.degrees(math.asin(self._get_shear(plane))))
            ways = ", ".join(allowed) or "none, before it is resampled to axes at right tilts"
            raise ImageError(f"plane {plane} is sheared by {tilt:.1f} degrees, as by a tilted scanner; allowed: {ways}")
        if plane not in allowed:
            raise ImageError(describe_unknown("plane", plane, allowed))
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
        display, curve = self.display, self.curve
        if self.displays is not None and plane == self.stacked:
            display, curve = self.displays[count - 1 - index if self.stored_axes[2 - AXES[plane]][1] else index]
        sides = SIDES[plane] if self.affine is not None and self.planes else self.sides
        volume = replace(self, plane=plane, index=index, sides=sides)
        alike: dict[str, Any] = {field.name: getattr(volume, field.name) for field in fields(Facts)}
        return Source(pixels, display, self.get_spacing(plane), volume=volume, **{**alike, "curve": curve})

    def get_directions(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return what a pixel to the right and one down are in the patient, and where the first pixel of the slice is,
        as it is shown: (3,) each, in millimeters (LPS)."""
        assert self.affine is not None
        columns, origin = self.affine[:3, :3].T, self.affine[:3, 3]
        if self.plane == "axial":
            return columns[0], columns[1], origin + self.index * columns[2]
        top = origin + (self.voxels.shape[0] - 1) * columns[2]
        across, along = (0, 1) if self.plane == "coronal" else (1, 0)
        return columns[across], -columns[2], top + self.index * columns[along]

    def get_middle_slice(self, plane: Plane = "axial") -> Source:
        """Return the slice in the middle of a plane; if only other planes can be shown, of the first of them."""
        plane = plane if plane in self.allowed_planes else next(iter(self.allowed_planes), plane)
        return self.get_slice(self.count_slices(plane) // 2, plane)

    def get_spacing(self, plane: Plane) -> tuple[float, float] | None:
        """Millimeters per pixel along x and y of the slices of a plane."""
        if self.spacing is None:
            return None
        z, y, x = self.spacing
        return {"axial": (x, y), "coronal": (x, z), "sagittal": (y, z)}[plane]

    def get_slice_distance(self, plane: Plane) -> float | None:
        """Millimeters from one slice of a plane to the next, at right angles; None if that is not known."""
        if self.count_slices(plane) == 1:
            return None
        if self.affine is None:
            return (self.spacing[AXES[plane]] or None) if self.spacing else None
        u, v = (self.affine[:3, axis] for axis in range(3) if axis != 2 - AXES[plane])
        return round(abs(float(np.linalg.det(self.affine[:3, :3]))) / float(np.linalg.norm(np.cross(u, v))), 6)


def build_volume(values: np.ndarray, affine: np.ndarray, display: Range, *, known: bool = True, **more: Any) -> Volume:
    """Return the volume of a file's array, turned to the patient's axes, at its first time point.
    Oblique volumes are turned to the nearest axes, not resampled.

    Args:
        values: (t, z, y, x) of the file's own array, in which x varies fastest. The volume holds a view of it.
        affine: (4, 4), from (x, y, z) of that array to millimeters in the patient (LPS).
        display: the native values shown as black and as white.
        known: whether the file says how the array lies in the patient; if not, only the sizes of the voxels count.
        more: fields of `Volume`.
    """
    sizes = np.linalg.norm(affine[:3, :3], axis=0)
    absolute = np.abs(affine[:3, :3] / sizes)
    order = max(permutations(range(3)), key=lambda order: sum(absolute[side, order[side]] for side in range(3)))
    values = values.transpose(0, *(3 - axis for axis in reversed(order)))
    turned = affine[:, [*order, 3]].astype(float)
    stored = []
    for side, axis in enumerate(order):
        backwards = bool(turned[side, side] < 0)
        if backwards:
            values = np.flip(values, 3 - side)
            turned[:3, 3] += turned[:3, side] * (values.shape[3 - side] - 1)
            turned[:3, side] *= -1
        stored.append((axis, backwards))
    x, y, z = (round(float(sizes[axis]), 6) for axis in order)
    times = values if len(values) > 1 else None
    place: dict[str, Any] = {"affine": turned if known else None, "stored_axes": tuple(stored), "times": times}
    return Volume(values[0], display, (z, y, x), **{**place, **more})


def stretch(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Stretch values over 0–255: `low` and below become 0, `high` and above 255, linear in between, rounded.
    If `low` is the higher of both, high values become 0.

    >>> stretch(np.array([-5.0, 0.0, 5.0, 10.0, 20.0], np.float32), 0, 10).tolist()
    [0, 0, 128, 255, 255]
    """
    import cv2

    scale = 255.0 / (high - low) if high != low else 0.0
    if values.dtype == np.uint8:
        return cv2.LUT(values, np.clip(np.rint((np.arange(256) - low) * scale), 0, 255).astype(np.uint8))
    scaled: np.ndarray = values.astype(np.float32 if 1e-35 < abs(scale) < 1e35 else np.float64)  # what float32 can hold
    scaled -= low
    scaled *= scale
    np.rint(scaled, out=scaled)
    return np.clip(scaled, 0, 255, out=scaled).astype(np.uint8)
