"""A run that was stopped goes on as if it had not been: after kill -9, Ctrl-C, or from a given checkpoint."""

import json
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch
from accelerate import skip_first_batches
from accelerate.data_loader import prepare_data_loader
from safetensors.torch import load_file
from torch.utils.data import DataLoader, RandomSampler
from transformers import TrainerState
from trl.trainer.utils import RepeatSampler

from tests.support import forks, killer
from tests.support.runs import have_equal_weights, on_path, read_steps, read_weights, run, write_config
from viewbox.rollouts.store.reader import load
from viewbox.rollouts.store.run_folder import lock_folder
from viewbox.training import checkpoints
from viewbox.training import command as train
from viewbox.training.checkpoints import OrdersEpochs
from viewbox.training.reporting import callbacks

ENV = {"num_tasks": 4}  # two steps an epoch: 6 steps are three
TRAIN = {"max_steps": 6, "lr_scheduler_type": "linear", "save_steps": 1, "save_total_limit": 3}
LOG = {"eval_tasks": 0, "episodes_per_step": 3}


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
    return Path(shutil.copytree(uninterrupted, tmp_path / "out" / uninterrupted.name))


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
    assert [checkpoints.get_step(one) for one in checkpoints.list_complete(whole)] == [4, 5, 6]
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


@pytest.mark.parametrize(
    "settings",
    [
        {"logging_steps": 4, "num_iterations": 2},
        {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 4, "steps_per_generation": 4},
        {"credit": {"type": "turns"}, "num_iterations": 2},
    ],
    ids=["sums not logged yet, several updates a batch", "one batch over several steps", "an advantage a reply"],
)
def test_a_run_with_something_pending_is_resumed_alike(config, settings, capsys):
    """Within the second epoch, and of two of them where it begins."""
    path = config(env={"num_tasks": 4}, train={**settings, "max_steps": 4, "save_total_limit": None})
    folder = run(path)
    reference = shutil.copytree(folder, folder.with_name("reference"))
    resumes_alike(path, folder, reference, [1] if "gradient_accumulation_steps" in settings else [3, 2], capsys)


def test_a_supervised_run_is_resumed_alike_in_every_epoch(tmp_path, tiny_folder, capsys):
    content = {
        "env": {"name": "digits", "max_turns": 3},
        "rollout": {"max_completion_tokens": 1000},
        "train": {**TRAIN, "method": "sft", "demonstrations": {"count": 8}, "per_device_train_batch_size": 4},
        "log": {"eval_tasks": 0},
    }
    with on_path(tmp_path):
        path = write_config(tmp_path, tiny_folder, "run", content, train={"save_total_limit": None})
        folder = run(path)
        reference = shutil.copytree(folder, folder.with_name("reference"))
        assert [line["epoch"] for line in read_steps(folder)] == [0.5, 1, 1.5, 2, 2.5, 3]
        for step in (5, 4, 3):
            run(path, f"--resume={folder}/checkpoints/checkpoint-{step}")
            assert read_steps(folder) == read_steps(reference)
            assert have_equal_weights(folder, reference)


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("kind", ["grpo", "sft"])
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


def test_a_run_killed_after_its_last_step_is_finished_without_another(config, whole):
    before, learned = read_steps(whole), read_weights(whole)
    (whole / "summary.json").unlink()
    (whole / "model" / "model.safetensors").unlink()
    run(config("whole"), "--resume")
    assert read_steps(whole) == before
    assert (whole / "summary.json").is_file()
    assert all(torch.equal(value, learned[name]) for name, value in read_weights(whole).items())


REFUSED = {  # what is resumed, and words of the refusal
    "nowhere": ("--resume nowhere", "is not a run", "a run's folder (with config.yaml)"),
    "out/whole-seed0/checkpoints/checkpoint-3": ("checkpoint-3", "checkpoints/checkpoint-4, ", "checkpoint-6"),
    "out/whole-seed0/checkpoints/checkpoint-x": ("checkpoint-x", "checkpoint-<step>"),
}


