"""Windows and thresholds: on native values where there are any, and refused in words where they make no sense."""

import numpy as np
import pydicom
import pytest
from pydicom.data import get_testdata_file
from pydicom.pixels import apply_windowing

from viewbox.envs.tools import call_stateful
from viewbox.envs.tools.builtin.windows import PRESETS
from viewbox.images.files import open_image
from viewbox.images.source import Source
from viewbox.images.view import View

RAMP = np.arange(256, dtype=np.uint8).reshape(16, 16)
CT_PRESETS = [name for name in PRESETS if name.startswith("ct_")]


@pytest.fixture(scope="module")
def dataset():
    return pydicom.dcmread(get_testdata_file("CT_small.dcm"))


@pytest.fixture(scope="module")
def hounsfield(dataset):
    return dataset.pixel_array * float(dataset.RescaleSlope) + float(dataset.RescaleIntercept)


@pytest.fixture
def ct(hounsfield):
    """A CT slice of 128 × 128 Hounsfield units, displayed from -160 to 240."""
    return View.of(Source(hounsfield.astype(np.int16), display=(-160.0, 240.0), unit="HU"))


def windowed(values, low, high):
    return np.clip((np.asarray(values, float) - low) / (high - low) * 255, 0, 255)


def done(name, view, **arguments):
    view, result = call_stateful(name, view, arguments)
    assert result.success, result.error
    return view, result


def refused(name, view, **arguments):
    now, result = call_stateful(name, view, arguments)
    assert now is view
    return result.error


# ---- window_level


@pytest.mark.parametrize("preset", CT_PRESETS)
def test_a_ct_preset_windows_hounsfield_units(ct, hounsfield, preset):
    center, width = PRESETS[preset]
    view, result = done("window_level", ct, preset=preset)
    expected = windowed(hounsfield, center - width / 2, center + width / 2)
    assert abs(view.to_uint8() - expected).max() <= 0.5 + 1e-3
    assert result.facts == {
        "center": center,
        "width": width,
        "preset": preset,
        "unit": "HU",
        "size": (128, 128),
        "shows": (0, 0, 1, 1),
    }


def test_a_ct_file_is_windowed_on_its_hounsfield_units(hounsfield):
    view, _ = done("window_level", View.of(open_image(get_testdata_file("CT_small.dcm"))), preset="ct_bone")
    assert abs(view.to_uint8() - windowed(hounsfield, -500, 1300)).max() <= 0.5 + 1e-3


def test_a_window_is_the_linear_exact_function_of_dicom(ct, dataset, hounsfield):
    dataset.VOILUTFunction, dataset.WindowCenter, dataset.WindowWidth = "LINEAR_EXACT", 50, 350
    theirs = apply_windowing(hounsfield, dataset)
    theirs = (theirs - theirs.min()) / (theirs.max() - theirs.min()) * 255
    assert hounsfield.min() < -125  # so that both ends are reached
    assert hounsfield.max() > 225
    assert abs(done("window_level", ct, center=50, width=350)[0].to_uint8() - theirs).max() <= 0.51


def test_a_window_finds_what_the_displayed_picture_has_lost(ct, hounsfield):
    assert (ct.to_uint8()[hounsfield > 240] == 255).all()
    bright = done("window_level", ct, preset="ct_bone")[0].to_uint8()[hounsfield > 240]
    assert len(np.unique(bright)) > 20


def test_the_other_presets_are_of_the_displayed_gray_levels(ct, hounsfield):
    view, result = done("window_level", ct, preset="t2")
    eight = np.round(windowed(hounsfield, -160, 240))
    assert abs(view.to_uint8() - windowed(eight, 140 - 110, 140 + 110)).max() <= 0.5 + 1e-3
    assert result.facts["unit"] == "gray level"


@pytest.mark.parametrize("preset", [name for name in PRESETS if name not in CT_PRESETS])
def test_a_preset_of_gray_levels_works_on_any_8_bit_picture(preset):
    center, width = PRESETS[preset]
    view, _ = done("window_level", View.of(RAMP), preset=preset)
    assert abs(view.to_uint8() - windowed(RAMP, center - width / 2, center + width / 2)).max() <= 0.5


def test_center_and_width_are_of_native_values():
    deep = View.of(RAMP.astype(np.uint16) * 200)
    view, result = done("window_level", deep, center=20_000, width=10_000)
    assert abs(view.to_uint8() - windowed(RAMP * 200.0, 15_000, 25_000)).max() <= 0.51
    assert result.facts["unit"] == "native value"


def test_a_preset_wins_over_center_and_width(ct):
    given, _ = done("window_level", ct, preset="ct_bone", center=0, width=50)
    assert given == done("window_level", ct, preset="ct_bone")[0]


@pytest.mark.parametrize("preset", CT_PRESETS)
@pytest.mark.parametrize("pixels", [RAMP, np.stack([RAMP] * 3, -1), RAMP.astype(np.uint16)])
def test_a_ct_preset_is_refused_with_the_reason_where_there_are_no_hounsfield_units(preset, pixels):
    said = refused("window_level", View.of(pixels), preset=preset)
    assert f"preset '{preset}' is for Hounsfield units, but this image has none" in said
    assert said.endswith("allowed: brain, flair, t2, stroke, posterior_fossa")


