"""A run does what its config says: cases from public bug reports of other trainers, as one table.

Every row is a command, what is right, and where people stumbled over it. A refusal is status 2 with a sentence that
names the key and what is allowed, before a run folder is made; a resumed run that is refused leaves its folder as it
was, byte by byte. Right values are computed outside viewbox: schedules by hand, weights by plain transformers and peft.
"""

import contextlib
import gc
import json
import math
import re
import shutil
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from peft import PeftModel
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import AutoModelForImageTextToText, AutoProcessor

from tests.support import run_cases
from tests.support.run_cases import (
    FEW,
    LORA,
    RUNS,
    SFT,
    SHIPPED,
    SMALL,
    STEADY,
    Case,
    Outcome,
    copy_model,
    cut,
    damage,
    edit_json,
    list_runs,
    pickle_weights,
    prefix,
    rewrite,
    shard,
    take_digest,
    untie,
)
from viewbox.cli import app
from viewbox.configs import schema
from viewbox.errors import ViewboxError
from viewbox.rollouts.store.reader import load
from viewbox.training import command
from viewbox.training.findings import check
from viewbox.training.plan import Plan
from viewbox.training.reporting import report

EMBEDDING = "model.language_model.embed_tokens.weight"
LAYER = "model.language_model.layers.1.mlp.down_proj.weight"
SUPPORT = Path(run_cases.__file__).parent
WEIGHTS = "model.name=weights"
SECOND = "model-00002-of-00002.safetensors"
ONE = "train.max_steps=1"


# ---------------------------------------------------------------------- rows
def refuses(id, did, source, *given, says, **more):
    """A run that is refused, also by `--dry-run`, before it has a folder."""
    return Case(id, did, source, (*SMALL, *given), 2, says, **{"is_dry": True, **more})


def trains(id, did, source, *given, holds=None, says=(), **more):
    """A run that ends well."""
    return Case(id, did, source, (*SMALL, *given), 0, says, holds, **more)


def ends(id, did, source, *given, says, holds=None, **more):
    """A run that began and ends with status 2, without a model saved as trained."""
    return Case(id, did, source, (*SMALL, *given), 2, says, holds, starts=True, **more)


def resumes(id, did, source, *given, holds=None, says=(), run="plain", steps=1):
    """A copy of a run, trained for some steps more."""
    settings, last = RUNS[run]
    return Case(id, did, source, (*settings, f"train.max_steps={last + steps}", *given), 0, says, holds, resumes=run)


def refuses_to_resume(id, did, source, *given, says, run="plain", prepare=None):
    settings, last = RUNS[run]
    more = (f"train.max_steps={last + 1}", *given)
    return Case(id, did, source, (*settings, *more), 2, says, None, prepare, run)


def reads(id, did, source, text, holds=None, says=(), status=0, **more):
    """A config file of a few lines, read by `--dry-run`."""

    def write(folder):
        (folder / "own.yaml").write_text(text)

    given = ("--dry-run", "--json")
    return Case(id, did, source, given, status, says, holds, write, config="own.yaml", **more)


# ---------------------------------------------------------------------- facts
def later(do):
    """A check of an outcome, or what prepares a folder: a row gives all arguments but the first."""
    return lambda *given, **more: lambda first: do(first, *given, **more)


@later
def rate(outcome, step, value):
    """The learning rate of a step."""
    assert outcome.rates[step] == pytest.approx(value, rel=1e-6), outcome.rates


@later
def group(outcome, step, **values):
    """Values in the first group of the optimizer, as a checkpoint holds it."""
    first = outcome.read_optimizer(step)["param_groups"][0]
    assert {name: first[name] for name in values} == values


@later
def tells(outcome, ask):
    """What is asked of the outcome is true."""
    assert ask(outcome), {step: dict(line) for step, line in outcome.steps.items()}


@later
def has_checkpoints(outcome, *steps):
    assert outcome.checkpoints == [f"checkpoint-{step}" for step in steps]


@later
def logs(outcome, *steps):
    assert list(outcome.steps) == list(steps)


def is_the_shipped_model(outcome):
    """The first step is played as by the shipped model itself: its weights were loaded."""
    first = Outcome(0, "", outcome.made("plain"), outcome.made).steps[1]
    for name in ("reward", "entropy", "loss"):
        assert outcome.steps[1][name] == pytest.approx(first[name], abs=1e-5)


def all_finite(outcome):
    for file in outcome.cwd.rglob("*.safetensors"):
        for name, value in load_file(file).items():
            assert value.isfinite().all(), f"{file}: {name}"


def nothing_saved(outcome):
    assert not (outcome.folder / "model" / "model.safetensors").exists()


