"""Rejection sampling from YAML: rounds of playing, selecting and learning, which a killed run goes on with."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file

from tests.support.runs import RUN, have_equal_weights, on_path, read_steps, read_weights, run, write_config
from viewbox.rollouts.store.reader import load

SETTINGS = {
    "env": {"num_tasks": 8},
    "train": {
        "method": "rejection_sampling",
        "rejection_sampling": {"rounds": 2, "tasks": 3, "samples": 4},
        "best_of_group": True,
        "max_steps": 5,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 2,
        "save_steps": 1,
        "save_total_limit": 5,
    },
    "log": {"eval_tasks": 4},
}
CONTENT = {**RUN, "train": {"learning_rate": 1e-2, "lr_scheduler_type": "constant"}, "log": {}}


@pytest.fixture(scope="module")
def start(tmp_path_factory, tiny_folder):
    with on_path(tmp_path_factory.mktemp("rounds")) as folder:
        path = write_config(folder, tiny_folder, "rounds", CONTENT, **SETTINGS)
        yield lambda *overrides, **given: run(path, *overrides, **given)


@pytest.fixture(scope="module")
def whole(start, tmp_path_factory):
    return shutil.copytree(start(), tmp_path_factory.mktemp("copy") / "whole")


def test_every_round_plays_its_own_tasks_and_learns_from_the_best_of_each(whole):
    played = [list(load(whole / "rollouts" / f"round-{n}" / "process-0", tokens=True)) for n in (1, 2)]
    assert [len(episodes) for episodes in played] == [12, 12]
    first, second = ({episode.task.id for episode in episodes} for episodes in played)
    assert len(first) == len(second) == 3
    assert not first & second
    lines = read_steps(whole)
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5]
    starts = [line for line in lines if "round" in line]
    assert [(line["step"], line["round"], line["episodes/kept"]) for line in starts] == [(1, 1, 0.25), (4, 2, 0.25)]
    totals = [[episode.scores.total for episode in episodes] for episodes in played]
    assert [line["rollouts/reward"] for line in starts] == pytest.approx([sum(each) / 12 for each in totals])


def test_the_model_learns_and_is_measured_before_and_after(whole, tiny_folder):
    lines = read_steps(whole)
    assert lines[2]["loss"] < lines[0]["loss"]
    start = load_file(tiny_folder / "model.safetensors")
    assert any(not torch.equal(weight, start[name]) for name, weight in read_weights(whole).items() if name in start)
    assert {"before", "after"} <= json.loads((whole / "summary.json").read_text())["held_out"].keys()


@pytest.mark.parametrize("step", [2, 4])
def test_a_run_that_goes_on_in_or_between_rounds_does_what_an_uninterrupted_one_does(start, whole, step):
    folder = whole.parent / "out" / "rounds-seed0"
    shutil.rmtree(folder.parent, ignore_errors=True)
    shutil.copytree(whole, folder)
    for name in ("model", "summary.json"):
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    if step < 3:  # the second round was killed in its middle
        lines = folder / "rollouts" / "round-2" / "process-0" / "episodes.jsonl"
        lines.write_text("".join(lines.read_text().splitlines(keepends=True)[: step * 2]))
    start(f"--resume={folder}/checkpoints/checkpoint-{step}", f"log.dir={folder.parent}")
    assert read_steps(folder) == read_steps(whole)
    assert have_equal_weights(folder, whole)


def test_if_no_episode_of_a_round_is_kept_the_counts_say_why(start, capsys):
    start("train.where=scores.total>1", "log.eval_tasks=0", "log.name=none", code=2)
    assert (
        "round 1 of 2: 0 of 12 episodes are kept; left out: 12 (train.where scores.total>1)" in capsys.readouterr().err
    )
