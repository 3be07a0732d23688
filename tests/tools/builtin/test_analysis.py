"""Tools that read: every number is checked against NumPy on the original's own pixels."""

import math
import string

import numpy as np
import pytest
from PIL import Image

from viewbox.images.source import Source
from viewbox.images.view import View
from viewbox.tools import call_stateful
from viewbox.tools.builtin.analysis import LONGEST_PROFILE
from viewbox.tools.builtin.drawing import COLORS

RNG = np.random.default_rng(0)
GRAY = RNG.integers(0, 256, (60, 100), dtype=np.uint8)
CT = RNG.normal(0, 500, (60, 100)).astype(np.int16)
DEEP = RNG.integers(0, 60000, (60, 100)).astype(np.uint16)
FLOAT = RNG.normal(-3, 7, (60, 100)).astype(np.float32)
ALL = [GRAY, CT, DEEP, FLOAT, np.full((9, 9), 7, np.uint8), np.array([[-5]], np.int16)]


def read(name, image, arguments=None, **options):
    view = image if isinstance(image, View) else View.of(image)
    after, result = call_stateful(name, view, arguments or {}, **options)
    assert result.error is None, result.error
    assert after is view
    return result


def facts(name, image, **arguments):
    return read(name, image, arguments).facts


# ---- statistics


def test_statistics_are_those_of_numpy():
    for pixels in ALL:
        found = facts("get_intensity_stats", pixels)
        said = {"mean": pixels.mean(dtype=float), "std": pixels.std(dtype=float), "median": np.median(pixels)}
        assert {name: found[name] for name in said} == pytest.approx(said)
        assert (found["min"], found["max"]) == (pixels.min(), pixels.max())
        assert found["histogram"] == tuple(np.histogram(pixels, 10)[0])
        assert found["size"] == pixels.shape[::-1]


def test_statistics_are_of_all_native_pixels_not_of_the_shown_grid():
    found = facts("get_intensity_stats", View.of(DEEP, max_pixels=64))
    assert found["mean"] == pytest.approx(DEEP.mean())
    assert found["max"] == DEEP.max()


def test_statistics_of_a_box_are_of_the_pixels_whose_centers_lie_in_it():
    found = facts("get_intensity_stats", CT, box=[0.1, 0.2, 0.304, 0.509])  # to 30.4 and 30.54
    assert found["size"] == (20, 19)
    assert found["mean"] == pytest.approx(CT[12:31, 10:30].mean())


def test_boxes_side_by_side_share_no_pixel():
    parts = [facts("get_intensity_stats", GRAY, box=[a, 0, b, 1])["size"][0] for a, b in [(0, 0.335), (0.335, 1)]]
    assert sum(parts) == 100


