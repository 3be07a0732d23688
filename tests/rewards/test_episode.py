"""FormatReward and ToolUseReward: what an answer alone cannot tell."""

import math
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tables import each
from viewbox.errors import ConfigError
from viewbox.rewards import FormatReward, ToolUseReward


def ended(answer=None, flags=(), malformed=0):
    return SimpleNamespace(answer=answer, flags=frozenset(flags), info={"malformed": malformed}, end_reason="max_turns")


ANSWER = {"label": "cyst"}


@each(
    ("episode", "expected"),
    [
        (ended(ANSWER), 1.0),
        (ended(ANSWER, ["salvaged"]), 0.5),
        (ended(ANSWER, ["repaired"]), 0.5),
        (ended(ANSWER, ["forced_final"]), 0.75),
        (ended(ANSWER, ["something_else"]), 1.0),
        (ended(ANSWER, malformed=1), 0.75),
        (ended(ANSWER, ["repaired"], malformed=1), 0.25),
        (ended(ANSWER, ["salvaged", "repaired"], malformed=3), 0.0),
        (ended(ANSWER, malformed="many"), 1.0),
        (ended(None), 0.0),
        (ended(None, malformed=5), 0.0),
        (SimpleNamespace(answer=ANSWER), 1.0),  # a record without flags
    ],
)
def test_what_had_to_be_forgiven_lowers_the_format(episode, expected):
    assert FormatReward().of_episode(episode) == expected


def test_the_penalties_can_be_set():
    reward = FormatReward(penalties={"salvaged": 0.1}, malformed=0.0)
    assert reward.of_episode(ended(ANSWER, ["salvaged", "repaired"], malformed=3)) == 0.9


@each("options", [{"malformed": -1}, {"malformed": math.nan}, {"penalties": {"salvaged": 2}}])
def test_a_penalty_that_is_no_share_is_refused(options):
    with pytest.raises(
        ConfigError,
        match=r"FormatReward\.(penalties\.salvaged|malformed) = .*; allowed: a .*number of at least 0 and of at most 1",
    ):
        FormatReward(**options)


def test_the_explanation_of_the_format_names_each_penalty():
    assert FormatReward().explain_episode(ended(ANSWER, ["repaired"], 2)) == "repaired: -0.5; 2 malformed: -0.5"
    assert FormatReward().explain_episode(ended(ANSWER)) == "the answer has the right format"
    assert FormatReward().explain_episode(ended()) == "no answer; end reason: max_turns"


def call(name, success=True, **arguments):
    """One turn that calls, and its result; ids come again in every turn."""
    asked = SimpleNamespace(id="a", name=name, arguments=arguments)
    result = SimpleNamespace(tool_name=name, call_id="a", success=success)
    return [
        SimpleNamespace(tool_calls=(asked,), tool_results=()),
        SimpleNamespace(tool_calls=(), tool_results=(result,)),
    ]


def played(*calls):
    return SimpleNamespace(turns=[turn for one in calls for turn in one], answer=ANSWER)


LOOKS = [call("zoom", factor=factor) for factor in (2, 3, 4)]


@each(
    ("calls", "options", "expected"),
    [
        ([], {"at_least": 1}, 0.0),
        (LOOKS[:1], {"at_least": 1}, 1.0),
        (LOOKS[:1], {"at_least": 2}, 0.5),
        (LOOKS, {"at_least": 1}, 1.0),
        (LOOKS[:1] * 3, {"at_least": 3}, 1 / 3),  # the same look again is no other look
        ([call("zoom", success=False, factor=2)], {"at_least": 1}, 0.0),
        ([], {"at_most": 2}, 1.0),
        (LOOKS, {"at_most": 2}, 2 / 3),
        (LOOKS[:1] * 3, {"at_most": 2}, 2 / 3),
        (LOOKS, {"at_most": 0}, 0.0),
        (LOOKS, {"at_least": 2, "at_most": 3}, 1.0),
        ([*LOOKS, call("crop")], {"at_least": 2, "tools": ["crop"]}, 0.5),
    ],
)
def test_tool_use_is_enough_and_not_too_much(calls, options, expected):
    assert ToolUseReward(**options).of_episode(played(*calls)) == pytest.approx(expected)


@each(
    "options",
    [
        {}, {"at_least": -1}, {"at_most": 1.5}, {"at_least": True}, {"at_least": 3, "at_most": 2},
        {"at_least": 1, "tools": "zoom"},
    ],
)  # fmt: skip
def test_an_option_without_a_meaning_is_refused(options):
    with pytest.raises(ConfigError):
        ToolUseReward(**options)


@each("options", [{"at_least": 1}, {"at_most": 3}, {"at_least": 0, "at_most": 3}])
def test_an_episode_without_an_answer_is_not_paid_for_its_calls(options):
    episode = SimpleNamespace(turns=played(*LOOKS).turns, answer=None)
    assert ToolUseReward(**options).of_episode(episode) == 0.0
    assert ToolUseReward(**options).explain_episode(episode) == "there is no answer"


def test_arguments_written_otherwise_are_the_same_call():
    one, other = call("zoom"), call("zoom")
    one[0].tool_calls[0].arguments = '{"factor": 2, "center": [0, 0]}'
    other[0].tool_calls[0].arguments = {"center": [0, 0], "factor": 2}
    assert ToolUseReward(at_least=2).of_episode(played(one, other)) == 0.5


@each("arguments", ["{", "[" * 100_000, {"a": {1: object()}}, None])
def test_arguments_that_are_no_json_are_counted_all_the_same(arguments):
    odd = call("zoom")
    odd[0].tool_calls[0].arguments = arguments
    assert ToolUseReward(at_least=1).of_episode(played(odd)) == 1.0


def test_the_explanation_of_tool_use_counts_the_calls():
    words = ToolUseReward(at_least=1, at_most=2).explain_episode(played(*LOOKS, LOOKS[0]))
    assert words == "successful tool calls: 4 (3 different); required: at least 1 and at most 2"


@given(st.integers(0, 12), st.integers(0, 5), st.none() | st.integers(5, 8))
def test_no_number_of_calls_beats_enough_of_them(count, at_least, at_most):
    reward = ToolUseReward(at_least=at_least, at_most=at_most)
    scores = [reward.of_episode(played(*(call("zoom", factor=i) for i in range(n)))) for n in (count, at_least)]
    assert 0.0 <= scores[0] <= scores[1] == 1.0
