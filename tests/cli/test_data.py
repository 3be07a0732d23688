"""`viewbox data show` and `viewbox view CONFIG`: what a user sees of the tasks before training on them."""

import json
import re

import nibabel as nib
import numpy as np
import pytest
import yaml
from PIL import Image
from typer.testing import CliRunner

import viewbox
from tests.support.data_kit import COLUMNS, make_rows, write_images, write_jsonl
from viewbox.cli.app import app
from viewbox.viewer.episode_page import build_episode_page
from viewbox.viewer.unplayed import ADDED, build_unplayed

CLASS = "tests.support.data_kit:Questions"


@pytest.fixture
def config(tmp_path):
    write_images(tmp_path, size=(100, 50))
    rows = [{**row, "box": [0.2, 0.2, 0.6, 0.8]} for row in make_rows()]
    rows[1]["answer"] = "maybe"
    columns = {**COLUMNS, "box": "box"}
    data = {"source": str(write_jsonl(tmp_path / "t.jsonl", rows)), "columns": columns, "boxes": {"unit": "unit"}}
    raw = {"model": {"name": "package:tiny_viewer"}, "env": {"name": CLASS, "data": data}}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(raw))
    return str(tmp_path / "run.yaml")


def run(*arguments):
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == int("quickstart" not in arguments)  # a row of `config` is bad, and left out
    return result.output


def test_show_prints_the_fields(config):
    printed = run("data", "show", config, "--tasks", "2")
    assert "questions: 5 tasks" in printed
    assert [line for line in printed.splitlines() if line in ("t0", "t1", "t2")] == ["t0", "t2"]
    assert "Is 2 odd?" in printed
    assert "1; the first has 100x50 pixels" in printed


def read_tasks(page, number=0):
    """The pages of the tasks in a report, of training (0) or held out (1)."""
    [text] = re.findall(f'<script type="application/json" id="episodes-{number}-0">(.*?)</script>', page.read_text())
    return list(json.loads(text).values())


def test_view_shows_the_tasks_of_a_config_with_their_boxes_prompts_and_right_answers(config, tmp_path):
    out = tmp_path / "tasks.html"
    printed = run("view", config, "env.max_turns=3", "--out", str(out))
    assert "run, training: 5 tasks" in printed
    assert "warning: 1 rows of training make no task: `viewbox data check" in printed
    first, *_ = tasks = read_tasks(out)
    assert [page["task"] for page in tasks] == ["t0", "t2", "t3", "t4", "t5"]
    [picture] = first["pictures"].values()
    assert [(box["kind"], box["corners"][::2]) for box in picture["boxes"]] == [("gold", [[0.2, 0.2], [0.6, 0.8]])]
    assert (first["question"], first["end_reason"], first["scores"]) == ("Is 0 odd?", None, None)
    assert "'answer': 'no'" in first["info"]["right_answer"]
    prompt = first["info"]["prompt"]
    assert prompt.index(first["system_prompt"]) < prompt.index(" pixels>") < prompt.index("Is 0 odd?")
    assert 20 < first["info"]["prompt_tokens"] < 2000
    table = json.loads(re.search('id="rows-0">(.*?)</script>', out.read_text())[1])["columns"]
    assert not {"scores.total", "end_reason"} & set(table)


def test_view_of_a_config_without_a_model_shows_messages_and_of_a_task_that_cannot_be_opened_why(config, tmp_path):
    raw = yaml.safe_load((tmp_path / "run.yaml").read_text())
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({"env": raw["env"]}))
    (tmp_path / "2.png").write_text("no image")
    printed = run("view", config, "--tasks", "2", "--out", str(tmp_path / "tasks.html"))
    assert "warning: t2: t.jsonl: line 3: column 'image' is '2.png'; expected: an image" in printed
    for number in (0, 1):
        first, second = read_tasks(tmp_path / "tasks.html", number)
        assert first["info"]["prompt"].startswith("[system]\n")
        assert first["info"]["prompt_tokens"] is None
        assert "2.png" in second["info"]["error"]
        assert (second["reference"]["answer"], second["turns"]) == ("no", [])


