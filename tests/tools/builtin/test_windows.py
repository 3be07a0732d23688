"""Windows and thresholds: on native values where there are any, and refused in words where they make no sense."""

import json
from typing import get_args

import numpy as np
import pydicom
import pytest
from pydicom.data import get_testdata_file
from pydicom.pixels import apply_windowing

from viewbox.core.base import BaseMultiTurnEnv
from viewbox.errors import ConfigError
from viewbox.images.source import Source, Volume
from viewbox.images.view import View
from viewbox.records import Task
from viewbox.tools import call_stateful
from viewbox.tools.builtin import windows as window_presets
from viewbox.tools.builtin.windows import PRESETS, Preset, find_percentiles

RAMP = np.arange(256, dtype=np.uint8).reshape(16, 16)
CT_PRESETS = [name for name, preset in PRESETS.items() if preset.unit == "HU"]
GRAY_PRESETS = [name for name, preset in PRESETS.items() if preset.unit == "gray"]
MRI_PRESETS = [name for name, preset in PRESETS.items() if preset.percentiles is not None]


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


def test_a_ct_preset_windows_hounsfield_units(ct, hounsfield):
    for preset in CT_PRESETS:
        center, width = PRESETS[preset].center, PRESETS[preset].width
        view, result = done("window_level", ct, preset=preset)
        expected = windowed(hounsfield, center - width / 2, center + width / 2)
        assert abs(view.to_uint8() - expected).max() <= 0.5 + 1e-3
        assert result.facts == {
            "center": center, "width": width, "preset": preset, "unit": "HU", "size": (128, 128),
            "shows": (0, 0, 1, 1),
        }  # fmt: skip


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


def test_a_preset_of_gray_levels_works_on_any_8_bit_picture():
    for preset in GRAY_PRESETS:
        center, width = PRESETS[preset].center, PRESETS[preset].width
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


def test_a_ct_preset_is_refused_with_the_reason_where_there_are_no_hounsfield_units():
    for pixels in [RAMP, np.stack([RAMP] * 3, -1), RAMP.astype(np.uint16)]:
        for preset in CT_PRESETS:
            said = refused("window_level", View.of(pixels), preset=preset)
            assert f'preset "{preset}" is for Hounsfield units, but this image has none' in said
            assert said.endswith("allowed: brain, flair, t2, stroke, posterior_fossa, mri, mri_dark, mri_bright")


def test_a_preset_has_one_name_and_the_old_one_is_answered_with_it():
    for kept in ["brain", "flair", "t2"]:
        assert f'(did you mean "{kept}"?)' in refused("window_level", View.of(RAMP), preset=f"mri_{kept}")


def test_every_preset_is_in_the_schema_that_the_model_reads():
    assert get_args(Preset) == tuple(PRESETS)
    assert sorted([*CT_PRESETS, *GRAY_PRESETS, *MRI_PRESETS]) == sorted(PRESETS)
    assert all(name.startswith("ct_") for name in CT_PRESETS)
    assert all(name.startswith("mri") for name in MRI_PRESETS)


def test_a_ct_preset_is_refused_once_the_picture_is_8_bit(ct):
    for first in ["equalize_histogram", "invert"]:
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


def test_a_window_that_misses_the_data_is_told_where_they_are(ct, hounsfield):
    for center in [-5000, 9000]:
        said = refused("window_level", ct, center=center, width=100)
        assert f"the window {center - 50} to {center + 50} does not overlap the data" in said
        assert f"holds {hounsfield.min():g} to {hounsfield.max():g} (HU)" in said


def test_half_a_window_is_refused():
    for arguments in [{}, {"center": 40}, {"width": 80}]:
        assert "give a preset, or both center and width" in refused("window_level", View.of(RAMP), **arguments)


def test_a_window_may_be_narrow_but_not_empty(ct, hounsfield):
    view, _ = done("window_level", ct, center=32, width=8)
    assert abs(view.to_uint8() - windowed(hounsfield, 28, 36)).max() <= 0.5 + 1e-3
    assert refused("window_level", ct, center=40, width=0) == "window_level: width = 0; allowed: above 0"
    assert "out of range; allowed: at least 0" in refused("window_level", ct, center=40, width=-1)


# ---- presets that follow the volume


def mri(scale=1.0, dtype=np.uint16):
    """A volume with air around a body whose values run evenly from 100 to 1100, times `scale`."""
    voxels = np.zeros((8, 40, 40), float)
    voxels[:, 5:35, 5:35] = np.linspace(100, 1100, 8 * 30 * 30).reshape(8, 30, 30)
    voxels = (voxels * scale).astype(dtype)
    return Volume(voxels, (0.0, float(voxels.max())), spacing=(1.0, 1.0, 1.0))


