"""Configs that are found without a network, and deep models that are measured by shallow ones."""

import copy
import json

import pytest
import torch

from viewbox.configs.schema import load, parse
from viewbox.errors import ModelError
from viewbox.training.memory import forecast
from viewbox.training.memory.forecast import predict_workload
from viewbox.training.memory.model_shapes import build_model, find_model_shapes, read_known_models
from viewbox.training.memory.workload import Workload
from viewbox.training.trainer_args import build_trainer_arguments

WORKLOAD = Workload(60, 80, 30, 40, ((1, 4, 4),), ((1, 4, 4),))


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


@pytest.mark.parametrize(("family", "lora", "checkpointing"), [("qwen3_vl", True, True), ("qwen2_5_vl", False, False)])
def test_a_deep_model_is_measured_by_shallow_ones(kits, monkeypatch, family, lora, checkpointing):
    model_config = copy.deepcopy(kits(family).model().config)
    text = model_config.get_text_config()
    text.num_hidden_layers, model_config.vision_config.depth = 9, 8
    if getattr(text, "layer_types", None):
        text.layer_types = text.layer_types[:1] * 9
    train = {"per_device_train_batch_size": 4, "num_generations": 2, "gradient_checkpointing": checkpointing}
    run = {"model": {"name": "m", "dtype": "float32"}, "env": {"name": "digits"}, "train": train}
    run |= {"rollout": {"slots": 4}, "log": {"eval_tasks": 0}}
    config = parse(run | ({"lora": {"r": 2}} if lora else {}))
    arguments = build_trainer_arguments(config, "runs")
    guessed = predict_workload(config, arguments, model_config, WORKLOAD)
    monkeypatch.setattr(forecast, "STEP", 100)
    whole = predict_workload(config, arguments, model_config, WORKLOAD)
    for one, other in zip(guessed.phases, whole.phases, strict=True):
        assert one.peak == pytest.approx(other.peak, rel=0.04), (one, other)
