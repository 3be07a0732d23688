"""Weights that are trained are kept in float32: in two bytes nearly every small step is rounded away."""

import pytest
import torch
from peft import get_peft_model
from safetensors.torch import load_file

from tests.support.families import FAMILIES, build_family
from tests.support.grpo_kit import generate_batch, make_trainer
from tests.support.runs import read_weights, run, write_config
from tests.support.tables import each
from viewbox.configs import schema as configs
from viewbox.configs.schema import load, parse
from viewbox.engines.hf.vision_cache import VisionCache
from viewbox.errors import ConfigError
from viewbox.training import precision
from viewbox.training.findings import check
from viewbox.training.plan import Plan
from viewbox.training.shapes import count_parameters
from viewbox.training.trainer_args import build_trainer_arguments

SFT = {"method": "sft", "demonstrations": {"count": 16}}
STEPS = {**SFT, "max_steps": 2, "per_device_train_batch_size": 2, "learning_rate": 1e-6}


def parsed(model=None, lora=None, **train):
    content = {"model": {"name": "m"} | (model or {}), "env": {"name": "digits"}, "train": train}
    return configs.parse(content | ({"lora": lora} if lora else {}))


def test_by_default_nearly_every_weight_moves_in_two_steps(tiny_folder, tmp_path):
    """In two bytes, nearly none would: a step of 1e-6 is rounded away."""
    small = {"train": {**STEPS, "lr_scheduler_type": "constant"}, "env": {"name": "digits"}, "log": {"eval_tasks": 0}}
    rollout = {"max_reply_tokens": 8, "max_completion_tokens": 300}
    path = write_config(tmp_path, tiny_folder, "run", small, rollout=rollout, model={"dtype": "auto"})
    after, before = read_weights(run(path)), load_file(tiny_folder / "model.safetensors")
    assert next(iter(after.values())).dtype == torch.float32
    moved = sum((weight != before[name].to(weight.dtype)).float().sum().item() for name, weight in after.items())
    assert moved / sum(weight.numel() for weight in after.values()) > 0.9


@each("given, loaded", [
    ({}, "float32"), ({"model": {"dtype": "float32"}}, "float32"), ({"lora": {"r": 4}}, "auto"),
    ({"lora": {"r": 4, "quantize": "4bit"}}, "bfloat16"),
    ({"lora": {"r": 4}, "model": {"dtype": "bfloat16"}}, "bfloat16"), (SFT, "float32"),
])  # fmt: skip
def test_weights_that_are_trained_are_loaded_in_float32(given, loaded):
    assert precision.resolve_dtype(parsed(**given)) == loaded


WAYS_OUT = ["no model.dtype", "section lora"]


@each("model, words", [
    ({"dtype": "bfloat16"}, WAYS_OUT), ({"dtype": "float16"}, WAYS_OUT),
    ({"name": None, "tiny": {}, "dtype": "bfloat16"}, ["built in float32"]),
])  # fmt: skip
def test_two_byte_training_is_refused_with_the_ways_out(model, words):
    with pytest.raises(ConfigError) as caught:
        check(Plan(parsed(model)))
    assert caught.value.key == "model.dtype"
    assert all(word in str(caught.value) for word in words)


@each("method, lora", precision.LEARNING_RATES.keys())
def test_the_default_learning_rate_fits_what_is_trained(method, lora):
    config = parsed(**(SFT if method == "sft" else {}), lora={"r": 4} if lora else None)
    assert build_trainer_arguments(config, "out").learning_rate == precision.LEARNING_RATES[method, lora]
    assert build_trainer_arguments(parsed(learning_rate=3e-4, lora={"r": 4}), "out").learning_rate == 3e-4


# ---------------------------------------------------------------------- what `model.freeze` leaves as it is
QWEN = {"visual.blocks", "visual.patch_embed"}
PLACED, GLM = QWEN | {"visual.pos_embed"}, {"visual.embeddings", "visual.post_conv_layernorm", "visual.post_layernorm"}
DEEP = {"visual.merger", "visual.deepstack_merger_list"}
PARTS = {  # of each family: the vision tower, and what else projects
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl"), (QWEN, {"visual.merger"})), "qwen3_5": (PLACED, {"visual.merger"}),
    **dict.fromkeys(("qwen3_vl", "qwen3_vl_moe"), (PLACED, DEEP)),
    **dict.fromkeys(("gemma4", "gemma4_31b"), ({"vision_tower"}, {"embed_vision"})),
    **dict.fromkeys(("smolvlm", "idefics3"), ({"vision_model"}, {"connector"})),
    **dict.fromkeys(("glm4v", "glm46v"), (QWEN | GLM, {"visual.downsample", "visual.merger"})),
}  # fmt: skip
OTHERS = {"vision_tower"}, {"multi_modal_projector"}


