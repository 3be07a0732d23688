"""How columns become the fields of a task."""

import pytest

from tests.support.data_kit import COLUMNS, Questions, make_env, make_rows, write_images, write_jsonl
from viewbox.envs.data.columns import ColumnMap
from viewbox.errors import BadRow, ConfigError


def read(spec, row):
    return ColumnMap({"x": spec}, "d", list(row)).read("x", row)


def test_a_path_goes_through_mappings_and_lists_and_keys_with_dots():
    row = {"a": {"b": [{"c": 1}, {"c": 2}]}, "d.e": {"f.g": 3}}
    paths = {"a.b.1.c": 2, "a.b.*.c": [1, 2], "d.e.f.g": 3, "a.b.7.c": None, "a.x": None}
    assert {path: read(path, row) for path in paths} == paths


def test_constants_templates_and_lists_are_values():
    row = {"x": 1, "y": "two"}
    assert read({"value": 7}, row) == 7
    assert read({"template": "{{ x }} and {{ y }}"}, row) == "1 and two"
    assert read(["x", {"value": 0}, "y"], row) == [1, 0, "two"]


def test_an_unknown_column_is_named_with_the_nearest_and_all_there_are(tmp_path):
    env = make_env(write_jsonl(tmp_path / "t.jsonl", make_rows()), {**COLUMNS, "answer": "anser"})
    with pytest.raises(ConfigError) as caught:
        len(env.tasks)
    assert str(caught.value) == (
        "data.columns.answer: t.jsonl: unknown column 'anser'; allowed: answer, id, image, level, question "
        "(did you mean 'answer'?)"
    )
    assert caught.value.key == "data.columns.answer"


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"image": "image", "question": "question"}, "questions needs answer; t.jsonl has the columns id, image"),
        ({"question": "question", "answer": "answer"}, "questions needs image"),
        ({**COLUMNS, "qestion": "id"}, "unknown field of questions 'qestion'"),
        ({**COLUMNS, "question": {"template": "{{ quest }}"}}, "unknown column 'quest'"),
        ({**COLUMNS, "question": {"template": "{{ question"}}, "data.columns.question.template: line 1"),
        ({**COLUMNS, "question": {"templat": "x"}}, "allowed: a column, {value: constant}"),
    ],
)
def test_a_mapping_that_cannot_be_used_says_why(tmp_path, columns, said):
    env = make_env(write_jsonl(tmp_path / "t.jsonl", make_rows()), columns)
    with pytest.raises(ConfigError) as caught:
        len(env.tasks)
    assert said in str(caught.value)


def test_a_template_that_fails_costs_its_row(tmp_path):
    write_images(tmp_path)
    rows = write_jsonl(tmp_path / "t.jsonl", make_rows())
    with pytest.raises(ConfigError, match="template fails: ZeroDivisionError"):
        len(make_env(rows, {**COLUMNS, "question": {"template": "{{ question }}{{ 1 // 0 }}"}}).tasks)


def test_metadata_maps_names_to_columns(tmp_path):
    write_images(tmp_path)
    env = make_env(write_jsonl(tmp_path / "t.jsonl", make_rows()), {**COLUMNS, "metadata": {"hard": "level"}})
    assert env.tasks[2].metadata == {"hard": 0.2, "row": 2}


@pytest.mark.parametrize(
    ("boxes", "box", "stored"),
    [
        ({"format": "xywh", "unit": "pixel"}, [3, 2, 6, 4], (0.1, 0.1, 0.3, 0.3)),
        ({"format": "xyxy", "unit": "unit"}, [0.1, 0.1, 0.3, 0.3], (0.1, 0.1, 0.3, 0.3)),
        ({"format": "xyxy", "unit": "per_mille"}, "[100, 100, 300, 300]", (0.1, 0.1, 0.3, 0.3)),
    ],
)
def test_boxes_are_stored_as_fractions_of_the_image(tmp_path, boxes, box, stored):
    write_images(tmp_path)
    rows = write_jsonl(tmp_path / "t.jsonl", [{**row, "box": box} for row in make_rows()])
    env = make_env(rows, {**COLUMNS, "box": "box"}, boxes=boxes)
    assert env.tasks[0].reference["box"] == pytest.approx(stored)


def test_a_class_whose_data_is_not_set_can_be_made_but_has_no_tasks():
    env = Questions()
    with pytest.raises(ConfigError, match=r"data\.source: is missing"):
        len(env.tasks)


def test_an_error_about_a_row_is_short_however_long_its_value():
    assert len(str(BadRow("d", 3, "question", "a" * 100_000, "text of at most 50,000 characters"))) < 250
