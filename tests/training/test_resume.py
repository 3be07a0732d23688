"""A run that was stopped goes on as if it had not been: after kill -9, Ctrl-C, or from a checkpoint of one's choice.

Every setting of a resumed run takes effect, is refused, or is reported as kept: none is announced and not used.
"""

import json
import os
import random
import signal
import time
from dataclasses import fields
from pathlib import Path
from shutil import copytree

import pytest
import torch
from accelerate import skip_first_batches
from accelerate.data_loader import prepare_data_loader
from safetensors.torch import load_file
from torch.utils.data import DataLoader, RandomSampler
from transformers import TrainerState, TrainingArguments
from trl import GRPOConfig
from trl.trainer.utils import RepeatSampler

from tests.support import forks, killer
from tests.support.runs import have_equal_weights, on_path, read_steps, read_weights, run, write_config
from tests.support.tables import each
from viewbox.configs.schema import parse
from viewbox.configs.sections import EnvSection, LogSection, ModelSection, RolloutSection
from viewbox.configs.train_sections import LoraSection, TrainSection
from viewbox.envs.digits import Digits
from viewbox.errors import ConfigError
from viewbox.registry import list_plugins
from viewbox.rollouts.store.reader import load
from viewbox.rollouts.store.run_folder import lock_folder, read_json
from viewbox.training import checkpoints, resume
from viewbox.training import command as train
from viewbox.training.checkpoints import OrdersEpochs
from viewbox.training.reporting import callbacks
from viewbox.training.resume import KEPT, REFUSED, find_rule, list_changes
from viewbox.training.trainer_args import explain_refusal

ENV = {"num_tasks": 4}  # two steps an epoch: 6 steps are three
TRAIN = {"max_steps": 6, "lr_scheduler_type": "linear", "save_steps": 1, "save_total_limit": 3}
LOG = {"eval_tasks": 0, "episodes_per_step": 3}
SUPERVISED = {
    "env": {"name": "digits", "max_turns": 3},
    "train": {**TRAIN, "method": "sft", "demonstrations": {"count": 8}, "per_device_train_batch_size": 4,
        "save_total_limit": None},
}  # fmt: skip


def write(folder, weights, name, /, **sections):
    env, train = ENV | sections.pop("env", {}), TRAIN | sections.pop("train", {})
    return write_config(folder, weights, name, **sections, env=env, train=train, log=LOG)


@pytest.fixture
def config(tmp_path, tiny_folder):
    """Writes a config into the test's folder, changed as given; returns its path."""
    with on_path(tmp_path):
        yield lambda name="run", **sections: write(tmp_path, tiny_folder, name, **sections)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, tiny_folder):
    with on_path(tmp_path_factory.mktemp("whole")) as folder:
        return run(write(folder, tiny_folder, "whole"))


@pytest.fixture
def whole(uninterrupted, tmp_path):
    """A run that nothing interrupted, the test's own copy."""
    return Path(copytree(uninterrupted, tmp_path / "out" / uninterrupted.name))


def lines(folder):
    """The stored episodes as they stand in the file, every one of them whole."""
    stored = [json.loads(line) for line in (folder / "episodes" / "episodes.jsonl").read_text().splitlines()]
    numbers = [episode["info"]["number"] for episode in stored]
    assert len(numbers) == len(set(numbers))
    return {number: episode["turns"] for number, episode in zip(numbers, stored, strict=True)}


def resumes_alike(path, folder, reference, steps, capsys):
    """Resumed from each of these steps, the run in `folder` becomes what `reference` is."""
    for step in steps:
        capsys.readouterr()
        assert run(path, f"--resume={folder}/checkpoints/checkpoint-{step}") == folder
        assert f"resumed from step {step}" in capsys.readouterr().out
        assert read_steps(folder) == read_steps(reference)
        assert lines(folder) == lines(reference)
        assert have_equal_weights(folder, reference)


def test_a_resumed_run_logs_and_learns_what_a_whole_one_does(config, whole, uninterrupted, capsys, tiny_folder):
    """Within the third epoch, and where it begins. Later checkpoints are set aside, and as many are kept as asked."""
    assert [line["epoch"] for line in read_steps(whole)] == [0.5, 1, 1.5, 2, 2.5, 3]
    assert [checkpoints.get_step(path) for path in checkpoints.list_complete(whole)] == [4, 5, 6]
    assert not (whole / "checkpoints" / checkpoints.DRAFT).exists()
    resumes_alike(config("whole"), whole, uninterrupted, [5, 4], capsys)
    assert (whole / "checkpoints" / "superseded-checkpoint-6").is_dir()
    assert len({line["reward"] for line in read_steps(whole)}) > 1
    before = load_file(tiny_folder / "model.safetensors")
    assert any(not torch.equal(value, before[name]) for name, value in read_weights(whole).items() if name in before)


