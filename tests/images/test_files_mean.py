"""What files mean: a table of unusual inputs, what is asked of each, and the right value with where it comes from.

Right values are computed with NumPy or by hand from a paragraph of a standard, or with the library that is named, never
by the code under test. Many rows stand for a bug report of other software. Where a value cannot be had, a refusal that
names the cause is right, too.
"""

import base64
import io
import re
import struct
import sys
import zlib
from dataclasses import dataclass
from typing import Any, NamedTuple

import cv2
import nibabel as nib
import numpy as np
import pydicom
import pytest
import tifffile
from PIL import Image, ImageCms
from PIL.PngImagePlugin import PngInfo

import viewbox
from tests.support.data_kit import write_jsonl

from tests.support.odd_images import (  # isort: skip
    AXIAL, bmp, dicom, enhanced, flat, groups, item, lut, meta_image, nifti, nrrd, packed_tiff, picture, png16, profile,
    segmentation, sequence, series, text_on, tiff,
)  # fmt: skip
from viewbox.errors import ConfigError, ImageError
from viewbox.images.files import open_picture
from viewbox.images.source import Source
from viewbox.images.view import View
from viewbox.tools.calling import apply_tools


# fmt: off
class Row(NamedTuple):
    """`given` writes files into a folder, `ask` reads what was written; `report`: the bug report it stands for."""

    line: int
    given: Any
    ask: Any
    right: Any
    source: str
    report: str = ""

ROWS: list[Row] = []

def row(*fields):
    ROWS.append(Row(sys._getframe(1).f_lineno, *fields))

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

class either(tuple):
    """Any of these."""

    def __new__(cls, *ways):
        return super().__new__(cls, ways)

    def fits(self, got):
        return any(_fits(got, way) for way in self)

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

# ---- what is written
def into(name, write):
    """A writer into a file of that name, in a folder given later."""
    return lambda *given, **named: lambda folder: write(folder / name, *given, **named)

a_dicom, frames_of, a_segmentation = (into("a.dcm", write) for write in (dicom, enhanced, segmentation))
a_tiff, a_tif, a_packed_tiff = (into("a.tif", write) for write in (tiff, picture, packed_tiff))
a_png, a_png16, a_series = into("a.png", picture), into("a.png", png16), into("s", series)
a_nifti, a_mha, a_nrrd = into("a.nii", nifti), into("a.mha", meta_image), into("a.nrrd", nrrd)

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

row(ct(), numbers, [51, 16, 86], C7511, "fo-dicom/fo-dicom#406")
row(ct(), line, gray(PADDED_LINE), C7511, "OHIF/Viewers#4449")
row(ct(), pixels, Near([HU] * 16), C7511, "dgobbi/vtk-dicom#128")
row(ct(stored=padded(fill=np.where(X < 4, 5, 10)), PixelPaddingValue=("US", 0), PixelPaddingRangeLimit=("US", 10)),
    numbers, [51, 16, 86], C7511 + ": both ends are padding")
row(ct(stored=padded(fill=11), PixelPaddingValue=("US", 0), PixelPaddingRangeLimit=("US", 10)),
    numbers, [(8 * 51 - 8 * 1013) / 16, -1013, 86], C7511 + ": 11 is beyond the limit")
row(ct(stored=padded(fill=-2000, dtype=np.int16)),
    numbers, [51, 16, 86], C7511 + ", 63536 is -2000 in 16 bits", "dgobbi/vtk-dicom#173")
row(ct(PixelPaddingValue=("SS", -2000)), numbers, [51, 16, 86], C7511)
row(ct(stored=padded(fill=0xF830), BitsStored=12), numbers, [51, 16, 86], C7511 + "; 0xF830 as it is in the file")
row(ct(stored=tile(RAMP).astype(np.uint16)), numbers, [51, -24, 126], "no pixel has the value of padding")
row(ct(stored=np.full((16, 16), 63536, np.uint16)), text(STATS), refused("padding|measured"), C7511)
row(ct(), text(go("get_intensity_stats", box=[0, 0, 0.2, 1])),
    either(refused("padding|measured|no value"), says("padding|measured|no value")), OUT)
row(ct(WindowCenter=51, WindowWidth=71),
    line, gray([0, 0, 0, 0, *[v + 2 for v in EVEN[:-1]], 255, 0, 0, 0, 0]), C7511 + ", C.11.2.1.2.1")
row(a_dicom(padded(100 + 10 * X, np.where(X < 4, 4000, 4095)), "DX", BitsStored=12,
    PhotometricInterpretation="MONOCHROME1", PixelPaddingValue=("US", 4095), PixelPaddingRangeLimit=("US", 4000)),
    line, gray([255] * 4 + EVEN[::-1] + [255] * 4), C7511 + "; C.7.6.3.1.2: the lowest value is white")
row(a_dicom(padded(10 * X, 4095), "CR", Modality="CR", BitsStored=12, PixelPaddingValue=("US", 4095),
    ModalityLUTSequence=sequence(item(LUTDescriptor=("US", [4096, 0, 16]), LUTData=("US", [2 * n for n in range(4096)]),
    ModalityLUTType="US"))), numbers, [150, 80, 220], C7511 + ": padding is compared before the Modality LUT")
row(a_dicom(padded(X / 2, np.where(X < 4, -1000, -950), dtype=np.float32),
    "map", Modality="MR", FloatPixelPaddingValue=("FL", -1000.0), FloatPixelPaddingRangeLimit=("FL", -900.0)),
    numbers, [3.75, 2, 5.5], "PS3.3 C.7.6.24")
row(a_dicom(padded(X / 2, -1e30, dtype=np.float64), "map", Modality="MR", DoubleFloatPixelPaddingValue=("FD", -1e30)),
    numbers, [3.75, 2, 5.5], "PS3.3 C.7.6.25")
row(a_series([padded()] * 3, PixelPaddingValue=("US", 63536), change={1: {"RescaleSlope": 2}}),
    facts("mean min max", go("select_slice", index=1), STATS), [1126, 1056, 1196], C7511 + ", slope 2")
_low, _high = np.percentile(np.repeat(np.arange(500, 1200, 100), 16), (1, 99.5))
row(a_dicom(padded(100 * X, 65535), "MR", Modality="MR", PixelPaddingValue=("US", 65535)), facts("center width",
    go("window_level", preset="mri")), Near([(_low + _high) / 2, _high - _low]), "numpy.percentile of 500 to 1100")
row(ct(stored=padded(1000 + X * X)),
    after(go("equalize_histogram")), gray(tile(PADDED_LINE)), "Gonzalez & Woods: 8 levels, equally frequent")
row(ct(stored=padded(np.where(X < 12, 1000, 1200), inside=X > 7)), after(go("adjust_contrast", factor=0.5)),
    gray(tile([0] * 8 + [64] * 4 + [192] * 4)), "Pillow's ImageEnhance.Contrast: mean 128 of what was measured")
row(ct(), facts("profile", go("intensity_profile", point1=[0.01, 0.5], point2=[0.99, 0.5])), Near(HU), OUT)
row(ct(stored=padded(1000 + 10 * np.minimum(X, 15 - X), inside=X > 3)),
    after(go("symmetry_diff")), gray(np.zeros((16, 16))), "both halves are equal where both were measured")
row(ct(stored=padded(1040)),
    after(go("detect_edges")), gray(np.zeros((16, 16))), "one value: the edge of padding is no edge of the body")
