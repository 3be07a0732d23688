"""Rewards of words: exact match, token F1 and what it reads as denied, label sets, rankings, stated confidence."""

import math
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from tests.support.foreign_numbers import ALONE, HALVES, ONES
from tests.support.scoring import refuse, spread
from tests.support.tables import each
from viewbox.errors import Unmeasurable
from viewbox.rewards import (
    BrierReward,
    CombinedReward,
    ExactMatchReward,
    IoUReward,
    LabelSetF1Reward,
    RankingReward,
    TokenF1Reward,
)
from viewbox.rewards.negation import MARK, TOKEN, split_words
from viewbox.utils.values import fold_text, strip_outer_punctuation

NAN, INF, LONG = math.nan, math.inf, "a" + "\u0315\u0300" * 500_000  # slow to normalize
EXACT, NEAR, EDGE = (ExactMatchReward("x", tolerance=most) for most in (None, 0.5, 0.1))
SEVEN = ExactMatchReward("x", aliases={"seven": ["7", "VII"], "eight": ["8"]})
WORDS, BARE = TokenF1Reward("x"), TokenF1Reward("x", negation_scope=False)
STOP, BIG = (TokenF1Reward("x", stop_words=words) for words in (True, ["BIG"]))
LABELS, NAMED = LabelSetF1Reward("x"), LabelSetF1Reward("x", item_key="name")
ALIAS = LabelSetF1Reward("x", aliases={"pneumothorax": ["PTX"], "nodule": ["coin lesion"]})
MRR, MRR2 = RankingReward("x"), RankingReward("x", k=2)
NDCG, NAMES = RankingReward("x", metric="ndcg"), RankingReward("x", item_key="name")

