"""The loss's forward shares what episodes share. That it gives the numbers and gradients of a plain one:
`test_family_losses.py`.
"""

import pytest
import torch
from cachetools import LRUCache
from msgspec.structs import replace
from transformers import AttentionInterface
from transformers.modeling_outputs import CausalLMOutputWithPast

from tests.support.grpo_kit import generate_batch, make_trainer
from viewbox.engines.hf.chat_tokens import describe_mismatch
from viewbox.envs.digits import viewer
from viewbox.records import EpisodeTokens, Reply
from viewbox.training.grpo import packing
from viewbox.training.grpo.batch import add_pixels, build_model_inputs, collate, collect_pixels, select, split_by_tokens
from viewbox.training.grpo.logprobs import EpisodeLogProbs, attend, build_head, use_grouped_attention
from viewbox.training.grpo.packing import PromptGroup, TokenSegment, split_into_packs


def scored(model, kit, batch):
    tokens = kit.tokens
    return EpisodeLogProbs(model, tokens.architecture, tokens.image_id, tokens.pad_id, 0.7, batch["pixels"])(batch)


@pytest.fixture(scope="module")
def batch(qwen3, play_mixed):
    """Groups of 4 with prompts and completions of different lengths, one to three pictures each."""
    episodes = [episode.tokens for episode in play_mixed(qwen3.generator(), tasks=3, group=4)]
    whole = add_pixels(collate(episodes, qwen3.tokens), episodes, qwen3.tokens)
    return whole | {"pixels": collect_pixels(episodes, qwen3.tokens)}


def test_a_groups_prompt_and_equal_pictures_are_computed_once_and_nothing_sampled_has_no_gradient(qwen3, batch):
    model, text, patches = qwen3.model(), [], []
    model.model.language_model.register_forward_pre_hook(
        lambda module, args, given: text.append(tuple(given["inputs_embeds"].shape[:2])), with_kwargs=True
    )
    model.model.visual.register_forward_pre_hook(
        lambda module, args, given: patches.append(len(args[0] if args else given["hidden_states"])), with_kwargs=True
    )
    logps, _ = scored(model, qwen3, batch | {"tool_mask": torch.zeros_like(batch["tool_mask"])})
    lengths = batch["prompt_mask"].sum(1).view(3, 4)[:, 0]
    assert text == [(1, int(lengths.sum()) - 3 + 12 + int(batch["completion_mask"].sum()))]
    assert sum(patches) < int(batch["vision"]["image_grid_thw"].prod(1).sum())
    logps.sum().backward()
    assert not any(p.grad.any() for p in model.parameters() if p.grad is not None)
    assert (logps == 0).all()


