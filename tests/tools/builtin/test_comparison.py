"""Two pictures side by side, and masks: the second picture shows the same place, through any chain of changes."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from tests.support.tables import each
from tests.support.tool_calls import after, read, refused
from tests.support.tool_play import FindInView, Play
from viewbox.core.answers import check_answer
from viewbox.images.source import Source, Volume
from viewbox.images.view import View
from viewbox.records import Task
from viewbox.tools import call_stateful

RNG = np.random.default_rng(0)
NOW = RNG.integers(0, 255, (64, 96)).astype(np.uint8)
PRIOR = RNG.integers(0, 255, (64, 96)).astype(np.uint8)
IMAGES = [Source.of(NOW), Source.of(PRIOR), Source.of(np.zeros((30, 20), np.uint8))]

CHAINS = st.lists(st.sampled_from([
    ("zoom", {"factor": 1.7, "center": [0.3, 0.6]}), ("crop", {"box": [0.1, 0.2, 0.8, 0.9]}), ("rotate", {}),
    ("flip_horizontal", {}), ("flip_vertical", {}),
]), max_size=5)  # fmt: skip


def stack(count, shape=(20, 30), spacing=(3.0, 1.0, 1.0)):
    voxels = np.zeros((count, *shape), np.int16)
    voxels += np.arange(count, dtype=np.int16)[:, None, None]
    return Volume(voxels, (0.0, float(count)), spacing)


def walk(view, chain):
    for name, arguments in chain:
        after, result = call_stateful(name, view, arguments)
        view = after if result.success else view
    return view


def beside(view, images=IMAGES, **arguments):
    return read("show_beside", view, {"image": "image_2", **arguments}, hidden={"images": images})


# ---- side by side
@settings(max_examples=60, deadline=None)
@given(CHAINS, st.sampled_from([(4096, 1), (65536, 1), (65536, 16)]))
def test_both_sides_show_the_same_part_whatever_was_done_to_the_view(chain, budget):
    view = walk(View.of(NOW, max_pixels=budget[0], multiple=budget[1]), chain)
    shown = np.asarray(beside(view).image.open())
    half = shown.shape[1] // 2
    assert shown.shape[0] * shown.shape[1] <= budget[0]
    assert shown.shape[0] % budget[1] == shown.shape[1] % budget[1] == 0
    twin = np.asarray(beside(view, [IMAGES[0], IMAGES[0]]).image.open()).astype(int)
    if shown.shape[1] % 2 == 0 and half % budget[1] == 0:  # halves of one size are equal pictures
        assert np.array_equal(twin[:, 1 : half - 1], twin[:, half + 1 : -1]) or budget[1] == 1
        assert abs(twin[:, 2 : half - 2] - twin[:, half + 2 : -2]).max() == 0


def test_what_is_marked_in_the_prior_is_on_the_right_at_the_same_place():
    mark = np.zeros((64, 96), np.uint8)
    mark[20:28, 30:40] = 255
    view = walk(View.of(NOW, max_pixels=65536), [("crop", {"box": [0.25, 0.25, 0.75, 0.75]}), ("rotate", {})])
    shown = np.asarray(beside(view, [IMAGES[0], Source.of(mark)]).image.open())
    width = shown.shape[1] // 2
    rows, columns = np.nonzero(shown[:, width + 1 :] >= 128)
    u1, v1, u2, v2 = view.from_original((30 / 96, 20 / 64, 40 / 96, 28 / 64))
    expected = min(u1, u2) * width, min(v1, v2) * shown.shape[0], max(u1, u2) * width, max(v1, v2) * shown.shape[0]
    found = columns.min() + 1, rows.min(), columns.max() + 2, rows.max() + 1
    assert found == pytest.approx(expected, abs=1.01)


def test_two_pictures_fit_and_fill_the_budget_or_the_reason_is_said():
    tall, square = Source.of(np.zeros((900, 3), np.uint8)), Source.of(np.zeros((512, 512), np.uint8))
    for most, multiple in [(4096, 1), (4096, 28)]:
        width, height = beside(View.of(tall, max_pixels=most, multiple=multiple), [tall] * 2).image.open().size
        assert 0 < width * height <= most
        assert width % multiple == height % multiple == 0
    small, how = View.of(tall, max_pixels=256, multiple=16), {"hidden": {"images": [tall] * 2}}
    said = refused("show_beside", small, {"image": "image_2"}, **how)
    assert said == "show_beside: there is no room for two pictures in a view of this environment"
    assert beside(View.of(square, max_pixels=512 * 512), [square] * 2).image.open().size == (724, 362)


def test_a_window_holds_for_both_sides_if_their_values_mean_the_same():
    ct = Source(RNG.integers(-1000, 1000, (64, 64)).astype(np.int16), (-1000.0, 1000.0), unit="HU")
    other = Source(ct.pixels.copy(), (-160.0, 240.0), unit="HU")
    bone = after(ct, ("window_level", {"preset": "ct_bone"}))
    both = np.asarray(beside(bone, [ct, other]).image.open())
    assert np.array_equal(both[:, 2:62], both[:, 66:126])
    plain = beside(bone, [ct, IMAGES[1]])
    assert plain.text.startswith("left: the current view; right: image_2 at the same proportions; it is not known ")
    assert "whether this is the same place, with its intensities unchanged" in plain.text


def test_a_series_is_shown_in_the_same_plane_at_the_same_relative_place():
    now, images = stack(10), [stack(10).get_slice(0), stack(20).get_slice(0)]
    assert beside(View.of(now.get_slice(4)), images).facts["slice"] == 9
    assert beside(View.of(now.get_slice(4)), images, slice=3).facts["slice"] == 3
    coronal = beside(View.of(now.get_slice(5, "coronal")), images).facts
    assert (coronal["plane"], coronal["slice"]) == ("coronal", 5)


@each("arguments, words", [
    ({"image": "image_4"}, 'unknown image "image_4"; allowed: image_1 to image_3'),
    ({"image": "image_0"}, 'unknown image "image_0"'), ({"slice": 1}, "that image is a single picture; allowed: none"),
])  # fmt: skip
def test_a_picture_that_is_not_there_is_refused(arguments, words):
    assert words in refused("show_beside", View.of(NOW), {"image": "image_2", **arguments}, hidden={"images": IMAGES})
    series, beyond = {"images": [stack(10).get_slice(0), stack(20).get_slice(0)]}, {"image": "image_2", "slice": 20}
    said = refused("show_beside", View.of(stack(10).get_slice(4)), beyond, hidden=series)
    assert said == "show_beside: axial slice 20; allowed: 0 to 19"


def test_a_pair_is_not_a_picture_of_the_view_even_if_it_has_its_size_and_no_answer_can_refer_to_it():
    wide = np.zeros((32, 64), np.uint8)
    view = View.of(np.zeros((32, 32), np.uint8)).show(Source.of(wide))
    tall = [Source.of(wide), Source.of(np.zeros((64, 32), np.uint8))]
    for max_pixels in range(1024, 4096, 64):
        shown = View.of(wide, max_pixels=max_pixels)
        assert "shows" not in beside(shown, tall).facts
    assert "shows" not in beside(view, tall).facts
    env = FindInView(tools=("show_beside", "zoom"))
    play = Play(env, Task("t", (View.of(NOW).to_ref(), View.of(PRIOR).to_ref())))
    play.say(f"<tool_call>\n{json.dumps({'name': 'show_beside', 'arguments': {'image': 'image_2'}})}\n</tool_call>")
    said = check_answer(env, {"label": "x", "bbox": [0, 0, 1, 1], "view": 2}, play.state.task, play.state.views)[1]
    assert "view 2 shows another image" in said


# ---- a mask on the picture
def overlaid(view, mask=None, images=(), **arguments):
    return read("overlay_mask", view, arguments, hidden={"mask": mask, "images": images})


@settings(max_examples=60, deadline=None)
@given(CHAINS, st.integers(4, 50), st.integers(4, 80))
def test_the_color_lies_where_the_mask_is_through_any_chain(chain, row, column):
    mask = np.zeros((64, 96), bool)
    mask[row : row + 9, column : column + 9] = True
    view = walk(View.of(np.zeros((64, 96), np.uint8), max_pixels=65536), chain)
    result = overlaid(view, mask, opacity=1)
    assert result.facts["shows"] == tuple(round(side, 3) for side in view.window)
    picture = np.asarray(result.image.open())
    inside = picture[:, :, 0] == 255
    right, bottom = min(96, column + 9), min(64, row + 9)
    u1, v1, u2, v2 = view.from_original((column / 96, row / 64, right / 96, bottom / 64))
    (width, height), low, high = view.size, (min(u1, u2), min(v1, v2)), (max(u1, u2), max(v1, v2))
    rows, columns = np.indices(inside.shape)
    x, y = (columns + 0.5) / width, (rows + 0.5) / height
    near = 1.01 / width, 1.01 / height
    deep = (x > low[0] + near[0]) & (x < high[0] - near[0]) & (y > low[1] + near[1]) & (y < high[1] - near[1])
    far = (x < low[0] - near[0]) | (x > high[0] + near[0]) | (y < low[1] - near[1]) | (y > high[1] + near[1])
    assert inside[deep].all()
    assert not inside[far].any()


def test_the_mask_of_a_volume_is_that_of_the_slice_and_plane_and_one_pixel_does_not_vanish_in_a_small_view():
    volume, voxels = stack(10), np.zeros((10, 20, 30), np.uint8)
    voxels[6, 3:8, 10:20] = 2
    mask = Volume(voxels, (0.0, 255.0), (3.0, 1.0, 1.0)).get_slice(0)
    here, beyond = (overlaid(View.of(volume.get_slice(place)), mask) for place in (6, 5))
    assert here.facts["box"] == (0.333, 0.15, 0.667, 0.4)
    assert (here.facts["share_of_view"], beyond.facts["share_of_view"]) == (pytest.approx(50 / 600), 0)
    assert beyond.text.startswith("nothing of the mask is in this view")
    coronal = overlaid(View.of(volume.get_slice(4, "coronal")), mask)
    assert coronal.facts["share_of_view"] == pytest.approx(10 / 300, abs=0.01)
    mask = np.zeros((640, 960), np.uint8)
    mask[300, 500] = 1
    assert overlaid(View.of(mask * 0, max_pixels=1000), mask).facts["share_of_view"] > 0


def test_a_mask_is_one_of_the_images_or_a_file_or_an_array(tmp_path):
    mask = np.zeros((64, 96), np.uint8)
    mask[:32] = 255
    Image.fromarray(mask).save(tmp_path / "mask.png")
    view, pictures = View.of(NOW), [IMAGES[0], Source.of(mask)]
    shown = [overlaid(view, given) for given in (mask, str(tmp_path / "mask.png"), View.of(mask).to_ref(), mask > 0)]
    shown.append(overlaid(view, None, pictures, image="image_2"))
    assert {result.image.hash for result in shown} == {shown[0].image.hash}
    assert shown[0].facts["box"] == (0, 0, 1, 0.5)
    blended = np.rint(NOW[0] * 0.6 + 255 * 0.4)
    assert np.array_equal(np.asarray(shown[0].image.open())[0, :, 0], blended)


SLICE = stack(10).get_slice(3)
CANNOT = "overlay_mask: the mask cannot be shown: "


@each("image, mask, begins, words", [
    (NOW, None, "", "overlay_mask: this task has no mask of its own; give the name of an image"),
    (NOW, np.zeros((64, 64), np.uint8), "", "the mask is of 64x64 pixels, the image of 96x64: they do not match"),
    (NOW, stack(3).get_slice(0), "", "one of image and mask is a volume, the other a single picture"),
    (SLICE, stack(11).get_slice(0), "",
     "mask: the mask is of 30x20x11 voxels, the image of 30x20x10: they do not match"),
    (SLICE, stack(10, spacing=(4.0, 1.0, 1.0)).get_slice(0), "", "1x1x4 mm, the image of 1x1x3"),
    (NOW, "/nowhere/lesion: left.png", CANNOT, "there is no such file"), (NOW, b"text", CANNOT, "this is not an image"),
    (NOW, np.stack([NOW, NOW]), CANNOT, "array of shape (2, 64, 96)"),
    (NOW, np.where(NOW > 9, 3.3, -4.2), CANNOT,
     "values of -4.2 to 3.3, which are neither whole numbers nor within 0 to 1"),
])  # fmt: skip
def test_a_mask_that_does_not_fit_or_cannot_be_shown_is_refused(image, mask, begins, words):
    said = refused("overlay_mask", View.of(image), hidden={"mask": mask, "images": ()})
    assert words in said
    assert said.startswith(CANNOT) == bool(begins)
