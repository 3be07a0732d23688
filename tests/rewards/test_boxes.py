"""IoUReward: geometry that holds for every box, and boxes that are none."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from viewbox.errors import ConfigError
from viewbox.rewards import IoUReward, iou

UNIT = st.floats(0, 1)
GRID = st.integers(0, 16)  # exact in binary after / 16


@st.composite
def boxes(draw, numbers=UNIT):
    x1, x2 = sorted((draw(numbers), draw(numbers)))
    y1, y2 = sorted((draw(numbers), draw(numbers)))
    assume(x2 - x1 > 1e-9 and y2 - y1 > 1e-9)
    return [x1, y1, x2, y2]


def score(box, gold=(0.25, 0.25, 0.75, 0.75), **options):
    return IoUReward("bbox", **options)({"bbox": box}, {"bbox": gold})


@pytest.mark.parametrize(
    ("box", "expected"),
    [
        ([0.25, 0.25, 0.75, 0.75], 1.0),
        ((0.25, 0.25, 0.75, 0.75), 1.0),
        ([0.25, 0.25, 0.75, 0.5], 0.5),
        ([0, 0, 1, 1], 0.25),  # the whole image
        ([0.75, 0.75, 1, 1], 0.0),  # touching
        ([250, 250, 750, 750], 0.0),  # coordinates nobody converted
    ],
)
def test_the_score_is_intersection_over_union(box, expected):
    assert score(box) == expected


@pytest.mark.parametrize(
    "box",
    [
        None,
        [],
        [0.25, 0.25, 0.75],
        [0.25, 0.25, 0.75, 0.75, 1],
        [0.75, 0.75, 0.25, 0.25],
        [0.75, 0.25, 0.25, 0.75],
        [0.5, 0.5, 0.5, 0.5],
        [0.25, 0.5, 0.75, 0.5],
        [-math.inf, -math.inf, math.inf, math.inf],
        *[[0.25, 0.25, 0.75, bad] for bad in (math.nan, math.inf, 10**400, "0.75", True, None, 0.75j, [0.75])],
        [-1e308, -1e308, 1e308, 1e308],
        [0, 0, 5e-324, 5e-324],
        [False, False, True, True],
        "0.25, 0.25, 0.75, 0.75",
        b"\x00\x00\x01\x01",
        [[0.25, 0.25, 0.75, 0.75], [0, 0, 1, 1]],
        {"x1": 0.25, "y1": 0.25, "x2": 0.75, "y2": 0.75},
        [0] * 1_000_000,
        0.5,
    ],
)
@pytest.mark.parametrize("options", [{}, {"threshold": 1e-9}, {"area_penalty": 2.0}])
def test_what_is_not_a_box_scores_zero_even_against_itself(box, options):
    assert score(box, **options) == 0.0
    assert score(box, gold=box, **options) == 0.0


def test_a_missing_gold_scores_zero():
    assert IoUReward()({"bbox": [0, 0, 1, 1]}, {}) == IoUReward()(None, {}) == 0.0


def test_xywh_reads_width_and_height_on_both_sides():
    assert score([0.5, 0.5, 0.25, 0.25], [0.5, 0.5, 0.25, 0.5], format="xywh") == 0.5
    assert score([0.5, 0.5, 0.0, 0.25], [0.5, 0.5, 0.25, 0.5], format="xywh") == 0.0
    assert score([0.5, 0.5, -0.25, -0.25], [0.25, 0.25, 0.25, 0.25], format="xywh") == 0.0


@pytest.mark.parametrize(("threshold", "expected"), [(0.5, 1.0), (0.51, 0.0), (1, 0.0)])
def test_a_threshold_makes_it_zero_or_one(threshold, expected):
    assert score([0.25, 0.25, 0.75, 0.5], threshold=threshold) == expected


@pytest.mark.parametrize(
    "options",
    [{"threshold": value} for value in (0, -0.1, 1.1, math.nan, "0.5", True)]
    + [{"area_penalty": value} for value in (-1, math.nan, math.inf, None)]
    + [{"format": "cxcywh"}],
)
def test_an_option_without_a_meaning_is_refused(options):
    with pytest.raises(ConfigError, match="allowed"):
        IoUReward(**options)


def test_the_area_penalty_acts_only_beyond_the_gold():
    assert score([0.25, 0.25, 0.75, 0.5], area_penalty=3.0) == score([0.25, 0.25, 0.75, 0.5])
    assert score([0, 0, 1, 1], area_penalty=1.0) == 0.25 / (1 + 1.0 * (4 - 1))
    assert score([0, 0, 0.95, 0.95], gold=[0, 0, 0.95, 0.95], area_penalty=100.0) == 1.0


@given(boxes(), st.sampled_from(["xyxy", "xywh"]), st.floats(0, 1e6))
def test_a_perfect_box_scores_exactly_one(box, format, penalty):
    assert score(box, gold=box, format=format, area_penalty=penalty) == 1.0


@given(boxes(st.floats(-1e9, 1e9)), boxes(st.floats(-1e9, 1e9)))
def test_it_is_symmetric_and_lies_between_zero_and_one(a, b):
    assert iou(a, b) == iou(b, a)
    assert 0.0 <= iou(a, b) <= 1.0


@given(st.lists(st.floats() | st.integers(), min_size=4, max_size=4), boxes(), st.floats(0, 1e300))
def test_it_is_finite_whatever_the_numbers(box, gold, penalty):
    assert 0.0 <= score(box, gold=gold, area_penalty=penalty) <= 1.0


@given(boxes(GRID), boxes(GRID), st.integers(-8, 8), st.integers(-8, 8), st.sampled_from([0.25, 2, 64]))
def test_moving_and_scaling_both_boxes_changes_nothing(a, b, dx, dy, factor):
    def moved(box):
        return [(value + shift) * factor for value, shift in zip(box, (dx, dy, dx, dy), strict=True)]

    assert iou(moved(a), moved(b)) == iou(a, b)


@given(boxes(), boxes())
def test_mirroring_and_transposing_both_boxes_changes_nothing(a, b):
    def turned(box):
        x1, y1, x2, y2 = box
        return [-y2, x1, -y1, x2]

    assert iou(turned(a), turned(b)) == pytest.approx(iou(a, b))


@given(boxes(GRID), st.integers(0, 6), st.integers(1, 6), st.floats(0, 10))
def test_growing_beyond_the_gold_never_helps(gold, margin, more, penalty):
    def grown(by):
        return [gold[0] - by, gold[1] - by, gold[2] + by, gold[3] + by]

    reward = {"gold": gold, "area_penalty": penalty}
    assert score(grown(margin + more), **reward) < score(grown(margin), **reward)


@given(boxes(), boxes(), st.floats(0, 10), st.floats(0.01, 1))
def test_a_penalty_never_adds_and_a_threshold_only_cuts(box, gold, penalty, threshold):
    assert score(box, gold=gold, area_penalty=penalty) <= score(box, gold=gold)
    assert score(box, gold=gold, threshold=threshold) == float(iou(box, gold) >= threshold)
