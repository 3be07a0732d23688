"""The weights that ship with viewbox are what the quickstart needs: small, well-behaved, able to read once it looks."""

from pathlib import Path

import pytest
import torch

from viewbox import assets
from viewbox.configs import schema
from viewbox.engines.hf import Settings
from viewbox.engines.hf.chat_tokens import ChatTokens
from viewbox.errors import ModelError
from viewbox.training.generation import Sampler
from viewbox.training.held_out import evaluate
from viewbox.training.plan import Plan

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def figures():
    """(of the model alone, of the model after a script made the right zoom) on 48 held-out tasks of the quickstart."""
    _, env, model, processor = Plan(schema.load("quickstart")).load()
    rollout = Settings(slots=48, max_reply_tokens=40, max_completion_tokens=400)

    def play(oracle):
        tokens = ChatTokens(processor, model.config)
        return evaluate(env, model, Sampler(tokens, rollout), tasks=48, seed=0, oracle=oracle)[0]

    return play(False), play(True)


def test_the_weights_are_at_most_4_megabytes_with_a_card_and_an_unknown_model_is_named_with_the_nearest():
    for name in ("tiny_viewer", "tiny_chest", "tiny_adviser", "tiny_trust"):
        folder = Path(assets.resolve_model_path(f"package:{name}"))
        assert (folder / "model.safetensors").stat().st_size <= 4_000_000
        assert "## Rebuild" in (folder / "README.md").read_text()
    with pytest.raises(ModelError, match="did you mean 'tiny_viewer'"):
        assets.resolve_model_path("package:tiny_viewr")


def test_it_writes_the_format_and_finds_the_digit_but_mostly_does_not_look_and_reads_once_it_has_looked(figures):
    own, oracle = figures
    assert own["replies/well_formed"] > 0.85
    assert own["rewards/box/mean"] > 0.8
    assert 0.1 < own["tools/rate"] < 0.7
    assert oracle["rewards/label/mean"] > 0.7 > own["rewards/label/mean"]