# ---------------------------------------------------------------------- micro-batches
def test_micro_batches_keep_to_the_budget_and_their_pictures_and_count_a_shared_prompt_once(batch):
    prompts, completions = batch["prompt_mask"].sum(1).tolist(), batch["completion_mask"].sum(1).tolist()
    budget = max(prompts) + 4 * max(completions)
    parts = split_by_tokens(batch, budget)
    assert sorted(k for part in parts for k in part) == list(range(12))
    for part in parts:
        distinct = {tuple(batch["prompt_ids"][k].tolist()): prompts[k] for k in part}
        assert sum(distinct.values()) + sum(completions[k] for k in part) <= budget
    assert len(parts) < -(-(sum(prompts) + sum(completions)) // budget)
    assert sorted(split_by_tokens(batch, 1)) == [[k] for k in range(12)]  # longer than the budget: by itself


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
    return TokenSegment([0] * length, torch.zeros(3, length), [], episode=episode)


def test_the_model_gives_no_mask_and_the_layout_reaches_attention_when_it_is_computed_again(qwen3, batch, recorded):
    model = qwen3.model().train()
    model.gradient_checkpointing_enable()
    logps, _ = scored(model, qwen3, select(batch, [0, 1, 2, 4]) | {"pixels": batch["pixels"]})
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
    groups = [PromptGroup(build_segment(5), [build_segment(5, k) for k in range(n)]) for n in (2, 2, 9, 1)]
    groups.append(PromptGroup(build_segment(5), [build_segment(40, 9)]))
    packs = list(split_into_packs(groups, torch.device("cpu")))
    assert [sum(len(segment.ids) for segment in pack.segments) for pack in packs] == [30, 30, 25, 10, 45]
    assert sorted(s.episode for pack in packs for s in pack.segments if s.episode >= 0) == sorted(
        row.episode for group in groups for row in group.rows
    )


# ---------------------------------------------------------------------- episodes as tensors
def test_every_token_and_every_picture_of_an_episode_stands_at_its_place(kit, played):
    episodes = [episode.tokens for episode in played(kit)[1]]
    batch = collate(episodes, kit.tokens)
    prompt = max(len(episode.prompt_ids) for episode in episodes)
    completion = max(len(episode.completion_ids) for episode in episodes)
    pad = [kit.tokens.pad_id]
    assert batch["prompt_ids"].shape == batch["prompt_mask"].shape == (len(episodes), prompt)
    for name in ("completion_ids", "completion_mask", "tool_mask", "logprobs"):
        assert batch[name].shape == (len(episodes), completion)
    for i, episode in enumerate(episodes):
        p, c = len(episode.prompt_ids), len(episode.completion_ids)
        assert batch["prompt_ids"][i].tolist() == pad * (prompt - p) + list(episode.prompt_ids)
        assert batch["prompt_mask"][i].tolist() == [0] * (prompt - p) + [1] * p
        assert batch["completion_ids"][i].tolist() == list(episode.completion_ids) + pad * (completion - c)
        assert batch["completion_mask"][i].tolist() == [1] * c + [0] * (completion - c)
        assert batch["tool_mask"][i].tolist() == list(episode.mask) + [0] * (completion - c)
        assert torch.equal(batch["logprobs"][i], torch.tensor([*episode.logprobs, *[0.0] * (completion - c)]))
    counts = [len(episode.images) for episode in episodes]
    assert len(set(counts)) > 1
    per_sample = []
    store = collect_pixels(episodes, kit.tokens)
    for i, episode in enumerate(episodes):
        pixels = [kit.tokens.get_pixels(image) for image in episode.images]
        assert batch["image_tokens"][i, : counts[i]].tolist() == [one.tokens for one in pixels]
        assert not batch["image_tokens"][i, counts[i] :].any()
        assert [store[key] for key in batch["image_keys"][i, : counts[i]].tolist()] == pixels
        per_sample.append(sum(one.tokens for one in pixels))
    assert len(store) == len({image.hash for episode in episodes for image in episode.images})  # each once
    whole = add_pixels(batch, episodes, kit.tokens)
    flat = [kit.tokens.get_pixels(image) for episode in episodes for image in episode.images]
    assert whole["vision"]["image_grid_thw"].tolist() == [list(one.grid) for one in flat]
    assert torch.equal(whole["vision"]["pixel_values"], torch.cat([one.inputs["pixel_values"] for one in flat]))
    assert batch["mm_token_type_ids"].sum(dim=1).tolist() == per_sample
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    assert torch.equal(batch["mm_token_type_ids"] == 1, ids == kit.tokens.image_id)


def test_a_batch_without_pictures_has_no_pixel_entries(kit, play, words):
    model = kit.model()
    episodes = [episode.tokens for episode in play(words, words.tasks[:3], kit.generator(model))]
    batch = add_pixels(collate(episodes, kit.tokens), episodes, kit.tokens)
    assert batch["vision"] == {}
    assert batch["image_keys"].shape == (3, 0)
    assert set(build_model_inputs(batch)) == {"input_ids", "attention_mask"}
    assert model(**build_model_inputs(batch)).logits.isfinite().all()


def test_an_episode_that_ended_before_its_first_reply_can_be_collated(qwen3, played):
    other = played(qwen3)[1][0].tokens
    empty = EpisodeTokens(other.prompt_ids, (), (), (), other.images[:1], 1)
    for batch in (collate([empty], qwen3.tokens), collate([empty, other], qwen3.tokens)):
        assert batch["completion_mask"][0].sum() == 0
        assert batch["completion_ids"].shape[1] >= 1


def test_a_missing_picture_or_a_missing_placeholder_is_a_mismatch_in_words(kit, played):
    tokens = max((episode.tokens for episode in played(kit)[1]), key=lambda tokens: len(tokens.images))
    last = kit.tokens.get_pixels(tokens.images[-1]).tokens
    all_ = sum(kit.tokens.get_pixels(image).tokens for image in tokens.images)
    assert describe_mismatch(tokens, kit.tokens) is None
    lost = describe_mismatch(replace(tokens, images=tokens.images[:-1]), kit.tokens)
    assert lost == f"{all_} image tokens for {all_ - last} image features ({len(tokens.images) - 1} images)"
    cut = tokens.prompt_ids.index(kit.tokens.image_id)
    short = replace(tokens, prompt_ids=tokens.prompt_ids[:cut] + tokens.prompt_ids[cut + 1 :])
    assert describe_mismatch(short, kit.tokens).startswith(f"{all_ - 1} image tokens for {all_} image features")


# ---------------------------------------------------------------------- pixels: each picture prepared and held once
@pytest.fixture
def two_ways(strips):
    """The members of a group look in two ways, whatever the policy says, and then answer."""

    class Looking(type(strips)):
        async def step(self, state, reply):
            if state.turn == 0:
                said = viewer.write_zoom(self, 2, 0.3, 0.3 + state.seed % 2 / 4)
            else:
                said = viewer.write_answer(self, state.task, None)
            return await super().step(state, Reply(said))

    return Looking(max_turns=4, tools=("zoom",))


def find_distinct(inputs):
    return set(inputs["image_keys"][inputs["image_tokens"].bool()].tolist())


@pytest.mark.parametrize("room", [2**31, 0], ids=["a large cache", "no cache"])
def test_a_batch_prepares_and_holds_exactly_its_distinct_pictures(qwen3, tmp_path, two_ways, room):
    trainer = make_trainer(qwen3, tmp_path, two_ways)
    cache = trainer.tokens.pixel_cache
    cache._pixels = LRUCache(room, getsizeof=lambda pixels: pixels.nbytes or 1)
    if not room:
        cache._pixels = LRUCache(1, getsizeof=lambda pixels: 1)  # the next picture drives the last one out
    before = cache.num_prepared
    inputs = generate_batch(trainer)
    distinct = find_distinct(inputs)
    assert len(distinct) == 6  # two overviews, and two looks at each
    assert inputs["image_tokens"].bool().sum() == 16  # which eight episodes show
    assert cache.num_prepared - before == 6
    assert set(trainer.log_probs.pixels) == distinct
    assert {pixels.inputs["pixel_values"].device.type for pixels in trainer.log_probs.pixels.values()} == {"cpu"}
    trainer._compute_loss(trainer.model, inputs)
    assert cache.num_prepared - before == 6


def test_pixels_take_two_bytes_where_the_tower_does_and_four_elsewhere(qwen3, tmp_path, two_ways):
    for dtype, size in ((torch.float32, 4), (torch.bfloat16, 2)):
        model = qwen3.model().to(dtype)
        trainer = make_trainer(qwen3, tmp_path, two_ways, model=model)
        trainer.tokens.pixel_cache._pixels.clear()
        generate_batch(trainer)
        assert {pixels.inputs["pixel_values"].itemsize for pixels in trainer.log_probs.pixels.values()} == {size}
    qwen3.tokens.pixel_cache.dtype = torch.float32
