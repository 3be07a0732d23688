"""A whole run of each family: what it trains, resumes, saves; what others load of it gives the same log-probs."""

import asyncio
import json
import shutil

import pytest
import torch
import yaml
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText, AutoProcessor, GenerationConfig

from tests.support.families import list_names, save_family
from tests.support.runs import have_equal_weights, on_path, read_steps, read_weights, run
from viewbox.engines.hf.architectures import Architecture
from viewbox.rollouts.job import build_job
from viewbox.rollouts.play import play_many

TOLERANCE = {"qwen3_5": 2e-4}  # fp32, else 1e-5; its plain forward is up to 1.5e-4 from float64 (docs/engine.md)
LOSS = {**TOLERANCE, "llava_onevision": 2e-5}  # engine and loss are 5e-6 and 8e-6 from float64, on opposite sides
ALL = list_names("gemma3")  # files have other names than memory; sliding layers; pictures that see themselves
TRAIN = {"max_steps": 2, "save_steps": 1, "learning_rate": 3e-2, "lr_scheduler_type": "constant"}
LOOKS = {"name": "tests.support.looks:Looks", "max_turns": 4, "tools": ["zoom"], "num_tasks": 16}
SIZES = {"slots": 4, "max_reply_tokens": 6, "max_completion_tokens": 1500}
GRPO = {
    "env": LOOKS, "reward": {"type": "python", "function": "tests.support.looks:add_up"},
    "train": {"method": "grpo", "num_generations": 3, "per_device_train_batch_size": 6, "beta": 0.0, **TRAIN},
}  # fmt: skip
DEMONSTRATED = {
    "env": {"name": "digits", "max_turns": 3},
    "train": {"method": "sft", "demonstrations": {"count": 4}, "per_device_train_batch_size": 4, **TRAIN},
}
RUNS = {"grpo": (GRPO, ()), "lora": (GRPO, ("lora.r=4",)), "sft": (DEMONSTRATED, ())}


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    with on_path(tmp_path_factory.mktemp("families")) as folder:
        yield folder


@pytest.fixture(scope="module", params=ALL)
def family(request, workplace):
    return save_family(request.param, workplace / request.param)


def start(base, kind):
    sections, overrides = RUNS[kind]
    path = base.parent / f"{base.name}-{kind}.yaml"
    log = {"dir": str(base.parent / "out"), "eval_tasks": 0}
    model = {"name": str(base), "dtype": "float32"}
    path.write_text(yaml.safe_dump({**sections, "model": model, "rollout": SIZES, "log": log}))
    return path, run(path, *overrides, name=path.stem)


@pytest.fixture(scope="module")
def runs(family):
    """Each kind of run is made once; the largest log-prob of its base is far from that of what it trained."""
    made = {}
    return lambda kind: made[kind] if kind in made else made.setdefault(kind, start(family, kind))


def play(folder):
    """The tokens of episodes that `viewbox rollout` plays with a saved model."""
    sizes = [f"rollout.{name}={value}" for name, value in SIZES.items()]
    looks = [f"env.{name}={json.dumps(value)}" for name, value in LOOKS.items() if name != "name"]
    job = build_job(env=LOOKS["name"], model=str(folder), tasks=3, overrides=["model.dtype=float32", *sizes, *looks])

    async def gather():
        return [one.tokens async for one in play_many(job.env, job.tasks, job.generator, concurrency=4, group=2)]

    return asyncio.run(gather())


@torch.no_grad()
def measure_difference(model, processor, episodes):
    """The largest difference between recorded log-probs and those of a forward by transformers alone."""
    worst, asks = 0.0, Architecture(model.config, processor)
    for one in episodes:
        ids = torch.tensor([one.prompt_ids + one.completion_ids])
        pictures = [asks.preprocess(image.open()) for image in one.images]
        vision = asks.build_vision_inputs(pictures, "cpu", torch.float32) | asks.build_token_types(ids)
        logits = model(input_ids=ids, use_cache=False, **vision).logits[0, len(one.prompt_ids) - 1 : -1].float()
        found = logits.log_softmax(-1).gather(1, torch.tensor(one.completion_ids)[:, None])[:, 0]
        own = torch.tensor(one.mask).bool()
        worst = max(worst, (found - torch.tensor(one.logprobs)).abs()[own].max().item())
    assert {len(one.images) for one in episodes} == {1, 2, 3}
    return worst


def load(folder):
    return AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()


def test_the_engine_and_the_loss_agree_and_the_run_goes_on_from_its_checkpoint_as_if_it_had_never_stopped(family, runs):
    path, folder = runs("grpo")
    steps = read_steps(folder)
    assert max(line["sampling/logp_difference/max"] for line in steps) <= LOSS.get(family.name, 1e-5)
    assert all(line["grad_norm"] > 0 and line["tools/zoom/success"] == 1 for line in steps)
    whole = shutil.copytree(folder, folder.with_name(f"{folder.name}-whole"))
    run(path, f"--resume={folder}/checkpoints/checkpoint-1", name=folder.name)
    assert read_steps(folder) == steps
    assert have_equal_weights(folder, whole)


@pytest.mark.parametrize("kind", ["grpo", *(pytest.param(kind, marks=pytest.mark.nightly) for kind in ("lora", "sft"))])
def test_a_saved_model_has_all_that_its_base_has_and_others_load_it_and_give_the_same_log_probs(family, runs, kind):
    saved = runs(kind)[1] / "model"
    model, processor, episodes = load(saved), AutoProcessor.from_pretrained(saved), play(saved)
    assert measure_difference(model, processor, episodes) <= TOLERANCE.get(family.name, 1e-5)
    assert measure_difference(load(family), processor, episodes) > 1e-3  # it was trained
    if kind == "lora":
        adapter = saved.parent / "adapter"
        assert json.loads((adapter / "adapter_config.json").read_text())["base_model_name_or_path"] == str(family)
        adapted = PeftModel.from_pretrained(load(family), adapter).eval().merge_and_unload()
        difference = measure_difference(adapted, AutoProcessor.from_pretrained(adapter), episodes)
        assert difference <= TOLERANCE.get(family.name, 1e-5)
    assert {file.name for file in family.iterdir()} <= {file.name for file in saved.iterdir()}
    given = {file: json.loads((family / file).read_text()) for file in ("generation_config.json", "config.json")}
    kept = {file: json.loads((saved / file).read_text()) for file in given}
    assert kept["generation_config.json"] == given["generation_config.json"]
    assert kept["config.json"]["architectures"] == given["config.json"]["architectures"]
    assert GenerationConfig.from_pretrained(saved).eos_token_id
    assert (saved / "chat_template.jinja").read_text() == (family / "chat_template.jinja").read_text()
    weights, before = read_weights(saved.parent), load_file(family / "model.safetensors")
    assert weights.keys() == before.keys()  # tied ones once, and no name of peft or of a compiler
    assert {value.dtype for value in weights.values()} == {torch.float32}
