"""What files mean: a table of unusual inputs, what is asked of each, and the right value with where it comes from.

Right values are computed with NumPy or by hand from a paragraph of a standard, or with the library that is named, never
by the code under test. Many rows stand for a bug report of other software. Where a value cannot be had, a refusal that
names the cause is right, too.
"""

import base64
import io
import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import nibabel as nib
import numpy as np
import pytest
import tifffile
from PIL import Image

import viewbox
from tests.support.data_kit import write_jsonl
from tests.support.odd_images import (
    AXIAL, dicom, enhanced, flat, groups, item, lut, meta_image, nifti, nrrd, picture, png16, segmentation, sequence,
    series, text_on, tiff,
)  # fmt: skip
from viewbox.errors import ConfigError, ImageError
from viewbox.images.source import Source
from viewbox.images.view import View
from viewbox.tools.apply import apply_tools


class Row(NamedTuple):
    """A row: `given` writes files into a folder, `ask` reads what was written. `report`: the bug report it stands for."""

    name: str
    given: Any
    ask: Any
    right: Any
    source: str
    report: str = ""


ROWS: list[Row] = []


def row(*fields):
    ROWS.append(Row(*fields))


# ---- what is right


class Refusal(str):
    """What viewbox said when it refused."""


@dataclass(frozen=True)
class Words:
    """Text with all of the patterns and none of `without`, as a refusal or as an answer."""

    patterns: tuple[str, ...]
    refusal: bool
    without: str = ""

    def fits(self, got):
        if not isinstance(got, str) or isinstance(got, Refusal) != self.refusal:
            return False
        whole = "cut short" in " ".join(self.patterns) or not re.search("damaged|cut short", got)
        found = all(re.search(pattern, got, re.I | re.S) for pattern in self.patterns)
        return found and (whole or not self.refusal) and not (self.without and re.search(self.without, got, re.I))


@dataclass(frozen=True)
class Near:
    """Numbers of any shape, within a tolerance; None: no number (or none that was measured)."""

    numbers: Any
    within: float = 1e-3

    def fits(self, got):
        if isinstance(got, str):
            return False
        got, right = (np.array(_fill(value), float) for value in (got, self.numbers))
        return got.shape == right.shape and np.allclose(got, right, rtol=1e-5, atol=self.within, equal_nan=True)


@dataclass(frozen=True)
class Either:
    """Any of these."""

    ways: tuple[Any, ...] = field(default=())

    def fits(self, got):
        return any(_fits(got, way) for way in self.ways)


def _fill(value):
    if isinstance(value, np.ndarray) or not isinstance(value, list | tuple):
        return np.nan if value is None or isinstance(value, str) else value
    return [_fill(inside) for inside in value]


def _fits(got, right):
    if hasattr(right, "fits"):
        return right.fits(got)
    return type(got) is str and got == right if isinstance(right, str) else Near(right).fits(got)


def refused(*patterns):
    return Words(patterns, refusal=True)


def says(*patterns, without=""):
    return Words(patterns, refusal=False, without=without)


def gray(levels):
    """Gray levels of a picture, which may be rounded otherwise."""
    return Near(levels, 1.01)


def either(*ways):
    return Either(ways)


# ---- what is asked


def opened(where):
    return Source.of(where) if isinstance(where, np.ndarray | Image.Image) else viewbox.open_image(where)


def pixels(where):
    """The values that were measured, None elsewhere."""
    source = opened(where)
    values = source.pixels.astype(float)
    if source.measured is not None:
        values[~source.measured] = np.nan
    return values[..., 0] if values.ndim == 3 and not np.ptp(values, axis=2).any() else values


def after(*calls):
    """The picture after some tools, as gray levels."""

    def ask(where):
        view = View.of(opened(where))
        return (_call(where, calls)[0] if calls else view).to_uint8()

    return ask


shown = after()


def line(where):
    """The first row of the picture."""
    return shown(where)[0]


def levels(where):
    """The gray levels that occur."""
    return np.unique(shown(where))


def _call(where, calls):
    places = where if isinstance(where, list) else [where]
    images = [opened(place) for place in places]
    view, result = apply_tools(images[0], calls, hidden={"images": images})[-1]
    if result.error is not None:
        raise ImageError(result.error)
    return view, result


def go(name, **arguments):
    return name, arguments


STATS = go("get_intensity_stats")


def facts(names, *calls):
    """Facts of the last of some tools; None: it has none of that name."""

    def ask(where):
        found = [_call(where, calls)[1].facts.get(name) for name in names.split()]
        return found if len(found) > 1 else found[0]

    return ask


numbers = facts("mean min max", STATS)


def text(*calls):
    return lambda where: str(_call(where, calls)[1].text)


def notes(where):
    """What the reader says about what it left out: as `list_slices` tells it, or as the picture keeps it."""
    source = opened(where)
    return " ".join([*source.notes, *([] if source.volume is None else [text(go("list_slices"))(where)])])


def count(where):
    """Slices (axial, coronal, sagittal) of a volume."""
    volume = opened(where).volume
    return [volume.count_slices(plane) for plane in volume.allowed_planes]


