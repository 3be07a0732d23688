"""What `model.freeze` leaves as it is, in every family, whole weights and adapters; and what the outline says of it."""

import pytest
import torch
from peft import get_peft_model

from tests.support.families import FAMILIES, build_family
from tests.support.grpo_kit import generate_batch, make_trainer
from viewbox.configs.schema import parse
from viewbox.errors import ConfigError
from viewbox.training.precision import build_lora_config, build_model, find_frozen, freeze_parts
from viewbox.training.shapes import count_parameters

QWEN = {"visual.blocks", "visual.patch_embed"}
PARTS = {  # of each family: the vision tower, and what else projects
    "qwen2_vl": (QWEN, {"visual.merger"}),
    "qwen2_5_vl": (QWEN, {"visual.merger"}),
    "qwen3_vl": (QWEN | {"visual.pos_embed"}, {"visual.merger", "visual.deepstack_merger_list"}),
    "qwen3_vl_moe": (QWEN | {"visual.pos_embed"}, {"visual.merger", "visual.deepstack_merger_list"}),
    "qwen3_5": (QWEN | {"visual.pos_embed"}, {"visual.merger"}),
    "gemma4": ({"vision_tower"}, {"embed_vision"}),
    "gemma4_31b": ({"vision_tower"}, {"embed_vision"}),
    "smolvlm": ({"vision_model"}, {"connector"}),
    "idefics3": ({"vision_model"}, {"connector"}),
    **dict.fromkeys(
        ("glm4v", "glm46v"),
        (
            QWEN | {"visual.embeddings", "visual.post_conv_layernorm", "visual.post_layernorm"},
            {"visual.downsample", "visual.merger"},
        ),
    ),
}
OTHERS = {"vision_tower"}, {"multi_modal_projector"}


def read(name, freeze, **lora):
    section = {"lora": {"r": 4, **lora}} if lora else {}
    return parse({"model": {"name": name, "freeze": freeze}, "env": {"name": "digits"}, **section})


def list_weights(model, parts):
    return {name for name, _ in model.named_parameters() if name.removeprefix("model.").startswith(tuple(parts))}


@pytest.mark.parametrize("name", FAMILIES)
def test_the_tower_or_all_beside_the_language_model_is_frozen(name):
    tower, projector = PARTS.get(name, OTHERS)
    for freeze, parts in (("none", ()), ("vision", tower), ("projector", tower | projector)):
        model = build_model(read(name, freeze), build_family(name)[0].config)
        held = {key for key, weight in model.named_parameters() if not weight.requires_grad}
        assert held == (list_weights(model, [f"{part}." for part in parts]) if parts else set())
        line = count_parameters(build_model(read(name, freeze), model.config)).describe()
        assert ("; frozen: " in line) == bool(parts)


@pytest.mark.parametrize("name", FAMILIES)
def test_adapters_on_all_linear_layers_stay_out_of_what_is_frozen(name):
    model, _ = build_family(name)
    language = {id(layer) for layer in model.get_decoder().modules() if isinstance(layer, torch.nn.Linear)}
    config = read(name, "projector", target_modules="all-linear")
    adapted = get_peft_model(model, build_lora_config(config.lora, model, "projector"))
    found = {id(layer.base_layer) for layer in adapted.modules() if hasattr(layer, "lora_A")}
    assert found == language
    line = count_parameters(build_model(config, model.config)).describe()
    assert f"adapters on {len(language)} language layers; none in " in line


def test_experts_and_their_router_are_said_to_have_no_adapters():
    config = read("m", "projector", target_modules="all-linear")
    line = count_parameters(build_model(config, build_family("qwen3_vl_moe")[0].config)).describe()
    assert line.endswith("adapters on 12 language layers; none in visual, experts, gate")


def test_layers_named_in_what_is_frozen_and_a_tower_as_wide_as_the_language_model_are_refused():
    shapes, wanted = build_family("gemma3")[0].config, r".*layers\.0.*q_proj"
    with pytest.raises(
        ConfigError, match=r"lora.target_modules = .*: matches layers of model.vision_tower, which model"
    ):
        build_model(read("m", "vision", target_modules=wanted), shapes)
    assert build_model(read("m", "vision", target_modules=f".*language_model{wanted}"), shapes)
    model = build_family("qwen3_vl")[0]
    model.config.get_text_config().hidden_size = 32
    with pytest.raises(
        ConfigError, match=r"model.freeze = vision: the projector cannot be told .* projector .both., none"
    ):
        find_frozen(model, "vision")
    assert [*find_frozen(model, "projector")] == ["model.visual"]


def test_a_frozen_tower_stays_as_it_is_and_encodes_each_picture_once(qwen3, tmp_path, strips):
    model = qwen3.model()
    freeze_parts(model, "projector")
    trainer = make_trainer(qwen3, tmp_path, strips, model=model)
    inputs = generate_batch(trainer) | {"advantages": torch.linspace(-1, 1, 8)}
    encoded = trainer._vision_cache.num_encoded
    assert encoded == len(trainer.log_probs.pixels)
    trainer._compute_loss(trainer.model, inputs).backward()
    assert trainer._vision_cache.num_encoded == encoded  # the loss takes what generation has computed
    moved = {name for name, weight in model.named_parameters() if weight.grad is not None and weight.grad.any()}
    assert "model.language_model.layers.0.self_attn.q_proj.weight" in moved
    assert not any(".visual." in name for name in moved)
