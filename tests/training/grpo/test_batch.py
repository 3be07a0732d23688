"""Episodes as tensors: every token and every picture at its place."""

import pytest
import torch
from cachetools import LRUCache
from msgspec.structs import replace

from tests.support.grpo_kit import generate_batch, make_trainer
from viewbox.engines.hf.chat_tokens import describe_mismatch
from viewbox.envs.digits import viewer
from viewbox.records import EpisodeTokens, Reply
from viewbox.training.grpo.batch import add_pixels, build_model_inputs, collate, collect_pixels


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
def looking(strips):
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
def test_a_batch_prepares_and_holds_exactly_its_distinct_pictures(qwen3, tmp_path, looking, room):
    trainer = make_trainer(qwen3, tmp_path, looking)
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


def test_pixels_take_two_bytes_where_the_tower_does_and_four_elsewhere(qwen3, tmp_path, looking):
    for dtype, size in ((torch.float32, 4), (torch.bfloat16, 2)):
        model = qwen3.model().to(dtype)
        trainer = make_trainer(qwen3, tmp_path, looking, model=model)
        trainer.tokens.pixel_cache._pixels.clear()
        generate_batch(trainer)
        assert {pixels.inputs["pixel_values"].itemsize for pixels in trainer.log_probs.pixels.values()} == {size}
    qwen3.tokens.pixel_cache.dtype = torch.float32
