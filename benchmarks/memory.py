"""The memory that `viewbox config memory` predicts, against the bytes that are alive while a model plays and learns.

    python benchmarks/memory.py [NAME ...]        (a quarter of an hour; 10 GiB of memory)

The models have random weights and the widths of Qwen3-VL-4B, Qwen2.5-VL-3B and Qwen3.5 (as transformers' own config has
them); the language model has 2 layers, the vision tower 3, and the vocabulary is an eighth of theirs. A row is one real
computation: the engine plays scripted episodes, or two updates run forward, backward and through AdamW. All tensors
that operations make are counted, and the weights. The bar is a difference of 15 % at most. The last line is one JSON
object.
"""

import json
import sys
from dataclasses import dataclass
from typing import Any

import torch
from peft import get_peft_model
from scripted_case import PATCH, CaseSize, Stage
from transformers import AutoConfig, AutoModelForImageTextToText

from viewbox.configs.schema import Config, parse
from viewbox.training import precision
from viewbox.training.generation import use_for_generation
from viewbox.training.memory.forecast import GIB, predict_workload
from viewbox.training.memory.measure import LiveBytes, run_updates
from viewbox.training.memory.workload import Workload, build_blank, count_bytes
from viewbox.training.plan import read_known_models
from viewbox.training.trainer_args import build_trainer_arguments

