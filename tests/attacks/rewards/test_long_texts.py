"""Texts of megabytes, in an answer or a reference, cost nothing: they are not compared."""

import pytest

from tests.support.tables import each
from tests.support.unmeasurable import measure
from viewbox.rewards import BrierReward, ExactMatchReward, LabelSetF1Reward, RankingReward, TokenF1Reward
from viewbox.rewards.explain import explain_reward, explain_score
from viewbox.rewards.fields import MAX_TEXT, has_content
from viewbox.utils.values import fold_text

REWARDS = [
    ExactMatchReward("value"), ExactMatchReward("value", tolerance=0.5), TokenF1Reward("value"),
    TokenF1Reward("value", stop_words=True), LabelSetF1Reward("value"), RankingReward("value"),
    BrierReward(ExactMatchReward("value")), BrierReward(lambda answer, reference: 0.0),
]  # fmt: skip
UNITS = [
    "a", "nodule ", "no ", "é", "a\u0315\u0300", "\ufdfa", "\u200b", "-", " ", ".", "nо ", "1",
    "nodule, not seen. ",
]  # fmt: skip


def is_unmeasurable(reward, gold):
    """No answer can be as long as this gold; a function that reads nothing scores it all the same."""
    reads = getattr(reward, "of", reward)
    lists = isinstance(reads, LabelSetF1Reward | RankingReward)
    return hasattr(reads, "field") and (gold != "nodule" if isinstance(gold, str) else lists)


@each("unit", list(UNITS))
@each("reward", list(REWARDS))
@pytest.mark.timeout(20)  # without the limits, most of these took from 2 to 25 seconds each
def test_ten_megabytes_are_not_compared(reward, unit):
    text = unit * (10_000_000 // len(unit))
    for answer, gold in ((text, "nodule"), ("nodule", text), (text, text), (text, [text, "nodule"])):
        given = {"value": answer, "confidence": 1}
        assert measure(reward, given, {"value": gold}) == (None if is_unmeasurable(reward, gold) else 0.0)
        assert len(explain_score(reward, given, {"value": gold}).components[0].why) < 1000


@each("reward", REWARDS[:4])
def test_the_longest_text_that_is_compared(reward):
    text = ("nodule " * MAX_TEXT)[:MAX_TEXT]
    assert reward({"value": text}, {"value": text}) == 1.0
    assert reward({"value": text + "s"}, {"value": text}) == 0.0
    assert measure(reward, {"value": text}, {"value": text + "s"}) is None
    assert reward({"value": "nodule"}, {"value": [text + "s", "nodule"]}) == 1.0


def test_the_explanation_says_that_a_text_is_too_long():
    reward, long = ExactMatchReward("value"), "a" * 20_000
    assert "20,000 characters; at most 16,384 are compared" in explain_reward(reward, {"value": "a"}, {"value": long})
    assert "20,000 characters" in TokenF1Reward("value").explain({"value": long}, {"value": "a"})


def test_letters_that_become_many_do_not_grow_without_end():
    assert fold_text("\ufdfa") == "صلى الله عليه وسلم"
    assert len(fold_text("\ufdfa" * MAX_TEXT)) <= 4 * MAX_TEXT


def test_invisible_characters_say_nothing_however_many():
    assert not has_content("\u200b" * MAX_TEXT * 2)
    assert has_content("\u200b" * 5000 + "a")


def test_brier_explains_a_function():
    reward = BrierReward(lambda answer, reference: None if answer is None else 1.0)
    assert "scores 1" in reward.explain({"label": "a", "confidence": 1}, {})
