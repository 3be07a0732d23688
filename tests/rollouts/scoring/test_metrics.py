"""Means over episodes: one place, the same names whatever happened. And the best answer without the picture."""

import math
import sys

import pytest

import viewbox
from tests.support.tables import each
from viewbox.envs.digits import Digits
from viewbox.records import Episode, Scores, Task, ToolCall, ToolResult, Turn
from viewbox.rollouts.scoring.blind import measure_blind
from viewbox.rollouts.scoring.metrics import END_REASONS, compute_episode_metrics, drop_undefined

ENV = Digits()
ANSWER = '{"label": "one", "bbox": [1, 2, 3, 4]}'


def episode(*replies):
    said = iter([*replies, *[replies[-1]] * 20])
    return ENV.play(ENV.tasks[0], lambda messages: next(said))


def test_no_episode_at_all_gives_the_same_names_and_no_division_by_zero():
    some, none = (compute_episode_metrics(episodes, ENV.reward) for episodes in ([episode("{}")], []))
    assert set(some) == set(none)
    assert math.isnan(none["reward"])
    assert drop_undefined(none)["tools/rate"] == 0.0


def test_end_reasons_are_rates_well_formed_is_a_share_of_replies_and_malformed_one_of_episodes():
    found = compute_episode_metrics([episode("{}"), episode(ANSWER)])
    assert sum(found[f"end/{reason}"] for reason in END_REASONS) == 1.0
    assert found["end/answered"] == found["end/max_turns"] == 0.5
    found = compute_episode_metrics([episode("nothing", ANSWER)])
    assert (found["replies/well_formed"], found["episodes/malformed"], found["episodes/turns"]) == (0.5, 1.0, 2.0)


def test_a_component_that_does_not_apply_is_left_out_of_its_mean():
    scores = [Scores(1.0, {"a": 1.0, "b": None}), Scores(0.0, {"a": 0.0, "b": 0.5})]
    found = compute_episode_metrics([Episode(Task("t"), scores=one) for one in scores])
    assert (found["rewards/a/mean"], found["rewards/b/mean"]) == pytest.approx((0.5, 0.5))


def test_calls_that_no_tool_ran_are_no_tool_use_but_are_counted_beside():
    def tell(*results):
        calls = tuple(ToolCall(str(n), result.tool_name) for n, result in enumerate(results))
        return Episode(Task("a"), (Turn("assistant", tool_calls=calls), Turn("tool_result", tool_results=results)))

    garbage = tell(ToolResult("tool_call", error="no JSON"), ToolResult("zoom", error="zoom: factor = 99: too large"))
    looked = tell(
        ToolResult("zoom", "zoomed", arguments={"factor": 2.0}),
        ToolResult("zoom", error="zoom: nothing there", arguments={"factor": 3.0}),
        ToolResult("zoom", "zoomed", arguments={"factor": 2.0}, raised="ConnectionError: refused"),
        ToolResult("zoom", error="zoom failed: ConnectionError: refused", raised="ConnectionError: refused")
    )  # fmt: skip
    refused = tell(ToolResult("zoom"), ToolResult("zoom", error="no"))  # one call of two ran
    found = compute_episode_metrics([refused, tell()], tools=["zoom", "crop"])
    assert (found["tools/zoom/calls"], found["tools/zoom/success"], found["tools/crop/calls"]) == (0.5, 0.5, 0.0)
    assert math.isnan(found["tools/crop/success"])
    found = compute_episode_metrics([garbage, looked], tools=["zoom"])
    assert (found["tools/rate"], found["tools/calls"], found["tools/malformed"]) == (1 / 2, 4 / 2, 2 / 2)
    assert (found["tools/zoom/calls"], found["tools/zoom/raised"], found["tools/zoom/success"]) == (4 / 2, 2 / 4, 2 / 5)
    alone = compute_episode_metrics([garbage], tools=["zoom"])
    assert (alone["tools/rate"], alone["tools/calls"], alone["tools/malformed"]) == (0.0, 0.0, 2.0)
    assert Episode.from_json(looked.to_json()) == looked


def fail(error):
    raise error


class Ward(viewbox.BaseMultiTurnEnv):
    """The others say yes, whoever of the four is left out; and a task of which an author's code raises."""

    name, reward = "ward", viewbox.ExactMatchReward("label")
    answer = {"type": "object", "properties": {"label": {"type": "string"}}, "required": ["label"]}  # noqa: RUF012
    bad = None

    @property
    def tasks(self):
        labels = {"t0": "yes", "t1": "yes", "t2": "yes", "t3": "no"} | ({"bad": "no"} if self.bad else {})
        return [Task(name, (), {"question": "Is it?"}, {"label": label}) for name, label in labels.items()][::-1]

    def write_answer(self, task):
        return self.bad() if task.id == "bad" else super().write_answer(task)


@each("bad", [None, lambda: fail(KeyError("box")), lambda: sys.exit(3)])
def test_a_task_that_cannot_be_written_costs_itself_and_of_one_task_nothing_is_known(bad):
    env = Ward()
    vars(env)["bad"] = bad
    assert measure_blind(env, env.tasks) == 0.75
    assert measure_blind(Ward(), Ward().tasks[:1]) is None
