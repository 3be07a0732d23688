"""Accuracy, macro-F1 and top-k: scikit-learn's figures, by the comparison of the rewards."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score

from tests.support.tables import each
from viewbox.errors import ConfigError
from viewbox.rewards.metrics import Accuracy, MacroF1, TopK


def random_pairs(seed):
    """Labels, and labels that are no gold, and no answers."""
    rng = np.random.default_rng(seed)
    names = [f"c{number}" for number in range(rng.integers(1, 8))]
    pairs = []
    for _ in range(rng.integers(1, 60)):
        gold = str(rng.choice(names))
        said = [gold, str(rng.choice(names)), "other", None][rng.choice(4, p=[0.5, 0.3, 0.1, 0.1])]
        pairs.append((None if said is None else {"label": said}, {"label": gold}))
    return pairs


@each("seed", range(15))
def test_macro_f1_is_that_of_scikit_learn(seed):
    pairs = random_pairs(seed)
    gold = [reference["label"] for _, reference in pairs]
    said = ["nothing" if answer is None else answer["label"] for answer, _ in pairs]
    expected = f1_score(gold, said, labels=sorted(set(gold)), average="macro", zero_division=0)
    assert MacroF1()(pairs)["macro_f1"] == pytest.approx(expected, abs=1e-12)


@each("seed", range(10))
def test_accuracy_is_that_of_scikit_learn(seed):
    pairs = random_pairs(seed)
    said = ["nothing" if answer is None else answer["label"] for answer, _ in pairs]
    assert Accuracy()(pairs)["accuracy"] == pytest.approx(accuracy_score([gold["label"] for _, gold in pairs], said))


@each("metric", [Accuracy(), MacroF1(), TopK("label", 1)])
def test_labels_are_compared_as_the_rewards_compare_them(metric):
    assert set(metric([({"label": ' "SEVEN." '}, {"label": "seven"})]).values()) == {1.0}


@each("metric", [Accuracy(), MacroF1(), TopK("label", 5)])
@each("answer", [None, {}, {"label": None}, {"label": ""}, {"label": []}, {"label": {"a": 1}}])
def test_no_answer_is_wrong(metric, answer):
    assert set(metric([(answer, {"label": "seven"})]).values()) == {0.0}


@each("metric", [Accuracy(), MacroF1(), TopK("label", 5)])
def test_pairs_without_gold_are_left_out(metric):
    right, none = ({"label": "a"}, {"label": "a"}), ({"label": "a"}, {})
    assert metric([right, none]) == metric([right])
    assert all(map(np.isnan, metric([none]).values()))
    assert all(map(np.isnan, metric([]).values()))


def test_an_alias_stands_for_its_label_also_where_it_is_wrong():
    pairs = [({"label": "7"}, {"label": "one"}), ({"label": "seven"}, {"label": "seven"})]
    spelled = [({"label": "seven"}, {"label": "one"}), ({"label": "seven"}, {"label": "seven"})]
    assert MacroF1(aliases={"seven": ["7"]})(pairs) == MacroF1()(spelled) != MacroF1()(pairs)


def test_any_accepted_gold_is_right_and_the_first_names_the_class():
    pairs = [({"label": "lesion"}, {"label": ["nodule", "lesion"]}), ({"label": "nodule"}, {"label": "nodule"})]
    assert MacroF1()(pairs)["macro_f1"] == 1.0


def test_every_class_counts_alike():
    pairs = [({"label": "common"}, {"label": "common"})] * 98 + [({"label": "common"}, {"label": "rare"})] * 2
    assert Accuracy()(pairs)["accuracy"] == 0.98
    assert MacroF1()(pairs)["macro_f1"] == pytest.approx(0.5 * 196 / 198)


def test_a_megabyte_is_no_label():
    assert MacroF1()([({"label": "a" * 10**6}, {"label": "a"})])["macro_f1"] == 0.0


@each(("k", "expected"), [(1, 0.0), (2, 0.0), (3, 1.0), (9, 1.0)])
def test_the_gold_must_be_among_the_first_k(k, expected):
    pairs = [({"label": ["one", "one", "seven"]}, {"label": "seven"})]
    assert TopK("label", k)(pairs) == {f"top{k}": expected}


@each("k", [0, -1, 1.5, True])
def test_k_must_be_a_whole_number(k):
    with pytest.raises(ConfigError, match="k is"):
        TopK("label", k)


@each("metric", [Accuracy(), MacroF1(), TopK("label", 1)])
def test_drawing_a_group_twice_is_having_its_pairs_twice(metric):
    pairs = random_pairs(1)
    times = np.random.default_rng(1).integers(0, 4, len(pairs))
    prepared = metric.prepare([metric.extract_stats(*pair) for pair in pairs], np.arange(len(pairs)))
    repeated = metric([pair for pair, n in zip(pairs, times, strict=True) for _ in range(n)])
    assert prepared.compute_figures(times[None].astype(float))[0] == pytest.approx(list(repeated.values()))
