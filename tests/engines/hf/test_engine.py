"""The engine: what it records is what a plain forward of the same episode says."""

from types import SimpleNamespace

import psutil
import pytest
import torch
from peft import LoraConfig, get_peft_model

from tests.support.tables import each
from viewbox.engines.generator import Load, TokenRecord
from viewbox.engines.hf import engine
from viewbox.engines.hf.kv_cache import measure_slot
from viewbox.engines.hf.model_runner import use_eval_mode
from viewbox.envs.digits import Digits
from viewbox.errors import ModelError

TOLERANCE = 1e-5  # fp32
ENV = Digits(max_turns=2)


def forwards(model):
    """A list that grows by the (rows, width) of every forward of `model`."""
    shapes = []
    note = lambda module, args, given: shapes.append(tuple(given["input_ids"].shape))  # noqa: E731
    model.register_forward_pre_hook(note, with_kwargs=True)
    return shapes


def said(episodes):
    return [episode.tokens.completion_ids for episode in episodes]


# ---------------------------------------------------------------------- pictures, and a model in training
def use_adamw(model):
    """A step on all weights with what is the default of every run."""
    for weight in model.parameters():
        weight.grad = torch.arange(weight.numel()).sin().view(weight.shape)
    torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True).step()


def write(model):
    """Numbers written through `.data`."""
    for weight in model.model.visual.parameters():
        weight.data.mul_(1.1)


def swap(model):
    """Numbers put in their place."""
    for weight in model.model.visual.parameters():
        weight.data = weight.data * 1.1


