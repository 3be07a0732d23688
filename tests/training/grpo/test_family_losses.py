"""The loss of every family: numbers and gradients are those of plain forwards, one whole episode at a time, with pixels."""

import pytest
import torch
from peft import LoraConfig, get_peft_model

from tests.support.families import FAMILIES
from tests.support.family_episodes import FamilyKit, compute_gradient
from viewbox.training.grpo import logprobs, packing
from viewbox.training.grpo.batch import select, split_by_tokens
from viewbox.training.grpo.logprobs import add_compute_argument

TEMPERATURE = 0.7
ALL = [name if name in ("gemma3", "qwen3_5") else pytest.param(name, marks=pytest.mark.nightly) for name in FAMILIES]


@pytest.fixture
def family(request):
    return FamilyKit(request.param)


@pytest.fixture
def wide(request):
    """In float64: what is left is the rounding of what the models themselves, and `float()`, compute in float32."""
    return FamilyKit(request.param, torch.float64)


def require_same(model, ours, theirs):
    wide = model.dtype == torch.float64
    atol, rtol = (1e-6, 0.0) if wide else (1e-5, 1e-6)  # a number of 34 has steps of 4e-6
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=atol, rtol=rtol)
        assert one.abs().max() > 1
    ours, theirs = compute_gradient(model, *ours), compute_gradient(model, *theirs)
    assert (ours - theirs).norm() / theirs.norm() < (1e-6 if wide else 1e-4)


def use_plain(kit, model, episodes, batch):
    return kit.score_plainly(model, episodes, batch["completion_ids"].shape[1], TEMPERATURE)


@pytest.mark.parametrize("family", FAMILIES, indirect=True)
def test_numbers_and_gradients_are_those_of_plain_forwards(family):
    episodes = family.make_episodes()
    batch = family.collate(episodes)
    ours = family.score(family.model, batch, episodes, TEMPERATURE)
    require_same(family.model, ours, use_plain(family, family.model, episodes, batch))
    tower = family.architecture.get_vision_tower(family.model)
    assert sum(weight.grad.norm() for weight in tower.parameters() if weight.grad is not None) > 0.01


# ---------------------------------------------------------------------- other ways to the same numbers
def checkpoint(kit, patch):
    kit.model.gradient_checkpointing_enable()
    return kit.model.train()


def use_eager(kit, patch):
    kit.model.set_attn_implementation("eager")
    return kit.model


def use_small_packs(kit, patch):
    patch.setattr(packing, "MAX_TOKENS", 70)
    patch.setattr(packing, "MAX_MASKED_TOKENS", 70)
    return kit.model


def use_few_logits(kit, patch):
    patch.setattr(logprobs, "MAX_LOGITS", 5 * kit.model.config.get_text_config().vocab_size)
    return kit.model


def wrap(kit, patch):
    """As the trainer and accelerate do: around `forward`."""
    add_compute_argument(kit.model)
    return kit.model


def adapt(kit, patch):
    model = get_peft_model(kit.model, LoraConfig(r=4, target_modules="all-linear"))
    for name, weight in model.named_parameters():
        if ".lora_B" in name:
            torch.nn.init.normal_(weight, std=0.05)
    return model.eval()


@pytest.mark.parametrize("change", [checkpoint, use_eager, use_small_packs, use_few_logits, wrap, adapt])
@pytest.mark.parametrize("wide", ALL, indirect=True)
def test_every_other_way_gives_the_same(wide, change, monkeypatch):
    episodes = wide.make_episodes()
    batch = wide.collate(episodes)
    model = change(wide, monkeypatch)
    ours = wide.score(model, batch, episodes, TEMPERATURE)
    monkeypatch.undo()
    if change is checkpoint:
        model.gradient_checkpointing_disable()
    require_same(model, ours, use_plain(wide, model.eval(), episodes, batch))


@pytest.mark.parametrize("wide", ALL, indirect=True)
def test_micro_batches_give_the_same(wide):
    episodes = wide.make_episodes()
    batch = wide.collate(episodes)
    parts = split_by_tokens(batch, 150)
    assert len(parts) > 3
    found = [wide.score(wide.model, select(batch, part), episodes, TEMPERATURE) for part in parts]
    order = torch.tensor([k for part in parts for k in part]).argsort()
    ours = [torch.cat(values)[order] for values in zip(*found, strict=True)]
    require_same(wide.model, ours, use_plain(wide, wide.model, episodes, batch))
