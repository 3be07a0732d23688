"""IoUReward: geometry that holds for every box, and boxes that are none."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support.tables import each
from viewbox.errors import ConfigError, Unmeasurable
from viewbox.rewards import IoUReward, compute_iou

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


@each(
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


@each(
    "box",
    [
        None,
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
        [0.25, 0.25, [0.75, 0.75]],
        [[0.75, 0.75, 0.25, 0.25]],
        {"x1": 0.25, "y1": 0.25, "x2": 0.75, "y2": 0.75},
        [0] * 1_000_000,
        0.5,
    ],
)
@each("options", [{}, {"threshold": 1e-9}, {"area_penalty": 2.0}])
def test_what_is_not_a_box_scores_zero_and_cannot_be_measured_as_a_gold(box, options):
    assert score(box, **options) == 0.0
    if box is None:
        assert score(box, gold=None, **options) == 0.0  # there is no gold
        return
    with pytest.raises(Unmeasurable):
        score(box, gold=box, **options)


def test_xywh_reads_width_and_height_on_both_sides():
    assert score([0.5, 0.5, 0.25, 0.25], [0.5, 0.5, 0.25, 0.5], format="xywh") == 0.5
    assert score([0.5, 0.5, 0.0, 0.25], [0.5, 0.5, 0.25, 0.5], format="xywh") == 0.0
    assert score([0.5, 0.5, -0.25, -0.25], [0.25, 0.25, 0.25, 0.25], format="xywh") == 0.0


@each(("threshold", "expected"), [(0.5, 1.0), (0.51, 0.0), (1, 0.0)])
def test_a_threshold_makes_it_zero_or_one(threshold, expected):
    assert score([0.25, 0.25, 0.75, 0.5], threshold=threshold) == expected


@each(
    "options",
    [{"threshold": value} for value in (0, -0.1, 1.1, math.nan, "0.5", True)]
    + [{"area_penalty": value} for value in (-1, math.nan, math.inf, None)]
    + [{"format": "cxcywh"}, {"frame": "gaze"}, {"reference_frame": "percent"}, {"label_key": "label"}]
    + [{"frame": "pixel", "reference_frame": "unit"}],
)
def test_an_option_without_a_meaning_is_refused(options):
    with pytest.raises(ConfigError, match=r"allowed|needed"):
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
    assert compute_iou(a, b) == compute_iou(b, a)
    assert 0.0 <= compute_iou(a, b) <= 1.0


@given(st.lists(st.floats() | st.integers(), min_size=4, max_size=4), boxes(), st.floats(0, 1e300))
def test_it_is_finite_whatever_the_numbers(box, gold, penalty):
    assert 0.0 <= score(box, gold=gold, area_penalty=penalty) <= 1.0


@given(boxes(GRID), boxes(GRID), st.integers(-8, 8), st.integers(-8, 8), st.sampled_from([0.25, 2, 64]))
def test_moving_and_scaling_both_boxes_changes_nothing(a, b, dx, dy, factor):
    def moved(box):
        return [(value + shift) * factor for value, shift in zip(box, (dx, dy, dx, dy), strict=True)]

    assert compute_iou(moved(a), moved(b)) == compute_iou(a, b)


@given(boxes(GRID), st.integers(0, 6), st.integers(1, 6), st.floats(0, 10))
def test_growing_beyond_the_gold_never_helps(gold, margin, more, penalty):
    def grown(by):
        return [gold[0] - by, gold[1] - by, gold[2] + by, gold[3] + by]

    reward = {"gold": gold, "area_penalty": penalty}
    assert score(grown(margin + more), **reward) < score(grown(margin), **reward)


# ---- many boxes

LEFT, RIGHT = [0, 0, 0.5, 1], [0.5, 0, 1, 1]


@each(
    ("said", "gold", "expected"),
    [
        ([LEFT, RIGHT], [RIGHT, LEFT], 1.0),
        ([LEFT], [LEFT, RIGHT], 0.5),  # one is missing
        ([LEFT, RIGHT, [0, 0, 1, 1]], [LEFT, RIGHT], 2 / 3),  # one is extra
        ([[0, 0, 0.5, 0.5], RIGHT], [LEFT, RIGHT], 0.75),
        (LEFT, [LEFT, RIGHT], 0.5),  # one box is a list of one
        ([], [], 1.0),  # nothing is there, and it says so
        ([], [LEFT], 0.0),
        ([LEFT], [], 0.0),
        (None, [], 0.0),  # it says nothing
        ([LEFT, [1, 1, 0, 0]], [LEFT], 0.5),  # what is no box counts as one
    ],
)
def test_many_boxes_share_the_score_of_their_best_matching(said, gold, expected):
    assert score(said, gold=gold) == pytest.approx(expected)


def test_the_matching_is_the_best_one_not_the_greedy_one():
    gold = [[0, 0, 0.4, 1], [0.2, 0, 0.6, 1]]
    said = [[0.1, 0, 0.5, 1], [0.25, 0, 0.65, 1]]
    best = (compute_iou(said[0], gold[0]) + compute_iou(said[1], gold[1])) / 2
    assert score(said, gold=gold) == pytest.approx(best)
    assert score([gold[1], [0, 0, 0.1, 1]], gold=gold) == pytest.approx((1 + compute_iou(gold[0], [0, 0, 0.1, 1])) / 2)


def test_a_threshold_on_many_boxes_is_the_f1_of_the_pairs_that_reach_it():
    said = [LEFT, [0.5, 0, 1, 0.4], [0, 0, 0.1, 0.1]]
    assert score(said, gold=[LEFT, RIGHT], threshold=0.5) == 2 * 1 / (3 + 2)
    assert score(said, gold=[LEFT, RIGHT], threshold=0.3) == 2 * 2 / (3 + 2)


def labeled(*pairs):
    return [{"at": box, "is": label} for label, box in pairs]


def test_objects_hold_their_box_under_the_key():
    said = labeled(("cyst", LEFT), ("nodule", RIGHT))
    assert score(said, gold=labeled(("cyst", RIGHT), ("nodule", LEFT)), box_key="at") == 1.0
    assert score(said[0], gold=said[:1], box_key="at") == 1.0
    assert score([LEFT], gold=said[:1], box_key="at") == 0.0


def test_only_boxes_of_equal_label_are_matched_where_labels_are_asked_for():
    gold = labeled(("cyst", LEFT), ("nodule", RIGHT))
    keys = {"box_key": "at", "label_key": "is"}
    assert score(labeled((" Cyst.", LEFT), ("nodule", RIGHT)), gold=gold, **keys) == 1.0
    assert score(labeled(("cyst", RIGHT), ("nodule", LEFT)), gold=gold, **keys) == 0.0
    assert score(labeled(("no cyst", LEFT), ("nodule", RIGHT)), gold=gold, **keys) == 0.5


@each(
    ("box", "options"),
    [
        ([0, 0, 500, 250], {"frame": "per_mille", "reference_frame": "unit"}),
        ([0, 0, 320, 120], {"frame": "pixel", "reference_frame": "unit", "size_field": "size"}),
        ([0, 0, 320, 120], {"frame": "pixel", "reference_frame": "unit", "size_field": "size", "format": "xywh"}),
    ],
)
def test_boxes_in_other_frames_are_compared_as_fractions(box, options):
    assert IoUReward(**options)({"bbox": box}, {"bbox": [0, 0, 0.5, 0.25], "size": [640, 480]}) == 1.0


@each("size", [None, [], [640], [0, 480], [640, math.nan], "640x480", [-640, 480]])
def test_pixels_without_a_size_cannot_be_measured(size):
    reward = IoUReward(frame="pixel", reference_frame="unit", size_field="size")
    for said in ([0, 0, 320, 120], None, "left"):
        with pytest.raises(Unmeasurable, match="size"):
            reward({"bbox": said}, {"bbox": [0, 0, 0.5, 0.25], "size": size})


def test_the_explanation_counts_what_was_matched_and_what_was_not():
    said = [LEFT, [0.5, 0, 1, 0.8], [0, 0, 0.1, 0.1]]
    words = IoUReward().explain({"bbox": said}, {"bbox": [LEFT, RIGHT]})
    assert words == "2 of 2 gold boxes matched: IoU 1.00, 0.80; 1 of 3 answer boxes is unmatched"


# ---- properties of many boxes

MANY = st.lists(boxes(), min_size=1, max_size=5)


@given(MANY, st.none() | st.floats(0.01, 1), st.floats(0, 10))
def test_perfect_boxes_score_exactly_one_in_any_order(gold, threshold, penalty):
    said = list(reversed(gold))
    assert score(said, gold=gold, threshold=threshold, area_penalty=penalty) == 1.0


@given(MANY, MANY, st.randoms(use_true_random=False), st.none() | st.floats(0.01, 1))
def test_the_order_of_boxes_changes_nothing(said, gold, random, threshold):
    once = score(said, gold=gold, threshold=threshold)
    random.shuffle(said)
    random.shuffle(gold)
    assert score(said, gold=gold, threshold=threshold) == once


@given(MANY, MANY, st.none() | st.floats(0.01, 1))
def test_exchanging_answer_and_gold_changes_nothing(said, gold, threshold):
    ours, theirs = score(said, gold=gold, threshold=threshold), score(gold, gold=said, threshold=threshold)
    assert ours == pytest.approx(theirs, abs=1e-12)


@given(MANY, MANY, boxes())
def test_an_extra_box_that_hits_nothing_costs(said, gold, box):
    far = [value + 5 for value in box]
    assert score([*said, far], gold=gold) <= score(said, gold=gold) + 1e-12
    if len(said) >= len(gold) and score(said, gold=gold) > 0:
        assert score([*said, far], gold=gold) < score(said, gold=gold)


@given(MANY, st.integers(1, 4))
def test_a_perfect_answer_repeated_is_worth_its_share(gold, times):
    assert score(gold * times, gold=gold) == pytest.approx(1 / times)
