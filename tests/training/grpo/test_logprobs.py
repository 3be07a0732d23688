"""The loss's forward shares what episodes share, and gives the numbers and gradients of a plain one."""

import pytest
import torch
from transformers import AttentionInterface
from transformers.modeling_outputs import CausalLMOutputWithPast

from viewbox.training.grpo import logprobs, packing
from viewbox.training.grpo.batch import (
    add_pixels,
    build_model_inputs,
    collate,
    collect_pixels,
    select,
    split_by_tokens,
)
from viewbox.training.grpo.logprobs import EpisodeLogProbs, attend, build_head, use_grouped_attention
from viewbox.training.grpo.packing import Group, Segment, split_into_packs

TEMPERATURE = 0.7


def scored(model, kit, batch):
    tokens, pixels = kit.tokens, batch.get("pixels", {})
    return EpisodeLogProbs(model, tokens.architecture, tokens.image_id, tokens.pad_id, TEMPERATURE, pixels)(batch)


def collate_with_pixels(kit, play_mixed):
    """Groups of 4 with prompts and completions of different lengths, one to three pictures each."""
    episodes = [episode.tokens for episode in play_mixed(kit.generator(), tasks=3, group=4)]
    whole = add_pixels(collate(episodes, kit.tokens), episodes, kit.tokens)
    return whole | {"pixels": collect_pixels(episodes, kit.tokens)}


@pytest.fixture(scope="module")
def batch(kit, play_mixed):
    return collate_with_pixels(kit, play_mixed)


@pytest.fixture(scope="module")
def qwen3_batch(qwen3, play_mixed):
    return collate_with_pixels(qwen3, play_mixed)


def plain(model, batch):
    """(log-probs, entropies) of one padded forward of whole episodes."""
    logits = model(**build_model_inputs(batch), use_cache=False).logits[:, batch["prompt_ids"].shape[1] - 1 : -1]
    logp = torch.log_softmax(logits.float() / TEMPERATURE, dim=-1)
    mask = batch["completion_mask"] * batch["tool_mask"]
    chosen = logp.gather(2, batch["completion_ids"][:, :, None])[:, :, 0]
    return chosen * mask, -(logp.exp() * logp).sum(-1) * mask


def gradient(model, logps, entropies):
    weights = torch.linspace(-1, 1, logps.numel()).view(logps.shape)
    model.zero_grad()
    (weights * logps + weights.flip(0) * entropies.square()).sum().backward()
    return torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in model.parameters()])


def seen(model):
    """Lists that grow by the shape of every forward of the backbone, and of the vision tower's patches."""
    text, patches = [], []
    model.model.language_model.register_forward_pre_hook(
        lambda module, args, given: text.append(tuple(given["inputs_embeds"].shape[:2])), with_kwargs=True
    )
    model.model.visual.register_forward_pre_hook(
        lambda module, args, given: patches.append(len(args[0] if args else given["hidden_states"])), with_kwargs=True
    )
    return text, patches


def test_numbers_and_gradients_are_those_of_a_plain_forward_vision_tower_included(kit, batch):
    model = kit.model()
    ours, theirs = scored(model, kit, batch), plain(model, batch)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
        assert one.abs().max() > 1
    ours = gradient(model, *ours)
    tower = sum(p.grad.norm() for p in model.model.visual.parameters() if p.grad is not None)
    assert tower > 0.01
    theirs = gradient(model, *theirs)
    assert (ours - theirs).norm() / theirs.norm() < 1e-5


def test_a_groups_prompt_and_equal_pictures_are_computed_once_and_nothing_sampled_has_no_gradient(kit, batch):
    model = kit.model()
    text, patches = seen(model)
    scored(model, kit, batch)
    lengths = batch["prompt_mask"].sum(1).view(3, 4)[:, 0]
    completions = int(batch["completion_mask"].sum())
    assert text == [(1, int(lengths.sum()) - 3 + 12 + completions)]
    assert sum(patches) < int(batch["vision"]["image_grid_thw"].prod(1).sum())
    logps, _ = scored(model, kit, batch | {"tool_mask": torch.zeros_like(batch["tool_mask"])})
    logps.sum().backward()
    assert not any(p.grad.any() for p in model.parameters() if p.grad is not None)
    assert (logps == 0).all()


def checkpoint(model, batch, patch):
    model.gradient_checkpointing_enable()
    model.train()


