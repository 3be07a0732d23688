"""Which words are denied: forwards, backwards, and where a reach ends."""

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewbox.rewards.negation import MARK, TOKEN, split_words
from viewbox.utils.values import fold_text


def denied(text):
    """The words that are denied, in order."""
    return " ".join(word[1:] for word in split_words(text)[0] if word.startswith(MARK) and word != MARK)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("No consolidation, effusion or pneumothorax", "consolidation effusion or pneumothorax"),
        ("left nodule without effusion", "effusion"),
        ("The mass is not malignant", "malignant"),
        ("non-malignant mass", "malignant"),
        ("free of tumour", "tumour"),
        ("negative for tumour", "tumour"),
        ("absence of tumour", "tumour"),
        ("denies pain", "pain"),
        ("No cardiomegaly.", "cardiomegaly"),  # no adverb, although it ends in -ly
        ("no anomaly or hepatomegaly", "anomaly or hepatomegaly"),
        ("neither mass nor nodule", "mass nodule"),
        ("it isn't a tumour", "a tumour"),
        ("n\u200bo tumour", "tumour"),
        ("nо tumour", "tumour"),  # a Cyrillic о
    ],
)
def test_what_follows_a_negation_is_denied(text, words):
    assert denied(text) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tumour is absent", "tumour is"), ("tumour: no", "tumour"), ("Tumour? No.", "tumour"),
        ("Tumour. No.", "tumour"), ("tumour not seen", "tumour"), ("a tumour isn't visible", "a tumour"),
        ("tumour unlikely", "tumour"), ("tumour was ruled out", "tumour"), ("tumour: false", "tumour"),
    ],
)  # fmt: skip
def test_some_negations_deny_what_stands_before(text, words):
    assert denied(text) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no effusion. nodule", "effusion"), ("no effusion; nodule", "effusion"),
        ("no effusion but a nodule", "effusion"), ("nodule. no effusion. mass", "effusion"),
        ("No, it is a tumour", ""), ("no " * 2000 + ". tumour", ""),
    ],
)  # fmt: skip
def test_a_reach_ends_with_its_sentence(text, words):
    assert denied(text) == words


@pytest.mark.parametrize(
    "text",
    [
        "tumour cannot be excluded", "tumour was not ruled out", "tumour is not absent", "no doubt a tumour",
        "not only a tumour", "no change in the tumour", "free fluid", "the false lumen", "no", "", ",", ". . .",
    ],
)  # fmt: skip
def test_what_only_looks_denied_is_not(text):
    assert denied(text) == ""


def test_saying_no_twice_insists():
    assert denied("no no tumour") == denied("no, no tumour") == "tumour"


PIECE = st.sampled_from(["no", "not", "without", "ruled", "out", "absent", ",", ".", "but", "mass", "is"])


@given(st.text("abcdeno ',.;?()", max_size=60) | st.lists(PIECE).map(" ".join))
def test_marking_adds_no_word_and_repeats_none(text):
    """Their order may change: "not, in fact, a mass" is read as "in fact not a mass"."""
    words = [word.removeprefix(MARK) for word in split_words(text)[0] if word != MARK]
    plain = re.findall(TOKEN, fold_text(text))
    assert Counter(word.replace("'", "") for word in words) <= Counter(word.replace("'", "") for word in plain)


def test_a_probability_denies_nothing_and_a_zero_does():
    assert denied("effusion: 0.91, nodule: 0.03") == ""
    assert denied("effusion: 0, nodule: 1") == "effusion"