def test_what_cannot_be_resumed_or_is_still_being_written_is_refused_in_words(config, whole, capsys, monkeypatch):
    monkeypatch.chdir(whole.parents[1])
    path = config("whole")
    for given, words in REFUSED.items():
        capsys.readouterr()
        run(path, f"--resume={given}", code=2)
        said = capsys.readouterr().err
        assert all(word in said for word in words), said
    with lock_folder(whole):
        run(path, "--resume", code=2)
    assert "another process" in capsys.readouterr().err


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


@pytest.mark.parametrize("when", ["before training", "in training"])
def test_a_signal_in_held_out_play_is_obeyed_at_once(tmp_path, tiny_folder, when):
    """Ten of its tasks in slots of two would take minutes. In training the step is saved."""
    (tmp_path / "slow.py").write_text(SLOW)
    env = {"name": "slow:Slow", "max_turns": 3, "num_tasks": 12, "eval": {"split": "test"}}
    log = {"eval_tasks": 10} | ({"eval_steps": 1} if when == "in training" else {})
    path = write_config(tmp_path, tiny_folder, "run", env=env, rollout={"slots": 2}, log=log)
    folder = tmp_path / "out" / "run-seed0"
    if when == "in training":  # as a run that was measured before: it is in `before.json`
        (tmp_path / "slow.py").write_text(SLOW.replace("30", "0"))
        with on_path(tmp_path):
            run(path, "train.max_steps=1")
        (tmp_path / "slow.py").write_text(SLOW)
    process = forks.start(train.main, path, *(["--resume"] if when == "in training" else []), folder=tmp_path)
    output = lambda: process.output.read_text() if process.output.exists() else ""  # noqa: E731
    wait_for(lambda: "held-out play: 0 of 10" in output() or process.status is not None)
    os.kill(process.pid, signal.SIGTERM)
    status, said = process.wait(timeout=25)
    assert status == 130, said
    assert "stopped in held-out play" in said
    assert f"--resume={folder}" in said
    assert "Traceback" not in said
    assert [path.name for path in checkpoints.list_complete(folder)][-1:] == (
        ["checkpoint-2"] if when == "in training" else []
    )


def test_a_second_ctrl_c_ends_at_once():
    interrupt = callbacks.Interrupt()
    with interrupt.handle_signals():
        interrupt._handle_signal(signal.SIGINT, None)
        assert [signal.getsignal(number) for number in callbacks.SIGNALS] == [signal.SIG_DFL] * 2
    assert signal.getsignal(signal.SIGINT) not in (signal.SIG_DFL, None)


def wait_for(what, seconds=180):
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.02)


def metrics_so_far(folder):
    path = folder / "metrics.jsonl"
    return path.read_text().splitlines() if path.exists() else []


# 18 in all with the moments below where VIEWBOX_KILLS=12; each costs a process
KILLS = int(os.environ.get("VIEWBOX_KILLS", "1"))


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


@pytest.mark.parametrize(
    ("moment", "time_"),
    [
        ("an append", 8), ("a metrics line", 3), ("saving tensors", 8), ("the rename", 5),
        ("forgetting an old checkpoint", 8),
    ],
)  # fmt: skip
def test_killed_in_the_middle_of_something_it_goes_on_from_the_last_whole_checkpoint(
    config, whole, moment, time_, capsys
):
    path = config("killed")
    status, said = forks.start(killer.main, moment, time_, path, folder=path.parent).wait()
    assert status == -signal.SIGKILL, said
    goes_on(path, path.parent / "out" / "killed-seed0", whole, capsys)


def goes_on(path, folder, whole, capsys):
    """The killed run in `folder` is resumed, and nothing tells it from the one that nothing interrupted."""
    stored = episodes_in(folder)
    saved = [checkpoints.get_step(one) for one in checkpoints.list_complete(folder)]
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
