"""GRPO steps of a tiny model on `software_adviser`: episodes, scores and gradients; live facts are refused."""

import math

import pytest

from tests.support.grpo_kit import make_trainer, train_and_read_steps
from viewbox import make
from viewbox.errors import ConfigError
from viewbox.rollouts.store.reader import load
from viewbox.training.checks.preflight import _check_may_train


def test_a_tiny_model_is_trained_on_requests(qwen3, tmp_path):
    env = make("software_adviser", tools=["search_tools"], shown=[], by_number=True, max_turns=2, max_pixels=32 * 32,
               pixel_multiple=32, num_tasks=16, top_k=[3])  # fmt: skip
    steps = train_and_read_steps(make_trainer(qwen3, tmp_path, env, max_steps=2), tmp_path)
    assert len(steps) == 2
    assert all(math.isfinite(step["grad_norm"]) for step in steps)
    episodes = list(load(tmp_path / "episodes"))
    assert {episode.environment for episode in episodes} == {"software_adviser"}
    assert all({"asked_if_ambiguous", "asked_if_clear"} <= set(episode.scores.components) for episode in episodes)


def test_nobody_trains_with_facts_that_change_from_day_to_day():
    with pytest.raises(ConfigError, match="live facts of repositories"):
        _check_may_train(make("software_adviser", repositories={"live": True}))
    _check_may_train(make("software_adviser", repositories={"live": True, "live_in_training": True}))
