"""What is checked of a run whose tasks come from data, before it starts or goes on."""

import json
from pathlib import Path

import pytest
import yaml

from tests.support.data_kit import COLUMNS, make_rows, write_images, write_jsonl
from tests.support.tables import each
from viewbox.configs import schema
from viewbox.envs.from_config import build_envs
from viewbox.errors import ConfigError
from viewbox.training import command as train
from viewbox.training import dry_run
from viewbox.training.findings import check
from viewbox.training.plan import Plan

CLASS = "tests.support.data_kit:Questions"


@pytest.fixture
def data(tmp_path):
    write_images(tmp_path)
    return {"source": str(write_jsonl(tmp_path / "t.jsonl", make_rows())), "columns": COLUMNS, "hold_out": 0.4}


SIZES = {"per_device_train_batch_size": 2, "num_generations": 2, "max_steps": 1}


def write_config(folder, env, model="package:tiny_viewer"):
    raw = {"model": {"name": model}, "env": env, "train": SIZES, "log": {"eval_tasks": 1}}
    (folder / "run.yaml").write_text(yaml.safe_dump(raw))
    return folder / "run.yaml"


def load(tmp_path, data, **held_out):
    env = {"name": CLASS, "data": data, "eval": {"data": {"split": "test", **held_out}}}
    return schema.load(str(write_config(tmp_path, env, model="someone/a-model-that-is-not-here")))


def test_a_run_on_data_passes_the_checks_though_its_first_image_is_damaged(tmp_path, data):
    first = build_envs(load(tmp_path, data), {})[0].tasks[0].metadata["row"]
    (tmp_path / f"{first}.png").write_text("not an image")
    config = load(tmp_path, data)
    env, held_out = build_envs(config, {})
    assert held_out.data == env.data.model_copy(update={"split": "test"})
    assert not {task.id for task in env.tasks} & {task.id for task in held_out.tasks}
    assert check(Plan(config)).lines["environment"]["name"] == "questions"
    assert "env: the first 3 tasks show" in check(Plan(config), dry_run.ROWS).lines["images"]


def test_a_dry_run_plays_the_right_answers_and_prints_both_splits(tmp_path, data):
    plan = check(Plan(load(tmp_path, data)), dry_run.ROWS)
    assert plan.lines["right answers"][0].startswith("env: questions: reward 1.000, the mean of ")
    assert [line.split(":")[0] for line in plan.lines["splits"]] == ["train", "test"]
    assert plan.warnings == []
    config = load(tmp_path, data)
    reward = {"type": "exact_match", "field": "text", "reference_field": "gold"}
    plan = check(Plan(config.model_copy(update={"reward": reward})), dry_run.ROWS)
    assert len(plan.warnings) == 1  # the held-out tasks have the same mistake, which is said once
    assert "env: questions: reward component 'exact_match' gives the right answers 0.000" in plan.warnings[0]
    rendered = dry_run.render_report(plan)
    assert "reward         1 exact_match (exact_match: field 'text', reference_field 'gold')" in rendered
    assert rendered.splitlines()[-1].startswith("warning: env: questions: ")
    assert "env: env:" not in rendered


def test_an_unknown_column_and_images_that_cannot_be_opened_are_refused_and_data_for_evaluation_only(tmp_path, data):
    config = load(tmp_path, {**data, "columns": {**COLUMNS, "answer": "anser"}})
    with pytest.raises(ConfigError) as caught:
        check(Plan(config))
    assert caught.value.key == "env.data.columns.answer"
    line = next(n for n, text in enumerate((tmp_path / "run.yaml").read_text().splitlines(), 1) if "anser" in text)
    assert f"line {line}" in str(caught.value)
    assert "did you mean 'answer'?" in str(caught.value)
    reason = "its licence allows evaluation only"
    with pytest.raises(ConfigError, match=f"may not be trained on: {reason}"):
        check(Plan(load(tmp_path, {**data, "evaluation_only": reason})))
    for path in tmp_path.glob("*.png"):
        path.write_text("not an image")
    with pytest.raises(ConfigError.__mro__[1], match="the first task cannot be opened"):
        check(Plan(load(tmp_path, data)))


