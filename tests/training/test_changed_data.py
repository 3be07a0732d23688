"""A run or a rollout that is resumed says if the file of its tasks is no longer the one it was started with."""

import json
from pathlib import Path

import pytest
import yaml

from tests.support.data_kit import write_jsonl
from viewbox.training import command as train

RUN = {
    "model": {"name": "package:tiny_viewer", "dtype": "float32"},
    "env": {
        "name": "vqa",
        "max_turns": 1,
        "tools": [],
        "data": {"source": "tasks.jsonl", "columns": {"id": "id", "question": "question", "answer": "answer"}},
    },
    "rollout": {"slots": 4, "max_reply_tokens": 4, "max_completion_tokens": 8},
    "train": {"max_steps": 1, "num_generations": 2, "per_device_train_batch_size": 4},
    "log": {"eval_tasks": 0},
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_tasks("yes")
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(RUN))
    return tmp_path


def write_tasks(answer):
    rows = [{"id": f"t{i}", "question": f"Is {i} odd?", "answer": answer} for i in range(8)]
    write_jsonl(Path("tasks.jsonl"), rows)


def test_a_resumed_run_warns_of_changed_data_once(folder, capsys):
    assert train.main(["run.yaml"]) == 0
    saved = json.loads((folder / "runs" / "run-seed0" / "data.json").read_text())
    assert saved.keys() == {"tasks.jsonl"}
    said = []
    for answer in ("yes", "no", "no"):
        write_tasks(answer)
        capsys.readouterr()
        assert train.main(["run.yaml", "--resume"]) == 0
        said.append("the data of this run have changed" in capsys.readouterr().out)
    assert said == [False, True, False]


def test_a_resumed_rollout_refuses_changed_data(viewbox):
    command = ("rollout", "--config", "run.yaml", "--tasks", 2, "--out", "played")
    assert viewbox(*command)[0] == 0
    assert viewbox(*command)[0] == 0
    write_tasks("no")
    code, _, error = viewbox(*command)
    assert code == 2
    assert "its data have changed since it was started: tasks.jsonl: " in error
    assert "give another --out" in error


def test_a_variable_in_the_path_of_the_data_may_lead_to_the_same_data_only(folder, viewbox, monkeypatch):
    source = "env.data.source=${STUDY}/tasks.jsonl"
    command = ("rollout", "--config", "run.yaml", "--tasks", 2, "--out", "played", source)
    statuses = []
    for name, answer in (("a", "yes"), ("moved", "yes"), ("other", "no")):
        write_tasks(answer)
        (folder / name).mkdir()
        (folder / "tasks.jsonl").rename(folder / name / "tasks.jsonl")
        monkeypatch.setenv("STUDY", name)
        statuses.append(viewbox(*command)[0])
    assert statuses == [0, 0, 2]
