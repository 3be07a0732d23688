"""The mirror difference: its axis stays where it was called, wherever the viewer goes next."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from viewbox.images.view import View
from viewbox.tools import call_stateful

NOISE = np.random.default_rng(0).integers(0, 256, (80, 120), dtype=np.uint8)


def reference(pixels):
    difference = abs(pixels.astype(float) - pixels[:, ::-1])
    return difference / difference.max() * 255


def after(view, *calls):
    for name, arguments in calls:
        view, result = call_stateful(name, view, arguments)
        assert result.success, result.error
    return view


def differed(view):
    return after(view, ("symmetry_diff", {}))


def test_the_difference_is_absolute_and_over_its_maximum():
    assert abs(differed(View.of(NOISE)).to_uint8() - reference(NOISE)).max() <= 0.51


def test_a_symmetric_picture_is_black():
    both = np.concatenate([NOISE, NOISE[:, ::-1]], axis=1)
    assert not differed(View.of(both)).to_uint8().any()


def test_what_is_on_one_side_only_is_bright_on_both():
    one = np.zeros((40, 60), np.uint8)
    one[10:15, 5:9] = 50
    expected = np.zeros_like(one)
    expected[10:15, 5:9] = expected[10:15, 51:55] = 255
    assert (differed(View.of(one)).to_uint8() == expected).all()


def test_the_axis_is_the_middle_of_the_view_not_of_the_image():
    part = View.of(NOISE).crop((0, 0, 0.5, 1))
    assert abs(differed(part).to_uint8() - reference(NOISE[:, :60])).max() <= 0.51


def test_a_later_crop_shows_the_same_place_of_the_difference():
    whole = differed(View.of(NOISE))
    assert (whole.crop((0, 0.25, 0.25, 0.75)).to_uint8() == whole.to_uint8()[20:60, :30]).all()
    assert (whole.crop((0.4, 0, 1, 1)).to_uint8() == whole.to_uint8()[:, 48:]).all()


def test_a_later_zoom_compares_native_pixels_of_both_sides():
    small = View.of(NOISE, max_pixels=40 * 60)
    closer = differed(small).zoom(2, (0.25, 0.25))
    assert closer.size == (60, 40)
    overview, native = small.to_uint8().astype(float), NOISE.astype(float)
    expected = abs(native - native[:, ::-1])[:40, :60] / abs(overview - overview[:, ::-1]).max() * 255
    assert abs(closer.to_uint8() - expected.clip(0, 255)).max() <= 0.51


def test_a_view_turned_later_shows_the_difference_turned():
    for turn in ["rotate", "flip_horizontal", "flip_vertical"]:
        whole = differed(View.of(NOISE))
        done = {"rotate": lambda p: np.rot90(p, -1), "flip_horizontal": np.fliplr, "flip_vertical": np.flipud}[turn]
        assert (getattr(whole, turn)().to_uint8() == done(whole.to_uint8())).all()


def test_a_view_turned_before_is_mirrored_at_its_own_middle():
    for turn in ["rotate", "flip_horizontal", "flip_vertical"]:
        turned = getattr(View.of(NOISE), turn)()
        assert abs(differed(turned).to_uint8() - reference(turned.to_uint8())).max() <= 0.51


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["rotate", "flip_horizontal", "flip_vertical"]), max_size=3),
    st.lists(st.sampled_from(["rotate", "flip_horizontal", "flip_vertical"]), max_size=3),
    st.tuples(*[st.integers(0, 8)] * 2, *[st.integers(2, 4)] * 2),
)
def test_any_part_after_any_turns_is_that_part_of_the_difference(before, later, box):
    view = View.of(NOISE)
    for turn in before:
        view = getattr(view, turn)()
    view = differed(view)
    for turn in later:
        view = getattr(view, turn)()
    width, height = view.size
    left, top = box[0] * width // 20, box[1] * height // 20
    right, bottom = left + box[2] * width // 20, top + box[3] * height // 20
    part = view.crop((left / width, top / height, right / width, bottom / height))
    assert (part.to_uint8() == view.to_uint8()[top:bottom, left:right]).all()


def test_what_has_no_counterpart_in_the_image_is_black():
    left = differed(View.of(NOISE).crop((0, 0, 0.5, 1)))  # mirrored at a quarter of the image
    wide = after(left, ("zoom", {"factor": 0.5}))
    assert wide.window == (0, 0, 1, 1)
    pixels = wide.to_uint8()
    half = pixels.shape[1] // 2
    assert pixels[:, :half].any()
    assert not pixels[:, half:].any()


@pytest.mark.parametrize("flip", [False, True])
def test_the_part_that_has_a_counterpart_is_still_compared(flip):
    view = differed(View.of(NOISE).crop((0.25, 0, 1, 1)))  # mirrored at 75 of 120
    wide = View.of(NOISE).apply(view.operations[0])
    pixels = (wide.flip_horizontal() if flip else wide).to_uint8()
    pixels = pixels[:, ::-1] if flip else pixels
    assert not pixels[:, :30].any()
    assert (pixels[:, 30:] == view.to_uint8()).all()


def test_operations_before_are_applied_to_both_sides():
    whole = after(View.of(NOISE), ("adjust_contrast", {"factor": 2}), ("symmetry_diff", {}), ("invert", {}))
    part = whole.crop((0, 0, 0.25, 0.5))
    assert (part.to_uint8() == whole.to_uint8()[:40, :30]).all()


def test_a_difference_of_a_difference_is_refused_with_the_way_out():
    view = differed(View.of(NOISE)).crop((0, 0, 0.4, 1))
    said = call_stateful("symmetry_diff", view, {})[1].error
    assert said.endswith("already shows a mirror difference. Call undo or reset first.")
    assert call_stateful("symmetry_diff", view.undo().undo(), {})[1].success
