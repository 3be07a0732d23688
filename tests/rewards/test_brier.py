"""BrierReward: right and sure is best, and a stated confidence never beats being right."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.foreign_numbers import ALONE, HALVES, ONES
from tests.support.tables import each
from viewbox.errors import ConfigError
from viewbox.rewards import BrierReward, CombinedReward, ExactMatchReward, IoUReward


def score(label, confidence, **options):
    return BrierReward(**options)({"label": label, "confidence": confidence}, {"label": "cyst"})


@each(
    ("label", "confidence", "expected"),
    [
        ("cyst", 1, 1.0), ("cyst", 0.5, 0.875), ("cyst", 0, 0.5), ("mass", 0, 0.5), ("mass", 0.5, 0.375),
        ("mass", 1, 0.0),
    ],
)  # fmt: skip
def test_the_score_is_being_right_less_the_brier_loss(label, confidence, expected):
    assert score(label, confidence) == expected


def test_the_confidence_may_be_on_another_scale_and_in_another_field():
    reward = BrierReward(confidence_field="report.sure", scale=100)
    assert reward({"label": "cyst", "report": {"sure": 50}}, {"label": "cyst"}) == 0.875


def test_what_is_right_may_be_another_reward():
    reward = BrierReward(of=IoUReward("bbox", threshold=0.5))
    assert reward({"bbox": [0, 0, 1, 1], "confidence": 1}, {"bbox": [0, 0, 1, 1]}) == 1.0
    assert reward({"bbox": None, "confidence": 0}, {"bbox": [0, 0, 1, 1]}) == 0.0


def test_it_does_not_apply_where_what_is_right_does_not():
    never = CombinedReward({"never": (lambda answer, reference: None, 1.0)})
    assert BrierReward(of=never)({"confidence": 1}, {}) is None


@each("scale", [0, -1, math.nan, math.inf, "1", True])
def test_a_scale_that_is_none_is_refused(scale):
    with pytest.raises(ConfigError, match=r"BrierReward.scale = .*; allowed: a (finite )?number above 0"):
        BrierReward(scale=scale)


def test_something_that_is_no_reward_is_refused():
    with pytest.raises(ConfigError, match=r"BrierReward.of = 3; allowed: a reward"):
        BrierReward(of=3)


def test_the_explanation_says_both():
    words = BrierReward().explain({"label": "cyst", "confidence": 0.5}, {"label": "cyst"})
    assert words == "confidence 0.5 of 1, exact_match scores 1"


@given(st.sampled_from(["cyst", "mass", "", None]), st.floats() | st.integers() | st.none() | st.text(max_size=3))
def test_it_lies_between_zero_and_one(label, confidence):
    assert 0.0 <= score(label, confidence) <= 1.0


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_wrong_answer_never_beats_a_right_one_of_any_confidence(one, other):
    assert score("mass", one) <= score("cyst", other)


@given(st.floats(0, 1), st.floats(0, 1))
def test_of_two_right_answers_the_surer_scores_more(one, other):
    worse, better = sorted((one, other))
    assert score("cyst", worse) <= score("cyst", better)
    assert ExactMatchReward()({"label": "cyst"}, {"label": "cyst"}) == score("cyst", 1)


@each("right, score", [*((half, 0.75) for half in (HALVES | ALONE).values()), *((one, 1.0) for one in ONES.values())])
def test_what_is_right_may_be_a_number_of_another_library(right, score):
    reward = BrierReward(of=lambda answer, gold: right)
    stated = score if score == 1 else 0.5
    assert reward({"label": "a", "confidence": stated}, {"label": "a"}) == score


@each("right", [2.0, -0.5, np.float32(2), "1", [1]])
def test_what_is_no_score_is_refused_even_where_the_rule_would_make_one_of_it(right):
    with pytest.raises(ValueError, match=r"of returned .*; allowed: None or a number in \[0, 1\]"):
        BrierReward(of=lambda answer, gold: right)({"label": "a", "confidence": 1.0}, {"label": "a"})