SCORES = [
    # exact match: the same answer written otherwise
    *spread(EXACT, 1.0, ("Seven", "seven"), ('"seven."', "seven"), ("**seven**", "seven"), ("ＳＥＶＥＮ", "seven"),
     ("se\u200bven\x00", "seven"), ("STRASSE", "straße"), (7.0, "7"), ("7.0", 7), ("\u22127", -7), (1e-7, 0.0000001),
     (True, "true"), ("True", True), ("nine", ["seven", "nine"]), ("?", "?")),
    # and another answer
    *spread(EXACT, 0.0, ("not seven", "seven"), (["seven"], "seven"), ({"label": "seven"}, "seven"), ("ѕеvеn", "seven"),
     ("-7", 7), ("HER2-", "HER2+"), ("50%", 50), (True, 1), ("nan", NAN), (NAN, NAN), (INF, INF), ("1e999", 7),
     (10**17 + 1, 10**17), ("seven" * 200_000, "seven"), (" " * 1_000_000 + "seven", "seven"), (LONG, "a"),
     (b"seven", "seven"), (object(), "seven"), ("seven", None)),
    *spread(EXACT, 0.0, *((said, gold) for said in (None, "", " \u200b\n") for gold in (None, "", [], "seven", "\u200b",
     {}))),
    *(row for gold in (12, 12.0, "12") for row in (*spread(NEAR, 1.0, ("12.5", gold), (11.5, gold)),
     *spread(NEAR, 0.0, ("12.51", gold), ("12 mm", gold), (True, gold)))),
    (EDGE, 1.1, 1.0, 1.0),  # inside, whatever rounding does
    *spread(SEVEN, 1.0, ("vii", "Seven"), (7, "seven")), *spread(SEVEN, 0.0, ("8", "seven"), ("seven", "7")),
    # token F1
    *spread(WORDS, 1.0, ("Left LUNG.", "lung, left"), ("7mm", "7 mm"), ("isn’t", "isn't"), ("...", "..."), ("+", "+")),
    *spread(WORDS, 0.0, ("5.3", "3.5"), ("5", ".5"), ("...", "?"), ("\u200b", "lung"), (None, None),
     (["left", "lung"], "left lung"), ("lung " * 200_000, "lung"), (LONG, "a")),
    (WORDS, "left", "left lung", 2 / 3), (WORDS, "tumour tumour tumour tumour", "tumour", 2 / 5),  # said again: no gain
    *spread(STOP, 1.0, ("A", "a"), ("no sign of the tumour", "no sign tumour"), ("hepatitis a", "Hepatitis A"),
     ("THERE IS A NODULE", "nodule"), ("shows a 9 mm nodule", "shows 9 mm nodule")),
    (STOP, "the", "a", 0.0), (BIG, "big nodule", "nodule", 1.0), (STOP, "hepatitis", "hepatitis A", 2 / 3),
    (STOP, "vitamin deficiency", "vitamin a deficiency", 0.8), (STOP, "hepatitis B", "hepatitis A and B", 0.8),
    (TokenF1Reward("x", stop_words=["a"], negation_scope=False), "hepatitis", "hepatitis A", 1.0),  # as SQuAD's script
    *((TokenF1Reward("x", stop_words=[no]), f"{no} tumour", "tumour", 0.0) for no in ("no", "not", "without", "never",
     "isn't", "Don't")),
    # what is denied equals only what is denied
    *spread(WORDS, 0.0, ("no tumour", "tumour"), ("no effusion", "no tumour"), ("No. tumour", "no tumour"),
     ("Effusion. No nodule.", "No effusion. Nodule."), ("large mass, not malignant", "large malignant mass")),
    *spread(WORDS, 1.0, ("without tumour", "no tumour"), ("no", "no"), ("Nodule. No effusion.", "no effusion; nodule")),
    *spread(WORDS, 2 / 3, ("No. tumour", "tumour"), ("mass, no doubt malignant", "malignant mass"),
     ("no effusion\nnodule", "nodule")),
    *spread(WORDS, 2 / 5, ("No, there is no tumour.", "no"), ("tumour cannot be excluded", "tumour")),
    (WORDS, "no evidence of tumour", "no tumour", 0.5), (WORDS, "a nodule and no nodule", "nodule", 2 / 15),
    (WORDS, "large left upper mass, not malignant", "large left upper malignant mass", 2 * (4 - 2) / 10),
    (BARE, "no tumour", "tumour", 2 / 3), (BARE, ">5 mm, Rh-", "<5 mm Rh+", 1.0),
    # what is named on one side equals only what is on that side, or has none
    *spread(WORDS, 0.0, ("left", "right"), ("right upper lobe", "left upper lobe"),
     ("Small opacity in the right upper lobe.", "Opacity in the left upper lobe, small."),
     ("ｒｉｇｈｔ nodule", "left nodule"),
     ("right nodule\nleft effusion", "left nodule\nright effusion"), ("right-sided effusion", "left-sided effusion"),
     ("right effusion and left nodule", "left effusion and right nodule"),
     ("On the right, an effusion.", "left effusion"), ("left lung clear", "The right lung is clear.")),
    *spread(WORDS, 1.0, ("left nodule, right effusion", "Right effusion. Left nodule.")),
    (WORDS, "left nodule", "nodule", 2 / 3), (WORDS, "bilateral nodules", "left nodules", 0.5),
    # a sign that makes another value is part of its word
    *spread(WORDS, 1.0, ("< 5mm", "<5 mm"), ("28.0 %", "28%"), ("ER +, PR -", "ER+ PR-"), ("CRP ↑", "↑CRP"),
     ("pre and post-contrast", "pre- and post-contrast"), ("nodule- left", "nodule left"),
     ("12,000 cells", "12000 cells"), ("~5 mm to ~7 mm", "~5 mm to ~7 mm")),
    *spread(WORDS, 0.5, (">5 mm", "<5 mm"), ("5 mm", "<5 mm")),
    *spread(WORDS, 0.0, ("28", "28%"), ("Rh-", "Rh+"), ("Rh", "Rh+"), ("CRP ↓", "↑CRP")),
    # sets of labels
    *spread(LABELS, 1.0, (["nodule", " Cyst. "], ["cyst", "nodule"]), (["nodule", "nodule"], ["nodule"]),
     ("nodule", ["nodule"]), ([7], ["7"]), ([], []), (("nodule",), frozenset(["nodule"]))),
    *spread(LABELS, 0.0, ([None], ["nodule"]), ([], ["nodule"]), (["nodule"], []), (None, []), ("", []),
     ({"nodule": True}, ["nodule"])),
    *spread(LABELS, 2 / 3, (["nodule"], ["cyst", "nodule"]), (["nodule", None], ["nodule"])),
    (LABELS, ["nodule", "mass"], ["cyst", "nodule"], 1 / 2),
    (LABELS, ["nodule", "no nodule", "cyst"], ["nodule", "cyst"], 2 / 5),
    (NAMED, [{"name": "Cyst"}], [{"name": "cyst"}], 1.0),
    (ALIAS, ["ptx", "Coin lesion"], ["pneumothorax", "nodule"], 1.0), (ALIAS, ["ptx"], ["nodule"], 0.0),
    # rankings
    *spread(MRR, 1.0, (["a", "b"], ["a"]), ("A ", "a"), (["a"], {"a": 3}), ([], [])),
    *spread(MRR, 1 / 2, (["b", "a"], ["a"]), (["x", "b", "a"], ["a", "b"]), (["a", "b"], {"a": -1, "b": 1})),
    *spread(MRR, 0.0, (["a"], {"a": 0, "b": 1}), ([], ["a"]), (["a"], []), (None, []), ({"a": 1}, ["a"])),
    (MRR, ["x", None, "a"], ["a"], 1 / 3), (MRR2, ["b", "c", "a"], ["a"], 0.0),
    *spread(NAMES, 1 / 2, *(([{"name": "ITK-SNAP", "rank": 1}, {"name": "3D Slicer", "rank": 2}],
     gold) for gold in (["3d slicer"], [{"name": "3d slicer"}]))),
]  # fmt: skip


