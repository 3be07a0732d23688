"""Every setting of a resumed run takes effect, is refused, or is reported as kept: none is announced and not used."""

import json
from dataclasses import fields
from pathlib import Path
from shutil import copytree

import pytest
import torch
from transformers import TrainingArguments
from trl import GRPOConfig

from tests.support.runs import RUN, on_path, read_steps, run, write_config
from viewbox.configs.schema import parse
from viewbox.configs.sections import EnvSection, LogSection, ModelSection, RolloutSection
from viewbox.configs.train_sections import LoraSection, TrainSection
from viewbox.envs.digits import Digits
from viewbox.errors import ConfigError
from viewbox.plugins import list_plugins
from viewbox.rollouts.store.run_folder import read_json
from viewbox.training import resume
from viewbox.training.resume import KEPT, REFUSED, find_rule, list_changes
from viewbox.training.trainer_args import explain_refusal

# What a checkpoint holds cannot change under it; every other key takes effect.
STAYS = """
    env.name lora.alpha lora.quantize lora.r lora.target_modules model.freeze model.name model.revision model.tiny
    train.best_of_group train.dataloader_drop_last train.demonstrations train.episodes
    train.generation_batch_size train.gradient_accumulation_steps train.method train.num_generations
    train.num_iterations train.optim train.optim_args train.optim_target_modules train.per_device_train_batch_size
    train.seed train.shuffle_dataset train.steps_per_generation train.where
"""
SUPERVISED = {
    "env": {"name": "digits", "max_turns": 3},
    "train": {"method": "sft", "demonstrations": {"count": 8}, "per_device_train_batch_size": 4},
}
NEW = {
    "save_total_limit": 5, "learning_rate": 3e-3, "weight_decay": 0.2, "adam_beta1": 0.8, "adam_beta2": 0.95,
    "adam_epsilon": 1e-6, "lr_scheduler_type": "cosine", "warmup_steps": 1, "max_steps": 4, "save_steps": 1,
    "logging_steps": 2,
}  # fmt: skip


def list_keys():
    """Every key of a config's sections, those of the trainers' arguments and of each engine among them."""
    sections = {"train": TrainSection, "lora": LoraSection, "model": ModelSection, "env": EnvSection, "log": LogSection}
    keys = {f"{section}.{name}" for section, kind in sections.items() for name in kind.model_fields}
    for engine in list_plugins("engines"):
        keys |= {f"rollout.{name}" for name in RolloutSection.find_class({"engine": engine}).model_fields}
    for kind, method in ((GRPOConfig, "grpo"), (TrainingArguments, "sft")):
        taken = (field.name for field in fields(kind) if field.init and not explain_refusal(field.name, method))
        keys |= {f"train.{name}" for name in taken}
    return keys | {"reward"}


def test_every_key_has_one_rule_and_every_rule_a_key():
    keys = list_keys()
    assert len(keys) > 150
    assert {key for key in keys if find_rule(REFUSED, key)} == set(STAYS.split())
    assert {key for key in keys if find_rule(KEPT, key)} == {"log.dir", "log.name"}
    assert {*REFUSED, *KEPT} <= keys
    assert not REFUSED.keys() & KEPT.keys()


def test_each_key_that_stays_is_refused_and_every_other_is_named(tmp_path):
    for key in sorted(list_keys()):
        section, _, name = key.partition(".")
        before, now = ({section: {name: value}} if name else {section: value} for value in ("old", "new"))
        (tmp_path / "config.yaml").write_text(f"{section}: {{{name}: old}}" if name else f"{section}: old")
        if key in STAYS.split():
            with pytest.raises(ConfigError, match=rf"{key} = 'new': the run in .* was started with 'old'"):
                list_changes(tmp_path, now)
        else:
            kept = f"kept: {key}: old; the run stays in its folder"
            assert list_changes(tmp_path, now) == [kept if key in KEPT else f"changed: {key}: old → new"]
        assert list_changes(tmp_path, before) == []


def test_a_default_that_is_written_out_is_no_change(tmp_path):
    (tmp_path / "config.yaml").write_text("train: {seed: 0}")
    assert list_changes(tmp_path, {"train": {"seed": 0, "num_iterations": 1, "shuffle_dataset": True}}) == []
    own = {"seed": 0, "logging_steps": 1, "save_steps": 50, "learning_rate": 1e-6, "gradient_checkpointing": False}
    assert list_changes(tmp_path, {"train": own}) == []  # viewbox's own, where TRL has others
    (tmp_path / "config.yaml").write_text("train: {seed: 0, dynamic_sampling_rounds: 0}")  # of an older version
    assert list_changes(tmp_path, {"train": {"seed": 0}}) == []
    assert list_changes(tmp_path, {"train": {"seed": 0, "logging_steps": 10}}) == [
        "changed: train.logging_steps: 1 → 10"
    ]
    with pytest.raises(ConfigError, match=r"train\.num_iterations = 2: .* was started with 1"):
        list_changes(tmp_path, {"train": {"seed": 0, "num_iterations": 2}})


