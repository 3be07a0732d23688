"""The filter of `viewbox score --where`: what each operator finds, and what is said of a filter that is wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewbox import ConfigError, Episode, RunConfig, Scores, Task, ToolCall, ToolResult, Turn
from viewbox.rollouts.scoring.filters import get_field, parse_filter

EPISODE = Episode(
    Task("t1", metadata={"seed": 3, "site": {"name": "Süd|West"}, "boxes": [[0, 1], [2, 3]], "empty": []}),
    (Turn("assistant", "look", tool_calls=(ToolCall("c0", "zoom"), ToolCall("c1", "crop"))), Turn("tool_result",
        tool_results=(ToolResult("zoom"), ToolResult("crop", error="no"))), Turn("assistant", "{}")),
    {"label": "seven", "certain": True, "size_mm": 12.5}, confidence=1.0, flags={"salvaged", "repaired"},
    scores=Scores(0.25, {"box": 0.5, "outer.inner": 1.0, "none": None}),
    run_config=RunConfig("Qwen/Qwen3-VL-4B", seed=3), environment="digits", info={"step": 40}
)  # fmt: skip
NO_ANSWER = Episode(Task("t2"), end_reason="malformed", truncated=True)
FOUND = [
    "end_reason=answered", "end_reason == answered", "answer.label=one|seven", "answer.label != one",
    "answer.certain=true", "answer.size_mm=12.50", "answer.size_mm > 12", "task.metadata.seed>=3",
    "task.metadata.seed<=3", "task.metadata.seed<3.5", "task.metadata.site.name~^süd", "task.metadata.boxes.1.0=2",
    "task.metadata.absent=null", "task.metadata.absent!=3", "scores.total<0.5", "scores.components.box=0.5",
    "scores.components.outer.inner=1", "scores.components.none=null", "run_config.model_name~qwen3.*4b",
    "flags=salvaged", "flags!=refused", "tools_used=zoom", "tools_used!=crop", "num_turns=2", "tool_call_count>1",
    "info.step=40", "step>=40", "reward<0.5", "reward.box=0.5", "reward.outer.inner=1", "task=t1", "tool=zoom",
    "reference.absent=null", "confidence=1", "truncated=false", "turns.0.content=look"
]  # fmt: skip
NOT_FOUND = [
    "end_reason=malformed|max_turns", "answer.label=Seven", "answer.label>3", "answer.certain=1", "answer.certain>0",
    "flags!=salvaged", "flags=salvage", "tools_used=crop", "task.metadata.absent>0", "task.metadata.empty=3",
    "task.metadata.boxes.7.0=2", "answer=null"
]  # fmt: skip


FILTERS = {  # of the episode without an answer, which is null and neither greater nor less, too
    True: [*((EPISODE, text) for text in FOUND), (NO_ANSWER, "answer=null"), (NO_ANSWER, "answer.label=null"),
           (NO_ANSWER, "scores.total=null")],
    False: [*((EPISODE, text) for text in NOT_FOUND),
           *((NO_ANSWER, f"answer.size_mm{op}0") for op in (">", "<="))],
}  # fmt: skip


def test_what_an_episode_has_is_found_and_what_it_has_not_is_not():
    for found, rows in FILTERS.items():
        for episode, text in rows:
            assert parse_filter(text)(episode) is found, text
    assert get_field(EPISODE, "task.id.deeper") is None  # a path through what is no container gives nothing
    assert get_field(EPISODE, "task.metadata.seed.deeper") is None
    equals = Episode(Task("t", metadata={"x": "=1"}))  # a value that begins with an equals sign follows two
    assert [parse_filter(f"task.metadata.x{op}1")(equals) for op in ("===", "==")] == [True, False]


@given(st.text(st.characters(exclude_characters="|", exclude_categories=["Cs"]), max_size=20))
def test_any_text_is_found_by_itself(text):
    episode = Episode(Task("t", metadata={"x": text}))
    assert parse_filter(f"task.metadata.x=={text}")(episode)


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_are_compared_as_numbers(value, limit):
    episode = Episode(Task("t", metadata={"x": value}))
    found = {op: parse_filter(f"task.metadata.x{op}{limit!r}")(episode) for op in (">", ">=", "<", "<=", "=", "!=")}
    assert found == {">": value > limit, ">=": value >= limit, "<": value < limit, "<=": value <= limit,
        "=": value == limit, "!=": value != limit}  # fmt: skip


@given(st.text(max_size=30))
def test_any_text_is_a_filter_or_a_config_error(text):
    try:
        condition = parse_filter(text)
    except ConfigError:
        return
    assert condition(EPISODE) in (True, False)


WRONG = [
    ("end_reson=answered", "unknown field 'end_reson'.*did you mean 'end_reason'"),
    ("tsk.metadata.seed=1", "unknown field 'tsk'.*did you mean 'task'"),
    ("task.metdata.seed=1", "unknown field of task 'metdata'.*did you mean 'metadata'"),
    ("scores.totl>1", "unknown field of scores 'totl'; allowed: components, faults, total"),
    ("tokens.mask=1", "unknown field 'tokens'"),
    ("end_reason", "allowed: field op value, with one of = != > >= < <= ~"), ("=answered", "allowed: field op value"),
    ("num_turns>many", "> compares numbers; given 'many'"), ("num_turns>nan", "> compares numbers; given 'nan'"),
    ("task.id~(", "is not a regular expression")
]  # fmt: skip


def test_a_filter_that_is_wrong_is_named_with_what_is_allowed():
    for text, words in WRONG:
        with pytest.raises(ConfigError, match=words) as caught:
            parse_filter(text)
        assert repr(text) in str(caught.value)
