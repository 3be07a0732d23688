"""`viewbox data check`: a dataset's columns against what a config expects of them."""

import json
import os

import pytest
import yaml
from pyarrow import csv
from pyarrow import parquet as pq
from typer.testing import CliRunner

from tests.support.data_kit import COLUMNS, make_rows, write_images, write_jsonl
from viewbox.cli.app import app
from viewbox.cli.data import relocate

CLASS = "tests.support.data_kit:Questions"
FEATURES = {"id": "text", "image": "image", "question": "text", "answer": ["no", "yes"], "level": "number"}


@pytest.fixture
def check(tmp_path):
    """Checks rows against features; returns the exit status and what is printed."""

    def run(rows, *options, features=FEATURES, broken=(), **data):
        source = tmp_path / "data" / "t.jsonl"
        source.parent.mkdir(exist_ok=True)
        write_images(source.parent)
        write_jsonl(source, rows)
        data = {"source": str(source), "columns": COLUMNS, "features": features, **data}
        raw = {"model": {"name": "package:tiny_viewer"}, "env": {"name": CLASS, "data": data}}
        (tmp_path / "run.yaml").write_text(yaml.safe_dump(raw))
        for name in broken:
            (source.parent / name).write_text("no image")
        arguments = ["data", "check", str(tmp_path / "run.yaml"), *options]
        result = CliRunner().invoke(app, arguments)
        return result.exit_code, f"{result.output}\n{result.exception or ''}"

    return run


def change(**values):
    rows = make_rows()
    rows[2].update(values)
    return rows


def test_a_dataset_that_fits_is_reported_and_three_of_its_tasks_are_shown(check):
    status, printed = check(make_rows())
    assert status == 0
    assert "6 rows; the first 6 are compared\nit fits: the columns of data.features, in 6 rows" in printed
    assert [line for line in printed.splitlines() if line in ("t0", "t1", "t2", "t3")] == ["t0", "t1", "t2"]
    assert "Is 1 odd?" in printed


def test_without_features_it_is_not_said_to_fit(check):
    status, printed = check(make_rows(), features={})
    assert status == 0
    assert "6 rows; no column is compared, because data.features names none" in printed
    assert "it fits" not in printed
    assert "images of train: 6 of 6 rows can be shown" in printed


LOST = {  # what is wrong with row t4, which is held out, and what is said
    "answer 'maybe': expected one of: yes, no": {"answer": "maybe"},
    "box [25, 2, 35, 12]: expected a box inside the image of 30x20 pixels": {"box": [25, 2, 35, 12]},
    "box [20, 2, 10, 12]: expected a box with positive sides, as xyxy (perhaps data.boxes.format: xywh)": {
        "box": [20, 2, 10, 12]
    },
    "image '3.png'": {"image": "3.png"},
}


@pytest.mark.parametrize("said", LOST)
def test_a_row_that_is_lost_in_any_split_ends_with_status_1(check, said):
    rows = [{**row, "box": [0, 0, 10, 10]} | (LOST[said] if row["id"] == "t4" else {}) for row in make_rows()]
    broken = ["3.png"] if "image" in LOST[said] else []
    for split in ("train", "test"):
        status, printed = check(rows, broken=broken, columns=COLUMNS | {"box": "box"}, hold_out=0.25, split=split)
        assert status == 1
        assert f"bad: test: {said}" in printed


def test_both_sides_of_a_cut_are_printed_with_their_groups_and_labels(check):
    rows = [{**row, "patient": f"p{number // 2}"} for number, row in enumerate(make_rows())]
    _, printed = check(rows, features={}, hold_out={"share": 0.34, "by": "patient"})
    assert "train: 4 tasks, 2 groups of patient; answer: no 2, yes 2" in printed
    assert "test: 2 tasks, 1 group of patient; answer: no 1, yes 1" in printed


def test_the_right_answers_are_scored_by_the_reward_of_the_config(check):
    _, printed = check(make_rows())
    assert "right answers: questions: reward 1.000, the mean of 6 of 6 tasks (exact_match 1.000)" in printed
    _, printed = check(make_rows(), "reward={type: exact_match, field: text, reference_field: gold}")
    assert "warning: questions: reward component 'exact_match' gives the right answers 0.000: no task has" in printed


