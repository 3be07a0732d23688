"""A run does what its config says: cases from public bug reports of other trainers, as one table.

Every row is a command, what is right, and where people stumbled over it (`owner/repository#number` at GitHub, or none).
A refusal is status 2 with a sentence that names the key and what is allowed, before a run folder is made; a resumed run
that is refused leaves its folder as it was, byte by byte. Right values are computed outside viewbox: schedules by hand,
weights by plain transformers and peft. Refusals are asked of the plan; of runs that train, several rows share one.
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

from tests.support import foreign_code
from tests.support.tables import each
from viewbox.cli import app
from viewbox.configs import schema
from viewbox.errors import ViewboxError
from viewbox.rollouts.store.reader import load
from viewbox.training import command, dry_run
from viewbox.training.findings import check
from viewbox.training.plan import Plan
from viewbox.training.resume import find_run, list_changes

from tests.support.run_cases import (  # isort: skip
    FEW, LORA, RUNS, SFT, SHIPPED, SMALL, STEADY, Case, Outcome, at, change_tensors, copy_model, cut, damage,
    edit_text_config, list_runs, pickle_weights, prefix, shard, take_digest, untie,
)  # fmt: skip

EMBEDDING = "model.language_model.embed_tokens.weight"
LAYER = "model.language_model.layers.1.mlp.down_proj.weight"
MODEL, SECOND = "model.safetensors", "model-00002-of-00002.safetensors"
WEIGHTS, ONE, TWO = "model.name=weights", "train.max_steps=1", "train.max_steps=2"
TARGETS, KIND, KWARGS = "lora.target_modules", "train.lr_scheduler_type", "train.lr_scheduler_kwargs"


# ---------------------------------------------------------------------- rows
def refuses(id, source, *given, says="", **more):
    """A run that is refused, also by `--dry-run`, before it has a folder; a text `says` stands beside the last key."""
    words = (given[-1].partition("=")[0], says) if isinstance(says, str) else says
    return Case(id, source, (*SMALL, *given), 2, words, **{"is_dry": True, **more})


def trains(id, source, *given, holds=(), says=(), **more):
    return Case(id, source, (*SMALL, *given), 0, says, holds, **more)


def ends(id, source, *given, says, holds=(), **more):
    """A run that began and ends with status 2, without a model saved as trained."""
    return Case(id, source, (*SMALL, *given), 2, says, holds, starts=True, **more)


def resumes(id, source, *given, holds=(), says=(), run="plain", steps=1):
    settings, last = RUNS[run]
    return Case(id, source, (*settings, f"train.max_steps={last + steps}", *given), 0, says, holds, resumes=run)


def refuses_to_resume(id, source, *given, says="", run="plain", prepare=None):
    settings, last = RUNS[run]
    words = (given[-1].partition("=")[0], says) if isinstance(says, str) else says
    more = (f"train.max_steps={last + 1}", *given)
    return Case(id, source, (*settings, *more), 2, words, (), prepare, run, is_dry=True)


def spoils(id, source, prepare, *says, **more):
    """A refused model, whose folder `prepare` writes."""
    return refuses(id, source, WEIGHTS, ONE, says=("model.name = 'weights'", *says), prepare=prepare, **more)


def loads(id, source, prepare):
    """A model whose folder has another form, and which is the shipped one."""
    return Case(id, source, (*SMALL, WEIGHTS), 0, (), is_the_shipped_model, prepare, command="load")


def dry(id, source, *given, says=(), status=0, **more):
    """What `--dry-run` tells, or that the plan of it is right."""
    return Case(id, source, given, status, says, command="dry run", **more)


def asks(id, source, prepare, *holds, given=(), **more):
    """A run on questions that `prepare` writes, with a config of their own."""
    return Case(id, source, given, 0, (), holds, prepare, config="own.yaml", **more)


def runs_code(id, source, *given, holds=(), says=()):
    """A run of foreign code, which goes on; one that `says` something ends with status 2 and saves no model."""
    row = {"prepare": write_code(), "holds": holds, "says": says}
    return ends(id, source, *given, **row) if says else trains(id, source, *given, **row)


def plays_world(id, name, *given, holds=(), says=()):
    return runs_code(id, EXITS, f"env.name=code.py:{name}", ONE, *given, holds=holds, says=says)


def looks(id, source, run, *folders):
    return Case(id, source, command="", resumes=run, holds=loads_in_plain_transformers(*folders))


# ---------------------------------------------------------------------- facts
def later(do):
    """A check of an outcome, or what prepares a folder: a row gives all arguments but the first."""
    return lambda *given, **more: lambda first: do(first, *given, **more)


@later
def rate(outcome, step, value):
    assert outcome.rates[step] == pytest.approx(value, rel=1e-6), outcome.rates


@later
def group(outcome, step, **values):
    """Values in the first group of the optimizer, as a checkpoint holds it."""
    first = outcome.read_optimizer(step)["param_groups"][0]
    assert {name: first[name] for name in values} == values


@later
def tells(outcome, ask):
    assert ask(outcome), {step: dict(line) for step, line in outcome.steps.items()}


@later
def has_checkpoints(outcome, *steps):
    assert outcome.checkpoints == [f"checkpoint-{step}" for step in steps]


@later
def logs(outcome, *steps):
    assert list(outcome.steps) == list(steps)


def is_the_shipped_model(outcome):
    shipped, weights = load_file(SHIPPED / MODEL), dict(outcome.model.named_parameters())
    assert weights.keys() == shipped.keys()
    assert all(torch.equal(weights[name], value.float()) for name, value in shipped.items())


def all_finite(outcome):
    for file in outcome.cwd.rglob("*.safetensors"):
        for name, value in load_file(file).items():
            assert value.isfinite().all(), f"{file}: {name}"


def nothing_saved(outcome):
    assert not (outcome.folder / "model" / MODEL).exists()


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


# ---------------------------------------------------------------------- T01, T02: weights
def take(names):
    return change_tensors(lambda tensors: {name: value for name, value in tensors.items() if names(name)})


def put(name, make):
    return change_tensors(lambda tensors: {**tensors, name: make(tensors)})


def poison(value, dtype=torch.float32):
    def change(tensors):
        changed = {name: tensor.to(dtype) for name, tensor in tensors.items()}
        changed[LAYER][3, 3] = value
        return changed

    return change_tensors(change)


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


def break_link(path):
    path.unlink()
    path.symlink_to(path.parent / "blobs" / "4d7a21")


def lie_in_index(folder):
    shard(folder)
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"][EMBEDDING] = SECOND
    assert EMBEDDING in load_file(folder / "model-00001-of-00002.safetensors")
    path.write_text(json.dumps(index))


def replace(path, old, new):
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


# fmt: off
POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b\n"
COMPILED = prefix("_orig_mod.")
PLAYED = ("--config", "quickstart", "--model", "weights", "--tasks", "1", "--out", "x")
WEIGHT_ROWS = [
    spoils("T01", "karpathy/nanoGPT#325", COMPILED, "_orig_mod."),
    Case("T01 rollout", "pytorch/pytorch#101107", ("rollout", *PLAYED), 2, ("_orig_mod.",), (), COMPILED,
        command="viewbox"),
    spoils("T01 module", "FareedKhan-dev/train-llm-from-scratch#37", prefix("module."), "module."),
    spoils("T01 compiled and DDP", "huggingface/pytorch-image-models#2003", prefix("_orig_mod.module."), "_orig_mod."),
    spoils("T01 peft prefix", "X-PLUG/mPLUG-Owl#87", prefix("base_model.model."), "base_model.model."),
    spoils("T01 peft state", "OpenGVLab/InternVL#525", change_tensors(as_peft_state), "base_model.model."),
    spoils("T01 FSDP", "huggingface/transformers#29659", prefix("_fsdp_wrapped_module.")),
    spoils("T01 Lightning", "Lightning-AI/pytorch-lightning#20233", prefix("policy.")),
    spoils("T01 half", "unslothai/unsloth#1122", take(lambda name: "model.layers.1." not in name), "layers.1."),
    spoils("T01 one", "unslothai/unsloth#1122", take(lambda name: name != LAYER), LAYER),
    spoils("T01 vocabulary", "arcee-ai/mergekit#328", put(EMBEDDING, lambda tensors: torch.zeros(900, 128)),
        "embed_tokens", "900", "896"),
    spoils("T01 ZeRO-3", "huggingface/transformers#20082",
        change_tensors(lambda tensors: dict.fromkeys(tensors, torch.zeros(0)))),
    spoils("T01 value head", "", put("v_head.summary.weight", lambda tensors: torch.zeros(1, 128)), "v_head"),
    loads("T01 ok: tied head in the file", "", put("lm_head.weight", lambda tensors: tensors[EMBEDDING].clone())),
    loads("T01 ok: pickled", "", damage(pickle_weights)),
    loads("T02 ok: index", "Blaizzy/mlx-vlm#1827", damage(lie_in_index)),
    spoils("T02", "datalab-to/marker#970", at(MODEL, cut), MODEL),
    spoils("T02 empty", "lyogavin/airllm#137", at(MODEL, lambda path: path.write_bytes(b"")), MODEL),
    spoils("T02 pointer", "Comfy-Org/ComfyUI#13669", at(MODEL, lambda path: path.write_text(POINTER)), MODEL),
    spoils("T02 longer", "Comfy-Org/ComfyUI#15602",
        at(MODEL, lambda path: path.write_bytes(path.read_bytes() + b"more")), MODEL),
    spoils("T02 lost shard", "sgl-project/sglang#32279",
        damage(lambda folder: shard(folder) or (folder / SECOND).unlink()), SECOND),
    spoils("T02 cut shard", "huggingface/diffusers#11827",
        damage(lambda folder: shard(folder) or cut(folder / SECOND)), SECOND),
    spoils("T02 cut pickle", "Lightning-AI/pytorch-lightning#688",
        damage(lambda folder: cut(pickle_weights(folder))), "pytorch_model.bin", is_dry=False),
    spoils("T02 NaN", "axolotl-ai-cloud/axolotl#1191", poison(math.nan), LAYER, is_dry=False),
    spoils("T02 infinity", "unslothai/unsloth#3690", poison(math.inf, torch.bfloat16), LAYER, is_dry=False),
    spoils("T02 link", "huggingface/diffusers#11827", at(MODEL, break_link), MODEL),
    spoils("T02 generation", "", at("generation_config.json", cut), "generation_config.json"),
    spoils("T02 patches", "", at("processor_config.json",
        lambda path: replace(path, '"patch_size": 8', '"patch_size": 16')), "patch_size = 16"),
    refuses("T02 export", "", WEIGHTS, "log.export=weights/", says="model.name", prepare=damage(lambda folder: None)),
    spoils("T02 processor", "", at("processor_config.json", cut)), spoils("T02 no file", "", at(MODEL, Path.unlink)),
]


# ---------------------------------------------------------------------- T03 to T06: resuming
def clips_to_nothing(outcome):
    """The gradient of step 3 was scaled to nothing: of the moments, only what decays is left."""
    before, after = (outcome.read_optimizer(step)["state"] for step in (2, 3))
    assert max(state["exp_avg"].abs().max() for state in before.values()) > 1e-5
    for number, state in after.items():
        torch.testing.assert_close(state["exp_avg"], 0.9 * before[number]["exp_avg"], rtol=0, atol=1e-8)


def learns_the_box_alone(outcome):
    gaps = [abs(outcome.steps[step]["reward"] - outcome.steps[step]["rewards/box/mean"]) for step in (2, 3)]
    assert gaps[1] < 1e-6 <= gaps[0]


@later
def compares_the_same(outcome, tasks=2, after=2, temperature=1.0, holds=None):
    """The figures before and after are means over the same play: as many tasks, the same pictures and seeds."""
    first, last = (list(load(outcome.folder / "held_out" / str(step))) for step in (0, after))
    for episodes in (first, last):
        assert len(episodes) == tasks
        assert {episode.run_config.temperature for episode in episodes} == {temperature}
    play = [
        sorted((episode.task.id, episode.run_config.seed, episode.turns[0].images[0].hash) for episode in episodes)
        for episodes in (first, last)
    ]
    assert play[0] == play[1]
    figures = outcome.summary["held_out"]
    saved = outcome.summary.get("saved", {"step": after})["step"]  # the best step, that before training included
    for name, episodes in (("before", first), ("after", first if saved == 0 else last)):
        mean = np.mean([episode.scores.total for episode in episodes])
        assert figures[name]["reward"] == pytest.approx(mean), name
        if holds:
            holds(figures[name])


def scores_the_box_alone(figures):
    assert figures["reward"] == pytest.approx(figures["rewards/box/mean"])


def saves_the_best(outcome):
    """The saved weights have the highest reward on the tasks as they are now, those before training included."""
    lines = [line["held_out/reward"] for line in outcome.steps.values() if line.get("held_out/reward") is not None]
    best = max([outcome.summary["held_out"]["before"]["reward"], *lines])
    assert outcome.summary["saved"]["held_out_reward"] == pytest.approx(best)


@later
def change_checkpoint(copy, change):
    file = copy / "checkpoints" / "checkpoint-2" / MODEL
    save_file(change(load_file(file)), file, {"format": "pt"})


def in_checkpoint(name, change, number=2):
    return lambda copy: change(copy / "checkpoints" / f"checkpoint-{number}" / name)


BOX = ("reward.components.label.weight=0.0", "reward.components.box.weight=1.0")
IGNORED, DAMAGED = "huggingface/transformers#28867", "Lightning-AI/pytorch-lightning#688"
STATE = ("optimizer.pt", "scheduler.pt", "rng_state.pth", "viewbox-0.pt")
RESUME_ROWS = [
    resumes("T03", f"pytorch/examples#816 {IGNORED}", "train.learning_rate=1e-6", "train.weight_decay=0.1",
        "train.adam_beta2=0.9", "train.adam_epsilon=1e-5", "train.max_grad_norm=1e-9", "train.beta=0.1",
        "rollout.temperature=0.5", *BOX, says=("train.learning_rate: 0.0004 → 1e-06",),
        holds=(rate(3, 1e-6), group(3, weight_decay=0.1, betas=(0.9, 0.9), eps=1e-5), clips_to_nothing,
            learns_the_box_alone, tells(lambda run: "kl" not in run.steps[2] and "kl" in run.steps[3]),
            tells(lambda run: {episode.run_config.temperature for episode in run.episodes[-8:]} == {0.5}))),
    resumes("T03 schedule, T04", "mosaicml/composer#3154 huggingface/transformers#36303", f"{KIND}=linear",
        "train.save_steps=1", steps=2, holds=(rate(3, 2e-4), rate(4, 1e-4), has_checkpoints(3, 4))),
    resumes("T03 warmup, T04 limit and weights", f"vllm-project/speculators#900 {IGNORED}",
        f"{KIND}=constant_with_warmup", "train.warmup_steps=8", "train.save_total_limit=1",
        "train.save_only_model=true", holds=(rate(3, 1e-4), has_checkpoints(3),
            tells(lambda run: not (run.folder / "checkpoints" / "checkpoint-3" / "optimizer.pt").exists()))),
    resumes("T03 sft", IGNORED, "train.learning_rate=1e-6", f"{KIND}=constant", run="sft", holds=rate(3, 1e-6)),
    resumes("T03 lora", IGNORED, "train.learning_rate=1e-6", "lora.dropout=0.25", run="lora", holds=(rate(2, 1e-6),
        tells(lambda run: json.loads((run.folder / "checkpoints/checkpoint-2/adapter_config.json").read_text())
            ["lora_dropout"] == 0.25))),
    resumes("T03 longer", "Lightning-AI/pytorch-lightning#4655", run="sft", steps=2,
        holds=(rate(3, 1e-5), rate(4, 5e-6))),
    resumes("T03 epochs", "huggingface/transformers#25956", "train.max_steps=-1", "train.num_train_epochs=0.125",
        holds=logs(1, 2, 3, 4)),
    resumes("T04 logging, none", f"hiyouga/LlamaFactory#5195 {IGNORED}", "train.logging_steps=2",
        "train.save_strategy='no'", "log.episodes_per_step=0", steps=2,
        holds=(logs(1, 2, 4), has_checkpoints(2), tells(lambda run: len(run.episodes) == 16))),
    resumes("T04 evaluation, T06 first", f"{IGNORED} modelscope/ms-swift#4660", "log.eval_tasks=2", "log.eval_steps=1",
        holds=(tells(lambda run: "held_out/reward" in run.steps[3]), compares_the_same(2, after=3))),
    refuses_to_resume("T05", "kohya-ss/sd-scripts#378", "train.optim=sgd", says=("train.optim", "adamw_torch_fused",
        "sgd")),
    refuses_to_resume("T05 method", "", "train={method: sft, demonstrations: {count: 8}, "
        "per_device_train_batch_size: 8}", says=("train.method",)),
    refuses_to_resume("T05 no adapters", "", "lora=null", run="lora"),
    refuses_to_resume("T05 rank", "oobabooga/textgen#3944", "lora.r=8", run="lora", says=("lora.r", "4", "8")),
    refuses_to_resume("T05 environment", "", "reward=null", "rollout.max_completion_tokens=2000",
        "env={name: phantom, max_turns: 3}", says=("env.name",)),
    *(refuses_to_resume(f"T05 cut {name}", DAMAGED, says=("checkpoint-2", name), prepare=in_checkpoint(name, cut))
        for name in (MODEL, *STATE, "trainer_state.json")),
    *(refuses_to_resume(f"T05 lost {name}", DAMAGED, says=("checkpoint-2",), prepare=in_checkpoint(name, Path.unlink))
        for name in (MODEL, *STATE, "trainer_state.json")),
    *(refuses_to_resume(f"T05 code in {name}", "", says=("checkpoint-2", f"{name} holds more than numbers",
        "allowed: another one"), prepare=in_checkpoint(name, lambda path: torch.save({"state": print}, path)))
        for name in STATE),
    refuses_to_resume("T05 names", "karpathy/nanoGPT#325", says=("checkpoint-2", "_orig_mod."),
        prepare=change_checkpoint(lambda tensors: {f"_orig_mod.{name}": value for name, value in tensors.items()})),
    refuses_to_resume("T05 NaN", "axolotl-ai-cloud/axolotl#1191", says=("checkpoint-2", LAYER),
        prepare=change_checkpoint(lambda tensors: {**tensors, LAYER: tensors[LAYER] * math.nan})),
    refuses_to_resume("T05 cut adapter", "", run="lora", says=("checkpoint-1", "adapter"),
        prepare=in_checkpoint("adapter_model.safetensors", cut, number=1)),
    # that each of these alone is other play: test_resume.py
    resumes("T06", "", "log.eval_tasks=3", "log.eval_seed=5", "log.eval_temperature=0.5", "env.eval.noise=40.0", *BOX,
        run="held", holds=compares_the_same(3, temperature=0.5, holds=scores_the_box_alone)),
    resumes("T06 best", "", "env.eval.canvas=96", run="held", steps=2, holds=saves_the_best),  # before training it is
    resumes("T06 ok: unchanged", "", run="held", holds=(compares_the_same(), tells(lambda run:
        (run.folder / "before.json").read_bytes() == (run.made("held") / "before.json").read_bytes()))),
]

# ---------------------------------------------------------------------- T07: adapters
TIED = "huggingface/peft#2018"
FAST = ("train.learning_rate=1e-2", "train.warmup_steps=0", f"{KIND}=constant", TWO)
ADAPTER_ROWS = [
    refuses("T07", TIED, f"{TARGETS}=[embed_tokens]", says="embed_tokens"),
    refuses("T07 head", TIED, f"{TARGETS}=[lm_head]", says="lm_head"),
    refuses("T07 both", "unslothai/unsloth#9331", f"{TARGETS}=[q_proj, embed_tokens, lm_head]", says="embed_tokens"),
    refuses("T07 pattern", "huggingface/transformers#45127", f"{TARGETS}='.*embed_tokens'", says="embed_tokens"),
    refuses("T07 path", TIED, f"{TARGETS}=[language_model.embed_tokens]", says="embed_tokens"),
    refuses("T07 sft", "hiyouga/LlamaFactory#6749", *SFT, f"{TARGETS}=[embed_tokens]", says="embed_tokens"),
    trains("T07 ok: all-linear", "meta-pytorch/torchtune#1101", *LORA, *FAST, holds=merges_as_trained),
    refuses("T07 untied head", "", WEIGHTS, f"{TARGETS}=[lm_head]", says="lm_head", prepare=damage(untie)),
    trains("T07 ok: untied", TIED, WEIGHTS, f"{TARGETS}=[embed_tokens]", *FAST, prepare=damage(untie),
        holds=lambda outcome: merges_as_trained(outcome, outcome.cwd / "weights")),
]

# ---------------------------------------------------------------------- T08, T09, T18: numbers
LOST = "modelscope/ms-swift#3136"
GOOD = ("diverged", "last good step", "train.learning_rate")
SPOILED = (all_finite, nothing_saved)
NUMBER_ROWS = [
    refuses("T08", LOST, "train.beta=.nan", says="nan"),
    refuses("T08 reward weight", LOST, "reward.components.label.weight=.nan", says="nan"),
    ends("T08 diverged", "MakazhanAlpamys/Soup#342", *STEADY, "train.learning_rate=1e30", "train.max_steps=8",
        "train.save_steps=1", says=GOOD, holds=SPOILED),
    Case("T08 diverged later", LOST, (*RUNS["plain"][0], "train.max_steps=9", "train.learning_rate=1e30"), 2,
        ("the weights after step 3 are not finite", "last good step is 2; go on with --resume=", "checkpoint-2 and"),
        all_finite, resumes="plain", starts=True),
    ends("T08 gradients", "huggingface/trl#3714", *STEADY, "train.per_device_train_batch_size=4", "train.beta=3e38",
        "train.max_steps=9", says=("gradient", "step"), holds=SPOILED),
    ends("T08 diverged at once", "axolotl-ai-cloud/axolotl#1191", *STEADY, "train.learning_rate=1e300",
        "train.max_steps=8", "train.save_steps=1", says=("no checkpoint was saved: start again with a smaller train",),
        holds=SPOILED),
    ends("T08 diverged sft", "openvla/openvla#53", *SFT, "train.learning_rate=1e30", f"{KIND}=constant",
        "train.max_steps=8", says=GOOD, holds=SPOILED),
    refuses("T09 text", LOST, "train.learning_rate=nan", says="nan"),
    refuses("T09 negative", LOST, "train.learning_rate=-1e-5", says="above 0"),
    refuses("T09 overflow", LOST, "train.learning_rate=1e400"),
    refuses("T09 beta2", "", "train.adam_beta2=1.5", says="1.5"),
    Case("T18 rollout", "vllm-project/vllm#1623", ("rollout", "--config", "quickstart", "--model",
        "package:tiny_viewer", "--tasks", "1", "--temperature", "inf", "--out", "x"), 2, ("temperature", "inf"),
        command="viewbox"),
]

# ---------------------------------------------------------------------- T10: YAML 1.2
OCTAL = "yaml/pyyaml#107"
YAML_ROWS = [  # what is written in a section: the right value, or words of the refusal
    (OCTAL, "train", "max_steps: 010", 10), ("kislyuk/yq#152", "log", "name: off", "off"),
    (OCTAL, "train", "weight_decay: .5", 0.5), ("hiyouga/LlamaFactory#4014", "train", "learning_rate: 1E-4", 1e-4),
    ("", "train", "save_strategy: no", "no"), ("", "train", "gradient_checkpointing: True", True),
    ("", "train", "gradient_checkpointing: yes", ["train.gradient_checkpointing", "yes"]),
    (OCTAL, "train", "max_steps: 1_000", ["train.max_steps", "1_000"]),
    (OCTAL, "train", "max_steps: 1:30", ["train.max_steps", "1:30"]),
]


@each("source, section, text, right", YAML_ROWS)
def test_a_config_is_read_as_yaml_1_2_is(tmp_path, source, section, text, right):
    path, key = tmp_path / "own.yaml", text.partition(":")[0]
    path.write_text(f"model: {{name: m}}\nenv: {{name: digits}}\n{section}: {{{text}}}\n")
    if isinstance(right, list):
        with pytest.raises(ViewboxError) as caught:
            check(Plan(schema.load(str(path))))
        assert all(word in str(caught.value) for word in right)
        return
    read = schema.load(str(path)).model_dump()[section][key]
    assert (read, type(read)) == (right, type(right))


def read_seeds(folder):
    return {episode.run_config.seed for episode in load(folder / "held_out" / "0")}


# ---------------------------------------------------------------------- T11, T12, T15: what the libraries check
WSD, PLATEAU = "hiyouga/LlamaFactory#5548", "Lightning-AI/pytorch-lightning#1156"
UNREAD, TILDE = "huggingface/transformers#21317", "choosehappy/HistoQC#197"
LIBRARY_ROWS = [
    dry("T10 override", OCTAL, *SMALL, "train.max_steps=010", says=("an epoch, 10 steps",)),
    refuses("T11", WSD, f"{KIND}=warmup_stable_decay", says="num_decay_steps"),
    refuses("T11 min_lr", WSD, f"{KIND}=cosine_with_min_lr", says="min_lr"),
    refuses("T11 warmup min_lr", WSD, f"{KIND}=cosine_warmup_with_min_lr", says="min_lr"),
    refuses("T11 plateau", PLATEAU, f"{KIND}=reduce_lr_on_plateau", says="reduce_lr_on_plateau"),
    refuses("T11 greedy", PLATEAU, f"{KIND}=greedy", says="greedy"),
    refuses("T11 warmup", "bmaltais/kohya_ss#2292", f"{KIND}=constant", says=("warmup_steps", "constant_with_warmup")),
    refuses("T11 typing error", WSD, f"{KIND}=cosine", f"{KWARGS}={{num_cycle: 2}}", says="num_cycle"),
    refuses("T11 ceiling", "", "train.delta=-1", says="at least 0"),
    refuses("T11 huge batch", "", "train.per_device_train_batch_size=99999999999999999999", says=("train.",)),
    refuses("T11 unread", "", f"{KIND}=constant", "train.warmup_steps=0", f"{KWARGS}={{num_cycles: 2}}",
        says="num_cycles"),
    refuses("T11 twice", "huggingface/transformers#34905", f"{KIND}=warmup_stable_decay",
        f"{KWARGS}={{num_warmup_steps: 1, num_decay_steps: 2}}", says=("num_warmup_steps",)),
    refuses("T11 polynomial", "", f"{KIND}=polynomial", "train.learning_rate=1e-8", says=("lr_end",)),
    trains("T11 ok: linear, T13", TILDE, f"{KIND}=linear", "train.warmup_steps=2", TWO, "log.dir=~/runs", "log.name=x",
        holds=(rate(1, 0.0), rate(2, 2e-4), lambda run: is_at(run, "home/runs/x/metrics.jsonl"))),
    trains("T11 ok: arguments, T12 ok: held out, T15 ok: epsilon", WSD, f"{KIND}=cosine_with_min_lr",
        f"{KWARGS}={{min_lr: 1e-4}}", "train.warmup_steps=0", TWO, "train.seed=4294967295", "log.eval_seed=4294967296",
        "log.eval_tasks=2", "train.adam_epsilon=1e-6", "train.weight_decay=0.5",
        holds=(rate(2, 2.5e-4), group(2, eps=1e-6, weight_decay=0.5), logs(1, 2),
            tells(lambda run: read_seeds(run.folder).isdisjoint(read_seeds(run.made("held")))))),
    trains("T11 ok: decay, T13 variable, T15 ok: momentum", f"{WSD} huggingface/transformers#44203",
        f"{KIND}=warmup_stable_decay", f"{KWARGS}={{num_decay_steps: 2}}", "train.warmup_steps=0", TWO,
        "train.optim=sgd", "train.optim_args=momentum=0.9,nesterov=True", "log.dir=${HOME}/runs", "log.name=x",
        "log.export=~/exported", holds=(rate(2, 2e-4), group(2, momentum=0.9, nesterov=True),
            lambda run: is_at(run, "home/runs/x/metrics.jsonl", "home/exported"),
            loads_in_plain_transformers("../../exported"))),
    refuses("T12", "NVIDIA/Megatron-LM#88", "train.seed=4294967296", says="4294967295"),
    refuses("T12 negative", "lmstudio-ai/mlx-engine#39", "train.seed=-1"),
    refuses("T15", UNREAD, "train.optim_args=weight_decay=0.5", says="weight_decay"),
    refuses("T15 betas", UNREAD, "train.optim_args=beta1=0.5"),
    refuses("T15 sgd", "huggingface/transformers#44203", "train.optim=sgd", "train.adam_beta1=0.8", says="sgd"),
    refuses("T15 sgd epsilon", "", "train.optim=sgd", "train.adam_epsilon=1e-6", says="sgd"),
    refuses("T15 adafactor", UNREAD, "train.optim=adafactor", "train.adam_beta2=0.9", says="adafactor"),
    refuses("T15 adafactor option", UNREAD, "train.optim=adafactor", "train.optim_args=clip_threshold=0.5"),
    refuses("T15 layers", "", "train.optim_target_modules=[q_proj]"),
    refuses("T15 typing error", "", "train.optim=sgd", "train.optim_args=momentun=0.9", says="momentun"),
    refuses("T15 twice", "", "train.optim=sgd", "train.optim_args=weight_decay=0.5", says="weight_decay"),
    refuses("T15 package", "", "train.optim_target_modules=[q_proj]", "train.optim=galore_adamw", says="galore"),
]
# fmt: on


# ---------------------------------------------------------------------- T13: paths
def is_at(outcome, *paths):
    for path in paths:
        assert (outcome.cwd / path).exists(), sorted(map(str, outcome.cwd.rglob("*")))[:20]
    assert not any(path.name.startswith(("~", "$")) for path in outcome.cwd.iterdir())


def write_rows(folder, questions, name="rows"):
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 60), dtype=np.uint8))
    image.save(folder / "gray.png")
    rows = [{"id": f"r{i}", "image": "gray.png", "question": text, "answer": "yes"} for i, text in enumerate(questions)]
    (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")


ASKED = """\
model: {{name: '{model}', dtype: float32}}
env:
  {{name: vqa, max_turns: 1, tools: [], max_pixels: 2304, eval: {{data: {{source: '{held_out}'}}}}, data: {{
  source: '{source}', images: '{images}', columns: {{id: id, image: image, question: question, answer: answer}}}}}}
