"""The shipped configs adapt the language layers only; a frozen tower encodes each picture once, loss included."""

import pytest
import torch
from peft import get_peft_model

from tests.support.grpo_kit import generate_batch, make_trainer
from viewbox.configs.schema import load
from viewbox.training.precision import build_lora_config

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


@pytest.mark.parametrize("name", [*CONFIGS.values(), "qwen3_vl_4b_qlora"])
def test_a_process_of_a_shipped_config_holds_whole_groups_at_once(name):
    train = load(name).train
    assert train.micro_batch_tokens
    assert train.arguments["per_device_train_batch_size"] % train.arguments["num_generations"] == 0


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


def test_a_tower_that_is_trained_is_computed_with_its_gradient(qwen3, tmp_path, strips):
    trainer = make_trainer(qwen3, tmp_path, strips)
    assert not trainer._vision_cache.frozen
    inputs = generate_batch(trainer)
    trainer.log_probs.compute(trainer.model, inputs)[0].sum().backward()
    assert any(weight.grad is not None and weight.grad.any() for weight in trainer.model.model.visual.parameters())


def test_features_of_a_frozen_tower_are_dropped_if_its_weights_change(qwen3, tmp_path, strips, lora_of_qwen3):
    trainer = make_trainer(qwen3, tmp_path, strips, peft_config=lora_of_qwen3)
    inputs = generate_batch(trainer)
    tower = trainer._vision_cache.architecture.get_vision_tower(trainer.model)
    with torch.no_grad():
        next(iter(tower.parameters())).mul_(1.5)
    before = trainer._vision_cache.num_encoded
    trainer._compute_loss(trainer.model, inputs)
    assert trainer._vision_cache.num_encoded == before + len(trainer.log_probs.pixels)


def test_a_checkpoint_drops_features_so_that_a_resumed_run_encodes_the_same_batches(
    qwen3, tmp_path, strips, lora_of_qwen3
):
    trainer = make_trainer(qwen3, tmp_path, strips, peft_config=lora_of_qwen3, max_steps=1)
    trainer.train()
    inputs = generate_batch(trainer)
    before = trainer._vision_cache.num_encoded
    trainer.collect_state()
    trainer._compute_loss(trainer.model, inputs)
    assert trainer._vision_cache.num_encoded == before + len(trainer.log_probs.pixels)


@pytest.fixture
def lora_of_qwen3():
    return build_lora_config(load(CONFIGS["qwen3_vl"]).lora)
