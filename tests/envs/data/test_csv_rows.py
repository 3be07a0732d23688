"""What a cell becomes: cells of text one by one, values of tables by the schema of their own file."""

import datetime
import json
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.support.data_kit import list_ids, make_env, write_images
from tests.support.tables import each
from viewbox import make
from viewbox.envs.data import tables
from viewbox.envs.data.settings import DataSettings
from viewbox.envs.data.sources import open_rows
from viewbox.errors import BadRow, ConfigError


def read(path, content=None, **data):
    """(place, values) of every row, a bad row as text; the same row by row and in order."""
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    rows = open_rows(DataSettings(source=str(path), **data))
    names, scanned = rows.list_columns(), []
    for number, row in enumerate(rows.scan(names)):
        scanned.append((rows.locate(number), str(row) if isinstance(row, BadRow) else dict(row)))
        if not isinstance(row, BadRow):
            assert rows.read(number, names) == row
    return scanned


CELLS = (  # a cell in a CSV with commas, what it becomes
    ("12", 12), ("-1.5", -1.5), ("7.0", 7.0), (" 3 ", 3), ("1e-05", 1e-05), ("0", 0),
    ("1.10", "1.10"), ("007", "007"), ("12e4", "12e4"), ("2e5", "2e5"), ("+3", "+3"), ("-0", "-0"), ("1_000", "1_000"),
    ("0x10", "0x10"), ("1/2", "1/2"), ("28 %", "28 %"), ("2024-01-02", "2024-01-02"), ("5 mm", "5 mm"), (".5", ".5"),
    ("1234567890123456789", "1234567890123456789"), ('"3,5"', "3,5"), ('"12,000"', "12,000"), ("inf", "inf"),
    ("TRUE", True), ("True", True), ("true", True), ("FALSE ", False), ("false", False), ("yes", "yes"), ("T", "T"),
    ("", None), ("  ", None), ('""', None), ("NaN", "NaN"), ("NA", "NA"), ("null", "null"),
)  # fmt: skip


def test_a_cell_is_a_number_only_if_it_would_be_written_so_again(tmp_path):
    found = read(tmp_path / "t.csv", "n,x\n" + "".join(f"a,{cell}\n" for cell, _ in CELLS))
    for number, (_, value) in enumerate(CELLS):
        assert found[number] == (f"line {number + 2}", {"n": "a", "x": value})
        assert type(found[number][1]["x"]) is type(value)


DECIMALS = (  # cells of a column, the setting, what they become (text: the error)
    (("3,5", "12,25", "4", "-0,5"), None, [3.5, 12.25, 4, -0.5]),
    (("3,50", "1.234,5", "1.234.567,25"), None, ["3.50", 1234.5, 1234567.25]),
    (("3.5", "4", "12,000"), None, [3.5, 4, "12,000"]),
    (("3.5", "4,5"), None, "cells such as 3.5 and 4,5 leave open which sign stands before decimals"),
    (("1.234", "4,5"), None, "leave open"), (("1.234",), None, "leave open"), (("0.953", "4"), None, [0.953, 4]),
    (("1,234",), None, "allowed: data.cells.decimal: ',' or '.'"),
    (("3.5", "4,5", "1.234"), ",", ["3.5", 4.5, 1234]), (("3.5", "4,5"), ".", [3.5, "4,5"]),
)  # fmt: skip


@each("cells, decimal, values", DECIMALS)
def test_semicolons_bring_decimal_commas_unless_the_cells_leave_it_open(tmp_path, cells, decimal, values):
    content, given = "x;n\n" + "".join(f"{cell};a\n" for cell in cells), {"cells": {"decimal": decimal}}
    if isinstance(values, str):
        with pytest.raises(ConfigError, match=values):
            read(tmp_path / "t.csv", content, **given)
        return
    assert [row["x"] for _, row in read(tmp_path / "t.csv", content, **given)] == values


def test_further_texts_for_true_false_and_null_are_a_setting_of_cells_alone(tmp_path):
    given = {"cells": {True: ["ja"], "false": ["nein"], None: ["NA", "-"]}}  # as YAML reads the keys
    found = read(tmp_path / "t.csv", "x,n\nJa,1\nnein,1\nna,1\n-,1\nTRUE,1\n", **given)
    assert [row["x"] for _, row in found] == [True, False, None, None, True]
    with pytest.raises(ConfigError, match=r"data\.cells: t\.jsonl has no cells"):
        read(tmp_path / "t.jsonl", '{"x": "ja"}\n', **given)