CHANGES = {
    "fused AdamW": use_adamw, "written": write, "swapped": swap,
    "a checkpoint": lambda model: model.load_state_dict({name: w * 1.1 for name, w in model.state_dict().items()}),
    "another adapter": lambda model: model.set_adapter("other", inference_mode=True),
    "no adapter": lambda model: model.base_model.disable_adapter_layers(),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_pictures_are_encoded_anew_if_what_they_depend_on_has_changed(qwen3, play_mixed, measure_mismatch, name):
    model = qwen3.model().requires_grad_("Adam" in name)
    if "adapter" in name:
        lora = LoraConfig(r=2, target_modules=r".*visual.*qkv", init_lora_weights=False)
        model = get_peft_model(model, lora)
        model.add_adapter("other", lora)
        model.requires_grad_(False)
    generator = qwen3.generator(model)
    episodes = play_mixed(generator, tasks=2)
    kept = generator.vision_cache.num_encoded
    assert kept == len({image.hash for episode in episodes for image in episode.tokens.images})
    play_mixed(generator, tasks=2)
    assert generator.vision_cache.num_encoded == kept  # nothing has changed
    CHANGES[name](model)
    assert measure_mismatch(model, qwen3, play_mixed(generator, tasks=2)) <= TOLERANCE
    assert generator.vision_cache.num_encoded > kept


def read_states(model):
    parts = [(part.training, getattr(part, "gradient_checkpointing", None)) for part in model.modules()]
    assert any(checkpointing for _, checkpointing in parts)
    return parts


def test_a_model_in_training_keeps_its_cache_and_gets_its_state_back(qwen3, play_mixed, measure_mismatch):
    model = qwen3.model()
    model.gradient_checkpointing_enable()
    model.train()
    model.model.visual.eval()  # a frozen part
    before = read_states(model)
    episodes = play_mixed(qwen3.generator(model, slots=5), tasks=2)
    assert read_states(model) == before
    assert measure_mismatch(model, qwen3, episodes) <= TOLERANCE
    before = read_states(model)
    with pytest.raises(RuntimeError, match="out of memory"), use_eval_mode(model):
        raise RuntimeError("out of memory")
    assert model.training
    assert read_states(model) == before


# ---------------------------------------------------------------------- sampling
@each("penalty", [1.0, 1.3])
def test_greedy_replies_are_those_of_plain_generate(qwen3, play, strips, penalty):
    model = qwen3.model(ends=0.0)
    chosen = {"do_sample": False, "max_new_tokens": 16, "suppress_tokens": list(qwen3.tokens.never_sampled)}
    chosen["repetition_penalty"] = penalty
    generator = qwen3.generator(model, temperature=0.0, repetition_penalty=penalty, max_reply_tokens=16)
    for episode in play(strips, strips.tasks[:4], generator):
        tokens = episode.tokens
        ids = torch.tensor([tokens.prompt_ids])
        pixels = qwen3.processor.image_processor(images=[tokens.images[0].open().convert("RGB")], return_tensors="pt")
        inputs = {"attention_mask": torch.ones_like(ids), "mm_token_type_ids": (ids == qwen3.tokens.image_id).int()}
        found = model.generate(input_ids=ids, **inputs, **pixels, **chosen)[0, ids.shape[1] :].tolist()
        first = tokens.mask.index(0) if 0 in tokens.mask else len(tokens.mask)
        assert list(tokens.completion_ids[:first]) == found


# Likely; and so likely that nothing else has any probability left
@each("temperature, bias", [(0.0, 8.0), (1.0, 8.0), (1.0, 5000.0)])
def test_image_video_and_vision_tokens_are_never_sampled(qwen3, play, strips, temperature, bias):
    names = ("image_pad", "video_pad", "vision_start", "vision_end")
    never = {qwen3.tokenizer.convert_tokens_to_ids(f"<|{name}|>") for name in names}
    model = qwen3.model(bias=dict.fromkeys(never, bias))
    generator = qwen3.generator(model, temperature=temperature, max_reply_tokens=6)
    for episode in play(strips, [strips.tasks[0]], generator, group=4):
        tokens = episode.tokens
        sampled = {one for one, bit in zip(tokens.completion_ids, tokens.mask, strict=True) if bit}
        assert sampled
        assert not never & sampled
        assert not temperature or len(sampled) > 3  # the others keep their odds among themselves


# ---------------------------------------------------------------------- the work it saves
def test_a_prompt_of_a_group_is_prefilled_once_and_rows_that_are_done_are_left_out(qwen3, play, strips):
    model = qwen3.model()
    shapes = forwards(model)
    episodes = play(strips, [strips.tasks[0]], qwen3.generator(model), group=4)
    prompt = len(episodes[0].tokens.prompt_ids)
    assert shapes[0] == (1, prompt)
    assert all(width < prompt for _, width in shapes[1:])
    added = sum(len(episode.tokens.completion_ids) for episode in episodes)
    assert sum(width for _, width in shapes) < prompt + added + 50  # whichever rows share a forward
    model, made = qwen3.model(ends=6.0), []
    shapes = forwards(model)
    model.lm_head.register_forward_hook(lambda module, given, logits: made.append(tuple(logits.shape[:2])))
    play(strips, [strips.tasks[0]], qwen3.generator(model, max_reply_tokens=30), group=4)
    decoding = [rows for rows, width in shapes if width == 1]
    assert min(decoding) < 4
    assert len(decoding) < 4 * 29
    assert max(width for _, width in shapes) > 1
    assert made == [(rows, 1) for rows, _ in shapes]  # of every row, only the logits after its last token


# ---------------------------------------------------------------------- limits
def test_replies_and_completions_have_a_budget_and_a_stop_string_ends_a_reply(qwen3, play, play_mixed):
    model = qwen3.model(ends=-50.0)
    episodes = play_mixed(qwen3.generator(model, slots=5, max_reply_tokens=7, max_completion_tokens=300))
    assert all(len(episode.tokens.completion_ids) <= 300 for episode in episodes)
    plain = next(e.tokens for e in episodes if e.info["index"] == 0 and e.info["sample"] == 2)  # nothing is forced
    assert plain.mask[:8] == (1,) * 7 + (0,)
    env, limit = Digits(max_turns=1), {"max_reply_tokens": 12}
    text = play(env, [env.tasks[0]], qwen3.generator(**limit))[0].turns[-1].content
    stop = text[2:4]
    cut = play(env, [env.tasks[0]], qwen3.generator(**limit, stop=(stop,)))[0].turns[-1].content
    assert text.startswith(cut)
    assert stop in cut
    assert len(cut) < len(text)


def test_a_late_member_of_a_group_copies_the_prompt_where_it_is_still_there(qwen3, play):
    few, many = (qwen3.generator(slots=slots, max_reply_tokens=6) for slots in (3, 8))
    late, at_once = (play(ENV, [ENV.tasks[0]], one, group=8, concurrency=8) for one in (few, many))
    assert said(late) == said(at_once)
    again = (few.stats.prefilled - many.stats.prefilled) / len(late[0].tokens.prompt_ids)
    assert again <= 2  # five came late; only where nobody was left of the group was there nothing to copy


def test_a_budget_of_bytes_decides_how_many_are_in_the_cache_and_none_grows_past_what_an_episode_can_need(qwen3, play):
    model, chosen = qwen3.model(), ENV.tasks[:4]
    wide = qwen3.generator(model, slots=4)
    other = play(ENV, chosen, wide)
    longest = max(len(episode.tokens.prompt_ids) for episode in other)
    assert wide.cache.max_len == longest + wide.max_completion_tokens
    each = (longest + 600 + 1) * measure_slot(model)[0]  # and a column for padding
    narrow, most = qwen3.generator(model, slots=4, kv_cache_bytes=2 * each + 10), []
    take = narrow.cache.take_slot
    narrow.cache.take_slot = lambda row: (take(row), most.append(narrow.cache.num_used))
    assert said(play(ENV, chosen, narrow)) == said(other)
    assert max(most) == 2
    assert sum(layer.keys.nbytes + layer.values.nbytes for layer in narrow.cache.layers) <= 2 * each + 10
    cache = type(wide.cache)(wide.cache.factories[:1], 4)
    cache.max_len, widths = 1000, []
    for num_read in range(1, 1001):  # growth by half alone would end at 1,200 columns or more
        cache.prepare([0], [num_read - 1], 1, num_read, torch.device("cpu"))
        widths.append(cache.index.capacity)
    assert widths == sorted(widths)
    assert widths[-1] == 1001  # one more column takes the padding
    generator = qwen3.generator(slots=2)
    first, longer = (SimpleNamespace(slot=None, conversation=SimpleNamespace(record=TokenRecord([7] * n)))
                     for n in (100, 300))  # fmt: skip
    assert generator._has_room(first, [])
    generator.cache.take_slot(first)
    assert generator._has_room(longer, [])  # beside the first one, while there is memory
    assert generator.cache.max_len == 300 + generator.max_completion_tokens
    assert generator.cache.owners == [first, None]


def test_free_memory_is_the_limit_and_too_little_is_an_error_in_words(qwen3, play, monkeypatch, caplog):
    assert 2**20 < qwen3.generator().kv_cache_bytes <= psutil.virtual_memory().total
    each = 3000 * measure_slot(qwen3.model())[0]
    monkeypatch.setattr(engine, "find_kv_cache_bytes", lambda device: each)
    assert len(play(ENV, ENV.tasks[:4], qwen3.generator(slots=8))) == 4
    assert "8 slots were asked for (rollout.slots)" in caplog.text
    words = r"rollout\.kv_cache_bytes = 1024: one episode needs \d+ .*; allowed: at least that"
    with pytest.raises(ModelError, match=words):
        play(ENV, [ENV.tasks[0]], qwen3.generator(kv_cache_bytes=1024))


def test_the_engine_says_how_many_slots_are_taken_and_how_many_wait(qwen3, play, strips):
    generator, seen = qwen3.generator(slots=2), []

    class Looking(type(strips)):
        async def step(self, state, reply):
            seen.append(generator.get_load())
            return await super().step(state, reply)

    episodes = play(Looking(max_turns=2, tools=("zoom",)), [strips.tasks[i] for i in range(4)], generator)
    assert {(load.busy, load.slots) for load in seen} >= {(2, 2)}
    assert max(load.waiting for load in seen) == 2
    assert generator.get_load() == Load(0, slots=2, tokens=sum(sum(one.tokens.mask) for one in episodes))