@each("reward, said, gold, expected", SCORES)
def test_the_score_of_an_answer(reward, said, gold, expected):
    assert reward({"x": said}, {"x": gold}) == pytest.approx(expected)


SIZE = r"tolerance = .*; allowed: a (finite )?number of at least 0 or null"


@each("make, options, words", [
    *((ExactMatchReward, {"tolerance": bad}, "ExactMatchReward." + SIZE) for bad in (-1, NAN, INF, "1", True)),
    (ExactMatchReward, {"aliases": {"seven": "10"}}, r"aliases.seven = '10'; allowed: a list of text"),
    (TokenF1Reward, {"field": "x", "stop_words": "the"}, "stop_words"),
    (LabelSetF1Reward, {"aliases": {"tumour": ["mass"], "nodule": ["mass"]}},
     "aliases: 'mass' stands for 'nodule' and for 'tumour'"),
    *((RankingReward, bad, "allowed") for bad in ({"metric": "map"}, {"k": 0}, {"k": 1.5}, {"k": True})),
    *((BrierReward, {"scale": bad}, r"BrierReward.scale = .*; allowed: a (finite )?number above 0") for bad in (0, -1,
     NAN, INF, "1", True)), (BrierReward, {"of": 3}, r"BrierReward.of = 3; allowed: a reward"),
])  # fmt: skip
def test_an_option_without_a_meaning_is_refused(make, options, words):
    refuse(words, make, **options)


@each("gain", [NAN, INF, "1", True, None])
def test_a_gain_that_is_no_number_cannot_be_measured(gain):
    with pytest.raises(Unmeasurable, match="gain of 'a'"):
        MRR({"x": ["a", "b"]}, {"x": {"a": gain, "b": 1}})


# ---- which words are denied
DENIED = {
    "No consolidation, effusion or pneumothorax": "consolidation effusion or pneumothorax",
    "non-malignant mass": "malignant", "neither mass nor nodule": "mass nodule",
    "it isn't a tumour": "a tumour", "n\u200bo tumour": "tumour", "nо tumour": "tumour",  # a Cyrillic о
    # backwards
    "tumour is absent": "tumour is", "Tumour? No.": "tumour", "tumour was ruled out": "tumour",
    # a reach ends with its sentence
    "no effusion; nodule": "effusion", "no effusion but a nodule": "effusion", "nodule. no effusion. mass": "effusion",
    "No, it is a tumour": "", "no " * 2000 + ". tumour": "",
    # saying no twice insists; a probability denies nothing, a zero does
    "no, no tumour": "tumour", "effusion: 0.91, nodule: 0.03": "", "effusion: 0, nodule: 1": "effusion",
    # what only looks denied
    **dict.fromkeys(["tumour is not absent", "free fluid", "the false lumen", "no", "", ",", ". . ."], ""),
}  # fmt: skip


