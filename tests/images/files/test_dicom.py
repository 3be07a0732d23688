"""DICOM: values in their units, as pydicom computes them; and nothing of the patient in what is kept or said."""

import io
import logging
import warnings
from pathlib import Path

import numpy as np
import pydicom
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydicom.data import get_testdata_file
from pydicom.pixels import apply_modality_lut, apply_windowing, pixel_array

from tests.support import odd_images
from tests.support.image_files import damage
from tests.support.tables import each
from viewbox.errors import ImageError
from viewbox.images.files import open_image
from viewbox.images.pixels import DEPTHS
from viewbox.images.view import View


def path(name):
    return get_testdata_file(name, download=False)


def changed(name="CT_small.dcm", **elements):
    """The bytes of a bundled file with elements set, or dropped where None."""
    dataset = pydicom.dcmread(path(name))
    for keyword, value in elements.items():
        if value is None:
            delattr(dataset, keyword)
        else:
            setattr(dataset, keyword, value)
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset.save_as(file)
    return file.getvalue()


def stored(values, **elements):
    """A gray file with these values, uint8, uint16 or int16."""
    bits = values.dtype.itemsize * 8
    given = {
        "PixelData": values.tobytes(), "Rows": values.shape[-2], "Columns": values.shape[-1], "BitsAllocated": bits,
        "BitsStored": bits, "HighBit": bits - 1, "PixelRepresentation": int(values.dtype.kind == "i"),
    }  # fmt: skip
    return changed("MR_small.dcm", **{**given, "WindowCenter": None, "WindowWidth": None, **elements})


# ---- values
RAW, SMALL = pydicom.dcmread(path("CT_small.dcm")).pixel_array, pixel_array(path("MR_small.dcm"))
COUNTED = np.arange(64, dtype=np.uint16).reshape(8, 8)
COLORS = (
    "SC_rgb_rle.dcm", "SC_rgb_dcmtk_+eb+cr.dcm", "SC_rgb_dcmtk_+eb+cy+np.dcm", "SC_ybr_full_422_uncompressed.dcm",
    "SC_rgb_jpeg_dcmtk.dcm", "ExplVR_BigEnd.dcm", "SC_rgb_rle_16bit.dcm",
)  # fmt: skip
STORED = ("MR_small_RLE.dcm", "MR_small_jp2klossless.dcm", "MR_small_implicit.dcm", "MR_small_bigendian.dcm")
VALUES = [  # a file, its values, and its unit
    (changed(RescaleSlope="0.5"), (RAW * 0.5 - 1024).astype(np.float32), "HU"),
    *((stored(COUNTED.astype(dtype)), COUNTED.astype(dtype), None) for dtype in ("uint8", "uint16", "int16")),
    *((path(name), pixel_array(path(name)), None) for name in COLORS),
    *((path(name), SMALL, None) for name in ("MR_small.dcm", *STORED)),
]


@each("file, values, unit", VALUES)
def test_values_have_the_scale_and_the_unit_that_the_file_says_and_the_smallest_depth(file, values, unit):
    source = open_image(file)
    assert np.array_equal(source.pixels, values)
    assert (source.pixels.dtype, source.unit) == (values.dtype, unit)


def test_values_and_windows_are_those_of_pydicom():
    source, dataset = open_image(path("CT_small.dcm")), pydicom.dcmread(path("CT_small.dcm"))
    assert np.array_equal(source.pixels, apply_modality_lut(dataset.pixel_array, dataset))
    assert (source.unit, source.pixels.dtype) == ("HU", np.int16)
    source, dataset = open_image(path("MR_small.dcm")), pydicom.dcmread(path("MR_small.dcm"))
    windowed = apply_windowing(dataset.pixel_array, dataset) + 2**15
    assert np.abs(source.to_uint8(source.pixels) - windowed / (2**16 - 1) * 255).max() <= 0.51


