"""The config `mixture` trains on digits and phantom in one run; after a kill it goes on bit for bit."""

import json
import signal

import pytest
import torch
from safetensors.torch import load_file

from tests.support import forks, killer
from viewbox import load, train
from viewbox.rollouts.store.run_folder import read_metrics

SMALL = [
    "env.environments.phantom.weight=3",  # as many tasks as digits
    "env.environments.phantom.num_tasks=50",
    "train.max_steps=3",
    "train.save_steps=1",
    "train.num_generations=2",
    "train.per_device_train_batch_size=8",
    "rollout.slots=8",
    "rollout.max_completion_tokens=120",
    "log.eval_tasks=4",
]


def is_timing(name):
    return name.startswith("time/") or "step_time" in name


def read_steps(folder):
    lines = [line for line in read_metrics(folder / "metrics.jsonl") if "loss" in line]
    return [{name: value for name, value in line.items() if not is_timing(name)} for line in lines]


@pytest.mark.slow
def test_digits_and_phantom_train_in_one_run_which_a_kill_does_not_change(tmp_path, capsys):
    def name_run(name):
        return ["mixture", *SMALL, f"log.dir={tmp_path}", f"log.name={name}"]

    assert train.main(name_run("whole")) == 0
    process = forks.start(killer.main, "a metrics line", 3, *name_run("killed"), folder=tmp_path)
    status, said = process.wait(300)
    assert status == -signal.SIGKILL, said
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert train.main([*name_run("killed"), "--resume"]) == 0
    assert "resumed from step 2" in capsys.readouterr().out

    steps = read_steps(whole)
    assert len(steps) == 3
    assert read_steps(killed) == steps
    weights, resumed = (load_file(folder / "model" / "model.safetensors") for folder in (whole, killed))
    assert weights.keys() == resumed.keys()
    assert all(torch.equal(value, resumed[name]) for name, value in weights.items())

    assert {"digits/reward", "phantom/reward", "phantom/tools/window_level/calls"} <= set().union(*steps)
    assert {episode.environment for episode in load(whole)} == {"digits", "phantom"}
    after, after_kill = (
        json.loads((folder / "summary.json").read_text())["held_out"]["after"] for folder in (whole, killed)
    )
    assert {"metrics/digits/label/accuracy", "metrics/phantom/lesion/accuracy"} <= after.keys()
    assert {name: value for name, value in after_kill.items() if not is_timing(name)} == {
        name: value for name, value in after.items() if not is_timing(name)
    }