@each("text, words", DENIED.items())
def test_what_is_denied(text, words):
    assert " ".join(word[1:] for word in split_words(text)[0] if word.startswith(MARK) and word != MARK) == words


PIECE = st.sampled_from(["no", "not", "without", "ruled", "out", "absent", ",", ".", "but", "mass", "is"])


@given(st.text("abcdeno ',.;?()", max_size=60) | st.lists(PIECE).map(" ".join))
def test_marking_adds_no_word_and_repeats_none(text):
    """Their order may change: "not, in fact, a mass" is read as "in fact not a mass"."""
    words = [word.removeprefix(MARK) for word in split_words(text)[0] if word != MARK]
    plain = re.findall(TOKEN, fold_text(text))
    assert Counter(word.replace("'", "") for word in words) <= Counter(word.replace("'", "") for word in plain)


# ---- stated confidence
def sure(label, confidence, **options):
    return BrierReward(**options)({"label": label, "confidence": confidence}, {"label": "cyst"})


@each("label, scores", [
    ("cyst", (0.5, 0.875, 1.0)), ("mass", (0.5, 0.375, 0.0)), (None, (0.0, 0.0, 0.0)), ("", (0.0, 0.0, 0.0)),
])  # fmt: skip
def test_the_score_is_being_right_less_the_brier_loss(label, scores):
    assert tuple(sure(label, confidence) for confidence in (0, 0.5, 1)) == scores


def test_what_is_right_may_be_another_reward_and_the_confidence_on_another_scale_in_another_field():
    reward = BrierReward(confidence_field="report.sure", scale=100)
    assert reward({"label": "cyst", "report": {"sure": 50}}, {"label": "cyst"}) == 0.875
    reward = BrierReward(of=IoUReward("bbox", threshold=0.5))
    assert reward({"bbox": [0, 0, 1, 1], "confidence": 1}, {"bbox": [0, 0, 1, 1]}) == 1.0
    assert reward({"bbox": None, "confidence": 0}, {"bbox": [0, 0, 1, 1]}) == 0.0
    never = CombinedReward({"never": (lambda answer, reference: None, 1.0)})
    assert BrierReward(of=never)({"confidence": 1}, {}) is None  # where what is right does not apply


@each("right, score", [*((half, 0.75) for half in (HALVES | ALONE).values()), *((one, 1.0) for one in ONES.values())])
def test_what_is_right_may_be_a_number_of_another_library(right, score):
    assert sure("cyst", score if score == 1 else 0.5, of=lambda answer, gold: right) == score


@each("right", [2.0, -0.5, np.float32(2), "1", [1]])
def test_what_is_no_score_is_refused_even_where_the_rule_would_make_one_of_it(right):
    with pytest.raises(ValueError, match=r"of returned .*; allowed: None or a number in \[0, 1\]"):
        sure("cyst", 1.0, of=lambda answer, gold: right)


@given(st.floats(0, 1), st.floats(0, 1))
def test_of_two_right_answers_the_surer_scores_more_and_a_wrong_one_never_beats_a_right_one(one, other):
    worse, better = sorted((one, other))
    assert sure("cyst", worse) <= sure("cyst", better) <= 1.0
    assert sure("mass", one) <= sure("cyst", other)


# ---- what holds for any answer
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))
TEXT = st.lists(st.sampled_from(["no", "left", "lung", "nodule", "the", "without", "2.5", "-2.5"]), max_size=8).map(
    " ".join
)
SETS = st.lists(st.sampled_from(["Cyst", "nodule", "no nodule", "mass", "7"]), max_size=6)
RANKS = st.lists(st.sampled_from("abcdef"), max_size=8)