rollout: {{slots: 8, max_reply_tokens: 8, max_completion_tokens: 100}}
train: {{num_generations: 2, per_device_train_batch_size: 4, max_steps: 1}}
log: {{eval_tasks: 0}}
"""
TINY = "package:tiny_viewer"


@later
def at_home(folder, source):
    """Rows and pictures in the home folder, and a config that names them."""
    (folder / "home" / "data").mkdir(parents=True)
    write_rows(folder / "home" / "data", ["Is it dark?", "Is it bright?"])
    rows = f"{source}/rows.jsonl"
    (folder / "own.yaml").write_text(ASKED.format(source=rows, images=source, held_out=rows, model=TINY))


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
    shutil.copy(foreign_code.__file__, folder / place / "code.py")


# fmt: off
OURS = {"config": "own.yaml"}
PATH_ROWS = [
    refuses("T13 unset", "OPM/opm-simulators#5063", "log.dir=${UNSET_HERE}/runs", says="UNSET_HERE"),
    dry("T13 data", TILDE, prepare=at_home("~/data"), **OURS),
    dry("T13 data variable", "", prepare=at_home("${HOME}/data"), says=("the first 3 tasks show 2 images",), **OURS),
    dry("T13 data unset", "", status=2, prepare=at_home("${UNSET_HERE}/data"), says=("env.data.source", "UNSET_HERE"),
        **OURS),
    dry("T13 episodes", TILDE, "train={method: sft, episodes: ~/prior}", FEW, "log.eval_tasks=0", beside="plain",
        prepare=move("prior")),
    Case("T13 resume", TILDE, (*RUNS["plain"][0], "train.max_steps=3", "log.name=base", "--resume=~/prior"),
        says=("resumed from step 2",), beside="plain", prepare=move("prior")),
    dry("T13 model", TILDE, *SMALL, "model.name=~/weights", prepare=move("weights")),
    dry("T13 reward", TILDE, *SMALL, "reward={type: python, function: '~/code.py:half'}", prepare=write_code("home")),
    dry("T13 environment", TILDE, *SMALL, "env.name=~/code.py:Leaves", prepare=write_code("home")),
]
# fmt: on


# ---------------------------------------------------------------------- T14: prompts that do not fit
@later
def ask(folder, *lengths, held_out=(0,), context=4096):
    """A config with a question of each length, in words beyond the shortest; another file for the held-out ones.

    A question of no further words makes a prompt of 128 tokens, each word takes two. The model has a context of 4096,
    or is a copy that has another.
    """
    if context != 4096:
        damage(lambda model: edit_text_config(model, max_position_embeddings=context))(folder)
    write_rows(folder, ["Is it dark?" + " x" * length for length in lengths])
    write_rows(folder, ["Is it dark?" + " x" * length for length in held_out], "held_out")
    model = TINY if context == 4096 else "weights"
    text = ASKED.format(source="rows.jsonl", images=".", held_out="held_out.jsonl", model=model)
    (folder / "own.yaml").write_text(text)


@later
def costs_itself(outcome, *ids, context=4096):
    """The episodes of these rows have an error that names the context, and nothing is learned from them."""
    lines = (outcome.folder / "episodes" / "episodes.jsonl").read_text().splitlines()
    rows = {}
    for line, episode in zip(lines, outcome.episodes, strict=True):
        rows.setdefault(episode.task.id, []).append((line, episode))
    for id, played in rows.items():
        for line, episode in played:
            assert (episode.end_reason == "error") == (id in ids), (id, episode.end_reason)
            if id in ids:
                assert re.search(rf"\b{context}\b", line.replace("4,096", "4096"))
                assert episode.scores is None or episode.scores.total is None
    assert outcome.steps[1]["episodes/faults"] == pytest.approx(len(ids) / len(rows))


@later
def stays_within(outcome, context):
    """No episode is longer than the context, and those with room for a whole reply have one."""
    assert {episode.task.id for episode in outcome.episodes} == {"r0", "r1", "r2"}
    assert all(episode.total_tokens <= context for episode in outcome.episodes)
    assert outcome.steps[1]["episodes/scored"] == 1


def show_twice(folder):
    """The second row has the picture twice, and the context holds one."""
    ask(0, 0, context=140)(folder)
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    rows[1]["image"] = ["gray.png", "gray.png"]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")


def plays_half_of_the_held_out(outcome):
    figures = outcome.summary["held_out"]["before"]
    assert [figures["episodes/faults"], figures["episodes/scored"]] == [0.5, 0.5]


# fmt: off
LONG, FILTER, ROOM = "huggingface/trl#3180", "verl-project/verl#5965", "huggingface/trl#3569"
LONG_ROWS = [
    # the first question is a long one, another a chapter of a book; so are the held-out ones
    asks("T14", f"{LONG} {FILTER}", ask(2100, 0, 22_500, 0, held_out=(0, 2100)), costs_itself("r0", "r2"),
        plays_half_of_the_held_out, given=("train.per_device_train_batch_size=8", "log.eval_tasks=2")),
    # one leaves little room for the reply, one just enough
    asks("T14 reply", f"{ROOM} {LONG}", ask(0, 190, 188, context=512), stays_within(512), costs_itself(),
        given=("train.per_device_train_batch_size=6",)),
    asks("T14 second image", "huggingface/trl#5521", show_twice, costs_itself("r1", context=140),
        given=("rollout.max_completion_tokens=8",)),
    dry("T14 reply note", ROOM, prepare=ask(0, 190, context=512), says=("1 of 2", "512"), **OURS),
    dry("T14 note", FILTER, prepare=ask(0, 2100), says=("1 of 2", "4096"), **OURS),
    Case("T14 all", "unslothai/unsloth#1642", (), 2, ("4096",), (), ask(2100, 2200), is_dry=True, **OURS),
]
# fmt: on

# ---------------------------------------------------------------------- T16, T19: foreign code
EXITS = "rlcode/reinforcement-learning#123"
PLAYS = tells(lambda run: run.steps[1]["episodes/played"] == 8 and run.steps[1]["episodes/scored"] > 0)
NUMBERS = {"scalar": 0.5, "one": 0.5, "whole": 1.0, "tensor": 0.5, "half": 0.5, "equal": 1.0, "gradient": 0.5,
           "single": 0.5, "truth": 1.0}  # fmt: skip


def at_times(*metrics):
    """Shares of the episodes that are neither none nor all."""
    return tells(lambda run: all(0 < run.steps[1][metric] < 1 for metric in metrics))


def mine(name):
    return f"reward={{type: python, function: 'code.py:{name}'}}"


def combine(*names):
    parts = [f"{name}: {{type: python, function: 'code.py:{name}', weight: {1 / len(names)}}}" for name in names]
    return f"reward={{type: combined, components: {{{', '.join(parts)}}}}}"


def are_numbers(outcome):
    assert {name: outcome.steps[1].get(f"rewards/{name}/mean") for name in NUMBERS} == pytest.approx(NUMBERS)
    assert outcome.steps[1]["reward/faults"] == 0


def measures_numbers(outcome):
    results = [turn for episode in outcome.episodes for turn in episode.turns if turn.tool_results]
    texts = [turn.tool_results[0].text for turn in results if turn.tool_results[0].error is None]  # not all are calls
    assert len(texts) >= 8
    assert all("0.5" in text for text in texts[:8]), texts[0]
    assert outcome.steps[1]["episodes/scored"] == 1
    assert outcome.summary["held_out"]["after"]["metrics/own/own"] == 0.5


def ends_early(outcome):
    assert max(outcome.steps, default=0) <= 3
    nothing_saved(outcome)


def scores_nothing(name, source):
    return runs_code(f"T19 {name}", source, mine(name), ONE, says=("score", "reward"), holds=nothing_saved)


# fmt: off
CODE_ROWS = [
    runs_code("T16", EXITS, mine("leaves"), "train.max_steps=5", says=("score", "SystemExit"), holds=ends_early),
    runs_code("T16 quietly", EXITS, mine("leaves_well"), ONE, says=("SystemExit",), holds=nothing_saved),
    runs_code("T16 at times", EXITS, mine("leaves_at_times"), ONE, holds=at_times("reward/faults")),
    runs_code("T16 parser and own", EXITS, combine("parses", "raises_its_own"), ONE,
        holds=at_times("reward/faults/parses", "reward/faults/raises_its_own")),
    dry("T16 dry", EXITS, *SMALL, mine("leaves"), says=("right answers", "SystemExit"), prepare=write_code()),
    plays_world("T16 step", "Leaves", "env.moment=step", holds=at_times("episodes/faults")),
    plays_world("T16 reset", "Leaves", "env.moment=reset", holds=at_times("episodes/faults")),
    plays_world("T16 answer", "Leaves", "env.moment=answer", says=("score",), holds=nothing_saved),
    plays_world("T16 answers", "HasParser", holds=at_times("episodes/faults")),
    plays_world("T16 tool and metric", "HasToolAndMetric", "log.eval_tasks=2", holds=PLAYS),
    refuses("T16 environment", EXITS, "env.name=code.py:Refuses", ONE, says=("code.py", "SystemExit"), is_dry=False,
        prepare=write_code()),
    refuses("T16 import", EXITS, mine("half"), ONE, says=("code.py", "SystemExit"),
        prepare=lambda folder: (folder / "code.py").write_text("exit(3)\n")),
    runs_code("T19 numbers", "THUDM/slime#2121 openai/gym#400", combine(*NUMBERS), ONE, holds=are_numbers),
    runs_code("T19 world", "openai/gym#400", "env.name=code.py:Measures", ONE, "log.eval_tasks=2",
        holds=measures_numbers),
    scores_nothing("nothing", "huggingface/trl#2737 huggingface/trl#3452"),
    scores_nothing("lost", "modelscope/ms-swift#8123"),
]

# ---------------------------------------------------------------------- T17: saved folders
PROCESSOR, EASY = "2U1/Qwen-VL-Series-Finetune#34", "hiyouga/EasyR1#48"
SAVED_ROWS = [
    Case("T01 adapter", "OpenGVLab/InternVL#525", (*SMALL, ONE, "model.name=prior/adapter"), 2,
        ("model.name = 'prior/adapter'", "adapter"), is_dry=True, beside="lora"),
    Case("T17", PROCESSOR, (*SMALL, ONE, "model.name=prior/checkpoints/checkpoint-2"), beside="sft"),
    looks("T17 sft", PROCESSOR, "sft", "checkpoints/checkpoint-1", "model"),
    looks("T17 sft and lora", EASY, "sft and lora", "checkpoints/checkpoint-1", "adapter", "model"),
    looks("T17 lora", EASY, "lora", "checkpoints/checkpoint-1", "adapter", "model"),
    looks("T17 grpo", EASY, "plain", "checkpoints/checkpoint-2", "model"),
]
# fmt: on

TABLE = [
    *WEIGHT_ROWS, *RESUME_ROWS, *ADAPTER_ROWS, *NUMBER_ROWS, *LIBRARY_ROWS, *PATH_ROWS, *LONG_ROWS, *CODE_ROWS,
    *SAVED_ROWS,
]  # fmt: skip


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


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.id)
def test_a_run_does_what_its_config_says(case, made, call, tmp_path, monkeypatch, capsys):
    resumed, beside = (name and made(name) for name in (case.resumes, case.beside))
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
    checks = case.holds if isinstance(case.holds, tuple) else (case.holds,)
    status, said, model = 0, "", None
    if case.command == "load":
        model = check(Plan(schema.load(case.config, case.given))).load().model
    elif case.command:
        before = take_digest(tmp_path)
        if case.is_dry or case.command == "dry run":
            status, said = ask_plan(case, copy if resumed else None)
        else:
            status, said = call(case, *(["log.name=base", f"--resume={copy}"] if resumed else []))
        check_words(case, status, said)
        if case.status and not case.starts:
            assert take_digest(tmp_path) == before, "something was written"
            assert list_runs(tmp_path) == (["base"] if resumed else [])
    for holds in checks:
        holds(Outcome(status, said, tmp_path, made, model))


REFUSED = next(case for case in TABLE if case.is_dry and not case.prepare and not case.resumes)
REFUSED_TO_RESUME = next(case for case in TABLE if case.is_dry and case.resumes)


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_command_refuses_as_the_plan_does(call, made, tmp_path, monkeypatch, more):
    monkeypatch.chdir(tmp_path)
    check_words(REFUSED, *call(REFUSED, *more))
    assert list(tmp_path.iterdir()) == []
    shutil.copytree(made(REFUSED_TO_RESUME.resumes), "runs/base")
    before = take_digest(tmp_path)
    check_words(REFUSED_TO_RESUME, *call(REFUSED_TO_RESUME, "log.name=base", "--resume=runs/base", *more))
    assert take_digest(tmp_path) == before


QUICKSTART = Plan(schema.load("quickstart"))
SHOWN = [row for row in dry_run.ROWS if row.ask is not dry_run.show_memory]  # which takes seconds


def ask_plan(case, resumed):
    """What `train` says of a config, and of the run that it resumes, before anything is written: (status, words)."""
    try:
        plan = Plan(schema.load(case.config, case.given))
        if plan.config.model == QUICKSTART.config.model:  # which is then found once
            plan.model = QUICKSTART.model
        if resumed:  # what can be resumed was checked when it began
            location = find_run(resumed.parent, resumed.name, str(resumed))
            return 0, "".join(list_changes(location.folder, plan.config.model_dump(mode="json", exclude_none=True)))
        plan = check(plan, SHOWN if case.says and not case.status else ())
        return 0, dry_run.render_report(plan) if case.says else ""
    except ViewboxError as error:
        return 2, str(error)


def check_words(case, status, said):
    assert status == case.status, f"status {status}; right: {case.status}\n{said[-2000:]}"
    missing = [word for word in case.says if word.lower() not in said.lower()]
    assert not missing, f"not said: {missing}\n{said[-2000:]}"