def test_what_was_recorded_is_of_the_tasks_of_the_start(tmp_path):
    method = {"method": "sft", "demonstrations": {"count": 8}}
    saved = "env: {noise: 1, eval: {noise: 2}}\ntrain: {method: sft, demonstrations: {count: 8}}"
    (tmp_path / "config.yaml").write_text(saved)
    with pytest.raises(ConfigError, match=r"env\.noise = 40: .* its demonstrations are recorded"):
        list_changes(tmp_path, {"env": {"noise": 40, "eval": {"noise": 2}}, "train": method})
    changes = list_changes(tmp_path, {"env": {"noise": 1, "eval": {"noise": 40}}, "train": method})
    assert changes == ["changed: env.eval.noise: 2 → 40"]


def read_settings(folder: Path, step: int):
    """What a checkpoint holds that is a setting: of the optimizer, of the schedule, and of the trainer's state."""
    checkpoint = folder / "checkpoints" / f"checkpoint-{step}"
    groups = torch.load(checkpoint / "optimizer.pt", weights_only=True)["param_groups"]
    schedule = torch.load(checkpoint / "scheduler.pt", weights_only=True)
    state = read_json(checkpoint / "trainer_state.json")
    names = ("save_steps", "logging_steps", "eval_steps", "max_steps", "num_train_epochs", "train_batch_size")
    return (
        [{name: value for name, value in group.items() if name != "params"} for group in groups],
        {name: value for name, value in schedule.items() if name != "_get_lr_called_within_step"},
        {name: state[name] for name in names},
    )


@pytest.mark.parametrize(
    "more",
    [
        {},
        pytest.param({"lora": {"r": 4}}, marks=pytest.mark.slow),
        pytest.param(SUPERVISED, marks=pytest.mark.slow),
    ],
    ids=["all weights", "adapters", "supervised"],
)
def test_nothing_that_a_checkpoint_holds_overrides_a_setting_of_the_resumed_run(tiny_folder, tmp_path, more):
    """Resumed with other settings, a run ends with the same ones as a run that had them from the start."""
    content = {**RUN, "log": {"eval_tasks": 0}} | more
    with on_path(tmp_path):
        path = write_config(tmp_path, tiny_folder, "run", content)
        changes = [f"train.{name}={value}" for name, value in NEW.items()]
        old = run(path, "train.max_steps=2", "train.save_steps=2", name="old")
        resumed = Path(copytree(old, old.with_name("resumed")))
        run(path, *changes, f"--resume={resumed}", name="resumed")
        fresh = run(path, *changes, name="fresh")
    assert read_settings(resumed, 4) == read_settings(fresh, 4)
    rates = {line["step"]: line["learning_rate"] for line in read_steps(resumed) if "learning_rate" in line}
    # the rate of step n is that after n - 1 steps: cosine from the end of one warm-up step to the fourth, by hand
    assert rates[4] == pytest.approx(3e-3 * 0.25, rel=1e-6)


def test_a_batch_that_still_serves_updates_is_made_again_with_other_settings(tiny_folder, tmp_path):
    """Its log-probs are of the old temperature, and it has none of a reference model."""
    train = {"num_iterations": 2, "max_steps": 1, "save_steps": 1, "save_total_limit": 5}
    with on_path(tmp_path):
        path = write_config(tmp_path, tiny_folder, train=train, log={"eval_tasks": 0})
        old = run(path, name="old")
        for name, change in (("same", []), ("beta", ["train.beta=0.1"]), ("cool", ["rollout.temperature=0.5"])):
            folder = Path(copytree(old, old.with_name(name)))
            run(path, "train.max_steps=3", *change, f"--resume={folder}", name=name)
            kept = (folder / "episodes" / "episodes.jsonl").read_text().splitlines()
            # steps 1 and 2 share a batch unless step 2 has to make its own
            assert {json.loads(line)["info"]["step"] for line in kept} == ({1, 3} if name == "same" else {1, 2, 3})


def test_greedy_held_out_play_is_other_play_than_sampled():
    """A temperature of 0 is one, not a missing one."""
    prints = {
        given: resume.fingerprint_held_out(
            parse({"model": {"name": "m"}, "env": {"name": "digits"}, "log": {"eval_temperature": given}}), Digits()
        )
        for given in (None, 0, 1.0)
    }
    assert prints[None] == prints[1.0] != prints[0]
