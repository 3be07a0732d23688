"""What tools are worth: tasks played both ways, the difference with its interval, and calls by tool."""

import json

import pytest
from msgspec.structs import replace

from tests.support.saved_episodes import written
from tests.support.tables import each
from viewbox.records import Episode, Scores, Task, ToolResult, Turn
from viewbox.rollouts.worth import MAX_TOOLS, WITH, WITHOUT, measure_worth


def episode(task, total, *results, sample=0, answered=True):
    turns = (Turn("tool_result", tool_results=tuple(ToolResult(name, error=error) for name, error in results)),)
    scores = Scores(total, {"label": total})
    answer = {"label": "one"} if answered else None
    return Episode(Task(task), turns=turns, scores=scores, answer=answer, info={"sample": sample})


@pytest.fixture
def compare(tmp_path):
    """Store episodes with tools and without, and return what the tools are worth."""

    def run(with_tools, without, tools=()):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))  # rows of a table share the fixture
        for way, episodes in ((WITH, with_tools), (WITHOUT, without)):
            written(folder / way, *episodes)
        return measure_worth(folder, (WITH, WITHOUT), tools)

    return run


def play(totals, *results, **more):
    """An episode of each task, with these calls."""
    return [episode(f"t{n}", total, *results, **more) for n, total in enumerate(totals)]


def explain(gain):
    return " ".join(gain.explain())


ZOOM = ("zoom", None)


def test_the_gain_is_the_mean_difference_over_pairs_and_its_interval_is_paired(compare):
    base = [0.1 * (n % 5) for n in range(50)]
    gain = compare(play([0.5 + one for one in base], ZOOM), play([0.25 + one for one in base])[::-1])
    scores = gain.found[WITHOUT].scores
    reward = scores["reward"].difference
    assert (reward.mean, reward.low, reward.high) == pytest.approx((0.25, 0.24, 0.26), abs=0.001)  # pairs agree
    assert scores["reward"].b.low < 0.7 < scores["reward"].b.high
    assert scores["label"].difference.mean == pytest.approx(0.25)
    assert gain.found[WITHOUT].tasks == 50
    assert explain(gain).startswith("against without_tools: the tools are worth +0.250 [+0.2")
    assert explain(gain).endswith("of reward; 64% of it stays without")


def test_episodes_without_a_partner_or_without_a_reward_are_no_pair(compare):
    with_tools = [episode("a", 1.0), episode("a", 0.0, sample=1), episode("b", None), episode("c", 1.0)]
    without = [episode("a", 0.5), episode("b", 0.5), episode("d", 0.5)]
    gain = compare(with_tools, without).found[WITHOUT]
    found = gain.scores["reward"].difference
    # a task counts once: 1.0 and 0.0 with tools, 0.5 without; and one task has no interval
    assert (gain.tasks, found.mean, found.low, gain.is_clear) == (1, 0.0, None, False)


def test_calls_and_success_are_counted_by_tool_and_a_tool_that_is_never_called_is_named(compare):
    calls = [("zoom", None), ("zoom", "out of range"), ("crop", None)]
    gain = compare([episode("a", 1.0, *calls), episode("b", 1.0)], [episode("a", 1.0)], ["zoom", "rotate"])
    assert gain.uses["zoom"] == {"calls": 2, "per_episode": 1.0, "episodes": 0.5, "success": 0.5, "faults": 0}
    assert (gain.uses["rotate"]["calls"], gain.uses["rotate"]["success"]) == (0, None)
    assert gain.uses["crop"]["success"] == 1.0
    assert list(gain.uses) == ["zoom", "rotate", "crop"]
    assert json.loads(json.dumps(gain.to_dict()))["tools"]["zoom"]["calls"] == 2


def test_a_policy_that_calls_nothing_or_gives_no_answer_is_told_so_and_forged_names_of_tools_stay_few(compare):
    episodes = play([0.5] * 20)
    assert "No tool was called" in explain(compare(episodes, episodes, ["zoom"]))
    without = [episode(f"t{n}", 0.0, answered=n > 9) for n in range(20)]
    said = explain(compare(play([1.0] * 20, ZOOM), without))
    assert "50% of the episodes of without_tools end without an answer" in said
    forged = [episode("a", 1.0, *((f"tool{n}", None) for n in range(1000)))]
    assert len(compare(forged, forged, ["zoom"]).uses) == MAX_TOOLS + 1


@each("pairs, says", [(6, "6 tasks are too few"), (19, "too few"), (20, "worth +1.000")])
def test_no_verdict_under_twenty_pairs(compare, pairs, says):
    gain = compare(play([1.0] * pairs, ZOOM), play([0.0] * pairs))
    assert says in explain(gain)
    assert gain.found[WITHOUT].is_clear == (pairs >= 20)


@each("aided, bare", [(0, 10), (10, 0), (2, 3), (30, 30)])
def test_faults_are_counted_apart_on_each_side(compare, aided, bare):
    def fail(one):
        return replace(one, scores=None, answer=None, end_reason="error")

    with_tools, without = play([1.0] * 30, ZOOM), play([0.0] * 30)
    gain = compare([*map(fail, with_tools[:aided]), *with_tools[aided:]], [*map(fail, without[:bare]), *without[bare:]])
    assert (gain.faults, gain.unanswered) == ({WITH: aided, WITHOUT: bare}, {WITH: 0.0, WITHOUT: 0.0})
    assert gain.found[WITHOUT].tasks == 30 - max(aided, bare)
    assert "end without an answer" not in explain(gain)
    assert f"faults ended episodes, which are left out: {aided} of with_tools, {bare} of without_tools" in explain(gain)
    assert json.loads(json.dumps(gain.to_dict()))["faults"] == [aided, bare]
