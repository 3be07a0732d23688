"""Which rows become tasks: cut, filtered, drawn, limited; the same on every machine and in any order of rows."""

import random

import pytest

from tests.support.data_kit import COLUMNS, list_ids, make_env, make_rows, write_images, write_jsonl
from viewbox.errors import ConfigError


@pytest.fixture
def rows(tmp_path):
    write_images(tmp_path, 1)
    return [{**row, "image": "0.png", "patient": f"p{i // 4}"} for i, row in enumerate(make_rows(200))]


def test_a_cut_by_hash_parts_the_rows_and_does_not_depend_on_their_order(tmp_path, rows):
    path = write_jsonl(tmp_path / "t.jsonl", rows)
    train, test = (list_ids(make_env(path, hold_out=0.25, split=split)) for split in ("train", "test"))
    assert not set(train) & set(test)
    assert len(train) + len(test) == 200
    assert 30 <= len(test) <= 70
    random.Random(0).shuffle(rows)
    again = list_ids(make_env(write_jsonl(tmp_path / "u.jsonl", rows[:150]), hold_out=0.25, split="test"))
    assert set(again) == set(test) & {row["id"] for row in rows[:150]}


def test_the_cut_is_the_same_on_every_machine(tmp_path, rows):
    path = write_jsonl(tmp_path / "t.jsonl", rows[:20])
    assert list_ids(make_env(path, hold_out=0.2, split="test")) == ["t2", "t11"]


def test_a_cut_by_a_column_keeps_its_values_together(tmp_path, rows):
    path = write_jsonl(tmp_path / "t.jsonl", rows)
    cut = {"share": 0.25, "by": "patient"}
    columns = {**COLUMNS, "metadata": {"patient": "patient"}}
    train, test = (make_env(path, columns, hold_out=cut, split=split).tasks for split in ("train", "test"))
    assert not {t.metadata["patient"] for t in train} & {t.metadata["patient"] for t in test}


def test_filters_all_hold(tmp_path, rows):
    env = make_env(write_jsonl(tmp_path / "t.jsonl", rows), where=["answer == 'yes'", "level<0.6"])
    assert list_ids(env) == ["t1", "t3", "t5"]


def test_a_sample_is_drawn_with_its_seed_and_a_limit_takes_the_first(tmp_path, rows):
    path = write_jsonl(tmp_path / "t.jsonl", rows)
    first = list_ids(make_env(path, sample={"count": 50, "seed": 1}))
    assert first == list_ids(make_env(path, sample={"count": 50, "seed": 1}))
    assert len(set(first)) == 50
    assert first != list_ids(make_env(path, sample=50))
    assert list_ids(make_env(path, sample={"count": 50, "seed": 1}, limit=7)) == first[:7]
    assert list_ids(make_env(path, limit=3)) == ["t0", "t1", "t2"]


def test_a_band_of_difficulty_is_a_column_or_a_file_of_rewards(tmp_path, rows):
    path = write_jsonl(tmp_path / "t.jsonl", rows)
    assert list_ids(make_env(path, difficulty={"column": "level", "range": [0.2, 0.4]})) == ["t2", "t3", "t4"]
    rewards = write_jsonl(tmp_path / "r.jsonl", [{"task": f"t{i}", "reward": i / 10, "episodes": 8} for i in (1, 5, 9)])
    band = {"rewards": str(rewards), "range": [0.2, 0.8]}
    assert list_ids(make_env(path, difficulty=band)) == ["t5"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"where": "levl>1"}, "data.where: t.jsonl: unknown column 'levl'"),
        ({"where": "level>9999"}, "none of its 200 rows is left of split 'train' where level>9999"),
        ({"where": "level"}, "allowed: field op value"),
        ({"difficulty": {"column": "levl", "range": [0, 1]}}, "unknown column 'levl'"),
        ({"difficulty": {"rewards": "none.jsonl", "range": [0, 1]}}, "No such file"),
        ({"hold_out": {"share": 0.1, "by": "patiend"}}, "did you mean 'patient'?"),
    ],
)
def test_a_selection_that_cannot_be_made_says_why(tmp_path, rows, data, said):
    with pytest.raises(ConfigError) as caught:
        len(make_env(write_jsonl(tmp_path / "t.jsonl", rows), **data).tasks)
    assert said in str(caught.value)


def test_a_cut_without_an_id_is_refused(tmp_path, rows):
    columns = {name: column for name, column in COLUMNS.items() if name != "id"}
    with pytest.raises(ConfigError, match="needs something that stays with a row"):
        len(make_env(write_jsonl(tmp_path / "t.jsonl", rows), columns, hold_out=0.5).tasks)


@pytest.mark.parametrize(
    "data",
    [{"sample": 0}, {"hold_out": 1.5}, {"difficulty": {"range": [0, 1]}}, {"bad_rows": "drop"}, {"limits": 3}],
)
def test_a_block_with_a_wrong_value_is_refused_when_the_environment_is_made(tmp_path, data):
    with pytest.raises(ConfigError) as caught:
        make_env(tmp_path / "t.jsonl", **data)
    assert str(caught.value.key).startswith("data.")


def test_a_column_of_ids_that_is_known_to_be_unique_is_not_read_row_by_row(tmp_path, rows, monkeypatch):
    import pyarrow as pa
    from pyarrow import parquet

    from viewbox.envs.data.arrow import ArrowRows

    path, scanned = tmp_path / "t.parquet", []
    scan = ArrowRows.scan
    monkeypatch.setattr(ArrowRows, "scan", lambda self, columns: scanned.append(columns) or scan(self, columns))
    parquet.write_table(pa.Table.from_pylist(rows), path)
    assert len(make_env(path).tasks) == 200
    assert not scanned
    parquet.write_table(pa.Table.from_pylist([*rows, rows[0]]), path)
    assert len(make_env(path).tasks) == 200
    assert scanned
