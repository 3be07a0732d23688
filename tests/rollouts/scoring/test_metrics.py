"""Means over episodes: one place, the same names whatever happened."""

import math

import pytest

from viewbox.envs.digits import Digits
from viewbox.records import Episode, Scores, Task, ToolCall, ToolResult, Turn
from viewbox.rollouts.scoring.metrics import END_REASONS, compute_episode_metrics, drop_undefined

ENV = Digits()


def episode(reply, seed=0):
    return ENV.play(ENV.tasks[seed], lambda messages: reply)


def test_no_episode_at_all_gives_the_same_names_and_no_division_by_zero():
    some, none = compute_episode_metrics([episode("{}")], ENV.reward), compute_episode_metrics([], ENV.reward)
    assert set(some) == set(none)
    assert math.isnan(none["reward"])
    assert drop_undefined(none)["tools/rate"] == 0.0


def test_end_reasons_are_rates_that_sum_to_one():
    found = compute_episode_metrics([episode("{}"), episode('{"label": "one", "bbox": [1, 2, 3, 4]}')])
    assert sum(found[f"end/{reason}"] for reason in END_REASONS) == 1.0
    assert found["end/answered"] == found["end/max_turns"] == 0.5


def test_well_formed_is_a_share_of_replies_and_malformed_one_of_episodes():
    replies = iter(["nothing", '{"label": "one", "bbox": [1, 2, 3, 4]}'])
    found = compute_episode_metrics([ENV.play(ENV.tasks[0], lambda messages: next(replies))])
    assert found["replies/well_formed"] == 0.5
    assert found["episodes/malformed"] == 1.0
    assert found["episodes/turns"] == 2.0


def test_a_component_that_does_not_apply_is_left_out_of_its_mean():
    scores = [Scores(1.0, {"a": 1.0, "b": None}), Scores(0.0, {"a": 0.0, "b": 0.5})]
    found = compute_episode_metrics([Episode(Task("t"), scores=one) for one in scores])
    assert found["rewards/a/mean"] == pytest.approx(0.5)
    assert found["rewards/b/mean"] == pytest.approx(0.5)


def test_calls_that_no_tool_ran_are_no_tool_use_but_are_counted_beside():
    def tell(*results):
        calls = tuple(ToolCall(str(n), result.tool_name) for n, result in enumerate(results))
        return Episode(Task("a"), (Turn("assistant", tool_calls=calls), Turn("tool_result", tool_results=results)))

    garbage = tell(ToolResult("tool_call", error="no JSON"), ToolResult("zoom", error="zoom: factor = 99: too large"))
    looked = tell(
        ToolResult("zoom", "zoomed", arguments={"factor": 2.0}),
        ToolResult("zoom", error="zoom: nothing there", arguments={"factor": 3.0}),
        ToolResult("zoom", "zoomed", arguments={"factor": 2.0}, raised="ConnectionError: refused"),
        ToolResult("zoom", error="zoom failed: ConnectionError: refused", raised="ConnectionError: refused"),
    )
    found = compute_episode_metrics([garbage, looked], tools=["zoom"])
    assert (found["tools/rate"], found["tools/calls"], found["tools/malformed"]) == (1 / 2, 4 / 2, 2 / 2)
    assert (found["tools/zoom/calls"], found["tools/zoom/raised"], found["tools/zoom/success"]) == (4 / 2, 2 / 4, 2 / 5)
    alone = compute_episode_metrics([garbage], tools=["zoom"])
    assert (alone["tools/rate"], alone["tools/calls"], alone["tools/malformed"]) == (0.0, 0.0, 2.0)
    assert Episode.from_json(looked.to_json()) == looked
