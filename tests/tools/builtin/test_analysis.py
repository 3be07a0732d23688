"""Tools that read: every number is checked against NumPy on the original's own pixels."""

import math
import string

import numpy as np
import pytest
from PIL import Image

from tests.support.tables import each
from tests.support.tool_calls import after, facts, read, refused
from viewbox.images.source import Source
from viewbox.images.view import View
from viewbox.tools.builtin.analysis import LONGEST_PROFILE
from viewbox.tools.builtin.drawing import COLORS

RNG = np.random.default_rng(0)
GRAY, COLOR = RNG.integers(0, 256, (60, 100), dtype=np.uint8), RNG.integers(0, 256, (60, 100, 3), dtype=np.uint8)
CT, FLOAT = RNG.normal(0, 500, (60, 100)).astype(np.int16), RNG.normal(-3, 7, (60, 100)).astype(np.float32)
DEEP = RNG.integers(0, 60000, (60, 100)).astype(np.uint16)
STATS, PROFILE = "get_intensity_stats", "intensity_profile"


def shown(name, image, **arguments):
    return np.asarray(read(name, image, arguments).image.open())


# ---- statistics
@each("pixels", [GRAY, CT, DEEP, FLOAT, np.full((9, 9), 7, np.uint8), np.array([[-5]], np.int16)])
def test_statistics_are_those_of_numpy_over_all_native_pixels(pixels):
    for view in (View.of(pixels), View.of(pixels, max_pixels=64)):
        found = facts(STATS, view)
        said = {"mean": pixels.mean(dtype=float), "std": pixels.std(dtype=float), "median": np.median(pixels)}
        assert {name: found[name] for name in said} == pytest.approx(said)
        assert (found["min"], found["max"], found["size"]) == (pixels.min(), pixels.max(), pixels.shape[::-1])
        assert found["histogram"] == tuple(np.histogram(pixels, 10)[0])


SMALL = (0.501, 0.501, 0.504, 0.504)
TURNED = View.of(GRAY).rotate().zoom(2)
(X1, Y1, X2, Y2) = TURNED.from_original(SMALL)


@each("image, box, pixels", [
    (CT, [0.1, 0.2, 0.304, 0.509], CT[12:31, 10:30]),  # to 30.4 and 30.54: pixels whose centers lie in it
    (GRAY, [0, 0, 0.335, 1], GRAY[:, :33]), (GRAY, [0.335, 0, 1, 1], GRAY[:, 33:]),  # side by side they share none
    (COLOR, [0, 0, 0.5, 1], COLOR[:, :50] @ [0.299, 0.587, 0.114]),  # luminance
    # a box smaller than a pixel is of the pixel it lies in, also in a turned view
    (GRAY, [0.101, 0.1, 0.104, 0.9], GRAY[6:54, 10:11]), (GRAY, [0.5, 0.5, 0.501, 0.501], GRAY[30:31, 50:51]),
    (GRAY, [0.999, 0.999, 1, 1], GRAY[59:, 99:]),
    (TURNED, [min(X1, X2), min(Y1, Y2), max(X1, X2), max(Y1, Y2)], GRAY[30:31, 50:51]),
    *((view, [0, 0, 0.5, 0.5], view.get_values()[: view.size[1] // 2,
     : view.size[0] // 2]) for view in (getattr(View.of(GRAY).crop((0.1, 0.1, 0.9, 0.6)), turn)() for turn in ("rotate",
     "flip_horizontal", "flip_vertical"))),
])  # fmt: skip
def test_statistics_of_a_box_are_of_what_is_seen_there(image, box, pixels):
    found = facts(STATS, image, box=box)
    assert found["size"] == pixels.shape[1::-1]
    assert found["mean"] == pytest.approx(pixels.mean(), abs=0.1 if image is COLOR else 1e-9)
    assert found["max"] == pytest.approx(pixels.max(), abs=1 if image is COLOR else 0)


def test_statistics_name_hounsfield_units_and_do_not_count_filters():
    assert facts(STATS, Source.of(CT, unit="HU"))["unit"] == "HU"
    assert "unit" not in facts(STATS, CT)
    assert facts(STATS, after(DEEP, ("adjust_contrast", {"factor": 3}))) == facts(STATS, DEEP)


@each("name", [STATS, "annotate_region"])
def test_a_reversed_box_is_refused(name):
    assert "x1 < x2 and y1 < y2" in refused(name, GRAY, {"box": [0.5, 0, 0.5, 1]})


