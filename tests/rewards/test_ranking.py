"""RankingReward: MRR and nDCG as the field computes them, and a name that counts once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from tests.support.tables import each
from viewbox.errors import ConfigError, Unmeasurable
from viewbox.rewards import RankingReward

NAMES = st.lists(st.sampled_from("abcdef"), max_size=8)


def score(said, gold, **options):
    return RankingReward("choices", **options)({"choices": said}, {"choices": gold})


@each(
    ("said", "gold", "k", "expected"),
    [
        (["a", "b"], ["a"], None, 1.0),
        (["b", "a"], ["a"], None, 1 / 2),
        (["b", "c", "a"], ["a"], 2, 0.0),
        (["x", "b", "a"], ["a", "b"], None, 1 / 2),  # the first that is relevant
        (["x", None, "a"], ["a"], None, 1 / 3),
        ("A ", "a", None, 1.0),  # one name is a list of one
        (["a"], {"a": 3}, None, 1.0),
        (["a"], {"a": 0, "b": 1}, None, 0.0),
        ([], [], None, 1.0),  # nothing fits, and it says so
        ([], ["a"], None, 0.0),
        (["a"], [], None, 0.0),
        (None, [], None, 0.0),
        ({"a": 1}, ["a"], None, 0.0),
    ],
)
def test_mrr_is_one_over_the_place_of_the_first_relevant_name(said, gold, k, expected):
    assert score(said, gold, k=k) == expected


@given(
    st.permutations(list("abcdef")), st.lists(st.integers(0, 5), min_size=6, max_size=6), st.sampled_from([None, 1, 3])
)
def test_ndcg_of_a_full_ranking_is_that_of_scikit_learn(said, gains, k):
    if not any(gains):
        return
    gold = dict(zip("abcdef", gains, strict=True))
    ranks = [[len(said) - said.index(name) for name in gold]]
    theirs = ndcg_score(np.array([gains]), np.array(ranks), k=k)
    assert score(said, gold, metric="ndcg", k=k) == pytest.approx(theirs)


def test_objects_hold_their_name_under_the_key():
    said = [{"name": "ITK-SNAP", "rank": 1}, {"name": "3D Slicer", "rank": 2}]
    assert score(said, ["3d slicer"], item_key="name") == 1 / 2
    assert score(said, [{"name": "3d slicer"}], item_key="name") == 1 / 2


def test_a_gain_below_zero_is_none():
    assert score(["a", "b"], {"a": -1, "b": 1}) == 1 / 2


@each("gain", [float("nan"), float("inf"), "1", True, None])
def test_a_gain_that_is_no_number_cannot_be_measured(gain):
    with pytest.raises(Unmeasurable, match="gain of 'a'"):
        score(["a", "b"], {"a": gain, "b": 1})


@each("options", [{"metric": "map"}, {"k": 0}, {"k": 1.5}, {"k": True}])
def test_an_option_without_a_meaning_is_refused(options):
    with pytest.raises(ConfigError, match="allowed"):
        RankingReward(**options)


def test_the_explanation_names_the_places():
    words = RankingReward().explain({"choices": ["x", "a"]}, {"choices": ["a", "b"]})
    assert words == "choices: 1 of 2 relevant names in 2 places ('a' at 2)"


@given(NAMES, NAMES | st.dictionaries(st.sampled_from("abcdef"), st.floats()), st.sampled_from(["mrr", "ndcg"]))
def test_it_lies_between_zero_and_one(said, gold, metric):
    assert 0.0 <= score(said, gold, metric=metric) <= 1.0


@given(st.dictionaries(st.sampled_from("abcdef"), st.floats(1e-3, 1e300), min_size=1), st.sampled_from(["mrr", "ndcg"]))
def test_the_best_order_scores_exactly_one(gold, metric):
    assert score(sorted(gold, key=lambda name: -gold[name]), gold, metric=metric) == 1.0


@given(NAMES.filter(bool), NAMES.filter(bool), st.sampled_from(["mrr", "ndcg"]))
def test_saying_a_name_again_never_helps(said, gold, metric):
    assert score([said[0], *said], gold, metric=metric) <= score(said, gold, metric=metric) + 1e-12
