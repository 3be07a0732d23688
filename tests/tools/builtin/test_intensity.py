"""Point operations against Pillow, scikit-image and the textbook, and what holds for every intensity tool."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance, ImageOps

from viewbox.images.view import View
from viewbox.tools import call_stateful

COLOR = np.random.default_rng(0).integers(20, 200, (60, 90, 3), dtype=np.uint8)
GRAY = np.ascontiguousarray(COLOR[..., 0])
DEEP = np.random.default_rng(1).integers(0, 4000, (60, 90)).astype(np.uint16)

# every intensity tool with arguments it takes on any of these pictures
CALLS = [
    ("adjust_contrast", {"factor": 1.7}),
    ("adjust_brightness", {"factor": 1.3}),
    ("adjust_sharpness", {"factor": 2}),
    ("threshold", {"lower": 30, "upper": 180}),
    ("window_level", {"center": 128, "width": 300}),
    ("equalize_histogram", {}),
    ("adaptive_equalize", {}),
    ("adaptive_equalize", {"clip_limit": 4, "tile_size": 32}),
    ("detect_edges", {"method": "sobel"}),
    ("detect_edges", {"method": "laplacian"}),
    ("denoise", {"sigma": 1.5}),
    ("morphological", {"operation": "close", "iterations": 5}),
    ("morphological", {"operation": "erode", "iterations": 2, "threshold_value": 100}),
    ("symmetry_diff", {}),
    ("invert", {}),
]
KEEP_COLOR = {"adjust_contrast", "adjust_brightness", "adjust_sharpness", "denoise"}
# value by value: the same whatever part of the picture is shown
POINTWISE = {"adjust_contrast", "adjust_brightness", "threshold", "window_level", "equalize_histogram", "invert"}


def after(image, *calls):
    view = image if isinstance(image, View) else View.of(image)
    for name, arguments in calls:
        view, result = call_stateful(name, view, arguments)
        assert result.success, result.error
    return view


def shown(image, *calls):
    return after(image, *calls).to_uint8().astype(int)


def luma(pixels):
    return np.asarray(Image.fromarray(pixels).convert("L")).astype(int)


# ---- point operations


def test_brightness_is_that_of_pillow():
    for factor in [0.5, 0.77, 1, 1.3, 2]:
        for pixels in [GRAY, COLOR]:
            theirs = np.asarray(ImageEnhance.Brightness(Image.fromarray(pixels)).enhance(factor), dtype=int)
            assert (
                abs(shown(pixels, ("adjust_brightness", {"factor": factor})) - theirs).max() <= 1
            )  # Pillow rounds down


def test_a_factor_of_one_changes_nothing():
    for name in ["adjust_contrast", "adjust_brightness", "adjust_sharpness"]:
        assert (shown(COLOR, (name, {"factor": 1})) == COLOR).all()


def test_inversion_takes_each_value_from_255():
    assert (shown(GRAY, ("invert", {})) == 255 - GRAY.astype(int)).all()


def test_inverting_color_inverts_its_luma():
    assert abs(shown(COLOR, ("invert", {})) - (255 - luma(COLOR))).max() <= 1


def test_equalization_is_that_of_pillow_and_of_the_textbook():
    skewed = (255 * (GRAY / 255.0) ** 3).astype(np.uint8)
    ours = shown(skewed, ("equalize_histogram", {}))
    counts = np.bincount(skewed.ravel(), minlength=256)
    cdf = counts.cumsum()
    lowest = cdf[cdf > 0][0]
    assert (ours == np.round((cdf - lowest) / (cdf[-1] - lowest) * 255)[skewed]).all()
    assert abs(ours - np.asarray(ImageOps.equalize(Image.fromarray(skewed)), dtype=int)).max() <= counts.max() / 10


def test_equalization_leaves_a_uniform_picture():
    assert (shown(np.full((9, 9), 77, np.uint8), ("equalize_histogram", {})) == 77).all()


def test_a_deep_picture_is_changed_as_it_is_displayed():
    eight = np.round(DEEP / (DEEP.max() - DEEP.min()) * 255).astype(int)  # its darkest value is 0
    assert DEEP.min() == 0
    assert (shown(DEEP, ("invert", {})) == 255 - eight).all()
    assert abs(shown(DEEP, ("adjust_brightness", {"factor": 0.5})) - eight / 2).max() <= 0.5


# ---- what holds for all of them


def test_a_call_keeps_coordinates_states_its_arguments_and_can_be_undone():
    before = View.of(COLOR).zoom(2, (0.3, 0.3)).rotate()
    for name, arguments in CALLS:
        now, result = call_stateful(name, before, arguments)
        assert (now.matrix, now.size, now.undo()) == (before.matrix, before.size, before), name
        assert result.facts.items() >= {**arguments, "size": before.size}.items()
        assert now.render().mode == ("RGB" if name in KEEP_COLOR else "L"), name


def test_neither_the_source_nor_the_view_before_is_written_to():
    for source in [GRAY, COLOR, DEEP, DEEP.astype(np.float32)]:
        for name, arguments in CALLS:
            source = source.copy()
            before = View.of(source)
            native, picture = source.copy(), before.to_uint8().copy()
            after(before, (name, arguments)).zoom(2).render()
            assert (before.source.pixels == native).all()
            assert (before.to_uint8() == picture).all()


def test_statistics_are_fixed_at_the_call():
    for source in [GRAY, DEEP]:
        for name, arguments in [item for item in CALLS if item[0] in POINTWISE]:
            part = (1 / 3, 0.25, 2 / 3, 0.75)
            now = after(source, (name, arguments))
            assert (now.crop(part).to_uint8() == now.to_uint8()[15:45, 30:60]).all()


def test_the_order_of_calls_is_the_order_of_operations():
    brighter, inverted = ("adjust_brightness", {"factor": 2}), ("invert", {})
    assert (shown(GRAY, brighter, inverted) == 255 - np.minimum(255, 2 * GRAY.astype(int))).all()
    assert (shown(GRAY, inverted, brighter) == np.minimum(255, 2 * (255 - GRAY.astype(int)))).all()


def test_a_chain_is_the_same_drawn_step_by_step_and_all_at_once():
    for source in [COLOR, DEEP]:
        for name, arguments in CALLS:
            steps = after(source, ("adjust_brightness", {"factor": 0.8}), (name, arguments))
            at_once = View.of(source)
            for operation in steps.operations:
                at_once = at_once.apply(operation)
            assert (at_once.to_uint8() == steps.to_uint8()).all()


SHAPES = {"one pixel": (1, 1), "2x3": (3, 2), "very long": (2, 5000), "very tall": (5000, 1), "uniform": (40, 50)}


def test_odd_pictures_survive_every_tool():
    for kind in ["gray", "color", "deep"]:
        for name, arguments in CALLS:
            for shape in SHAPES.values():
                pixels = np.full(
                    shape + ((3,) if kind == "color" else ()), 100, np.uint16 if kind == "deep" else np.uint8
                )
                now = after(View.of(pixels, max_pixels=4096), (name, arguments))
                for view in (now, now.zoom(2)):
                    picture = view.to_uint8()
                    assert picture.dtype == np.uint8
                    assert picture.shape[:2] == view.size[::-1]
                    assert picture.min() == picture.max()


RANGES = [
    ("adjust_contrast", "factor", 0.5, 3, {}),
    ("adjust_brightness", "factor", 0.5, 2, {}),
    ("adjust_sharpness", "factor", 0.1, 3, {}),
    ("threshold", "lower", 0, 254, {"upper": 255}),
    ("threshold", "upper", 1, 255, {"lower": 0}),
    ("adaptive_equalize", "clip_limit", 1, 4, {}),
    ("adaptive_equalize", "tile_size", 2, 32, {}),
    ("denoise", "sigma", 0.5, 5, {}),
    ("morphological", "iterations", 1, 5, {"operation": "open"}),
    ("morphological", "threshold_value", 0, 255, {"operation": "open"}),
]


def test_the_ends_of_a_range_are_allowed_and_what_is_beyond_is_told_the_range():
    for name, argument, low, high, others in RANGES:
        ends = {("threshold", "lower"): (0, 205), ("threshold", "upper"): (50, 255)}  # which has a least width as well
        for value in ends.get((name, argument), (low, high)):
            assert call_stateful(name, View.of(GRAY), {**others, argument: value})[1].success
        for value in (low - 1, high + 1):
            said = call_stateful(name, View.of(GRAY), {**others, argument: value})[1].error
            assert f"{name}: {argument} = {value}" in said
            assert f"allowed: {low:g} to {high:g}" in said


GEOMETRY = st.sampled_from([("zoom", {"factor": 3, "center": [0.2, 0.7]}), ("crop", {"box": [0.1, 0.2, 0.7, 0.9]})])
REFUSALS = ("does not overlap the data", "undo or reset first", "allowed: at least 10x10", "maximum zoom reached")


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.sampled_from(CALLS) | GEOMETRY, min_size=1, max_size=8),
    st.tuples(st.integers(20, 70), st.integers(20, 70)),
    st.sampled_from(["gray", "color", "uint16", "int16", "float32"]),
)
def test_any_chain_of_tools_gives_8_bits_of_the_size_it_says(chain, size, kind):
    values = np.random.default_rng(size).integers(0, 256, (*size, 3) if kind == "color" else size)
    view = View.of(values.astype(kind if "t" in kind else "uint8"), max_pixels=2000)
    for name, arguments in chain:
        view, result = call_stateful(name, view, arguments)
        assert result.success or any(words in result.error for words in REFUSALS), result.error
        picture = view.to_uint8()
        assert picture.dtype == np.uint8
        assert picture.shape[:2] == view.size[::-1]
