"""The configs of `phantom` run one after the other: a warm start from scratch, then GRPO from its model."""

import json

import pytest

from viewbox.configs import schema
from viewbox.rollouts.store.reader import load
from viewbox.rollouts.store.run_folder import list_held_out, read_metrics
from viewbox.training import command as train

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The folders of two steps of each config, the second from the model of the first."""
    folder = tmp_path_factory.mktemp("phantom")
    small = ["train.max_steps=2", "train.per_device_train_batch_size=8", "log.eval_tasks=4", "rollout.slots=8"]
    model = folder / "model"
    settings = {
        "phantom_warmstart": ["train.demonstrations.count=24", f"log.export={model}"],
        "phantom": [f"model.name={model}", "train.num_generations=4"],
    }
    for name, some in settings.items():
        assert train.main([name, f"log.dir={folder}/{name}", *small, *some]) == 0
    return {name: next((folder / name).glob("*")) for name in settings}


@pytest.mark.parametrize("name", ["phantom_warmstart", "phantom"])
def test_both_configs_train_two_steps_and_measure_held_out_tasks(runs, name):
    assert [line["step"] for line in read_metrics(runs[name] / "metrics.jsonl") if "loss" in line][-1] == 2
    held_out = json.loads((runs[name] / "summary.json").read_text())["held_out"]
    assert set(held_out) == {"after", "oracle_after"} | ({"before", "oracle"} if name == "phantom" else set())
    assert {len(list(load(folder))) for folder in list_held_out(runs[name])} == {4}


def test_both_configs_play_the_same_environment_and_the_second_reads_the_model_of_the_first():
    first, second = schema.load("phantom_warmstart"), schema.load("phantom")
    assert first.env == second.env
    assert first.env.eval == {"split": "test"}
    assert second.model.name == first.log.export
