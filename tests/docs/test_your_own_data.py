"""`docs/your_own_data.md`: its commands run in their order, on a folder as it describes, and leave what it says."""

import csv
import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

from tests.support import ct_folder
from tests.support.publishing import check_only
from viewbox import load
from viewbox.cli.app import app
from viewbox.configs.schema import parse
from viewbox.envs.from_config import build_envs, merge_settings

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "your_own_data.md").read_text()
YAML, REAL_MODEL = re.findall(r"```yaml\n(.*?)```", PAGE, re.S)
COMMANDS = "".join(re.findall(r"```bash\n(.*?)```", PAGE, re.S)).splitlines()
FEWER = {  # by a word of the command
    "log.name=warm": ["train.max_steps=1", "train.demonstrations.count=8", "log.eval_tasks=2"],
    "model.name=runs/warm/model": ["train.max_steps=1", "log.eval_tasks=2"],
}
LEFT = [
    "tasks.html", "view.png", "runs/warm/model/model.safetensors", "runs/study/curve.png",
    "runs/study-tools/tool_gain.json", "report.html",
]  # fmt: skip


@pytest.fixture
def study(tmp_path, monkeypatch):
    """The folder in which the reader stands."""
    monkeypatch.chdir(tmp_path)
    ct_folder.write_study(tmp_path / "study")
    (tmp_path / "study.yaml").write_text(YAML)
    return tmp_path


def test_no_patient_is_in_both_parts_every_scan_is_in_hounsfield_units_and_lines_of_a_real_model_make_a_config(study):
    [shown] = re.findall(r"```csv\n(.*?)```", PAGE, re.S)
    assert (study / "study" / "cases.csv").read_text().startswith(shown)
    env, held_out = build_envs(parse(yaml.safe_load(YAML)), {})
    rows = list(csv.DictReader((study / "study" / "cases.csv").open()))
    patients = {row["case"]: row["patient"] for row in rows}
    parts = [{patients[task.id] for task in one.tasks} for one in (env, held_out)]
    assert not parts[0] & parts[1]
    assert len(env.tasks) + len(held_out.tasks) == len(rows)
    assert {one.images(task)[0].unit for one in (env, held_out) for task in one.tasks} == {"HU"}
    raw, real = yaml.safe_load(YAML), yaml.safe_load(REAL_MODEL)
    env = merge_settings(raw["env"], real["env"])
    config = parse({**raw, **real, "env": env})
    assert config.model.name == "Qwen/Qwen3-VL-4B-Instruct"
    build_envs(config, {})


@pytest.mark.slow
def test_the_commands_of_the_page_run_in_their_order(study, capsys, monkeypatch):
    check_only(monkeypatch, "gold answer")  # what the others say of a package: tests/publish
    said = {}
    for command in COMMANDS:
        words = shlex.split(command)
        assert words.pop(0) == "viewbox"
        words += [one for mark, fewer in FEWER.items() if mark in words for one in fewer]
        assert not app(words, standalone_mode=False), command
        said[" ".join(words[:2])] = capsys.readouterr().out
    assert not [name for name in LEFT if not (study / name).is_file()]
    assert "study, held out: 4 tasks" in said["view study.yaml"]
    assert all(f"category/{finding}" in said["score runs/study-tools/with_tools"] for finding in ct_folder.QUESTIONS)
    assert len(load(study / "runs" / "study-tools" / "with_tools")) == 8

    published = [json.loads(line) for line in next(study.glob("my-study/*/data/tasks.jsonl")).open()]
    _, held_out = build_envs(parse(yaml.safe_load(YAML)), {})
    assert {row["case"] for row in published} == {task.id for task in held_out.tasks}
    scans = {image.partition("#")[0] for row in published for image in row["viewbox_images"]}
    assert {path.name for path in study.glob("my-study/*/data/images/*")} == {Path(scan).name for scan in scans}