def test_statistics_of_a_box_in_a_turned_view_are_of_what_is_seen_there():
    for turn in ["rotate", "flip_horizontal", "flip_vertical"]:
        view = getattr(View.of(GRAY).crop((0.1, 0.1, 0.9, 0.6)), turn)()
        seen = view.get_values()[: view.size[1] // 2, : view.size[0] // 2]
        found = facts("get_intensity_stats", view, box=[0, 0, 0.5, 0.5])
        assert found["mean"] == pytest.approx(seen.mean())
        assert found["size"] == seen.shape[::-1]


def test_statistics_name_hounsfield_units_and_only_those():
    assert facts("get_intensity_stats", Source.of(CT, unit="HU"))["unit"] == "HU"
    assert "unit" not in facts("get_intensity_stats", CT)


def test_statistics_do_not_count_filters():
    changed, _ = call_stateful("adjust_contrast", View.of(DEEP), {"factor": 3})
    assert facts("get_intensity_stats", changed) == facts("get_intensity_stats", DEEP)


def test_statistics_of_colors_are_of_their_luminance():
    pixels = RNG.integers(0, 256, (60, 100, 3), dtype=np.uint8)
    found = facts("get_intensity_stats", pixels, box=[0, 0, 0.5, 1])
    assert found["mean"] == pytest.approx((pixels[:, :50] @ [0.299, 0.587, 0.114]).mean(), abs=0.1)
    assert found["max"] == pytest.approx((pixels[:, :50] @ [0.299, 0.587, 0.114]).max(), abs=1)


def test_statistics_of_a_box_smaller_than_a_pixel_are_of_the_pixel_it_lies_in():
    for box, column, rows, size in [
        ([0.101, 0.1, 0.104, 0.9], 10, slice(6, 54), (1, 48)),  # within one column, between its edge and its center
        ([0.5, 0.5, 0.501, 0.501], 50, slice(30, 31), (1, 1)),
        ([0.999, 0.999, 1, 1], 99, slice(59, 60), (1, 1)),
    ]:
        found = facts("get_intensity_stats", GRAY, box=box)
        assert found["size"] == size
        assert found["mean"] == pytest.approx(GRAY[rows, column].mean())


def test_the_pixel_of_a_small_box_is_found_in_a_turned_view():
    view = View.of(GRAY).rotate().zoom(2)
    x1, y1, x2, y2 = view.from_original((0.501, 0.501, 0.504, 0.504))
    box = min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)
    found = read("get_intensity_stats", view, {"box": list(box)}).facts
    assert (found["size"], found["mean"]) == ((1, 1), GRAY[30, 50])


def test_a_reversed_box_is_refused():
    for name in ["get_intensity_stats", "annotate_region"]:
        assert "x1 < x2 and y1 < y2" in call_stateful(name, View.of(GRAY), {"box": [0.5, 0, 0.5, 1]})[1].error


# ---- profiles


def test_a_profile_along_a_row_is_that_row():
    found = facts("intensity_profile", CT, point1=[0.1, 0.5], point2=[0.4, 0.5])
    assert found["profile"] == tuple(CT[30, 10:41])
    assert found["pixel_points"] == ((10, 30), (40, 30))
    assert found["n_samples"] == 31


def test_a_slanted_profile_takes_the_nearest_pixels():
    found = facts("intensity_profile", DEEP, point1=[0.1, 0.1], point2=[0.3, 0.2])  # (10, 6) to (30, 12)
    said = [DEEP[round(6 + 6 * i / 20), 10 + i] for i in range(21)]
    assert found["profile"] == tuple(said)


def test_a_profile_backwards_is_the_profile_reversed():
    there = facts("intensity_profile", FLOAT, point1=[0.1, 0.9], point2=[0.35, 0.2])
    back = facts("intensity_profile", FLOAT, point1=[0.35, 0.2], point2=[0.1, 0.9])
    assert back["profile"] == there["profile"][::-1]


def test_a_long_profile_is_told_in_part_but_counted_whole():
    result = read("intensity_profile", DEEP, {"point1": [0, 0], "point2": [1, 0]})
    assert len(result.facts["profile"]) == LONGEST_PROFILE
    assert (result.facts["profile"][0], result.facts["profile"][-1]) == (DEEP[0, 0], DEEP[0, 99])
    assert result.facts["n_samples"] == 100
    assert result.facts["mean"] == pytest.approx(DEEP[0].mean())
    assert result.facts["std"] == pytest.approx(DEEP[0].std())
    assert (result.facts["min"], result.facts["max"]) == (DEEP[0].min(), DEEP[0].max())
    assert f"{LONGEST_PROFILE} evenly spaced samples" in result.text


def test_a_profile_in_a_turned_and_mirrored_view_is_of_what_is_seen_there():
    view = View.of(GRAY).rotate().flip_horizontal().crop((0, 0, 1, 0.5))
    found = facts("intensity_profile", view, point1=[0.01, 0.5], point2=[0.99, 0.5])
    assert found["profile"] == tuple(view.get_values()[25])


def test_a_profile_of_one_point_is_one_pixel():
    found = facts("intensity_profile", GRAY, point1=[1, 1], point2=[1, 1])
    assert (found["profile"], found["std"]) == ((GRAY[59, 99],), 0)