def test_palettes_masks_frames_and_doses_are_pictures():
    source = open_image(path("examples_palette.dcm"))
    assert (source.pixels.shape, source.pixels.dtype) == ((350, 800, 3), np.uint8)
    assert len(np.unique(source.pixels.reshape(-1, 3), axis=0)) > 20
    source, frames = open_image(path("SC_rgb_rle_2frame.dcm")), pixel_array(path("SC_rgb_rle_2frame.dcm"))
    assert (source.volume.count_slices(), source.volume.planes) == (2, False)
    assert np.array_equal(source.volume.get_slice(1).pixels, frames[1])
    source, dataset = open_image(path("rtdose.dcm")), pydicom.dcmread(path("rtdose.dcm"))
    assert np.allclose(source.volume.voxels, dataset.pixel_array * 1e-6)  # DoseGridScaling
    assert source.unit is None  # relative
    position = [189.43125, 199.43125, -761.87 + 7 * 5]
    assert np.allclose(source.volume.affine @ [0, 0, 7, 1], [*position, 1])


# ---- spacing and window
def test_spacing_is_x_then_y_though_the_file_says_rows_first_and_none_where_it_is_none():
    for keyword in ["PixelSpacing", "ImagerPixelSpacing", "NominalScannedPixelSpacing"]:
        given = {"PixelSpacing": None, "DistanceSourceToPatient": None, keyword: [2.0, 0.5]}
        source = open_image(changed(**given))
        assert (source.spacing, source.at_detector) == ((0.5, 2.0), keyword != "PixelSpacing")
    for spacing in ([0, 1], [-1, 1], [1]):
        assert open_image(changed(PixelSpacing=spacing)).spacing is None


REFUSED = [
    (changed(RescaleSlope="0"), "rescale slope"),
    (path("MR_small_jpeg_ls_lossless.dcm"), r"no decoder .* \(JPEG-LS Lossless.*install numpy and pyjpegls>=[\d.]+$"),
    (path("SC_rgb_jpeg_gdcm.dcm"), r"install pylibjpeg>=[\d.]+ and pylibjpeg-libjpeg>=[\d.]+$"),  # JPEG Lossless
    (path("JPGExtended.dcm"), r"and pylibjpeg-libjpeg>=[\d.]+, which reads more kinds$"),  # 12 bits
    (path("MR_truncated.dcm"), r"it is cut short: 8130 of 8192 bytes of pixels$"),
    *((path(name), "holds no picture") for name in ("rtplan.dcm", "test-SR.dcm", "waveform_ecg.dcm")),
    *((changed(name, Rows=65535, Columns=65535, NumberOfFrames=9), r"9 frames of 65535x65535 pixels need .* GiB")
      for name in ("MR_small.dcm", "MR_small_RLE.dcm")),
]  # fmt: skip


@each("file, words", REFUSED)
def test_a_file_that_cannot_be_shown_says_why_and_which_package_would_read_it(file, words):
    with pytest.raises(ImageError, match=words):
        open_image(file)


# ---- privacy
SECRETS = ("Zyxw", "secret", "4711", "Clinic")


def marked(**elements):
    return changed(PatientName="Zyxw^Verysecret", PatientID="ID-4711", InstitutionName="Clinic Nine", **elements)


def everything(value, depth=6):
    """All text that can be reached from an object."""
    yield repr(value)
    if depth and hasattr(value, "__dict__"):
        for item in vars(value).values():
            yield from everything(item, depth - 1)


def test_no_identifier_is_kept_or_logged_and_the_logger_of_pydicom_is_left_as_it_was(caplog, recwarn):
    for frames in [1, 2]:
        data = pydicom.dcmread(path("CT_small.dcm")).PixelData
        source = open_image(marked(PixelData=data * frames, NumberOfFrames=frames))
        text = " ".join(everything(View.of(source)))
        assert "int16" in text
        assert not any(secret in text for secret in (*SECRETS, "1.3.6.1"))
    content = changed("MR_small.dcm").replace(b"0.3125\\0.3125", b"Verysecret\\12")
    recwarn.clear()
    level = logging.getLogger("pydicom").level
    assert open_image(content).spacing is None
    assert "secret" not in caplog.text + " ".join(str(warning.message) for warning in recwarn)
    assert logging.getLogger("pydicom").level == level


WRONG = [
    {"PixelData": b"\0\0"}, {"BitsAllocated": 13}, {"PhotometricInterpretation": "Verysecret"}, {"PixelData": None},
    {"RescaleSlope": "0"}, {"Rows": 0}, {"SamplesPerPixel": 7}, {"NumberOfFrames": 77},
]  # fmt: skip


