"""Windows and thresholds: on native values where there are any, and refused in words where they make no sense."""

from typing import get_args

import numpy as np
import pydicom
import pytest
from pydicom.data import get_testdata_file
from pydicom.pixels import apply_windowing

from tests.support.scoring import refuse
from tests.support.tables import each
from tests.support.tool_calls import after, call, refused
from viewbox.core.base import BaseMultiTurnEnv
from viewbox.core.messages import write_call
from viewbox.images.source import Source, Volume
from viewbox.images.view import View
from viewbox.records import Task
from viewbox.tools.builtin import windows as window_presets
from viewbox.tools.builtin.windows import PRESETS, Preset, find_percentiles

RAMP = np.arange(256, dtype=np.uint8).reshape(16, 16)
WIDE = np.arange(4096, dtype=np.uint16).reshape(64, 64)
CTS, GRAYS = ([name for name, preset in PRESETS.items() if preset.unit == unit] for unit in ("HU", "gray"))
MRIS = [name for name, preset in PRESETS.items() if preset.percentiles is not None]
DATASET = pydicom.dcmread(get_testdata_file("CT_small.dcm"))
HU = DATASET.pixel_array * float(DATASET.RescaleSlope) + float(DATASET.RescaleIntercept)
CT = View.of(Source(HU.astype(np.int16), display=(-160.0, 240.0), unit="HU"))  # displayed from -160 to 240
INVERTED, BONE = after(CT, ("invert", {})), {"preset": "ct_bone"}
INVERTED_WIDE = after(WIDE, ("invert", {}))


def windowed(values, low, high):
    return np.clip((np.asarray(values, float) - low) / (high - low) * 255, 0, 255)


def of_preset(name):
    preset = PRESETS[name]
    return preset.center - preset.width / 2, preset.center + preset.width / 2


def mri(scale=1.0, dtype=np.uint16):
    """A volume with air around a body whose values run evenly from 100 to 1100, times `scale`."""
    voxels = np.zeros((8, 40, 40), float)
    voxels[:, 5:35, 5:35] = np.linspace(100, 1100, 8 * 30 * 30).reshape(8, 30, 30)
    voxels = (voxels * scale).astype(dtype)
    return Volume(voxels, (0.0, float(voxels.max())), spacing=(1.0, 1.0, 1.0))


@each("name, image, arguments, expected, facts", [
    *(("window_level", CT, {"preset": name}, windowed(HU, *of_preset(name)),
     {"center": PRESETS[name].center, "width": PRESETS[name].width, "preset": name, "unit": "HU"}) for name in CTS),
    # the other presets are of the displayed gray levels, and on any 8-bit picture
    ("window_level", CT, {"preset": "t2"}, windowed(np.round(windowed(HU, -160, 240)), *of_preset("t2")),
     {"unit": "gray level"}),
    *(("window_level", RAMP, {"preset": name}, windowed(RAMP, *of_preset(name)), {}) for name in GRAYS),
    # center and width are of native values, and after another tool of gray levels; a preset wins
    ("window_level", RAMP.astype(np.uint16) * 200, {"center": 20_000, "width": 10_000},
     windowed(RAMP * 200.0, 15_000, 25_000), {"unit": "native value"}),
    ("window_level", INVERTED, {"center": 100, "width": 100}, windowed(INVERTED.to_uint8(), 50, 150),
     {"unit": "gray level"}),
    ("window_level", CT, {"preset": "ct_bone", "center": 0, "width": 50}, windowed(HU, *of_preset("ct_bone")),
     {"unit": "HU"}), ("window_level", CT, {"center": 32, "width": 8}, windowed(HU, 28, 36), {"unit": "HU"}),
    # a window takes the place of the one before
    ("window_level", after(CT, ("window_level", {"preset": "ct_brain"})), BONE, windowed(HU, *of_preset("ct_bone")),
     {"unit": "HU"}),
    # a threshold clips and stretches: gray levels, or as many of the display range
    ("threshold", RAMP, {"lower": 40, "upper": 140}, windowed(RAMP, 40, 140), {"lower": 40, "upper": 140}),
    ("threshold", CT, {"lower": 51, "upper": 204}, windowed(HU, -80, 160), {"values": (-80, 160), "unit": "HU"}),
    ("threshold", INVERTED_WIDE, {"lower": 100, "upper": 200}, windowed(INVERTED_WIDE.to_uint8(), 100, 200), {}),
])  # fmt: skip
def test_a_window_shows_its_values_from_black_to_white(name, image, arguments, expected, facts):
    view, result = call(name, image, arguments)
    assert abs(view.to_uint8() - expected).max() <= 0.51
    right = {key: pytest.approx(value) if key == "values" else value for key, value in facts.items()}
    assert result.facts.items() >= right.items()
    assert ("values" in result.facts) == ("values" in facts)


def test_a_window_is_the_linear_exact_function_of_dicom():
    DATASET.VOILUTFunction, DATASET.WindowCenter, DATASET.WindowWidth = "LINEAR_EXACT", 50, 350
    theirs = apply_windowing(HU, DATASET)
    theirs = (theirs - theirs.min()) / (theirs.max() - theirs.min()) * 255
    assert HU.min() < -125 < 225 < HU.max()  # so that both ends are reached
    assert abs(call("window_level", CT, {"center": 50, "width": 350})[0].to_uint8() - theirs).max() <= 0.51


LIST = "allowed: brain, flair, t2, stroke, posterior_fossa, mri, mri_dark, mri_bright"
THRESHOLD = after(CT, ("threshold", {"lower": 0, "upper": 255}))
BRAIN = after(CT, ("window_level", {"preset": "ct_brain"}), ("invert", {}))
SINCE = "the picture is 8-bit since {}. Call undo or reset first."