@later
def loads_in_plain_transformers(outcome, *folders):
    """Each folder, or its base and it as an adapter, is a model with processor and template."""
    for name in folders:
        folder = outcome.folder / name
        processor = AutoProcessor.from_pretrained(folder)
        assert processor.chat_template
        assert processor.image_processor.patch_size == 8
        if (folder / "adapter_config.json").exists():
            base = AutoModelForImageTextToText.from_pretrained(SHIPPED)
            PeftModel.from_pretrained(base, folder)
            continue
        _, info = AutoModelForImageTextToText.from_pretrained(folder, output_loading_info=True)
        assert not any(info.get(problem) for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"))


@torch.no_grad()
def merges_as_trained(outcome, base=SHIPPED):
    """`model/` gives the log-probs of base + `adapter/`, which differ from those of the base alone."""
    ids = torch.arange(300, 364)[None]

    def read(model):
        return torch.log_softmax(model.eval()(input_ids=ids).logits.float(), -1)

    plain = AutoModelForImageTextToText.from_pretrained(base, dtype=torch.float32)
    before = read(plain)
    adapted = read(PeftModel.from_pretrained(plain, outcome.folder / "adapter"))
    merged = read(AutoModelForImageTextToText.from_pretrained(outcome.folder / "model", dtype=torch.float32))
    assert (adapted - before).abs().max() > 1e-2
    assert (merged - adapted).abs().max() < 1e-3


@later
def config_is(outcome, **values):
    """Values of the config as `--dry-run --json` shows them; `train__max_steps` is `train.max_steps`."""
    shown = json.loads(outcome.said[outcome.said.index("{") :])["config"]
    for path, value in values.items():
        found = shown
        for key in path.split("__"):
            found = found[key]
        assert (found, type(found)) == (value, type(value)), f"{path} = {found!r}"


@later
def both(outcome, *checks):
    for one in checks:
        one(outcome)


# ---------------------------------------------------------------------- T01, T02: weights
def take(names):
    return rewrite(lambda tensors: {name: value for name, value in tensors.items() if names(name)})


def put(name, make):
    """Change one tensor, or add it."""
    return rewrite(lambda tensors: {**tensors, name: make(tensors)})


def poison(value, dtype=torch.float32):
    def change(tensors):
        changed = {name: tensor.to(dtype) for name, tensor in tensors.items()}
        changed[LAYER][3, 3] = value
        return changed

    return rewrite(change)


def as_peft_state(tensors):
    """As `torch.save(peft_model.state_dict())` names it: `base_layer`, and the adapter's own tensors."""
    named = {}
    for name, value in tensors.items():
        inner = f"base_model.model.{name}"
        if name.endswith("q_proj.weight"):
            stem = inner.removesuffix(".weight")
            named[f"{stem}.base_layer.weight"] = value
            named[f"{stem}.lora_A.default.weight"] = torch.zeros(4, value.shape[1])
            named[f"{stem}.lora_B.default.weight"] = torch.zeros(value.shape[0], 4)
        else:
            named[inner] = value
    return named


def break_link(folder):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(folder / "blobs" / "4d7a21")


def lie_in_index(folder):
    shard(folder)
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"][EMBEDDING] = SECOND
    assert EMBEDDING in load_file(folder / "model-00001-of-00002.safetensors")
    path.write_text(json.dumps(index))


def spoils(id, did, source, *says, **more):
    """A refused model, whose folder `prepare` writes."""
    return refuses(id, did, source, WEIGHTS, ONE, says=(*NAMED, *says), **more)


# fmt: off
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b\n"
NAMED = ("model.name = 'weights'",)
WEIGHT_ROWS = [
    spoils("T01", "a checkpoint of a compiled model", "https://github.com/karpathy/nanoGPT/issues/325", "_orig_mod.",
        prepare=prefix("_orig_mod.")),
    Case("T01 rollout", "played a checkpoint of a compiled model", "https://github.com/pytorch/pytorch/issues/101107",
        ("rollout", "--config", "quickstart", "--model", "weights", "--tasks", "1", "--out", "x"), 2, ("_orig_mod.",),
        prepare=prefix("_orig_mod."), command="viewbox"),
    Case("T01 evaluate", "measured a checkpoint of a compiled model", "", ("evaluate", "--config", "quickstart",
        "--model", "weights", "--tasks", "1", "--out", "x"), 2, ("_orig_mod.",), prepare=prefix("_orig_mod."),
        command="viewbox"),
    refuses("T01 sft", "supervised training from a checkpoint of a compiled model", "", *SFT, WEIGHTS, says=(*NAMED,
        "_orig_mod."), prepare=prefix("_orig_mod.")),
    spoils("T01 module", "a checkpoint of DDP", "https://github.com/FareedKhan-dev/train-llm-from-scratch/pull/37",
        "module.", prepare=prefix("module.")),
    spoils("T01 compiled and DDP", "both", "https://github.com/huggingface/pytorch-image-models/pull/2003",
        "_orig_mod.", prepare=prefix("_orig_mod.module.")),
    spoils("T01 peft prefix", "the weights of a peft model, as a model",
        "https://github.com/X-PLUG/mPLUG-Owl/issues/87", "base_model.model.", prepare=prefix("base_model.model.")),
    spoils("T01 peft state", "the state of a peft model, as a model",
        "https://github.com/OpenGVLab/InternVL/issues/525", "base_model.model.", prepare=rewrite(as_peft_state)),
    spoils("T01 FSDP", "a checkpoint of FSDP", "https://github.com/huggingface/transformers/issues/29659",
        prepare=prefix("_fsdp_wrapped_module.")),
    spoils("T01 Lightning", "the state of a LightningModule",
        "https://github.com/Lightning-AI/pytorch-lightning/issues/20233", prepare=prefix("policy.")),
    spoils("T01 half", "a file without the second half of the layers",
        "https://github.com/unslothai/unsloth/issues/1122", "layers.1.",
        prepare=take(lambda name: "model.layers.1." not in name)),
    spoils("T01 one", "a file without one tensor", "https://github.com/unslothai/unsloth/issues/1122", LAYER,
        prepare=take(lambda name: name != LAYER)),
    spoils("T01 vision", "a language model, saved without its vision tower", "", "visual",
        prepare=take(lambda name: "visual" not in name)),
    spoils("T01 vocabulary", "a larger vocabulary than the config says",
        "https://github.com/arcee-ai/mergekit/issues/328", "embed_tokens", "900", "896",
        prepare=put(EMBEDDING, lambda tensors: torch.zeros(900, 128))),
    spoils("T01 ZeRO-3", "empty tensors, as ZeRO-3 leaves them",
        "https://github.com/huggingface/transformers/issues/20082",
        prepare=rewrite(lambda tensors: dict.fromkeys(tensors, torch.zeros(0)))),
    spoils("T01 value head", "a model with the value head of PPO", "", "v_head",
        prepare=put("v_head.summary.weight", lambda tensors: torch.zeros(1, 128))),
    refuses("T01 deeper", "weights of a deeper model", "", WEIGHTS, ONE, says=(*NAMED, "layers.2."),
        prepare=damage(lambda folder: edit_json(folder / "config.json",
        text_config={**json.loads((folder / "config.json").read_text())["text_config"], "num_hidden_layers": 2},))),
    trains("T01 ok: tied head in the file", "a file that holds the tied output layer, too", "", WEIGHTS, *STEADY, ONE,
        holds=is_the_shipped_model, prepare=put("lm_head.weight", lambda tensors: tensors[EMBEDDING].clone())),
    trains("T01 ok: shards", "weights in two files", "", WEIGHTS, *STEADY, ONE, holds=is_the_shipped_model,
        prepare=damage(shard)),
    trains("T01 ok: pickled", "weights as PyTorch pickles them", "", WEIGHTS, *STEADY, ONE, holds=is_the_shipped_model,
        prepare=damage(pickle_weights)),
    spoils("T02", "an interrupted download", "https://github.com/datalab-to/marker/issues/970", "model.safetensors",
        prepare=damage(lambda folder: cut(folder / "model.safetensors"))),
    spoils("T02 empty", "a file of no bytes", "https://github.com/lyogavin/airllm/issues/137", "model.safetensors",
        prepare=damage(lambda folder: (folder / "model.safetensors").write_bytes(b""))),
    spoils("T02 pointer", "cloned without git-lfs", "https://github.com/Comfy-Org/ComfyUI/issues/13669",
        "model.safetensors", prepare=damage(lambda folder: (folder / "model.safetensors").write_text(POINTER))),
    refuses("T02 longer", "a file with bytes after its end", "https://github.com/Comfy-Org/ComfyUI/issues/15602",
        WEIGHTS, ONE, says=(*NAMED, "model.safetensors"), prepare=damage(lambda folder: (folder /
        "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes() + b"more"))),
    spoils("T02 no tensors", "a file of a header and no tensor", "", prepare=rewrite(lambda tensors: {})),
    spoils("T02 lost shard", "the second file is not there", "https://github.com/sgl-project/sglang/pull/32279", SECOND,
        prepare=damage(lambda folder: shard(folder) or (folder / SECOND).unlink())),
    spoils("T02 cut shard", "the second file is cut", "https://github.com/huggingface/diffusers/issues/11827", SECOND,
        prepare=damage(lambda folder: shard(folder) or cut(folder / SECOND))),
    trains("T02 ok: index", "an index that names another file, of files that are whole",
        "https://github.com/Blaizzy/mlx-vlm/pull/1827", WEIGHTS, *STEADY, ONE, holds=is_the_shipped_model,
        prepare=damage(lie_in_index)),
    spoils("T02 cut pickle", "a pickled file is cut", "https://github.com/Lightning-AI/pytorch-lightning/issues/688",
        "pytorch_model.bin", prepare=damage(lambda folder: cut(pickle_weights(folder))), is_dry=False),
    spoils("T02 NaN", "weights of a run that diverged", "https://github.com/axolotl-ai-cloud/axolotl/issues/1191",
        LAYER, prepare=poison(math.nan), is_dry=False),
    spoils("T02 infinity", "16 bit weights with an infinity", "https://github.com/unslothai/unsloth/issues/3690", LAYER,
        prepare=poison(math.inf, torch.bfloat16), is_dry=False),
    spoils("T02 tokenizer", "the tokenizer's file is cut", "",
        prepare=damage(lambda folder: cut(folder / "tokenizer.json"))),
    spoils("T02 link", "a link of a cache whose file is gone", "https://github.com/huggingface/diffusers/issues/11827",
        "model.safetensors", prepare=damage(break_link)),
    spoils("T02 generation", "the file with the end tokens is cut", "", "generation_config.json",
        prepare=damage(lambda folder: cut(folder / "generation_config.json"))),
    refuses("T02 patches", "the processor of another model", "", WEIGHTS, ONE, says=(*NAMED, "patch_size = 16"),
        prepare=damage(lambda folder: rewrite(folder / "processor_config.json", '"patch_size": 8',
        '"patch_size": 16'))),
    refuses("T02 export", "the trained model over the one that it began with", "", WEIGHTS, ONE, "log.export=weights/",
            says=("log.export", "model.name"), prepare=damage(lambda folder: None)),
    spoils("T02 processor", "the processor's file is cut", "",
        prepare=damage(lambda folder: cut(folder / "processor_config.json"))),
    spoils("T02 no file", "a folder without weights", "",
        prepare=damage(lambda folder: (folder / "model.safetensors").unlink())),
]


# ---------------------------------------------------------------------- T03 to T06: resuming
def clips_to_nothing(outcome):
    """The gradient of step 3 was scaled to nothing: of the moments, only what decays is left."""
    before, after = (outcome.read_optimizer(step)["state"] for step in (2, 3))
    assert max(state["exp_avg"].abs().max() for state in before.values()) > 1e-5
    for number, state in after.items():
        torch.testing.assert_close(state["exp_avg"], 0.9 * before[number]["exp_avg"], rtol=0, atol=1e-8)


def rewrite(path, old, new):
    """Replace a text in a file that has it."""
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def learns_as_before(outcome):
    """Nothing but the number of steps is said to have changed, and the rate stays."""
    assert outcome.rates[3] == pytest.approx(4e-4)
    assert outcome.said.count("changed:") == 1


@later
def compares_the_same(outcome, tasks=2, after=2, temperature=1.0, holds=None):
    """The figures before and after are means over the same play: as many tasks, the same pictures and seeds."""
    first, last = (list(load(outcome.folder / "held_out" / str(step))) for step in (0, after))
    for episodes in (first, last):
        assert len(episodes) == tasks
        assert {one.run_config.temperature for one in episodes} == {temperature}
    play = [[(one.task.id, one.run_config.seed, one.turns[0].images[0].hash) for one in part] for part in (first,
    last)]
    assert sorted(play[0]) == sorted(play[1])
    figures = outcome.summary["held_out"]
    saved = outcome.summary.get("saved", {"step": after})["step"]  # the best step, that before training included
    for name, episodes in (("before", first), ("after", first if saved == 0 else last)):
        mean = np.mean([one.scores.total for one in episodes])
        assert figures[name]["reward"] == pytest.approx(mean), name
    if holds:
        holds(figures)


def scores_the_box_alone(figures):
    for name in ("before", "after"):
        assert figures[name]["reward"] == pytest.approx(figures[name]["rewards/box/mean"])


def saves_the_best(outcome):
    """The saved weights have the highest reward on the tasks as they are now, those before training included."""
    lines = [line["held_out/reward"] for line in outcome.steps.values() if line.get("held_out/reward") is not None]
    best = max([outcome.summary["held_out"]["before"]["reward"], *lines])
    assert outcome.summary["saved"]["held_out_reward"] == pytest.approx(best)


@later
def change_checkpoint(copy, change):
    """The tensors of the copy's checkpoint are changed."""
    file = copy / "checkpoints" / "checkpoint-2" / "model.safetensors"
    save_file(change(load_file(file)), file, {"format": "pt"})


BOX = ("reward.components.label.weight=0.0", "reward.components.box.weight=1.0")
IGNORED = "https://github.com/huggingface/transformers/issues/28867"
RESUME_ROWS = [
    resumes("T03", "a smaller learning rate, since training had become unstable",
        "https://github.com/pytorch/examples/issues/816", "train.learning_rate=1e-6", holds=rate(3, 1e-6),
        says=("train.learning_rate: 0.0004 → 1e-06",)),
    resumes("T03 schedule", "another schedule", "https://github.com/mosaicml/composer/issues/3154",
        "train.lr_scheduler_type=linear", steps=2, holds=both(rate(3, 2e-4), rate(4, 1e-4))),
    resumes("T03 warmup", "a warm-up, since training had become unstable",
        "https://github.com/vllm-project/speculators/pull/900", "train.lr_scheduler_type=constant_with_warmup",
        "train.warmup_steps=8", holds=rate(3, 1e-4)),
    resumes("T03 optimizer", "weight decay, and another beta and epsilon of Adam", IGNORED, "train.weight_decay=0.1",
            "train.adam_beta2=0.9", "train.adam_epsilon=1e-5", holds=group(3, weight_decay=0.1, betas=(0.9, 0.9),
            eps=1e-5)),
    resumes("T03 clipping", "a smaller norm", IGNORED, "train.max_grad_norm=1e-9", holds=clips_to_nothing),
    resumes("T03 divergence", "a weight of the KL", IGNORED, "train.beta=0.1",
        holds=tells(lambda run: "kl" not in run.steps[2] and "kl" in run.steps[3])),
    resumes("T03 temperature", "another temperature", IGNORED, "rollout.temperature=0.5",
        holds=tells(lambda run: {one.run_config.temperature for one in run.episodes[-8:]} == {0.5})),
    resumes("T03 reward", "other weights of the reward", IGNORED, *BOX,
        holds=tells(lambda run: [abs(run.steps[n]["reward"] - run.steps[n]["rewards/box/mean"]) < 1e-6 for n in (2, 3)]
            == [False, True])),
    resumes("T03 sft", "a smaller rate of a supervised run", IGNORED, "train.learning_rate=1e-6",
        "train.lr_scheduler_type=constant", run="sft", holds=rate(3, 1e-6)),
    resumes("T03 lora", "a smaller rate and dropout of adapters", IGNORED, "train.learning_rate=1e-6",
        "lora.dropout=0.25", run="lora", holds=both(rate(2, 1e-6), tells(lambda run: json.loads((
        run.folder / "checkpoints/checkpoint-2/adapter_config.json").read_text())["lora_dropout"] == 0.25))),
    resumes("T03 longer", "a longer run of a falling rate",
            "https://github.com/Lightning-AI/pytorch-lightning/issues/4655",
            run="sft", steps=2, holds=both(rate(3, 1e-5), rate(4, 5e-6))),
    resumes("T03 ok: unchanged", "nothing", "", holds=learns_as_before),
    resumes("T03 ok: defaults", "defaults written out", "", "train.optim=adamw_torch_fused", "train.num_iterations=1",
            "train.shuffle_dataset=true", "train.gradient_accumulation_steps=1", "lora=null", holds=learns_as_before),
    resumes("T03 epochs", "epochs instead of steps", "https://github.com/huggingface/transformers/issues/25956",
            "train.max_steps=-1", "train.num_train_epochs=0.125", holds=logs(1, 2, 3, 4)),
    resumes("T04", "saves more often", "https://github.com/huggingface/transformers/pull/36303", "train.save_steps=1",
        steps=2, holds=has_checkpoints(3, 4)),
    resumes("T04 logging", "logs less often", "https://github.com/hiyouga/LlamaFactory/issues/5195",
            "train.logging_steps=2", steps=2, holds=logs(1, 2, 4)),
    resumes("T04 limit", "keeps fewer checkpoints", IGNORED, "train.save_total_limit=1", holds=has_checkpoints(3)),
    resumes("T04 none", "saves neither checkpoints nor episodes", IGNORED, "train.save_strategy='no'",
            "log.episodes_per_step=0", holds=both(has_checkpoints(2), tells(lambda run: len(run.episodes) == 16))),
    resumes("T04 weights", "saves weights alone", IGNORED, "train.save_only_model=true", holds=tells(
        lambda run: not (run.folder / "checkpoints" / "checkpoint-3" / "optimizer.pt").exists())),
    resumes("T04 evaluation", "evaluates between the steps", IGNORED, "log.eval_tasks=2", "log.eval_steps=1",
            holds=tells(lambda run: "held_out/reward" in run.steps[3])),
    refuses_to_resume("T05", "another optimizer", "https://github.com/kohya-ss/sd-scripts/issues/378",
                      "train.optim=sgd", says=("train.optim", "adamw_torch_fused", "sgd")),
    refuses_to_resume("T05 method", "supervised training after GRPO", "",
        "train={method: sft, demonstrations: {count: 8}, per_device_train_batch_size: 8}", says=("train.method",)),
    refuses_to_resume("T05 adapters", "adapters on all weights", "", *LORA, says=("lora",)),
    refuses_to_resume("T05 no adapters", "all weights after adapters", "", "lora=null", run="lora", says=("lora",)),
    refuses_to_resume("T05 rank", "a larger rank", "https://github.com/oobabooga/textgen/issues/3944", "lora.r=8",
                      run="lora", says=("lora.r", "4", "8")),
    refuses_to_resume("T05 model", "another model", "", WEIGHTS, says=("model.name",),
                      prepare=lambda copy: copy_model()),
    refuses_to_resume("T05 environment", "another environment", "", "env={name: phantom, max_turns: 3}", "reward=null",
                      "rollout.max_completion_tokens=2000", says=("env.name",)),
    refuses_to_resume("T05 filter", "other episodes", "", "train.where=scores.total>=0.5", run="sft",
                      says=("train.where",)),
    *[
        refuses_to_resume(
            f"T05 {word} {name}", f"a checkpoint whose {name} is {word}",
            "https://github.com/Lightning-AI/pytorch-lightning/issues/688",
            says=("checkpoint-2", *([name] if word == "cut" else [])),
            prepare=lambda copy, name=name, change=change: change(copy / "checkpoints" / "checkpoint-2" / name),
        )
        for word, change in (("cut", cut), ("lost", Path.unlink))
        for name in (
            "model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json", "viewbox-0.pt",
        )
    ],
    *[
        refuses_to_resume(
            f"T05 code in {name}", f"a checkpoint whose {name} would run code", "", prepare=lambda copy, name=name:
            torch.save({"state": print}, copy / "checkpoints" / "checkpoint-2" / name),
            says=("checkpoint-2", f"{name} holds more than numbers", "allowed: another one"))
        for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "viewbox-0.pt")
    ],
    refuses_to_resume("T05 names", "a checkpoint whose tensors have a prefix",
        "https://github.com/karpathy/nanoGPT/issues/325", says=("checkpoint-2", "_orig_mod."),
        prepare=change_checkpoint(lambda tensors: {f"_orig_mod.{name}": value for name, value in tensors.items()})),
    refuses_to_resume("T05 NaN", "a checkpoint of a run that diverged",
        "https://github.com/axolotl-ai-cloud/axolotl/issues/1191", says=("checkpoint-2", LAYER),
        prepare=change_checkpoint(lambda tensors: {**tensors, LAYER: tensors[LAYER] * math.nan})),
    refuses_to_resume("T05 cut adapter", "a checkpoint whose adapter is cut", "", run="lora", says=("checkpoint-1",
        "adapter"), prepare=lambda copy: cut(copy / "checkpoints" / "checkpoint-1" / "adapter_model.safetensors")),
    resumes("T06", "more held-out tasks for a tighter interval", "", "log.eval_tasks=3", run="held",
            holds=compares_the_same(3)),
    resumes("T06 seed", "another seed of the held-out play", "", "log.eval_seed=5", run="held",
            holds=compares_the_same()),
    resumes("T06 temperature", "another temperature of the held-out play", "", "log.eval_temperature=0.5", run="held",
            holds=compares_the_same(temperature=0.5)),
    resumes("T06 reward", "other weights of the reward", "", *BOX, run="held",
            holds=compares_the_same(holds=scores_the_box_alone)),
    resumes("T06 tasks", "other held-out tasks", "", "env.eval.noise=40.0", run="held", holds=compares_the_same()),
    resumes("T06 best", "harder held-out tasks, on which the model before training is the best", "",
        "env.eval.canvas=96", run="held", steps=2, holds=saves_the_best),
    resumes("T06 first", "held-out tasks where there were none", "https://github.com/modelscope/ms-swift/issues/4660",
            "log.eval_tasks=2", holds=compares_the_same(2, after=3)),
    resumes("T06 ok: unchanged", "nothing", "", run="held", holds=both(compares_the_same(), tells(
        lambda run: (run.folder / "before.json").read_bytes() == (run.made("held") / "before.json").read_bytes()))),
]

# ---------------------------------------------------------------------- T07: adapters
TIED = "https://github.com/huggingface/peft/issues/2018"
FAST = ("train.learning_rate=1e-2", "train.warmup_steps=0", "train.lr_scheduler_type=constant", "train.max_steps=2")
UNTIED = {"prepare": damage(untie)}
ADAPTER_ROWS = [
    refuses("T07", "adapters on the embedding of a tied model", TIED, "lora.target_modules=[embed_tokens]", *FAST,
            says=("lora.target_modules", "embed_tokens")),
    refuses("T07 head", "adapters on the output layer", TIED, "lora.target_modules=[lm_head]", *FAST,
            says=("lora.target_modules", "lm_head")),
    refuses("T07 both", "both, and ordinary layers", "https://github.com/unslothai/unsloth/pull/9331",
        "lora.target_modules=[q_proj, embed_tokens, lm_head]", *FAST, says=("lora.target_modules", "embed_tokens")),
    refuses("T07 pattern", "a pattern that hits the embedding",
            "https://github.com/huggingface/transformers/issues/45127",
            "lora.target_modules='.*embed_tokens'", *FAST, says=("lora.target_modules", "embed_tokens")),
    refuses("T07 path", "the embedding by its path", TIED, "lora.target_modules=[language_model.embed_tokens]", *FAST,
        says=("lora.target_modules", "embed_tokens")),
    refuses("T07 sft", "the same in supervised training", "https://github.com/hiyouga/LlamaFactory/issues/6749", *SFT,
            "lora.target_modules=[embed_tokens]", says=("lora.target_modules", "embed_tokens")),
    trains("T07 ok: all-linear", "adapters on all linear layers",
        "https://github.com/meta-pytorch/torchtune/issues/1101", *LORA, *FAST, holds=merges_as_trained),
    refuses("T07 untied head", "adapters on an output layer, which TRL computes itself", "", WEIGHTS,
            "lora.target_modules=[lm_head]", *FAST, says=("lora.target_modules", "lm_head"), **UNTIED),
    trains("T07 ok: untied", "adapters on the embedding of a model that has its own output layer", TIED, WEIGHTS,
           "lora.target_modules=[embed_tokens]", *FAST, **UNTIED,
           holds=lambda outcome: merges_as_trained(outcome, outcome.cwd / "weights")),
]

# ---------------------------------------------------------------------- T08, T09, T18: numbers
LOST = "https://github.com/modelscope/ms-swift/issues/3136"


def bad(id, given, value, *, more=(), source=LOST):
    key = given.partition("=")[0]
    return refuses(id, f"{key} came out as {value}", source, given, *more, says=(key, value))


NUMBER_ROWS = [
    bad("T08", "train.beta=.nan", "nan"),
    bad("T08 reward weight", "reward.components.label.weight=.nan", "nan"),
    ends("T08 diverged", "a rate that is far too large", "https://github.com/MakazhanAlpamys/Soup/issues/342", *STEADY,
        "train.learning_rate=1e30", "train.max_steps=8", "train.save_steps=1", says=("diverged", "last good step",
        "train.learning_rate"), holds=both(all_finite, nothing_saved)),
    Case("T08 diverged later", "the same, some steps later", LOST, (*RUNS["plain"][0], "train.max_steps=9",
         "train.learning_rate=1e30"),
         2, ("last good step is 2", "checkpoint-2", "--resume"), all_finite, resumes="plain", starts=True),
    ends("T08 gradients", "a KL whose gradient is too large for a float",
        "https://github.com/huggingface/trl/issues/3714", *STEADY, "train.per_device_train_batch_size=4",
        "train.beta=3e38", "train.max_steps=9", says=("gradient", "step"), holds=both(all_finite, nothing_saved)),
    ends("T08 diverged at once", "a rate that no weight survives",
        "https://github.com/axolotl-ai-cloud/axolotl/issues/1191", *STEADY, "train.learning_rate=1e300",
        "train.max_steps=8", "train.save_steps=1", says=("step",), holds=both(all_finite, nothing_saved)),
    ends("T08 diverged sft", "the same in supervised training", "https://github.com/openvla/openvla/issues/53", *SFT,
        "train.learning_rate=1e30", "train.lr_scheduler_type=constant", "train.max_steps=8", says=("diverged",
        "last good step", "train.learning_rate"), holds=both(all_finite, nothing_saved)),
    bad("T09 text", "train.learning_rate=nan", "nan"),
    refuses("T09 negative", "a negative rate", LOST, "train.learning_rate=-1e-5", says=("train.learning_rate",
            "above 0")),
    refuses("T09 overflow", "a rate that no float holds", LOST, "train.learning_rate=1e400",
            says=("train.learning_rate",)),
    refuses("T09 beta1", "a beta of 1", "", "train.adam_beta1=1.0", says=("train.adam_beta1", "1.0")),
    refuses("T09 beta2", "a beta above 1", "", "train.adam_beta2=1.5", says=("train.adam_beta2", "1.5")),
    refuses("T09 negative epsilon", "a negative epsilon", "", "train.adam_epsilon=-1e-8", says=("train.adam_epsilon",)),
    Case("T18 rollout", "an infinite temperature of a rollout", "https://github.com/vllm-project/vllm/issues/1623",
         ("rollout", "--config", "quickstart", "--model", "package:tiny_viewer", "--tasks", "1", "--temperature", "inf",
          "--out", "x"), 2, ("temperature", "inf"), command="viewbox"),
]

# ---------------------------------------------------------------------- T10: YAML 1.2
OCTAL = "https://github.com/yaml/pyyaml/issues/107"
OWN = """\
model: {{name: 'package:tiny_viewer', dtype: float32}}
env: {{name: digits, max_turns: 3, num_tasks: 2}}
rollout: {{max_reply_tokens: 40, max_completion_tokens: 400}}
train: {{max_steps: {steps}, num_generations: 4, per_device_train_batch_size: 8{more}}}
log: {{eval_tasks: 0, name: {name}}}
"""


def says_steps(id, text, value, source=OCTAL):
    return reads(id, f"wrote {text}", source, OWN.format(steps=text, more="", name="x"),
    config_is(train__max_steps=value))


def says_name(id, text, source=OCTAL):
    return reads(id, f"wrote {text}", source, OWN.format(steps=1, more="", name=text), config_is(log__name=text))


def refuses_steps(id, text, says, source=OCTAL):
    return reads(id, f"wrote {text}", source, OWN.format(steps=text, more="", name="x"), None, says, 2)


YAML_ROWS = [
    says_steps("T10", "010", 10),
    says_name("T10 off", "off", "https://github.com/kislyuk/yq/issues/152"),
    reads("T10 point", "wrote .5", OCTAL, OWN.format(steps=1, more=", weight_decay: .5", name="x"),
          config_is(train__weight_decay=0.5)),
    reads("T10 exponent", "wrote 1e-4", "https://github.com/hiyouga/LlamaFactory/issues/4014",
          OWN.format(steps=1, more=", learning_rate: 1E-4", name="x"), config_is(train__learning_rate=1e-4)),
    reads("T10 no", "wrote no where 'no' is meant", "", OWN.format(steps=1, more=", save_strategy: no", name="x"),
          config_is(train__save_strategy="no")),
    reads("T10 true", "wrote true", "", OWN.format(steps=1, more=", gradient_checkpointing: True", name="x"),
          config_is(train__gradient_checkpointing=True)),
    reads("T10 not true", "wrote yes for true", "", OWN.format(steps=1, more=", gradient_checkpointing: yes", name="x"),
          None, ("train.gradient_checkpointing", "yes"), 2),
    refuses_steps("T10 text of digits", "1_000", ("train.max_steps", "1_000")),
    refuses_steps("T10 sexagesimal", "1:30", ("train.max_steps", "1:30")),
    trains("T10 override", "wrote 010 on the command line", OCTAL, "train.max_steps=010", "--dry-run", "--json",
           holds=config_is(train__max_steps=10)),
]

def read_seeds(folder):
    return {one.run_config.seed for one in load(folder / "held_out" / "0")}


# ---------------------------------------------------------------------- T11, T12, T15: what the libraries check
WSD = "https://github.com/hiyouga/LlamaFactory/issues/5548"
PLATEAU = "https://github.com/Lightning-AI/pytorch-lightning/issues/1156"
UNREAD = "https://github.com/huggingface/transformers/issues/21317"


KIND = "train.lr_scheduler_type"
KWARGS = "train.lr_scheduler_kwargs"
LIBRARY_ROWS = [
    refuses("T11", "a schedule without its arguments", WSD, f"{KIND}=warmup_stable_decay", says=(KIND,
            "num_decay_steps")),
    refuses("T11 min_lr", "a schedule without its arguments", WSD, f"{KIND}=cosine_with_min_lr", says=(KIND, "min_lr")),
    refuses("T11 warmup min_lr", "a schedule without its arguments", WSD, f"{KIND}=cosine_warmup_with_min_lr",
        says=(KIND, "min_lr")),
    refuses("T11 plateau", "a schedule that reads the trainer's own evaluation", PLATEAU,
        f"{KIND}=reduce_lr_on_plateau", says=(KIND, "reduce_lr_on_plateau")),
    refuses("T11 greedy", "a schedule that reads the trainer's own evaluation", PLATEAU, f"{KIND}=greedy", says=(KIND,
        "greedy")),
    refuses("T11 warmup", "a warm-up that a constant rate has not", "https://github.com/bmaltais/kohya_ss/pull/2292",
            f"{KIND}=constant", says=("warmup_steps", "constant_with_warmup")),
    refuses("T11 typing error", "an argument that the schedule does not know", WSD, f"{KIND}=cosine",
            f"{KWARGS}={{num_cycle: 2}}", says=(KWARGS, "num_cycle")),
    refuses("T11 ceiling", "a ceiling below zero", "", "train.delta=-1", says=("train.delta", "at least 0")),
    refuses("T11 huge batch", "a batch of 20 digits", "", "train.per_device_train_batch_size=99999999999999999999",
            says=("train.",)),
    refuses("T11 clipping", "a clip range below zero", "", "train.epsilon=-0.1", says=("train.epsilon", "at least 0")),
    refuses("T11 unread", "an argument that a constant rate does not read", "", f"{KIND}=constant",
        "train.warmup_steps=0", f"{KWARGS}={{num_cycles: 2}}", says=(KWARGS, "num_cycles")),
    refuses("T11 unread warmup", "an argument that the schedule does not read", "", f"{KIND}=constant_with_warmup",
            f"{KWARGS}={{num_cycles: 2}}", says=(KWARGS, "num_cycles")),
    refuses("T11 twice", "the warm-up in both places", "https://github.com/huggingface/transformers/issues/34905",
            f"{KIND}=warmup_stable_decay", f"{KWARGS}={{num_warmup_steps: 1, num_decay_steps: 2}}",
            says=("num_warmup_steps",)),
    refuses("T11 polynomial", "a rate below the end of the schedule", "", f"{KIND}=polynomial",
        "train.learning_rate=1e-8", says=("lr_end",)),
    trains("T11 ok: linear", "a warm-up of a linear schedule", "", f"{KIND}=linear", "train.warmup_steps=2",
           "train.max_steps=2", holds=both(rate(1, 0.0), rate(2, 2e-4))),
    trains("T11 ok: arguments", "a cosine with its lowest rate", WSD, f"{KIND}=cosine_with_min_lr",
           f"{KWARGS}={{min_lr: 1e-4}}", "train.warmup_steps=0", "train.max_steps=2", holds=rate(2, 2.5e-4)),
    trains("T11 ok: decay", "a schedule with its arguments", WSD, f"{KIND}=warmup_stable_decay",
           f"{KWARGS}={{num_decay_steps: 2}}", "train.warmup_steps=0", "train.max_steps=2", holds=rate(2, 2e-4)),
    refuses("T12", "a seed of 2**32", "https://github.com/NVIDIA/Megatron-LM/issues/88", "train.seed=4294967296",
            says=("train.seed", "4294967295")),
    refuses("T12 negative", "a negative seed", "https://github.com/lmstudio-ai/mlx-engine/pull/39", "train.seed=-1",
            says=("train.seed",)),
    trains("T12 ok: held out", "a seed of 2**32 for the held-out play, which is used whole", "",
        "log.eval_seed=4294967296", "log.eval_tasks=2", ONE,
        holds=tells(lambda run: read_seeds(run.folder).isdisjoint(read_seeds(run.made("held"))))),
    trains("T12 ok: largest", "the largest seed", "", "train.seed=4294967295", ONE, "log.eval_seed=4294967295",
           holds=logs(1)),
    refuses("T15", "an option that the optimizer does not read", UNREAD, "train.optim_args=weight_decay=0.5",
            says=("train.optim_args", "weight_decay")),
    refuses("T15 betas", "betas as an option", UNREAD, "train.optim_args=beta1=0.5", says=("train.optim_args",)),
    refuses("T15 sgd", "a beta of Adam for SGD", "https://github.com/huggingface/transformers/pull/44203",
            "train.optim=sgd", "train.adam_beta1=0.8", says=("train.adam_beta1", "sgd")),
    refuses("T15 sgd epsilon", "an epsilon of Adam for SGD", "", "train.optim=sgd", "train.adam_epsilon=1e-6",
        says=("train.adam_epsilon", "sgd")),
    refuses("T15 adafactor", "a beta of Adam for Adafactor", UNREAD, "train.optim=adafactor", "train.adam_beta2=0.9",
            says=("train.adam_beta2", "adafactor")),
    refuses("T15 adafactor option", "an option of Adafactor", UNREAD, "train.optim=adafactor",
        "train.optim_args=clip_threshold=0.5", says=("train.optim_args",)),
    refuses("T15 layers", "layers of an optimizer that takes none", "", "train.optim_target_modules=[q_proj]",
            says=("train.optim_target_modules",)),
    refuses("T15 typing error", "an option that SGD does not know", "", "train.optim=sgd",
        "train.optim_args=momentun=0.9", says=("train.optim_args", "momentun")),
    refuses("T15 twice", "weight decay where the groups of weights have their own", "", "train.optim=sgd",
        "train.optim_args=weight_decay=0.5", says=("train.optim_args", "weight_decay")),
    refuses("T15 form", "an option without a value", "", "train.optim=sgd", "train.optim_args=momentum",
            says=("train.optim_args", "momentum")),
    refuses("T15 number", "an option that is no number", "", "train.optim=sgd", "train.optim_args=momentum=high",
        says=("train.optim_args", "momentum")),
    refuses("T15 package", "an optimizer whose package is missing", "", "train.optim=galore_adamw",
            "train.optim_target_modules=[q_proj]", says=("train.optim", "galore")),
    refuses("T15 package 2", "an optimizer whose package is missing", "", "train.optim=schedule_free_adamw",
        says=("train.optim", "schedule")),
    refuses("T15 package 3", "an optimizer whose package is missing", "", "train.optim=lomo", says=("train.optim",
        "lomo")),
    trains("T15 ok: epsilon", "an epsilon of Adam", "", "train.adam_epsilon=1e-6", "train.weight_decay=0.5", ONE,
           holds=group(1, eps=1e-6, weight_decay=0.5)),
    trains("T15 ok: momentum", "momentum of SGD", "https://github.com/huggingface/transformers/pull/44203",
           "train.optim=sgd", "train.optim_args=momentum=0.9,nesterov=True", ONE, holds=group(1, momentum=0.9,
           nesterov=True)),
]

# ---------------------------------------------------------------------- T13: paths
TILDE = "https://github.com/choosehappy/HistoQC/issues/197"


@later
def is_at(outcome, *paths):
    for path in paths:
        assert (outcome.cwd / path).exists(), sorted(str(found) for found in outcome.cwd.rglob("*"))[:20]
    assert not any(path.name.startswith(("~", "$")) for path in outcome.cwd.iterdir())


def write_rows(folder, questions, name="rows"):
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 60), dtype=np.uint8))
    image.save(folder / "gray.png")
    rows = [{"id": f"r{i}", "image": "gray.png", "question": text, "answer": "yes"} for i, text in enumerate(questions)]
    (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")


ASKED = """\
model: {{name: '{model}', dtype: float32}}
env:
  name: vqa
  max_turns: 1
  tools: []
  max_pixels: 2304
  data:
    source: {source}
    images: {images}
    columns: {{id: id, image: image, question: question, answer: answer}}
  eval: {{data: {{source: {held_out}}}}}
rollout: {{slots: 8, max_reply_tokens: 8, max_completion_tokens: 100}}
train: {{num_generations: 2, per_device_train_batch_size: 4, max_steps: 1}}
log: {{eval_tasks: 0}}
"""


@later
def at_home(folder, source):
    """Rows and pictures in the home folder, and a config that names them."""
    (folder / "home" / "data").mkdir(parents=True)
    write_rows(folder / "home" / "data", ["Is it dark?", "Is it bright?"])
    text = ASKED.format(source=f"'{source}/rows.jsonl'", images=f"'{source}'", held_out=f"'{source}/rows.jsonl'",
                        model="package:tiny_viewer")
    (folder / "own.yaml").write_text(text)


@later
def move(folder, name):
    """A model, or the run beside, is in the home folder."""
    if name == "weights":
        copy_model()
    (folder / "home").mkdir(exist_ok=True)
    shutil.move(name, folder / "home" / name)


@later
def write_code(folder, place="."):
    (folder / place).mkdir(exist_ok=True)
    for name in ("rewards", "world"):
        shutil.copy(SUPPORT / f"foreign_{name}.py", folder / place / f"{name}.py")


def dry(id, did, source, *given, says=(), status=0, **more):
    """What `--dry-run` alone tells."""
    return Case(id, did, source, (*given, "--dry-run"), status, says, **more)


PATH_ROWS = [
    trains("T13", "runs in the home folder", TILDE, "log.dir=~/runs", "log.name=x", ONE,
           holds=is_at("home/runs/x/metrics.jsonl")),
    trains("T13 variable", "runs and the exported model where a variable says", "", "log.dir=${HOME}/runs",
        "log.name=x", "log.export=~/exported", ONE, holds=both(is_at("home/runs/x/metrics.jsonl", "home/exported"),
        loads_in_plain_transformers("../../exported"))),
    refuses("T13 unset", "a variable that is not set", "https://github.com/OPM/opm-simulators/issues/5063",
            "log.dir=${UNSET_HERE}/runs", ONE, says=("log.dir", "UNSET_HERE")),
    refuses("T13 unset export", "a variable that is not set", "", "log.export=${UNSET_HERE}/model", ONE,
        says=("log.export", "UNSET_HERE")),
    dry("T13 data", "data in the home folder", TILDE, config="own.yaml", prepare=at_home("~/data")),
    dry("T13 data variable", "data where a variable says", "", config="own.yaml", prepare=at_home("${HOME}/data"),
        says=("the first 3 tasks show 2 images",)),
    dry("T13 data unset", "data where a variable that is not set says", "", config="own.yaml", status=2,
        prepare=at_home("${UNSET_HERE}/data"), says=("env.data.source", "UNSET_HERE")),
    dry("T13 episodes", "saved episodes in the home folder", TILDE, "train={method: sft, episodes: ~/prior}", FEW,
        "log.eval_tasks=0", beside="plain", prepare=move("prior")),
    Case("T13 resume", "resumed a run in the home folder", TILDE, (*RUNS["plain"][0], "train.max_steps=3",
        "log.name=base", "--resume=~/prior"), says=("resumed from step 2",), beside="plain", prepare=move("prior")),
    dry("T13 model", "a model in the home folder", TILDE, *SMALL, "model.name=~/weights", prepare=move("weights")),
    dry("T13 model variable", "a model where a variable says", "", *SMALL, "model.name=${HOME}/weights",
        prepare=move("weights")),
    dry("T13 reward", "a reward in the home folder", TILDE, *SMALL,
        "reward={type: python, function: '~/rewards.py:half'}", prepare=write_code("home")),
    dry("T13 environment", "an environment in the home folder", TILDE, *SMALL, "env.name=~/world.py:Leaves",
        prepare=write_code("home")),
]

# ---------------------------------------------------------------------- T14: prompts that do not fit
LONG = "https://github.com/huggingface/trl/issues/3180"
FILTER = "https://github.com/verl-project/verl/pull/5965"


def shorten(folder, positions=512):
    text = json.loads((folder / "config.json").read_text())["text_config"]
    edit_json(folder / "config.json", text_config={**text, "max_position_embeddings": positions})


@later
def ask(folder, *lengths, held_out=(0,), model='package:tiny_viewer'):
    """A config with a question of each length, in words beyond the shortest; another file for the held-out ones.

    A question of no further words makes a prompt of 128 tokens, each word takes two. `weights` has a context of 512.
    """
    if model == "weights":
        damage(shorten)(folder)
    write_rows(folder, ["Is it dark?" + " x" * length for length in lengths])
    write_rows(folder, ["Is it dark?" + " x" * length for length in held_out], "held_out")
    text = ASKED.format(source="rows.jsonl", images=".", held_out="held_out.jsonl", model=model)
    (folder / "own.yaml").write_text(text)


@later
def costs_itself(outcome, *ids, context=4096):
    """The episodes of these rows have an error that names the context, and nothing is learned from them."""
    lines = (outcome.folder / "episodes" / "episodes.jsonl").read_text().splitlines()
    found = {}
    for line, episode in zip(lines, outcome.episodes, strict=True):
        found.setdefault(episode.task.id, []).append((line, episode))
    for id, played in found.items():
        for line, episode in played:
            assert (episode.end_reason == "error") == (id in ids), (id, episode.end_reason)
            if id in ids:
                assert re.search(rf"\b{context}\b", line.replace("4,096", "4096"))
                assert episode.scores is None or episode.scores.total is None
    assert outcome.steps[1]["episodes/faults"] == pytest.approx(len(ids) / len(found))


@later
def stays_within(outcome, context):
    """No episode is longer than the context, and those with room for a whole reply have one."""
    assert {one.task.id for one in outcome.episodes} == {"r0", "r1"}
    assert all(one.total_tokens <= context for one in outcome.episodes)
    assert outcome.steps[1]["episodes/scored"] == 1


def show_twice(folder):
    """The second row has the picture twice, and the context holds one."""
    ask(0, 0, model="weights")(folder)
    shorten(folder / "weights", 140)
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    rows[1]["image"] = ["gray.png", "gray.png"]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")


ASK = {"config": "own.yaml"}
LONG_ROWS = [
    Case("T14", "one long question among short ones", LONG, (), 0, (), costs_itself("r1"), ask(0, 2100), **ASK),
    Case("T14 first", "the long question is the first one", LONG, (), 0, (), costs_itself("r0"), ask(2100, 0), **ASK),
    Case("T14 book", "a question of a book's chapter", LONG, (), 0, (), costs_itself("r1"), ask(0, 22_500), **ASK),
    Case("T14 reply", "a question that leaves little room for the reply",
         "https://github.com/huggingface/trl/issues/3569",
         (), 0, (), stays_within(512), ask(0, 190, model="weights"), **ASK),
    dry("T14 reply note", "looked before at a question that leaves little room",
        "https://github.com/huggingface/trl/issues/3569",
        prepare=ask(0, 190, model="weights"), says=("1 of 2", "512"), **ASK),
    Case("T14 second image", "a second picture that does not fit", "https://github.com/huggingface/trl/pull/5521",
         ("rollout.max_completion_tokens=8",), 0, (), costs_itself("r1", context=140), show_twice, **ASK),
    Case("T14 ok: just fits", "a question that leaves room for the reply", LONG, (), 0, (), costs_itself(), ask(0, 188,
         model="weights"), **ASK),
    Case("T14 held out", "a long question among the held-out ones", FILTER, ("log.eval_tasks=2",), 0, (),
         tells(lambda run: [run.summary["held_out"]["before"][f"episodes/{name}"] for name in ("faults", "scored")]
         == [0.5, 0.5]),
         ask(0, 0, held_out=(0, 2100)), **ASK),
    dry("T14 note", "looked before", FILTER, prepare=ask(0, 2100), says=("1 of 2", "4096"), **ASK),
    dry("T14 no note", "looked before; all fit", FILTER, prepare=ask(0, 0), **ASK),
    Case("T14 all", "only long questions", "https://github.com/unslothai/unsloth/issues/1642", (), 2, ("4096",), None,
         ask(2100, 2200), is_dry=True, **ASK),
]

# ---------------------------------------------------------------------- T16, T19: foreign code
EXITS = "https://github.com/rlcode/reinforcement-learning/pull/123"
SILENT = "https://github.com/huggingface/trl/issues/3452"
CODE = {"prepare": write_code()}
PLAYS = tells(lambda run: run.steps[1]["episodes/played"] == 8 and run.steps[1]["episodes/scored"] > 0)
MANY = "train.max_steps=5"


def at_times(metric):
    """A share of the episodes that is neither none nor all."""
    return tells(lambda run: 0 < run.steps[1][metric] < 1)


def mine(name):
    return f"reward={{type: python, function: 'rewards.py:{name}'}}"


def scores_each(**values):
    """A combined reward of functions of this file, all as heavy, and the mean of each."""
    parts = ", ".join(
        f"{name}: {{type: python, function: 'rewards.py:{name}', weight: {1 / len(values)}}}" for name in values
    )

    def check(outcome):
        found = {name: outcome.steps[1].get(f"rewards/{name}/mean") for name in values}
        assert found == pytest.approx(values)
        assert outcome.steps[1]["reward/faults"] == 0

    return f"reward={{type: combined, components: {{{parts}}}}}", check


NUMBERS, ARE_NUMBERS = scores_each(
    scalar=0.5, one=0.5, whole=1.0, tensor=0.5, half=0.5, equal=1.0, gradient=0.5, single=0.5
)


def world(name, moment=""):
    return (f"env.name=world.py:{name}", *([f"env.moment={moment}"] if moment else []), ONE)


def measures_numbers(outcome):
    results = [turn for one in outcome.episodes for turn in one.turns if turn.tool_results]
    found = [turn.tool_results[0].text for turn in results if turn.tool_results[0].error is None]  # some are no call
    assert len(found) >= 8
    assert all("0.5" in text for text in found[:8]), found[0]
    assert outcome.steps[1]["episodes/scored"] == 1
    assert outcome.summary["held_out"]["after"]["metrics/own/own"] == 0.5


def ends_early(outcome):
    assert max(outcome.steps, default=0) <= 3
    nothing_saved(outcome)


def scores_nothing(id, name, source=SILENT):
    return ends(id, f"a reward that gives no score: {name}", source, mine(name), ONE, says=("score", "reward"),
                holds=nothing_saved, **CODE)


CODE_ROWS = [
    ends("T16", "a reward that ends the process", EXITS, mine("leaves"), MANY, says=("score", "SystemExit"),
         holds=ends_early, **CODE),
    ends("T16 quietly", "a reward that ends the process with status 0", EXITS, mine("leaves_well"), ONE,
        says=("SystemExit",), holds=nothing_saved, **CODE),
    trains("T16 at times", "a reward that ends the process at times", EXITS, mine("leaves_at_times"), ONE,
           holds=at_times("reward/faults"), **CODE),
    trains("T16 parser", "a reward that parses arguments", EXITS, mine("parses"), ONE, holds=at_times("reward/faults"),
           **CODE),
    trains("T16 own", "a reward that raises what is no Exception", EXITS, mine("raises_its_own"), ONE,
           holds=at_times("reward/faults"), **CODE),
    dry("T16 dry", "looked before at a reward that ends the process", EXITS, *SMALL, mine("leaves"),
        says=("right answers", "SystemExit"), **CODE),
    trains("T16 step", "an environment that ends the process in a step", EXITS, *world("Leaves", "step"),
           holds=at_times("episodes/faults"), **CODE),
    trains("T16 reset", "an environment that ends the process at the start of an episode", EXITS, *world("Leaves",
        "reset"), holds=at_times("episodes/faults"), **CODE),
    ends("T16 answer", "a check of answers that ends the process", EXITS, "env.name=world.py:Leaves",
        "env.moment=answer", ONE, says=("score",), holds=nothing_saved, **CODE),
    trains("T16 answers", "a model of answers that ends the process", EXITS, *world("HasParser"),
           holds=at_times("episodes/faults"), **CODE),
    trains("T16 tool", "a tool that ends the process", EXITS, *world("HasTool"), **CODE, holds=PLAYS),
    trains("T16 metric", "a metric that ends the process", EXITS, *world("HasMetric"), "log.eval_tasks=2", **CODE,
           holds=PLAYS),
    refuses("T16 environment", "an environment that ends the process when it is made", EXITS, *world("Refuses"),
            says=("world.py", "SystemExit"), is_dry=False, **CODE),
    refuses("T16 import", "a reward whose file ends the process", EXITS, mine("half"), ONE,
            says=("rewards.py", "SystemExit"), prepare=lambda folder: (folder / "rewards.py").write_text("exit(3)\n")),
    trains("T19", "a reward that returns the comparison of two arrays", "https://github.com/THUDM/slime/pull/2121",
           mine("truth"), ONE, holds=tells(lambda run: run.steps[1]["reward"] == 1), **CODE),
    trains("T19 numbers", "rewards that return numbers of numpy and torch", "https://github.com/openai/gym/issues/400",
           NUMBERS, ONE, holds=ARE_NUMBERS, **CODE),
    trains("T19 world", "a tool, metrics and tasks with numbers of numpy", "https://github.com/openai/gym/issues/400",
           *world("Measures"), "log.eval_tasks=2", holds=measures_numbers, **CODE),
    scores_nothing("T19 minus", "minus"),
    scores_nothing("T19 list", "listed"),
    scores_nothing("T19 text", "text"),
    scores_nothing("T19 nothing", "nothing", "https://github.com/huggingface/trl/issues/2737"),
    scores_nothing("T19 NaN", "lost", "https://github.com/modelscope/ms-swift/issues/8123"),
]

# ---------------------------------------------------------------------- T17: saved folders
PROCESSOR = "https://github.com/2U1/Qwen-VL-Series-Finetune/issues/34"
EASY = "https://github.com/hiyouga/EasyR1/pull/48"


def looks(id, did, source, run, *folders):
    """Folders of a run, read by plain transformers."""
    return Case(id, did, source, command="", resumes=run, holds=loads_in_plain_transformers(*folders))


SAVED_ROWS = [
    Case("T01 adapter", "an adapter in place of a model", "https://github.com/OpenGVLab/InternVL/issues/525", (*SMALL,
        ONE, "model.name=prior/adapter"), 2, ("model.name = 'prior/adapter'", "adapter"), is_dry=True, beside="lora"),
    Case("T17", "went on from a checkpoint of supervised training", PROCESSOR,
         (*SMALL, ONE, "model.name=prior/checkpoints/checkpoint-2"), beside="sft"),
    looks("T17 sft", "looked at a checkpoint of supervised training", PROCESSOR, "sft", "checkpoints/checkpoint-1",
          "model"),
    looks("T17 sft and lora", "looked at an adapter of supervised training", EASY, "sft and lora",
          "checkpoints/checkpoint-1",
          "adapter", "model"),
    looks("T17 lora", "looked at an adapter of GRPO", EASY, "lora", "checkpoints/checkpoint-1", "adapter", "model"),
    looks("T17 grpo", "looked at a checkpoint of GRPO", EASY, "plain", "checkpoints/checkpoint-2", "model"),
]
# fmt: on

TABLE = [
    *WEIGHT_ROWS,
    *RESUME_ROWS,
    *ADAPTER_ROWS,
    *NUMBER_ROWS,
    *YAML_ROWS,
    *LIBRARY_ROWS,
    *PATH_ROWS,
    *LONG_ROWS,
    *CODE_ROWS,
    *SAVED_ROWS,
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The finished runs that several rows share: `made(name)` is a folder that no row changes."""

    @cache
    def make(name):
        folder = tmp_path_factory.mktemp("made")
        settings, last = RUNS[name]
        with contextlib.chdir(folder):
            assert command.main(["quickstart", *settings, f"train.max_steps={last}", "log.name=base"]) == 0
        gc.collect()
        gc.freeze()  # every training collects: it need not go through what was imported for this one
        return folder / "runs" / "base"

    return make


@pytest.fixture
def call(monkeypatch, capsys):
    """Calls a command in this process: (status, what it printed)."""

    def run(case, *more):
        if case.command == "train":
            status = command.main([case.config, *case.given, *more])
        else:
            monkeypatch.setattr(sys, "argv", ["viewbox", *case.given])
            with pytest.raises(SystemExit) as caught:
                app.main()
            status = caught.value.code or 0
        said = capsys.readouterr()
        return status, said.out + said.err

    return run


def test_every_row_has_a_name_of_its_own():
    names = [case.id for case in TABLE]
    assert len(names) == len(set(names))
    assert {name.split()[0] for name in names} == {f"T{number:02}" for number in range(1, 20)}


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in TABLE])
def test_a_run_does_what_its_config_says(case, made, call, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(report, "draw_curve", lambda *given: None)  # a picture, which takes as long as a step
    resumed = made(case.resumes) if case.resumes else None
    beside = made(case.beside) if case.beside else None
    capsys.readouterr()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("UNSET_HERE", raising=False)
    copy = Path("runs/base")
    if resumed:
        shutil.copytree(resumed, copy)
    if beside:
        shutil.copytree(beside, "prior")
    if case.prepare:
        case.prepare(copy if resumed else tmp_path)
    if not case.command:
        case.holds(Outcome(0, "", tmp_path, made))
        return
    before, more = take_digest(tmp_path), ["log.name=base", f"--resume={copy}"] if resumed else []
    status, said = ask_plan(case) if case.is_dry and not resumed else call(case, *more)
    check_words(case, status, said)
    if case.status and not case.starts:
        assert take_digest(tmp_path) == before, "something was written"
        assert list_runs(tmp_path) == (["base"] if resumed else [])
    if case.holds:
        case.holds(Outcome(status, said, tmp_path, made))


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_command_refuses_as_the_plan_does(call, tmp_path, monkeypatch, more):
    case = next(case for case in TABLE if case.is_dry and not case.prepare)
    monkeypatch.chdir(tmp_path)
    check_words(case, *call(case, *more))
    assert list(tmp_path.iterdir()) == []


def ask_plan(case):
    """What `train` says with and without `--dry-run` of a config that it refuses: (2, the words)."""
    with pytest.raises(ViewboxError) as caught:
        check(Plan(schema.load(case.config, case.given)))
    return 2, str(caught.value)


def check_words(case, status, said):
    assert status == case.status, f"status {status}; right: {case.status}\n{said[-2000:]}"
    missing = [word for word in case.says if word.lower() not in said.lower()]
    assert not missing, f"not said: {missing}\n{said[-2000:]}"
