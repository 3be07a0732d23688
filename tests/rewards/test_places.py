"""Boxes in volumes, and boxes that must lie on the image, plane and slice that the reference names."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tables import each
from viewbox.errors import ConfigError
from viewbox.rewards import IoUReward, build, compute_iou

UNIT = st.floats(0, 1)
VOLUME = IoUReward("bbox", format="xyzxyz")
BOX = [0.2, 0.2, 0.4, 0.6]


@st.composite
def boxes(draw):
    low = [draw(st.floats(0, 0.9)) for _ in range(3)]
    return [*low, *(start + draw(st.floats(0.05, 1)) * (1 - start) for start in low)]


def score(a, b):
    return VOLUME({"bbox": a}, {"bbox": b})


@given(boxes(), boxes())
def test_the_iou_of_volumes_is_symmetric_bounded_and_1_only_for_equal_boxes(a, b):
    assert score(a, b) == score(b, a)
    assert 0 <= score(a, b) <= 1
    assert score(a, a) == 1
    assert a == b or score(a, b) < 1 or all(math.isclose(x, y, abs_tol=1e-9) for x, y in zip(a, b, strict=True))


@given(boxes(), boxes())
def test_boxes_of_equal_depth_score_what_their_faces_score(a, b):
    a[2], a[5] = b[2], b[5]
    flat = compute_iou([a[0], a[1], a[3], a[4]], [b[0], b[1], b[3], b[4]])
    assert score(a, b) == pytest.approx(flat)


def test_an_axis_missed_is_all_missed():
    assert score([0, 0, 0, 1, 1, 0.4], [0, 0, 0.4, 1, 1, 1]) == 0


@each(
    "wrong", [BOX, [0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 0], [0, 0, 0, 1, 1, math.nan], [0, 0, 0, 1, 1, True], "box", None]
)
def test_what_is_no_box_in_a_volume_scores_0(wrong):
    assert score(wrong, [0, 0, 0, 1, 1, 1]) == 0


def test_many_boxes_in_a_volume_are_matched_one_to_one():
    low, high = [0, 0, 0, 0.5, 0.5, 0.5], [0.5, 0.5, 0.5, 1, 1, 1]
    assert score([high, low], [low, high]) == 1
    assert score([low, low], [low, high]) == 0.5
    assert "1 of 2 gold boxes matched" in VOLUME.explain({"bbox": [low]}, {"bbox": [low, high]})


def test_a_box_in_a_volume_has_one_frame():
    with pytest.raises(ConfigError, match="must be the same as frame"):
        IoUReward("bbox", format="xyzxyz", reference_frame="per_mille")


# ---- places


PLACED = IoUReward("bbox", places=["image", "plane", "slice"])
GOLD = {"bbox": BOX, "image": 1, "plane": "axial", "slice": [11, 14]}


@each(
    ("answer", "expected"),
    [
        ({"image": 1, "plane": "axial", "slice": 11}, 1.0), ({"image": 1.0, "plane": "Axial", "slice": 14}, 1.0),
        ({"image": 1, "plane": "axial", "slice": 15}, 0.0), ({"image": 1, "plane": "coronal", "slice": 12}, 0.0),
        ({"image": 0, "plane": "axial", "slice": 12}, 0.0), ({"image": 1, "plane": "axial"}, 0.0),
        ({"image": 1, "plane": "axial", "slice": "12"}, 0.0), ({"image": 1, "plane": "axial", "slice": [12]}, 0.0),
        ({}, 0.0),
    ],
)  # fmt: skip
def test_a_right_box_counts_only_where_the_reference_says(answer, expected):
    assert PLACED({"bbox": BOX, **answer}, GOLD) == expected


def test_a_place_that_the_reference_does_not_name_is_not_demanded():
    assert PLACED({"bbox": BOX, "slice": 3}, {"bbox": BOX}) == 1
    assert PLACED({"bbox": BOX, "slice": 3}, {"bbox": BOX, "slice": None}) == 1


def test_without_places_any_slice_counts():
    assert IoUReward("bbox")({"bbox": BOX, "slice": 3}, GOLD) == 1


def test_the_reason_names_the_place():
    said = PLACED.explain({"bbox": BOX, "image": 1, "plane": "axial", "slice": 3}, GOLD)
    assert said == "bbox: slice is 3, the reference says [11, 14]"


def test_a_yaml_may_demand_a_place():
    reward = build({"type": "iou", "field": "bbox", "places": ["slice"]})
    assert reward({"bbox": BOX, "slice": 12}, GOLD) == 1
    assert reward(None, GOLD) == 0


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=5), st.lists, max_leaves=4), UNIT)
def test_no_place_that_a_model_writes_raises(place, number):
    assert PLACED({"bbox": BOX, "image": place, "plane": place, "slice": place}, GOLD) == 0
    assert IoUReward("bbox", places=["slice"])({"bbox": BOX, "slice": place}, {"bbox": BOX, "slice": number}) in (0, 1)
