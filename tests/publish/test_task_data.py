"""Tasks from files travel with a published environment: the selected rows, their images, and nothing else."""

import json
import subprocess
import sys

import pytest
import yaml
from PIL import Image

from tests.support import ct_folder
from tests.support.publishing import leave_out_check
from viewbox import make
from viewbox.errors import ConfigError
from viewbox.publish import publish
from viewbox.publish.task_data import write_tasks

FILMS = '''
"""Chest films with a finding."""
from viewbox import ExactMatchReward
from viewbox.envs.data.env import DataEnv
from viewbox.envs.data.fields import TaskField


class Films(DataEnv):
    """What does the film show?"""

    name = "films"
    answer = {"type": "object", "properties": {"finding": {"type": "string"}}, "required": ["finding"]}
    fields = {"question": TaskField("prompt", "text"), "finding": TaskField("reference", "text")}
    reward = ExactMatchReward("finding")

    def gold_answer(self, task):
        return {"finding": task.reference["finding"]}
'''
ROWS = [
    {
        "study": f"s{n}",
        "file": f"{n}.png",
        "q": "What is it?",
        "gold": "opacity",
        "secret": "patient name",
        "part": part,
    }
    for n, part in enumerate(["train", "train", "test", "test"])
]


@pytest.fixture
def films(tmp_path):
    """A module, rows beside images, and a config of them; returns the path of the config."""
    (tmp_path / "films.py").write_text(FILMS)
    (tmp_path / "set" / "img").mkdir(parents=True)
    for row in ROWS:
        Image.new("L", (40, 30), 60 * int(row["file"][0])).save(tmp_path / "set" / "img" / row["file"])
    (tmp_path / "set" / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    columns = {"id": "study", "image": {"template": "img/{{ file }}"}, "question": "q", "finding": "gold"}
    data = {"source": str(tmp_path / "set" / "rows.jsonl"), "columns": columns, "where": "part=test"}
    config = {"model": {"name": "m"}, "env": {"name": f"{tmp_path / 'films.py'}:Films", "data": data}}
    path = tmp_path / "films.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.mark.slow
def test_a_config_is_published_with_its_rows_and_images_and_is_played_elsewhere(films, tmp_path):
    publish(str(films), tmp_path / "out")
    module = tmp_path / "out" / "viewbox_films"
    rows = [json.loads(line) for line in (module / "data" / "tasks.jsonl").read_text().splitlines()]
    assert [row["study"] for row in rows] == ["s2", "s3"]
    assert not any("secret" in row or "part" in row for row in rows)  # columns that nothing reads stay here
    assert len(list((module / "data" / "images").iterdir())) == 2
    moved = tmp_path / "elsewhere"
    (tmp_path / "out").rename(moved)
    (tmp_path / "set").rename(tmp_path / "gone")
    code = (
        "import viewbox_films\n"
        "from viewbox.envs.adapters.verifiers import ViewboxTasksetConfig\n"
        "taskset = getattr(viewbox_films, viewbox_films.__all__[0])(ViewboxTasksetConfig(id='viewbox-films'))\n"
        "for task in taskset.load():\n"
        "    env, one = task.data.env(), task.data.task()\n"
        "    state = env.reset(one, seed=0)\n"
        "    print(one.id, one.reference['finding'], state.view.source.size)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=moved, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["s2 opacity (40, 30)", "s3 opacity (40, 30)"], done.stderr[-2000:]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"restricted": True}, "restricted"),
        ({"source": "nowhere.jsonl"}, "nowhere"),
    ],
)
def test_what_may_not_or_cannot_travel_is_refused(films, tmp_path, change, why):
    config = yaml.safe_load(films.read_text())
    config["env"]["data"] |= change
    films.write_text(yaml.safe_dump(config))
    with pytest.raises(ConfigError, match=why):
        publish(str(films), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_row_that_holds_a_key_is_refused(films, tmp_path, monkeypatch):
    leave_out_check(monkeypatch)
    rows = tmp_path / "set" / "rows.jsonl"
    rows.write_text(rows.read_text().replace("What is it?", "hf_" + 34 * "a"))
    with pytest.raises(ConfigError, match="task 's2' holds a token of Hugging Face"):
        publish(str(films), tmp_path / "out")


def test_a_config_with_a_reward_of_its_own_is_refused(films, tmp_path):
    config = yaml.safe_load(films.read_text())
    films.write_text(yaml.safe_dump(config | {"reward": {"type": "exact_match", "field": "finding"}}))
    with pytest.raises(ConfigError, match="has a section `reward`"):
        publish(str(films), tmp_path / "out")


def test_a_series_that_is_chosen_of_a_folder_travels_with_the_choice(tmp_path, monkeypatch):
    ct_folder.write_study(tmp_path, patients=1)
    columns = {"image": {"template": "{{ scan }}#series=1"}, "question": "question", "answer": "answer"}
    data = {"source": str(tmp_path / "cases.csv"), "images": str(tmp_path / "ct"), "columns": columns}
    package = tmp_path / "package"
    package.mkdir()
    block = write_tasks(make("vqa", data=data), package)
    monkeypatch.chdir(package)
    (tmp_path / "ct").rename(tmp_path / "gone")
    env = make("vqa", data=block)
    assert len(env.tasks) == 2
    assert env.images(env.tasks[1])[0].volume.count_slices() == 10
    assert len(list((package / "data" / "images").iterdir())) == 1


@pytest.mark.slow
def test_a_change_of_the_data_is_merged_into_that_of_the_config_and_lifts_no_limit(films, tmp_path):
    publish(str(films), tmp_path / "out", settings={"data": {"limit": 1}})
    [row] = (tmp_path / "out" / "viewbox_films" / "data" / "tasks.jsonl").read_text().splitlines()
    assert json.loads(row)["study"] == "s2"
    config = yaml.safe_load(films.read_text())
    config["env"]["data"]["restricted"] = True
    films.write_text(yaml.safe_dump(config))
    with pytest.raises(ConfigError, match="restricted"):
        publish(str(films), tmp_path / "again", settings={"data": {"restricted": False}})