FILES = {  # what is in the file: (place, values of column x), or what is said
    "\ufeffn,x\n1,a\n": [("line 2", "a")], "n,x\r1,a\r2,b\r": [("line 2", "a"), ("line 3", "b")],
    'n,x\n1,"a\nb"\n\n ,\n,,,,\n2,c\n3\n': [("line 2", "a\nb"), ("line 7", "c"), ("line 8", None)],
    "sep=;\nn;x\n1;a\n": [("line 3", "a")], " n , x ,\n1,a,\n": [("line 2", "a")], "": "its header is empty",
    "n\tx\t\t\n1\ta\n2\tb\t\t\t\n": [("line 2", "a"), ("line 3", "b")],
    ",n,x\n5,1,a\n3,2,b\n": [("line 2", "a"), ("line 3", "b")],  # what pandas writes for its index
    ",n,x\nno,1,a\n": "line 2 holds 'no' in column 1, which has no name",
    "n,,x\n1,,a\n2,b,c\n": "line 3 holds 'b' in column 2, which has no name",
    "n,x,n\n1,2,3\n": "two columns of one name ('n')",
    'n,x\n1,a\n2,"b\n3,c\n': "below line 2: unexpected end of data; allowed: .*every quote closed",
    'n,x\n1,"a\n2,"b"\n': "below line 1: ',' expected after '\"'",
    "n,x\n1,Größe\n".encode("cp1252"): "cannot be read as CSV in UTF-8 .*iconv -f WINDOWS-1252",
}  # fmt: skip


@each("content, expected", FILES.items())
def test_a_file_of_cells_is_read_whole_or_refused(tmp_path, content, expected):
    if isinstance(expected, str):
        with pytest.raises(ConfigError) as caught:
            read(tmp_path / "t.csv", content)
        assert all(part in str(caught.value) for part in expected.split(".*"))
        return
    found = read(tmp_path / "t.csv", content)
    assert [(place, None if isinstance(row, str) else row["x"]) for place, row in found] == expected


def write_labels(path, names, values):
    import datasets

    label = datasets.ClassLabel(names=names)
    features = datasets.Features(a=label, many=datasets.Sequence(label), inside=datasets.Sequence({"c": label}))
    path.parent.mkdir(exist_ok=True)
    columns = {"a": values, "many": [[value, -1] for value in values], "inside": [{"c": [value]} for value in values]}
    datasets.Dataset.from_dict(columns, features=features).to_parquet(path)


@pytest.mark.parametrize("way", ["memory", "copy", "streaming"])
def test_each_shard_names_its_own_classes_and_minus_one_is_none(tmp_path, way, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tables, "IN_MEMORY", 0 if way == "copy" else 2**28)
    shards = (["no", "yes"], [0, 1]), (["yes", "no"], [0, 1]), (["x", "yes"], [1, -1])
    for number, (names, values) in enumerate(shards):
        write_labels(tmp_path / "d" / f"train-0000{number}-of-00003.parquet", names, values)
    found = read(tmp_path / "d", streaming=way == "streaming")
    expected = ["no", "yes", "yes", "no", "yes", None]
    assert [row["a"] for _, row in found] == expected
    assert [row["many"] for _, row in found] == [[name, None] for name in expected]
    assert [row["inside"]["c"] for _, row in found] == [[name] for name in expected]


def test_a_number_of_no_class_makes_a_bad_row(tmp_path):
    feature = {"a": {"_type": "ClassLabel", "names": ["x", "y"]}}
    info = {"huggingface": json.dumps({"info": {"features": feature}})}
    table = pa.table({"a": pa.array([1, 2, -2, None], pa.int64())}).replace_schema_metadata(info)
    parquet.write_table(table, tmp_path / "t.parquet")
    found = [row for _, row in read(tmp_path / "t.parquet")]
    assert (found[0], found[3]) == ({"a": "y"}, {"a": None})
    assert "row 1: column 'a' is 2; expected: the number of a class" in found[1]
    assert "row 2: column 'a' is -2" in found[2]


