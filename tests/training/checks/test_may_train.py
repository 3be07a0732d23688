"""What may not be trained on is refused before a run starts, wherever a config names it; it may still be played."""

import json

import pytest
import yaml

from tests.support.servers import make_completion, serve
from viewbox import make
from viewbox.configs import schema
from viewbox.errors import ConfigError
from viewbox.rollouts.store.reader import load
from viewbox.training.findings import check
from viewbox.training.plan import Plan

LIVE = {"specialists": {"lit": {"kind": "literature"}}}
GRPO = {"method": "grpo", "num_generations": 2}
SMALL = {"name": "software_adviser", "num_tasks": 2, "split": "test", "ambiguous": 0.0, "unanswerable": 0.0}


def write_config(folder, env, **train):
    raw = {
        "model": {"name": "package:tiny_viewer"},
        "env": env,
        "train": {"per_device_train_batch_size": 2, "max_steps": 1, **train},
        "log": {"eval_tasks": 1},
    }
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(raw))
    return path


def test_an_environment_without_anything_live_may_be_trained_in():
    make("software_adviser").check_may_train()
    make("software_adviser", specialists={"lit": {"kind": "literature", "live_in_training": True}}).check_may_train()


@pytest.mark.parametrize(
    ("env", "train", "key"),
    [
        ({**SMALL, **LIVE}, GRPO, "env.specialists.lit"),
        ({"name": "mixture", "environments": {"digits": {}, "adviser": {**SMALL, **LIVE}}}, GRPO,
            "env.environments.adviser.specialists.lit"),
    ],
    ids=["alone", "mixture"],
)  # fmt: skip
def test_live_search_is_refused_in_training(tmp_path, env, train, key):
    config = schema.load(str(write_config(tmp_path, env, **train)))
    with pytest.raises(ConfigError, match=r"live search .* allowed in training") as caught:
        check(Plan(config))
    assert caught.value.key == key
    assert "line " in str(caught.value)


def test_live_search_is_played_by_rollout(viewbox, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write_config(tmp_path, {**SMALL, **LIVE}, **GRPO)

    def search_and_answer(body, number):
        if not any(message["role"] == "tool" for message in body["messages"]):
            return make_completion("", ("a", "search_tools", json.dumps({"query": "segmentation of cells"})))
        return make_completion(json.dumps({"choices": [{"name": "Fiji", "accuracy": 50}], "continue": False}))

    with serve(search_and_answer) as server:
        given = ("--tasks", 2, "--endpoint", server.url, "--model", "m", "--out", "run")
        code, out, err = viewbox("rollout", "--config", path, *given)
    assert code == 0, out + err
    assert [episode.end_reason for episode in load(tmp_path / "run")] == ["answered"] * 2
