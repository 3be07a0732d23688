"""IoUReward: boxes and volumes, one and many, in frames and at places; geometry that holds for every box."""

import math
from itertools import permutations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support.scoring import refuse, spread
from tests.support.tables import each
from viewbox.errors import Unmeasurable
from viewbox.rewards import IoUReward, build, compute_iou
from viewbox.rewards.iou import match_pairs

NAN, INF = math.nan, math.inf
IOU, XYWH, CUBE = IoUReward("x"), IoUReward("x", format="xywh"), IoUReward("x", format="xyzxyz")
KEYED, LABELED = IoUReward("x", box_key="at"), IoUReward("x", box_key="at", label_key="is")
PENALTY, LENIENT = IoUReward("x", area_penalty=1.0), IoUReward("x", area_penalty=3.0)
FEW, HALF, MORE, ALL = (IoUReward("x", threshold=least) for least in (0.3, 0.5, 0.51, 1))
GOLD, LEFT, RIGHT, WHOLE = (0.25, 0.25, 0.75, 0.75), [0, 0, 0.5, 1], [0.5, 0, 1, 1], [0, 0, 1, 1]
LOW, HIGH, FLAT = [0, 0, 0, 0.5, 0.5, 0.5], [0.5, 0.5, 0.5, 1, 1, 1], [0, 0, 0, 1, 1, 1]
THREE = [LEFT, [0.5, 0, 1, 0.4], [0, 0, 0.1, 0.1]]
STAGGERED, SAID = [[0, 0, 0.4, 1], [0.2, 0, 0.6, 1]], [[0.1, 0, 0.5, 1], [0.25, 0, 0.65, 1]]


def labeled(*pairs):
    return [{"at": box, "is": label} for label, box in pairs]


CYST_LEFT, CYST_RIGHT = labeled(("cyst", LEFT), ("nodule", RIGHT)), labeled(("cyst", RIGHT), ("nodule", LEFT))

SCORES = [
    *spread(IOU, 1.0, (list(GOLD), GOLD), (GOLD, GOLD), ([LEFT, RIGHT], [RIGHT, LEFT]), ([], [])),  # nothing is there
    *spread(IOU, 0.5, ([0.25, 0.25, 0.75, 0.5], GOLD), ([LEFT], [LEFT, RIGHT]), (LEFT, [LEFT, RIGHT]),
            ([LEFT, [1, 1, 0, 0]], [LEFT])),  # what is no box counts as one
    *spread(IOU, 0.0, ([0.75, 0.75, 1, 1], GOLD), ([250, 250, 750, 750], GOLD),
        # touching; coordinates nobody converted
            ([], [LEFT]), ([LEFT], []), (None, []), (None, None)),
    (IOU, WHOLE, GOLD, 0.25), (IOU, [LEFT, RIGHT, WHOLE], [LEFT, RIGHT], 2 / 3),
    (IOU, [[0, 0, 0.5, 0.5], RIGHT], [LEFT, RIGHT], 0.75),
    # the matching is the best one, not the greedy one
    (IOU, SAID, STAGGERED, sum(map(compute_iou, SAID, STAGGERED)) / 2),
    (IOU, [STAGGERED[1], [0, 0, 0.1, 1]], STAGGERED, (1 + compute_iou(STAGGERED[0], [0, 0, 0.1, 1])) / 2),
    (XYWH, [0.5, 0.5, 0.25, 0.25], [0.5, 0.5, 0.25, 0.5], 0.5),
        (XYWH, [0.5, 0.5, 0.0, 0.25], [0.5, 0.5, 0.25, 0.5], 0.0),
    (XYWH, [0.5, 0.5, -0.25, -0.25], [0.25, 0.25, 0.25, 0.25], 0.0),
    # a threshold makes it zero or one, and of many boxes the F1 of the pairs that reach it
    *((reward, [0.25, 0.25, 0.75, 0.5], GOLD, score) for reward, score in [(HALF, 1.0), (MORE, 0.0), (ALL, 0.0)]),
    (HALF, THREE, [LEFT, RIGHT], 2 * 1 / (3 + 2)), (FEW, THREE, [LEFT, RIGHT], 2 * 2 / (3 + 2)),
    # the area penalty acts only beyond the gold
    (LENIENT, [0.25, 0.25, 0.75, 0.5], GOLD, 0.5), (PENALTY, WHOLE, GOLD, 0.25 / (1 + 1.0 * (4 - 1))),
    (IoUReward("x", area_penalty=100.0), [0, 0, 0.95, 0.95], [0, 0, 0.95, 0.95], 1.0),
    # objects hold their box under a key, and are matched by their label where that is asked for
    *spread(KEYED, 1.0, (CYST_LEFT, CYST_RIGHT), (CYST_LEFT[0], CYST_LEFT[:1])), (KEYED, [LEFT], CYST_LEFT[:1], 0.0),
    (LABELED, labeled((" Cyst.", LEFT), ("nodule", RIGHT)), CYST_LEFT, 1.0), (LABELED, CYST_RIGHT, CYST_LEFT, 0.0),
    (LABELED, labeled(("no cyst", LEFT), ("nodule", RIGHT)), CYST_LEFT, 0.5),
    # volumes
    (CUBE, [0, 0, 0, 1, 1, 0.4], [0, 0, 0.4, 1, 1, 1], 0.0), (CUBE, [HIGH, LOW], [LOW, HIGH], 1.0),
    (CUBE, [LOW, LOW], [LOW, HIGH], 0.5),
    *spread(CUBE, 0.0, *((bad, FLAT)
            for bad in (GOLD, FLAT[:5], [*FLAT[:5], 0], [*FLAT[:5], NAN], [*FLAT[:5], True], "box", None))),
]  # fmt: skip