@pytest.mark.parametrize("kept", ["brain", "flair", "t2"])
def test_a_preset_has_one_name_and_the_old_one_is_answered_with_it(kept):
    assert f"(did you mean '{kept}'?)" in refused("window_level", View.of(RAMP), preset=f"mri_{kept}")


def test_no_two_presets_are_equal():
    assert len(set(PRESETS.values())) == len(PRESETS)


@pytest.mark.parametrize("first", ["equalize_histogram", "invert"])
def test_a_ct_preset_is_refused_once_the_picture_is_8_bit(ct, first):
    view, _ = done(first, ct)
    assert f"the picture is 8-bit since {first}. Call undo or reset first." in refused(
        "window_level", view, preset="ct_bone"
    )
    assert call_stateful("window_level", view.undo(), {"preset": "ct_bone"})[1].success
    assert call_stateful("window_level", view.reset(), {"preset": "ct_bone"})[1].success


def test_a_window_takes_the_place_of_the_one_before(ct):
    brain, _ = done("window_level", ct, preset="ct_brain")
    bone, _ = done("window_level", brain.zoom(2), preset="ct_bone")
    assert (bone.to_uint8() == done("window_level", ct.zoom(2), preset="ct_bone")[0].to_uint8()).all()
    assert bone.undo() == brain.zoom(2)


def test_a_window_does_not_take_the_place_of_anything_else(ct):
    view, _ = done("threshold", ct, lower=0, upper=255)
    assert "8-bit since threshold" in refused("window_level", view, preset="ct_bone")
    view, _ = done("invert", done("window_level", ct, preset="ct_brain")[0])
    assert "8-bit since invert" in refused("window_level", view, preset="ct_bone")


def test_after_another_tool_center_and_width_are_gray_levels(ct, hounsfield):
    view, _ = done("invert", ct)
    later, result = done("window_level", view, center=100, width=100)
    assert result.facts["unit"] == "gray level"
    assert abs(later.to_uint8() - windowed(view.to_uint8(), 50, 150)).max() <= 0.5


@pytest.mark.parametrize("center", [-5000, 9000])
def test_a_window_that_misses_the_data_is_told_where_they_are(ct, hounsfield, center):
    said = refused("window_level", ct, center=center, width=100)
    assert f"the window {center - 50} to {center + 50} does not overlap the data" in said
    assert f"holds {hounsfield.min():g} to {hounsfield.max():g} (HU)" in said


@pytest.mark.parametrize("arguments", [{}, {"center": 40}, {"width": 80}])
def test_half_a_window_is_refused(arguments):
    assert "give a preset, or both center and width" in refused("window_level", View.of(RAMP), **arguments)


def test_a_window_of_less_than_fifty_is_refused(ct):
    assert "width = 49.9: out of range; allowed: at least 50" in refused("window_level", ct, center=40, width=49.9)
    assert call_stateful("window_level", ct, {"center": 40, "width": 50})[1].success


def test_an_unknown_preset_is_told_the_presets(ct):
    assert "ct_bone" in refused("window_level", ct, preset="ct_bones")


# ---- threshold


def test_a_threshold_clips_and_stretches():
    view, result = done("threshold", View.of(RAMP), lower=40, upper=140)
    assert abs(view.to_uint8() - windowed(RAMP, 40, 140)).max() <= 0.5
    assert result.facts == {"lower": 40, "upper": 140, "size": (16, 16), "shows": (0, 0, 1, 1)}


def test_a_threshold_of_a_deep_image_is_of_its_display_range(ct, hounsfield):
    view, result = done("threshold", ct, lower=51, upper=204)  # a fifth and four fifths of -160 to 240
    assert abs(view.to_uint8() - windowed(hounsfield, -80, 160)).max() <= 0.5 + 1e-3
    assert result.facts["values"] == pytest.approx((-80, 160))
    assert result.facts["unit"] == "HU"


def test_a_threshold_keeps_values_apart_that_8_bits_would_merge():
    deep = np.arange(4096, dtype=np.uint16).reshape(64, 64)
    assert len(np.unique(done("threshold", View.of(deep), lower=0, upper=50)[0].to_uint8())) == 256


def test_a_threshold_after_another_tool_is_of_gray_levels():
    view, _ = done("invert", View.of(np.arange(4096, dtype=np.uint16).reshape(64, 64)))
    later, result = done("threshold", view, lower=100, upper=200)
    assert abs(later.to_uint8() - windowed(view.to_uint8(), 100, 200)).max() <= 0.5
    assert "values" not in result.facts


@pytest.mark.parametrize(("lower", "upper"), [(100, 149), (200, 100), (100, 100)])
def test_a_threshold_that_is_too_narrow_is_refused(lower, upper):
    said = refused("threshold", View.of(RAMP), lower=lower, upper=upper)
    assert said == f"threshold: upper - lower = {upper - lower}; allowed: at least 50"


def test_a_threshold_of_exactly_fifty_is_allowed():
    assert call_stateful("threshold", View.of(RAMP), {"lower": 100, "upper": 150})[1].success
