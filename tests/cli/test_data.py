"""`viewbox data` and `viewbox view CONFIG`: tasks before training on them, and columns against what is expected."""

import json
import os
import re

import nibabel as nib
import numpy as np
import pytest
import yaml
from PIL import Image
from typer.testing import CliRunner

import viewbox
from tests.support.data_kit import COLUMNS, make_rows, write_images, write_jsonl, write_table
from tests.support.tables import each
from viewbox.cli.app import app
from viewbox.cli.data import relocate
from viewbox.viewer.episode_page import build_episode_page
from viewbox.viewer.unplayed import ADDED, build_unplayed

ENV = {"name": "tests.support.data_kit:Questions"}
MODEL = {"name": "package:tiny_viewer"}


def invoke(*arguments, **options):
    """The exit status and what is printed."""
    result = CliRunner().invoke(app, list(map(str, arguments)), **options)
    return result.exit_code, f"{result.output}\n{result.exception or ''}"


# ---------------------------------------------------------------------- the tasks are shown
@pytest.fixture
def config(tmp_path):
    write_images(tmp_path, size=(100, 50))
    rows = [{**row, "box": [0.2, 0.2, 0.6, 0.8]} for row in make_rows()]
    rows[1]["answer"] = "maybe"
    columns = {**COLUMNS, "box": "box"}
    data = {"source": str(write_jsonl(tmp_path / "t.jsonl", rows)), "columns": columns, "boxes": {"unit": "unit"}}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({"model": MODEL, "env": {**ENV, "data": data}}))
    return tmp_path / "run.yaml"


def change_config(config, change):
    raw = yaml.safe_load(config.read_text())
    change(raw)
    config.write_text(yaml.safe_dump(raw))


def run(*arguments):
    status, printed = invoke(*arguments, catch_exceptions=False)
    assert status == int("quickstart" not in arguments)  # a row of `config` is bad, and left out
    return printed


def test_show_prints_the_fields_also_of_an_environment_that_draws_its_tasks(config):
    printed = run("data", "show", config, "--tasks", "2")
    assert [line for line in printed.splitlines() if line in ("t0", "t1", "t2")] == ["t0", "t2"]
    assert all(said in printed for said in ("questions: 5 tasks", "Is 2 odd?", "1; the first has 100x50 pixels"))
    printed = run("data", "show", "quickstart", "--tasks", "1", "--held-out")
    assert all(said in printed for said in ("digits-test-", "Which digit is it, and where?"))


def read_tasks(page, number=0):
    """The pages of the tasks in a report, of training (0) or held out (1)."""
    [text] = re.findall(f'<script type="application/json" id="episodes-{number}-0">(.*?)</script>', page.read_text())
    return list(json.loads(text).values())


def test_view_shows_the_tasks_of_a_config_with_their_boxes_prompts_and_right_answers(config, tmp_path):
    out = tmp_path / "tasks.html"
    printed = run("view", config, "env.max_turns=3", "--out", out)
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


def test_without_a_model_messages_are_shown_and_what_is_assumed_and_of_a_task_that_cannot_be_opened_why(
    config, tmp_path
):
    shown = run("data", "show", config, "--tasks", "1")
    assert "conventions: coordinates per_mille" in shown
    assert "names no model" not in shown
    change_config(config, lambda raw: raw.pop("model"))
    shown = run("data", "show", config, "--tasks", "1")
    assert "conventions: coordinates unit; views of at most 262,144 pixels" in shown
    assert all(said in shown for said in ("(the config names no model)", "splits: train: 5 tasks"))
    (tmp_path / "2.png").write_text("no image")
    said = "line 3: column 'image' is '2.png'; expected: an image"
    printed = run("data", "show", config)
    assert "problem" in printed
    assert f"{said} that can be opened" in printed
    assert f"warning: t2: t.jsonl: {said}" in run("view", config, "--tasks", "2", "--out", tmp_path / "tasks.html")
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
    pages = build_episode_page(episode, line=1)["pictures"].values()
    shown = {(one["index"], one["plane"], one["slice"]): one["boxes"] for one in pages}
    counts = {place: len(boxes) for place, boxes in shown.items()}
    assert counts == {(0, None, None): 0, (1, "axial", 30): 0, (1, "coronal", 12): 1}
    (left, top), _, (right, bottom), _ = shown[1, "coronal", 12][0]["corners"]
    pixels = np.asarray(picture.open())
    height, width = pixels.shape
    inside = pixels[round(top * height) : round(bottom * height), round(left * width) : round(right * width)]
    assert inside.shape == (20, 10)
    assert (inside == 255).all()
    assert (pixels == 255).sum() - inside.size < 100  # the letters