@pytest.mark.slow
@given(st.data(), JSON, JSON)
def test_every_score_lies_between_zero_and_one(data, anything, gold):
    for reward, said, right in [
        (NEAR, anything, gold), (WORDS, data.draw(TEXT | st.text(max_size=40)), data.draw(TEXT)),
            (STOP, anything, data.draw(TEXT)),
        (LABELS, data.draw(SETS | SETS.map(lambda labels: [*labels, None, ""])), data.draw(SETS)),
            (LABELS, anything, data.draw(SETS)),
        *((rank, data.draw(RANKS), data.draw(RANKS | st.dictionaries(st.sampled_from("abcdef"),
            st.floats(allow_nan=False, allow_infinity=False))))
          for rank in (MRR, NDCG)),
    ]:  # fmt: skip
        try:
            score = reward({"x": said}, {"x": right})
        except Unmeasurable:
            assert isinstance(right, dict | list)
        else:
            assert 0.0 <= score <= 1.0
            assert reward is not NEAR or score in (0.0, 1.0)
    assert 0.0 <= sure("cyst", anything) <= 1.0


@given(st.data(), st.randoms(use_true_random=False))
def test_order_and_case_change_nothing_and_no_score_depends_on_the_side(data, random):
    said, gold = data.draw(TEXT), data.draw(TEXT)
    assert WORDS({"x": said}, {"x": gold}) == WORDS({"x": gold}, {"x": said})
    words = data.draw(st.lists(st.sampled_from(["left", "lung", "nodule"]), min_size=1, max_size=6))
    shuffled = random.sample(words, len(words))
    assert WORDS({"x": " ".join(shuffled).upper()}, {"x": gold}) == WORDS({"x": " ".join(words)}, {"x": gold})
    labels, golds = data.draw(SETS), data.draw(SETS)
    again = random.sample(labels + labels[:2], len(labels + labels[:2]))
    assert LABELS({"x": again}, {"x": golds}) == LABELS({"x": labels}, {"x": golds})
    if not any({"nodule", "no nodule"} <= set(side) for side in (labels, golds)):  # nothing is contradicted
        assert LABELS({"x": labels}, {"x": golds}) == LABELS({"x": golds}, {"x": labels})
    assert not labels or LABELS({"x": labels[::-1]}, {"x": labels}) == 1.0


@given(TEXT.filter(bool), st.integers(1, 5))
def test_adding_words_the_gold_does_not_have_lowers_the_score(gold, count):
    scores = [WORDS({"x": gold + tail}, {"x": gold}) for tail in ("", "." + " xyz" * count, "." + " xyz" * (count + 1))]
    assert scores[0] == 1.0
    assert scores[1] > scores[2]


@given(st.text(max_size=30), st.sampled_from([" ", "\n", "\u200b", "\ufeff"]))
def test_a_text_matches_itself_and_normalizing_twice_is_normalizing_once(text, pad):
    once = fold_text(text)
    assert EXACT({"x": text}, {"x": text}) == float(once != "")
    assert fold_text(once) == once
    assert strip_outer_punctuation(strip_outer_punctuation(once)) == strip_outer_punctuation(once)
    assert strip_outer_punctuation("-.5") == "-.5"
    ascii = "".join(c for c in text if c.isascii() and c.isalnum())[:12]
    assert EXACT({"x": pad + ascii.upper() + pad}, {"x": "abc"}) == EXACT({"x": ascii}, {"x": "abc"})


@given(
    st.permutations(list("abcdef")),
    st.lists(st.integers(0, 5), min_size=6, max_size=6).filter(any),
    st.sampled_from([None, 1, 3]),
)
def test_ndcg_of_a_full_ranking_is_that_of_scikit_learn(said, gains, k):
    gold = dict(zip("abcdef", gains, strict=True))
    theirs = ndcg_score(np.array([gains]), np.array([[len(said) - said.index(name) for name in gold]]), k=k)
    assert RankingReward("x", metric="ndcg", k=k)({"x": said}, {"x": gold}) == pytest.approx(theirs)


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.floats(1e-3, 1e300), min_size=1),
    RANKS.filter(bool),
    RANKS.filter(bool),
)
def test_the_best_order_scores_exactly_one_and_saying_a_name_again_never_helps(gains, said, gold):
    for reward in (MRR, NDCG):
        assert reward({"x": sorted(gains, key=lambda name: -gains[name])}, {"x": gains}) == 1.0
        assert reward({"x": [said[0], *said]}, {"x": gold}) <= reward({"x": said}, {"x": gold}) + 1e-12