@each("reward, said, gold, expected", SCORES)
def test_the_score_of_an_answer(reward, said, gold, expected):
    assert reward({"x": said}, {"x": gold}) == pytest.approx(expected)


NO_BOXES = [
    [0.25, 0.25, 0.75], [0.25, 0.25, 0.75, 0.75, 1], [0.75, 0.75, 0.25, 0.25], [0.75, 0.25, 0.25, 0.75],
    [0.5, 0.5, 0.5, 0.5], [0.25, 0.5, 0.75, 0.5], [-INF, -INF, INF, INF], [-1e308, -1e308, 1e308, 1e308],
    *([0.25, 0.25, 0.75, bad] for bad in (NAN, INF, 10**400, "0.75", True, None, 0.75j, [0.75])),
    [0, 0, 5e-324, 5e-324], [False, False, True, True], "0.25, 0.25, 0.75, 0.75", b"\x00\x00\x01\x01",
    [0.25, 0.25, [0.75, 0.75]], [[0.75, 0.75, 0.25, 0.25]], {"x1": 0.25, "y1": 0.25, "x2": 0.75, "y2": 0.75},
    [0] * 1_000_000, 0.5,
]  # fmt: skip


@each("box", NO_BOXES)
@each("reward", [IOU, IoUReward("x", threshold=1e-9), IoUReward("x", area_penalty=2.0)])
def test_what_is_not_a_box_scores_zero_and_cannot_be_measured_as_a_gold(box, reward):
    assert reward({"x": box}, {"x": GOLD}) == 0.0
    with pytest.raises(Unmeasurable):
        reward({"x": box}, {"x": box})


@each("options", [
    *({"threshold": bad} for bad in (0, -0.1, 1.1, NAN, "0.5", True)),
    *({"area_penalty": bad} for bad in (-1, NAN, INF, None)), {"format": "cxcywh"}, {"frame": "gaze"},
    {"reference_frame": "percent"}, {"label_key": "label"}, {"frame": "pixel", "reference_frame": "unit"},
])  # fmt: skip
def test_an_option_without_a_meaning_is_refused(options):
    refuse("allowed|needed", IoUReward, **options)
    refuse("must be the same as frame", IoUReward, format="xyzxyz", reference_frame="per_mille")