def test_a_profile_of_colors_is_of_their_luminance():
    pixels = np.zeros((4, 4, 3), np.uint8)
    pixels[0, 1] = 0, 255, 0
    assert facts("intensity_profile", pixels, point1=[0, 0], point2=[1, 0])["profile"] == (0, 150, 0, 0)


# ---- distances


def test_a_distance_is_between_the_points_and_not_between_the_centers_of_their_pixels():
    diagonal = facts("measure", np.zeros((12, 16), np.uint8), point1=[0, 0], point2=[1, 1])
    assert diagonal["distance_pixels"] == pytest.approx(20)
    assert diagonal["pixel_points"] == ((0, 0), (16, 12))
    source = Source.of(np.zeros((12, 16), np.int16), spacing=(0.5, 0.5))
    assert facts("measure", source, point1=[0, 0], point2=[1, 1])["distance_mm"] == pytest.approx(10)


def test_a_distance_and_a_profile_run_between_the_same_points():
    points = {"point1": [0.1, 0.1], "point2": [0.4, 0.75]}
    found, profile = facts("measure", GRAY, **points), facts("intensity_profile", GRAY, **points)
    assert found["pixel_points"] == profile["pixel_points"] == ((10, 6), (40, 45))
    assert found["distance_pixels"] == pytest.approx(math.hypot(30, 39))


def test_a_distance_in_millimeters_honors_pixels_that_are_not_square():
    source = Source.of(CT, spacing=(0.5, 2.0))
    found = facts("measure", source, point1=[0.1, 0.1], point2=[0.4, 0.75])
    assert found["distance_mm"] == pytest.approx(math.hypot(30 * 0.5, 39 * 2.0))


def test_without_a_spacing_no_millimeters_are_told_and_why():
    result = read("measure", CT, {"point1": [0, 0], "point2": [1, 1]})
    assert "distance_mm" not in result.facts
    assert "millimeters is not known" in result.text


def test_a_distance_is_the_same_however_the_view_is_turned_and_zoomed():
    overview = View.of(Source.of(CT, spacing=(0.5, 2.0)), max_pixels=300)
    ends = (0.325, 0.408, 0.605, 0.508)
    for view in (overview, overview.zoom(1.3), overview.rotate(), overview.rotate(False).flip_vertical().zoom(1.2)):
        u1, v1, u2, v2 = view.from_original(ends)
        found = facts("measure", view, point1=[u1, v1], point2=[u2, v2])
        assert found["pixel_points"] == pytest.approx(np.array([(32.5, 24.48), (60.5, 30.48)]))
        assert found["distance_mm"] == pytest.approx(math.hypot(14, 12))


# ---- marks


def test_an_outline_is_two_pixels_wide_within_its_box():
    for color in list(COLORS):
        before = np.asarray(View.of(GRAY).render().convert("RGB"))
        result = read("annotate_region", GRAY, {"box": [0.2, 0.25, 0.6, 0.75], "color": color})
        shown = np.asarray(result.image.open())
        marked = (shown == COLORS[color]).all(2)
        said = np.zeros((60, 100), bool)
        said[15:45, 20:60] = True
        said[17:43, 22:58] = False
        assert marked[said].all()
        assert (shown[~said] == before[~said]).all()


def test_an_outline_is_drawn_where_the_turned_view_shows_it():
    view = View.of(GRAY).rotate().crop((0, 0, 1, 0.5))
    shown = np.asarray(read("annotate_region", view, {"box": [0.5, 0.5, 1, 1]}).image.open())
    rows, columns = np.nonzero((shown == COLORS["red"]).all(2))
    assert (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1) == (30, 25, 60, 50)