def order(where):
    """The highest value of each slice or frame, from the first."""
    volume = opened(where).volume
    return [float(volume.get_slice(index).pixels.max()) for index in range(volume.count_slices())]


def place(where):
    """Where the brightest voxel lies in the patient, mm: x to the left, y to the back, z to the head."""
    volume = opened(where).volume
    z, y, x = np.argwhere(volume.voxels == volume.voxels.max())[0]
    return (volume.affine @ [x, y, z, 1])[:3]


def labels(where):
    """The values that occur in a volume."""
    return np.unique(opened(where).volume.voxels)


def size(where):
    return opened(where).size


def unit(where):
    return str(opened(where).unit)


def all_of(*asks):
    """Several answers together, as words."""
    return lambda where: " | ".join(str(ask(where)) for ask in asks)


# ---- values that are no measurement

X = np.arange(16)
BODY = (X > 3) & (X < 12)
RAMP = 1000 + 10 * X
HU = [float(value) - 1024 if inside else None for value, inside in zip(RAMP, BODY, strict=True)]
EVEN = [0, 36, 73, 109, 146, 182, 219, 255]  # eight levels at even steps
PADDED_LINE = [0, 0, 0, 0, *EVEN, 0, 0, 0, 0]
C7511 = "PS3.3 C.7.5.1.1.2"
OUT = "right: padding is no pixel of the image"


def tile(values, rows=16):
    return np.tile(np.asarray(values), (rows, 1))


def padded(values=RAMP, fill=63536, inside=BODY, dtype=np.uint16):
    return tile(np.where(inside, values, fill)).astype(dtype)


def ct(name="a.dcm", stored=None, **elements):
    """Writes a CT with values of padding, in a folder given later."""
    given = {"RescaleSlope": 1, "RescaleIntercept": -1024, "PixelPaddingValue": ("US", 63536), **elements}
    return lambda folder: dicom(folder / name, padded() if stored is None else stored, **given)


# fmt: off
row("01-stats", ct(), numbers, [51, 16, 86], C7511, "fo-dicom/fo-dicom#406")
row("01-display", ct(), line, gray(PADDED_LINE), C7511, "OHIF/Viewers#4449")
row("01-values", ct(), pixels, Near([HU] * 16), C7511, "dgobbi/vtk-dicom#128")
row("01-range", ct(stored=padded(fill=np.where(X < 4, 5, 10)), PixelPaddingValue=("US", 0), PixelPaddingRangeLimit=("US", 10)),
    numbers, [51, 16, 86], C7511 + ": both ends are padding")
row("01-range-ends", ct(stored=padded(fill=11), PixelPaddingValue=("US", 0), PixelPaddingRangeLimit=("US", 10)),
    numbers, [(8 * 51 - 8 * 1013) / 16, -1013, 86], C7511 + ": 11 is beyond the limit")
row("01-written-as-US", ct(stored=padded(fill=-2000, dtype=np.int16)), numbers, [51, 16, 86], C7511 + ", 63536 is -2000 in 16 bits", "dgobbi/vtk-dicom#173")
row("01-written-as-SS", ct(PixelPaddingValue=("SS", -2000)), numbers, [51, 16, 86], C7511)
row("01-beyond-stored-bits", ct(stored=padded(fill=0xF830), BitsStored=12), numbers, [51, 16, 86], C7511 + "; 0xF830 as it is in the file")
row("01-twelve-bits-signed", ct(stored=padded(fill=-2000, dtype=np.int16), BitsStored=12, PixelPaddingValue=("SS", -2000)), numbers, [51, 16, 86], C7511)
row("01-not-there", ct(stored=tile(RAMP).astype(np.uint16)), numbers, [51, -24, 126], "no pixel has the value of padding")
row("01-all", ct(stored=np.full((16, 16), 63536, np.uint16)), text(STATS), either(refused("padding|measured"), says("padding|measured")), C7511)
row("01-box", ct(), text(go("get_intensity_stats", box=[0, 0, 0.2, 1])), either(refused("padding|measured|no value"), says("padding|measured|no value")), OUT)
row("01-window", ct(WindowCenter=51, WindowWidth=71), line, gray([0, 0, 0, 0, *[v + 2 for v in EVEN[:-1]], 255, 0, 0, 0, 0]), C7511 + ", C.11.2.1.2.1")
row("01-monochrome1", lambda f: dicom(f / "a.dcm", padded(100 + 10 * X, np.where(X < 4, 4000, 4095)), "DX", BitsStored=12,
    PhotometricInterpretation="MONOCHROME1", PixelPaddingValue=("US", 4095), PixelPaddingRangeLimit=("US", 4000)),
    line, gray([255] * 4 + EVEN[::-1] + [255] * 4), C7511 + "; C.7.6.3.1.2: the lowest value is white")
row("01-eight-bits", lambda f: dicom(f / "a.dcm", padded(10 * X, 255, dtype=np.uint8), "SC", Modality="OT", PixelPaddingValue=("US", 255)),
    numbers, [75, 40, 110], C7511)