PIXELS = {"frame": "pixel", "reference_frame": "unit", "size_field": "size"}


@each("box, options", [
    ([0, 0, 500, 250], {"frame": "per_mille", "reference_frame": "unit"}), ([0, 0, 320, 120], PIXELS),
    ([0, 0, 320, 120], {**PIXELS, "format": "xywh"}),
])  # fmt: skip
def test_boxes_in_other_frames_are_compared_as_fractions(box, options):
    assert IoUReward(**options)({"bbox": box}, {"bbox": [0, 0, 0.5, 0.25], "size": [640, 480]}) == 1.0


@each("size", [None, [], [640], [0, 480], [640, NAN], "640x480", [-640, 480]])
@each("said", [[0, 0, 320, 120], None, "left"])
def test_pixels_without_a_size_cannot_be_measured(size, said):
    with pytest.raises(Unmeasurable, match="size"):
        IoUReward(**PIXELS)({"bbox": said}, {"bbox": [0, 0, 0.5, 0.25], "size": size})


# ---- places
PLACED = IoUReward("x", places=["image", "plane", "slice"])
AT = {"x": GOLD, "image": 1, "plane": "axial", "slice": [11, 14]}


@each("place, expected", [
    ({"image": 1, "plane": "axial", "slice": 11}, 1.0), ({"image": 1.0, "plane": "Axial", "slice": 14}, 1.0),
    ({"image": 1, "plane": "axial", "slice": 15}, 0.0), ({"image": 1, "plane": "coronal", "slice": 12}, 0.0),
    ({"image": 0, "plane": "axial", "slice": 12}, 0.0), ({"image": 1, "plane": "axial"}, 0.0),
    ({"image": 1, "plane": "axial", "slice": "12"}, 0.0), ({"image": 1, "plane": "axial", "slice": [12]}, 0.0),
    ({}, 0.0),
])  # fmt: skip
def test_a_right_box_counts_only_where_the_reference_says(place, expected):
    assert PLACED({"x": GOLD, **place}, AT) == expected
    assert IOU({"x": GOLD, **place}, AT) == 1  # without places any slice counts
    for gold in ({"x": GOLD}, {"x": GOLD, "slice": None}):  # what the reference does not name is not demanded
        assert PLACED({"x": GOLD, **place}, gold) == 1


def test_a_yaml_may_demand_a_place():
    reward = build({"type": "iou", "field": "x", "places": ["slice"]})
    assert (reward({"x": GOLD, "slice": 12}, AT), reward(None, AT)) == (1, 0)


ODD = st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=5), st.lists, max_leaves=4)


@given(ODD, st.floats(0, 1))
def test_no_place_that_a_model_writes_raises(place, number):
    assert PLACED({"x": GOLD, "image": place, "plane": place, "slice": place}, AT) == 0
    assert IoUReward("x", places=["slice"])({"x": GOLD, "slice": place}, {"x": GOLD, "slice": number}) in (0, 1)


# ---- what holds for every box
UNIT = st.floats(0, 1)


@st.composite
def boxes(draw, numbers=UNIT, axes=2):
    low, high = zip(*(sorted((draw(numbers), draw(numbers))) for _ in range(axes)), strict=True)
    assume(all(b - a > 1e-9 for a, b in zip(low, high, strict=True)))
    return [*low, *high]


GRID = st.integers(0, 16)  # exact in binary after / 16
MANY = st.lists(boxes(), min_size=1, max_size=5)
THRESHOLDS = st.none() | st.floats(0.01, 1)


@given(boxes(), st.sampled_from(["xyxy", "xywh"]), MANY, THRESHOLDS, st.floats(0, 1e6))
def test_perfect_boxes_score_exactly_one_in_any_order(box, format, gold, threshold, penalty):
    assert IoUReward("x", format=format, area_penalty=penalty)({"x": box}, {"x": box}) == 1.0
    assert IoUReward("x", threshold=threshold, area_penalty=penalty)({"x": gold[::-1]}, {"x": gold}) == 1.0