def test_the_episodes_of_a_step_are_those_that_it_learned_from_not_those_of_an_earlier_attempt(config, whole, capsys):
    before = lines(whole)
    changed = ("rollout.temperature=3", "log.episodes_per_step=null", "log.eval_tasks=2", "log.eval_steps=1")
    run(config("whole"), f"--resume={whole}/checkpoints/checkpoint-4", *changed)
    after, played = lines(whole), {}
    kept = {number for number in before if number < 4 * 8}
    assert all(after[number] == before[number] for number in kept)
    assert any(after[number] != before[number] for number in before.keys() - kept)
    for episode in load(whole):
        played.setdefault(episode.info["step"], []).append(episode.scores.total)
    for line in read_steps(whole)[4:]:
        assert len(played[line["step"]]) == 8
        assert sum(played[line["step"]]) / 8 == pytest.approx(line["reward"], abs=1e-6)
    aside = (whole / "episodes" / "superseded-episodes.jsonl").read_text().splitlines()
    assert [json.loads(line)["info"]["step"] for line in aside] == [5, 5, 5, 6, 6, 6]
    run(config("whole"), f"--resume={whole}/checkpoints/checkpoint-5", *changed, "train.learning_rate=0.1")
    assert (whole / "held_out" / "superseded-6").is_dir()
    rewards = [episode.scores.total for episode in load(whole / "held_out" / "6")]
    assert sum(rewards) / 2 == pytest.approx(read_steps(whole)[-1]["held_out/reward"], abs=1e-6)


# Sums that are not logged yet, several updates a batch, an advantage a reply; one batch over several steps
PENDING = [
    ({"logging_steps": 4, "num_iterations": 2, "credit": {"type": "turns"}}, [3, 2]),
    ({"gradient_accumulation_steps": 2, "per_device_train_batch_size": 4, "steps_per_generation": 4}, [1]),
]


@pytest.mark.parametrize(("settings", "steps"), PENDING, ids=["updates", "batch"])
def test_a_run_with_something_pending_is_resumed_alike(config, settings, steps, capsys):
    """Within the second epoch, and of two of them where it begins."""
    path = config(env={"num_tasks": 4}, train={**settings, "max_steps": 4, "save_total_limit": None})
    folder = run(path)
    reference = copytree(folder, folder.with_name("reference"))
    resumes_alike(path, folder, reference, steps, capsys)


def test_a_supervised_run_is_resumed_alike_in_every_epoch(tmp_path, tiny_folder, capsys):
    more = {"rollout": {"max_completion_tokens": 1000}, "log": {"eval_tasks": 0}}
    with on_path(tmp_path):
        path = write_config(tmp_path, tiny_folder, "run", SUPERVISED, **more)
        folder = run(path)
        reference = copytree(folder, folder.with_name("reference"))
        assert [line["epoch"] for line in read_steps(folder)] == [0.5, 1, 1.5, 2, 2.5, 3]
        for step in (5, 4, 3):
            run(path, f"--resume={folder}/checkpoints/checkpoint-{step}")
            assert read_steps(folder) == read_steps(reference)
            assert have_equal_weights(folder, reference)


@each("kind, processes", [(kind, count) for kind in ("grpo", "sft") for count in (1, 2)])
def test_an_epoch_has_one_order_whatever_was_drawn_before(kind, processes):
    """Two epochs in a row, and the second one of a process that begins in its middle."""

    def make():
        torch.manual_seed(3)
        sampler = RepeatSampler(range(12), 1, seed=3) if kind == "grpo" else RandomSampler(range(12))
        loader = DataLoader(range(12), batch_size=2, sampler=sampler)
        settings = {"num_processes": processes, "process_index": 0, "use_seedable_sampler": True}
        return prepare_data_loader(loader, put_on_device=False, **settings)

    def read(loader, epoch, skipped=0):
        OrdersEpochs().on_epoch_begin(None, TrainerState(epoch=epoch), None, train_dataloader=loader)
        loader = skip_first_batches(loader, skipped) if skipped else loader
        loader.set_epoch(int(epoch))
        return [batch.tolist() for batch in loader]

    loader = make()
    first, second = read(loader, 0.0), read(loader, 1.0)
    assert first != second
    assert read(make(), 1.0) == second
    assert read(make(), 1.5, skipped=2) == second[2:]