@each("name, image, arguments, words", [
    *(("window_level", pixels, {"preset": name},
     f'preset "{name}" is for Hounsfield units, but this image has none') for pixels in (RAMP, np.stack([RAMP] * 3, -1),
     RAMP.astype(np.uint16)) for name in CTS), ("window_level", RAMP, BONE, LIST),
    *(("window_level", RAMP, {"preset": f"mri_{kept}"}, f'(did you mean "{kept}"?)') for kept in ("brain", "flair",
     "t2")),
    # once the picture is 8-bit, and a window takes the place of nothing else
    *(("window_level", view, BONE, SINCE.format(name))
      for view, name in [(INVERTED, "invert"), (after(CT, ("equalize_histogram", {})), "equalize_histogram"),
     (THRESHOLD, "threshold"), (BRAIN, "invert")]),
    ("window_level", INVERTED, {"preset": "mri"}, "for the image's own values, but the picture is 8-bit since"),
    *(("window_level", CT, {"center": center, "width": 100},
     f"the window {center - 50} to {center + 50} does not overlap the data") for center in (-5000, 9000)),
    ("window_level", CT, {"center": 9000, "width": 100}, f"holds {HU.min():g} to {HU.max():g} (HU)"),
    *(("window_level", RAMP, half, "give a preset, or both center and width") for half in ({}, {"center": 40},
     {"width": 80})), ("window_level", CT, {"center": 40, "width": 0}, "window_level: width = 0; allowed: above 0"),
    ("window_level", CT, {"center": 40, "width": -1}, "out of range; allowed: at least 0"),
    ("window_level", np.full((20, 20), 7, np.uint8), {"preset": "mri"}, "no contrast to show"),
    *(("threshold", RAMP, {"lower": low, "upper": high},
     f"threshold: upper - lower = {high - low}; allowed: at least 50")
       for low, high in ((100, 149), (200, 100), (100, 100))),
])  # fmt: skip
def test_what_makes_no_sense_is_refused_with_the_reason(name, image, arguments, words):
    assert words in refused(name, image, arguments)


def test_undo_and_reset_bring_the_native_values_back_and_every_preset_is_in_the_schema_that_the_model_reads():
    for view in (INVERTED.undo(), INVERTED.reset()):
        assert call("window_level", view, BONE)
    brain = after(CT, ("window_level", {"preset": "ct_brain"})).zoom(2)
    assert call("window_level", brain, BONE)[0].undo() == brain
    assert get_args(Preset) == tuple(PRESETS)
    assert sorted([*CTS, *GRAYS, *MRIS]) == sorted(PRESETS)


# ---- presets that follow the volume
@each("preset", MRIS)
def test_an_mri_preset_is_of_the_percentiles_inside_the_body_however_the_file_is_stretched(preset):
    low, high = (100 + 10 * percent for percent in PRESETS[preset].percentiles)
    view, result = call("window_level", View.of(mri().get_slice(4)), {"preset": preset})
    center, width = result.facts["center"], result.facts["width"]
    assert (center - width / 2, center + width / 2) == pytest.approx((low, high), abs=3)
    assert abs(view.to_uint8() - windowed(mri().get_slice(4).pixels, low, high)).max() <= 2
    slices = [mri(scale, np.float32).get_slice(5) for scale in (1.0, 0.001, 40.0)]
    shown = [after(one, ("window_level", {"preset": preset})).to_uint8().astype(int) for one in slices]
    assert max(abs(shown[0] - other).max() for other in shown[1:]) <= 1


def test_an_mri_preset_is_the_same_for_every_slice_and_zoom_and_works_on_plain_pictures():
    views = [View.of(mri().get_slice(1)), View.of(mri().get_slice(6, "coronal")), View.of(mri().get_slice(4)).zoom(3)]
    assert len({call("window_level", view, {"preset": "mri"})[1].facts["center"] for view in views}) == 1
    assert call("window_level", RAMP, {"preset": "mri"})[1].facts["unit"] == "gray level"


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


OWN = {"fat": {"center": 500, "width": 10}, "t2": {"center": 2000, "width": 1000}, "edema": {"percentiles": [50, 99]}}


@each("preset, center", [("fat", 500), ("t2", 2000), ("edema", pytest.approx(4095 * 0.745, rel=0.01))])
def test_a_run_has_windows_of_its_own_which_may_take_the_place_of_one(preset, center):
    env, names = Reader(windows=OWN), []
    for one in (env, Reader()):
        names.append(tuple(one.tool_schemas[0]["function"]["parameters"]["properties"]["preset"]["enum"]))
    assert names == [(*PRESETS, "fat", "edema"), tuple(PRESETS)]
    replies = iter([write_call("window_level", {"preset": preset}), "seen"])
    episode = env.play(Task("t"), lambda messages: next(replies))
    assert next(result for turn in episode.turns for result in turn.tool_results).facts["center"] == center


@each("window, words", [
    ({"center": 40}, "needs center and width, or percentiles"), ({"center": 40, "width": 0}, "width"),
    ({"percentiles": [90, 10]}, "the first must be below the second"), ({"percentiles": [1, 101]}, "percentiles"),
    ({"percentiles": [1, 99], "center": 3, "width": 3}, "allowed beside them: nothing"),
    ({"center": 40, "width": 80, "unit": "mSv"}, "unit"),
])  # fmt: skip
def test_a_wrong_window_is_refused_by_name(window, words):
    refuse(f"(?s)windows.*{words}|{words}.*windows", Reader, windows={"odd": window})
