"""Warnings while a run can still be saved."""

from types import SimpleNamespace

import pytest
import torch

from viewbox.training.reporting.callbacks import ALARM_STEPS, ALARMS, Alarms

FINE = {
    "tools/rate": 0.9, "frac_reward_zero_std": 0.1, "episodes/truncated": 0.0, "episodes/faults": 0.0,
    "reward/faults": 0.0, "tools/zoom/raised": 0.09, "tools/zoom/success": 0.3, "replies/well_formed": 0.9,
    "sampling/logp_difference/mean": 9e-4, "entropy": 0.5, "answers/beyond_right": 0.3, "held_out/apart": 0.2,
}  # fmt: skip


@pytest.fixture
def watched():
    """Logs metrics step by step; returns what was told."""

    def run(*logs, main=True, max_steps=1000, **given):
        told = []
        alarms = Alarms(told.append)
        if given:
            args = SimpleNamespace(bf16=False, fp16=False, gradient_accumulation_steps=1, steps_per_generation=1)
            vars(args).update({"num_iterations": 1, **given})
            alarms.on_train_begin(args, None, None, model=torch.nn.Linear(1, 1))
        for step, changed in enumerate(logs, 1):
            state = SimpleNamespace(global_step=step, is_world_process_zero=main, max_steps=max_steps, logging_steps=1)
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
        ("sampling/logp_difference/mean", 2e-3, ["log-probs differ by 0.002", "docs/how_it_works.md"]),
        ("entropy", 0.1, ["has fallen to 0.", "from 0.5", "train.learning_rate"]),
        ("answers/beyond_right", 0.5, ["most answers are the same", "50% more", "viewbox view"]),
        ("held_out/apart", 0.3, ["moved away from that of held-out tasks, by 0.30", "log.keep_best"]),
        ("replies/well_formed", 0.0, ["0% of the replies can be read", "supervised warm start", "docs/families.md"]),
    ],
)
def test_each_trouble_is_told_once_with_what_may_help(watched, metric, value, words):
    (told,) = (
        watched(*[{metric: value}] * 3 * ALARM_STEPS)
        if metric not in ("tools/rate", "entropy")
        else watched(*[{}] * ALARM_STEPS, *[{metric: value}] * 3 * ALARM_STEPS)
    )
    assert all(word in told for word in words), told


def test_the_cases_above_are_all_the_alarms_there_are():
    assert {alarm.metric.replace("*answers", "answers").replace("*", "zoom") for alarm in ALARMS} == set(FINE)


def test_tool_use_that_falls_below_a_quarter_of_its_best_mean_has_collapsed(watched):
    before = [{"tools/rate": 0.52}] * ALARM_STEPS
    assert watched(*before, *[{"tools/rate": 0.14}] * 2 * ALARM_STEPS) == []
    (told,) = watched(*before, *[{"tools/rate": 0.08}] * 2 * ALARM_STEPS)
    assert "down from 52%" in told


def test_log_probs_may_differ_by_rounding_in_two_bytes_and_where_a_batch_serves_several_updates(watched):
    """In float32 by 1e-3 in the mean."""
    far = [{"sampling/logp_difference/mean": 0.05}] * ALARM_STEPS
    assert [len(watched(*far, bf16=two_bytes)) for two_bytes in (False, True)] == [1, 0]
    assert watched(*far, num_iterations=2) == []
    (told,) = watched(*[{"sampling/logp_difference/mean": 0.2}] * ALARM_STEPS, bf16=True)
    assert "differ by 0.2" in told


def test_a_run_of_fewer_steps_is_watched_over_all_of_them(watched):
    nothing = {"reward": 0.0, "frac_reward_zero_std": 1.0, "grad_norm": 0.0}
    (told,) = watched(*[nothing] * 3, max_steps=3)
    assert "100% of the groups have equal rewards and teach nothing (last 3 steps)" in told
    assert watched(*[nothing] * 3) == []


def test_held_out_play_is_watched_at_once_and_compared_with_training(watched):
    def play(*rewards):
        return watched(*[{"reward": reward, "held_out/reward": held_out} for reward, held_out in rewards])

    first, more = [(None, 0.5), *[(0.5, None)] * ALARM_STEPS], [(0.7, None)] * ALARM_STEPS
    (told,) = play(*first, (0.5, 0.5), *more, (0.7, 0.4))  # 0.5 - 0.5, then 0.7 - 0.4
    assert "has moved away from that of held-out tasks, by 0.30" in told
    assert len(play(*first, *more, (0.7, 0.4))) == 1  # measured before and after
    assert play(*first, *more, (0.7, 0.6)) == []
    assert play((0.7, 0.4), *more, (0.7, 0.4)) == []  # held-out tasks are harder, as ever
    (told,) = watched({"held_out/answers/beyond_right": 0.9})
    assert "90% more" in told


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
