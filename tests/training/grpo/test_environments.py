"""GRPO steps of a tiny model on other environments than digits: episodes, scores and gradients."""

import math

import pytest

from tests.support.grpo_kit import make_trainer, train_and_read_steps
from viewbox import make
from viewbox.rollouts.store.reader import load
from viewbox.tools import Picture


def mean(image: Picture) -> dict:
    """Mean brightness."""
    return {"mean": round(float(image.to_gray().mean()), 2)}


SETTINGS = {
    "chest_xray": {"answer_form": "text", "tools": [mean, "zoom"], "max_pixels": 64 * 64},
    "software_adviser": {
        "tools": ["search_tools"], "shown": [], "by_number": True, "max_pixels": 32 * 32, "top_k": [3]
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "scored"),
    [("chest_xray", {"answer"}), ("software_adviser", {"asked_if_ambiguous", "asked_if_clear"})],
)
def test_a_tiny_model_is_trained(qwen3, tmp_path, name, scored):
    env = make(name, max_turns=2, pixel_multiple=32, num_tasks=16, **SETTINGS[name])
    steps = train_and_read_steps(make_trainer(qwen3, tmp_path, env, max_steps=1), tmp_path)
    assert len(steps) == 1
    assert all(math.isfinite(step["grad_norm"]) for step in steps)
    episodes = list(load(tmp_path / "episodes"))
    assert {episode.environment for episode in episodes} == {name}
    assert all(scored <= set(episode.scores.components) for episode in episodes)