def test_the_page_has_the_image_and_the_slice_of_a_box_that_the_model_is_not_shown(tmp_path):
    voxels = np.zeros((40, 50, 60), np.int16)
    voxels[10:20, 10:20, 30:50] = 1000  # not in the middle slice
    nib.save(nib.Nifti1Image(voxels, np.diag([-1.0, -1.0, 1.0, 1.0])), tmp_path / "v.nii.gz")
    Image.new("L", (30, 20)).save(tmp_path / "a.png")
    row = {"image": ["a.png", "v.nii.gz"], "q": "?", "at": 1, "plane": "coronal", "slice": 12, "box": [10, 10, 20, 30]}
    columns = {"image": "image", "question": "q", "image_number": "at", "boxes": "box"}
    columns |= {"plane": "plane", "slice": "slice"}
    data = {"source": str(write_jsonl(tmp_path / "rows.jsonl", [row])), "columns": columns}
    env = viewbox.make("grounding", data=data)
    episode = build_unplayed(env, env.tasks[0])
    opening, added = episode.turns
    assert (len(opening.images), added.content) == (2, ADDED)
    (picture,) = added.images
    pages = build_episode_page(episode, line=1)["pictures"]
    shown = {(one["index"], one["plane"], one["slice"]): one["boxes"] for one in pages.values()}
    assert {place: len(boxes) for place, boxes in shown.items()} == {
        (0, None, None): 0, (1, "axial", 30): 0, (1, "coronal", 12): 1,
    }  # fmt: skip
    (left, top), _, (right, bottom), _ = shown[1, "coronal", 12][0]["corners"]
    pixels = np.asarray(picture.open())
    height, width = pixels.shape
    inside = pixels[round(top * height) : round(bottom * height), round(left * width) : round(right * width)]
    assert inside.shape == (20, 10)
    assert (inside == 255).all()
    assert (pixels == 255).sum() - inside.size < 100  # the letters


def test_show_says_why_a_task_cannot_be_opened(config, tmp_path):
    (tmp_path / "2.png").write_text("no image")
    printed = run("data", "show", config)
    assert "problem" in printed
    assert "line 3: column 'image' is '2.png'; expected: an image that can be opened" in printed


def test_show_works_for_an_environment_that_draws_its_tasks():
    printed = run("data", "show", "quickstart", "--tasks", "1", "--held-out")
    assert "digits-test-" in printed
    assert "Which digit is it, and where?" in printed


def test_a_config_without_a_model_is_shown_and_says_what_it_assumes(config, tmp_path):
    raw = yaml.safe_load((tmp_path / "run.yaml").read_text())
    shown = run("data", "show", config, "--tasks", "1")
    assert "conventions: coordinates per_mille" in shown
    assert "names no model" not in shown
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({"env": raw["env"]}))
    shown = run("data", "show", config, "--tasks", "1")
    assert "conventions: coordinates unit; views of at most 262,144 pixels" in shown
    assert "(the config names no model)" in shown
    assert "splits: train: 5 tasks" in shown


@pytest.mark.parametrize(
    ("boxes", "said"),
    [
        ({"unit": "unit"}, "boxes: xyxy, unit unit, frame shown (the picture as it is shown, after EXIF turns it and"),
        ({"frame": "voxel"}, "boxes: xyxy, unit pixel, frame voxel (the array in the file: i, j on slice k)"),
        (None, None),
    ],
)
def test_show_and_check_say_what_boxes_count_in_where_there_are_boxes(config, tmp_path, boxes, said):
    raw = yaml.safe_load((tmp_path / "run.yaml").read_text())
    if boxes is None:
        del raw["env"]["data"]["columns"]["box"]
    else:
        raw["env"]["data"]["boxes"] = boxes
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(raw))
    for command in ("show", "check"):
        printed = run("data", command, config)
        assert (said in printed) if said else ("frame shown" not in printed), printed