row("01-modality-lut", lambda f: dicom(f / "a.dcm", padded(10 * X, 4095), "CR", Modality="CR", BitsStored=12, PixelPaddingValue=("US", 4095),
    ModalityLUTSequence=sequence(item(LUTDescriptor=("US", [4096, 0, 16]), LUTData=("US", [2 * n for n in range(4096)]), ModalityLUTType="US"))),
    numbers, [150, 80, 220], C7511 + ": padding is compared before the Modality LUT")
row("01-float", lambda f: dicom(f / "a.dcm", padded(X / 2, np.where(X < 4, -1000, -950), dtype=np.float32), "map", Modality="MR",
    FloatPixelPaddingValue=("FL", -1000.0), FloatPixelPaddingRangeLimit=("FL", -900.0)), numbers, [3.75, 2, 5.5], "PS3.3 C.7.6.24")
row("01-double", lambda f: dicom(f / "a.dcm", padded(X / 2, -1e30, dtype=np.float64), "map", Modality="MR",
    DoubleFloatPixelPaddingValue=("FD", -1e30)), numbers, [3.75, 2, 5.5], "PS3.3 C.7.6.25")
row("01-series-of-many-slopes", lambda f: series(f / "s", [padded()] * 3, PixelPaddingValue=("US", 63536), change={1: {"RescaleSlope": 2}}),
    facts("mean min max", go("select_slice", index=1), STATS), [1126, 1056, 1196], C7511 + ", slope 2")
row("01-series-display", lambda f: series(f / "s", [padded()] * 3, PixelPaddingValue=("US", 63536), change={1: {"RescaleSlope": 2}}),
    after(go("select_slice", index=2)), gray(tile([0] * 4 + [(v - 16) / 1180 * 255 for v in range(16, 96, 10)] + [0] * 4)), "16 to 1196 HU")
MR_PAD = lambda f: dicom(f / "a.dcm", padded(100 * X, 65535), "MR", Modality="MR", PixelPaddingValue=("US", 65535))  # noqa: E731
_low, _high = np.percentile(np.repeat(np.arange(500, 1200, 100), 16), (1, 99.5))
row("01-mri-preset", MR_PAD, facts("center width", go("window_level", preset="mri")), Near([(_low + _high) / 2, _high - _low]), "numpy.percentile of 500 to 1100")
row("01-equalize", ct(stored=padded(1000 + X * X)), after(go("equalize_histogram")), gray(tile(PADDED_LINE)), "Gonzalez & Woods: 8 levels, equally frequent")
row("01-contrast", ct(stored=padded(np.where(X < 12, 1000, 1200), inside=X > 7)), after(go("adjust_contrast", factor=0.5)),
    gray(tile([0] * 8 + [64] * 4 + [192] * 4)), "Pillow's ImageEnhance.Contrast: mean 128 of what was measured")
row("01-profile", ct(), facts("profile", go("intensity_profile", point1=[0.01, 0.5], point2=[0.99, 0.5])), Near(HU), OUT)
row("01-profile-mean", ct(), facts("mean min max", go("intensity_profile", point1=[0.01, 0.5], point2=[0.99, 0.5])), [51, 16, 86], OUT)
row("01-symmetry", ct(stored=padded(1000 + 10 * np.minimum(X, 15 - X), inside=X > 3)), after(go("symmetry_diff")), gray(np.zeros((16, 16))),
    "both halves are equal where both were measured")
row("01-edges", ct(stored=padded(1040)), after(go("detect_edges")), gray(np.zeros((16, 16))), "one value: the edge of padding is no edge of the body")
for call in (go("adaptive_equalize"), go("adjust_sharpness", factor=3), go("denoise", sigma=2), go("detect_edges"), go("threshold", lower=50, upper=200),
             go("morphological", operation="dilate"), go("zoom", factor=2, center=[0.25, 0.5]), go("crop", box=[0, 0, 0.5, 1])):
    row(f"01-whatever-stands-for-padding-{call[0]}",
        lambda f: [ct()(f), ct("b.dcm", padded(fill=0), PixelPaddingValue=("US", 0))(f)],
        lambda where, call=call: np.abs(after(call)(where[0]).astype(int) - after(call)(where[1])).max(), 0, OUT)

NAN = np.full((12, 10, 3), 10, np.float32)
NAN[:5], NAN[7, 6, 0] = np.nan, -50
RANDOM = np.random.default_rng(42).normal(size=(8, 8)).astype(np.float32)
HOLES = np.where(np.arange(64).reshape(8, 8) % 5 == 0, np.nan, RANDOM)
HOLES[0, 1], HOLES[0, 2] = np.inf, -np.inf
TRUE = np.where(np.isfinite(HOLES), HOLES, np.nan).astype(np.float32)
SUMS = Near([np.nanmean(TRUE), np.nanmin(TRUE), np.nanmax(TRUE)])


def npy(array):
    def given(folder):
        np.save(folder / "a.npy", array)
        return folder / "a.npy"

    return given


def nodata(array, value):
    return lambda f: tiff(f / "a.tif", array, extratags=[(42113, "s", 0, value, True)])