for call in (go("adaptive_equalize"),
    go("adjust_sharpness", factor=3), go("denoise", sigma=2), go("detect_edges"), go("threshold", lower=50, upper=200),
    go("morphological", operation="dilate"), go("zoom", factor=2, center=[0.25, 0.5]), go("crop", box=[0, 0, 0.7, 1])):
    row(lambda f: [ct()(f), ct("b.dcm", padded(fill=0), PixelPaddingValue=("US", 0))(f)],
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
    return a_tiff(array, extratags=[(42113, "s", 0, value, True)])

row(a_nifti(NAN),
    facts("mean min max", go("select_slice", index=1), STATS), [10, 10, 10], "numpy.nanmean", "rasterio/rasterio#952")
row(a_nifti(HOLES.astype(np.float32)[:, ::-1, None][::-1]), numbers, SUMS, "numpy")
row(lambda f: npy(HOLES)(f), facts("profile", go("intensity_profile", point1=[0.01, 0.01], point2=[0.99, 0.01])),
    Near(TRUE[0]), "NaN is no number")
row(a_tiff(HOLES.astype(np.float32)), numbers, SUMS, "numpy")
row(lambda f: HOLES, numbers, SUMS, "numpy: an array in memory")
row(npy(np.full((4, 4), np.nan)), pixels, refused("finite|measured|NaN"), "there is nothing to show")
row(a_mha(HOLES.astype(np.float32)[None]), numbers, SUMS, "numpy")
row(a_nrrd(HOLES.astype(np.float32)[None]), numbers, SUMS, "numpy")
row(nodata(padded(10 * X, -9999, dtype=np.int16), "-9999"),
    numbers, [75, 40, 110], "GDAL: tag 42113 is the value without data")
row(nodata(padded(10 * X, -3.4028234663852886e38, dtype=np.float32), "-3.4028234663852886e+38"),
    numbers, [75, 40, 110], "GDAL", "opendatacube/odc-geo#143")
row(nodata(padded(10 * X, -1.7976931348623157e308, dtype=np.float64), "-1.7976931348623157e+308"),
    numbers, [75, 40, 110], "GDAL's number for float64, which float32 does not have")
row(nodata(padded(10 * X, np.nan, dtype=np.float32), "nan"), numbers, [75, 40, 110], "GDAL")
row(nodata(tile(10 * X).astype(np.int16), "none"), numbers, [75, 0, 150], "a tag that is no number says nothing")
row(lambda f: [nifti(f / "a.nii", np.ones((20, 20, 4), np.int16)),
    nifti(f / "b.nii", np.pad(np.ones((4, 4, 4), np.float32), ((8, 8), (8, 8), (0, 0)), constant_values=np.nan))],
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
    return a_dicom(tile(values).astype(elements.pop("dtype", np.uint16)),
        "DX", **{"Modality": "DX", "BitsStored": 12, **elements})

def voi(*lut_of, **elements):
    return dx(VOILUTSequence=sequence(lut(*lut_of)), **elements)

row(voi(0, CURVE, 8), line, gray(by_lut(DEEP, 0, CURVE)), C112 + ".1, numpy", "pydicom/pydicom#956")
row(voi(0, CURVE, 8),
    numbers, Near([DEEP.mean(), 0, 4095]), "the LUT is for display only", "cornerstonejs/cornerstone#457")
row(dx(DEEP.astype(int) - 2048, dtype=np.int16, VOILUTSequence=sequence(lut(-2048, CURVE, 8, "SS"))),
    line, gray(by_lut(DEEP, 0, CURVE)), C112 + ".1", "pydicom/pydicom#942")
row(voi(-1024, CURVE, 8, "SS", RescaleSlope=1, RescaleIntercept=-1024, RescaleType="US"),
    line, gray(by_lut(DEEP, 0, CURVE)), C112 + ": the LUT takes values after the Modality LUT", "dcm4che/dcm4che#1521")
row(voi(40000, SIXTEEN, 16, BitsStored=16, values=np.linspace(39000, 45000, 16)), line, gray(by_lut(np.linspace(39000,
    45000, 16), 40000, SIXTEEN, 16)), C112 + ".1: 40000 is not -25536", "cornerstonejs/cornerstoneWADOImageLoader#259")
row(voi(0, 65535 - np.arange(65536), 16, BitsStored=16, values=DEEP * 16.0),
    line, gray(255 - DEEP * 16 / 257), C112 + ".1: 0 entries are 65536")
row(voi(0, CURVE, 8, PhotometricInterpretation="MONOCHROME1"),
    line, gray(255 - by_lut(DEEP, 0, CURVE)), "C.7.6.3.1.2: inverted after the VOI LUT")
row(voi(0, CURVE, 8, WindowCenter=100, WindowWidth=50),
    line, gray(by_lut(DEEP, 0, CURVE)), "pydicom.apply_voi_lut, prefer_lut", "pydicom/pydicom#1236")
row(frames_of(np.stack([tile(DEEP)] * 2), [groups((0, 0, z), lut=lut(0, CURVE, 8)) for z in (0, 5)],
    groups(rows=AXIAL, spacing=(1, 1)), "tomosynthesis", Modality="MG", BitsStored=12),
    line, gray(by_lut(DEEP, 0, CURVE)), "PS3.3 C.7.6.16.2.10b: Frame VOI LUT With LUT")
row(a_series([tile(DEEP)] * 3, RescaleIntercept=0, BitsStored=12, VOILUTSequence=sequence(lut(0, CURVE, 8))),
    line, gray(by_lut(DEEP, 0, CURVE)), C112)
row(voi(0, CURVE, 8), lambda p: after(go("window_level", center=2048, width=4096))(p)[0],
    gray(DEEP / 4096 * 255), "the tool's window is of the values")
row(dx(WindowCenter=2000, WindowWidth=1000, VOILUTFunction="SIGMOID"),
    line, gray(255 / (1 + np.exp(-4 * (DEEP - 2000.0) / 1000))), C112 + ".3.1", "dcm4che/dcm4che#1578")
row(dx(np.repeat([1000, 1001, 1002, 1003], 4), WindowCenter=1002, WindowWidth=4, VOILUTFunction="LINEAR_EXACT"),
    line, gray(np.repeat([0, 64, 128, 191], 4)), C112 + ".3.2")
row(dx(np.repeat([1000, 1001, 1002, 1003], 4), WindowCenter=1002, WindowWidth=4),
    line, gray(linear(np.repeat([1000, 1001, 1002, 1003], 4), 1002, 4)), C112 + ".2.1", "Enet4/dicom-rs#724")
row(dx(np.repeat([1998, 1999, 2000, 2001], 4), WindowCenter=2000, WindowWidth=1),
    line, gray(np.repeat([0, 0, 255, 255], 4)), C112 + ".2.1: a threshold")

SCALE = np.round(np.linspace(-1000, 1000, 16))
FULL = gray((SCALE + 1000) / 2000 * 255)

def windowed(center, width, **elements):
    return a_dicom(tile(SCALE + 1024).astype(np.int16),
        RescaleSlope=1, RescaleIntercept=-1024, WindowCenter=center, WindowWidth=width, **elements)

def raw(value):
    return "DS", value.encode()

row(windowed(raw("40\\  "), raw("400\\")),
    line, gray(linear(SCALE, 40, 400)), "PS3.5 6.4: a value may be blank; the first window is whole")
row(windowed(raw("\\40 "), raw("\\400")),
    line, gray(linear(SCALE, 40, 400)), "the first window whose numbers are there")
row(windowed([40, -600], [400, 1500]),
    line, gray(linear(SCALE, 40, 400)), C112 + ".2: alternatives, the first is shown", "pymedphys/pymedphys#1906")
row(windowed(raw("NaN "), raw("NaN ")), line, FULL, "no window: lowest to highest value", "fo-dicom/fo-dicom#1756")
row(windowed(0, 0), line, FULL, C112 + ".2.1: the width is at least 1", "pydicom/pydicom#1073")
row(windowed(9000, 100), line, FULL, "a window without any value would be a black picture")
row(frames_of(np.stack([tile(SCALE + 1024).astype(np.int16)] * 2), [groups((0, 0, 5 * n),
    window=(500 * n, 800)) for n in range(2)]), lambda p: [after(go("select_slice", index=n))(p)[0] for n in range(2)],
    gray([linear(SCALE, 0, 800), linear(SCALE, 500, 800)]), "PS3.3 C.7.6.16.2.10: windows of each frame")
row(a_series([tile(SCALE + 1024).astype(np.int16)] * 3, step=(0, 0, -5), change={n: {"WindowCenter": 300 * n,
    "WindowWidth": 800} for n in range(3)}), lambda p: [after(go("select_slice", index=n))(p)[0] for n in range(3)],
    gray([linear(SCALE, 600 - 300 * n, 800) for n in range(3)]), "windows follow their slices from the feet up")

COLOR = np.zeros((16, 16, 3), np.uint16)
COLOR[..., 0], COLOR[:8] = 4095, 2048
COLOR_SHOWN = np.where(COLOR == 2048, 127.5, COLOR / 4095 * 255)
TABLE = np.linspace(0, 65535, 256).astype("<u2")

def colored(pixels=COLOR, **elements):
    return a_dicom(pixels, "SC", Modality="OT", **elements)

def palette(descriptor, data, indices):
    tables = {f"{name}PaletteColorLookupTable{part}": value for name in ("Red", "Green", "Blue") for part, value in (
        ("Descriptor", ("US", descriptor)), ("Data", ("OW", (data if name == "Red" else data[::-1]).tobytes())))}
    return colored(indices, PhotometricInterpretation="PALETTE COLOR", **tables)

row(colored(BitsStored=12), shown, gray(COLOR_SHOWN), "PS3.3 C.7.6.3.1: 4095 is the brightest of 12 bits")
row(colored(BitsStored=12, PlanarConfiguration=1, PixelData=("OW", memoryview(np.ascontiguousarray(COLOR.transpose(2,
    0, 1)).tobytes()))), shown, gray(COLOR_SHOWN), "PS3.3 C.7.6.3.1.3")
row(colored(COLOR // 16, BitsStored=8), shown, gray(COLOR // 16), "BitsStored 8: 255 is the brightest")
row(palette([256, 0, 16], TABLE, np.arange(256, dtype=np.uint8).reshape(16, 16)), shown,
    gray(np.stack([TABLE, TABLE[::-1], TABLE[::-1]], -1).reshape(16, 16, 3) / 257), "PS3.3 C.7.6.3.1.5, C.7.6.3.1.6")
row(palette([4, 10, 16], np.array([0, 20000, 40000, 65535], "<u2"), tile(X + 4).astype(np.uint8)),
    lambda p: shown(p)[0, :, 0],
    gray([0] * 7 + [77.8, 155.6] + [255] * 7), "PS3.3 C.7.6.3.1.5: indices beyond the ends", "pydicom/pydicom#942")
row(palette([16, 0, 8], np.arange(0, 256, 17, dtype="<u2"), tile(X).astype(np.uint8)),
    lambda p: shown(p)[0, :, 0], gray(17 * X), "PS3.3 C.7.6.3.1.6, note: 8 bits in 16, padded; twice as long")
row(palette([16, 0, 12], np.arange(0, 4096, 273, dtype="<u2"), tile(X).astype(np.uint8)),
    shown, refused("PaletteColorLookupTableDescriptor"), "PS3.3 C.7.6.3.1.5: 8 or 16 bits")
row(colored(tile(X).astype(np.uint8), PhotometricInterpretation="MONOCHROME3"),
    shown, refused("color space"), "PS3.3 C.7.6.3.1.2: there is no such value")

LABELS = np.zeros((16, 16, 8), np.uint8)
LABELS[4:8, 4:8] = 3
row(a_nifti(LABELS), levels, [0, 255], "NIfTI-1: DT_UINT8 are numbers, not gray levels")
row(a_nifti(LABELS, cal_max=6), levels, gray([0, 127.5]), "nifti1.h: cal_max is shown as white")
row(a_segmentation([LABELS[..., 0]] * 3, (0, 5, 10), kind="LABELMAP"), levels, [0, 255], "PS3.3 C.8.20.2")
row(a_segmentation([np.uint8(tile(np.repeat([0, 50, 100, 100], 4)))] * 3,
    (0, 5, 10), kind="FRACTIONAL", SegmentationFractionalType="OCCUPANCY", MaximumFractionalValue=100),
    levels, gray([0, 127.5, 255]), "PS3.3 C.8.20.2.3: 100 is all")
row(a_mha(LABELS.T), levels, [0, 255], "MET_UCHAR are numbers")
row(a_nrrd(LABELS.T), levels, [0, 255], "uchar are numbers")
row(a_png(LABELS[..., 0]), levels, [0, 3], "ISO 15948: samples of 8 bits are gray levels of 0 to 255")

# ---- depth
GRAY = 1000 + 3 * np.arange(64, dtype=np.uint16).reshape(8, 8)
RGB = np.stack([GRAY, GRAY + 1, GRAY + 2], -1)
OPAQUE = np.full((8, 8, 1), 65535, np.uint16)
HALF = np.concatenate([RGB, OPAQUE], -1)
HALF[-1, :, 3] = 0
ON_WHITE = RGB.copy()
ON_WHITE[-1] = 65535
row(a_png16(RGB), pixels, Near(RGB), "ISO 15948 11.2.2: bit depth 16", "python-pillow/Pillow#880")
row(a_png16(np.concatenate([RGB, OPAQUE], -1)), pixels, Near(RGB), "ISO 15948")
row(a_png16(HALF), pixels, Near(ON_WHITE), "transparent is white, 65535")
row(a_png16(np.concatenate([GRAY[..., None], OPAQUE], -1)), pixels, Near(GRAY), "ISO 15948")
row(a_png16(GRAY), pixels, Near(GRAY), "ISO 15948", "python-pillow/Pillow#4044")
HUE = Near(255.0 * RGB[0, 0] / RGB.max(), 1)
row(a_png16(RGB), lambda p: shown(p)[0, 0], HUE, "stretched from 0: ratios stay")

row(a_tiff((np.arange(64).reshape(8, 8) - 20).astype(np.int8)),
    facts("min max", STATS), [-20, 43], "TIFF 6.0, SampleFormat 2", "python-pillow/Pillow#5850")
row(a_tiff((np.arange(64, dtype=np.uint32) << 26).reshape(8, 8)),
    facts("min max", STATS), Near([0, 63 * 2**26]), "above 2^31 is not negative", "python-pillow/Pillow#5850")
row(a_tiff(GRAY + 31000, metadata=None, description="ImageJ=1.53t\ncf=0\nc0=-32768.0\nc1=1.0\nvunit=Gray Value\n"),
    pixels, Near(GRAY.astype(int) - 1768),
    "ImageJ, Calibration.java: signed 16 bits are stored as unsigned ones, with c0 -32768")
for bits in (2, 4):
    NIBBLES = np.arange(64).reshape(8, 8) % 2**bits
    row(a_packed_tiff(NIBBLES, bits), pixels, Near(NIBBLES), "TIFF 6.0, BitsPerSample: the values that are stored")
    row(a_packed_tiff(NIBBLES, bits),
        shown, gray(NIBBLES * 255 / (2**bits - 1)), "TIFF 6.0, BlackIsZero: the highest value is white")
    row(a_packed_tiff(NIBBLES, bits, 0),
        all_of(lambda p: pixels(p)[0, 1], lambda p: shown(p)[0, 0]), says(r"1.0 \| 255"), "TIFF 6.0, WhiteIsZero")
row(a_tiff(GRAY.astype(">u2")), pixels, Near(GRAY), "MM: the first byte is the high one", "python-pillow/Pillow#452")
for way in ("raw", "packbits"):
    row(a_tif(GRAY, compression=way, tiffinfo={317: 2}),
        pixels, Near(GRAY), "TIFF 6.0, section 14: a predictor is of LZW (and Deflate); libtiff")

row(a_tiff(np.arange(64.0).reshape(8, 8)),
    facts("min max", STATS), [0, 63], "TIFF 6.0, SampleFormat 3", "python-pillow/Pillow#5850")
row(a_tiff(1e12 + np.arange(64.0).reshape(8, 8)), pixels, refused("float64|float32"), "float32 has 24 bits")
row(a_tiff((np.arange(64, dtype=np.uint64) << 50).reshape(8, 8)),
    facts("min max", STATS), Near([0, 63 * 2**50]), "TIFF 6.0")
row(a_tiff(np.zeros((8, 8, 5), np.uint16), planarconfig="contig"),
    notes, says("5 channels"), "SamplesPerPixel 5: no picture, and nothing of it is dropped")

# ---- where it is
TILT = np.deg2rad(15)
TILTED = [1, 0, 0, 0, np.cos(TILT), -np.sin(TILT)]
LONG = float(np.hypot(31 * np.cos(TILT), 35 + 31 * np.sin(TILT)))  # 52.4 mm from the front above to the back below
SHORT = float(np.hypot(31 * np.cos(TILT), 35 - 31 * np.sin(TILT)))
EIGHT = flat(range(8), (32, 32))
TOP, END = 0.5 / 8, 1 - 0.5 / 8
LEFT, RIGHT = 0.5 / 32, 1 - 0.5 / 32
TILT_REFUSED = refused("tilt|shear")

def tilted(folder):
    return series(folder / "s", EIGHT, rows=TILTED)

def measured(point1, point2, **select):
    return facts("distance_mm",
        *([go("select_slice", **select)] if select else []), go("measure", point1=point1, point2=point2))

def sagittal(point1, point2):
    return measured(point1, point2, plane="sagittal", index=16)

row(tilted, sagittal([LEFT, TOP], [RIGHT, END]),
    either(Near(LONG, 0.05), TILT_REFUSED), "PS3.3 C.7.6.2.1.1: positions of both voxels", "rordenlab/dcm2niix#253")
row(tilted, sagittal([LEFT, END], [RIGHT, TOP]),
    either(Near(SHORT, 0.05), TILT_REFUSED), "PS3.3 C.7.6.2.1.1", "Slicer/Slicer#4409")
row(tilted, measured([0.5, TOP], [0.5, END], plane="coronal", index=16),
    Near(35, 0.01), "rows and slices are at right angles there, 5 mm apart")
row(tilted, facts("axial_mm_apart", go("list_slices")),
    Near(5 * np.cos(TILT), 0.01), "at right angles to the slices", "rordenlab/dcm2niix#697")
row(a_series(EIGHT, step=(1, 0, 5)), measured([LEFT, TOP], [RIGHT, END], plane="coronal", index=16),
    either(Near(float(np.hypot(24, 35)), 0.05), TILT_REFUSED), "slices that drift to the left")
row(a_series(EIGHT, rows=TILTED, step=(0, 5 * np.sin(TILT), 5 * np.cos(TILT))),
    sagittal([LEFT, TOP], [RIGHT, END]), Near(float(np.hypot(31, 35)), 0.05), "turned, not sheared")
SLANTED = np.array([[1, 0.3, 0, 0], [0, 1, 0, 0], [0, 0, 5, 0], [0, 0, 0, 1.0]])
SHEAR = np.array([[1, 0, 0, 0], [0, 1, 1.5, 0], [0, 0, 5, 0], [0, 0, 0, 1.0]])
row(a_nifti(np.zeros((32, 32, 8), np.int16), SHEAR), sagittal([LEFT, TOP], [RIGHT, END]),
    either(Near(float(np.hypot(41.5, 35)), 0.05), TILT_REFUSED), "nibabel: affine of both voxels")
row(a_nifti(np.zeros((32, 32, 8), np.int16), SLANTED),
    size, either(TILT_REFUSED, [32, 8]), "nibabel: i and j are not at right angles; other planes are right")
row(frames_of(np.stack(EIGHT),
    [groups((0, 0, 5 * n)) for n in range(8)], groups(rows=TILTED, spacing=(1, 1), scale=(1, -1024, "HU"))),
    sagittal([LEFT, TOP], [RIGHT, END]), either(Near(LONG, 0.05), TILT_REFUSED), "PS3.3 C.7.6.16.2.3, C.7.6.16.2.4")
row(a_mha(np.zeros((8, 32, 32), np.int16), TransformMatrix="1 0 0 0 1 0 0 0.26 0.9656"),
    sagittal([LEFT, TOP], [RIGHT, END]),
    either(Near(float(np.hypot(31 - 7 * 0.26, 7 * 0.9656)), 0.05), TILT_REFUSED), "ITK: columns of directions in turn")

SQUARE = np.zeros((20, 20, 10), np.int16)
SQUARE[2:6, 8:12] = 100  # i to the right: columns 14 to 17 of the picture
BOX = Near([0.7, 0.4, 0.9, 0.6], 0.01)


def moved(x=0.0, y=0.0, z=0.0, scale=(1, 1, 1)):
    affine = np.diag([*scale, 1.0])
    affine[:3, 3] = x, y, z
    return affine

def masked(mask, affine=None, **header):
    return lambda f: [nifti(f / "a.nii", SQUARE),
        nifti(f / "b.nii", np.ascontiguousarray(mask).astype(np.uint8), affine, **header)]

def overlaid(index=5):
    return facts("box", go("select_slice", index=index), go("overlay_mask", image="image_2"))

turned = nib.Nifti1Image(SQUARE.astype(np.uint8), np.eye(4)).as_reoriented(np.array([[1, -1], [2, 1], [0, -1]]))
THIN = np.zeros((20, 20, 10), np.uint8)
THIN[2:6, 8:12, 2:4] = 1
ROTATION = np.eye(4)
ROTATION[:2, :2] = [[np.cos(np.pi / 18), -np.sin(np.pi / 18)], [np.sin(np.pi / 18), np.cos(np.pi / 18)]]
row(masked(SQUARE), overlaid(), BOX, "nibabel")
row(masked(SQUARE, moved(8)),
    overlaid(), Near([0.3, 0.4, 0.5, 0.6], 0.01), "nibabel: 8 voxels further to the right, left in the picture")
row(masked(THIN, moved(z=3)), overlaid(5), BOX, "nibabel: slices 5 and 6")
row(masked(THIN, moved(z=3)), overlaid(2), None, "nibabel: nothing in slice 2")
row(masked(turned.get_fdata(), turned.affine), overlaid(), BOX, "nibabel.as_reoriented: the same place")
row(masked(SQUARE, ROTATION), overlaid(), Near([0.78, 0.37, 1.0, 0.59], 0.07), "turned by 10 degrees about the corner")
row(masked(SQUARE[..., ::2], moved(z=0.5, scale=(1, 1, 2))),
    overlaid(), BOX, "nibabel: slices of 2 mm over the same place")
row(masked(SQUARE[1:9, 6:14], moved(1, 6)), overlaid(), BOX, "nibabel: a mask of a part")
row(masked(SQUARE, sform_code=0, qform_code=0), overlaid(), BOX, "nothing is known but the grid")
ONE_IN_RED = np.zeros((20, 20, 3), np.uint8)
ONE_IN_RED[8:12, 8:12, 0] = 1
row(lambda f: [picture(f / "a.png", np.zeros((20, 20), np.uint8)), picture(f / "b.png", ONE_IN_RED)],
    facts("box", go("overlay_mask", image="image_2")),
    Near([0.4, 0.4, 0.6, 0.6]), "labels are numbers, not gray levels: (1, 0, 0) is not 0")
def masks(ink):
    mask = Image.new("RGBA", (20, 20), (0, 0, 0, 0))
    mask.paste(ink, (8, 8, 12, 12))
    return lambda f: [picture(f / "a.png", np.zeros((20, 20), np.uint8)), picture(f / "b.png", mask)]

for ink in ((255, 0, 0, 255), (0, 0, 0, 255), (255, 255, 255, 255)):
    row(masks(ink), facts("box", go("overlay_mask", image="image_2")),
        Near([0.4, 0.4, 0.6, 0.6]), "what is transparent is no part of a mask")
row(masked(SQUARE, moved(z=500)), overlaid(), None, "nothing of it is in the image")
CORNER = Near([0.25, 0.25, 0.5, 0.5], 0.01)
MARKED = [np.pad(np.full((4, 4), 1124, np.int16), ((4, 8), (4, 8)), constant_values=1024) for _ in range(6)]

def two_frames(uid):
    pairs = (("a", flat(), "1.2.8"), ("b", MARKED, uid))
    return lambda f: [series(f / name, pixels, FrameOfReferenceUID=frame) for name, pixels, frame in pairs]

row(two_frames("1.2.8"), overlaid(3), CORNER, "PS3.3 C.7.4.1.1.1")
row(two_frames("1.2.9"), text(go("select_slice", index=3), go("overlay_mask", image="image_2")),
    says("not known|frame of reference"), "PS3.3 C.7.4.1.1.1: places of two frames of reference cannot be compared")

PATCH = np.zeros((6, 16, 16), np.uint8)
PATCH[0, 4:8, 4:8] = 1

def segmented(frames, places, segments=None, **elements):
    return lambda f: [series(f / "s", flat()), segmentation(f / "seg.dcm", frames, places, segments, **elements)]

BOTH = np.concatenate([PATCH, np.roll(PATCH, (6, 6), (1, 2))])
row(segmented(PATCH, range(25, -5, -5)),
    overlaid(5), CORNER, "PS3.3 C.7.6.16.2.3: the first frame lies at z = 25", "OHIF/Viewers#4421")
row(segmented(PATCH, range(25, -5, -5)), overlaid(0), None, "nothing in slice 0", "ImagingDataCommons/highdicom#330")
row(segmented(np.stack([PATCH[0]] * 2), (15, 10)),
    overlaid(2), CORNER, "PS3.3 C.8.20.2: frames without a segment may be left out", "OHIF/Viewers#2833")
row(segmented(np.stack([PATCH[0]] * 3), (20, 5, 0)),
    lambda p: [overlaid(n)(p) is None for n in range(6)], [0, 0, 1, 1, 0, 1], "gaps of whole distances are empty")
row(segmented(PATCH[:1], (20,)), overlaid(4), CORNER, "a single frame has a place, too")
row(segmented(BOTH, [*range(25, -5, -5)] * 2, [1] * 6 + [2] * 6), lambda p: labels(p[1]),
    [0, 1, 2], "PS3.3 C.8.20.2: values are numbers of segments", "ImagingDataCommons/highdicom#117")
row(segmented(PATCH.repeat(2, 0)[:2], (25, 25), (1, 2)),
    lambda p: labels(p[1]), refused("overlap"), "one number a voxel cannot say it")
row(segmented(PATCH[:3], (0, 5, 12)),
    lambda p: notes(p[1]), says("apart|even|place|position"), "gaps of 5 and 7 mm are no stack")
row(segmented(PATCH * 7, range(25, -5, -5), kind="LABELMAP"), overlaid(5), CORNER, "PS3.3 C.8.20.2")

ORDER = (3, 0, 5, 1, 4, 2)

def unsorted(folder, **elements):
    return enhanced(folder / "a.dcm", np.stack(flat())[list(ORDER)], [groups((0, 0, 5 * n)) for n in ORDER], **elements)

def times(folder):
    frames = [(t, z) for z in (2, 0, 1) for t in (2, 1)]
    pixels = np.stack([np.full((16, 16), 100 * t + z, np.uint16) for t, z in frames])
    return enhanced(folder / "a.dcm", pixels, [groups((0, 0, 4 * z), time=t) for t, z in frames],
        groups(rows=AXIAL, spacing=(1, 1)), "enhanced MR", Modality="MR")

row(unsorted, order, [0, 10, 20, 30, 40, 50], "PS3.3 C.7.6.16.2.3, PlanePositionSequence", "horosproject/horos#543")
row(unsorted, facts("axial_mm_apart axial sagittal", go("list_slices")),
    [5, 6, 16], "positions", "ImagingDataCommons/highdicom#5")
row(times, facts("mean", go("select_slice", index=2, time=1), STATS),
    202, "PS3.3 C.7.6.16.2.2, TemporalPositionIndex", "rordenlab/dcm2niix#839")
row(frames_of(np.stack(flat((0, 10))),
    [groups((0, 0, 5 * n), AXIAL, (1 - n / 2,) * 2, (1, -1024, "HU")) for n in range(2)], groups()),
    measured([0, 0.5], [0.5, 0.5], index=1), either(4, None), "pixels of the second frame are of 0.5 mm")
row(frames_of(np.stack(flat((0, 0, 0))), [groups((0, 0, 5 * n), scale=(1 + n, -1024, "HU")) for n in (2, 0, 1)],
    groups(rows=AXIAL, spacing=(1, 1))), order, [0, 1024, 2048], "PS3.3 C.7.6.16.2.9")
row(frames_of(np.stack(flat((0, 10, 20))), [groups((0, 0, z)) for z in (0, 5, 15)]),
    notes, says("missing|uneven|apart|even stack"), "5 and 10 mm apart")
row(a_dicom(np.stack([np.full((16, 16), n, np.uint8) for n in (3, 1, 2)]), "US multi", frames=True, Modality="US"),
    order, [3, 1, 2], "frames in time have no place")

# ---- the size of a pixel
IMAGER = {"ImagerPixelSpacing": [0.2, 0.2]}

def radiograph(**elements):
    return a_dicom(np.zeros((16, 64), np.uint16), "MG", Modality="MG", BitsStored=12, **elements)

half = go("measure", point1=[0, 0.5], point2=[0.5, 0.5])
DISTANCE = text(half)
row(radiograph(**IMAGER, EstimatedRadiographicMagnificationFactor=2),
    DISTANCE, says(r"mm: 3\.2\b"), "PS3.3 C.8.11.7: at the front plane of the receptor", "nroduit/Weasis#465")
row(radiograph(**IMAGER, DistanceSourceToDetector=1800, DistanceSourceToPatient=1200),
    DISTANCE, says(r"mm: 4\.26[67]"), "PS3.3 C.8.7.5: the ratio of both", "ivmartel/dwv#1996")
row(radiograph(**IMAGER), DISTANCE, says(r": 6\.4\b", "detector"), "PS3.3 C.8.11.7", "OHIF/Viewers#1490")
row(radiograph(**IMAGER, PixelSpacing=[0.2, 0.2]), DISTANCE,
    says(r": 6\.4\b", "detector"), "PS3.3 10.7.1.3: equal values are not corrected", "cornerstonejs/cornerstone3D#2387")
row(radiograph(**IMAGER, PixelSpacing=[0.1, 0.1]),
    DISTANCE, says(r"mm: 3\.2\b", without="detector"), "PS3.3 10.7.1.3: PixelSpacing is corrected")
row(radiograph(**IMAGER, PixelSpacing=[0.2, 0.2], PixelSpacingCalibrationType="FIDUCIAL"),
    DISTANCE, says(r"mm: 6\.4\b", without="detector"), "PS3.3 10.7.1.2")
row(radiograph(**IMAGER, PixelSpacing=[0.2, 0.2], EstimatedRadiographicMagnificationFactor=2),
    DISTANCE, says(r"mm: 3\.2\b"), "PS3.3 10.7.1.3")
row(a_dicom(np.zeros((3, 16, 64), np.uint8), "XA", frames=True, Modality="XA", **IMAGER),
    DISTANCE, says(r": 6\.4\b", "detector"), "PS3.3 C.8.7.5", "horosproject/horos#605")

# ---- beside another image
UP = np.broadcast_to(np.arange(10, dtype=np.int16), (20, 20, 10))
beside = go("show_beside", image="image_2")

def two(affine, voxels=UP):
    return lambda f: [nifti(f / "a.nii", np.ascontiguousarray(UP)),
        nifti(f / "b.nii", np.ascontiguousarray(voxels), affine)]

OTHER = either(says(".", without="the same part"), refused("."))
for affine in (moved(z=50), moved(z=-50), moved(100)):
    row(two(affine), text(beside), OTHER, "nibabel: no voxel of both is at the same place")
row(two(moved()), all_of(text(beside), facts("slice", beside)), says("the same part", r"\b5$"), "the same place")
row(two(moved(z=4)),
    all_of(text(beside), facts("slice", beside)), says(r"\b1$"), "nibabel: z = 5 is slice 1 of the other")
for axes_turned in ([1, 2], [0, 1]):
    TURN = np.eye(4)
    TURN[np.ix_(axes_turned, axes_turned)] = [[np.cos(0.5), -np.sin(0.5)], [np.sin(0.5), np.cos(0.5)]]
    row(two(TURN), text(beside), says("29 degrees"), "0.5 rad are 28.6 degrees")
row(two(np.eye(4) + 1e-4), text(beside), says("the same part", without="degrees"), "rounding is no turn")
row(two(moved(z=0.5, scale=(1, 1, 2)), UP[..., :8]), all_of(text(beside), facts("slice", beside)),
    says(r"\b2$"), "nibabel: z = 5 is in slice 2 of the other, 3.5 to 5.5 mm")
row(lambda f: [series(f / "a", flat(), FrameOfReferenceUID="1.2.8"),
    series(f / "b", flat(), FrameOfReferenceUID="1.2.9")], text(beside), OTHER, "PS3.3 C.7.4.1.1.1")

# ---- parts that must not be dropped
def axes(*shape):
    return a_nifti(np.arange(np.prod(shape), dtype=np.float32).reshape(shape))

PARTS = "component|channel|value|axis|axes|dimension"
row(axes(6, 6, 4, 1, 3), notes, says(r"\b3\b", PARTS), "NIfTI-1: dim[5] counts values of a voxel", "nipy/nibabel#548")
row(axes(6, 6, 4, 1, 1, 3), notes, says(r"\b3\b", PARTS), "NIfTI-1 dim[6]")
row(axes(6, 6, 4, 1, 1, 1, 3), notes, says(r"\b3\b", PARTS), "NIfTI-1 dim[7]")
row(axes(6, 6, 4, 5, 3), notes, says(r"\b3\b", PARTS), "NIfTI-1 dim[4], dim[5]")

P = [np.full((16, 16), value, np.uint8) for value in (40, 90, 140)]
SMALL = np.full((16, 12), 90, np.uint8)

def masked_page(folder):
    path = tiff(folder / "a.tif", np.full((8, 8), 9, np.uint8), (np.full((8, 8), 255, np.uint8), {"subfiletype": 0}))
    content = path.read_bytes()
    place = content.rfind(struct.pack("<HHI", 254, 4, 1))  # NewSubfileType of the second page
    path.write_bytes(content[: place + 8] + struct.pack("<I", 4) + content[place + 12 :])
    return path

row(a_tiff(P[0], SMALL, P[2]),
    notes, says("12x16|page 2"), "TIFF 6.0, section 2: a file may have several images", "python-pillow/Pillow#862")
row(a_tiff(P[0], SMALL),
    text(go("list_slices")), refused("page 2 .12x16"), "a page that is left out is named, though there is no stack")
row(a_tiff((SMALL[:8, :6], {"extratags": [(255, "H", 1, 2, True)]}), P[2]), size, [16, 16], "TIFF 6.0, SubfileType 2")
row(a_tiff(np.stack(P).astype(np.uint16), imagej=True, metadata={"axes": "ZYX"}, truncate=True),
    order, [40, 90, 140], "tifffile: ImageJ keeps all in one directory", "blink1073/tifffile#41")
row(a_tiff(np.stack(P), metadata={"axes": "ZYX"}, truncate=True),
    order, [40, 90, 140], "tifffile: shape in ImageDescription", "scalableminds/webknossos-libs#575")
row(masked_page,
    lambda p: [opened(p).volume is None, *numbers(p)], [1, 9, 9, 9], "TIFF 6.0, NewSubfileType 4: a mask is no page")
row(a_tiff(np.zeros((4, 8), np.uint8), (np.zeros((4, 8), np.uint8), {"extratags": [(274, "H", 1, 6, True)]})),
    notes, says(r"page 2 \(8x4\)"), "TIFF 6.0, Orientation 6")
row(a_tiff((np.full((64, 64), 9, np.uint8), {"subifds": 1}), (np.full((32, 32), 9, np.uint8), {"subfiletype": 1})),
    all_of(size, lambda p: opened(p).volume), says(r"\(64, 64\) \| None"), "SubIFDs are smaller copies")

# ---- one odd file in a series
def with_file(change):
    """A folder with six slices, and what a function of the folder adds."""

    def given(folder):
        folder = series(folder / "s", flat())
        change(folder)
        return folder

    return given

def copy(folder):
    (folder / "03 (1)").write_bytes((folder / "03").read_bytes())

def other(name="99", shape=(16, 16), position=(0, 0, 40), rows=AXIAL, value=1500, **elements):
    given = {"SeriesNumber": 1, "RescaleSlope": 1, "RescaleIntercept": -1024,
        "PixelSpacing": [1, 1], "ImagePositionPatient": list(position), "ImageOrientationPatient": rows, **elements}
    return into(name, dicom)(np.full(shape, value, np.int16), **given)

CORONAL = [1, 0, 0, 0, 0, -1]
localizer = other("00a", (20, 24), (0, -9, 30), CORONAL, ImageType=["ORIGINAL", "PRIMARY", "LOCALIZER"])
row(with_file(copy),
    notes, says(r"axial: 6\b", r"cop"), "PS3.3 C.12.1: one SOPInstanceUID is one image", "icometrix/dicom2nifti#21")
row(with_file(localizer), notes, says(r"axial: 6\b", "localizer|orientation|1 file"),
    "PS3.3 C.8.2.1.1.1: ImageType value 3", "rordenlab/dcm2niix#168")
row(with_file(other(ImageType=["ORIGINAL", "PRIMARY", "LOCALIZER"], position=(0, 0, 30))),
    notes, says(r"axial: 6\b", "localizer|1 file"), "of the same size and orientation")
row(with_file(lambda f: (f / "Köln").mkdir()),
    notes, says(r"axial: 6\b", "the folder 'Köln'"), "what lies below is not looked into")
row(with_file(other(position=(0, 0, 30), PhotometricInterpretation="MONOCHROME1")),
    notes, says(r"axial: 6\b", "photometric|MONOCHROME1|1 file"), "one file is of another kind")
row(with_file(lambda f: (f / "05").write_bytes((f / "05").read_bytes()[:400])),
    notes, says(r"axial: 5\b", "1 file|read|cut short"), "the last file ends in its header")
row(with_file(lambda f: (f / "03").unlink()),
    notes, refused("missing"), "PS3.3 C.7.6.2.1.1: positions 10 and 20 mm", "DIAGNijmegen/rse-panimg#7")
row(with_file(other(position=(0, 0, 15))),
    notes, refused("03", "99"), "two pictures of one place", "Project-MONAI/monai-deploy-app-sdk#532")

row(a_series(flat(), change={2: {"PixelSpacing": raw("1.0\\1.000 ")}, 4: {"PixelSpacing": raw("1E0\\+1.")}}),
    count, [6, 16, 16], "PS3.5 6.2: DS is a number")
row(a_series(flat(), change={3: {"ImageOrientationPatient": raw("0.9999999\\1e-5\\0\\0\\1.0\\-0 ")}}),
    count, [6, 16, 16], "rounding", "moloney/dcmstack#55")
row(a_series(flat(), change={n: {"ImagePositionPatient": [0, 0, 5 * n + (-1) ** n * 0.02]} for n in range(6)}),
    count, [6, 16, 16], "4.96 to 5.04 mm apart", "moloney/dcmstack#55")
row(a_series(flat(), change={2: {"PhotometricInterpretation": ("CS", b" MONOCHROME2")}}),
    count, [6, 16, 16], "PS3.5 6.2: spaces around a CS do not count")

# ---- transparency
row(a_png(text_on((0, 0, 0, 0), "RGBA", (0, 0, 0, 255))), lambda p: [shown(p)[0, 0].max(), shown(p)[10, 10].max()],
    [255, 0], "on white, as Pillow's composite on white", "p2r3/convert#152")

def nibbles(folder):
    """A PNG of 16 gray levels of 4 bits (ISO 15948), 5 of which is transparent."""
    parts = [(b"IHDR", struct.pack(">IIBBBBB", 16, 1, 4, 0, 0, 0, 0)), (b"tRNS", b"\0\5")]
    parts += [(b"IDAT", zlib.compress(b"\0" + bytes(range(0x01, 0x100, 0x22)))), (b"IEND", b"")]
    body = ((kind + part, len(part)) for kind, part in parts)
    chunks = [struct.pack(">I", length) + part + struct.pack(">I", zlib.crc32(part)) for part, length in body]
    (folder / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))
    return folder / "a.png"

row(nibbles, line, gray([*range(0, 85, 17), 255, *range(102, 256, 17)]),
    "ISO 15948 11.3.2.1: the sample is of the depth of the picture")
row(a_png16(GRAY, (b"tRNS", (1000).to_bytes(2, "big"))), pixels, either(Near(np.where(GRAY == 1000, 65535, GRAY)),
    Near(np.where(GRAY == 1000, np.nan, GRAY)), refused("transparent|tRNS")), "ISO 15948 11.3.2.1")

# ---- headers that are not right
def odd(voxels=None, **header):
    return a_nifti(np.arange(64, dtype=np.int16).reshape(4, 4, 4) if voxels is None else voxels, **header)

SIDES = np.array([1, 1, 1, 1, 1, 1, 1, 1], np.float32)
NEGATIVE, ZERO = SIDES.copy(), SIDES.copy()
NEGATIVE[1], ZERO[2] = -1, 0
row(odd(qform=True, pixdim=NEGATIVE),
    facts("sagittal_mm_apart", go("list_slices")), 1, "nifti1.h: pixdim[1] is a length", "nipy/nibabel#26")
row(odd(qform=True, pixdim=ZERO),
    facts("coronal_mm_apart", go("list_slices")), either(None, refused("pixdim")), "nifti1.h: a length of 0 is none")
row(odd(scl_slope=2, scl_inter=np.nan),
    facts("min max", STATS), refused("scl_inter"), "nifti1.h: slope 2 and no intercept")
row(odd(scl_slope=np.inf, scl_inter=0), facts("min max", STATS), refused("scl_slope"), "nifti1.h: no number")
row(odd(scl_slope=0, scl_inter=7), labels, np.arange(64), "nifti1.h: if scl_slope is 0 there is no scaling")
row(odd(qform=True, quatern_b=0.9, quatern_c=0.9),
    pixels, refused("quatern"), "nifti1.h: b² + c² + d² is at most 1", "nipreps/fmriprep#845")
row(odd(qform=True, quatern_b=1.0000005),
    count, either([4, 4, 4], refused("quatern")), "w² of -1e-6 is rounding", "nipy/nibabel#625")
row(odd(srow_x=np.zeros(4), srow_y=np.zeros(4), srow_z=np.zeros(4), sform_code=1),
    pixels, refused("sform|srow|affine"), "a matrix of zeros is no place", "nipy/nibabel#624")
row(odd(sform_code=1, qform_code=1, qoffset_x=30),
    all_of(place, notes), says("-3", "qform"), "nibabel: sform before qform; the difference is said")
for offset in (0, 348):
    row(a_nifti(LABELS, vox_offset=offset),
        shown, refused("vox_offset"), "nifti1.h: at least 352; the four bytes behind the header are no voxels")
row(a_nifti(LABELS, dim=[9, 16, 16, 8, 1, 1, 1, 1]), shown, refused(r"dim\[0\]"), "nifti1.h: dim[0] is 1 to 7")

def cut(path, size):
    path.write_bytes(path.read_bytes()[:-size])
    return path

PNG = io.BytesIO()
Image.fromarray(np.arange(2500, dtype=np.uint16).reshape(25, 100).astype(np.uint8)).resize((100, 50),
    0).save(PNG, "PNG")
ENCODED = base64.b64encode(PNG.getvalue()).decode()
PREFIX = "data:image/png;base64,"
SHOWN = np.asarray(Image.open(PNG))
LINES = [ENCODED[start : start + 76] for start in range(0, len(ENCODED), 76)]
QUOTED = ENCODED.replace("+", "%2B").replace("/", "%2F")
for url, right in ((base64.encodebytes(PNG.getvalue()).decode(), Near(SHOWN)), ("\r\n".join(LINES), Near(SHOWN)),
    (" \n\t ".join(LINES) + "\n", Near(SHOWN)), (ENCODED, Near(SHOWN)), (base64.urlsafe_b64encode(PNG.getvalue(
    )).decode(), either(Near(SHOWN), refused("base64"))), (ENCODED.rstrip("="), either(Near(SHOWN), refused("base64"))),
    (QUOTED, either(Near(SHOWN), refused("base64|percent"))), ("!" + ENCODED[1:], refused("base64"))):
    row(lambda f,
        url=url: PREFIX + url, shown, right, "RFC 2045 6.8: line breaks do not count; RFC 4648 section 5; RFC 2397")

WHOLE = tile(10 * X).astype(np.uint16)

def lacking(*names, stored=WHOLE, **elements):
    return a_dicom(stored, "MR", drop=names, Modality="MR", **elements)

row(lacking("BitsStored", "HighBit"), pixels, Near(WHOLE), "PS3.3 C.7.6.3: type 1", "lamyj/dicomifier#5")
row(lacking("PhotometricInterpretation"),
    pixels, either(Near(WHOLE), refused("PhotometricInterpretation")), "PS3.3 C.7.6.3")
row(lacking("PlanarConfiguration", stored=(COLOR // 16).astype(np.uint8)),
    shown, either(Near(COLOR // 16), refused("PlanarConfiguration")), "PS3.3 C.7.6.3: type 1C")
row(lacking("PixelRepresentation"), pixels, either(Near(WHOLE), refused("PixelRepresentation")), "PS3.3 C.7.6.3")
row(lacking("SamplesPerPixel"), pixels, Near(WHOLE), "PS3.3 C.7.6.3")
row(lacking("BitsAllocated"), pixels, either(Near(WHOLE), refused("BitsAllocated")), "PS3.3 C.7.6.3")
row(lacking("Rows"), pixels, refused("Rows|no picture"), "PS3.3 C.7.6.3")
row(lambda f: replaced(dicom(f / "a.dcm", np.zeros((8, 8), np.uint8), NumberOfFrames=("IS", b"100 ")),
    b"IS\4\x00100 ", b"IS\4\x001.5 "), pixels, refused("NumberOfFrames"), "PS3.5 6.2: IS is a whole number")
row(lambda f: cut(lacking()(f), 100), pixels, refused("cut short"), "fewer bytes than pixels")
row(lacking(PhotometricInterpretation="HSV"),
    pixels, refused("color space|PhotometricInterpretation"), "PS3.3 C.7.6.3.1.2: retired")

# ---- values and units
LINEAR = gray(255 - linear(DEEP, 2048, 4096))
ONE = {"PhotometricInterpretation": "MONOCHROME1"}
row(dx(**ONE, WindowCenter=2048, WindowWidth=4096),
    facts("min max", STATS), [0, 4095], "the values that are stored", "scifio/scifio#311")
row(dx(**ONE, WindowCenter=2048, WindowWidth=4096),
    line, LINEAR, "PS3.3 C.7.6.3.1.2: the lowest value is white", "OHIF/Viewers#4116")
row(dx(**ONE, WindowCenter=1000, WindowWidth=500),
    line, gray(255 - linear(DEEP, 1000, 500)), "PS3.3 C.7.6.3.1.2: after the window", "ome/bioformats#3620")
row(a_dicom(tile(X).astype(np.uint8), "CR", Modality="CR", **ONE),
    all_of(numbers, line), says(r"\[7\.5, 0\.0, 15\.0\]", r"\[255 254"), "values as stored, shown as 255 - v")
row(dx(**ONE), lambda p: after(go("window_level", center=1000, width=500))(p)[0],
    gray(255 - ((DEEP - 750.0) / 500 * 255).clip(0, 255)), "a window of stored values; low stays white")
row(a_series(flat(), **ONE), facts("mean", go("select_slice", index=4), STATS), 40, "HU of a series")
row(a_dicom(tile(X).astype(np.uint8), "CR", Modality="CR", RescaleSlope=-10, RescaleIntercept=3000),
    all_of(numbers, line), says(r"\[2925\.0, 2850\.0, 3000\.0\]", r"\[255 238"),
    "PS3.3 C.11.1: 3000 - 10 v, the highest is white", "OHIF/Viewers#127")

FEW = np.array([[0, 24, 1024, 1064]] * 4, np.uint16)
AIR = Near([[-1024, -1000, 0, 40]] * 4)

def scaled(stored=FEW, kind="CT", **elements):
    return a_dicom(stored, kind, **elements)

row(scaled(RescaleIntercept=-1024),
    pixels, AIR, "PS3.3 C.11.1.1.2; a slope that is not there is 1", "Project-MONAI/monai-deploy-app-sdk#236")
row(scaled(RescaleIntercept=-1024), unit, "HU", "PS3.3 C.8.2.1.1.2")
row(scaled(RescaleIntercept=-1024, RescaleSlope=raw("")),
    pixels, AIR, "a blank value is none", "fo-dicom/fo-dicom#1975")
row(scaled(RescaleSlope=2), pixels, Near(FEW * 2.0), "an intercept that is not there is 0", "pydicom/pydicom#818")
row(scaled(kind="SC", RescaleSlope=1, RescaleIntercept=-1024),
    unit, "None", "PS3.4 B.5: Secondary Capture is no CT image, whatever Modality says")
row(scaled(RescaleSlope=1, RescaleIntercept=0, RescaleType="US"), unit, "None", "PS3.3 C.11.1.1.2: US is unspecified")
row(scaled(kind=None, RescaleSlope=1, RescaleIntercept=-1024), unit, "HU", "Modality CT alone")
row(scaled(RescaleSlope=1, RescaleIntercept=-1024, ImageType=["ORIGINAL", "PRIMARY", "LOCALIZER"]),
    unit, "None", "PS3.3 C.8.2.1.1.2: HU is not required of a localizer")
row(scaled(RescaleSlope=1, RescaleIntercept=-1024, RescaleType="HU", ImageType=["ORIGINAL", "PRIMARY", "LOCALIZER"]),
    unit, "HU", "it says so")
row(a_series(flat((0, 0, 0)),
    kind="PET", Modality="PT", Units="BQML", RescaleIntercept=0, change={n: {"RescaleSlope": 1 + n} for n in range(3)}),
    all_of(unit, order), says(r"None \| \[1024\.0, 2048\.0, 3072\.0\]"), "PS3.3 C.8.9.4.1.3: a slope of each slice")
DOSE = {"Modality": "RTDOSE", "DoseUnits": "GY", "DoseType": "PHYSICAL", "DoseGridScaling": raw("0.001")}
GRAYS = (np.arange(64, dtype=np.uint32) * 1000).reshape(8, 8)
row(scaled(GRAYS, "dose", **DOSE), all_of(facts("min max", STATS), unit),
    says(r"\[0\.0, 63\.", "Gy"), "PS3.3 C.8.8.3: stored value times DoseGridScaling", "bastula/dicompyler#78")
row(a_dicom(np.stack([GRAYS, GRAYS * 2, GRAYS * 3]), "dose", frames=True,
    **DOSE, FrameIncrementPointer=("AT", 0x3004000C), GridFrameOffsetVector=[0, 5, 10], PixelSpacing=[2, 2],
    ImagePositionPatient=[0, 0, 0], ImageOrientationPatient=AXIAL), order, Near([63, 126, 189]), "PS3.3 C.8.8.3")
MAPPED = item(RealWorldValueSlope=0.5, RealWorldValueIntercept=-3.0)
row(a_dicom(tile(RAMP).astype(np.uint16), "MR", Modality="MR", RealWorldValueMappingSequence=sequence(MAPPED)),
    all_of(numbers, notes),
    says("1075.0", "real-world"), "PS3.3 C.7.6.16.2.11: stored values are no real-world values", "UCL/STIR#1123")
row(frames_of(np.stack(flat((0, 10))).astype(np.uint16), [groups((0, 0, 5 * n), AXIAL, (1, 1)) for n in range(2)],
    item(RealWorldValueMappingSequence=sequence(MAPPED)), "map"), notes, says("real-world"), "PS3.3 C.7.6.16.2.11")
row(a_dicom(tile(RAMP).astype(np.uint16),
    "MR", Modality="MR", RescaleSlope=0.5, RescaleIntercept=-3, RealWorldValueMappingSequence=sequence(MAPPED)),
    all_of(numbers, notes), says("534.5", without="real-world"), "the rescale is that mapping")
row(scaled(FEW << 4, "MR", Modality="MR", BitsStored=12, HighBit=15), pixels, Near(FEW), "PS3.5 8.1.1, annex D")
row(scaled(FEW | 0xA000, "MR", Modality="MR", BitsStored=12),
    pixels, Near(FEW), "PS3.5 8.1.1: unused bits mean nothing", "pydicom/pydicom#2066")
row(scaled((np.array([[-5, -1, 0, 2047]] * 4) & 0x0FFF).astype(np.uint16),
    "MR", Modality="MR", BitsStored=12, PixelRepresentation=1),
    pixels, Near([[-5, -1, 0, 2047]] * 4), "PS3.5 8.1.1: bits beyond the sign mean nothing", "dgobbi/vtk-dicom#134")
row(scaled(WHOLE, "SC", Modality="OT", PixelAspectRatio=[2, 1]),
    lambda p: View.of(opened(p)).size, [16, 32], "PS3.3 C.7.6.3.1.7: vertical by horizontal size")
row(scaled(WHOLE, "SC", Modality="OT", PixelAspectRatio=[2, 1], PixelSpacing=[1, 1]),
    lambda p: View.of(opened(p)).size, [16, 16], "PS3.3 C.7.6.3.1.7: only without a spacing")

# ---- MetaImage and NRRD
SPOT = np.zeros((4, 5, 6), np.int16)  # z, y, x
SPOT[3, 1, 2] = 100
SPOT[0, 0, 0] = -7
LPS = {"TransformMatrix": "1 0 0 0 1 0 0 0 1", "Offset": "10 20 30", "ElementSpacing": "0.5 2 3"}
HERE = Near([11, 22, 39])  # offset + spacing times (2, 1, 3)

def mha(name="a.mha", voxels=SPOT, **fields):
    return lambda f: meta_image(f / name, voxels, **{**LPS, **fields})

def replaced(path, old, new):
    path.write_bytes(path.read_bytes().replace(old, new))
    return path

row(mha(), place, HERE, "MetaIO: Offset + TransformMatrix ElementSpacing index; ITK's frame is LPS")
row(lambda f: replaced(mha()(f), b" = ", b"\t=\t"), place, HERE, "MetaIO: any blanks around =")
row(mha(ElementToIntensityFunctionSlope="2"), notes,
    says("ElementToIntensityFunction is not applied"), "MetaIO: intensity = slope element + offset; ITK leaves it out")
row(mha("a.mhd", data="a.zraw", packed=True), place, HERE, "MetaIO: CompressedData is zlib")
row(mha(order=">"), place, HERE, "MetaIO: BinaryDataByteOrderMSB")
row(mha(order=">", BinaryDataByteOrderMSB=None, ElementByteOrderMSB="True"),
    place, HERE, "MetaIO: ElementByteOrderMSB says the same")
row(mha(TransformMatrix="0 1 0 -1 0 0 0 0 1"),
    place, Near([8, 21, 39]), "MetaIO: the matrix holds one direction after another")
row(mha(ElementSpacing=None, ElementSize="0.5 2 3"),
    facts("axial_mm_apart", go("list_slices")), 3, "MetaIO: ElementSize stands in for ElementSpacing")
row(lambda f: [mha(f"{kind}.mha", np.arange(60).reshape(3, 4, 5).astype(kind))(f) for kind in ("u1", "i1",
    "u2", "i4", "f4", "f8")], lambda p: [labels(one) for one in p], Near([np.arange(60)] * 6), "MetaIO: ElementType")
row(a_mha(SPOT[3], TransformMatrix="1 0 0 1", Offset="0 0", ElementSpacing="1 1"), size, [6, 5], "MetaIO: NDims 2")
row(lambda f: [mha("a.mhd", data="a.raw")(f), (f / "a.raw").unlink()][0],
    pixels, refused("data file|a.raw|ElementDataFile"), "the data file is missing")
row(lambda f: [nifti(f / "a.nii", SQUARE), meta_image(f / "b.mha", (SQUARE[::-1, ::-1] > 0).T.astype(np.uint8),
    Offset="-19 -19 0")], overlaid(), BOX, "nibabel and ITK: RAS (i, j) is LPS (-i, -j)")

NOWHERE = {"space": None, "space_directions": None, "space_origin": None}
ORIGIN = {"space_origin": "(10,20,30)", "space_directions": "(0.5,0,0) (0,2,0) (0,0,3)"}

def nearly(name="a.nrrd", voxels=SPOT, **fields):
    return lambda f: nrrd(f / name, voxels, **{**ORIGIN, **fields})

row(nearly(), place, HERE, "NRRD: space origin + space directions index")
row(nearly(encoding="gzip"), place, HERE, "NRRD: encoding gzip")
row(nearly("a.nhdr", data="a.raw.gz", encoding="gzip"),
    place, HERE, "NRRD: data file, encoding gzip", "Slicer/Slicer#8694")
row(nearly(order=">"), place, HERE, "NRRD: endian")
row(nearly(space="right-anterior-superior"),
    place, Near([-11, -22, 39]), "NRRD: x to the right, y to the front", "MIC-DKFZ/BodyPartRegression#12")
row(nearly(space="left-anterior-superior"),
    place, Near([11, -22, 39]), "NRRD: x to the left, y to the front", "InsightSoftwareConsortium/ITK#5207")
row(nearly(space_directions="(0,0.5,0) (2,0,0) (0,0,3)"), place, Near([12, 21, 39]), "NRRD: a direction for each axis")
row(nearly(**{**NOWHERE, "spacings": "0.5 2 3"}), facts("axial_mm_apart sagittal_mm_apart", go("list_slices")),
    [3, 0.5], "NRRD: spacings without a place", "JuliaImages/Images.jl#86")
row(nearly(**NOWHERE), lambda p: opened(p).volume.sides, None, "no letters without a place")
row(lambda f: [nearly(f"{kind}.nrrd", np.arange(60).reshape(3, 4, 5).astype(kind))(f) for kind in ("u1",
    "i2", "u2", "i4", "f4", "f8")], lambda p: [labels(one) for one in p], Near([np.arange(60)] * 6), "NRRD: type")
row(nearly(space="scanner-xyz"), lambda p: opened(p).volume.sides, None, "NRRD: no space of the patient")
row(nearly(**{**NOWHERE, "spacings": "500 2000 3000", "units": '"um" "um" "um"'}),
    pixels, refused("units"), "NRRD: units of each axis")
row(lambda f: replaced(nearly()(f), b"# a comment", b"sizes:=1 1 1\ntype:=float\n# a comment"),
    place, HERE, "NRRD: key:=value is no field")
row(lambda f: replaced(nearly("a.nhdr", data="a.raw")(f), b"data file", b"byteskip: -1\nDatafile"),
    place, HERE, "NRRD: byteskip and datafile are written in one word, too")

# ---- what is inside of a mask
PATCHED = np.zeros((32, 32), np.uint8)
PATCHED[8:24, 8:24] = 1
QUARTER = Near(0.25, 1e-6)
INSIDE = go("overlay_mask", image="image_2")
SHARE = facts("share_of_view", INSIDE)
SOFT = cv2.GaussianBlur(PATCHED * 255, (3, 3), 0)
BESIDE = np.full((32, 32), 9, np.uint8)

def inside(mask, ask=SHARE, right=QUARTER, source="", report="", image=BESIDE):
    """Adds a row: a mask in memory or a function that writes one, beside a picture of its size."""
    row(lambda f: [one(f) if callable(one) else one for one in (image, mask)], ask, right, source, report)

def volume_of(values, name="b.nii", **header):
    return lambda f: nifti(f / name, np.stack([np.asarray(values).T] * 3, 2), **header)

TOLD = text(INSIDE)
VOIDED = np.where(PATCHED > 0, 15, np.where(np.arange(32) < 4, 255, 0)).astype(np.uint8)
CHANNELS = np.dstack([SOFT, np.roll(SOFT, 4, 1), SOFT * 0])
inside(np.where(PATCHED > 0, 0.9, 0.02), source="probabilities from one half", report="xuebinqin/U-2-Net#71")
inside(np.where(PATCHED > 0, 0.9, 0.02), TOLD, says("probabilities from one half"))
inside(np.where(PATCHED > 0, 1.06, -0.04), source="a spline goes beyond 0 and 1")
inside(np.where(PATCHED > 0, 0.9, np.nan), source="NaN is not inside")
inside(np.where(PATCHED > 0, 2.5, 0), TOLD, refused("whole numbers|0 to 1"), "neither labels nor probabilities")
MINUS = np.where(PATCHED > 0, 3, -1).astype(np.int16)
inside(MINUS, source="-1 is background", report="open-mmlab/mmsegmentation#2332")
inside(MINUS, TOLD, says("below 0"))
inside(PATCHED * 117.0, source="labels as floats")
inside((PATCHED * np.arange(1, 33)).astype(np.uint8), source="many labels of small numbers, as of TotalSegmentator")
inside((PATCHED * np.arange(900, 932)).astype(np.uint16), source="instances are numbered")
inside(lambda f: picture(f / "b.jpg", PATCHED * 255),
    source="JPEG: from one half", report="arahusky/Tensorflow-Segmentation#11")
inside(SOFT, source="OpenCV: the blur of a straight edge is half at the edge")
inside(SOFT, TOLD, says("128 of 255"))
inside(SOFT.astype(np.uint16) * 257, source="16 bits alike")
inside(volume_of(SOFT), source="and voxels", image=volume_of(PATCHED, "a.nii"))
inside(CHANNELS, right=Near(0.3125, 1e-6),
    source="two channels of soft edges: 20 of 32 columns, half of the rows", report="askerlee/segtran#44")
inside(np.dstack([PATCHED, PATCHED * 0, PATCHED * 0]), TOLD, says("channels"), "channels are not told apart")
inside(VOIDED, source="255 beside labels is void", report="CAMMA-public/Endoscapes#5")
inside(VOIDED, TOLD, says("255 is taken as void"))
inside(np.where(VOIDED[..., None] == 255, (224, 224, 192), VOIDED[..., None] // 15 * (128, 0, 128)).astype(np.uint8),
    source="PASCAL VOC: void is (224, 224, 192)")
WHITE = np.dstack([PATCHED * 255] * 3 + [PATCHED * 0 + 255])
inside(WHITE, source="nothing is transparent: black is outside")
inside(lambda f: tiff(f / "b.tif", np.dstack([PATCHED * 0] * 3 + [PATCHED * 255]),
    photometric="rgb", extrasamples=["unassalpha"]), source="a mask that stands in its opacity")
for wide in (np.int64, np.uint16, np.float32):
    inside(VOIDED.astype(wide), source="255 is void in other types, as of PyTorch")
inside(np.where(np.arange(32)[:, None] == 16, 1, np.where(np.arange(32) < 8, 255, 0)).astype(np.uint8),
    right=Near(1 / 32, 1e-6), source="a label of one pixel's width beside void")
inside(np.kron(np.arange(0, 256, 16).reshape(4, 4), np.ones((8, 8))).astype(np.uint8), right=Near(15 / 16, 1e-6),
    source="many classes of flat parts are labels", report="CSAILVision/semantic-segmentation-pytorch#164")
inside(np.dstack([PATCHED * 200, PATCHED * 0, PATCHED * 0, SOFT]), source="soft opacity from one half")
inside(np.stack([PATCHED] * 3), TOLD, refused("shape"), "three channels before rows are no picture")
inside(lambda f: nifti(f / "b.nii", np.stack([PATCHED] * 6, 2).reshape(32, 32, 3, 2)), TOLD,
    refused("2 stacks", "channels"), "one of several channels is not taken for all", image=volume_of(PATCHED, "a.nii"))
inside(lambda f: tiff(f / "b.tif", *[PATCHED] * 3), text(go("select_slice", index=1, plane="coronal"), INSIDE),
    refused("plane"), "pages have no coronal plane", image=volume_of(PATCHED, "a.nii"))
for full, value in ((100, 60), (255, 128), (255, 1)):
    inside(lambda f, full=full, value=value: segmentation(f / "b.dcm",
        [PATCHED * value + (value > 1) * (full * 2 // 5) * (1 - PATCHED)] * 3, (0, 5, 10), kind="FRACTIONAL",
        MaximumFractionalValue=full), source="PS3.3 C.8.20.2.3: of MaximumFractionalValue, from one half",
        report="dcmjs-org/dcmjs#309", image=a_series(flat((0, 0, 0), (32, 32))))

# ---- colors of another space than sRGB
DIM, LINEAR_RGB = np.full((16, 16, 3), 55, np.uint8), profile()
BRIGHT = Near([255 * (1.055 * (55 / 255) ** (1 / 2.4) - 0.055)] * 3, 1.5)  # 128
IEC = "IEC 61966-2-1: the curve of sRGB, of linear values"

def first(where):
    return shown(where).reshape(256, -1)[0]

def chunked(name, content):
    return a_png16(DIM.astype(np.uint16) * 257, (name, content))

def png8(*chunks, mode="RGB"):
    def given(folder):
        extra = PngInfo()
        for name, content in chunks:
            extra.add(name, content)
        return picture(folder / "a.png", Image.fromarray(DIM).convert(mode), pnginfo=extra)

    return given

def exif(space):
    tags = Image.Exif()
    tags.get_ifd(0x8769)[0xA001] = space
    return lambda f: picture(f / "a.jpg", DIM, exif=tags)

for name, options in (("a.png", {}), ("a.jpg", {}), ("a.tif", {}), ("a.webp", {"lossless": True})):
    row(lambda f, name=name, more=options: picture(f / name, DIM, icc_profile=LINEAR_RGB, **more),
        first, BRIGHT, IEC, "python-pillow/Pillow#2594")
row(a_png(np.dstack([DIM, DIM[..., 0] + 200]), icc_profile=LINEAR_RGB), first, BRIGHT, IEC)
row(lambda f: Image.open(picture(f / "a.png", DIM, icc_profile=LINEAR_RGB)), first, BRIGHT, IEC)
row(a_png(DIM, icc_profile=LINEAR_RGB), lambda p: open_picture(p).getpixel((0, 0)), BRIGHT, IEC)
row(lambda f: bmp(f / "a.bmp", DIM, b"MBED", LINEAR_RGB), first, BRIGHT, IEC)
row(a_dicom(DIM, "SC", ICCProfile=LINEAR_RGB), first, BRIGHT, "PS3.3 C.11.15")
row(a_dicom(DIM, "SC", OpticalPathSequence=sequence(item(ICCProfile=LINEAR_RGB))), first, BRIGHT, "PS3.3 C.8.12.5")
row(a_png(DIM, icc_profile=LINEAR_RGB), notes, says("converted"), "said")
row(a_png(DIM, icc_profile=ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")) .tobytes()),
    all_of(first, notes), says(r"\[55 55 55\] \| $"), "nothing to do, and nothing to say")
row(a_png(DIM[..., 0], icc_profile=profile(b"GRAY")),
    all_of(first, notes), says(r"\[55\]", "profile"), "gray values are measured, and stay")
row(lambda f: picture(f / "a.jpg", Image.new("CMYK", (16, 16)), icc_profile=profile(b"CMYK")),
    notes, says("profile"), "not applied", "cgwire/zou#1188")
row(a_png(DIM, icc_profile=b"no profile"),
    all_of(first, notes), says(r"\[55 55 55\]", "profile"), "a damaged profile costs no picture", "pbs/its#180")
row(chunked(b"iCCP", b"x\0\0" + zlib.compress(LINEAR_RGB)), notes, says("profile"), "16 bits stay as stored")
row(chunked(b"gAMA", struct.pack(">I", 100000)), notes, says("gamma 1"), "ISO 15948 11.3.3.2")
row(png8((b"gAMA", struct.pack(">I", 100000))), notes, says("gamma 1"), "ISO 15948 11.3.3.2")
row(png8((b"gAMA", struct.pack(">I", 45455))), lambda p: opened(p).notes == (), 1, "that of sRGB")
row(png8((b"sRGB", b"\0"), (b"gAMA", struct.pack(">I", 100000))),
    lambda p: opened(p).notes == (), 1, "ISO 15948 11.3.3.5: sRGB goes first")
row(png8((b"cHRM", struct.pack(">8I", 31270, 32900, 68000, 32000, 26500, 69000, 15000, 6000))),
    notes, says("primaries"), "Display P3")
row(png8((b"cICP", bytes((12, 13, 0, 1)))), notes, says("cICP"), "PNG 3, 11.3.2.6: Display P3")
row(png8((b"tEXt", b"gamma\0x"), (b"tEXt", b"chromaticity\0x")),
    lambda p: opened(p).notes == (), 1, "a text of that name is no chunk")
row(exif(2), notes, says("Adobe RGB"), "EXIF ColorSpace 2, as cameras write it")
row(exif(65535), notes, says("uncalibrated"), "EXIF 2.32, ColorSpace")
row(exif(1), lambda p: opened(p).notes == (), 1, "EXIF 2.32, ColorSpace")

HIDDEN = np.tile(np.arange(0, 256, 17, dtype=np.uint8), (16, 1))
EMPTY = HIDDEN * 0
CLEAR = np.dstack([HIDDEN, HIDDEN, HIDDEN, EMPTY])
for given in (a_png(CLEAR), a_png(CLEAR + np.uint8([0, 0, 0, 9])), a_png16(CLEAR.astype(np.uint16) * 257),
    npy(CLEAR), a_png(Image.fromarray(HIDDEN).convert("P"), transparency=bytes(256)),
    lambda f: picture(f / "a.webp", CLEAR, lossless=True, exact=True),
    a_tiff(CLEAR, photometric="rgb", extrasamples=["unassalpha"]), lambda f: bmp(f / "a.bmp", CLEAR)):
    row(given, line, gray(np.stack([HIDDEN[0]] * 3, 1)), "a picture of which nothing could be seen", "golang/go#54368")
    row(given, notes, says("transparent everywhere"), "said")
row(a_png(np.dstack([HIDDEN, EMPTY])), all_of(line, notes), says(r"^\[  0  17", "transparent everywhere"), "gray alike")
row(a_png(CLEAR * 0),
    all_of(levels, lambda p: opened(p).notes), says(r"\[255\] \| \(\)"), "nothing is there to be seen")

# ---- statistics of floats
LARGE = (1e6 + np.random.default_rng(0).normal(size=(64, 64))).astype(np.float32)
NEXT = np.where(np.eye(16) > 0, np.nextafter(np.float32(100), np.float32(200)), np.float32(100))
BELOW = go("get_intensity_stats", box=[0, 0.5, 1, 1])
row(npy(np.where(np.arange(64).reshape(8, 8) < 9, 614454277, 2**24).astype(np.int32)),
    all_of(facts("mean std min", BELOW), facts("histogram", BELOW)),
    says(r"\[16777216\.0, 0\.0, 16777216\.0\] \| \(0, 0, 0, 0, 0, 32, 0, 0, 0, 0\)"), "one value", "numpy/numpy#27148")
row(npy(NEXT),
    facts("mean std", STATS), Near([NEXT.astype(float).mean(), NEXT.astype(float).std()], 1e-12), "numpy, float64")
row(npy(NEXT), facts("histogram", STATS), [240, *[0] * 8, 16], "two values, in the first and last bin")
row(npy(LARGE),
    facts("std", STATS), Near(LARGE.astype(float).std(), 1e-4), "numpy, float64", "xarray-contrib/xarray-spatial#2831")
row(npy(np.full((64, 64), 12345.67, np.float32)), facts("std", STATS), Near(0, 0), "one value")

# ---- parts of a DICOM file: tiles of a slide, slices of a mosaic
SLIDE = (np.arange(40 * 25 * 3) % 250).astype(np.uint8).reshape(40, 25, 3)
TILE_PLACES = [(y, x) for y in (0, 16, 32) for x in (0, 16)]
TILES = [np.pad(SLIDE, ((0, 8), (0, 7), (0, 0)))[y : y + 16, x : x + 16] for y, x in TILE_PLACES]
MATRIX = {"Modality": "SM", "TotalPixelMatrixRows": 40, "TotalPixelMatrixColumns": 25}
C7617 = "PS3.3 C.7.6.17.3, C.8.12.14: tiles of the total pixel matrix"

def at(y, x, path=None, segment=None, **more):
    place = item(RowPositionInTotalImagePixelMatrix=y + 1, ColumnPositionInTotalImagePixelMatrix=x + 1, **more)
    named = {} if path is None else {"OpticalPathIdentificationSequence": sequence(item(OpticalPathIdentifier=path))}
    if segment is not None:
        named["SegmentIdentificationSequence"] = sequence(item(ReferencedSegmentNumber=segment))
    return item(PlanePositionSlideSequence=sequence(place), **named)

def slide(tiles, places=None, kind="slide", **elements):
    groups = {} if places is None else {"PerFrameFunctionalGroupsSequence": sequence(*places)}
    return a_dicom(np.stack(tiles), kind, frames=True, **{**MATRIX, **groups, **elements})

ONCE = [at(*place) for place in TILE_PLACES]
GRAYS_OF_TILES = [tile[..., 0] for tile in TILES]
SEGMENT = {"Modality": "SEG", "SegmentationType": "LABELMAP"}
row(slide(TILES), pixels, Near(SLIDE), C7617 + "; the last ones are cut")
row(slide(TILES[::-1], ONCE[::-1]), pixels, Near(SLIDE), C7617)
row(slide(TILES[:5], ONCE[:5]),
    all_of(facts("pixels_not_measured", STATS), notes), says("^72 ", "7.2%"), C7617 + "; 8 x 9 pixels are in no tile")
row(slide([np.repeat(np.arange(256, dtype=np.uint8), 3).reshape(16, 16, 3)], [at(0, 0)]),
    facts("min max pixels_not_measured", STATS), [0, 255, 1000 - 256], "0 and 255 are measured")
row(slide(TILES[:5]), pixels, refused("5 tiles", "25x40", "6"), "nobody knows which one is missing")
row(slide(TILES[:2], ONCE[:1] * 2), pixels, refused("one place"), "two tiles, one place")
row(slide([*GRAYS_OF_TILES, *(tile + 1 for tile in GRAYS_OF_TILES)]),
    lambda p: opened(p).volume.get_slice(1).pixels, Near(SLIDE[..., 0] + 1), C7617 + "; then by optical paths")
row(slide([part for tile in GRAYS_OF_TILES for part in (tile, tile + 1)],
    [at(*place, path) for place in TILE_PLACES for path in "ab"]),
    all_of(lambda p: opened(p).volume.get_slice(1).pixels[0, 1], notes), says("^4 ", "2 layers"), C7617)
row(slide(GRAYS_OF_TILES[:2], [at(0, 0, ZOffsetInSlideCoordinateSystem=float(z)) for z in (0, 1)]),
    notes, says("2 layers"), "PS3.3 C.8.12.6.1")
row(slide(TILES, TotalPixelMatrixRows=60000, TotalPixelMatrixColumns=70000),
    pixels, refused("70000x60000", "6 tiles", "1.0 GiB"), "a size beyond the limit")
row(slide(np.zeros((4097, 1, 1), np.uint8)), pixels, refused("25x40", "4097 tiles", "4096"), "the limit")
row(slide(GRAYS_OF_TILES[:1] * 2, [at(0, 0, segment=2), at(16, 0, segment=5)], "SEG", Modality="SEG",
    SegmentationType="BINARY"), lambda p: opened(p).pixels[[1, 20, 0], [1, 1, 20]], [2, 5, 0], "PS3.3 C.8.20.2.2")
row(slide(np.eye(6, dtype=np.uint8)[:, :, None, None].repeat(16, 2).repeat(16, 3)[:, 0] * 3, ONCE, "labels", **SEGMENT),
    lambda p: opened(p).pixels[[0, 0], [0, 20]], [3, 0], "PS3.3 C.8.20.3")
row(a_series(flat((0,)), ImageType=["ORIGINAL", "PRIMARY", "M", "MOSAIC"]),
    all_of(notes, lambda p: opened(p).volume), says("mosaic", "None$"), "Siemens", "rordenlab/dcm2niix#839")
row(a_series(flat(), ImageType=["ORIGINAL", "PRIMARY", "M", "MOSAIC"]),
    pixels, refused("mosaic"), "six mosaics are no stack")

# ---- what lies over the pixels: overlays and shutters
def plane(group=0x6000, mask=None, bit=0):
    mask = np.zeros((16, 16), np.uint8) if mask is None else mask
    parts = {0x10: ("US", 16), 0x11: ("US", 16), 0x40: ("CS", "G"), 0x50: ("SS", [1, 1]), 0x102: ("US", bit)}
    parts |= {} if bit else {0x3000: ("OW", np.packbits(mask.ravel(), bitorder="little").tobytes())}
    return {(group << 16) + part: value for part, value in parts.items()}

def marked_by(*planes, stored=WHOLE, kind="DX", frames=False, **elements):
    def given(folder):
        path = dicom(folder / "a.dcm", stored, kind, frames=frames, Modality=kind[:2], **elements)
        dataset = pydicom.dcmread(path)
        for tags in planes:
            for tag, value in tags.items():
                dataset.add_new(tag, *value)
        dataset.save_as(path)
        return path

    return given

row(marked_by(plane()), notes, says("overlay planes .*: 1"), "PS3.3 C.9.2")
row(marked_by(plane(bit=12), stored=WHOLE | 0x1000, BitsStored=12),
    all_of(notes, numbers), says("overlay planes .*: 1", r"75\.0"), "PS3.5 8.1.2, retired")
row(marked_by(plane(0x6002), plane(0x601E), stored=np.stack([WHOLE] * 2), kind="XA", frames=True),
    notes, says("overlay planes .*: 2"), "PS3.5 7.6: 6000 to 601E")
EDGES = dict(zip(("Left", "Right", "Upper", "Lower"), (3, 14, 4, 12), strict=True))
RECTANGLE = {f"Shutter{side}{'Vertical' if side in ('Left', 'Right') else 'Horizontal'}Edge": n for side,
    n in EDGES.items()} | {"ShutterShape": "RECTANGULAR"}
CIRCLE = {"ShutterShape": "CIRCULAR", "CenterOfCircularShutter": [9, 9], "RadiusOfCircularShutter": 5}
CORNERS_OF = {"ShutterShape": "POLYGONAL", "VerticesOfThePolygonalShutter": [4, 3, 4, 14, 12, 14, 12, 3]}
Y, X1 = np.mgrid[1:17, 1:17]
IN_RECTANGLE = (X1 >= 3) & (X1 <= 14) & (Y >= 4) & (Y <= 12)
IN_CIRCLE = (X1 - 9) ** 2 + (Y - 9) ** 2 <= 25
C7611 = "PS3.3 C.7.6.11: rows and columns count from 1"
BITMAP = {"ShutterShape": "BITMAP", "ShutterOverlayGroup": 0x6000}
for elements, inside in ((RECTANGLE, IN_RECTANGLE), (CIRCLE, IN_CIRCLE), (CORNERS_OF, IN_RECTANGLE),
    ({**CIRCLE, **RECTANGLE, "ShutterShape": ["RECTANGULAR", "CIRCULAR"]}, IN_RECTANGLE & IN_CIRCLE),
    ({**RECTANGLE, "PixelPaddingValue": ("US", 100)}, IN_RECTANGLE & (WHOLE != 100))):
    row(marked_by(**elements), pixels, Near(np.where(inside, WHOLE, np.nan)), C7611)
row(marked_by(plane(mask=IN_CIRCLE), plane(0x6002), **BITMAP),
    all_of(pixels, notes), says("nan", "overlay planes .*: 1"), "PS3.3 C.7.6.15: the shutter's own plane is no mark")
row(marked_by(plane(mask=IN_CIRCLE), **BITMAP),
    pixels, Near(np.where(IN_CIRCLE, np.nan, WHOLE)), "PS3.3 C.7.6.15: 1 is covered")
row(marked_by(stored=np.stack([WHOLE.astype(np.uint8)] * 3, -1), kind="SC", **RECTANGLE),
    facts("min max pixels_not_measured", STATS), [20, 130, 256 - 108], C7611)
row(a_dicom(np.stack([WHOLE] * 2), "XA", frames=True,
    PerFrameFunctionalGroupsSequence=sequence(item(FrameDisplayShutterSequence=sequence(item(**RECTANGLE))), item())),
    lambda p: np.sum(opened(p).volume.get_slice(0).measured), 108, "PS3.3 C.7.6.16.2.16")
row(marked_by(**RECTANGLE, PhotometricInterpretation="MONOCHROME1"),
    lambda p: shown(p)[0, 0], 255, "not measured is drawn as the lowest")
row(marked_by(**{**CORNERS_OF, "VerticesOfThePolygonalShutter": [3, 3]}),
    all_of(notes, numbers), says("not applied", r"75\.0"), "a polygon has three", "nroduit/Weasis#236")
row(marked_by(**{**CIRCLE, "CenterOfCircularShutter": [99, 99]}), notes, says("not applied"), C7611)
row(marked_by(), notes, says("^$"), "neither is there")

# ---- lengths of an ultrasound
def region(left, right, dx, dy=None, unit=3):
    return item(RegionLocationMinX0=left, RegionLocationMinY0=0, RegionLocationMaxX1=right, RegionLocationMaxY1=99,
        PhysicalUnitsXDirection=unit, PhysicalUnitsYDirection=3, PhysicalDeltaX=dx, PhysicalDeltaY=dy or dx)

def ultrasound(*regions, frames=False, **elements):
    stored = np.zeros((3, 100, 200) if frames else (100, 200), np.uint8)
    elements |= {"SequenceOfUltrasoundRegions": sequence(*regions)} if regions else {}
    kind = "US multi" if frames else "US"
    return a_dicom(stored, kind, frames=frames, Modality="US", **elements)

C855 = "PS3.3 C.8.5.5: Physical Delta in centimeters, of its region"
ONE_MM = {"PixelSpacing": [1, 1]}
TWO = (region(0, 99, 0.02), region(100, 199, 0.05))
LEFT_HALF, RIGHT_HALF = measured([0.1, 0.1], [0.3, 0.1]), measured([0.6, 0.1], [0.8, 0.1])
ACROSS = measured([0.1, 0.1], [0.9, 0.1])
for given, ask, right in (
    (ultrasound(region(0, 199, 0.05), **ONE_MM), LEFT_HALF, 20), (ultrasound(*TWO, **ONE_MM), LEFT_HALF, 8),
    (ultrasound(*TWO), RIGHT_HALF, 20), (ultrasound(*TWO), ACROSS, None), (ultrasound(TWO[0]), RIGHT_HALF, None),
    (ultrasound(region(0, 199, 0.02), region(0, 99, 0.05)), LEFT_HALF, None),
    (ultrasound(region(0, 199, 0.02), region(0, 99, 0.02)), LEFT_HALF, 8),
    (ultrasound(region(0, 199, 0.05, -0.05)), LEFT_HALF, 20),
    (ultrasound(region(0, 199, 0.01, unit=4), **ONE_MM), LEFT_HALF, None),  # seconds
    (ultrasound(region(0, 199, 0.05), frames=True), LEFT_HALF, 20), (ultrasound(**ONE_MM), LEFT_HALF, 40),
):
    row(given, ask, right, C855, "nroduit/Weasis#227")
row(ultrasound(region(0, 199, 0.02, 0.04)), lambda p: View.of(opened(p)).size, [200, 200], C855)
row(ultrasound(*TWO), text(go("measure", point1=[0.1, 0.1], point2=[0.9, 0.1])), says("one region"), C855)
row(ultrasound(TWO[0], region(100, 199, 0.01, unit=4)), notes, says("region.*: 1 of 2"), C855)

# ---- angiography: a Modality LUT that is not for display
BEAM = item(LUTDescriptor=("US", [256, 0, 16]), LUTData=("US", [n * n // 16 for n in range(256)]), ModalityLUTType="US")
LOGARITHMIC = {"PixelIntensityRelationship": "LOG"}
for kind in ("XA", "XRF"):
    row(a_dicom(tile(16 * X).astype(np.uint8),
        kind, Modality=kind[:2], ModalityLUTSequence=sequence(BEAM), **LOGARITHMIC), all_of(numbers, notes),
        says(r"\[120\.0, 0\.0, 240", "Modality LUT"), "PS3.3 C.8.7.1.1.3; DCMTK, dcm4che", "fo-dicom/fo-dicom#1442")
row(a_dicom(WHOLE, "XA", Modality="XA", RescaleSlope=2, RescaleIntercept=5, **LOGARITHMIC),
    all_of(numbers, notes), says(r"\[75\.0, 0", "rescale"), "as dcm4che", "dcm4che/dcm4che#688")
row(a_dicom(WHOLE, "XA", Modality="XA", RescaleSlope=1, RescaleIntercept=0, **LOGARITHMIC),
    notes, says("^$"), "nothing is left out")

# ---- which side is which
def sided(*words, kind="DX", **elements):
    stored = np.zeros((64, 64, 3) if kind == "photo" else (64, 64), np.uint8)
    return a_dicom(stored, kind, Modality="DX", PatientOrientation=list(words), **elements)

def sides(*calls):
    return lambda p: str(_call(p, calls)[0].sides if calls else opened(p).sides)

C7611S = "PS3.3 C.7.6.1.1.1: where rows and columns lead"
for given, right in ((sided("L", "F"), "RLHF"),
    (sided("R", "F", kind="CR"), "LRHF"), (sided("A", "FR", kind="MG"), "PAHF"), (sided("P", "L", kind="MG"), "APRL"),
    (sided("L", "F ", kind="photo"), "RLHF"), (sided("", ""), "None"), (sided("L"), "None"), (sided("L", "RF"), "None"),
    (sided("X", "F"), "None"), (sided("R", "F", AnatomicalOrientationType="QUADRUPED"), "None"),
    (sided(kind="photo", ImageOrientationPatient=[-1, 0, 0, 0, 1, 0]), "LRAP")):
    row(given, sides(), right, C7611S, "danishm/mritopng#27")
row(sided("L", "F"), lambda p: View.of(opened(p)).to_picture().max(), 255, "letters are drawn")
row(sided("L", "F"), sides(go("rotate")), "FHRL", "turned clockwise, the feet are on the left")
row(sided("L", "F"), sides(go("flip_horizontal")), "LRHF", "left and right change places")
row(sided("L", "RF"), notes, says("PatientOrientation"), C7611S)
row(a_dicom(np.zeros((3, 64, 64), np.uint8), "XA", frames=True, Modality="XA", PatientOrientation=["L", "F"]),
    sides(go("select_slice", index=2)), "RLHF", C7611S)
MIRRORED = [-1, 0, 0, 0, 1, 0]
RISING = tile(10 * X).astype(np.int16)
for given in (lambda f: series(f / "s", [RISING], rows=MIRRORED) / "00", a_series([RISING], rows=MIRRORED),
    frames_of(RISING[None], [groups((0, 0, 0))], groups(rows=MIRRORED, spacing=(1, 1), scale=(1, -1024, "HU"))),
    a_dicom(RISING[None].astype(np.uint16), "dose",
    frames=True, **DOSE, PixelSpacing=[1, 1], ImagePositionPatient=[0, 0, 0], ImageOrientationPatient=MIRRORED)):
    row(given, lambda p: [opened(p).sides == "RLAP", np.argmax(opened(p).pixels[0])],
        [1, 0], "PS3.3 C.7.6.2.1.1: columns lead to the right", "epam/mriviewer#250")
row(lambda f: [series(f / "s", flat((0,))) / "00", segmentation(f / "b.dcm", PATCH[:1], [0])],
    facts("box", go("overlay_mask", image="image_2")), CORNER, "one slice, and a segment of one frame")
row(lambda f: [series(f / "s", flat((0,)), rows=MIRRORED) / "00", picture(f / "b.png", PATCH[0])],
    all_of(facts("box", go("overlay_mask", image="image_2")), text(go("overlay_mask", image="image_2"))),
    says(r"0\.5, 0\.25, 0\.75, 0\.5", "as both are stored"), "the picture of a mask is turned with the slice")
row(lambda f: [picture(f / "a.png", PATCH[0]), nifti(f / "b.nii", PATCH[0].T[:, :, None])],
    facts("box", go("overlay_mask", image="image_2")), CORNER, "the only slice of a volume is as its file has it")

row(lambda f: [other("a", position=(0, 0, 10))(f), other("b", position=(0, 0, 40))(f)],
    text(beside), says(r"30\.0 mm away"), "two files of one slice, 30 mm apart")

# ---- several slices at one place that are no times
def stacks_of(*each, skip=()):
    """A folder with three places for each of some elements, the values of which tell the stacks."""

    def given(folder):
        number = 0
        for stack, own in enumerate(each):
            for z in range(3):
                number += 1
                if (stack, z) not in skip:
                    common = {"ImagePositionPatient": [0, 0, 5 * z], "ImageOrientationPatient": AXIAL, "Modality": "MR"}
                    named = {**common, "SeriesNumber": 1, "InstanceNumber": number, **own}
                    dicom(folder / "s" / f"{stack}{z}", np.full((8, 8), 10 * stack + z, np.uint16), "MR", **named)
        return folder / "s"

    return given

def by_time(where):
    volume = opened(where).volume
    return [float(volume.at_time(time).get_slice(2).pixels[0, 0]) for time in range(volume.count_times())]

for key, *values in (("EchoTime", 20, 10), ("DiffusionBValue", 1000.0, 0.0), ("TriggerTime", 30.5, 0),
    ("FrameReferenceTime", 2000, 100), ("InversionTime", 300, 50), ("FlipAngle", 30, 5), ("RepetitionTime", 1000, 500),
    ("ComplexImageComponent", "PHASE", "MAGNITUDE"), ("ImageType", ["A", "B", "P"], ["A", "B", "M"])):
    row(stacks_of(*({key: value} for value in values)),
        all_of(by_time, notes), says(r"\[12\.0, 2\.0\]", key), "PS3.3: two stacks in one series, the lower value first")
MANY = [{"EchoTime": echo, "ImageType": ["ORIGINAL", "PRIMARY", part]} for echo in (10, 20) for part in "MP"]
row(stacks_of(*MANY), all_of(by_time, notes),
    says(r"\[2\.0, 12\.0, 22\.0, 32", "EchoTime 20 and ImageType P"), "magnitude and phase of two echoes")
GRADIENTS = [{"DiffusionBValue": 0.0}, *[{"DiffusionBValue": 800.0}] * 3]
row(stacks_of(*GRADIENTS), pixels, refused("#stack=", "DiffusionBValue 0.;", "DiffusionBValue 800"),
    "nothing says which direction is which", "rordenlab/dcm2niix#253")
row(stacks_of(*GRADIENTS), lambda p: order(f"{p}#stack=3"), [20, 21, 22], "by InstanceNumber")
row(stacks_of({"EchoTime": 10}, {"EchoTime": 20}, skip=[(0, 1)]),
    pixels, refused("1 .2 slices: .*EchoTime 10", "2 .3 slices: .*EchoTime 20"), "echoes are not mixed")
row(stacks_of({"EchoTime": 10}, {"EchoTime": 20}, skip=[(0, 1)]), all_of(lambda p: order(f"{p}#stack=2"),
    lambda p: notes(f"{p}#stack=2")), says(r"\[10.0, 11.0, 12.0\]", "2 files are left out"), "the whole one")
row(stacks_of({"ImageType": ["A", "B", "SMITH"]}, {"ImageType": ["A", "B", "M"]}),
    notes, says("ImageType", without="smith"), "words of a file may say anything")
for name, inside in (("MREchoSequence", "EffectiveEchoTime"), ("MRDiffusionSequence", "DiffusionBValue"),
    ("MRModifierSequence", "InversionTimes"), ("MRTimingAndRelatedParametersSequence", "FlipAngle"),
    ("CardiacSynchronizationSequence", "NominalCardiacTriggerDelayTime")):
    each = [item(**{"PlanePositionSequence": sequence(item(ImagePositionPatient=[0, 0, 5 * z])),
        name: sequence(item(**{inside: value}))}) for value in (20.0, 10.0) for z in (0, 1)]
    numbered = np.arange(4, dtype=np.uint16).repeat(64).reshape(4, 8, 8)
    row(frames_of(numbered, each, groups(rows=AXIAL, spacing=(1, 1)), "enhanced MR", Modality="MR"),
        all_of(lambda p: opened(p).volume.times[:, :, 0, 0].tolist(), notes),
        says(r"^\[\[2, 3\], \[0, 1\]\]", inside), "PS3.3 C.8.13: functional groups of MR")

# ---- hyperstacks
STACK = np.zeros((4, 3, 2, 8, 8), np.uint16)

def hyperstack(array, axes, **options):
    def given(folder):
        tifffile.imwrite(folder / "a.tif", array, metadata={"axes": axes}, photometric="minisblack", **options)
        return folder / "a.tif"

    return given

for options in ({"imagej": True}, {"ome": True}, {}):
    row(hyperstack(STACK, "TZCYX", **options),
        notes, says("2 channels, 3 slices, 4 times", "channels fastest"), "tifffile: axes TZCYX, the last one fastest")
row(hyperstack(STACK[0].transpose(1, 0, 2, 3), "CZYX", ome=True),
    notes, says("3 slices, 2 channels", "slices fastest"), "OME: DimensionOrder XYZCT")
row(hyperstack(STACK[0, :, 0], "ZYX", imagej=True), notes, says("frames: 3", without="channel"), "a stack")
row(hyperstack(STACK[:1, :1], "TZCYX", ome=True), notes, says("are 2 channels:"), "no slices")
row(a_tiff(*P, description="ImageJ=1.53t\nchannels=2\nslices=4\n"),
    notes, says("2 channels, 4 slices", "holds 3"), "fewer pages than the description says")

# ---- boxes
def written(boxes, image, *, form="xyxy", unit="pixel", **more):
    """Writes a dataset of one row; gives the environment's settings."""

    def given(folder):
        named = image(folder) if callable(image) else image
        fields = {name: more.pop(name) for name in ("plane", "slice") if name in more}
        write_jsonl(folder / "rows.jsonl", [{"id": "1", "image": named.name, "q": "Where?", "boxes": boxes, **fields}])
        columns = {"id": "id", "image": "image", "question": "q", "boxes": "boxes", **{name: name for name in fields}}
        box = {"format": form, "unit": unit, **({"frame": more.pop("frame")} if "frame" in more else {})}
        return {"data": {"source": str(folder / "rows.jsonl"), "images": str(folder), "columns": columns, "boxes": box},
            **more}

    return given

def gold(settings):
    """The boxes of the task, or why its row is bad."""
    task = viewbox.make("grounding", **settings).tasks[0]
    if "bad_row" in task.metadata:
        raise ImageError(str(task.metadata["bad_row"]))
    return task.reference["boxes"]

def played(*replies):
    """(what the model has read before its first reply, its reward for boxes, all that it has read)."""

    def ask(settings):
        env, asked = viewbox.make("grounding", **settings), []

        def policy(messages):
            asked.append("\n".join(message.text for message in messages if message.role != "assistant"))
            return replies[min(len(asked), len(replies)) - 1]

        episode = env.play(env.tasks[0], policy)
        return asked[0], episode.scores.components.get("boxes"), asked[-1] + str(episode.end_reason) + str(episode.info)

    return ask

def scene(folder):
    drawn = np.zeros((500, 1000), np.uint8)
    drawn[100:200, 300:400] = 255
    return picture(folder / "scene.png", drawn)

CROP = '<tool_call>{"name": "crop", "arguments": {"box": [0.2, 0, 0.7, 1]}}</tool_call>'
SMALL_VIEW = {"coordinates": "pixel", "max_pixels": 5000}
SAYS_WHICH = says(r"box\w*[^.\n]*\b(whole|original|first|start)|\b(whole|original|first|start)[^.\n]*box")
row(written([[300, 100, 400, 200]], scene, **SMALL_VIEW),
    lambda s: played('{"boxes": []}')(s)[0], SAYS_WHICH, "the model must know which picture its boxes count in")
row(written([[300, 100, 400, 200]], scene, coordinates="unit"), lambda s: played(CROP,
    '{"boxes": [[0.3, 0.2, 0.4, 0.4]]}')(s)[1], Near(1, 0.01), "boxes of the whole image are right")
row(written([[300, 100, 400, 200]], scene, coordinates="unit"),
    lambda s: played(CROP, '{"boxes": [[0.2, 0.2, 0.4, 0.4]]}')(s)[1] < 0.9, 1, "boxes of the crop are not")

for settings in ({"coordinates": "per_mille"}, SMALL_VIEW):
    row(written([[300, 100, 400, 200]], scene, **settings), lambda s: played('{"boxes": [[0.3, 0.2, 0.4, 0.4]]}')(s)[2],
        says("thousand|0 to 1000|whole pixels|pixel", "fraction|0 to 1 |0 to 1,|0..1|0 and 1"),
        "an answer in another unit is not a wrong place")


row(written([[4, 4, 2, 8, 8, 3]], a_series(flat()), form="xyzxyz", frame="voxel"),
    gold, Near([[0.25, 0.25, 1 / 3, 0.5, 0.5, 0.5]]), "columns, rows, slices in the order of positions")
row(written([[4, 4, 8, 8]], other("a.dcm")), gold, Near([[0.25, 0.25, 0.5, 0.5]]), "the only slice needs no number")
row(written([[4, 4, 8, 8]], other("a.dcm", rows=MIRRORED), frame="voxel"),
    gold, Near([[0.5, 0.25, 0.75, 0.5]]), "columns lead to the right: 4 to 8 of 16 are shown as 8 to 12")
row(written([[4, 4, 8, 8]], sided("L", "F")), lambda s: played('{"boxes": []}')(s)[0],
    says("Letters at the border", without="Slices"), "a film has sides, but no slices")
# fmt: on


@pytest.mark.parametrize("case", ROWS, ids=[f"line {case.line}" for case in ROWS])
def test_a_picture_is_what_its_file_means(case, tmp_path):
    try:
        got = case.ask(case.given(tmp_path))
    except (ImageError, ConfigError) as error:
        got = Refusal(error)
    assert _fits(got, case.right), f"got {got}; right: {case.right} ({case.source})"