@each("streaming", [False, True])
def test_files_may_order_columns_as_they_like_but_not_hold_other_columns_or_types(tmp_path, streaming):
    def write(name, **columns):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        parquet.write_table(pa.table(columns), tmp_path / name)

    write("good/a.parquet", a=[1], b=["x"])
    write("good/b.parquet", b=pa.array(["y"], pa.large_string()), a=[1.5])
    found = [row for _, row in read(tmp_path / "good", streaming=streaming)]
    assert found == [{"a": 1, "b": "x"}, {"a": 1.5, "b": "y"}]
    for folder, first, second in (("type", {"a": [1]}, {"a": ["x"]}), ("more", {"a": [1]}, {"a": [1], "b": [2]})):
        write(f"{folder}/a.parquet", **first)
        write(f"{folder}/b.parquet", **second)
    write_labels(tmp_path / "label" / "a.parquet", ["x"], [0])
    table = parquet.read_table(tmp_path / "label" / "a.parquet").replace_schema_metadata(None)
    parquet.write_table(table, tmp_path / "label" / "b.parquet")
    for folder, said in (
        ("type", r"b\.parquet and a\.parquet hold values of other types in a"),
        ("label", "hold values of other types in a, inside, many"),
        ("more", r"b\.parquet: has the columns a, b; allowed: those of a\.parquet"),
    ):
        with pytest.raises(ConfigError, match=said):
            read(tmp_path / folder, streaming=streaming)


def test_values_of_a_table_are_json_values_and_nan_is_null(tmp_path):
    columns = {
        "nan": pa.array([float("nan")]), "inside": [[1.0, float("nan")]], "true": [True],
        "category": pa.array(["x"]).dictionary_encode(), "large": pa.array(["x"], pa.large_string()),
        "decimal": [Decimal("1.50")], "whole": [Decimal("2.00")], "date": [datetime.date(2024, 1, 2)],
        "time": [datetime.datetime(2024, 1, 2, 3, 4, 5)], "nat": pa.array(np.array(["NaT"], "datetime64[ns]")),
    }  # fmt: skip
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    [(_, row)] = read(tmp_path / "t.parquet")
    assert row == {
        "nan": None, "inside": [1.0, None], "category": "x", "large": "x", "decimal": 1.5, "whole": 2,
        "date": "2024-01-02", "time": "2024-01-02T03:04:05", "nat": None, "true": True,
    }  # fmt: skip


def ask(path, content, columns=(), **data):
    path.write_text(content)
    mapped = {"id": "id", "question": "question", "answer": "answer", **dict(columns)}
    return make("vqa", data={"source": str(path), "columns": mapped, **data})


def test_text_is_taken_as_it_is_written_and_names_are_one_in_every_form(tmp_path):
    content = "id;question;answer;group\n1;TRUE;3,5;P7\n1.10;2,50;FALSE;p7\n1.1;7,0;maybe; P7 \n7;Q;ja;p8\n007;Q;ja;\n"
    cells = {"decimal": ","}
    env = ask(tmp_path / "t.csv", content, {"category": "group"}, cells=cells)
    assert list_ids(env) == ["1", "1.10", "1.1", "7", "007"]
    assert [task.prompt["question"] for task in env.tasks] == ["TRUE", "2,50", "7,0", "Q", "Q"]
    assert [task.reference["answer"] for task in env.tasks] == [3.5, "no", "maybe", "ja", "ja"]
    assert [task.reference["kind"] for task in env.tasks][1:3] == ["closed", "closed"]
    cut = {"cells": cells, "hold_out": {"share": 0.5, "by": "group"}}
    envs = [ask(tmp_path / "t.csv", content, split=split, **cut) for split in ("train", "test")]
    sides = [{task.id for task in env.tasks} for env in envs]
    assert any({"1", "1.10", "1.1"} <= side for side in sides)
    columns = {"question": {"template": "{{ question }}{% if answer %}!{% endif %}"}}
    env = ask(tmp_path / "u.csv", "id,question,answer\n1,1.0,FALSE\n2,Q,TRUE\n", columns)
    assert [task.prompt["question"] for task in env.tasks] == ["1.0", "Q!"]


UNMET = ({"answer": "\u200b"}, {"answer": "x" * 20_000}, {"answer": ["yes", None]}, {"answer": "['a', 'b']"})


def test_a_gold_that_no_answer_can_meet_makes_a_bad_row_and_allowed_texts_have_a_normal_form(tmp_path):
    rows = [{"id": "a", "question": "Q", "answer": '["yes", "y"]'}, {"id": "b", "question": "Q", "answer": "?"}]
    rows += [{"id": f"{number}", "question": "Q", **more} for number, more in enumerate(UNMET)]
    env = ask(tmp_path / "t.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    assert [task.reference["answer"] for task in env.tasks] == [("yes", "y"), "?"]
    assert len(env.tasks.skipped) == len(UNMET)
    write_images(tmp_path, 1)
    (tmp_path / "t.csv").write_text("id,image,question,answer\n1,0.png,Q,TRUE\n2,0.png,R,No\n3,0.png,S,maybe\n")
    assert [task.reference["answer"] for task in make_env(tmp_path / "t.csv").tasks] == ["yes", "no"]