# ---- profiles and distances

GREEN = np.zeros((4, 4, 3), np.uint8)
GREEN[0, 1] = 0, 255, 0
MIRRORED = View.of(GRAY).rotate().flip_horizontal().crop((0, 0, 1, 0.5))


@each("image, ends, profile", [
    (CT, ([0.1, 0.5], [0.4, 0.5]), CT[30, 10:41]), (GREEN, ([0, 0], [1, 0]), (0, 150, 0, 0)),
    (DEEP, ([0.1, 0.1], [0.3, 0.2]), [DEEP[round(6 + 6 * i / 20), 10 + i] for i in range(21)]),
    # (10, 6) to (30, 12)
    (MIRRORED, ([0.01, 0.5], [0.99, 0.5]), MIRRORED.get_values()[25]), (GRAY, ([1, 1], [1, 1]), GRAY[59:, 99]),
])  # fmt: skip
def test_a_profile_takes_the_nearest_pixels_there_and_back(image, ends, profile):
    found = facts(PROFILE, image, point1=ends[0], point2=ends[1])
    assert (found["profile"], found["n_samples"], found["std"]) == (
        tuple(profile),
        len(profile),
        pytest.approx(np.std(profile)),
    )
    assert facts(PROFILE, image, point1=ends[1], point2=ends[0])["profile"] == tuple(profile)[::-1]


def test_a_long_profile_is_told_in_part_but_counted_whole():
    result = read(PROFILE, DEEP, {"point1": [0, 0], "point2": [1, 0]})
    profile, row = result.facts["profile"], DEEP[0]
    assert (len(profile), profile[0], profile[-1], result.facts["n_samples"]) == (LONGEST_PROFILE, row[0], row[99], 100)
    told = [result.facts[name] for name in ("mean", "std", "min", "max")]
    assert told == pytest.approx([row.mean(), row.std(), row.min(), row.max()])
    assert f"{LONGEST_PROFILE} evenly spaced samples" in result.text


SPACED = Source.of(CT, spacing=(0.5, 2.0))  # pixels that are not square


@each("image, ends, points, pixels, mm", [
    (np.zeros((12, 16), np.uint8), ([0, 0], [1, 1]), ((0, 0), (16, 12)), 20, None),
    # not between the centers of pixels
    (Source.of(np.zeros((12, 16), np.int16), spacing=(0.5, 0.5)), ([0, 0], [1, 1]), ((0, 0), (16, 12)), 20, 10),
    (GRAY, ([0.1, 0.1], [0.4, 0.75]), ((10, 6), (40, 45)), math.hypot(30, 39), None),
    (SPACED, ([0.1, 0.1], [0.4, 0.75]), ((10, 6), (40, 45)), math.hypot(30, 39), math.hypot(30 * 0.5, 39 * 2.0)),
])  # fmt: skip
def test_a_distance_is_in_pixels_and_where_it_is_known_in_millimeters(image, ends, points, pixels, mm):
    result = read("measure", image, {"point1": ends[0], "point2": ends[1]})
    assert (result.facts["pixel_points"], result.facts["distance_pixels"]) == (points, pytest.approx(pixels))
    assert result.facts.get("distance_mm") == (mm and pytest.approx(mm))
    assert ("millimeters is not known" in result.text) == (mm is None)
    if image is GRAY:
        assert facts(PROFILE, image, point1=ends[0], point2=ends[1])["pixel_points"] == points


def test_a_distance_is_the_same_however_the_view_is_turned_and_zoomed():
    overview = View.of(SPACED, max_pixels=300)
    for view in (overview, overview.zoom(1.3), overview.rotate(), overview.rotate(False).flip_vertical().zoom(1.2)):
        u1, v1, u2, v2 = view.from_original((0.325, 0.408, 0.605, 0.508))
        found = facts("measure", view, point1=[u1, v1], point2=[u2, v2])
        assert found["pixel_points"] == pytest.approx(np.array([(32.5, 24.48), (60.5, 30.48)]))
        assert found["distance_mm"] == pytest.approx(math.hypot(14, 12))


# ---- marks
@each("color", list(COLORS))
def test_an_outline_is_two_pixels_wide_within_its_box(color):
    before = np.asarray(View.of(GRAY).render().convert("RGB"))
    found = shown("annotate_region", GRAY, box=[0.2, 0.25, 0.6, 0.75], color=color)
    said = np.zeros((60, 100), bool)
    said[15:45, 20:60] = True
    said[17:43, 22:58] = False
    assert (found == COLORS[color]).all(2)[said].all()
    assert (found[~said] == before[~said]).all()


