"""Every family of the kit in every setting of the engine: `make nightly`."""

import pytest
from peft import LoraConfig, get_peft_model

from tests.support.families import FAMILIES
from viewbox.engines.hf.adapters import use_merged_adapters


@pytest.fixture(scope="module", params=FAMILIES)
def family(request, kits):
    return kits(request.param)


def generate(family, model, **settings):
    return family.generator(model, **{"slots": 4, "max_completion_tokens": 900} | settings)


def said(episodes):
    return [episode.tokens.completion_ids for episode in episodes]


@pytest.mark.parametrize("temperature", [0.7, 1.3])
def test_log_probs_are_those_of_the_temperature(family, play_mixed, measure_mismatch, temperature):
    model = family.model()
    episodes = play_mixed(generate(family, model, temperature=temperature), tasks=4)
    # logits are divided by the temperature, and so is their rounding
    assert measure_mismatch(model, family, episodes, temperature) <= family.tolerance / min(1, temperature)


def test_log_probs_with_eager_attention(family, play_mixed, measure_mismatch):
    model = family.model()
    model.set_attn_implementation("eager")
    assert measure_mismatch(model, family, play_mixed(generate(family, model), tasks=2)) <= family.tolerance


def test_log_probs_with_two_images_at_the_start(family, pairs, play_pairs, measure_mismatch):
    model = family.model()
    episodes = play_pairs(generate(family, model), pairs)
    assert {len(episode.tokens.images) for episode in episodes} >= {2, 3}
    assert measure_mismatch(model, family, episodes) <= family.tolerance


def test_log_probs_of_conversations_without_pictures(family, play, words, measure_mismatch):
    model = family.model()
    episodes = play(words, words.tasks[:4], generate(family, model), group=2)
    assert measure_mismatch(model, family, episodes) <= family.tolerance


def test_log_probs_of_a_model_in_training_with_gradient_checkpointing(family, play_mixed, measure_mismatch):
    model = family.model()
    model.gradient_checkpointing_enable()
    model.train()
    assert measure_mismatch(model, family, play_mixed(generate(family, model), tasks=2)) <= family.tolerance


def test_log_probs_with_adapters_as_columns(family, play_mixed, measure_mismatch):
    model = family.model()
    layers = ["q_proj", "v_proj", "down_proj"]
    adapted = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, target_modules=layers, init_lora_weights=False))
    adapted.eval()
    with use_merged_adapters(adapted):
        episodes = play_mixed(generate(family, adapted), tasks=2)
    assert measure_mismatch(adapted, family, episodes) <= family.tolerance


def test_what_is_said_depends_on_neither_batches_nor_parts_of_a_prefill(family, play_mixed):
    model, given = family.model(), {"tasks": 2, "group": 2}
    whole = said(play_mixed(generate(family, model), **given))
    assert said(play_mixed(generate(family, model, prefill_tokens=1), **given)) == whole
    assert said(play_mixed(generate(family, model, slots=1), concurrency=1, **given)) == whole


def test_a_prompt_that_a_group_shares_is_computed_once(family, play, strips):
    model, few = family.model(), generate(family, family.model())
    episodes = play(strips, [strips.tasks[0]], few, group=4)
    prompt, later = len(episodes[0].tokens.prompt_ids), sum(len(e.tokens.completion_ids) for e in episodes)
    assert few.stats.prefilled < prompt + later + 50
    assert model is not few.model
