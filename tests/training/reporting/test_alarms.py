"""Warnings while a run can still be saved."""

from types import SimpleNamespace

import pytest

from viewbox.training.reporting.callbacks import ALARM_STEPS, ALARMS, Alarms

FINE = {
    "tools/rate": 0.9, "frac_reward_zero_std": 0.1, "episodes/truncated": 0.0, "episodes/faults": 0.0,
    "reward/faults": 0.0, "tools/zoom/raised": 0.1, "tools/zoom/success": 0.3, "replies/well_formed": 0.9,
}  # fmt: skip


@pytest.fixture
def watched():
    """Logs metrics step by step; returns what was told."""

    def run(*logs, main=True):
        told = []
        alarms = Alarms(told.append)
        for step, changed in enumerate(logs, 1):
            state = SimpleNamespace(global_step=step, is_world_process_zero=main)
            alarms.on_log(None, state, None, logs={**FINE, **changed})
        assert len(told) == len(alarms.fired)
        return told

    return run


@pytest.mark.parametrize(
    ("metric", "value", "words"),
    [
        ("tools/rate", 0.0, ["tool use has collapsed", "in 18% of", "down from 90%"]),
        ("frac_reward_zero_std", 0.95, ["95% of the groups have equal rewards", "rollout.temperature"]),
        ("episodes/truncated", 0.7, ["70% of the episodes are truncated", "max_turns"]),
        ("episodes/faults", 0.2, ["20% of the episodes end by a fault", "rollout.timeout"]),
        ("reward/faults", 0.2, ["the reward fails on 20%", "judge"]),
        ("tools/zoom/raised", 0.11, ["the tool zoom raises in 11%", "server"]),
        ("tools/zoom/success", 0.0, ["0% of the calls of the tool zoom succeed", "docs/families.md"]),
        ("replies/well_formed", 0.0, ["0% of the replies can be read", "supervised warm start", "docs/families.md"]),
    ],
)
def test_each_trouble_is_told_once_with_what_may_help(watched, metric, value, words):
    (told,) = (
        watched(*[{metric: value}] * 3 * ALARM_STEPS)
        if metric != "tools/rate"
        else watched(*[{}] * ALARM_STEPS, *[{metric: 0.0}] * 3 * ALARM_STEPS)
    )
    assert all(word in told for word in words), told


def test_the_cases_above_are_all_the_alarms_there_are():
    assert {alarm.metric.replace("*", "zoom") for alarm in ALARMS} == set(FINE)


def test_tool_use_that_falls_below_a_quarter_of_its_best_mean_has_collapsed(watched):
    before = [{"tools/rate": 0.52}] * ALARM_STEPS
    assert watched(*before, *[{"tools/rate": 0.14}] * 2 * ALARM_STEPS) == []
    (told,) = watched(*before, *[{"tools/rate": 0.08}] * 2 * ALARM_STEPS)
    assert "down from 52%" in told


BAD = {"episodes/truncated": 1.0}


@pytest.mark.parametrize(
    ("logs", "told"),
    [
        ([{}] * 50, 0),
        ([*[{}] * 10, {"tools/rate": 0.0}, *[{}] * 10], 0),  # one bad step
        ([{"tools/rate": 0.0}] * 50, 0),  # it never used tools: no collapse
        ([{"tools/zoom/success": float("nan"), "tools/zoom/raised": None}] * 50, 0),  # no episode has it
        ([*[BAD] * ALARM_STEPS, *[{}] * ALARM_STEPS, *[BAD] * ALARM_STEPS], 2),  # it came back
    ],
)
def test_what_is_no_trouble_is_not_told_and_what_comes_back_is_told_again(watched, logs, told):
    assert len(watched(*logs)) == told
    assert watched(*logs, main=False) == []
