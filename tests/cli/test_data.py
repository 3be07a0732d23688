"""`viewbox data show` and `viewbox data preview`: what a user sees of the tasks before training on them."""

import nibabel as nib
import numpy as np
import pytest
import yaml
from PIL import Image
from typer.testing import CliRunner

import viewbox
from tests.support.data_kit import COLUMNS, make_rows, write_images, write_jsonl
from viewbox.cli.app import app
from viewbox.cli.task_sheet import list_shown

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


def test_show_prints_the_fields_and_draws_the_images_with_their_boxes(config, tmp_path):
    out = tmp_path / "sheet.png"
    printed = run("data", "show", config, "--tasks", "2", "--out", str(out))
    assert "questions: 5 tasks" in printed
    assert "t0\n" in printed
    assert "t2\n" in printed
    assert "Is 2 odd?" in printed
    assert "1; the first has 100x50 pixels" in printed
    pixels = np.asarray(Image.open(out))
    green = (pixels == (0, 220, 0)).all(axis=2)
    ys, xs = np.nonzero(green[:220, :310])
    assert xs.max() - xs.min() == pytest.approx(0.4 * 288, abs=5)
    assert ys.max() - ys.min() == pytest.approx(0.6 * 144, abs=5)


def test_show_draws_the_box_on_its_own_image_and_slice(tmp_path):
    voxels = np.zeros((40, 50, 60), np.int16)
    voxels[10:20, 10:20, 30:50] = 1000  # not in the middle slice
    nib.save(nib.Nifti1Image(voxels, np.diag([-1.0, -1.0, 1.0, 1.0])), tmp_path / "v.nii.gz")
    Image.new("L", (30, 20)).save(tmp_path / "a.png")
    row = {"image": ["a.png", "v.nii.gz"], "q": "?", "at": 1, "plane": "coronal", "slice": 12, "box": [10, 10, 20, 30]}
    columns = {"image": "image", "question": "q", "image_number": "at", "boxes": "box"}
    columns |= {"plane": "plane", "slice": "slice"}
    data = {"source": str(write_jsonl(tmp_path / "rows.jsonl", [row])), "columns": columns}
    env = viewbox.make("grounding", data=data)
    first, second = list_shown(env, 0, 1)[1][0].pictures
    assert (first.name, first.boxes) == (", image_1", ())
    assert second.name == ", image_2, coronal 12"
    (left, top), _, (right, bottom), _ = second.boxes[0]
    pixels = np.asarray(second.image)
    height, width = pixels.shape
    inside = pixels[round(top * height) : round(bottom * height), round(left * width) : round(right * width)]
    assert inside.shape == (20, 10)
    assert (inside == 255).all()
    assert (pixels == 255).sum() - inside.size < 100  # the letters


def test_show_says_why_a_task_cannot_be_opened(config, tmp_path):
    (tmp_path / "2.png").write_text("no image")
    printed = run("data", "show", config, "--out", str(tmp_path / "sheet.png"))
    assert "problem" in printed
    assert "line 3: column 'image' is '2.png'; expected: an image that can be opened" in printed


def test_show_works_for_an_environment_that_draws_its_tasks(tmp_path):
    out = tmp_path / "digits.png"
    printed = run("data", "show", "quickstart", "--tasks", "1", "--held-out", "--out", str(out))
    assert "digits-test-" in printed
    assert "Which digit is it, and where?" in printed


def test_a_config_without_a_model_is_shown_and_previewed_and_says_what_it_assumes(config, tmp_path):
    raw = yaml.safe_load((tmp_path / "run.yaml").read_text())
    shown = run("data", "show", config, "--tasks", "1", "--out", str(tmp_path / "a.png"))
    assert "conventions: coordinates per_mille" in shown
    assert "names no model" not in shown
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({"env": raw["env"]}))
    shown = run("data", "show", config, "--tasks", "1", "--out", str(tmp_path / "a.png"))
    assert "conventions: coordinates unit; views of at most 262,144 pixels" in shown
    assert "(the config names no model)" in shown
    assert "splits: train: 5 tasks" in shown
    assert "Is 0 odd?" in run("data", "preview", config, "--tasks", "1", "--out", str(tmp_path / "p.html"))


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
        printed = run("data", command, config, "--out", str(tmp_path / "a.png"))
        assert (said in printed) if said else ("frame shown" not in printed), printed


def test_preview_prints_what_the_model_reads_with_tokens_and_the_right_answer(config, tmp_path):
    out = tmp_path / "page.html"
    printed = run("data", "preview", "quickstart", "--tasks", "1", "--out", str(out))
    assert "Find the handwritten digit." in printed
    assert "tools: zoom" in printed
    assert " tokens)" in printed
    assert '-- right answer: {"label"' in printed
    assert out.read_text().count("<img ") == 1
    printed = run("data", "preview", config, "--tasks", "2", "--out", str(out))
    assert printed.count("-- right answer: ") == 2
    assert "Is 0 odd?" in printed
