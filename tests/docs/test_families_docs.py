"""`docs/families.md`: every YAML is short and opens its tasks, two are trained, and every field is on the page."""

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.support.data_kit import write_images, write_jsonl, write_table
from viewbox import check_rewards, make, train
from viewbox.configs.schema import parse
from viewbox.envs.data import DataEnv
from viewbox.envs.from_config import build_envs
from viewbox.rollouts.store.run_folder import read_metrics

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "families.md").read_text()
YAMLS = {yaml.safe_load(code)["env"]["name"]: code for code in re.findall(r"```yaml\n(.*?)```", PAGE, re.S)}
CASE = {
    "question": "What is the most likely diagnosis?",
    "patient_info": "I have had a rash for three days.",
    "physical_exams": "The skin shows palpable purpura.",
    "answers": [{"text": "IgA vasculitis", "correct": True}, {"text": "Scurvy", "correct": False}],
}
REPORT = {"findings": "a mass", "impression": "glioma", "diagnosis": ["glioma"], "boxes": [[6, 4, 18, 12]]}


def give_ids(row):
    return [{"id": f"a-{number}", **row} for number in range(20)]


@pytest.fixture
def datasets(tmp_path, monkeypatch):
    """The files that the page speaks of."""
    monkeypatch.chdir(tmp_path)
    for name in ("study", "finds", "reports", "cases"):
        write_images(tmp_path / name / "images", 2, (48, 48))
    image = {"bytes": (tmp_path / "study" / "images" / "1.png").read_bytes(), "path": None}
    answers = ["yes", "no", "right lung", "mass"] * 5
    rows = [{"image": image, "question": f"What about {i}?", "answer": answer} for i, answer in enumerate(answers)]
    write_table(tmp_path / "study" / "train.parquet", rows)
    found = {"image": "1.png", "boxes": [[6, 4, 12, 8]], "labels": ["nodule"]}
    write_jsonl(tmp_path / "finds" / "train.jsonl", give_ids(found))
    write_jsonl(tmp_path / "reports" / "train.jsonl", give_ids({"image": "1.png", **REPORT}))
    write_jsonl(tmp_path / "cases" / "train.jsonl", give_ids(CASE))
    return tmp_path


def test_there_is_a_yaml_under_forty_lines_for_each_family_and_every_field_is_on_the_page():
    assert set(YAMLS) == {"vqa", "grounding", "report", "consultation"}
    assert all(len(code.splitlines()) < 40 for code in YAMLS.values())
    for name in YAMLS:
        env = make(name)
        assert isinstance(env, DataEnv)
        part = PAGE.partition(f"| `{name}` |")[2].partition("\n\n")[0]
        for field in env.fields:
            assert f"`{field}`" in part, field


@pytest.mark.parametrize("name", YAMLS)
def test_every_yaml_opens_its_tasks_and_gold_scores_one(datasets, name):
    env, held_out = build_envs(parse(yaml.safe_load(YAMLS[name])), {})
    assert len(env.tasks) + len(held_out.tasks) == 20
    assert len(held_out.tasks) > 0
    assert check_rewards(env) == []
    for task in env.tasks[:4]:
        assert env.play(task, lambda messages, task=task: env.write_answer(task)).scores.total > 0.99  # boxes rounded
        assert env.play(task, lambda messages: "?").scores.total == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vqa", "grounding"])
def test_the_tiny_model_is_trained_by_the_yaml_alone(datasets, name):
    path = datasets / f"{name}.yaml"
    path.write_text(YAMLS[name])
    assert train.main([str(path), f"log.dir={datasets}/out", "train.max_steps=2", "log.eval_tasks=2"]) == 0
    [run] = (datasets / "out").glob("*")
    steps = [row for row in read_metrics(run / "metrics.jsonl") if "reward" in json.dumps(row)]
    assert len(steps) >= 2
