"""Specialists behind the commands: they play in rollouts and training; one that cannot be loaded ends both early."""

from pathlib import Path

import pytest
import yaml

from tests.support.served_models import forget_servers
from tests.support.tables import each
from tests.support.tiny_specialists import save_vit
from viewbox.rollouts.store.reader import load
from viewbox.training import command as train

CONFIG = {
    "model": {"name": "package:tiny_viewer", "dtype": "float32"},
    "env": {"name": "digits", "max_turns": 2, "max_pixels": 2304},
    "rollout": {"slots": 4, "max_reply_tokens": 30, "max_completion_tokens": 300},
    "train": {
        "method": "grpo", "max_steps": 1, "num_generations": 2, "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 1,
    },
}  # fmt: skip


@pytest.fixture
def write_config(tmp_path):
    """Writes a config with a specialist; returns its path."""

    def write(**spec):
        look = {"kind": "classification", "device": "cpu", "offload": True, **spec}
        config = {**CONFIG, "env": {**CONFIG["env"], "specialists": {"look": look}}}
        config["log"] = {"eval_tasks": 2, "dir": str(tmp_path / "out")}
        path = tmp_path / "run.yaml"
        path.write_text(yaml.safe_dump(config))
        return str(path)

    return write


@pytest.fixture
def viewbox(viewbox, monkeypatch, tmp_path):
    """Runs a command in this process, in the test's folder: (exit status, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    return viewbox


def test_a_rollout_offers_the_tool_and_its_run_can_be_scored_without_the_model(tmp_path, write_config, viewbox):
    model = tmp_path / "model"
    config = write_config(model=save_vit(model))
    status, _, err = viewbox("rollout", "--config", config, "--tasks", 2, "--out", "run")
    assert (status, len(list(load("run/episodes")))) == (0, 2), err
    for file in model.iterdir():
        file.unlink()
    forget_servers()
    assert viewbox("score", "run")[0] == 0


def test_training_plays_with_it(tmp_path, write_config):
    assert train.main([write_config(model=save_vit(tmp_path / "model"))]) == 0


@each("command", [("rollout", "--config"), ("train", "--dry-run"), ("view",)])
def test_one_that_cannot_be_loaded_is_an_error_with_its_place_and_key(write_config, viewbox, command):
    path = write_config(model="./no/such/model")
    status, _, err = viewbox(*command, path)
    lines = [text.strip() for text in Path(path).read_text().splitlines()]
    place = f"run.yaml, line {1 + lines.index('model: ./no/such/model')}"
    assert status == 2
    assert f"{place}: env.specialists.look.model: digits: " in err
    assert "no such folder" in err
