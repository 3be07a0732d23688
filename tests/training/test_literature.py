"""The config `literature_tiny` trains from the shipped snapshot, without a network."""

import math
import socket

import pytest

from viewbox.configs import schema
from viewbox.rollouts.store.reader import load
from viewbox.rollouts.store.run_folder import read_metrics
from viewbox.training import command as train

pytestmark = pytest.mark.slow
SMALL = [
    "train.max_steps=4",
    "train.num_generations=2",
    "train.per_device_train_batch_size=2",
    "rollout.slots=2",
    "rollout.max_completion_tokens=500",
    "rollout.max_reply_tokens=30",
    "log.eval_tasks=2",
]


def test_steps_without_a_network_and_without_an_error(tmp_path, monkeypatch, capsys):
    def refuse(*given, **named):
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert train.main(["literature_tiny", f"log.dir={tmp_path}", *SMALL]) == 0, capsys.readouterr()
    [run] = tmp_path.glob("*")
    steps = [line for line in read_metrics(run / "metrics.jsonl") if "loss" in line]
    assert len(steps) == 4
    assert all(math.isfinite(step["grad_norm"]) for step in steps)
    played = list(load(run))
    assert {episode.environment for episode in played} == {"literature_vqa"}


def test_both_configs_play_the_same_environment_from_the_snapshot():
    first, second = schema.load("literature_warmstart"), schema.load("literature_tiny")
    assert first.env == second.env
    assert second.env.settings["specialists"]["search"]["snapshot"] == "package:literature"
