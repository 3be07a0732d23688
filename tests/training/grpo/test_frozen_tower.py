"""The shipped configs adapt the language layers only; a frozen tower encodes each picture once, loss included."""

import pytest
import torch
from peft import get_peft_model

from tests.support.grpo_kit import generate_batch, make_trainer
from viewbox.configs.schema import load
from viewbox.engines.hf.vision_cache import VisionCache
from viewbox.training.precision import build_lora_config, freeze_parts

CONFIGS = {"qwen3_vl": "qwen3_vl_4b_lora", "qwen2_5_vl": "qwen2_5_vl_3b"}
LAYERS, PROJECTIONS = 2, 7  # of the tiny models: q, k, v, o, gate, up, down


@pytest.fixture
def lora(kit):
    return build_lora_config(load(CONFIGS[kit.name]).lora)


def test_shipped_configs_adapt_all_linear_language_layers_and_no_other(kit, lora):
    model = get_peft_model(kit.model(), lora)
    adapted = [name for name, module in model.named_modules() if name.endswith("lora_A.default")]
    assert len(adapted) == LAYERS * PROJECTIONS
    assert all(".language_model." in name for name in adapted)
    assert not any(weight.requires_grad for weight in model.get_base_model().model.visual.parameters())


def test_the_loss_and_later_steps_take_the_features_of_generation(kit, tmp_path, strips, lora):
    trainer = make_trainer(kit, tmp_path, strips, peft_config=lora)
    inputs = generate_batch(trainer)
    cache = trainer._vision_cache
    assert cache.frozen
    encoded = cache.num_encoded
    assert encoded == len(trainer.log_probs.pixels)
    seen = []
    trainer.model.get_base_model().model.visual.register_forward_pre_hook(lambda *args: seen.append(1))
    loss = trainer._compute_loss(trainer.model, inputs)
    loss.backward()
    generate_batch(trainer)  # the same tasks again: at most the views are new
    again = cache.num_encoded - encoded
    assert again <= len(set(trainer.log_probs.pixels)) - 2
    with torch.no_grad():
        ours = trainer.log_probs.compute(trainer.model, inputs)[0]
        trainer._vision_cache.clear()
        theirs = trainer.log_probs.compute(trainer.model, inputs)[0]
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-6)
    assert len(seen) <= again + 1


def test_features_of_a_frozen_tower_are_dropped_by_a_checkpoint_and_if_its_weights_change(qwen3, tmp_path, strips):
    """A resumed run then encodes the same batches."""
    lora = build_lora_config(load(CONFIGS["qwen3_vl"]).lora)
    trainer = make_trainer(qwen3, tmp_path, strips, peft_config=lora, max_steps=1)
    trainer.train()
    inputs = generate_batch(trainer)
    before, pictures = trainer._vision_cache.num_encoded, len(trainer.log_probs.pixels)
    trainer.collect_state()
    trainer._compute_loss(trainer.model, inputs)
    assert trainer._vision_cache.num_encoded == before + pictures
    tower = trainer._vision_cache.architecture.get_vision_tower(trainer.model)
    with torch.no_grad():
        next(iter(tower.parameters())).mul_(1.5)
    trainer._compute_loss(trainer.model, inputs)
    assert trainer._vision_cache.num_encoded == before + 2 * pictures


def test_a_weight_beside_tower_and_projector_is_trained_on_features_of_its_own(kits):
    """`image_newline` ends the rows of a picture's features, and belongs to no part of the model."""
    kit = kits("llava_next")
    model = kit.model()
    freeze_parts(model, "projector")
    assert model.model.image_newline.requires_grad
    assert not VisionCache(model, kit.tokens.architecture).frozen
    assert VisionCache(model.requires_grad_(False), kit.tokens.architecture).frozen
