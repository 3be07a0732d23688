"""Geometry as properties: what the transform says is where the pixels are, through any chain of zooms and crops."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from PIL import Image

from viewbox.images.resample import fit_size
from viewbox.images.source import Source
from viewbox.images.view import View

UNIT = st.floats(0, 1)


@st.composite
def zooms(draw, most=4):
    return ("zoom", draw(st.floats(0.5, most)), (draw(UNIT), draw(UNIT)))


@st.composite
def crops(draw):
    x, y = draw(st.floats(0, 0.6)), draw(st.floats(0, 0.6))
    return ("crop", (x, y, x + draw(st.floats(0.3, 1)) * (1 - x), y + draw(st.floats(0.3, 1)) * (1 - y)))


CHAINS = st.lists(zooms() | crops(), max_size=5)
SIZES = st.tuples(st.integers(1, 600), st.integers(1, 600))
SPACINGS = st.tuples(st.floats(0.1, 10), st.floats(0.1, 10))
BUDGETS = st.sampled_from([(256, 1), (256, 16), (4096, 1), (4096, 28), (65536, 32)])


def walk(view, chain):
    for name, *arguments in chain:
        view = getattr(view, name)(*arguments)
        yield view


def last(view, chain):
    return [view, *walk(view, chain)][-1]


# ---- the map
@settings(max_examples=60, deadline=None)
@given(st.floats(1, 4), st.floats(0.3, 0.7), st.floats(0.3, 0.7))
def test_a_zoom_is_centered_on_its_point_and_stays_inside_the_image(factor, u, v):
    assume(0.5 / factor <= min(u, v, 1 - u, 1 - v))
    whole = View.of(Image.new("L", (200, 100)))
    assert whole.zoom(factor, (u, v)).to_original((0.5, 0.5)) == pytest.approx((u, v))
    assert whole.zoom(2).zoom(0.5, (0, 0)).zoom(0.5).window == (0, 0, 1, 1)
    assert whole.zoom(4, (1, 1)).window == (0.75, 0.75, 1, 1)


# ---- sizes
@settings(max_examples=100, deadline=None)
@given(SIZES, st.none() | SPACINGS, CHAINS, BUDGETS)
def test_no_view_leaves_the_image_or_its_budget_its_sides_are_multiples_and_it_maps_back(size, spacing, chain, budget):
    most, multiple = budget
    view = View.of(Source.of(Image.new("RGB", size), spacing=spacing), max_pixels=most, multiple=multiple)
    for shown in [view, *walk(view, chain)]:
        assert shown.from_original(shown.to_original((0.3, 0.8))) == pytest.approx((0.3, 0.8), abs=1e-9)
        (x1, y1, x2, y2), (width, height) = shown.window, shown.size
        assert -1e-9 <= x1 < x2 <= 1 + 1e-9
        assert -1e-9 <= y1 < y2 <= 1 + 1e-9
        assert 0 < width * height <= most
        assert width % multiple == height % multiple == 0
    assert shown.render().size == shown.size


def test_a_very_long_image_is_shown_within_the_budget():
    for size in [(20000, 1), (1, 20000), (4000, 10), (10, 4000), (70000, 2)]:
        for most, multiple in [(256, 1), (256, 16), (4096, 28)]:
            view = View.of(Image.new("L", size, 9), max_pixels=most, multiple=multiple)
            for shown in (view, view.zoom(4), view.zoom(4).zoom(4), view.crop((0.2, 0, 0.4, 1))):
                assert shown.size[0] * shown.size[1] <= most
                assert np.asarray(shown.render()).mean() == 9


@settings(max_examples=100, deadline=None)
@given(st.floats(0.01, 1e5), st.floats(0.01, 1e5), BUDGETS, st.booleans())
def test_fit_respects_the_budget_for_any_aspect_and_enlarges_nothing_that_fits(width, height, budget, enlarge):
    w, h = fit_size(width, height, *budget, enlarge=enlarge)
    assert 0 < w * h <= budget[0]
    assert w % budget[1] == h % budget[1] == 0
    native = math.ceil(width) % 500 + 1, math.ceil(height) % 500 + 1
    assert fit_size(*native, 500 * 500) == native


def test_zooms_do_not_shrink_the_picture_and_enlarge_past_the_native_size_up_to_the_budget():
    for size in [(300, 170), (313, 97), (100, 100)]:
        for most, multiple in [(4096, 1), (40000, 28), (65536, 32)]:
            view = View.of(Image.new("L", size), max_pixels=most, multiple=multiple)
            sizes = [shown.size for shown in walk(view, [("zoom", 1.2, (0.5, 0.5))] * 10)]
            for before, after in itertools.pairwise([view.size, *sizes]):
                assert after[0] >= before[0]
                assert after[1] >= before[1]
    small = View.of(Image.new("L", (33, 41)), max_pixels=512 * 512)
    assert (small.size, small.zoom(4).size) == ((33, 41), (132, 164))
    assert math.prod(small.zoom(4).zoom(4).size) <= 512 * 512 < 1.02 * math.prod(small.zoom(4).zoom(4).size)
    assert small.zoom(4).zoom(0.25).size == (132, 164)  # zooming out keeps the grid
    full = View.of(Image.new("L", (192, 192)), max_pixels=48 * 48)
    assert {full.size, full.zoom(4).size, full.zoom(4).zoom(2, (0, 0)).size} == {(48, 48)}
    for spacing in [(1e-9, 1e9), (1e300, 1e-300), (0.0, 1.0), (1.0, 1.0000001), (float("inf"), 1.0)]:
        assert View.of(Source.of(np.zeros((10, 20), np.uint8), spacing=spacing)).size == (20, 10)


# ---- pixels that are not square
@settings(max_examples=100, deadline=None)
@given(st.tuples(st.integers(20, 200), st.integers(20, 200)), SPACINGS, CHAINS)
def test_millimeters_are_as_long_along_x_as_along_y(size, spacing, chain):
    view = last(View.of(Source.of(np.zeros(size[::-1], np.uint8), spacing=spacing), max_pixels=65536), chain)
    (x1, y1, x2, y2), (width, height) = view.native, view.size
    assume(min(width, height) >= 8)  # a side is rounded to whole pixels
    shown = ((x2 - x1) * spacing[0] / width) / ((y2 - y1) * spacing[1] / height)
    assert abs(math.log(shown)) < 2 / min(width, height) + 1e-3


@settings(max_examples=60, deadline=None)
@given(st.floats(2, 6), st.booleans(), st.booleans(), UNIT, UNIT)
def test_a_marker_in_a_stretched_picture_is_where_the_transform_says(ratio, turn, mirror, u, v):
    pixels = np.zeros((40, 100), np.uint8)
    row, column = 3 + int(u * 30), 3 + int(v * 90)
    pixels[row : row + 2, column : column + 4] = 255
    view = View.of(Source.of(pixels, spacing=(1.0, ratio)), max_pixels=512 * 512)
    view = view.rotate() if turn else view
    view = view.flip_horizontal() if mirror else view
    u1, v1, u2, v2 = view.from_original((column / 100, row / 40, (column + 4) / 100, (row + 2) / 40))
    rows, columns = np.nonzero(view.to_uint8() >= 128)
    width, height = view.size
    found = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
    expected = min(u1, u2) * width, min(v1, v2) * height, max(u1, u2) * width, max(v1, v2) * height
    assert found == pytest.approx(expected, abs=1.01)


# ---- pixels
def test_a_zoom_shows_native_pixels_a_chain_loses_nothing_and_an_overview_is_the_means_of_blocks():
    noise = np.random.default_rng(0).integers(0, 256, (256, 256), dtype=np.uint8)
    view = View.of(noise, max_pixels=64 * 64)
    for shown in (view.zoom(4), view.zoom(2).zoom(2)):
        assert (np.asarray(shown.render()) == noise[96:160, 96:160]).all()
    noise = np.random.default_rng(0).integers(0, 256, (256, 192), dtype=np.uint8)
    shown = np.asarray(View.of(noise, max_pixels=64 * 48).render(), dtype=float)
    assert abs(shown - noise.reshape(64, 4, 48, 4).mean((1, 3))).max() <= 0.5 + 1e-6


def test_operations_are_applied_in_call_order_and_told_the_view_of_their_grid():
    view = View.of(np.full((20, 20), 10, np.uint8))
    changed = view.apply(lambda pixels, _: pixels + 1).apply(lambda pixels, _: pixels * 2)
    assert changed.render().getpixel((0, 0)) == 22
    assert changed.zoom(2).reset() == view
    told = []
    view = View.of(np.zeros((40, 20), np.uint8)).apply(lambda pixels, view: told.append(view) or pixels)
    after = view.zoom(2).apply(lambda pixels, view: told.append(view) or pixels)
    after.render()
    assert [(one.window, len(one.operations)) for one in told] == [(after.window, 0), (after.window, 1)]


def test_a_change_is_computed_once_and_again_where_the_viewer_looks_elsewhere():
    for seen in [True, False]:
        calls = []
        view = View.of(np.zeros((20, 20), np.uint8)).apply(lambda pixels, _, calls=calls: calls.append(1) or pixels)
        if seen:
            view.render()
        after = view.apply(lambda pixels, _: pixels + 1)
        assert after.render().getpixel((0, 0)) == 1
        assert len(calls) == 1
    view = View.of(np.arange(100, dtype=np.uint8).reshape(10, 10)).apply(lambda pixels, _: pixels + 1)
    view.render()
    assert (view.flip_horizontal().to_uint8() == view.to_uint8()[:, ::-1]).all()


def test_the_grids_of_a_long_chain_are_not_all_kept_and_none_can_be_written_to():
    import tracemalloc

    view = View.of(np.zeros((512, 512), np.float32), max_pixels=256 * 256)
    view.get_values()
    tracemalloc.start()
    for i in range(30):
        view = view.zoom(1.01) if i % 3 else view.zoom(1.01).flip_vertical().rotate()
        view.get_values()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 3 * view.get_values().nbytes
    pixels = np.zeros((4, 4), np.uint8)
    view = View.of(pixels)
    view.render()
    with pytest.raises(ValueError, match="read-only"):
        view.get_values()[0, 0] = 1
    pixels[0, 0] = 1
    assert pixels[0, 0] == 1


# ---- steps back, and what is the same
def test_undo_goes_back_one_step_also_over_a_reset_and_another_image_and_stays_at_the_first():
    first = View.of(np.zeros((40, 20), np.uint8), max_pixels=32 * 32, multiple=16)
    view, other = first.zoom(2), Source.of(np.zeros((100, 100), np.uint8))
    assert first.undo() is view.undo() is first
    assert view.show(other) == View.of(other, max_pixels=32 * 32, multiple=16)
    for after in (view.rotate(), view.reset(), view.show(other)):
        assert after.undo() is view


def test_views_that_show_the_same_are_equal_however_they_came_about_and_of_two_images_not():
    turns = ["rotate"] * 4, ["flip_horizontal"] * 2, ["flip_horizontal", "flip_vertical", "rotate", "rotate"]
    for steps in (*turns, ["zoom", "undo"]):
        first = view = View.of(np.zeros((40, 20), np.uint8)).crop((0.1, 0.2, 0.7, 0.9))
        for step in steps:
            view = view.zoom(2) if step == "zoom" else getattr(view, step)()
        assert view == first
        assert hash(view) == hash(first)
    assert View.of(np.zeros((4, 4), np.uint8)) != View.of(np.zeros((4, 4), np.uint8))
