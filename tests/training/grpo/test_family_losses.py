"""The loss of every family: numbers and gradients are those of plain forwards, of whole episodes with pixels."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import masking_utils

from tests.support.families import NAMES, build_family, list_names
from tests.support.family_episodes import FamilyKit, compute_gradient
from viewbox.engines.hf.architectures import Architecture
from viewbox.training.grpo import logprobs, packing
from viewbox.training.grpo.batch import select, split_by_tokens
from viewbox.training.grpo.logprobs import add_compute_argument

TEMPERATURE = 0.7
ALL = list_names("gemma3", "qwen3_5")


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


@pytest.mark.parametrize("family", NAMES, indirect=True)
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


def read_prompts_with_each_row(kit, patch):
    patch.setattr(logprobs, "_can_read_both", lambda query, value: False)
    return kit.model


def repeat_heads(kit, patch):
    patch.setattr(logprobs, "_can_group_heads", lambda query: False)
    return read_prompts_with_each_row(kit, patch)


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


def take_pixels(kit, patch):
    """As if the model had no backbone that takes features: each episode alone."""
    patch.setattr(Architecture, "has_backbone", False)
    return kit.model


WAYS = (
    checkpoint, use_eager, use_small_packs, use_few_logits, read_prompts_with_each_row, repeat_heads, wrap, adapt,
    take_pixels,
)  # fmt: skip


@pytest.mark.parametrize("change", WAYS)
@pytest.mark.parametrize("wide", list_names("gemma3", "qwen3_vl"), indirect=True)  # with a mask, without one
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
    parts = split_by_tokens(batch, 150, share=wide.architecture.shares_prompts)
    lengths = [len(episode.prompt_ids) + len(episode.completion_ids) for episode in episodes]
    shared = [sum(lengths[k] for k in part) > 150 for part in parts if len(part) > 1]
    assert len(parts) > 3
    assert wide.architecture.shares_prompts or not any(shared)  # where a prompt counts again with each episode
    found = [wide.score(wide.model, select(batch, part), episodes, TEMPERATURE) for part in parts]
    order = torch.tensor([k for part in parts for k in part]).argsort()
    ours = [torch.cat(values)[order] for values in zip(*found, strict=True)]
    require_same(wide.model, ours, use_plain(wide, wide.model, episodes, batch))


# ---------------------------------------------------------------------- masks
CREATE = {
    "full_attention": masking_utils.create_causal_mask,
    "sliding_attention": masking_utils.create_sliding_window_causal_mask,
    "chunked_attention": masking_utils.create_chunked_causal_mask,
}


@pytest.mark.parametrize("kind", CREATE)
def test_a_packed_row_has_the_masks_that_transformers_gives_each_episode_alone(kind):
    """Prompt of 11 tokens, rests of 9 and 14; then 17 tokens of their own; windows and chunks of 8."""
    model, processor = build_family("mistral3")
    text = model.config.get_text_config()
    text.layer_types, text.sliding_window, text.attention_chunk_size = [kind] * text.num_hidden_layers, 8, 8
    architecture = Architecture(model.config, processor)
    segments = [(0, 0, 11), (1, 11, 9), (1, 11, 14), (0, 0, 17)]  # after the prompt?, first place, length
    rows = [(n, 0 if after else -1, start + k) for n, (after, start, size) in enumerate(segments) for k in range(size)]
    owners, prompts, index = torch.tensor(rows).unbind(1)
    mask = architecture.masks.build_packed(owners, prompts, index, torch.full((len(rows),), 5))[0, 0]
    for number, (after, _, _) in enumerate(segments):
        own = (owners == number) | (after * (owners == 0)).bool()
        given = {"attention_mask": None, "past_key_values": None, "allow_is_causal_skip": False}
        states = torch.zeros(1, int(own.sum()), 4)
        theirs = CREATE[kind](config=text, inputs_embeds=states, **given)[0, 0]
        size = int((owners == number).sum())
        assert torch.equal(mask[owners == number][:, own], theirs[-size:])
        assert not mask[owners == number][:, ~own].any()
