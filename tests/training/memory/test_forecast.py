"""The forecast of memory against the bytes that are alive while a tiny model plays and learns."""

import json
import math
import re

import pytest
import torch
from peft import LoraConfig
from transformers import AutoConfig

from tests.support import forks, sharded_update
from tests.support.grpo_kit import make_trainer
from tests.support.tiny_models import Strips
from viewbox.configs.schema import parse
from viewbox.training.memory.forecast import predict_workload
from viewbox.training.memory.measure import LiveBytes
from viewbox.training.memory.workload import Workload, count_bytes
from viewbox.training.plan import read_known_models
from viewbox.training.precision import build_model
from viewbox.training.trainer_args import build_trainer_arguments

TOLERANCE = 0.15
LORA = {"r": 4, "target_modules": ".*language_model.*_proj"}


def measure(trainer):
    """(bytes alive at the peak of a training, the mean episode as a workload)."""
    build, seen = trainer.build_loss_tensors, []

    def record(episodes, rewards, advantages):
        batch = build(
            episodes, rewards, torch.linspace(-1, 1, len(episodes))[:, None]
        )  # all teach, as the forecast counts
        seen.append((batch, [trainer.tokens.get_pixels(image) for image in episodes[0].tokens.images]))
        return batch

    trainer.build_loss_tensors = record
    given = [*trainer.model.parameters(), *trainer.model.buffers()]
    with LiveBytes(given) as counter:
        trainer.train()
    batch, images = seen[-1]
    prompt, completion, sampled = (
        round(batch[name].sum().item() / len(batch[name])) for name in ("prompt_mask", "completion_mask", "tool_mask")
    )
    row = "".join(map(str, (batch["tool_mask"] + 2 * (1 - batch["completion_mask"]))[0].tolist()))  # 2: padding
    result = max(map(len, re.findall("0+", row)))  # the longest observation
    workload = Workload(prompt, completion, sampled, result, tuple(images[:1]), tuple(images[1:]))
    return counter.peak + count_bytes(given), workload


LARGE = {"gradient_checkpointing": True}, {"micro_batch_tokens": 800}


@pytest.mark.parametrize(
    ("family", "lora", "settings", "own"),
    [
        ("qwen3_vl", None, {"bf16": True}, {}),
        pytest.param("qwen3_vl", LORA, {}, {}, marks=pytest.mark.nightly),
        pytest.param("qwen2_5_vl", None, *LARGE, marks=pytest.mark.nightly),
        ("qwen2_5_vl", LORA, *LARGE),
    ],
)
def test_the_forecast_is_near_the_measured_peak(kits, tmp_path, family, lora, settings, own):
    kit = kits(family)
    generation = {"max_reply_tokens": 40, "max_completion_tokens": 400}
    env = Strips(canvas=256, digit=48, max_pixels=64 * 64, distractors=0, max_turns=3)
    model = kit.model(ends=-50.0)
    peft = None if lora is None else LoraConfig(**lora)
    trainer = make_trainer(
        kit, tmp_path, env, model=model, generation=generation, peft_config=peft, own=own, max_steps=2, **settings
    )
    peak, workload = measure(trainer)
    config = parse(
        {
            "model": {"name": "tiny", "dtype": "float32"},
            "env": {"name": "digits"},
            "rollout": {**generation, "slots": 8},
            "train": {"per_device_train_batch_size": 8, "num_generations": 4, **settings, **own},
            "log": {"eval_tasks": 0},
            **({"lora": lora} if lora else {}),
        }
    )
    forecast = predict_workload(config, trainer.args, build_model(config, model.config), workload)
    assert math.isclose(forecast.peak.peak, peak, rel_tol=TOLERANCE), (forecast.peak.peak / peak, forecast)


@pytest.mark.parametrize(("tokens", "images", "vocabulary"), [(1024, 3, 4096), (1024, 1, 32_768)])
def test_the_share_of_a_gpu_is_near_what_one_of_two_processes_keeps(tmp_path, tokens, images, vocabulary):
    """FSDP2 on a CPU, with gloo. Collective calls make copies there that a GPU makes in other places."""
    known = read_known_models()["Qwen/Qwen3-VL-8B-Instruct"]["config"]
    text = {"num_hidden_layers": 4, "hidden_size": 512, "intermediate_size": 1536, "vocab_size": vocabulary}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64}
    tower = {"depth": 3, "hidden_size": 256, "intermediate_size": 1024, "out_hidden_size": 512, "num_heads": 4}
    rope = known["text_config"]["rope_parameters"] | {"mrope_section": [12, 10, 10]}
    config = AutoConfig.for_model(
        **known
        | {"image_token_id": 1, "text_config": known["text_config"] | text | heads | {"rope_parameters": rope}}
        | {"vision_config": known["vision_config"] | tower | {"deepstack_visual_indexes": [0, 1, 2]}},
    )
    config.save_pretrained(tmp_path)
    found = tmp_path / "found.json"
    given = (sharded_update.main, tmp_path, tokens, images, found)
    for process in [forks.start(*given, folder=tmp_path, **rank) for rank in forks.list_ranks(2)]:
        status, output = process.wait()
        assert status == 0, output
    measured = json.loads(found.read_text())
    train = {"gradient_checkpointing": True, "micro_batch_tokens": tokens, "use_cpu": True}
    run = parse({"model": {"name": "tiny"}, "env": {"name": "digits"}, "train": train})
    workload = sharded_update.build_workload(config, tokens, images)
    forecast = predict_workload(run, build_trainer_arguments(run, "runs"), build_model(run, config), workload, gpus=2)
    parts = forecast.peak.parts
    assert parts["weights"] + parts["optimizer"] == pytest.approx(measured["held"], rel=1e-3)
    assert parts["gradients"] == pytest.approx(measured["held"] / 3, rel=1e-3)
    assert math.isclose(forecast.peak.peak, measured["peak"], rel_tol=TOLERANCE), (measured, forecast)
