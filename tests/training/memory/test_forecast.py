"""The forecast of memory against the bytes that are alive while a tiny model plays and learns."""

import math
import re

import pytest
from peft import LoraConfig

from tests.support.grpo_kit import make_trainer
from tests.support.tiny_models import Strips
from tests.test_benchmarks import load as load_benchmark
from viewbox.configs.schema import parse
from viewbox.training.memory.forecast import predict_workload
from viewbox.training.memory.workload import Workload, count_bytes

LiveBytes = load_benchmark("update_cost").LiveBytes
TOLERANCE = 0.15
LORA = {"r": 4, "target_modules": ".*language_model.*_proj"}


def measure(trainer):
    """(bytes alive at the peak of a training, the mean episode as a workload)."""
    build, seen = trainer.build_loss_tensors, []

    def record(episodes, rewards, advantages):
        batch = build(episodes, rewards, advantages)
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
        ("qwen3_vl", LORA, {}, {}),
        ("qwen2_5_vl", None, *LARGE),
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
    forecast = predict_workload(config, trainer.args, model.config, workload)
    assert math.isclose(forecast.peak.peak, peak, rel_tol=TOLERANCE), (forecast.peak.peak / peak, forecast)
