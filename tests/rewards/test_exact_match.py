"""ExactMatchReward: what counts as the same answer, and what a model cannot get away with."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tables import each
from viewbox.errors import ConfigError, Unmeasurable
from viewbox.rewards import ExactMatchReward
from viewbox.utils.values import fold_text, strip_outer_punctuation

SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=30))
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))


def score(said, gold, **options):
    return ExactMatchReward("label", **options)({"label": said}, {"label": gold})


@each(
    ("said", "gold"),
    [
        ("Seven", "seven"), ("  left \n lung ", "left lung"), ('"seven."', "seven"), ("**seven**", "seven"),
        ("`seven`", "seven"), ("ＳＥＶＥＮ", "seven"), ("se\u200bven\x00", "seven"), ("STRASSE", "straße"),
        ("cafe\u0301", "café"), (7, "7"), (7.0, "7"), ("7", 7), ("7.0", 7), ("\u22127", -7), (1e-7, 0.0000001),
        (True, "true"), ("True", True), ("nine", ["seven", "nine"]), ("nine", ("seven", "nine")), ("?", "?"),
    ],
)  # fmt: skip
def test_the_same_answer_written_otherwise_scores_one(said, gold):
    assert score(said, gold) == 1.0


@each(
    ("said", "gold"),
    [
        ("not seven", "seven"),
        ("seven, eight, nine", "seven"),
        (["seven"], "seven"),
        (["seven", "eight"], ["seven", "eight"]),
        ({"label": "seven"}, "seven"),
        ("ѕеvеn", "seven"),  # Cyrillic letters that look alike
        ("-7", 7),
        ("HER2-", "HER2+"),
        ("HER2-", "HER2"),
        ("T2*", "T2"),
        ("50%", 50),
        ("<7", 7),
        (True, 1),
        (1, True),
        ("nan", float("nan")),
        (float("nan"), float("nan")),
        (float("inf"), float("inf")),
        ("1e999", 7),
        (10**400, 7),
        (10**17 + 1, 10**17),
        ("1_0", 10),
        ("seven" * 200_000, "seven"),
        (" " * 1_000_000 + "seven", "seven"),
        ("a" + "\u0315\u0300" * 500_000, "a"),  # slow to normalize
        (b"seven", "seven"),
        (object(), "seven"),
    ],
)
def test_another_answer_scores_zero(said, gold):
    assert score(said, gold) == 0.0


@each("gold", [None, "", [], "seven", "\u200b", {}])
@each("answer", [None, {}, {"label": None}, {"label": ""}, {"label": " \u200b\n"}, [], "seven", 3])
def test_a_missing_or_empty_answer_scores_zero_whatever_the_gold(answer, gold):
    assert ExactMatchReward("label")(answer, {"label": gold}) == 0.0
    assert ExactMatchReward("label")(answer, {}) == 0.0


def test_an_answer_without_gold_scores_zero():
    assert ExactMatchReward("label")({"label": "seven"}, {}) == 0.0


def test_the_fields_may_be_nested_and_named_differently():
    reward = ExactMatchReward("finding.label", reference_field="gold.name")
    assert reward({"finding": {"label": "cyst"}}, {"gold": {"name": "Cyst"}}) == 1.0
    assert reward({"finding": "cyst"}, {"gold": {"name": "Cyst"}}) == 0.0


def test_an_alias_is_accepted_for_its_own_gold_only():
    aliases = {"seven": ["7", "VII"], "eight": ["8"]}
    assert score("vii", "Seven", aliases=aliases) == score(7, "seven", aliases=aliases) == 1.0
    assert score("8", "seven", aliases=aliases) == score("seven", "7", aliases=aliases) == 0.0


@each(("said", "expected"), [("12.5", 1.0), (11.5, 1.0), (12.51, 0.0), ("12 mm", 0.0), (True, 0.0)])
@each("gold", [12, 12.0, "12"])
def test_a_number_within_the_tolerance_scores_one(said, expected, gold):
    assert score(said, gold, tolerance=0.5) == expected


def test_the_edge_of_the_tolerance_is_inside_whatever_rounding_does():
    assert score(1.1, 1.0, tolerance=0.1) == 1.0


@each("tolerance", [-1, float("nan"), float("inf"), "1", True])
def test_a_tolerance_that_is_not_a_size_is_refused(tolerance):
    with pytest.raises(
        ConfigError, match=r"ExactMatchReward.tolerance = .*; allowed: a (finite )?number of at least 0 or null"
    ):
        ExactMatchReward(tolerance=tolerance)


def test_an_alias_that_is_a_bare_string_is_refused():
    with pytest.raises(ConfigError, match=r"aliases.seven = '10'; allowed: a list of text"):
        ExactMatchReward(aliases={"seven": "10"})


@given(JSON, JSON, st.none() | st.floats(0, 1e6))
def test_it_is_zero_or_one_whatever_is_said(said, gold, tolerance):
    try:
        assert score(said, gold, tolerance=tolerance) in (0.0, 1.0)
    except Unmeasurable:
        assert isinstance(gold, dict | list)


@given(st.text(max_size=30))
def test_a_text_matches_itself_unless_it_is_empty(text):
    assert score(text, text) == float(fold_text(text) != "")


@given(st.text(max_size=30))
def test_normalizing_twice_is_normalizing_once(text):
    once = fold_text(text)
    assert fold_text(once) == once
    assert strip_outer_punctuation(strip_outer_punctuation(once)) == strip_outer_punctuation(once)


@given(st.text(alphabet="abcXYZ019 -.", min_size=1, max_size=12), st.sampled_from([" ", "\n", "\u200b", "\ufeff"]))
def test_case_and_invisible_padding_change_nothing(text, pad):
    assert score(pad + text.upper() + pad, "abc") == score(text, "abc")


def test_a_minus_before_a_number_without_a_leading_zero_stays():
    assert strip_outer_punctuation("-.5") == "-.5"
    assert ExactMatchReward("x")({"x": "-.5"}, {"x": ".5"}) == 0.0