@each("boxes, said", [
    ({"unit": "unit"}, "boxes: xyxy, unit unit, frame shown (the picture as it is shown, after EXIF turns it and"),
    ({"frame": "voxel"}, "boxes: xyxy, unit pixel, frame voxel (the array in the file: i, j on slice k)"), (None, None)
])  # fmt: skip
def test_show_and_check_say_what_boxes_count_in_where_there_are_boxes(config, boxes, said):
    def set_boxes(raw):
        data = raw["env"]["data"]
        data["boxes"] = boxes or data["boxes"]
        data["columns"] |= {"box": "box"}
        if boxes is None:
            del data["columns"]["box"]

    change_config(config, set_boxes)
    for command in ("show", "check"):
        printed = run("data", command, config)
        assert (said in printed) if said else ("frame shown" not in printed), printed


# ---------------------------------------------------------------------- the columns are checked
FEATURES = {"id": "text", "image": "image", "question": "text", "answer": ["no", "yes"], "level": "number"}
ROWS = make_rows()


@pytest.fixture
def check(tmp_path):
    """Checks rows against features; returns the exit status and what is printed."""

    def run(rows, *options, features=FEATURES, broken=(), **data):
        source = tmp_path / "data" / "t.jsonl"
        source.parent.mkdir(exist_ok=True)
        write_images(source.parent)
        write_jsonl(source, rows)
        data = {"source": str(source), "columns": COLUMNS, "features": features, **data}
        (tmp_path / "run.yaml").write_text(yaml.safe_dump({"model": MODEL, "env": {**ENV, "data": data}}))
        for name in broken:
            (source.parent / name).write_text("no image")
        return invoke("data", "check", tmp_path / "run.yaml", *options)

    return run


def change(**values):
    """The rows, of which one has other values."""
    return [{**row, **values} if number == 2 else row for number, row in enumerate(ROWS)]


def change_all(**values):
    return [{**row, **values} for row in ROWS]


def rename(old, new):
    return [{new if name == old else name: value for name, value in row.items()} for row in ROWS]


MISFIT = ["it does not fit; its columns: id, image, question, answer", "questions: "]
NESTED = {"meta.kind": ["a", "b"], "marks.*.x": "number", "marks": "list", "meta": "mapping"}
PATIENTS = [{**row, "patient": f"p{number // 2}"} for number, row in enumerate(ROWS)]
OTHER = "reward={type: exact_match, field: text, reference_field: gold}"


@pytest.mark.slow
@each("rows, options, data, status, said, unsaid", [
    (ROWS, [], {}, 0, [
        "6 rows; the first 6 are compared\nit fits: the columns of data.features, in 6 rows", "Is 1 odd?", "t0\n",
        "t1\n", "t2\n", "right answers: questions: reward 1.000, the mean of 6 of 6 tasks (exact_match 1.000)",
    ], "t3\n"),
    (ROWS, [], {"features": {}}, 0, ["6 rows; no column is compared, because data.features names none",
        "images of train: 6 of 6 rows can be shown"], "it fits"),
    (ROWS, [OTHER], {}, 0, [
        "warning: questions: reward component 'exact_match' gives the right answers 0.000: no task has"], None),
    # both sides of a cut with their groups and labels
    (PATIENTS, [], {"features": {}, "hold_out": {"share": 0.34, "by": "patient"}}, 0, [
        "train: 4 tasks, 2 groups of patient; answer: no 2, yes 2",
        "test: 2 tasks, 1 group of patient; answer: no 1, yes 1"], None),
    # what does not fit is named, and a row that is left out
    (change(level="high"), [], {}, 1, [*MISFIT,
        "other type: level: holds text (1 of 6 values, such as 'high'); expected: number"], None),
    (change(level=True), [], {}, 1, [*MISFIT,
        "other type: level: holds bool (1 of 6 values, such as True); expected: number"], None),
    (change(question=["a", "b"]), [], {}, 1, [*MISFIT,
        "other type: question: holds list (1 of 6 values, such as ['a', 'b'])"], None),
    (change(answer="maybe"), [], {}, 1, [*MISFIT, "unexpected label: answer: holds 'maybe'; expected: no, yes"], None),
    (rename("level", "other"), [], {}, 1, [*MISFIT, "missing: level"], None),
    (change_all(level=None), [], {}, 1, [*MISFIT, "missing: level"], None),
    (change(answer=None), [], {"features": {}}, 1, ["5 tasks"], None),
    # extra columns and labels that do not occur do no harm
    (change_all(answer="no", note="x"), [], {}, 0, ["extra: note", "does not occur: answer: 'yes'"], None),
    # a mapped column that is missing is reported before the tasks cannot be made
    (rename("answer", "reply"), [], {}, 1, ["missing: answer", "extra: reply", "unknown column 'answer'"], None),
    (change_all(meta={"kind": "a"}, marks=[{"x": 1.5}, {"x": "2"}]), [], {"features": NESTED}, 1, [
        "does not occur: meta.kind: 'b'",
        "other type: marks.*.x: holds text (6 of 12 values, such as '2'); expected: number"], "other type: meta"),
])  # fmt: skip
def test_a_dataset_is_compared_with_what_is_expected(check, tmp_path, rows, options, data, status, said, unsaid):
    found, printed = check(rows, *options, **data)
    assert found == status, printed
    assert [words for words in said if words not in printed] == []
    assert unsaid is None or unsaid not in printed