row("02-nifti", lambda f: nifti(f / "a.nii", NAN), facts("mean min max", go("select_slice", index=1), STATS), [10, 10, 10], "numpy.nanmean", "rasterio/rasterio#952")
row("02-nifti-inf", lambda f: nifti(f / "a.nii", HOLES.astype(np.float32)[:, ::-1, None][::-1]), numbers, SUMS, "numpy")
row("02-nifti-black", lambda f: nifti(f / "a.nii", NAN + np.float32(5)), lambda p: [shown(p)[0, -1], shown(p)[0, 0] > 0], [0, 1], "i grows to the right, which is left in the picture")
row("02-profile", lambda f: npy(HOLES)(f), facts("profile", go("intensity_profile", point1=[0.01, 0.01], point2=[0.99, 0.01])), Near(TRUE[0]), "NaN is no number")
row("02-tiff", lambda f: tiff(f / "a.tif", HOLES.astype(np.float32)), numbers, SUMS, "numpy")
row("02-npy", npy(HOLES), numbers, SUMS, "numpy")
row("02-npy-pixels", npy(HOLES), pixels, Near(TRUE), "numpy")
row("02-array", lambda f: HOLES, numbers, SUMS, "numpy: an array in memory")
row("02-all", npy(np.full((4, 4), np.nan)), pixels, refused("finite|measured|NaN"), "there is nothing to show")
row("02-meta-image", lambda f: meta_image(f / "a.mha", HOLES.astype(np.float32)[None]), numbers, SUMS, "numpy")
row("02-nrrd", lambda f: nrrd(f / "a.nrrd", HOLES.astype(np.float32)[None]), numbers, SUMS, "numpy")
row("02-mri-preset", npy(np.where(tile(BODY), tile(100 * X), np.nan)), facts("center width", go("window_level", preset="mri")), Near([(_low + _high) / 2, _high - _low]), "numpy.percentile")
row("02-nodata", nodata(padded(10 * X, -9999, dtype=np.int16), "-9999"), numbers, [75, 40, 110], "GDAL: tag 42113 is the value without data")
row("02-nodata-display", nodata(padded(10 * X, -9999, dtype=np.int16), "-9999"), line, gray(PADDED_LINE), "GDAL, GTiff driver")
row("02-nodata-float", nodata(padded(10 * X, -3.4028234663852886e38, dtype=np.float32), "-3.4028234663852886e+38"), numbers, [75, 40, 110], "GDAL", "opendatacube/odc-geo#143")
row("02-nodata-byte", nodata(padded(10 * X, 255, dtype=np.uint8), "255"), numbers, [75, 40, 110], "GDAL")
row("02-nodata-nan", nodata(padded(10 * X, np.nan, dtype=np.float32), "nan"), numbers, [75, 40, 110], "GDAL")
row("02-nodata-no-number", nodata(tile(10 * X).astype(np.int16), "none"), numbers, [75, 0, 150], "a tag that is no number says nothing")
row("02-mask", lambda f: [nifti(f / "a.nii", np.ones((20, 20, 4), np.int16)), nifti(f / "b.nii", np.pad(np.ones((4, 4, 4), np.float32), ((8, 8), (8, 8), (0, 0)), constant_values=np.nan))],
    facts("box", go("overlay_mask", image="image_2")), Near([0.4, 0.4, 0.6, 0.6]), "NaN is not inside a mask")

# ---- how the file asks to be shown

