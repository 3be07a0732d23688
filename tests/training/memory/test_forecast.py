"""The forecast of memory against the bytes that are alive while a tiny model plays and learns, and what it counts from.

Configs of models are found without a network and without weights.
"""

import json
import math
import re

import pytest
import torch
from peft import LoraConfig
from transformers import AutoConfig

from tests.support import forks, sharded_update
from tests.support.families import FAMILIES, save_family
from tests.support.grpo_kit import make_trainer
from tests.support.tables import each
from tests.support.tiny_models import Strips
from viewbox.configs.schema import load, parse
from viewbox.errors import ModelError
from viewbox.training.memory.forecast import predict, predict_workload
from viewbox.training.memory.measure import LiveBytes, run_updates
from viewbox.training.memory.workload import Workload, count_bytes, find_workload
from viewbox.training.plan import Plan, find_model_shapes, read_known_models
from viewbox.training.precision import build_model
from viewbox.training.trainer_args import build_trainer_arguments

BATCH = {"per_device_train_batch_size": 8, "num_generations": 4}
LORA = {"r": 4, "target_modules": ".*language_model.*_proj"}
LARGE = {"gradient_checkpointing": True}, {"micro_batch_tokens": 800}
NIGHTLY = pytest.mark.nightly
TOLERANCE = 0.15


def measure(trainer):
    """(bytes alive at the peak of a training, the mean episode as a workload)."""
    build, seen = trainer.build_loss_tensors, []

    def record(episodes, rewards, advantages):
        all_teach = torch.linspace(-1, 1, len(episodes))[:, None]  # as the forecast counts
        batch = build(episodes, rewards, all_teach)
        seen.append((batch, [trainer.tokens.get_pixels(image) for image in episodes[0].tokens.images]))
        return batch

    trainer.build_loss_tensors = record
    given = [*trainer.model.parameters(), *trainer.model.buffers()]
    with LiveBytes(given) as counter:
        trainer.train()
    batch, images = seen[-1]
    names = ("prompt_mask", "completion_mask", "tool_mask")
    lengths = (round(batch[name].sum().item() / len(batch[name])) for name in names)
    row = "".join(map(str, (batch["tool_mask"] + 2 * (1 - batch["completion_mask"]))[0].tolist()))  # 2: padding
    result = max(map(len, re.findall("0+", row)))  # the longest observation
    return counter.peak + count_bytes(given), Workload(*lengths, result, tuple(images[:1]), tuple(images[1:]))


@pytest.mark.parametrize(("family", "lora", "settings", "own"), [
    ("qwen3_vl", None, {"bf16": True}, {}), pytest.param("qwen3_vl", LORA, {}, {}, marks=NIGHTLY),
    pytest.param("qwen2_5_vl", None, *LARGE, marks=NIGHTLY), pytest.param("qwen2_5_vl", LORA, *LARGE, marks=NIGHTLY),
])  # fmt: skip
def test_the_forecast_is_near_the_measured_peak(kits, tmp_path, family, lora, settings, own):
    kit = kits(family)
    generation = {"max_reply_tokens": 40, "max_completion_tokens": 400}
    env = Strips(canvas=256, digit=48, max_pixels=64 * 64, distractors=0, max_turns=3)
    model = kit.model(ends=-50.0)
    given = {"peft_config": lora and LoraConfig(**lora), "own": own, "max_steps": 2, **settings}
    trainer = make_trainer(kit, tmp_path, env, model=model, generation=generation, **given)
    peak, workload = measure(trainer)
    sections = {
        "model": {"name": "tiny", "dtype": "float32"}, "env": {"name": "digits"}, "log": {"eval_tasks": 0},
        "rollout": {**generation, "slots": 8}, "train": {**BATCH, **settings, **own},
    }  # fmt: skip
    config = parse(sections | ({"lora": lora} if lora else {}))
    forecast = predict_workload(config, trainer.args, build_model(config, model.config), workload)
    assert math.isclose(forecast.peak.peak, peak, rel_tol=TOLERANCE), (forecast.peak.peak / peak, forecast)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[NIGHTLY] * (name != "internvl")) for name in FAMILIES])
