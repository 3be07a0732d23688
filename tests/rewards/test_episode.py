"""FormatReward and ToolUseReward: what an answer alone cannot tell."""

import math
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.scoring import call, played, refuse
from tests.support.tables import each
from viewbox.rewards import FormatReward, ToolUseReward

ANSWER = {"label": "cyst"}
LOOKS = [call(factor=factor) for factor in (2, 3, 4)]


def ended(answer=ANSWER, flags=(), malformed=0):
    return SimpleNamespace(answer=answer, flags=frozenset(flags), info={"malformed": malformed}, end_reason="max_turns")


@each("episode, expected", [
    (ended(), 1.0), (ended(flags=["salvaged"]), 0.5), (ended(flags=["repaired"]), 0.5),
    (ended(flags=["forced_final"]), 0.75), (ended(flags=["something_else"]), 1.0), (ended(malformed=1), 0.75),
    (ended(flags=["repaired"], malformed=1), 0.25), (ended(flags=["salvaged", "repaired"], malformed=3), 0.0),
    (ended(malformed="many"), 1.0), (ended(None), 0.0), (ended(None, malformed=5), 0.0),
    (SimpleNamespace(answer=ANSWER), 1.0),  # a record without flags
])  # fmt: skip
def test_what_had_to_be_forgiven_lowers_the_format(episode, expected):
    assert FormatReward().of_episode(episode) == expected


def test_the_penalties_can_be_set_and_are_explained_and_so_are_the_calls_of_tool_use():
    reward = FormatReward(penalties={"salvaged": 0.1}, malformed=0.0)
    assert reward.of_episode(ended(flags=["salvaged", "repaired"], malformed=3)) == 0.9
    episodes = [ended(flags=["repaired"], malformed=2), ended(), ended(None)]
    assert [FormatReward().explain_episode(episode) for episode in episodes] == [
        "repaired: -0.5; 2 malformed: -0.5", "the answer has the right format", "no answer; end reason: max_turns",
    ]  # fmt: skip
    words = ToolUseReward(at_least=1, at_most=2).explain_episode(played(*LOOKS, LOOKS[0]))
    assert words == "successful tool calls: 4 (3 different); required: at least 1 and at most 2"


SHARE = r"FormatReward\.(penalties\.salvaged|malformed) = .*; allowed: a .*number of at least 0 and of at most 1"


@each("make, options, words", [
    *((FormatReward, bad, SHARE) for bad in ({"malformed": -1}, {"malformed": math.nan},
     {"penalties": {"salvaged": 2}})),
    *((ToolUseReward, bad, "at_least|at_most|tools") for bad in ({}, {"at_least": -1}, {"at_most": 1.5},
     {"at_least": True}, {"at_least": 3, "at_most": 2}, {"at_least": 1, "tools": "zoom"})),
])  # fmt: skip
def test_an_option_without_a_meaning_is_refused(make, options, words):
    refuse(words, make, **options)


@each("calls, options, expected", [
    ([], {"at_least": 1}, 0.0), (LOOKS[:1], {"at_least": 1}, 1.0), (LOOKS[:1], {"at_least": 2}, 0.5),
    (LOOKS, {"at_least": 1}, 1.0), (LOOKS[:1] * 3, {"at_least": 3}, 1 / 3),  # the same look again is no other look
    ([call(success=False, factor=2)], {"at_least": 1}, 0.0), ([], {"at_most": 2}, 1.0), (LOOKS, {"at_most": 2}, 2 / 3),
    (LOOKS[:1] * 3, {"at_most": 2}, 2 / 3), (LOOKS, {"at_most": 0}, 0.0), (LOOKS, {"at_least": 2, "at_most": 3}, 1.0),
    ([*LOOKS, call("crop")], {"at_least": 2, "tools": ["crop"]}, 0.5),
    # arguments written otherwise are the same call, and those that are no JSON are counted all the same
    ([call(_given='{"factor": 2, "center": [0, 0]}'), call(center=[0, 0], factor=2)], {"at_least": 2}, 0.5),
    *(([call(_given=odd)], {"at_least": 1}, 1.0) for odd in ("{", "[" * 100_000, {"a": {1: object()}})),
])  # fmt: skip
def test_tool_use_is_enough_and_not_too_much(calls, options, expected):
    assert ToolUseReward(**options).of_episode(played(*calls)) == pytest.approx(expected)
    silent = played(*calls, answer=None)  # an episode without an answer is not paid for its calls
    assert ToolUseReward(**options).of_episode(silent) == 0.0
    assert ToolUseReward(**options).explain_episode(silent) == "there is no answer"


@given(st.integers(0, 12), st.integers(0, 5), st.none() | st.integers(5, 8))
def test_no_number_of_calls_beats_enough_of_them(count, at_least, at_most):
    reward = ToolUseReward(at_least=at_least, at_most=at_most)
    scores = [reward.of_episode(played(*(call(factor=i) for i in range(n)))) for n in (count, at_least)]
    assert 0.0 <= scores[0] <= scores[1] == 1.0