def test_resume_without_a_name_starts_a_run_and_goes_on_from_its_latest_checkpoint(config, capsys):
    path = config("again", train={"max_steps": 1})
    run(path, "--resume")
    assert "nothing to resume" in capsys.readouterr().out
    folder = run(path, "--resume", "train.max_steps=2")
    said = capsys.readouterr().out
    assert "resumed from step 1" in said
    assert "changed: train.max_steps: 1 → 2" in said
    assert [line["step"] for line in read_steps(folder)] == [1, 2]
    assert (folder / "config-until-step-1.yaml").is_file()


NOT_RESUMED = {  # what is resumed, and words of the refusal
    "nowhere": ("--resume nowhere", "is not a run", "a run's folder (with config.yaml)"),
    "out/whole-seed0/checkpoints/checkpoint-3": ("checkpoint-3", "checkpoints/checkpoint-4, ", "checkpoint-6"),
    "out/whole-seed0/checkpoints/checkpoint-x": ("checkpoint-x", "checkpoint-<step>"),
}


def test_what_cannot_be_resumed_is_refused_and_a_run_killed_after_its_last_step_is_finished_without_another(
    config, whole, capsys, monkeypatch
):
    monkeypatch.chdir(whole.parents[1])
    path = config("whole")
    for given, words in NOT_RESUMED.items():
        capsys.readouterr()
        run(path, f"--resume={given}", code=2)
        said = capsys.readouterr().err
        assert all(word in said for word in words), said
    with lock_folder(whole):
        run(path, "--resume", code=2)
    assert "another process" in capsys.readouterr().err
    before, learned = read_steps(whole), read_weights(whole)
    (whole / "summary.json").unlink()
    (whole / "model" / "model.safetensors").unlink()
    run(path, "--resume")
    assert read_steps(whole) == before
    assert (whole / "summary.json").is_file()
    assert all(torch.equal(value, learned[name]) for name, value in read_weights(whole).items())


# ---------------------------------------------------------------------- signals
def wait_for(what, seconds=180):
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.02)


def metrics_so_far(folder):
    path = folder / "metrics.jsonl"
    return path.read_text().splitlines() if path.exists() else []


def test_ctrl_c_saves_a_checkpoint_and_ends_and_the_run_goes_on_from_it(config, whole):
    path = config("stopped", train={"save_steps": 100})
    process = forks.start(train.main, path, folder=path.parent)
    folder = path.parent / "out" / "stopped-seed0"
    wait_for(lambda: len(metrics_so_far(folder)) >= 1)
    os.kill(process.pid, signal.SIGINT)
    status, said = process.wait()
    assert status == 130, said
    assert "Traceback" not in said
    assert "stopping after this step" in said
    (at,) = checkpoints.list_complete(folder)
    assert f"stopped at step {checkpoints.get_step(at)}" in said
    run(path, "--resume")
    assert read_steps(folder) == read_steps(whole)
    assert have_equal_weights(folder, whole)


SLOW = """
import asyncio
from guesses import Guesses
class Slow(Guesses):
    async def step(self, state, reply):
        await asyncio.sleep(30 * (self.split == "test"))
        return await super().step(state, reply)
"""


@pytest.mark.parametrize("in_training", [False, True], ids=["before training", "in training"])
def test_a_signal_in_held_out_play_is_obeyed_at_once(tmp_path, tiny_folder, in_training):
    """Ten of its tasks in slots of two would take minutes. In training the step is saved."""
    (tmp_path / "slow.py").write_text(SLOW)
    env = {"name": "slow:Slow", "max_turns": 3, "num_tasks": 12, "eval": {"split": "test"}}
    log = {"eval_tasks": 10} | ({"eval_steps": 1} if in_training else {})
    path = write_config(tmp_path, tiny_folder, "run", env=env, rollout={"slots": 2}, log=log)
    folder = tmp_path / "out" / "run-seed0"
    if in_training:  # as a run that was measured before: it is in `before.json`
        (tmp_path / "slow.py").write_text(SLOW.replace("30", "0"))
        with on_path(tmp_path):
            run(path, "train.max_steps=1")
        (tmp_path / "slow.py").write_text(SLOW)
    process = forks.start(train.main, path, *(["--resume"] if in_training else []), folder=tmp_path)
    output = lambda: process.output.read_text() if process.output.exists() else ""  # noqa: E731
    wait_for(lambda: "held-out play: 0 of 10" in output() or process.status is not None)
    os.kill(process.pid, signal.SIGTERM)
    status, said = process.wait(timeout=25)
    assert status == 130, said
    assert "stopped in held-out play" in said
    assert f"--resume={folder}" in said
    assert "Traceback" not in said
    assert [path.name for path in checkpoints.list_complete(folder)][-1:] == ["checkpoint-2"] * in_training