def test_an_mri_preset_is_of_the_percentiles_inside_the_body():
    for preset in MRI_PRESETS:
        low, high = (100 + 10 * percent for percent in PRESETS[preset].percentiles)
        view, result = done("window_level", View.of(mri().get_slice(4)), preset=preset)
        assert result.facts["center"] - result.facts["width"] / 2 == pytest.approx(low, abs=3)
        assert result.facts["center"] + result.facts["width"] / 2 == pytest.approx(high, abs=3)
        assert abs(view.to_uint8() - windowed(mri().get_slice(4).pixels, low, high)).max() <= 2


def test_an_mri_preset_shows_the_same_however_the_file_is_stretched():
    for preset in MRI_PRESETS:
        shown = [
            done("window_level", View.of(mri(scale, np.float32).get_slice(5)), preset=preset)[0].to_uint8().astype(int)
            for scale in (1.0, 0.001, 40.0)
        ]
        assert abs(shown[0] - shown[1]).max() <= 1
        assert abs(shown[0] - shown[2]).max() <= 1


def test_an_mri_preset_is_the_same_for_every_slice_and_zoom():
    volume = mri()
    views = [
        View.of(volume.get_slice(1)),
        View.of(volume.get_slice(6, "coronal")),
        View.of(volume.get_slice(4)).zoom(3),
    ]
    assert len({done("window_level", view, preset="mri")[1].facts["center"] for view in views}) == 1


def test_an_mri_preset_works_on_plain_pictures_and_is_refused_where_it_has_no_meaning(ct):
    assert done("window_level", View.of(RAMP), preset="mri")[1].facts["unit"] == "gray level"
    assert "no contrast to show" in refused("window_level", View.of(np.full((20, 20), 7, np.uint8)), preset="mri")
    inverted, _ = done("invert", ct)
    said = refused("window_level", inverted, preset="mri")
    assert "for the image's own values, but the picture is 8-bit since invert" in said


def test_percentiles_of_a_large_volume_are_taken_from_a_part_of_it(monkeypatch):
    voxels = np.random.default_rng(0).normal(1000, 100, (40, 60, 60)).astype(np.int16)
    source = Volume(voxels, (0.0, 2000.0)).get_slice(0)
    whole = find_percentiles(source, (5, 95))
    monkeypatch.setattr(window_presets, "SAMPLES", 5000)
    assert find_percentiles(source, (5, 95)) == pytest.approx(whole, abs=15)


# ---- presets of a run


class Reader(BaseMultiTurnEnv):
    name = "windows_reader"
    tools = ("window_level",)

    def default_reward(self):
        return {"type": "exact_match", "field": "label"}

    def images(self, task):
        return [np.arange(4096, dtype=np.int16).reshape(64, 64)]


def play_window(env, preset):
    call = json.dumps({"name": "window_level", "arguments": {"preset": preset}})
    replies = iter([f"<tool_call>\n{call}\n</tool_call>", "seen"])
    episode = env.play(Task("t"), lambda messages: next(replies))
    return next(result for turn in episode.turns for result in turn.tool_results)


def test_a_run_has_windows_of_its_own():
    windows = {
        "fat": {"center": 500, "width": 10},
        "t2": {"center": 2000, "width": 1000},
        "edema": {"percentiles": [50, 99]},
    }
    env = Reader(windows=windows)
    preset = env.tool_schemas[0]["function"]["parameters"]["properties"]["preset"]
    assert tuple(preset["enum"]) == (*PRESETS, "fat", "edema")
    assert tuple(play_window(env, "fat").facts[key] for key in ("center", "width")) == (500, 10)
    assert play_window(env, "t2").facts["center"] == 2000  # in place of the built-in one
    assert play_window(env, "edema").facts["center"] == pytest.approx(4095 * 0.745, rel=0.01)
    assert "fat" not in Reader().tool_schemas[0]["function"]["parameters"]["properties"]["preset"]["enum"]


def test_a_wrong_window_is_refused_by_name():
    for window, wrong in [
        ({"center": 40}, "needs center and width, or percentiles"),
        ({"center": 40, "width": 0}, "width"),
        ({"percentiles": [90, 10]}, "the first must be below the second"),
        ({"percentiles": [1, 99], "center": 3, "width": 3}, "allowed beside them: nothing"),
        ({"percentiles": [1, 101]}, "percentiles"),
        ({"center": 40, "width": 80, "unit": "mSv"}, "unit"),
    ]:
        with pytest.raises(ConfigError, match=wrong) as caught:
            Reader(windows={"odd": window})
        assert "windows" in str(caught.value)


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


def test_a_threshold_that_is_too_narrow_is_refused():
    for lower, upper in [(100, 149), (200, 100), (100, 100)]:
        said = refused("threshold", View.of(RAMP), lower=lower, upper=upper)
        assert said == f"threshold: upper - lower = {upper - lower}; allowed: at least 50"
