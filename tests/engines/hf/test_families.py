"""Every family of the kit: what the engine records is what a plain forward of the same episode says.

By day some families, and one of them in every setting of the engine; `make nightly` has all of them in all.
"""

import pytest
from msgspec.structs import replace
from peft import LoraConfig, get_peft_model
from PIL import Image

from tests.support.families import NAMES, list_names
from tests.support.tables import each
from viewbox.core.messages import Message
from viewbox.engines.hf.adapters import use_merged_adapters
from viewbox.images.ref import ImageRef


@pytest.fixture(scope="module", params=list_names("qwen3_vl"))
def at_length(request, kits):
    """A family and a model of it."""
    family = kits(request.param)
    return family, family.model()


def generate(family, model, **settings):
    return family.generator(model, **{"slots": 4, "max_completion_tokens": 900} | settings)


def said(episodes):
    return [episode.tokens.completion_ids for episode in episodes]


@pytest.mark.parametrize("name", NAMES)
def test_log_probs_are_those_of_a_plain_forward_and_see_the_picture(
    kits, name, play_mixed, measure_mismatch, plain_logps
):
    family = kits(name)
    model = family.model()
    episodes = play_mixed(generate(family, model), tasks=2)
    assert {len(episode.tokens.images) for episode in episodes} >= {1, 2}
    assert measure_mismatch(model, family, episodes) <= family.tolerance
    tokens = episodes[0].tokens
    blank = [ImageRef.of(Image.new("L", (image.width, image.height))) for image in tokens.images]
    unseen = plain_logps(model, family, replace(tokens, images=tuple(blank)))
    assert (unseen - plain_logps(model, family, tokens)).abs().max() > 0.01


@pytest.mark.parametrize("name", NAMES)
def test_a_prompt_has_the_ids_of_the_familys_own_processor(kits, name):
    family = kits(name)
    picture = ImageRef.of(Image.linear_gradient("L").resize((90, 60)))
    messages = [Message("system", ("Be brief.",)), Message("user", ("What is this?", picture, "So?"))]
    ids, images = family.tokens.encode_prompt(messages, ())
    brief, what, so = ({"type": "text", "text": text} for text in ("Be brief.", "What is this?", "So?"))
    system = [brief] if family.tokens.template.in_parts else "Be brief."
    said = [{"role": "system", "content": system}, {"role": "user", "content": [what, {"type": "image"}, so]}]
    text = family.processor.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
    begins = family.tokenizer.bos_token is not None and text.startswith(family.tokenizer.bos_token)
    pictures = [image.open().convert("RGB") for image in images]
    whole = family.processor(text=[text], images=pictures, return_tensors="pt", add_special_tokens=not begins)
    assert ids == whole["input_ids"][0].tolist()


# ---------------------------------------------------------------------- every setting
def train_with_checkpoints(model):
    model.gradient_checkpointing_enable()
    model.train()


SETTINGS = [  # what is done to the model, and the temperature
    (lambda model: None, 0.7), (lambda model: None, 1.3), (train_with_checkpoints, 1.0),
    (lambda model: model.set_attn_implementation("eager"), 1.0),
]  # fmt: skip


@each("change, temperature", SETTINGS)
def test_log_probs_in_every_setting(at_length, play_mixed, measure_mismatch, change, temperature):
    family = at_length[0]
    model = family.model()
    change(model)
    episodes = play_mixed(generate(family, model, temperature=temperature))
    # logits are divided by the temperature, and so is their rounding
    assert measure_mismatch(model, family, episodes, temperature) <= family.tolerance / min(1, temperature)


def test_log_probs_with_two_images_or_none(at_length, pairs, play_pairs, play, words, measure_mismatch):
    family, model = at_length
    episodes = play_pairs(generate(family, model), pairs)
    assert {len(episode.tokens.images) for episode in episodes} == {2, 3, 4}
    assert sum("open_image" in episode.tools_used() for episode in episodes) >= 6
    assert measure_mismatch(model, family, episodes) <= family.tolerance
    episodes = play(words, words.tasks[:4], generate(family, model), group=2)
    assert not any(episode.tokens.images for episode in episodes)
    assert measure_mismatch(model, family, episodes) <= family.tolerance


def test_what_is_said_depends_on_the_seed_and_neither_on_batches_nor_on_parts_of_a_prefill(at_length, play_mixed):
    (family, model), given = at_length, {"tasks": 2, "group": 2}
    whole = said(play_mixed(generate(family, model), **given))
    assert said(play_mixed(generate(family, model, prefill_tokens=1), **given)) == whole
    assert said(play_mixed(generate(family, model, slots=1), concurrency=1, **given)) == whole
    assert len(set(whole)) == 4  # the members of a group differ
    other = said(play_mixed(generate(family, model), seed=1, **given))
    assert all(a != b for a, b in zip(whole, other, strict=True))


# The families of `test_engine.py` by day
@pytest.mark.parametrize("name", list_names("qwen3_vl", "qwen2_5_vl"))
def test_log_probs_with_adapters_as_columns(kits, name, play_mixed, measure_mismatch):
    family = kits(name)
    layers = ["q_proj", "v_proj", "down_proj"]
    lora = LoraConfig(r=4, lora_alpha=8, target_modules=layers, init_lora_weights=False)
    model = get_peft_model(family.model(), lora).eval()
    with use_merged_adapters(model):
        episodes = play_mixed(generate(family, model), tasks=2)
    assert measure_mismatch(model, family, episodes) <= family.tolerance
    with model.disable_adapter():
        assert measure_mismatch(model, family, episodes) > 0.01  # the adapters were at work