def test_a_second_ctrl_c_ends_at_once():
    interrupt = callbacks.Interrupt()
    with interrupt.handle_signals():
        interrupt._handle_signal(signal.SIGINT, None)
        assert [signal.getsignal(number) for number in callbacks.SIGNALS] == [signal.SIG_DFL] * 2
    assert signal.getsignal(signal.SIGINT) not in (signal.SIG_DFL, None)


# 18 in all with the moments below where VIEWBOX_KILLS=12; each costs a process
KILLS = int(os.environ.get("VIEWBOX_KILLS", "1"))
BY_NIGHT = [("a metrics line", 3), ("the rename", 5), ("forgetting an old checkpoint", 8)]
MOMENTS = [  # what is going on, and at which time it is killed
    ("an append", 8), ("saving tensors", 8), *(pytest.param(*row, marks=pytest.mark.nightly) for row in BY_NIGHT),
]  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(KILLS))
def test_killed_at_a_random_moment_it_goes_on_from_the_last_whole_checkpoint(config, whole, number, capsys):
    chance = random.Random(number)
    path = config("killed")
    folder = path.parent / "out" / "killed-seed0"
    process = forks.start(train.main, path, folder=path.parent)
    wanted = chance.randrange(1, 6)
    wait_for(lambda: process.status is not None or len(metrics_so_far(folder)) >= wanted)
    time.sleep(chance.random() * 0.4)
    process.kill()
    process.wait()
    goes_on(path, folder, whole, capsys)


@pytest.mark.parametrize(("moment", "number"), MOMENTS)
def test_killed_in_the_middle_of_something_it_goes_on_from_the_last_whole_checkpoint(
    config, whole, moment, number, capsys
):
    path = config("killed")
    status, said = forks.start(killer.main, moment, number, path, folder=path.parent).wait()
    assert status == -signal.SIGKILL, said
    goes_on(path, path.parent / "out" / "killed-seed0", whole, capsys)


def goes_on(path, folder, whole, capsys):
    """The killed run in `folder` is resumed, and nothing tells it from the one that nothing interrupted."""
    stored = episodes_in(folder)
    saved = [checkpoints.get_step(path) for path in checkpoints.list_complete(folder)]
    capsys.readouterr()
    run(path, "--resume")
    assert f"resumed from step {saved[-1] if saved else 0}" in capsys.readouterr().out
    assert read_steps(folder) == read_steps(whole)
    assert lines(folder) == lines(whole)
    assert stored <= episodes_in(folder)
    assert have_equal_weights(folder, whole)


def episodes_in(folder):
    """The whole lines, as text, those that were set aside included."""
    texts = [file.read_text() for file in (folder / "episodes").glob("*episodes*.jsonl")]
    return {line for text in texts for line in text.splitlines(keepends=True) if line.endswith("\n")}


def test_a_resumed_run_computes_with_the_threads_it_began_with(config, capsys, monkeypatch):
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)  # other tests share this process
    folder = run(config(model={"threads": 3}, train={"max_steps": 1}))
    assert "threads: 3, as given" in capsys.readouterr().out
    path = folder / "versions.json"
    saved = json.loads(path.read_text())
    path.write_text(json.dumps({**saved, "threads": 5}))
    run(config(train={"max_steps": 2}), f"--resume={folder}")
    assert "threads: 5, as when this run began; model.threads sets them" in capsys.readouterr().out
    for wrong in (0, "two", True, 10**9):
        path.write_text(json.dumps({**saved, "threads": wrong}))
        run(config(train={"max_steps": 3}), f"--resume={folder}", code=2)
        assert f"threads = {wrong!r}; allowed: 1 to 1024" in capsys.readouterr().err


