"""Attention of packed episodes: no mask is built, heads are not repeated, and every path gives the same numbers."""

import pytest
import torch
from transformers import AttentionInterface

from viewbox.training.grpo import packing
from viewbox.training.grpo.batch import collate, collect_pixels
from viewbox.training.grpo.logprobs import EpisodeLogProbs, attend, use_grouped_attention
from viewbox.training.grpo.packing import Group, Segment, split_into_packs


def build_segment(length, episode=-1):
    return Segment([0] * length, torch.zeros(3, length), [], episode=episode)


def test_the_model_gives_no_mask_and_the_layout_reaches_attention_when_it_is_computed_again(kit, play_mixed, recorded):
    model = kit.model().train()
    model.gradient_checkpointing_enable()
    episodes = [episode.tokens for episode in play_mixed(kit.generator(), tasks=2, group=3)]
    pixels, tokens = collect_pixels(episodes, kit.tokens), kit.tokens
    scorer = EpisodeLogProbs(model, tokens.architecture, tokens.image_id, tokens.pad_id, pixels=pixels)
    logps, _ = scorer(collate(episodes, tokens))
    layers = model.config.get_text_config().num_hidden_layers
    assert len(recorded) == layers
    logps.sum().backward()
    assert len(recorded) == 2 * layers
    assert all(mask is None and layout for mask, layout in recorded)


@pytest.fixture
def recorded(monkeypatch):
    """The (mask, layout) of every call of the attention function that a model looks up."""
    calls = []

    def record(*args, layout=None, **kwargs):
        calls.append((args[4], layout))
        return attend(*args, layout=layout, **kwargs)

    inner = AttentionInterface._global_mapping
    monkeypatch.setitem(inner, "viewbox_sdpa", record)
    return calls


def test_a_model_without_a_layout_computes_what_it_did_before(qwen3):
    model = qwen3.model()
    ids = torch.arange(12)[None] + 20
    with torch.no_grad():
        before = model(input_ids=ids).logits
        use_grouped_attention(model.model.language_model.config)
        after = model(input_ids=ids).logits
    assert torch.equal(before, after)
    assert model.config.get_text_config()._attn_implementation == "viewbox_sdpa"
    assert "viewbox" not in model.config.to_json_string()


def test_packs_hold_whole_groups_and_only_a_larger_one_is_split(monkeypatch):
    monkeypatch.setattr(packing, "MAX_TOKENS", 30)
    groups = [Group(build_segment(5), [build_segment(5, k) for k in range(n)]) for n in (2, 2, 9, 1)]
    groups.append(Group(build_segment(5), [build_segment(40, 9)]))
    packs = list(split_into_packs(groups, torch.device("cpu")))
    assert [sum(len(segment.ids) for segment in pack.segments) for pack in packs] == [30, 30, 25, 10, 45]
    assert sorted(s.episode for pack in packs for s in pack.segments if s.episode >= 0) == sorted(
        row.episode for group in groups for row in group.rows
    )
