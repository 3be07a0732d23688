"""Point operations against Pillow and the textbook, and what holds for every intensity tool."""

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from tests.support.tables import each
from tests.support.tool_calls import after, call, refused, shown
from viewbox.images.view import View

COLOR = np.random.default_rng(0).integers(20, 200, (60, 90, 3), dtype=np.uint8)
GRAY = np.ascontiguousarray(COLOR[..., 0])
DEEP = np.random.default_rng(1).integers(0, 4000, (60, 90)).astype(np.uint16)
EIGHT = np.round(DEEP / 3999 * 255).astype(int)  # as it is displayed: from 0 to 3999
LUMA = np.asarray(Image.fromarray(COLOR).convert("L")).astype(int)
SKEWED = (255 * (GRAY / 255.0) ** 3).astype(np.uint8)
COUNTS = np.bincount(SKEWED.ravel(), minlength=256)
CDF = COUNTS.cumsum() - COUNTS[COUNTS > 0][0]
UNIFORM = np.full((9, 9), 77, np.uint8)

# every intensity tool with arguments it takes on any of these pictures
CALLS = [
    ("adjust_contrast", {"factor": 1.7}), ("adjust_brightness", {"factor": 1.3}), ("adjust_sharpness", {"factor": 2}),
    ("threshold", {"lower": 30, "upper": 180}), ("window_level", {"center": 128, "width": 300}),
    ("equalize_histogram", {}), ("adaptive_equalize", {}), ("adaptive_equalize", {"clip_limit": 4, "tile_size": 32}),
    ("detect_edges", {"method": "sobel"}), ("detect_edges", {"method": "laplacian"}), ("denoise", {"sigma": 1.5}),
    ("morphological", {"operation": "close", "iterations": 5}),
    ("morphological", {"operation": "erode", "iterations": 2, "threshold_value": 100}), ("symmetry_diff", {}),
    ("invert", {}),
]  # fmt: skip
KEEP_COLOR = {"adjust_contrast", "adjust_brightness", "adjust_sharpness", "denoise"}
# value by value: the same whatever part of the picture is shown
POINTWISE = {"adjust_contrast", "adjust_brightness", "threshold", "window_level", "equalize_histogram", "invert"}


@each("name, arguments, pixels, theirs, most", [
    *((f"adjust_{what}", {"factor": factor}, pixels, getattr(ImageEnhance,
     what.title())(Image.fromarray(pixels)).enhance(factor), 1) for what in ("brightness",
     "contrast") for factor in (0.5, 0.77, 1, 1.7, 2) for pixels in (GRAY, COLOR)),
    # Pillow rounds down
    *((f"adjust_{what}", {"factor": 1}, COLOR, COLOR, 0) for what in ("contrast", "brightness", "sharpness")),
    ("invert", {}, GRAY, 255 - GRAY.astype(int), 0), ("invert", {}, COLOR, 255 - LUMA, 1),
    ("invert", {}, DEEP, 255 - EIGHT, 0), ("adjust_brightness", {"factor": 0.5}, DEEP, EIGHT / 2, 0.5),
    ("equalize_histogram", {}, UNIFORM, UNIFORM, 0),
    ("equalize_histogram", {}, SKEWED, np.round(CDF / CDF[-1] * 255)[SKEWED], 0),  # the textbook
    ("equalize_histogram", {}, SKEWED, ImageOps.equalize(Image.fromarray(SKEWED)), COUNTS.max() / 10),
])  # fmt: skip
def test_a_point_operation_is_that_of_pillow_or_of_the_textbook(name, arguments, pixels, theirs, most):
    ours, theirs = shown(pixels, name, **arguments), np.asarray(theirs).astype(float)
    assert ours.shape == theirs.shape
    assert abs(ours - theirs).max() <= most


def test_the_order_of_calls_is_the_order_of_operations():
    brighter, inverted = ("adjust_brightness", {"factor": 2}), ("invert", {})
    assert (after(GRAY, brighter, inverted).to_uint8() == 255 - np.minimum(255, 2 * GRAY.astype(int))).all()
    assert (after(GRAY, inverted, brighter).to_uint8() == np.minimum(255, 2 * (255 - GRAY.astype(int)))).all()


# ---- what holds for all of them
@each("name, arguments", CALLS)
def test_a_call_keeps_coordinates_states_its_arguments_can_be_undone_and_writes_to_nothing(name, arguments):
    before = View.of(COLOR).zoom(2, (0.3, 0.3)).rotate()
    now, result = call(name, before, arguments)
    assert (now.matrix, now.size, now.undo()) == (before.matrix, before.size, before)
    assert result.facts.items() >= {**arguments, "size": before.size}.items()
    assert now.render().mode == ("RGB" if name in KEEP_COLOR else "L")
    for source in (GRAY, COLOR, DEEP, DEEP.astype(np.float32)):
        native = source.copy()
        before = View.of(native)
        picture = before.to_uint8().copy()
        now = after(before, (name, arguments))
        now.zoom(2).render()
        assert (native == source).all()
        assert (before.to_uint8() == picture).all()
        if name in POINTWISE and source.ndim == 2:  # statistics are fixed at the call
            assert (now.crop((1 / 3, 0.25, 2 / 3, 0.75)).to_uint8() == now.to_uint8()[15:45, 30:60]).all()
        steps = after(source, ("adjust_brightness", {"factor": 0.8}), (name, arguments))
        at_once = View.of(source)
        for operation in steps.operations:  # drawn all at once, not step by step
            at_once = at_once.apply(operation)
        assert (at_once.to_uint8() == steps.to_uint8()).all()


SHAPES = [(1, 1), (3, 2), (2, 5000), (5000, 1), (40, 50)]


@each("name, arguments", CALLS)
def test_odd_pictures_survive_every_tool(name, arguments):
    for shape in SHAPES:
        for kind, more in ((np.uint8, ()), (np.uint8, (3,)), (np.uint16, ())):
            now = after(View.of(np.full(shape + more, 100, kind), max_pixels=4096), (name, arguments))
            for view in (now, now.zoom(2)):
                picture = view.to_uint8()
                assert (picture.dtype, picture.shape[:2], np.ptp(picture)) == (np.uint8, view.size[::-1], 0)


RANGES = [
    ("adjust_contrast", "factor", 0.5, 3, {}), ("adjust_brightness", "factor", 0.5, 2, {}),
    ("adjust_sharpness", "factor", 0.1, 3, {}), ("threshold", "lower", 0, 254, {"upper": 255}),
    ("threshold", "upper", 1, 255, {"lower": 0}), ("adaptive_equalize", "clip_limit", 1, 4, {}),
    ("adaptive_equalize", "tile_size", 2, 32, {}), ("denoise", "sigma", 0.5, 5, {}),
    ("morphological", "iterations", 1, 5, {"operation": "open"}),
    ("morphological", "threshold_value", 0, 255, {"operation": "open"}),
]  # fmt: skip
ENDS = {("threshold", "lower"): (0, 205), ("threshold", "upper"): (50, 255)}  # which has a least width as well


@each("name, argument, low, high, others", RANGES)
def test_the_ends_of_a_range_are_allowed_and_what_is_beyond_is_told_the_range(name, argument, low, high, others):
    for value in ENDS.get((name, argument), (low, high)):
        assert call(name, GRAY, {**others, argument: value})
    for value in (low - 1, high + 1):
        said = refused(name, GRAY, {**others, argument: value})
        assert f"{name}: {argument} = {value}" in said
        assert f"allowed: {low:g} to {high:g}" in said