BOX = "expected a box"


@each("lost, said", [  # what is wrong with row t4, which is held out
    ({"answer": "maybe"}, "answer 'maybe': expected one of: yes, no"), ({"image": "3.png"}, "image '3.png'"),
    ({"box": [25, 2, 35, 12]}, f"box [25, 2, 35, 12]: {BOX} inside the image of 30x20 pixels"),
    ({"box": [20, 2, 10, 12]},
        f"box [20, 2, 10, 12]: {BOX} with positive sides, as xyxy (perhaps data.boxes.format: xywh)"),
])  # fmt: skip
def test_a_row_that_is_lost_in_any_split_ends_with_status_1(check, tmp_path, lost, said):
    rows = [{**row, "box": [0, 0, 10, 10]} | (lost if row["id"] == "t4" else {}) for row in ROWS]
    data = {"broken": ["3.png"] if "image" in lost else [], "columns": COLUMNS | {"box": "box"}, "hold_out": 0.25}
    for split in ("train", "test"):
        status, printed = check(rows, split=split, **data)
        assert (status, f"bad: test: {said}" in printed) == (1, True), printed


def test_all_images_are_opened_each_failure_is_named_once_and_the_clean_lines_are_written(check, tmp_path):
    rows = change_all(extra={"é": [1.0, "½"]})
    rows[5]["image"] = "3.png"  # two rows with one image
    clean = tmp_path / "clean.jsonl"
    options = ("--images", "--write", str(clean))
    data = {"features": {}, "limit": 2, "hold_out": 0.5, "broken": ["3.png", "1.png"]}
    status, printed = check(rows, *options, **data)
    named = [line for line in printed.splitlines() if line.startswith("bad: ")]
    assert [line.partition(" this")[0] for line in named] == ["bad: image '1.png':", "bad: image '3.png':"]
    assert named[1].endswith("(line 4, line 6)")
    assert max(map(len, named)) < 220
    assert (status, "images: 3 of 6 rows can be shown" in printed) == (1, True)
    lines = (tmp_path / "data" / "t.jsonl").read_bytes().splitlines(keepends=True)
    assert clean.read_bytes() == b"".join(lines[number] for number in (0, 2, 4))
    assert "exists; give another --write" in check(rows, *options, **data)[1]
    assert "--write: which rows are clean is known with --images only" in check(rows, *options[1:], **data)[1]


@each("kind", ["csv", "parquet"])
def test_clean_rows_of_another_file_are_json_and_those_of_a_table_are_refused(tmp_path, kind):
    write_images(tmp_path)
    (tmp_path / "5.png").write_text("no image")
    source = write_table(tmp_path / f"t.{kind}", [{"id": f"t{i}", "image": f"{i}.png", "n": i / 2} for i in range(6)])
    columns = {"id": "id", "image": "image", "question": {"value": "?"}, "answer": "id"}
    data = {"source": str(source), "images": str(tmp_path), "columns": columns}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({"env": {"name": "vqa", "data": data}}))
    out = tmp_path / "clean.jsonl"
    said = invoke("data", "check", tmp_path / "run.yaml", "--images", "--write", out)[1]
    if kind == "parquet":
        assert "the rows of t.parquet are no lines of text; allowed: a .jsonl" in said
    else:
        assert [json.loads(line)["n"] for line in out.read_text().splitlines()] == [0, 0.5, 1, 1.5, 2]


def test_path_says_where_the_dataset_is_and_one_place_may_be_absolute_and_another_not(check, tmp_path):
    check(ROWS)
    moved = (tmp_path / "data").rename(tmp_path / "moved") / "t.jsonl"
    write_jsonl(moved, [{**ROWS[0], "answer": "perhaps"}, *ROWS[1:]])
    status, printed = check(ROWS, "--path", str(moved))
    assert (status, "holds 'perhaps'" in printed) == (1, True)
    absolute = tmp_path / "data" / "t.json"
    both = relocate({"source": str(absolute), "images": os.path.relpath(tmp_path / "data" / "films")}, "here")
    assert both == ['env.data.source="here/t.json"', 'env.data.images="here/films"']


def test_an_environment_without_a_dataset_is_refused():
    status, said = invoke("data", "check", "quickstart")
    assert (status != 0, "digits" in said, "reads no dataset" in said) == (True, True, True)