def test_an_outline_is_drawn_where_the_turned_view_shows_it_and_however_thin_its_box_is():
    found = shown("annotate_region", View.of(GRAY).rotate().crop((0, 0, 1, 0.5)), box=[0.5, 0.5, 1, 1])
    rows, columns = np.nonzero((found == COLORS["red"]).all(2))
    assert (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1) == (30, 25, 60, 50)
    assert tuple(shown("annotate_region", GRAY, box=[0.9999, 0.9999, 1, 1])[59, 99]) == COLORS["red"]


@each("top, lowest", [(0.5, 30), (0, 20)])
def test_a_label_is_drawn_above_its_box_or_inside_at_the_edge(top, lowest):
    box = [0.1, top, 0.9, 1]
    plain, labeled = (shown("annotate_region", GRAY, box=box, **more) for more in ({}, {"label": "left lung"}))
    rows = np.nonzero((plain != labeled).any((1, 2)))[0]
    assert rows.max() < lowest
    words = labeled[rows.min() : rows.max() + 1].astype(int)
    assert ((words[..., 0] > 200) & (words[..., 1] == 0)).sum() > 40
    assert (words == 0).all(2).sum() > 200


# nalepae/bounding-box#7: a letter of it would be an empty box
@each("label", ["右肺", "лево", "قلب", "é", "e\u0301", "≥5 mm", "10²", "µ", "😀", "left\u200d"])
def test_a_label_is_refused_if_a_letter_of_it_cannot_be_drawn(label):
    words = refused("annotate_region", GRAY, {"box": [0, 0, 1, 1], "label": label})
    assert "cannot be drawn; allowed: English letters, digits and ASCII signs" in words


def test_letters_that_are_drawn_differ_and_every_cell_of_a_grid_is_labeled_in_its_corner():
    box = {"box": [0.1, 0.5, 0.9, 1]}
    hashes = {read("annotate_region", GRAY, {**box, "label": sign}).image.hash for sign in string.printable[:94]}
    assert len(hashes) == 94
    found = shown("show_grid", np.full((160, 160), 90, np.uint8), divisions=8)
    corners = found.reshape(8, 20, 8, 20, 3)[:, 1:14, :, 1:14]
    assert ((corners == 0).all(4).sum((1, 3)) > 30).all()  # black behind the letters


@each("coordinates, box", [
    ("unit", (0.25, 0.5, 0.75, 1.0)), ("per_mille", (250, 500, 750, 1000)), ("pixel", (25, 30, 75, 60)),
])  # fmt: skip
def test_a_box_that_was_drawn_is_told_as_it_was_written(coordinates, box):
    result = read("annotate_region", GRAY, {"box": list(box), "label": "a  b"}, coordinates=coordinates)
    assert {**result.facts, "shows": None} == {"box": box, "color": "red", "label": "a b", "shows": None}
    long = {"box": [0, 0, 1, 1], "label": "x" * 41}
    assert "label has 41 characters; allowed: at most 40" in refused("annotate_region", GRAY, long)


@each("divisions", range(2, 9))
def test_a_grid_has_its_lines_between_its_cells_which_are_named_and_labeled_row_by_row(divisions):
    result = read("show_grid", np.zeros((160, 240), np.uint8), {"divisions": divisions})
    marked = np.asarray(result.image.open()).any(2)
    assert np.nonzero(marked[-1])[0].tolist() == [round(240 * i / divisions) for i in range(1, divisions)]
    assert np.nonzero(marked[:, -1])[0].tolist() == [round(160 * i / divisions) for i in range(1, divisions)]
    names = tuple(f"{chr(65 + column)}{row + 1}" for row in range(divisions) for column in range(divisions))
    assert (result.facts["divisions"], result.facts["cell_labels"]) == (divisions, names)


@each("mode", ["L", "RGB"])
def test_marks_leave_the_picture_that_is_shown_later_as_it_is(mode):
    view = View.of(Image.fromarray(GRAY).convert(mode))
    before = np.asarray(view.render()).copy()
    read("annotate_region", view, {"box": [0, 0, 1, 1], "label": "all"})
    read("show_grid", view)
    assert (np.asarray(view.render()) == before).all()
