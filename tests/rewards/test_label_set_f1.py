"""LabelSetF1Reward: which labels are found, and that listing more of them does not pay."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tables import each
from viewbox.errors import ConfigError
from viewbox.rewards import LabelSetF1Reward

LABELS = st.lists(st.sampled_from(["Cyst", "nodule", "no nodule", "mass", "7", "", None]), max_size=6)
GOLDS = LABELS.map(lambda labels: [label for label in labels if label])


def score(said, gold, **options):
    return LabelSetF1Reward("labels", **options)({"labels": said}, {"labels": gold})


@each(
    ("said", "gold", "expected"),
    [
        (["nodule", " Cyst. "], ["cyst", "nodule"], 1.0),
        (["nodule"], ["cyst", "nodule"], 2 / 3),
        (["nodule", "mass"], ["cyst", "nodule"], 1 / 2),
        (["nodule", "nodule"], ["nodule"], 1.0),
        ("nodule", ["nodule"], 1.0),  # one label is a list of one
        ([7], ["7"], 1.0),
        ([None], ["nodule"], 0.0),
        (["nodule", None], ["nodule"], 2 / 3),
        ([], [], 1.0),  # nothing is there, and it says so
        ([], ["nodule"], 0.0),
        (["nodule"], [], 0.0),
        (None, [], 0.0),
        ("", [], 0.0),
        (["no nodule"], ["no nodule"], 1.0),
        (["nodule", "no nodule", "cyst"], ["nodule", "cyst"], 2 / 5),
        (["nodule", "no nodule"], ["nodule", "no nodule"], 1.0),  # as strange as the gold
        (("nodule",), frozenset(["nodule"]), 1.0),
        ({"nodule": True}, ["nodule"], 0.0),
    ],
)
def test_the_score_is_the_f1_of_the_sets(said, gold, expected):
    assert score(said, gold) == pytest.approx(expected)


def test_objects_hold_their_label_under_the_key():
    assert score([{"name": "Cyst"}], [{"name": "cyst"}], item_key="name") == 1.0


def test_an_alias_is_the_label_it_stands_for():
    aliases = {"pneumothorax": ["PTX"], "nodule": ["coin lesion"]}
    assert score(["ptx", "Coin lesion"], ["pneumothorax", "nodule"], aliases=aliases) == 1.0
    assert score(["ptx", "pneumothorax"], ["pneumothorax"], aliases=aliases) == 1.0
    assert score(["ptx"], ["nodule"], aliases=aliases) == 0.0


def test_an_alias_of_two_labels_is_refused():
    with pytest.raises(ConfigError, match="aliases: 'mass' stands for 'nodule' and for 'tumour'"):
        LabelSetF1Reward(aliases={"tumour": ["mass"], "nodule": ["mass"]})


@given(LABELS, GOLDS, st.randoms(use_true_random=False))
def test_it_lies_between_zero_and_one_and_order_and_repetition_change_nothing(said, gold, random):
    once = score(said, gold)
    again = said + said[:2]
    random.shuffle(again)
    assert 0.0 <= once <= 1.0
    assert score(again, gold) == once


@given(GOLDS, GOLDS)
def test_exchanging_answer_and_gold_changes_nothing_where_nothing_is_contradicted(said, gold):
    if not any({"nodule", "no nodule"} <= set(side) for side in (said, gold)):
        assert score(said, gold) == score(gold, said)


@given(LABELS.filter(lambda labels: labels and None not in labels and "" not in labels))
def test_perfect_labels_score_exactly_one(gold):
    assert score(list(reversed(gold)), gold) == 1.0