def read(name, freeze, **lora):
    section = {"lora": {"r": 4, **lora}} if lora else {}
    return parse({"model": {"name": name, "freeze": freeze}, "env": {"name": "digits"}, **section})


def list_weights(model, parts):
    return {name for name, _ in model.named_parameters() if name.removeprefix("model.").startswith(tuple(parts))}


@each("name", FAMILIES.keys())
def test_the_tower_or_all_beside_the_language_model_is_frozen(name):
    tower, projector = PARTS.get(name, OTHERS)
    for freeze, parts in (("none", ()), ("vision", tower), ("projector", tower | projector)):
        model = precision.build_model(read(name, freeze), build_family(name)[0].config)
        held = {key for key, weight in model.named_parameters() if not weight.requires_grad}
        assert held == (list_weights(model, [f"{part}." for part in parts]) if parts else set())
        line = count_parameters(precision.build_model(read(name, freeze), model.config)).line
        assert ("; frozen: " in line) == bool(parts)


@each("name", FAMILIES.keys())
def test_adapters_on_all_linear_layers_stay_out_of_what_is_frozen(name):
    model, _ = build_family(name)
    language = {id(layer) for layer in model.get_decoder().modules() if isinstance(layer, torch.nn.Linear)}
    config = read(name, "projector", target_modules="all-linear")
    adapted = get_peft_model(model, precision.build_lora_config(config.lora, model, "projector"))
    assert {id(layer.base_layer) for layer in adapted.modules() if hasattr(layer, "lora_A")} == language
    line = count_parameters(precision.build_model(config, model.config)).line
    assert f"adapters on {len(language)} language layers; none in " in line
    if name == "qwen3_vl_moe":  # experts and their router have no adapters
        assert line.endswith("adapters on 12 language layers; none in visual, experts, gate")


def test_layers_named_in_what_is_frozen_and_a_tower_as_wide_as_the_language_model_are_refused():
    shapes, wanted = build_family("gemma3")[0].config, r".*layers\.0.*q_proj"
    words = r"lora.target_modules = .*: matches layers of model.vision_tower, which model"
    with pytest.raises(ConfigError, match=words):
        precision.build_model(read("m", "vision", target_modules=wanted), shapes)
    assert precision.build_model(read("m", "vision", target_modules=f".*language_model{wanted}"), shapes)
    model = build_family("qwen3_vl")[0]
    model.config.get_text_config().hidden_size = 32
    words = r"model.freeze = vision: the projector cannot be told .* projector .both., none"
    with pytest.raises(ConfigError, match=words):
        precision.find_frozen(model, "vision")
    assert [*precision.find_frozen(model, "projector")] == ["model.visual"]


def test_a_frozen_tower_stays_as_it_is_and_encodes_each_picture_once(qwen3, tmp_path, strips):
    model = qwen3.model()
    precision.freeze_parts(model, "projector")
    trainer = make_trainer(qwen3, tmp_path, strips, model=model)
    inputs = generate_batch(trainer) | {"advantages": torch.linspace(-1, 1, 8)}
    encoded = trainer._vision_cache.num_encoded
    assert encoded == len(trainer.log_probs.pixels)
    trainer._compute_loss(trainer.model, inputs).backward()
    assert trainer._vision_cache.num_encoded == encoded  # the loss takes what generation has computed
    moved = {name for name, weight in model.named_parameters() if weight.grad is not None and weight.grad.any()}
    assert "model.language_model.layers.0.self_attn.q_proj.weight" in moved
    assert not any(".visual." in name for name in moved)


# ---------------------------------------------------------------------- features of a frozen tower
CONFIGS = {"qwen3_vl": "qwen3_vl_4b_lora", "qwen2_5_vl": "qwen2_5_vl_3b"}
PROJECTIONS = 7  # of a layer: q, k, v, o, gate, up, down


@pytest.fixture
def lora(kit):
    return precision.build_lora_config(load(CONFIGS[kit.name]).lora)


def test_shipped_configs_adapt_all_linear_language_layers_and_no_other(kit, lora):
    model = get_peft_model(kit.model(), lora)
    adapted = [name for name, module in model.named_modules() if name.endswith("lora_A.default")]
    assert len(adapted) == model.config.get_text_config().num_hidden_layers * PROJECTIONS
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
    lora = precision.build_lora_config(load(CONFIGS["qwen3_vl"]).lora)
    trainer = make_trainer(qwen3, tmp_path, strips, peft_config=lora, max_steps=1)
    trainer.train()
    inputs = generate_batch(trainer)
    inputs["advantages"] = torch.linspace(-1, 1, len(inputs["advantages"]))  # all teach
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
    precision.freeze_parts(model, "projector")
    assert model.model.image_newline.requires_grad
    assert not VisionCache(model, kit.tokens.architecture).frozen
    assert VisionCache(model.requires_grad_(False), kit.tokens.architecture).frozen
