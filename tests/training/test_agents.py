"""The configs of `phantom` and of the shipped agents: warm starts that save a model, and GRPO that learns from it."""

import json
import math
import socket

import numpy as np
import pytest

import viewbox
from viewbox.configs import schema
from viewbox.envs.chest_xray.demonstrations import guess_findings
from viewbox.envs.chest_xray.radiographs import LABELS
from viewbox.images.source import Source
from viewbox.images.view import View
from viewbox.rollouts.store.reader import load
from viewbox.rollouts.store.run_folder import list_held_out, read_metrics
from viewbox.training import command as train

WARM_STARTS = {  # of each config, the one whose model it starts from
    "chest_xray_tiny": "chest_xray_warmstart", "chest_trust_tiny": "chest_trust_warmstart",
    "software_adviser_tiny": "software_adviser_warmstart", "phantom": "phantom_warmstart",
    "literature_tiny": "literature_warmstart",
}  # fmt: skip
SMALL = ("rollout.slots=8", "log.eval_tasks=4")
STEPS = {  # settings of a few steps of GRPO
    "software_adviser_tiny": ("train.per_device_train_batch_size=8", "train.num_generations=4"),
    "phantom": ("train.per_device_train_batch_size=8", "train.num_generations=4"),
    "literature_tiny": ("train.per_device_train_batch_size=2", "train.num_generations=2",
        "rollout.max_completion_tokens=500", "rollout.max_reply_tokens=30", "model.name=package:tiny_viewer",
        "env.facts=null", "env.specialists.search.snapshot=package:literature"),
}  # fmt: skip
LEARNED = {  # settings of a training, and what it must change in the held-out tasks: at least by so much
    "chest_xray_tiny": (("train.max_steps=15", "log.eval_tasks=60"),
        {"tools/classify_a/calls": 0.1, "tools/classify_b/calls": -0.1, "reward": 0.15}),
    "chest_trust_tiny": ((), {"tools/reader_c/calls": -0.2, "reward": 0.05}),
    "software_adviser_tiny": (("train.max_steps=40", "log.eval_tasks=100"),
        {"reward": 0.05, "rewards/asked_if_ambiguous/mean": 0.25, "rewards/asked_if_clear/mean": -0.08}),
}  # fmt: skip


def run(folder, name, *settings):
    assert train.main([name, f"log.dir={folder}", *settings]) == 0
    return next(folder.glob(f"{name}*"))


def read_held_out(folder):
    return json.loads((folder / "summary.json").read_text())["held_out"]


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    """Trains two steps of a warm start, once; returns the folders of its run and of its model."""
    folder, done = tmp_path_factory.mktemp("warm"), {}

    def start(name):
        if name not in done:
            small = (*SMALL, "train.max_steps=2", "train.per_device_train_batch_size=4")
            small += ("train.demonstrations.count=24",)
            model = folder / f"{name}-model"
            done[name] = run(folder / name, name, *small, f"log.export={model}"), model
        return done[name]

    return start


@pytest.mark.parametrize("name", WARM_STARTS)
def test_both_configs_play_the_same_environment_and_the_second_starts_from_the_model_of_the_first(name):
    first, second = schema.load(WARM_STARTS[name]), schema.load(name)
    bearing = {"bearing": None} if name == "chest_xray_tiny" else {}  # the tool that the demonstrations trust
    assert {**first.env.settings, **bearing} == {**second.env.settings, **bearing}
    assert "bearing" not in second.env.settings
    shipped = first.log.export.replace("assets/", "package:")
    assert second.model.name == shipped


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in WARM_STARTS if name != "literature_tiny"])
def test_a_warm_start_trains_and_saves_its_model(warm, name):
    folder, model = warm(WARM_STARTS[name])
    assert [line["step"] for line in read_metrics(folder / "metrics.jsonl") if "loss" in line][-1] == 2
    assert set(read_held_out(folder)) == {"after", "oracle_after"}
    assert (model / "model.safetensors").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
def test_a_few_steps_need_no_network_and_are_the_same_again(tmp_path, monkeypatch, warm, name):
    start = [f"model.name={warm(WARM_STARTS[name])[1]}"] if name == "phantom" else []

    def refuse(*given, **named):
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    runs = [run(tmp_path / str(n), name, "train.max_steps=3", *SMALL, *STEPS[name], *start) for n in range(2)]
    first, second = ([line for line in read_metrics(one / "metrics.jsonl") if "loss" in line] for one in runs)
    assert len(first) == 3
    assert all(math.isfinite(line["grad_norm"]) for line in first)
    for key in ("loss", "reward", "grad_norm"):
        assert [line[key] for line in first] == [line[key] for line in second]
    replies = [[turn.content for episode in load(folder) for turn in episode.turns] for folder in runs]
    assert replies[0] == replies[1]
    assert {"before", "after"} <= set(read_held_out(runs[0]))
    assert {len(list(load(folder))) for folder in list_held_out(runs[0])} == {4}


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNED)
def test_the_shipped_policy_learns_what_holds_for_tasks_that_it_was_not_trained_on(tmp_path, name):
    settings, changes = LEARNED[name]
    folder = run(tmp_path, name, *settings)
    before, after = (read_held_out(folder)[when] for when in ("before", "after"))
    for key, least in changes.items():
        assert (after[key] - before[key]) / least > 1, key
    if name == "chest_xray_tiny":
        assert before["tools/classify_b/calls"] > 0.3 > after["tools/classify_b/calls"]
        assert before["tools/classify_a/calls"] < 0.5 < after["tools/classify_a/calls"]
        steps = list(read_metrics(folder / "metrics.jsonl"))
        assert any("tools/classify_b/calls" in line for line in steps), "calls of each tool are logged while it trains"


# ---------------------------------------------------------------------- what the policies cannot know
def test_what_the_policy_reads_does_not_tell_the_decoy_from_the_classifier():
    config = schema.load("chest_xray_tiny")
    env = viewbox.make(config.env.name, **config.env.settings)
    task = env.tasks[0]
    prompt = "\n".join(str(message.content) for message in env.reset(task, seed=0).messages)
    assert "guess" not in prompt
    assert "decoy" not in prompt
    first, second = (env.toolbox[name] for name in env.tools_of(task))
    assert first.parameters == second.parameters


def test_a_decoy_says_the_same_of_the_same_pixels_and_nothing_of_what_they_show():
    rng = np.random.default_rng(0)
    pictures = [View.of(Source.of(rng.integers(0, 256, (8, 8), dtype=np.uint8))) for _ in range(200)]
    said = [guess_findings(picture) for picture in pictures]
    assert said == [guess_findings(picture) for picture in pictures]
    assert {next(iter(output.facts)) for output in said} == set(LABELS)
    shares = [next(iter(output.facts.values())) for output in said]
    assert all(0 <= share <= 1 for share in shares)
    assert 0.05 < sum(share < 0.5 for share in shares) / len(shares) < 0.35  # a sixth says: nothing
