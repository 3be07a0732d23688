"""Which rows become tasks: cut, filtered, drawn, limited; the same on every machine and in any order of rows."""

import itertools
import random
import re
from decimal import Decimal

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.support.data_kit import COLUMNS, list_ids, make_env, make_rows, write_images, write_jsonl
from viewbox.envs.data.check import describe_splits
from viewbox.errors import ConfigError


@pytest.fixture
def rows(tmp_path):
    write_images(tmp_path, 1)
    return [{**row, "image": "0.png", "patient": f"p{i // 4}"} for i, row in enumerate(make_rows(200))]


def test_a_cut_by_hash_parts_the_rows_and_is_the_same_everywhere_and_in_any_order(tmp_path, rows):
    path = write_jsonl(tmp_path / "t.jsonl", rows)
    train, test = (list_ids(make_env(path, hold_out=0.25, split=split)) for split in ("train", "test"))
    assert not set(train) & set(test)
    assert len(train) + len(test) == 200
    assert 30 <= len(test) <= 70
    assert test[:2] == ["t2", "t4"]
    random.Random(0).shuffle(rows)
    again = list_ids(make_env(write_jsonl(tmp_path / "u.jsonl", rows[:150]), hold_out=0.25, split="test"))
    assert set(again) == set(test) & {row["id"] for row in rows[:150]}


def make_groups(tmp_path, sizes):
    """Rows of which each value of `patient` has as many as `sizes` says, in mixed order."""
    write_images(tmp_path, 1)
    values = [value for value, count in sizes.items() for _ in range(count)]
    random.Random(1).shuffle(values)
    rows = [{**row, "image": "0.png", "patient": v} for row, v in zip(make_rows(len(values)), values, strict=True)]
    return write_jsonl(tmp_path / "t.jsonl", rows)


def cut(path, share, **data):
    """The patients of (train, test), with one entry a row."""
    columns = {**COLUMNS, "metadata": {"patient": "patient"}}
    hold_out = {"share": share, "by": "patient"}
    envs = [make_env(path, columns, hold_out=hold_out, split=split, **data) for split in ("train", "test")]
    return [[task.metadata.get("patient") for task in env.tasks] for env in envs]


UNEVEN = {"p1": 120, "p2": 90, "p3": 30, "p4": 8, "p5": 8, "p6": 6, "p7": 4}  # 266 rows


def test_groups_of_uneven_size_are_packed_to_the_share_whatever_the_order_of_rows_or_the_filters(tmp_path, caplog):
    path = make_groups(tmp_path, UNEVEN)
    sizes = list(UNEVEN.values())
    sums = {sum(some) for count in range(1, 7) for some in itertools.combinations(sizes, count)}
    for share in (0.1, 0.5, 0.75, 0.25):
        train, test = cut(path, share)
        assert len(train) + len(test) == 266
        assert not set(train) & set(test)  # no group is parted
        assert abs(len(test) - 266 * share) == min(abs(one - 266 * share) for one in sums)
    assert caplog.text == ""
    lines = path.read_text().splitlines()
    random.Random(2).shuffle(lines)
    path.write_text("\n".join(lines) + "\n")
    assert set(cut(path, 0.25)[1]) == set(test)
    filtered = cut(path, 0.25, where="level<9")
    assert set(filtered[1]) <= set(test)
    assert not set(filtered[0]) & set(test)


GROUPS = (
    {7: 5, 8: 5, 9: 5, 10: 5},
    {None: 5, "null": 5, "a": 5, "b": 5},
    {1: 4, "1": 4, 2.0: 2, "2": 2, "x": 4, "y": 4},
    {"only": 19, "rare": 1},
    {"a": 10, "b": 10},
)


def test_numbers_texts_and_nulls_are_groups(tmp_path):
    for sizes in GROUPS:
        train, test = cut(make_groups(tmp_path, sizes), 0.25)
        assert train
        assert test
        assert not {str(value) for value in train} & {str(value) for value in test}