def test_a_mixture_of_data_and_drawn_tasks_passes_the_checks_and_one_part_can_refuse_training(tmp_path, data):
    config = load(tmp_path, data)
    parts = {"mine": {"name": CLASS, "data": data}, "digits": {"weight": 2}}
    env = config.env.model_validate(
        {"name": "mixture", "environments": parts, "eval": {"environments": {"mine": {"data": {"split": "test"}}}}}
    )
    mixed = config.model_copy(update={"env": env})
    assert check(Plan(mixed)).lines["environment"]["name"] == "mixture"
    trained, held_out = build_envs(mixed, {})
    assert not {task.id for task in trained.parts["mine"].tasks} & {task.id for task in held_out.parts["mine"].tasks}
    parts["mine"]["data"] = {**data, "evaluation_only": "its licence"}
    refused = config.model_copy(update={"env": env.model_validate({"name": "mixture", "environments": parts})})
    with pytest.raises(ConfigError, match="mine: its data may not be trained on: its licence"):
        check(Plan(refused))


def test_a_limit_on_the_data_is_never_lifted_not_even_for_evaluation(tmp_path, data):
    load(tmp_path, {**data, "restricted": True, "evaluation_only": "its licence"}, restricted=False)
    path = str(tmp_path / "run.yaml")
    for lifted in ("env.data.evaluation_only=null", 'env.data.evaluation_only=""'):
        with pytest.raises(ConfigError, match="allowed: to leave it so"):
            schema.load(path, [lifted])
    _, held_out = build_envs(schema.load(path, ["env.eval.data.evaluation_only=null"]), {})
    assert held_out.restricted
    assert held_out.data.evaluation_only == "its licence"


# ---------------------------------------------------------------------- what may not be trained on
LIVE = {"specialists": {"lit": {"kind": "literature"}}}
SMALL = {"name": "software_adviser", "num_tasks": 2, "split": "test", "ambiguous": 0.0, "unanswerable": 0.0, **LIVE}


@each("env, key", [
    (SMALL, "env.specialists.lit"), ({"name": "mixture", "environments": {"digits": {}, "adviser": SMALL}},
        "env.environments.adviser.specialists.lit"),
])  # fmt: skip
def test_live_search_is_refused_in_training(tmp_path, env, key):
    with pytest.raises(ConfigError, match=r"live search .* allowed in training") as caught:
        check(Plan(schema.load(str(write_config(tmp_path, env)))))
    assert caught.value.key == key
    assert "line " in str(caught.value)


# ---------------------------------------------------------------------- data that have changed since
RUN = {
    "model": {"name": "package:tiny_viewer", "dtype": "float32"},
    "env": {"name": "vqa", "max_turns": 1, "tools": [], "data": {"source": "tasks.jsonl", "columns": {"id": "id",
        "question": "question", "answer": "answer"}}},
    "rollout": {"slots": 4, "max_reply_tokens": 4, "max_completion_tokens": 8},
    "train": {"max_steps": 1, "num_generations": 2, "per_device_train_batch_size": 4}, "log": {"eval_tasks": 0},
}  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_rows("yes")
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(RUN))
    return tmp_path


def write_rows(answer):
    rows = [{"id": f"t{i}", "question": f"Is {i} odd?", "answer": answer} for i in range(8)]
    write_jsonl(Path("tasks.jsonl"), rows)


def test_a_resumed_run_warns_of_changed_data_once(folder, capsys):
    assert train.main(["run.yaml"]) == 0
    saved = json.loads((folder / "runs" / "run-seed0" / "data.json").read_text())
    assert saved.keys() == {"tasks.jsonl"}
    said = []
    for answer in ("yes", "no", "no"):
        write_rows(answer)
        capsys.readouterr()
        assert train.main(["run.yaml", "--resume"]) == 0
        said.append("the data of this run have changed" in capsys.readouterr().out)
    assert said == [False, True, False]


def test_a_resumed_rollout_refuses_changed_data_wherever_a_variable_leads(folder, viewbox, monkeypatch):
    command = ("rollout", "--config", "run.yaml", "--tasks", 2)
    assert viewbox(*command, "--out", "played")[0] == viewbox(*command, "--out", "played")[0] == 0
    write_rows("no")
    code, _, error = viewbox(*command, "--out", "played")
    assert code == 2
    assert "its data have changed since it was started: tasks.jsonl: " in error
    assert "give another --out" in error
    statuses = []
    for name, answer in (("a", "yes"), ("moved", "yes"), ("other", "no")):
        write_rows(answer)
        (folder / name).mkdir()
        (folder / "tasks.jsonl").rename(folder / name / "tasks.jsonl")
        monkeypatch.setenv("STUDY", name)
        statuses.append(viewbox(*command, "--out", "moved-data", "env.data.source=${STUDY}/tasks.jsonl")[0])
    assert statuses == [0, 0, 2]
