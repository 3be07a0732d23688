"""GRPO steps of a tiny model on `chest_xray` with tools beside the viewer's: episodes, scores and gradients."""

import math

from tests.support.grpo_kit import make_trainer, train_and_read_steps
from viewbox import make
from viewbox.rollouts.store.reader import load
from viewbox.tools import Picture


def mean(image: Picture) -> dict:
    """Mean brightness."""
    return {"mean": round(float(image.to_gray().mean()), 2)}


def test_a_tiny_model_is_trained_on_chest_films(qwen3, tmp_path):
    env = make("chest_xray", answer_form="text", tools=[mean, "zoom"], max_turns=2, max_pixels=64 * 64,
               pixel_multiple=32, num_tasks=16)  # fmt: skip
    steps = train_and_read_steps(make_trainer(qwen3, tmp_path, env, max_steps=2), tmp_path)
    assert len(steps) == 2
    assert all(math.isfinite(step["grad_norm"]) for step in steps)
    episodes = list(load(tmp_path / "episodes"))
    assert {episode.environment for episode in episodes} == {"chest_xray"}
    assert all("answer" in episode.scores.components for episode in episodes)
