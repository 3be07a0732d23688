"""The mirror difference: its axis stays where it was called, wherever the viewer goes next."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.tables import each
from tests.support.tool_calls import after, call, refused
from viewbox.images.view import View

NOISE = np.random.default_rng(0).integers(0, 256, (80, 120), dtype=np.uint8)
WHOLE = View.of(NOISE)
TURNS = {"rotate": lambda p: np.rot90(p, -1), "flip_horizontal": np.fliplr, "flip_vertical": np.flipud}
TWINS = np.concatenate([NOISE, NOISE[:, ::-1]], axis=1)


def reference(pixels):
    difference = abs(pixels.astype(float) - pixels[:, ::-1])
    return difference / max(difference.max(), 1) * 255


def differed(view):
    return after(view, ("symmetry_diff", {}))


@each("view, pixels", [
    (WHOLE, NOISE), (View.of(TWINS), TWINS), (WHOLE.crop((0, 0, 0.5, 1)), NOISE[:, :60]),  # the middle of the view
    *((view, view.to_uint8()) for view in (getattr(WHOLE, turn)() for turn in TURNS)),
])  # fmt: skip
def test_the_difference_is_absolute_over_its_maximum_and_mirrored_at_the_middle_of_the_view(view, pixels):
    assert abs(differed(view).to_uint8() - reference(pixels)).max() <= 0.51


def test_what_is_on_one_side_only_is_bright_on_both_and_a_later_zoom_compares_native_pixels():
    one, expected = np.zeros((40, 60), np.uint8), np.zeros((40, 60), np.uint8)
    one[10:15, 5:9] = 50
    expected[10:15, 5:9] = expected[10:15, 51:55] = 255
    assert (differed(View.of(one)).to_uint8() == expected).all()
    small = View.of(NOISE, max_pixels=40 * 60)
    closer = differed(small).zoom(2, (0.25, 0.25))
    overview, native = small.to_uint8().astype(float), NOISE.astype(float)
    expected = abs(native - native[:, ::-1])[:40, :60] / abs(overview - overview[:, ::-1]).max() * 255
    assert abs(closer.to_uint8() - expected.clip(0, 255)).max() <= 0.51


SOME = st.lists(st.sampled_from(list(TURNS)), max_size=3)


@settings(max_examples=60)
@given(SOME, SOME, st.tuples(*[st.integers(0, 8)] * 2, *[st.integers(2, 4)] * 2))
def test_any_part_after_any_turns_is_that_part_of_the_difference(before, later, box):
    view = WHOLE
    for turn in before:
        view = getattr(view, turn)()
    view = differed(view)
    for turn in later:
        turned = TURNS[turn](view.to_uint8())
        view = getattr(view, turn)()
        assert (view.to_uint8() == turned).all()
    width, height = view.size
    left, top = box[0] * width // 20, box[1] * height // 20
    right, bottom = left + box[2] * width // 20, top + box[3] * height // 20
    part = view.crop((left / width, top / height, right / width, bottom / height))
    assert (part.to_uint8() == view.to_uint8()[top:bottom, left:right]).all()


def test_what_has_no_counterpart_in_the_image_is_black_and_the_rest_is_still_compared():
    left = differed(WHOLE.crop((0, 0, 0.5, 1)))  # mirrored at a quarter of the image
    wide = after(left, ("zoom", {"factor": 0.5}))
    half = wide.to_uint8().shape[1] // 2
    assert wide.window == (0, 0, 1, 1)
    assert wide.to_uint8()[:, :half].any()
    assert not wide.to_uint8()[:, half:].any()
    view = differed(WHOLE.crop((0.25, 0, 1, 1)))  # mirrored at 75 of 120
    wide = WHOLE.apply(view.operations[0])
    for pixels in (wide.to_uint8(), wide.flip_horizontal().to_uint8()[:, ::-1]):
        assert not pixels[:, :30].any()
        assert (pixels[:, 30:] == view.to_uint8()).all()


def test_operations_before_are_applied_to_both_sides_and_a_second_difference_is_refused():
    whole = after(WHOLE, ("adjust_contrast", {"factor": 2}), ("symmetry_diff", {}), ("invert", {}))
    assert (whole.crop((0, 0, 0.25, 0.5)).to_uint8() == whole.to_uint8()[:40, :30]).all()
    view = differed(WHOLE).crop((0, 0, 0.4, 1))
    assert refused("symmetry_diff", view).endswith("already shows a mirror difference. Call undo or reset first.")
    assert call("symmetry_diff", view.undo().undo())