DEEP = np.round(np.linspace(0, 4095, 16)).astype(np.uint16)
CURVE = (255 / (1 + np.exp(-(np.arange(4096) - 3000) / 150))).astype(int)
SIXTEEN = (np.arange(4096) ** 2 // 300).clip(0, 65535)
C112 = "PS3.3 C.11.2.1"


def by_lut(values, first, entries, bits=8):
    """Gray levels of values by a VOI LUT, C.11.2.1.1: values beyond its ends have the first and the last entry."""
    return np.asarray(entries)[np.clip(np.asarray(values, int) - first, 0, len(entries) - 1)] / (2**bits - 1) * 255


def linear(values, center, width):
    """C.11.2.1.2.1."""
    values = np.asarray(values, float)
    if width == 1:
        return np.where(values <= center - 0.5, 0, 255)
    return (((values - (center - 0.5)) / (width - 1) + 0.5) * 255).clip(0, 255)


def dx(values=DEEP, **elements):
    return lambda f: dicom(f / "a.dcm", tile(values).astype(elements.pop("dtype", np.uint16)), "DX", **{"Modality": "DX", "BitsStored": 12, **elements})


def voi(*lut_of, **elements):
    return dx(VOILUTSequence=sequence(lut(*lut_of)), **elements)


row("03-lut", voi(0, CURVE, 8), line, gray(by_lut(DEEP, 0, CURVE)), C112 + ".1, numpy", "pydicom/pydicom#956")
row("03-stored-values", voi(0, CURVE, 8), numbers, Near([DEEP.mean(), 0, 4095]), "the LUT is for display only", "cornerstonejs/cornerstone#457")
row("03-sixteen-bits", voi(0, SIXTEEN, 16), line, gray(by_lut(DEEP, 0, SIXTEEN, 16)), C112 + ".1")
row("03-ten-bits", voi(0, CURVE * 4, 10), line, gray(by_lut(DEEP, 0, CURVE * 4, 10)), C112 + ".1")
row("03-first-signed", dx(DEEP.astype(int) - 2048, dtype=np.int16, VOILUTSequence=sequence(lut(-2048, CURVE, 8, "SS"))), line, gray(by_lut(DEEP, 0, CURVE)), C112 + ".1", "pydicom/pydicom#942")
row("03-after-rescale", voi(-1024, CURVE, 8, "SS", RescaleSlope=1, RescaleIntercept=-1024, RescaleType="US"), line, gray(by_lut(DEEP, 0, CURVE)), C112 + ": the LUT takes values after the Modality LUT", "dcm4che/dcm4che#1521")
row("03-first-high", voi(40000, SIXTEEN, 16, BitsStored=16, values=np.linspace(39000, 45000, 16)), line,
    gray(by_lut(np.linspace(39000, 45000, 16), 40000, SIXTEEN, 16)), C112 + ".1: 40000 is not -25536", "cornerstonejs/cornerstoneWADOImageLoader#259")
row("03-first-late", voi(2000, CURVE[2000:3500], 8), line, gray(by_lut(DEEP, 2000, CURVE[2000:3500])), C112 + ".1")
row("03-65536-entries", voi(0, 65535 - np.arange(65536), 16, BitsStored=16, values=DEEP * 16.0), line, gray(255 - DEEP * 16 / 257), C112 + ".1: 0 entries are 65536")
row("03-monochrome1", voi(0, CURVE, 8, PhotometricInterpretation="MONOCHROME1"), line, gray(255 - by_lut(DEEP, 0, CURVE)), "C.7.6.3.1.2: inverted after the VOI LUT")
row("03-before-window", voi(0, CURVE, 8, WindowCenter=100, WindowWidth=50), line, gray(by_lut(DEEP, 0, CURVE)), "pydicom.apply_voi_lut, prefer_lut", "pydicom/pydicom#1236")
row("03-second-lut", dx(VOILUTSequence=sequence(lut(0, CURVE, 8), lut(0, 255 - CURVE, 8))), line, gray(by_lut(DEEP, 0, CURVE)), C112 + ": alternatives, the first is shown")
row("03-frames", lambda f: enhanced(f / "a.dcm", np.stack([tile(DEEP)] * 2), [groups((0, 0, z), lut=lut(0, CURVE, 8)) for z in (0, 5)], groups(rows=AXIAL, spacing=(1, 1)), "tomosynthesis", Modality="MG", BitsStored=12),
    line, gray(by_lut(DEEP, 0, CURVE)), "PS3.3 C.7.6.16.2.10b: Frame VOI LUT With LUT")
row("03-series", lambda f: series(f / "s", [tile(DEEP)] * 3, RescaleIntercept=0, BitsStored=12, VOILUTSequence=sequence(lut(0, CURVE, 8))), line, gray(by_lut(DEEP, 0, CURVE)), C112)
row("03-then-window", voi(0, CURVE, 8), lambda p: after(go("window_level", center=2048, width=4096))(p)[0], gray(DEEP / 4096 * 255), "the tool's window is of the values")
row("03-sigmoid", dx(WindowCenter=2000, WindowWidth=1000, VOILUTFunction="SIGMOID"), line, gray(255 / (1 + np.exp(-4 * (DEEP - 2000.0) / 1000))), C112 + ".3.1", "dcm4che/dcm4che#1578")
row("03-sigmoid-monochrome1", dx(WindowCenter=2000, WindowWidth=1000, VOILUTFunction="SIGMOID", PhotometricInterpretation="MONOCHROME1"), line,
    gray(255 - 255 / (1 + np.exp(-4 * (DEEP - 2000.0) / 1000))), C112 + ".3.1, C.7.6.3.1.2")
row("03-linear-exact", dx(np.repeat([1000, 1001, 1002, 1003], 4), WindowCenter=1002, WindowWidth=4, VOILUTFunction="LINEAR_EXACT"), line,
    gray(np.repeat([0, 64, 128, 191], 4)), C112 + ".3.2")
row("03-linear", dx(np.repeat([1000, 1001, 1002, 1003], 4), WindowCenter=1002, WindowWidth=4), line, gray(linear(np.repeat([1000, 1001, 1002, 1003], 4), 1002, 4)), C112 + ".2.1", "Enet4/dicom-rs#724")
row("03-width-1", dx(np.repeat([1998, 1999, 2000, 2001], 4), WindowCenter=2000, WindowWidth=1), line, gray(np.repeat([0, 0, 255, 255], 4)), C112 + ".2.1: a threshold")

SCALE = np.round(np.linspace(-1000, 1000, 16))
FULL = gray((SCALE + 1000) / 2000 * 255)


def windowed(center, width, **elements):
    return lambda f: dicom(f / "a.dcm", tile(SCALE + 1024).astype(np.int16), RescaleSlope=1, RescaleIntercept=-1024, WindowCenter=center, WindowWidth=width, **elements)


def raw(value):
    return "DS", value.encode()


row("04-second-blank", windowed(raw("40\\  "), raw("400\\")), line, gray(linear(SCALE, 40, 400)), "PS3.5 6.4: a value may be blank; the first window is whole")
row("04-first-blank", windowed(raw("\\40 "), raw("\\400")), line, gray(linear(SCALE, 40, 400)), "the first window whose numbers are there")
row("04-several", windowed([40, -600], [400, 1500]), line, gray(linear(SCALE, 40, 400)), C112 + ".2: alternatives, the first is shown", "pymedphys/pymedphys#1906")
row("04-lost-width", windowed([40, 50], 400), line, gray(linear(SCALE, 40, 400)), "the first pair is whole")
row("04-all-blank", windowed(raw(""), raw("")), line, FULL, "no window: lowest to highest value")
row("04-nan", windowed(raw("NaN "), raw("NaN ")), line, FULL, "no window: lowest to highest value", "fo-dicom/fo-dicom#1756")
row("04-width-0", windowed(0, 0), line, FULL, C112 + ".2.1: the width is at least 1", "pydicom/pydicom#1073")
row("04-shows-nothing", windowed(9000, 100), line, FULL, "a window without any value would be a black picture")
row("04-per-frame", lambda f: enhanced(f / "a.dcm", np.stack([tile(SCALE + 1024).astype(np.int16)] * 2), [groups((0, 0, 5 * n), window=(500 * n, 800)) for n in range(2)]),
    lambda p: [after(go("select_slice", index=n))(p)[0] for n in range(2)], gray([linear(SCALE, 0, 800), linear(SCALE, 500, 800)]), "PS3.3 C.7.6.16.2.10: windows of each frame")
row("04-per-slice", lambda f: series(f / "s", [tile(SCALE + 1024).astype(np.int16)] * 3, change={n: {"WindowCenter": 300 * n, "WindowWidth": 800} for n in range(3)}),
    lambda p: [after(go("select_slice", index=n))(p)[0] for n in range(3)], gray([linear(SCALE, 300 * n, 800) for n in range(3)]), "each file asks for its own window")
row("04-per-slice-reversed", lambda f: series(f / "s", [tile(SCALE + 1024).astype(np.int16)] * 3, step=(0, 0, -5), change={n: {"WindowCenter": 300 * n, "WindowWidth": 800} for n in range(3)}),
    lambda p: [after(go("select_slice", index=n))(p)[0] for n in range(3)], gray([linear(SCALE, 600 - 300 * n, 800) for n in range(3)]), "windows follow their slices from the feet up")

COLOR = np.zeros((16, 16, 3), np.uint16)
COLOR[..., 0], COLOR[:8] = 4095, 2048
COLOR_SHOWN = np.where(COLOR == 2048, 127.5, COLOR / 4095 * 255)
TABLE = np.linspace(0, 65535, 256).astype("<u2")


def colored(pixels=COLOR, **elements):
    return lambda f: dicom(f / "a.dcm", pixels, "SC", Modality="OT", **elements)


def palette(descriptor, data, indices):
    tables = {f"{name}PaletteColorLookupTable{part}": value for name in ("Red", "Green", "Blue")
              for part, value in (("Descriptor", ("US", descriptor)), ("Data", ("OW", (data if name == "Red" else data[::-1]).tobytes())))}
    return colored(indices, PhotometricInterpretation="PALETTE COLOR", **tables)


row("05-rgb-12", colored(BitsStored=12), shown, gray(COLOR_SHOWN), "PS3.3 C.7.6.3.1: 4095 is the brightest of 12 bits")
row("05-rgb-12-planes", colored(BitsStored=12, PlanarConfiguration=1, PixelData=("OW", memoryview(np.ascontiguousarray(COLOR.transpose(2, 0, 1)).tobytes()))),
    shown, gray(COLOR_SHOWN), "PS3.3 C.7.6.3.1.3")
row("05-rgb-8-in-16", colored(COLOR // 16, BitsStored=8), shown, gray(COLOR // 16), "BitsStored 8: 255 is the brightest")
row("05-rgb-16", colored(COLOR * 16), shown, gray(COLOR_SHOWN), "65520 of 65535")
row("05-palette-16", palette([256, 0, 16], TABLE, np.arange(256, dtype=np.uint8).reshape(16, 16)), shown,
    gray(np.stack([TABLE, TABLE[::-1], TABLE[::-1]], -1).reshape(16, 16, 3) / 257), "PS3.3 C.7.6.3.1.5, C.7.6.3.1.6")
row("05-palette-first", palette([4, 10, 16], np.array([0, 20000, 40000, 65535], "<u2"), tile(X + 4).astype(np.uint8)), lambda p: shown(p)[0, :, 0],
    gray([0] * 7 + [77.8, 155.6] + [255] * 7), "PS3.3 C.7.6.3.1.5: indices beyond the ends", "pydicom/pydicom#942")
row("05-gray-10", lambda f: dicom(f / "a.dcm", tile(100 + 50 * X).astype(np.uint16), "MR", Modality="MR", BitsStored=10), line, gray(X * 17), "no window: lowest to highest value")

LABELS = np.zeros((16, 16, 8), np.uint8)
LABELS[4:8, 4:8] = 3
row("06-nifti", lambda f: nifti(f / "a.nii", LABELS), levels, [0, 255], "NIfTI-1: DT_UINT8 are numbers, not gray levels")
row("06-nifti-many", lambda f: nifti(f / "a.nii", np.tile(np.arange(4, dtype=np.uint8).repeat(4), (16, 8, 1)).transpose(2, 0, 1)), levels, gray([0, 85, 170, 255]), "lowest to highest value")
row("06-nifti-int8", lambda f: nifti(f / "a.nii", LABELS.astype(np.int8) - 2), levels, [0, 255], "-2 and 1")
row("06-nifti-cal", lambda f: nifti(f / "a.nii", LABELS, cal_max=6), levels, gray([0, 127.5]), "nifti1.h: cal_max is shown as white")
row("06-nifti-full", lambda f: nifti(f / "a.nii", np.arange(256, dtype=np.uint8).reshape(16, 16, 1)), lambda p: np.sort(shown(p), axis=None), gray(np.arange(256)), "0 to 255 are lowest and highest")
row("06-nifti-values", lambda f: nifti(f / "a.nii", LABELS), facts("min max", STATS), [0, 3], "statistics give labels")
row("06-labelmap", lambda f: segmentation(f / "a.dcm", [LABELS[..., 0]] * 3, (0, 5, 10), kind="LABELMAP"), levels, [0, 255], "PS3.3 C.8.20.2")
row("06-fractional", lambda f: segmentation(f / "a.dcm", [np.uint8(tile(np.repeat([0, 50, 100, 100], 4)))] * 3, (0, 5, 10), kind="FRACTIONAL", SegmentationFractionalType="OCCUPANCY", MaximumFractionalValue=100),
    levels, gray([0, 127.5, 255]), "PS3.3 C.8.20.2.3: 100 is all")
row("06-meta-image", lambda f: meta_image(f / "a.mha", LABELS.T), levels, [0, 255], "MET_UCHAR are numbers")
row("06-nrrd", lambda f: nrrd(f / "a.nrrd", LABELS.T), levels, [0, 255], "uchar are numbers")
row("06-png-stays", lambda f: picture(f / "a.png", LABELS[..., 0]), levels, [0, 3], "ISO 15948: samples of 8 bits are gray levels of 0 to 255")

# ---- depth

GRAY = 1000 + 3 * np.arange(64, dtype=np.uint16).reshape(8, 8)
RGB = np.stack([GRAY, GRAY + 1, GRAY + 2], -1)
OPAQUE = np.full((8, 8, 1), 65535, np.uint16)
HALF = np.concatenate([RGB, OPAQUE], -1)
HALF[-1, :, 3] = 0
ON_WHITE = RGB.copy()
ON_WHITE[-1] = 65535
row("07-png-rgb", lambda f: png16(f / "a.png", RGB), pixels, Near(RGB), "ISO 15948 11.2.2: bit depth 16", "python-pillow/Pillow#880")
row("07-png-rgba-opaque", lambda f: png16(f / "a.png", np.concatenate([RGB, OPAQUE], -1)), pixels, either(Near(RGB), refused("16")), "ISO 15948")
row("07-png-rgba", lambda f: png16(f / "a.png", HALF), pixels, either(Near(ON_WHITE), refused("16")), "transparent is white, 65535")
row("07-png-gray-alpha", lambda f: png16(f / "a.png", np.concatenate([GRAY[..., None], OPAQUE], -1)), pixels, either(Near(GRAY), refused("16")), "ISO 15948")
row("07-png-gray", lambda f: png16(f / "a.png", GRAY), pixels, Near(GRAY), "ISO 15948", "python-pillow/Pillow#4044")
row("07-tiff-rgb", lambda f: tiff(f / "a.tif", RGB), pixels, either(Near(RGB), refused("16")), "TIFF 6.0, BitsPerSample")
row("07-tiff-planes", lambda f: tiff(f / "a.tif", RGB.transpose(2, 0, 1), photometric="rgb", planarconfig="separate"), pixels, either(Near(RGB), refused("16|planar")), "TIFF 6.0, PlanarConfiguration 2")
row("07-tiff-rgba", lambda f: tiff(f / "a.tif", HALF, extrasamples=["unassalpha"]), pixels, either(Near(ON_WHITE), refused("16|alpha")), "TIFF 6.0, ExtraSamples 2")
row("07-stats", lambda f: png16(f / "a.png", np.stack([GRAY] * 3, -1)), numbers, Near([GRAY.mean(), 1000, 1189], 0.6), "numpy")
row("07-npy", npy(RGB), pixels, Near(RGB), "numpy")

row("08-int8", lambda f: tiff(f / "a.tif", (np.arange(64).reshape(8, 8) - 20).astype(np.int8)), facts("min max", STATS), either([-20, 43], refused("int8|signed")), "TIFF 6.0, SampleFormat 2", "python-pillow/Pillow#5850")
row("08-uint32", lambda f: tiff(f / "a.tif", (np.arange(64, dtype=np.uint32) << 26).reshape(8, 8)), facts("min max", STATS), either(Near([0, 63 * 2**26]), refused("uint32")), "above 2^31 is not negative", "python-pillow/Pillow#5850")
row("08-int32", lambda f: tiff(f / "a.tif", (np.arange(64).reshape(8, 8) * 3000 - 100000).astype(np.int32)), facts("min max", STATS), [-100000, 89000], "SampleFormat 2")
row("08-int16", lambda f: tiff(f / "a.tif", (np.arange(64).reshape(8, 8) * 900 - 32000).astype(np.int16)), facts("min max", STATS), [-32000, 24700], "SampleFormat 2", "python-pillow/Pillow#452")
row("08-big-endian", lambda f: tiff(f / "a.tif", GRAY.astype(">u2")), pixels, Near(GRAY), "MM: the first byte is the high one", "python-pillow/Pillow#452")
for kind in (np.float32, np.uint16, np.uint8):
    row(f"08-white-is-zero-{kind.__name__}", lambda f, kind=kind: tiff(f / "a.tif", np.arange(64).reshape(8, 8).astype(kind) * kind(4), photometric="miniswhite"),
        lambda p: [shown(p)[0, 0], shown(p)[7, 7] < 4], [255, 1], "TIFF 6.0, PhotometricInterpretation 0")
    row(f"08-white-is-zero-values-{kind.__name__}", lambda f, kind=kind: tiff(f / "a.tif", np.arange(64).reshape(8, 8).astype(kind) * kind(4), photometric="miniswhite"),
        numbers, Near([126, 0, 252]), "values are as they are stored")
row("08-bilevel-g4", lambda f: picture(f / "a.tif", Image.fromarray(tile(BODY * 255).astype(np.uint8)).convert("1"), compression="group4"), line, Near(BODY * 255), "Pillow")
row("08-lzw", lambda f: picture(f / "a.tif", GRAY, compression="tiff_lzw"), pixels, Near(GRAY), "Pillow")
row("08-jpeg", lambda f: picture(f / "a.tif", np.uint8(tile(X * 16)), compression="jpeg", quality=95), line, Near(X * 16, 8), "Pillow")
row("08-predictor", lambda f: tiff(f / "a.tif", GRAY, compression="zlib", predictor=True), pixels, Near(GRAY), "TIFF 6.0, section 14")


def with_compression(folder, code):
    with tifffile.TiffFile(tiff(folder / "a.tif", GRAY), mode="r+b") as file:
        file.pages[0].tags["Compression"].overwrite(code)
    return folder / "a.tif"


row("08-jpeg-2000", lambda f: with_compression(f, 34712), pixels, refused("compress|JPEG ?2000"), "TIFF tag 259: no decoder for it here")

row("09-float64", lambda f: tiff(f / "a.tif", np.arange(64.0).reshape(8, 8)), facts("min max", STATS), either([0, 63], refused("float64")), "TIFF 6.0, SampleFormat 3", "python-pillow/Pillow#5850")
row("09-float16", lambda f: tiff(f / "a.tif", (np.arange(64) / 4).reshape(8, 8).astype(np.float16)), facts("min max", STATS), either([0, 15.75], refused("float16")), "SampleFormat 3, 16 bits")
row("09-bigtiff", lambda f: tiff(f / "a.tif", np.arange(64.0).reshape(8, 8), bigtiff=True), facts("min max", STATS), either([0, 63], refused("float64")), "BigTIFF, version 43")
row("09-complex", lambda f: tiff(f / "a.tif", np.ones((8, 8), np.complex64)), pixels, refused("complex"), "SampleFormat 6")
row("09-lost", lambda f: tiff(f / "a.tif", 1e12 + np.arange(64.0).reshape(8, 8)), pixels, refused("float64|float32"), "float32 has 24 bits")
row("09-uint64", lambda f: tiff(f / "a.tif", (np.arange(64, dtype=np.uint64) << 50).reshape(8, 8)), facts("min max", STATS), either(Near([0, 63 * 2**50]), refused("uint64")), "TIFF 6.0")
row("09-five-channels", lambda f: tiff(f / "a.tif", np.zeros((8, 8, 5), np.uint16), planarconfig="contig"), pixels, refused("5"), "SamplesPerPixel 5 is no picture")
row("09-npy-complex", npy(np.ones((4, 4), complex)), pixels, refused("complex"), "NumPy")
row("09-nifti-complex", lambda f: nifti(f / "a.nii", np.ones((4, 4, 4), np.complex64)), pixels, refused("complex"), "NIfTI-1 datatype 32")
row("09-nifti-float64", lambda f: nifti(f / "a.nii", np.arange(64.0).reshape(4, 4, 4)), labels, Near(np.arange(64)), "NIfTI-1 datatype 64")
# fmt: on


@pytest.mark.parametrize("case", ROWS, ids=[case.name for case in ROWS])
def test_a_picture_is_what_its_file_means(case, tmp_path):
    try:
        got = case.ask(case.given(tmp_path))
    except (ImageError, ConfigError) as error:
        got = Refusal(error)
    assert _fits(got, case.right), f"got {got}; right: {case.right} ({case.source})"