@each("elements", WRONG)
def test_no_message_warning_or_log_quotes_the_file(elements, caplog, recwarn):
    caplog.set_level(logging.DEBUG)
    content = marked(**elements)
    recwarn.clear()
    caplog.clear()
    with pytest.raises(ImageError) as caught:
        open_image(content)
    said = f"{caught.value!r} {caught.value.__cause__!r} {caught.value.__context__!r} {caplog.text}"
    said += " ".join(str(warning.message) for warning in recwarn)
    assert not any(secret in said for secret in SECRETS)


# ---- damage
SEEDS = ("CT_small.dcm", "MR_small_RLE.dcm", "SC_rgb_jpeg_dcmtk.dcm", "MR_small_jp2klossless.dcm", "image_dfl.dcm")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SEEDS)
@settings(max_examples=15, deadline=5000)
@given(seed=st.integers(0, 2**32))
def test_a_damaged_file_is_a_right_source_or_an_image_error(name, seed):
    try:
        source = open_image(damage(Path(path(name)).read_bytes(), seed, (400, 2000)))
    except ImageError:
        return
    assert source.pixels.dtype.name in DEPTHS
    assert np.isfinite([*source.limits, *source.display]).all()


# ---- frames
def test_frames_and_slices_keep_their_own_depth_and_padding(tmp_path):
    frames = np.arange(48, dtype=np.uint8).reshape(3, 4, 4)
    places = [odd_images.groups((0, 0, z)) for z in (4, 2, 0)]
    shared = odd_images.groups(rows=odd_images.AXIAL, spacing=(1, 1))
    file = odd_images.enhanced(tmp_path / "a.dcm", frames, places, shared, "enhanced MR", Modality="MR")
    volume = open_image(file).volume
    assert np.array_equal(volume.voxels, frames[::-1])  # of eight bits, as they are
    assert volume.display == (0, 255)
    pixels = [np.full((4, 4), value, np.int16) for value in (-2000, 100, 300)]
    volume = open_image(odd_images.series(tmp_path / "s", pixels, PixelPaddingValue=("SS", -2000))).volume
    assert [volume.get_slice(index).measured is None for index in range(3)] == [False, True, True]
    assert volume.display == (100 - 1024, 300 - 1024)


def test_a_group_of_frames_is_opened_by_its_number(tmp_path):
    frames = np.stack([np.full((4, 4), value, np.int16) for value in range(5)])
    each = [odd_images.groups((0, 0, place), odd_images.AXIAL) for place in (0, 2, 4)]
    each += [odd_images.groups((0, place, 0), [1, 0, 0, 0, 0, -1]) for place in (2, 0)]
    shared = odd_images.groups(spacing=(1, 1), scale=(1, 0, "US"))
    where = odd_images.enhanced(tmp_path / "a.dcm", frames, each, shared)
    assert [open_image(f"{where}#stack={stack}").volume.plane for stack in (1, 2)] == ["axial", "coronal"]
    both = open_image(where)
    assert not both.volume.planes
    assert "there are 2 kinds of frames; choose one as PATH#stack=NUMBER: 1 (3 frames: " in both.notes[0]
    for stack, words in ((f"{where}#stack=3", "there is no stack 3"),
                         (f"{path('SC_rgb_rle.dcm')}#stack=1", "nothing in this file says where it lies")):  # fmt: skip
        with pytest.raises(ImageError, match=words):
            open_image(stack)


def test_segments_are_numbers_and_one_is_opened_by_its_number(tmp_path):
    masks = np.zeros((3, 4, 4), np.uint8)
    masks[0, 0], masks[1, 1], masks[2, 2] = 1, 1, 1
    where = odd_images.segmentation(tmp_path / "a.dcm", masks, (10, 0, 0), [7, 7, 300])
    voxels = open_image(where).volume.voxels
    assert (voxels.dtype, voxels.shape) == (np.uint16, (3, 4, 4))  # 5 mm apart, as the slices say
    assert [voxels[0, 1, 0], voxels[0, 2, 0], voxels[1].max(), voxels[2, 0, 0]] == [7, 300, 0, 7]
    assert np.unique(open_image(f"{where}#stack=300").volume.voxels).tolist() == [0, 300]
    with pytest.raises(ImageError, match="there is no segment 1; choose one segment as PATH#stack=NUMBER: 7, 300"):
        open_image(f"{where}#stack=1")
