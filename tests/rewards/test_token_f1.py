"""TokenF1Reward: shared words, where negations always count."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tables import each
from viewbox.errors import ConfigError
from viewbox.rewards import TokenF1Reward

WORD = st.sampled_from(["no", "left", "lung", "nodule", "the", "without", "2.5", "-2.5"])
WORDS = st.lists(WORD, max_size=8).map(" ".join)


def score(said, gold, **options):
    return TokenF1Reward("report", **options)({"report": said}, {"report": gold})


@each(
    ("said", "gold", "expected"),
    [
        ("Left LUNG.", "lung, left", 1.0),
        ("left", "left lung", 2 / 3),
        ("tumour tumour tumour tumour", "tumour", 2 / 5),  # repeating does not help
        ("T-score -2.5", "t-score 2.5", 2 / 3),
        ("5.3", "3.5", 0.0),
        ("5", ".5", 0.0),
        ("7mm", "7 mm", 1.0),
        (7, "7", 1.0),
        ("isn’t", "isn't", 1.0),
        ("lung", ["liver", "lung"], 1.0),
        ("", "", 0.0),
        ("...", "...", 1.0),  # no words: compared as a whole
        ("...", "?", 0.0),
        ("+", "+", 1.0),
        ("\u200b", "lung", 0.0),
        (None, None, 0.0),
        (["left", "lung"], "left lung", 0.0),
        ("lung " * 200_000, "lung", 0.0),
        ("a" + "\u0315\u0300" * 500_000, "a", 0.0),
    ],
)
def test_the_score_is_the_f1_of_the_words(said, gold, expected):
    assert score(said, gold) == pytest.approx(expected)


def test_stop_words_are_left_out_on_both_sides():
    assert score("a nodule in the lung", "nodule of lung", stop_words=True) == 1.0
    assert score("big nodule", "nodule", stop_words=["BIG"]) == 1.0


@each("negation", ["no", "not", "without", "never", "isn't", "Don't"])
def test_a_negation_is_never_a_stop_word(negation):
    assert score(f"{negation} tumour", "tumour", stop_words=[negation]) < 1.0


def test_a_gold_made_of_stop_words_can_still_be_earned():
    assert score("A", "a", stop_words=True) == 1.0
    assert score("the", "a", stop_words=True) == 0.0


def test_stop_words_given_as_one_string_are_refused():
    with pytest.raises(ConfigError, match="stop_words"):
        TokenF1Reward("report", stop_words="the")


@each(
    ("said", "gold", "expected"),
    [
        ("no tumour", "tumour", 0.0),
        ("tumour", "no tumour", 0.0),
        ("no tumour", "no tumour", 1.0),
        ("without tumour", "no tumour", 1.0),  # the same finding, said with another word
        ("no evidence of tumour", "no tumour", 0.5),  # two words more
        ("no effusion", "no tumour", 0.0),  # the word no alone is worth nothing
        ("Nodule. No effusion.", "no effusion; nodule", 1.0),
        ("Effusion. No nodule.", "No effusion. Nodule.", 0.0),
        ("no", "no", 1.0),
        ("No, there is no tumour.", "no", 2 / 5),
        ("No. tumour", "no tumour", 0.0),
        ("No. tumour", "tumour", 2 / 3),
        ("the mass is not malignant", "malignant mass", 0.0),  # a contradiction takes two words away
        ("large mass, not malignant", "large malignant mass", 0.0),
        ("large left upper mass, not malignant", "large left upper malignant mass", 2 * (4 - 2) / 10),
        ("tumour cannot be excluded", "tumour", 2 / 5),
        ("mass, no doubt malignant", "malignant mass", 2 / 3),
        ("no effusion\nnodule", "nodule", 2 / 3),
        ("a nodule and no nodule", "nodule", 2 / 15),  # said both ways: worth a third
    ],
)
def test_what_is_denied_equals_only_what_is_denied(said, gold, expected):
    assert score(said, gold) == pytest.approx(expected)


def test_bare_words_are_compared_where_that_is_asked_for():
    assert score("no tumour", "tumour", negation_scope=False) == pytest.approx(2 / 3)


def test_stop_words_are_left_out_of_what_is_denied_too():
    assert score("no sign of the tumour", "no sign tumour", stop_words=True) == 1.0


@given(WORDS | st.text(max_size=40), WORDS | st.text(max_size=40), st.booleans())
def test_it_lies_between_zero_and_one(said, gold, stop_words):
    assert 0.0 <= score(said, gold, stop_words=stop_words) <= 1.0


@given(WORDS, WORDS)
def test_it_is_symmetric(a, b):
    assert score(a, b) == score(b, a)


@given(st.lists(st.sampled_from(["left", "lung", "nodule"]), min_size=1, max_size=6).flatmap(st.permutations), WORDS)
def test_case_and_order_change_nothing(words, gold):
    assert score(" ".join(words).upper(), gold) == score(" ".join(sorted(words)), gold)


@given(WORDS.filter(bool), st.integers(1, 5))
def test_adding_words_the_gold_does_not_have_lowers_the_score(gold, count):
    assert score(gold, gold) == 1.0
    assert score(gold + "." + " xyz" * count, gold) > score(gold + "." + " xyz" * (count + 1), gold)


@each(
    ("said", "gold", "expected"),
    [
        (">5 mm", "<5 mm", 0.5),
        ("5 mm", "<5 mm", 0.5),
        ("< 5mm", "<5 mm", 1.0),
        ("28", "28%", 0.0),
        ("28.0 %", "28%", 1.0),
        ("Rh-", "Rh+", 0.0),
        ("Rh", "Rh+", 0.0),
        ("ER +, PR -", "ER+ PR-", 1.0),
        ("CRP ↑", "↑CRP", 1.0),
        ("CRP ↓", "↑CRP", 0.0),
        ("pre and post-contrast", "pre- and post-contrast", 1.0),  # a hanging hyphen is no sign
        ("nodule- left", "nodule left", 1.0),
        ("12,000 cells", "12000 cells", 1.0),
        ("~5 mm to ~7 mm", "~5 mm to ~7 mm", 1.0),  # nothing is struck out
    ],
)
def test_a_sign_that_makes_another_value_is_part_of_its_word(said, gold, expected):
    assert score(said, gold) == pytest.approx(expected)


def test_bare_words_have_no_signs():
    assert score(">5 mm, Rh-", "<5 mm Rh+", negation_scope=False) == 1.0


@each(
    ("said", "gold", "expected"),
    [
        ("hepatitis", "hepatitis A", 2 / 3),
        ("hepatitis a", "Hepatitis A", 1.0),
        ("vitamin deficiency", "vitamin a deficiency", 0.8),
        ("hepatitis B", "hepatitis A and B", 0.8),
        ("There is a nodule.", "nodule", 1.0),
        ("THERE IS A NODULE", "nodule", 1.0),
        ("shows a 9 mm nodule", "shows 9 mm nodule", 1.0),
    ],
)
def test_a_letter_that_is_a_name_is_no_stop_word(said, gold, expected):
    assert score(said, gold, stop_words=True) == pytest.approx(expected)
    assert score("hepatitis", "hepatitis A", stop_words=["a"], negation_scope=False) == 1.0  # as SQuAD's script
