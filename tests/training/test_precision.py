"""Weights that are trained are kept in float32: in two bytes nearly every small step is rounded away."""

import pytest
import torch
from safetensors.torch import load_file

from tests.support.runs import read_weights, run, write_config
from viewbox.configs import schema as configs
from viewbox.errors import ConfigError
from viewbox.training.findings import check
from viewbox.training.plan import Plan
from viewbox.training.precision import LEARNING_RATES, resolve_dtype
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


@pytest.mark.parametrize(
    ("given", "loaded"),
    [
        ({}, "float32"),
        ({"model": {"dtype": "float32"}}, "float32"),
        ({"lora": {"r": 4}}, "auto"),
        ({"lora": {"r": 4, "quantize": "4bit"}}, "bfloat16"),
        ({"lora": {"r": 4}, "model": {"dtype": "bfloat16"}}, "bfloat16"),
        (SFT, "float32"),
    ],
)
def test_weights_that_are_trained_are_loaded_in_float32(given, loaded):
    assert resolve_dtype(parsed(**given)) == loaded


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ({"dtype": "bfloat16"}, ["no model.dtype", "section lora"]),
        ({"dtype": "float16"}, ["no model.dtype", "section lora"]),
        ({"name": None, "tiny": {}, "dtype": "bfloat16"}, ["built in float32"]),
    ],
)
def test_two_byte_training_is_refused_with_the_ways_out(model, words):
    with pytest.raises(ConfigError) as caught:
        check(Plan(parsed(model)))
    assert caught.value.key == "model.dtype"
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize(("method", "lora"), LEARNING_RATES)
def test_the_default_learning_rate_fits_what_is_trained(method, lora):
    config = parsed(**(SFT if method == "sft" else {}), lora={"r": 4} if lora else None)
    assert build_trainer_arguments(config, "out").learning_rate == LEARNING_RATES[method, lora]
    assert build_trainer_arguments(parsed(learning_rate=3e-4, lora={"r": 4}), "out").learning_rate == 3e-4