def test_a_share_that_is_missed_is_warned_of_with_the_reason_and_rows_of_one_group_are_refused(tmp_path, caplog):
    cut(make_groups(tmp_path, {"a": 50, "b": 50}), 0.1)
    said = "50 of 100 rows are held out, 50.0% instead of 10.0%: no group of 'patient' is parted"
    assert said in caplog.text
    caplog.clear()
    cut(make_groups(tmp_path, {f"p{number}": 5 for number in range(20)}), 0.25)
    assert caplog.text == ""
    len(make_env(make_groups(tmp_path, {"a": 20}), hold_out=0.2).tasks)
    assert "2 of 20 rows are held out, 10.0% instead of 20.0%: a hash of its id cuts each row" in caplog.text
    with pytest.raises(ConfigError, match=r"all 6 rows of t\.jsonl have one value, and a group is never parted"):
        cut(make_groups(tmp_path, {"a": 6}), 0.25)


def test_the_groups_and_labels_of_both_sides_are_described(tmp_path):
    env = make_env(make_groups(tmp_path, {"a": 6, "b": 2, None: 2}), hold_out={"share": 0.2, "by": "patient"})
    train, test = describe_splits(env, env, labels=True)
    assert re.match(r"train: 8 tasks, 2 groups of patient.*; answer: (yes|no) \d, (yes|no) \d$", train)
    assert re.match(r"test: 2 tasks, 1 group of patient", test)
    assert (train + test).count(" (one is the 2 rows that have none)") == 1
    answers = [row["answer"] for row in make_rows(10)]
    for answer in ("yes", "no"):
        assert sum(map(int, re.findall(rf"{answer} (\d)", train + test))) == answers.count(answer)


def test_filters_all_hold_a_sample_is_drawn_with_its_seed_and_a_limit_takes_the_first(tmp_path, rows):
    path = write_jsonl(tmp_path / "t.jsonl", rows)
    assert list_ids(make_env(path, where=["answer == 'yes'", "level<0.6"])) == ["t1", "t3", "t5"]
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


def test_decimals_of_a_table_are_numbers_for_a_band_and_a_condition(tmp_path):
    write_images(tmp_path, 1)
    rows = [{**row, "image": "0.png", "level": Decimal(i)} for i, row in enumerate(make_rows(6))]
    parquet.write_table(pa.Table.from_pylist(rows), path := tmp_path / "t.parquet")
    assert list_ids(make_env(path, difficulty={"column": "level", "range": [2, 3.5]})) == ["t2", "t3"]
    assert list_ids(make_env(path, where=["level<1.5"])) == ["t0", "t1"]


WRONG = {  # what is said when the tasks are opened
    "data.where: t.jsonl: unknown column 'levl'": {"where": "levl>1"},
    "none of its 200 rows is left of split 'train' where level>9999": {"where": "level>9999"},
    "allowed: field op value": {"where": "level"},
    "unknown column 'levl'": {"difficulty": {"column": "levl", "range": [0, 1]}},
    "No such file": {"difficulty": {"rewards": "none.jsonl", "range": [0, 1]}},
    "did you mean 'patient'?": {"hold_out": {"share": 0.1, "by": "patiend"}},
    "needs something that stays with a row": {"hold_out": 0.5, "columns": COLUMNS | {"id": None}},
}
REFUSED = (  # when the environment is made
    {"sample": 0}, {"hold_out": 1.0}, {"hold_out": {"share": 0.0, "by": "x"}}, {"difficulty": {"range": [0, 1]}},
    {"bad_rows": "drop"}, {"limits": 3},
)  # fmt: skip


def test_a_selection_that_cannot_be_made_says_why(tmp_path, rows):
    path = write_jsonl(tmp_path / "t.jsonl", rows)
    for said, data in WRONG.items():
        columns = {name: column for name, column in data.get("columns", COLUMNS).items() if column}
        with pytest.raises(ConfigError) as caught:
            len(make_env(path, **{**data, "columns": columns}).tasks)
        assert said in str(caught.value)
    for data in REFUSED:
        with pytest.raises(ConfigError) as caught:
            make_env(path, **data)
        assert str(caught.value.key).startswith("data.")


def test_a_row_whose_id_was_there_before_is_left_out_of_a_table_too(tmp_path, rows):
    path = tmp_path / "t.parquet"
    parquet.write_table(pa.Table.from_pylist([*rows, rows[0]]), path)
    assert len(make_env(path).tasks) == 200