@given(boxes(st.floats(-1e9, 1e9)), boxes(st.floats(-1e9, 1e9)), boxes(axes=3), boxes(axes=3))
def test_it_is_symmetric_and_lies_between_zero_and_one(a, b, c, d):
    assert 0.0 <= compute_iou(a, b) == compute_iou(b, a) <= 1.0
    assert 0.0 <= CUBE({"x": c}, {"x": d}) == CUBE({"x": d}, {"x": c}) <= 1.0 == CUBE({"x": c}, {"x": c})
    assert CUBE({"x": c}, {"x": d}) < 1 or all(math.isclose(x, y, abs_tol=1e-9) for x, y in zip(c, d, strict=True))
    c[2], c[5] = d[2], d[5]  # boxes of equal depth score what their faces score
    faces = compute_iou([c[0], c[1], c[3], c[4]], [d[0], d[1], d[3], d[4]])
    assert CUBE({"x": c}, {"x": d}) == pytest.approx(faces)


@given(st.lists(st.floats() | st.integers(), min_size=4, max_size=4), boxes(), st.floats(0, 1e300))
def test_it_is_finite_whatever_the_numbers(box, gold, penalty):
    assert 0.0 <= IoUReward("x", area_penalty=penalty)({"x": box}, {"x": gold}) <= 1.0


@given(boxes(GRID), boxes(GRID), st.integers(-8, 8), st.integers(-8, 8), st.sampled_from([0.25, 2, 64]))
def test_moving_and_scaling_both_boxes_changes_nothing(a, b, dx, dy, factor):
    a2, b2 = ([(value + shift) * factor for value, shift in zip(box, (dx, dy, dx, dy), strict=True)] for box in (a, b))
    assert compute_iou(a2, b2) == compute_iou(a, b)


@given(boxes(GRID), st.integers(0, 6), st.integers(1, 6), st.floats(0, 10))
def test_growing_beyond_the_gold_never_helps(gold, margin, more, penalty):
    grown = [[gold[0] - by, gold[1] - by, gold[2] + by, gold[3] + by] for by in (margin, margin + more)]
    near, far = (IoUReward("x", area_penalty=penalty)({"x": box}, {"x": gold}) for box in grown)
    assert far < near


@given(MANY, MANY, boxes(), st.randoms(use_true_random=False), THRESHOLDS)
def test_the_order_of_boxes_and_the_side_change_nothing_and_an_extra_box_costs(said, gold, box, random, threshold):
    reward = IoUReward("x", threshold=threshold)
    once, plain = reward({"x": said}, {"x": gold}), IOU({"x": said}, {"x": gold})
    assert reward({"x": random.sample(said, len(said))}, {"x": random.sample(gold, len(gold))}) == once
    assert reward({"x": gold}, {"x": said}) == pytest.approx(once, abs=1e-12)
    extra = IOU({"x": [*said, [value + 5 for value in box]]}, {"x": gold})
    assert extra <= plain + 1e-12
    assert extra < plain or len(said) < len(gold) or not plain
    assert IOU({"x": gold * 3}, {"x": gold}) == pytest.approx(1 / 3)  # an answer repeated is worth its share


MATRIX = st.integers(1, 5).flatmap(
    lambda columns: st.lists(st.lists(st.floats(0, 1), min_size=columns, max_size=columns), min_size=1, max_size=5)
)


@given(MATRIX)
def test_no_matching_has_a_greater_sum(scores):
    turned = scores if len(scores) <= len(scores[0]) else list(zip(*scores, strict=True))
    best = max(sum(row[c] for row, c in zip(turned, chosen, strict=True))
               for chosen in permutations(range(len(turned[0])), len(turned)))  # fmt: skip
    assert sum(score for _, _, score in match_pairs(scores)) == pytest.approx(best)
    assert match_pairs([]) == match_pairs([[]]) == match_pairs([[0.0]]) == []
