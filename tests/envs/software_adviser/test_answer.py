"""Answers of the adviser: what fits, what is refused in words, and what is made regular."""

import json

import pytest

from tests.support.tables import each
from viewbox import make
from viewbox.engines.scripted import ScriptedPolicy
from viewbox.envs.software_adviser.answer import ANSWER, find_problem, normalize_answer
from viewbox.envs.software_adviser.request import REASONS

ENV = make("software_adviser", num_choices=[3])
TASK = ENV.tasks[0]


def choose(*names, **fields):
    return {"choices": [{"name": name, "accuracy": 90, **fields} for name in names]}


def test_the_schema_names_the_five_reasons_and_both_states():
    assert set(ANSWER["properties"]["reason"]["enum"]) == {*REASONS, None}
    assert set(REASONS) == {
        "no_suitable_tool", "no_modality_match", "no_task_match", "no_dimension_match", "invalid_files",
    }  # fmt: skip
    states = ANSWER["properties"]["conversation"]["properties"]["status"]["enum"]
    assert set(states) == {"complete", "needs_clarification", None}


@each("said", [None, "complete", "needs_clarification"])
def test_choices_make_it_complete_and_a_question_needs_clarification_whatever_it_says(said):
    asked = {"conversation": {"status": said, "question": "Which format?"}}
    assert normalize_answer(asked)["conversation"]["status"] == "needs_clarification"
    both = normalize_answer({**asked, **choose("Fiji"), "reason": "no_task_match"})
    assert both["conversation"] == {"status": "complete", "question": None, "context": None, "options": []}
    assert both["reason"] is None
    without = normalize_answer({"conversation": {"status": said}, "reason": "no_task_match"})
    assert (without["conversation"]["status"], without["reason"]) == ("complete", "no_task_match")


def test_choices_come_in_the_order_of_their_ranks_or_as_listed_and_a_regular_answer_stays_as_it_is():
    ranked = {"choices": [{"name": "b", "rank": 2, "accuracy": 1}, {"name": "a", "rank": 1, "accuracy": 2}]}
    assert [(one["name"], one["rank"]) for one in normalize_answer(ranked)["choices"]] == [("a", 1), ("b", 2)]
    assert [(one["name"], one["rank"]) for one in normalize_answer(choose("b", "a"))["choices"]] == [("b", 1), ("a", 2)]
    for task in ENV.tasks[:10]:
        once = ENV.perfect_answer(task)
        assert normalize_answer(once) == once
        assert ENV.read_answer(json.dumps(once), task) == once


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (choose("a", "b", "c", "d"), "4 are given; allowed: at most 3"),
        (choose("a", "b", rank=1), "the ranks are 1, 1; allowed: 1 to 2, each once"),
        ({"choices": [{"name": "a", "accuracy": 1, "rank": 2}, {"name": "b", "accuracy": 1}]}, "allowed: 1 to 2"),
        (choose("Fiji", "fiji"), "'fiji' is named twice"),
        (choose(" "), "a name is empty"),
        ({}, "no choice, no question, no reason and no explanation"),
        ({"conversation": {"question": " "}, "choices": []}, "no choice, no question"),
    ],
)
def test_what_contradicts_itself_is_refused_in_words(answer, problem):
    assert problem in find_problem(answer, 3)


@each(
    ("answer", "problem"),
    [
        (choose("a", rank=0), "rank"),
        ({"choices": [{"name": "a", "accuracy": 101}]}, "101"),
        ({"choices": [{"name": "a", "accuracy": "high"}]}, "high"),
        ({"choices": [{"name": "a"}]}, "accuracy"),
        ({"choices": ["Fiji"]}, "Fiji"),
        ({"reason": "too expensive"}, "too expensive"),
        ({"conversation": {"status": "done"}}, "done"),
    ],
)
def test_what_does_not_fit_the_schema_is_answered_with_what_is_wrong(answer, problem):
    episode = ENV.play(TASK, ScriptedPolicy([json.dumps(answer), *ENV.oracle(TASK), ENV.write_answer(TASK)]))
    nudge = episode.turns[2]
    assert nudge.nudge == "malformed"
    assert problem in nudge.content
    assert episode.end_reason == "answered"
    assert 0.9 < episode.scores.total < 1.0


def test_an_invalid_answer_is_retried_three_times_and_then_ends_the_episode():
    bad = json.dumps(choose("a", "b", rank=1))
    for count, ends in ((3, "answered"), (4, "malformed")):
        episode = ENV.play(TASK, ScriptedPolicy([*[bad] * count, *ENV.oracle(TASK), ENV.write_answer(TASK)]))
        assert episode.end_reason == ends
        assert episode.num_turns >= count
    assert episode.num_turns == 4
    assert episode.scores.total == 0.0