def test_all_images_are_opened_each_failure_is_named_once_and_the_clean_lines_are_written(check, tmp_path):
    rows = [{**row, "extra": {"é": [1.0, "½"]}} for row in make_rows()]
    rows[5]["image"] = "3.png"  # two rows with one image
    clean = tmp_path / "clean.jsonl"
    options = ("--images", "--write", str(clean))
    data = {"features": {}, "limit": 2, "hold_out": 0.5, "broken": ["3.png", "1.png"]}
    status, printed = check(rows, *options, **data)
    assert status == 1
    named = [line for line in printed.splitlines() if line.startswith("bad: ")]
    assert [line.partition(" this")[0] for line in named] == ["bad: image '1.png':", "bad: image '3.png':"]
    assert named[1].endswith("(line 4, line 6)")
    assert max(map(len, named)) < 220
    assert "images: 3 of 6 rows can be shown" in printed
    lines = (tmp_path / "data" / "t.jsonl").read_bytes().splitlines(keepends=True)
    assert clean.read_bytes() == b"".join(lines[number] for number in (0, 2, 4))
    status, printed = check(rows, *options, **data)
    assert "exists; give another --write" in printed
    status, printed = check(rows, "--write", str(clean), **data)
    assert "--write: which rows are clean is known with --images only" in printed


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_clean_rows_of_another_file_are_json_and_those_of_a_table_are_refused(tmp_path, kind):
    write_images(tmp_path)
    (tmp_path / "5.png").write_text("no image")
    (tmp_path / "t.csv").write_text("id,image,n\n" + "".join(f"t{i},{i}.png,{i / 2}\n" for i in range(6)))
    pq.write_table(csv.read_csv(tmp_path / "t.csv"), tmp_path / "t.parquet")
    columns = {"id": "id", "image": "image", "question": {"value": "?"}, "answer": "id"}
    data = {"source": str(tmp_path / f"t.{kind}"), "images": str(tmp_path), "columns": columns}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({"env": {"name": "vqa", "data": data}}))
    out = tmp_path / "clean.jsonl"
    arguments = ["data", "check", str(tmp_path / "run.yaml"), "--images", "--write", str(out)]
    result = CliRunner().invoke(app, arguments)
    if kind == "parquet":
        assert "the rows of t.parquet are no lines of text; allowed: a .jsonl" in str(result.exception)
        return
    assert [json.loads(line)["n"] for line in out.read_text().splitlines()] == [0, 0.5, 1, 1.5, 2]


WHAT_DOES_NOT_FIT_IS_NAM = [
    (change(level="high"), "other type: level: holds text (1 of 6 values, such as 'high'); expected: number"),
    (change(level=True), "other type: level: holds bool (1 of 6 values, such as True); expected: number"),
    (change(question=["a", "b"]), "other type: question: holds list (1 of 6 values, such as ['a', 'b'])"),
    (change(answer="maybe"), "unexpected label: answer: holds 'maybe'; expected: no, yes"),
    ([{k: v for k, v in row.items() if k != "level"} for row in make_rows()], "missing: level"),
    ([{**row, "level": None} for row in make_rows()], "missing: level"),
]


def test_what_does_not_fit_is_named_and_the_status_is_1(check):
    for rows, line in WHAT_DOES_NOT_FIT_IS_NAM:
        status, printed = check(rows)
        assert status == 1
        assert line in printed
        assert "it does not fit; its columns: id, image, question, answer" in printed
        assert "questions: " in printed


def test_a_row_that_is_left_out_is_status_1(check):
    status, printed = check(change(answer=None), features={})
    assert status == 1
    assert "5 tasks" in printed


def test_extra_columns_and_labels_that_do_not_occur_are_named_and_do_no_harm(check):
    rows = [{**row, "answer": "no", "note": "x"} for row in make_rows()]
    status, printed = check(rows)
    assert status == 0
    assert "extra: note" in printed
    assert "does not occur: answer: 'yes'" in printed


def test_a_mapped_column_that_is_missing_is_reported_before_the_tasks_cannot_be_made(check):
    rows = [{("reply" if k == "answer" else k): v for k, v in row.items()} for row in make_rows()]
    status, printed = check(rows)
    assert status == 1
    assert "missing: answer" in printed
    assert "extra: reply" in printed
    assert "unknown column 'answer'" in printed


def test_nested_features_are_followed_by_their_paths(check):
    rows = [{**row, "meta": {"kind": "a"}, "marks": [{"x": 1.5}, {"x": "2"}]} for row in make_rows()]
    features = {"meta.kind": ["a", "b"], "marks.*.x": "number", "marks": "list", "meta": "mapping"}
    status, printed = check(rows, features=features)
    assert status == 1
    assert "does not occur: meta.kind: 'b'" in printed
    assert "other type: marks.*.x: holds text (6 of 12 values, such as '2'); expected: number" in printed
    assert "other type: meta" not in printed


def test_path_says_where_the_dataset_is(check, tmp_path):
    moved = tmp_path / "moved"
    check(make_rows())
    (tmp_path / "data").rename(moved)
    rows = [json.loads(line) for line in (moved / "t.jsonl").read_text().splitlines()]
    rows[0]["answer"] = "perhaps"
    write_jsonl(moved / "t.jsonl", rows)
    status, printed = check(make_rows(), "--path", str(moved / "t.jsonl"))
    assert status == 1
    assert "holds 'perhaps'" in printed


def test_an_environment_without_a_dataset_is_refused():
    result = CliRunner().invoke(app, ["data", "check", "quickstart"])
    assert result.exit_code != 0
    assert "digits" in str(result.exception)
    assert "reads no dataset" in str(result.exception)


def test_path_moves_a_dataset_of_which_one_place_is_absolute_and_the_other_is_not(tmp_path):
    absolute = tmp_path / "data" / "t.json"
    moved = relocate({"source": str(absolute), "images": os.path.relpath(tmp_path / "data" / "films")}, "here")
    assert moved == ['env.data.source="here/t.json"', 'env.data.images="here/films"']