def test_the_forecast_of_a_family_is_near_what_two_updates_with_its_weights_take(tmp_path, name):
    config = parse({
        "model": {"name": str(save_family(name, tmp_path)), "dtype": "float32"}, "train": {**BATCH, "use_cpu": True},
        "env": {"name": "digits", "max_turns": 3, "max_pixels": 64 * 64}, "log": {"eval_tasks": 0},
        "rollout": {"max_completion_tokens": 400, "max_reply_tokens": 40, "slots": 8},
    })  # fmt: skip
    plan = Plan(config)
    forecast, workload, known = predict(plan), find_workload(plan), plan.known_model
    assert workload.describe() == forecast.workload.describe()
    model = build_model(config, known.config, "cpu")
    given = [*model.parameters(), *model.buffers()]
    with LiveBytes(given) as counter:
        run_updates(model, config, build_trainer_arguments(config, "runs"), workload, known.processor)
    assert forecast.phases[-1].peak / (counter.peak + count_bytes(given)) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize(
    ("tokens", "images", "vocabulary"), [(1024, 3, 4096), pytest.param(1024, 1, 32_768, marks=NIGHTLY)]
)
def test_the_share_of_a_gpu_is_near_what_one_of_two_processes_keeps(tmp_path, tokens, images, vocabulary):
    """FSDP2 on a CPU, with gloo. Collective calls make copies there that a GPU makes in other places."""
    known = read_known_models()["Qwen/Qwen3-VL-8B-Instruct"]["config"]
    text = {"num_hidden_layers": 4, "hidden_size": 512, "intermediate_size": 1536, "vocab_size": vocabulary}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64}
    tower = {"depth": 3, "hidden_size": 256, "intermediate_size": 1024, "out_hidden_size": 512, "num_heads": 4}
    rope = known["text_config"]["rope_parameters"] | {"mrope_section": [12, 10, 10]}
    sections = {
        "text_config": known["text_config"] | text | heads | {"rope_parameters": rope},
        "vision_config": known["vision_config"] | tower | {"deepstack_visual_indexes": [0, 1, 2]},
    }
    config = AutoConfig.for_model(**known | {"image_token_id": 1} | sections)
    config.save_pretrained(tmp_path)
    given = (sharded_update.main, tmp_path, tokens, images, tmp_path / "found.json")
    for process in [forks.start(*given, folder=tmp_path, **rank) for rank in forks.list_ranks(2)]:
        status, output = process.wait()
        assert status == 0, output
    measured = json.loads((tmp_path / "found.json").read_text())
    train = {"gradient_checkpointing": True, "micro_batch_tokens": tokens, "use_cpu": True}
    run = parse({"model": {"name": "tiny"}, "env": {"name": "digits"}, "train": train})
    workload = sharded_update.build_workload(config, tokens, images)
    forecast = predict_workload(run, build_trainer_arguments(run, "runs"), build_model(run, config), workload, gpus=2)
    parts = forecast.peak.parts
    assert parts["weights"] + parts["optimizer"] == pytest.approx(measured["held"], rel=1e-3)
    assert parts["gradients"] == pytest.approx(measured["held"] / 3, rel=1e-3)
    assert math.isclose(forecast.peak.peak, measured["peak"], rel_tol=TOLERANCE), (measured, forecast)


# ---------------------------------------------------------------------- shapes of models
@each("name, model, size", [  # `total_size` of the model's index of safetensors, in bytes
    ("qwen3_vl_4b_lora", "Qwen/Qwen3-VL-4B-Instruct", 8_875_631_616),
    ("qwen3_vl_4b_lora", "Qwen/Qwen3-VL-8B-Instruct", 17_534_247_392),
    ("qwen3_vl_4b_lora", "Qwen/Qwen3-VL-32B-Instruct", 66_714_780_128),
    ("qwen2_5_vl_3b", "Qwen/Qwen2.5-VL-3B-Instruct", 7_509_245_952),
])  # fmt: skip
def test_the_shapes_of_known_models_are_those_that_are_released(name, model, size):
    assert load(name).model.name in read_known_models()
    config = load(name, [f"model.name={model}"])
    known = find_model_shapes(config.model, 512 * 512)
    weights = {name: w for name, w in build_model(config, known.config).named_parameters() if ".lora_" not in name}
    assert known.processor is None
    assert 2 * sum(weight.numel() for weight in weights.values()) == size
    assert {weight.dtype for weight in weights.values()} == {torch.bfloat16}


def test_a_folder_needs_no_weights_and_what_is_not_here_is_said_with_what_is_needed(tmp_path):
    def ask(name):
        return find_model_shapes(load("qwen3_vl_4b_lora", [f"model.name={name}"]).model, 512 * 512)

    for name in ("nobody/no-such-model", tmp_path):
        with pytest.raises(ModelError, match=r"config\.json"):
            ask(name)
    known = read_known_models()["Qwen/Qwen3-VL-4B-Instruct"]["config"]
    (tmp_path / "config.json").write_text(json.dumps(known))
    assert ask(tmp_path).config.get_text_config().hidden_size == 2560