def test_a_label_is_drawn_above_its_box_or_inside_at_the_edge():
    for top in [0.5, 0]:
        box = [0.1, top, 0.9, 1]
        plain = np.asarray(read("annotate_region", GRAY, {"box": box}).image.open())
        labeled = np.asarray(read("annotate_region", GRAY, {"box": box, "label": "left lung"}).image.open())
        rows = np.nonzero((plain != labeled).any((1, 2)))[0]
        assert rows.max() < (30 if top else 20)
        words = labeled[rows.min() : rows.max() + 1].astype(int)
        assert ((words[..., 0] > 200) & (words[..., 1] == 0)).sum() > 40
        assert (words == 0).all(2).sum() > 200


def test_a_label_that_is_too_long_is_refused_with_the_limit():
    result = call_stateful("annotate_region", View.of(GRAY), {"box": [0, 0, 1, 1], "label": "x" * 41})[1]
    assert "label has 41 characters; allowed: at most 40" in result.error


@pytest.mark.parametrize("label", ["右肺", "лево", "قلب", "é", "e\u0301", "≥5 mm", "10²", "µ", "😀", "left\u200d"])
def test_a_label_is_refused_if_a_letter_of_it_would_be_an_empty_box(label):  # nalepae/bounding-box#7
    result = call_stateful("annotate_region", View.of(GRAY), {"box": [0, 0, 1, 1], "label": label})[1]
    assert "cannot be drawn; allowed: English letters, digits and ASCII signs" in result.error


def test_letters_that_are_drawn_differ():
    box = {"box": [0.1, 0.5, 0.9, 1]}
    drawn = {read("annotate_region", GRAY, {**box, "label": sign}).image.hash for sign in string.printable[:94]}
    assert len(drawn) == 94


def test_a_box_that_was_drawn_is_told_as_it_was_written():
    for coordinates, box in [
        ("unit", (0.25, 0.5, 0.75, 1.0)),
        ("per_mille", (250, 500, 750, 1000)),
        ("pixel", (25, 30, 75, 60)),
    ]:
        result = read("annotate_region", GRAY, {"box": list(box), "label": "a  b"}, coordinates=coordinates)
        assert {**result.facts, "shows": None} == {"box": box, "color": "red", "label": "a b", "shows": None}


def test_a_box_thinner_than_a_pixel_is_still_seen():
    shown = np.asarray(read("annotate_region", GRAY, {"box": [0.9999, 0.9999, 1, 1]}).image.open())
    assert tuple(shown[59, 99]) == COLORS["red"]


def test_a_grid_has_its_lines_between_its_cells():
    for divisions in range(2, 9):
        plain = np.zeros((160, 240), np.uint8)
        result = read("show_grid", plain, {"divisions": divisions})
        marked = np.asarray(result.image.open()).any(2)
        assert np.nonzero(marked[-1])[0].tolist() == [round(240 * i / divisions) for i in range(1, divisions)]
        assert np.nonzero(marked[:, -1])[0].tolist() == [round(160 * i / divisions) for i in range(1, divisions)]


def test_the_cells_of_a_grid_are_named_row_by_row():
    found = facts("show_grid", GRAY, divisions=3)
    assert found["divisions"] == 3
    assert found["cell_labels"] == ("A1", "B1", "C1", "A2", "B2", "C2", "A3", "B3", "C3")


def test_every_cell_of_a_grid_is_labeled_in_its_corner():
    shown = np.asarray(read("show_grid", np.full((160, 160), 90, np.uint8), {"divisions": 8}).image.open())
    for row in range(8):
        for column in range(8):
            corner = shown[20 * row + 1 : 20 * row + 14, 20 * column + 1 : 20 * column + 14]
            assert (corner == 0).all(2).sum() > 30  # black behind the letters


def test_marks_leave_the_picture_that_is_shown_later_as_it_is():
    for mode in ["L", "RGB"]:
        view = View.of(Image.fromarray(GRAY).convert(mode))
        before = np.asarray(view.render()).copy()
        read("annotate_region", view, {"box": [0, 0, 1, 1], "label": "all"})
        read("show_grid", view)
        assert (np.asarray(view.render()) == before).all()