# ---------------------------------------------------------------------- what a changed setting does
# What a checkpoint holds cannot change under it; every other key takes effect.
STAYS = """
    env.name lora.alpha lora.quantize lora.r lora.target_modules model.freeze model.name model.revision model.tiny
    train.best_of_group train.dataloader_drop_last train.demonstrations train.episodes
    train.generation_batch_size train.gradient_accumulation_steps train.method train.num_generations
    train.num_iterations train.optim train.optim_args train.optim_target_modules train.per_device_train_batch_size
    train.seed train.shuffle_dataset train.steps_per_generation train.where
"""


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


def test_every_key_has_one_rule_those_that_stay_are_refused_and_every_other_is_named(tmp_path):
    keys = list_keys()
    assert len(keys) > 150
    assert {key for key in keys if find_rule(REFUSED, key)} == set(STAYS.split())
    assert {key for key in keys if find_rule(KEPT, key)} == {"log.dir", "log.name"}
    assert {*REFUSED, *KEPT} <= keys
    assert not REFUSED.keys() & KEPT.keys()
    for key in sorted(keys):
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


def test_a_default_that_is_written_out_is_no_change_and_what_was_recorded_is_of_the_tasks_of_the_start(tmp_path):
    def ask(saved, **sections):
        (tmp_path / "config.yaml").write_text(saved)
        return list_changes(tmp_path, sections)

    start = "train: {seed: 0}"
    assert ask(start, train={"seed": 0, "num_iterations": 1, "shuffle_dataset": True}) == []
    own = {"seed": 0, "logging_steps": 1, "save_steps": 50, "learning_rate": 1e-6, "gradient_checkpointing": False}
    assert ask(start, train=own | {"optim": "adamw_torch_fused"}) == []  # viewbox's own, where TRL has others
    older = "train: {seed: 0, dynamic_sampling_rounds: 0}"  # of an older version
    assert ask(older, train={"seed": 0}) == []
    assert ask(older, train={"seed": 0, "logging_steps": 10}) == ["changed: train.logging_steps: 1 → 10"]
    with pytest.raises(ConfigError, match=r"train\.num_iterations = 2: .* was started with 1"):
        ask(older, train={"seed": 0, "num_iterations": 2})
    method = {"method": "sft", "demonstrations": {"count": 8}}
    saved = "env: {noise: 1, eval: {noise: 2}}\ntrain: {method: sft, demonstrations: {count: 8}}"
    with pytest.raises(ConfigError, match=r"env\.noise = 40: .* its demonstrations are recorded"):
        ask(saved, env={"noise": 40, "eval": {"noise": 2}}, train=method)
    changes = ask(saved, env={"noise": 1, "eval": {"noise": 40}}, train=method)
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


NEW = {
    "save_total_limit": 5, "learning_rate": 3e-3, "weight_decay": 0.2, "adam_beta1": 0.8, "adam_beta2": 0.95,
    "adam_epsilon": 1e-6, "lr_scheduler_type": "cosine", "warmup_steps": 1, "max_steps": 4, "save_steps": 1,
    "logging_steps": 2,
}  # fmt: skip


def test_nothing_that_a_checkpoint_holds_overrides_a_setting_of_the_resumed_run(tiny_folder, tmp_path):
    """Resumed with other settings, a run ends with the same ones as a run that had them from the start."""
    with on_path(tmp_path):
        path = write_config(tmp_path, tiny_folder, log={"eval_tasks": 0})
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
            run(path, "train.max_steps=2", *change, f"--resume={folder}", name=name)
            kept = (folder / "episodes" / "episodes.jsonl").read_text().splitlines()
            # steps 1 and 2 share a batch unless step 2 has to make its own
            assert {json.loads(line)["info"]["step"] for line in kept} == ({1} if name == "same" else {1, 2})


OTHER_PLAY = [  # of held-out tasks; a temperature of 0 is one, not a missing one
    {"log": {"eval_temperature": 0}}, {"log": {"eval_temperature": 0.5}}, {"rollout": {"temperature": 0.5}},
    {"log": {"eval_tasks": 3}}, {"log": {"eval_seed": 5}}, {"env": {"name": "digits", "eval": {"noise": 40.0}}},
    {"reward": {"type": "iou", "field": "bbox"}},
]  # fmt: skip


def test_held_out_play_of_other_settings_is_other_play():
    def ask(sections):
        config = parse({"model": {"name": "m"}, "env": {"name": "digits"}, **sections})
        return resume.fingerprint_held_out(config, Digits())

    same = ask({})
    assert ask({"log": {"eval_temperature": 1.0}}) == ask({"log": {"eval_temperature": None}}) == same
    assert same not in [ask(sections) for sections in OTHER_PLAY]