def split_groups(model, batch, patch):
    patch.setattr(packing, "MAX_TOKENS", int(batch["prompt_mask"][0].sum() + batch["completion_mask"].sum(1).max()))


def few_logits(model, batch, patch):
    patch.setattr(logprobs, "MAX_LOGITS", 5 * model.config.get_text_config().vocab_size)


def repeat_heads(model, batch, patch):
    patch.setattr(logprobs, "_can_read_both", lambda query, value: False)
    patch.setattr(logprobs, "_can_group_heads", lambda query: False)


OTHER_WAYS = {  # and how many forwards each takes
    checkpoint: (1, 1),
    split_groups: (4, 99),
    few_logits: (1, 1),
    lambda model, batch, patch: model.set_attn_implementation("eager"): (1, 1),
    lambda model, batch, patch: patch.setattr(logprobs, "_can_read_both", lambda query, value: False): (1, 1),
    repeat_heads: (1, 1),
}


WAYS = ["checkpointed", "split", "few logits", "eager", "prompts with each row", "repeated heads"]


@pytest.fixture(scope="module")
def usual(qwen3, qwen3_batch):
    model = qwen3.model()
    return gradient(model, *scored(model, qwen3, qwen3_batch))


@pytest.mark.parametrize("change", OTHER_WAYS, ids=WAYS)
def test_every_other_way_gives_the_same_numbers_and_gradients(qwen3, qwen3_batch, usual, monkeypatch, change):
    model = qwen3.model()
    text, _ = seen(model)
    change(model, qwen3_batch, monkeypatch)
    found = gradient(model, *scored(model, qwen3, qwen3_batch))
    assert (found - usual).norm() / usual.norm() < 1e-5
    least, most = OTHER_WAYS[change]
    assert least <= len(text) <= most


def test_a_batch_without_pictures_is_scored(kit, play, words):
    model = kit.model()
    episodes = play(words, words.tasks[:3], kit.generator(model), group=2)
    batch = collate([episode.tokens for episode in episodes], kit.tokens)
    with torch.no_grad():
        torch.testing.assert_close(scored(model, kit, batch)[0], plain(model, batch)[0], atol=1e-5, rtol=1e-5)


# ---------------------------------------------------------------------- micro-batches
def test_micro_batches_keep_to_the_budget_and_their_pictures_and_count_a_shared_prompt_once(qwen3, qwen3_batch):
    batch = qwen3_batch
    prompts, completions = batch["prompt_mask"].sum(1).tolist(), batch["completion_mask"].sum(1).tolist()
    budget = max(prompts) + 4 * max(completions)
    parts = split_by_tokens(batch, budget)
    assert sorted(k for part in parts for k in part) == list(range(12))
    for part in parts:
        distinct = {tuple(batch["prompt_ids"][k].tolist()): prompts[k] for k in part}
        assert sum(distinct.values()) + sum(completions[k] for k in part) <= budget
    assert len(parts) < -(-(sum(prompts) + sum(completions)) // budget)
    assert sorted(split_by_tokens(batch, 1)) == [[k] for k in range(12)]  # longer than the budget: by itself
    model = qwen3.model()
    with torch.no_grad():
        whole, some = (scored(model, qwen3, one)[0] for one in (batch, select(batch, [4, 1])))
    torch.testing.assert_close(some, whole[[4, 1]], atol=1e-5, rtol=1e-5)


class OddModel(torch.nn.Module):
    """Gives its backbone the ids by position, as LLaVA-NeXT does, and reads something of it, as Chameleon does."""

    def __init__(self):
        super().__init__()
        self.model, self.lm_head = torch.nn.Identity(), torch.nn.Linear(4, 6, bias=False)
        self.model.scale = 2

    def forward(self, input_ids=None, inputs_embeds=None):
        outputs = self.model(input_ids, pixel_values=None, inputs_embeds=inputs_embeds)
        return CausalLMOutputWithPast(logits=self.model.scale * self.lm_head(outputs.last_hidden_state))


def test_the_logits_are_those_of_a_forward_that_treats_its_backbone_oddly():
    model, hidden = OddModel(), torch.randn(3, 4)
    torch.testing.assert_close(build_head(model)(hidden), 2 * hidden @ model.lm_head.weight.T)


# ---------------------------------------------------------------------- attention of packed episodes
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
