"""Configs of models that are found without a network and without weights."""

import json

import pytest
import torch

from viewbox.configs.schema import load
from viewbox.errors import ModelError
from viewbox.training.memory.workload import find_model_shapes, read_known_models
from viewbox.training.precision import build_model


@pytest.mark.parametrize(("name", "parameters"), [("qwen3_vl_4b_lora", 4.438e9), ("qwen2_5_vl_3b", 3.755e9)])
def test_the_shipped_configs_name_models_whose_shapes_are_known(name, parameters):
    config = load(name)
    assert config.model.name in read_known_models()
    model_config, processor = find_model_shapes(config.model, 512 * 512)
    model = build_model(config, model_config)
    assert processor is None
    assert sum(w.numel() for name, w in model.named_parameters() if ".lora_" not in name) == pytest.approx(
        parameters, rel=1e-3
    )
    assert {w.dtype for name, w in model.named_parameters() if ".lora_" not in name} == {torch.bfloat16}


def test_a_folder_needs_no_weights(tmp_path):
    known = read_known_models()["Qwen/Qwen3-VL-4B-Instruct"]["config"]
    (tmp_path / "config.json").write_text(json.dumps(known))
    config = load("qwen3_vl_4b_lora", [f"model.name={tmp_path}"])
    assert find_model_shapes(config.model, 512 * 512)[0].get_text_config().hidden_size == 2560


@pytest.mark.parametrize("name", ["nobody/no-such-model", "{tmp_path}"])
def test_what_is_not_here_is_said_with_what_is_needed(tmp_path, name):
    config = load("qwen3_vl_4b_lora", [f"model.name={name.format(tmp_path=tmp_path)}"])
    with pytest.raises(ModelError, match=r"config\.json"):
        find_model_shapes(config.model, 512 * 512)
