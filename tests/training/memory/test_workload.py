"""Configs of models that are found without a network and without weights."""

import json

import pytest
import torch

from viewbox.configs.schema import load
from viewbox.errors import ModelError
from viewbox.training.plan import find_model_shapes, read_known_models
from viewbox.training.precision import build_model


@pytest.mark.parametrize(
    ("name", "model", "size"),  # `total_size` of the model's index of safetensors, in bytes
    [
        ("qwen3_vl_4b_lora", "Qwen/Qwen3-VL-4B-Instruct", 8_875_631_616),
        ("qwen3_vl_4b_lora", "Qwen/Qwen3-VL-8B-Instruct", 17_534_247_392),
        ("qwen3_vl_4b_lora", "Qwen/Qwen3-VL-32B-Instruct", 66_714_780_128),
        ("qwen2_5_vl_3b", "Qwen/Qwen2.5-VL-3B-Instruct", 7_509_245_952),
    ],
)
def test_the_shapes_of_known_models_are_those_that_are_released(name, model, size):
    assert load(name).model.name in read_known_models()
    config = load(name, [f"model.name={model}"])
    known = find_model_shapes(config.model, 512 * 512)
    weights = {name: w for name, w in build_model(config, known.config).named_parameters() if ".lora_" not in name}
    assert known.processor is None
    assert 2 * sum(w.numel() for w in weights.values()) == size
    assert {w.dtype for w in weights.values()} == {torch.bfloat16}


def test_a_folder_needs_no_weights(tmp_path):
    known = read_known_models()["Qwen/Qwen3-VL-4B-Instruct"]["config"]
    (tmp_path / "config.json").write_text(json.dumps(known))
    config = load("qwen3_vl_4b_lora", [f"model.name={tmp_path}"])
    assert find_model_shapes(config.model, 512 * 512).config.get_text_config().hidden_size == 2560


@pytest.mark.parametrize("name", ["nobody/no-such-model", "{tmp_path}"])
def test_what_is_not_here_is_said_with_what_is_needed(tmp_path, name):
    config = load("qwen3_vl_4b_lora", [f"model.name={name.format(tmp_path=tmp_path)}"])
    with pytest.raises(ModelError, match=r"config\.json"):
        find_model_shapes(config.model, 512 * 512)
