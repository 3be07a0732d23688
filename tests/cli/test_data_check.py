"""`viewbox data check`: a dataset's columns against what a config expects of them."""

import json
import os

import pytest
import yaml
from typer.testing import CliRunner

from tests.support.data_kit import COLUMNS, make_rows, write_images, write_jsonl
from viewbox.cli.app import app
from viewbox.cli.data_check import relocate

CLASS = "tests.support.data_kit:Questions"
FEATURES = {"id": "text", "image": "image", "question": "text", "answer": ["no", "yes"], "level": "number"}


@pytest.fixture
def check(tmp_path):
    """Checks rows against features; returns the exit status and what is printed."""

    def run(rows, *options, features=FEATURES, **data):
        source = tmp_path / "data" / "t.jsonl"
        source.parent.mkdir(exist_ok=True)
        write_images(source.parent)
        write_jsonl(source, rows)
        data = {"source": str(source), "columns": COLUMNS, "features": features, **data}
        raw = {"model": {"name": "package:tiny_viewer"}, "env": {"name": CLASS, "data": data}}
        (tmp_path / "run.yaml").write_text(yaml.safe_dump(raw))
        arguments = ["data", "check", str(tmp_path / "run.yaml"), *options, "--out", str(tmp_path / "check.png")]
        result = CliRunner().invoke(app, arguments)
        return result.exit_code, f"{result.output}\n{result.exception or ''}"

    return run


def change(**values):
    rows = make_rows()
    rows[2].update(values)
    return rows


def test_a_dataset_that_fits_is_reported_and_three_of_its_tasks_are_shown(check, tmp_path):
    status, printed = check(make_rows())
    assert status == 0
    assert "6 rows; the first 6 are compared\nit fits" in printed
    assert [line for line in printed.splitlines() if line in ("t0", "t1", "t2", "t3")] == ["t0", "t1", "t2"]
    assert "Is 1 odd?" in printed
    assert (tmp_path / "check.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        (change(level="high"), "other type: level: holds text (1 of 6 values, such as 'high'); expected: number"),
        (change(level=True), "other type: level: holds bool (1 of 6 values, such as True); expected: number"),
        (change(question=["a", "b"]), "other type: question: holds list (1 of 6 values, such as ['a', 'b'])"),
        (change(answer="maybe"), "unexpected label: answer: holds 'maybe'; expected: no, yes"),
        ([{k: v for k, v in row.items() if k != "level"} for row in make_rows()], "missing: level"),
        ([{**row, "level": None} for row in make_rows()], "missing: level"),
    ],
)
def test_what_does_not_fit_is_named_and_the_status_is_1(check, rows, line):
    status, printed = check(rows)
    assert status == 1
    assert line in printed
    assert "it does not fit; its columns: id, image, question, answer" in printed
    assert "questions: " in printed


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