BAR = 0.15
VOCABULARY = 151_936 // 8
RESULT = 150  # tokens between two replies, at most
SIDE = 12 * PATCH  # of a picture: 36 image tokens
HYBRID = {
    "text_config": {"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]}
}  # else as transformers' own config
FAMILIES = {"qwen3_vl": "Qwen/Qwen3-VL-4B-Instruct", "qwen2_5_vl": "Qwen/Qwen2.5-VL-3B-Instruct"}


@dataclass(frozen=True)
class Case:
    """One row: a run, and the length of its episodes."""

    name: str
    phase: str = "update"
    family: str = "qwen3_vl"
    lora: bool = True
    dtype: str = "bfloat16"
    autocast: bool = True
    checkpointing: bool = True
    episodes: int = 4
    prompt: int = 120
    completion: int = 200
    micro_batch_tokens: int | None = None


CASES = (
    Case("LoRA, bf16, checkpointed, short"),
    Case("LoRA, bf16, checkpointed, long", prompt=300, completion=900),
    Case("LoRA, bf16, checkpointed, in parts", episodes=8, micro_batch_tokens=700),
    Case("LoRA, bf16, not checkpointed", checkpointing=False),
    Case("LoRA, float32 without autocast", dtype="float32", autocast=False),
    Case("LoRA, bf16, Qwen2.5-VL", family="qwen2_5_vl"),
    Case("LoRA, bf16, checkpointed, Qwen3.5", family="qwen3_5"),
    Case("LoRA, bf16, not checkpointed, Qwen3.5", family="qwen3_5", checkpointing=False),
    Case("every weight, checkpointed", lora=False, dtype="float32"),
    Case("every weight, not checkpointed", lora=False, dtype="float32", checkpointing=False),
    Case("generation, LoRA, bf16", phase="generation", episodes=8, completion=400),
    Case("generation, LoRA, bf16, long", phase="generation", episodes=8, completion=900),
    Case(
        "generation, float32 under autocast",
        phase="generation",
        lora=False,
        dtype="float32",
        episodes=8,
        completion=400,
    ),
)


def build_model_config(case: Case) -> Any:
    """Return the widths of the family, few layers, and patches as the scripted episodes have them."""
    known = read_known_models()[FAMILIES[case.family]]["config"] if case.family in FAMILIES else HYBRID
    config = AutoConfig.for_model(**{"model_type": case.family} | known)
    text, vision = config.text_config, config.vision_config
    text.num_hidden_layers, vision.depth, text.vocab_size, vision.patch_size = 2, 3, VOCABULARY, PATCH
    if getattr(text, "layer_types", None):
        text.layer_types = text.layer_types[:2]
    if getattr(vision, "deepstack_visual_indexes", None):
        vision.deepstack_visual_indexes = [0, 1, 2]
    if getattr(vision, "fullatt_block_indexes", None):
        vision.fullatt_block_indexes = [2]
    vision.out_hidden_size = text.hidden_size
    config.image_token_id, config.vision_start_token_id, config.vision_end_token_id, config.video_token_id = 5, 6, 7, 8
    return config


def build_run(case: Case) -> Config:
    """Return the run as a config."""
    train = {"per_device_train_batch_size": case.episodes, "num_generations": 4, "bf16": case.autocast, "use_cpu": True}
    train |= {"gradient_checkpointing": case.checkpointing, "micro_batch_tokens": case.micro_batch_tokens}
    lora = {"lora": {"r": 32, "target_modules": ".*language_model.*_proj"}} if case.lora else {}
    rollout = {"slots": case.episodes, "max_completion_tokens": case.completion, "kv_cache_bytes": "4GiB"}
    model = {"name": "m"} | ({"dtype": case.dtype} if case.lora else {})
    return parse(
        {"model": model, "env": {"name": "digits"}, "train": train, "rollout": rollout, "log": {"eval_tasks": 0}} | lora
    )


def build_model(case: Case, run: Config, config: Any) -> Any:
    torch.manual_seed(0)
    model = AutoModelForImageTextToText.from_config(config, dtype=getattr(torch, case.dtype))
    if not case.lora:
        return model
    model.requires_grad_(False)
    return get_peft_model(model, precision.build_lora_config(run.lora))


def measure_update(run: Config, arguments: Any, model: Any, workload: Workload) -> int:
    """Live bytes at the peak of two updates."""
    given = [*model.parameters(), *model.buffers()]
    with LiveBytes(given) as counter:
        run_updates(model, run, arguments, workload)
    return counter.peak + count_bytes(given)


def measure_generation(case: Case, run: Config, arguments: Any, model: Any) -> tuple[int, Workload]:
    """Live bytes at the peak of a generation, with scripted replies of equal lengths, and what was played."""
    from accelerate import Accelerator

    stage = Stage(CaseSize(prompts=case.episodes // 4, group=4, side=6, tool_side=6))
    turns = 2
    call = stage.scripts[0][0]
    reply = (case.completion - (turns - 1) * RESULT) // turns
    words = [call[0]] * (reply - len(call))
    stage.scripts[:] = [[[*words, *call], [*words, *words[:1] * (len(call) - 1), call[-1]]]] * case.episodes
    for name in ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id"):
        setattr(model.config, name, getattr(stage.model.config, name))
    base = model.get_base_model() if case.lora else model
    base.model.config = model.config
    stage.model = None
    accelerator = Accelerator(cpu=True, mixed_precision="bf16" if case.autocast else "no")
    with use_for_generation(accelerator, model) as player:
        stage.model = player
        given = [*model.parameters(), *model.buffers()]
        with LiveBytes(given) as counter:
            engine = stage.build_engine(max_completion_tokens=case.completion, max_reply_tokens=case.completion)
            episodes = stage.play_episodes(engine)
        storages = [tensor.untyped_storage() for tensor in given]  # a widened weight is a view of its columns'
        held = sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())
    lengths = [
        (len(e.tokens.prompt_ids), len(e.tokens.completion_ids), sum(e.tokens.mask)) for e in episodes if e.tokens
    ]
    prompt, completion, sampled = max(lengths)
    assert completion <= case.completion
    image = build_blank(base.config, SIDE, SIDE, SIDE**2)
    workload = Workload(prompt, case.completion, sampled, completion - sampled, (image,), (image,))
    return counter.peak + held, workload


def compare(case: Case) -> dict[str, Any]:
    """Return the prediction beside the measurement."""
    run, config = build_run(case), build_model_config(case)
    arguments = build_trainer_arguments(run, "runs")
    model = build_model(case, run, config)
    if case.phase == "generation":
        measured, workload = measure_generation(case, run, arguments, model)
    else:
        image = build_blank(config, SIDE, SIDE, SIDE**2)
        workload = Workload(case.prompt, case.completion, case.completion // 2, 60, (image,), (image,))
        measured = measure_update(run, arguments, model, workload)
    weights = count_bytes([*model.parameters(), *model.buffers()])
    del model
    forecast = predict_workload(run, arguments, precision.build_model(run, config), workload)
    predicted = next(phase.peak for phase in forecast.phases if phase.name == case.phase)
    if case.phase == "generation":  # the played engine belongs to no trainer
        predicted -= next(phase for phase in forecast.phases if phase.name == "generation").parts.get("optimizer", 0)
    return {
        "case": case.name,
        "measured_gib": round(measured / GIB, 3),
        "predicted_gib": round(predicted / GIB, 3),
        "ratio": round(predicted / measured, 3),
        "ratio_without_weights": round((predicted - weights) / (measured - weights), 3),
    }


if __name__ == "__main__":
    torch.set_num_threads(2)
    rows = []
    for case in CASES:
        if not sys.argv[1:] or any(name in case.name for name in sys.argv[1:]):
            rows.append(compare(case))
            print(json.dumps(rows[-1]), flush=True)
    worst = max(abs(row["ratio"] - 1) for row in rows)
    print(json.dumps({"rows": rows, "worst": round(worst, 3), "bar": BAR, "met": worst <= BAR}))
    sys.exit(worst > BAR)
