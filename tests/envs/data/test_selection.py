"""Which rows become tasks: cut, filtered, drawn, limited, the same on every machine and in any order of rows.

Rows that belong together are of one task (`group`), on one side of a cut, and with one right answer.
"""

import itertools
import logging
import random
import re
from decimal import Decimal

import pyarrow as pa
import pytest
from pyarrow import parquet

import viewbox
from tests.support.data_kit import COLUMNS, list_ids, make_env, make_rows, refuse, write_images, write_table
from tests.support.tables import each
from viewbox.envs.data.check import describe_splits, open_all_rows
from viewbox.errors import ConfigError
from viewbox.publish.task_data import write_tasks


@pytest.fixture
def rows(tmp_path):
    write_images(tmp_path, 1)
    return [{**row, "image": "0.png", "patient": f"p{i // 4}"} for i, row in enumerate(make_rows(200))]


def test_a_cut_by_hash_parts_the_rows_and_is_the_same_everywhere_and_in_any_order(tmp_path, rows):
    path = write_table(tmp_path / "t.jsonl", rows)
    train, test = (list_ids(make_env(path, hold_out=0.25, split=split)) for split in ("train", "test"))
    assert not set(train) & set(test)
    assert len(train) + len(test) == 200
    assert 30 <= len(test) <= 70
    assert test[:2] == ["t2", "t4"]
    random.Random(0).shuffle(rows)
    again = list_ids(make_env(write_table(tmp_path / "u.jsonl", rows[:150]), hold_out=0.25, split="test"))
    assert set(again) == set(test) & {row["id"] for row in rows[:150]}


def make_groups(tmp_path, sizes):
    """Rows of which each value of `patient` has as many as `sizes` says, in mixed order."""
    write_images(tmp_path, 1)
    values = [value for value, count in sizes.items() for _ in range(count)]
    random.Random(1).shuffle(values)
    rows = [{**row, "image": "0.png", "patient": v} for row, v in zip(make_rows(len(values)), values, strict=True)]
    return write_table(tmp_path / "t.jsonl", rows)


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
    {7: 5, 8: 5, 9: 5, 10: 5}, {None: 5, "null": 5, "a": 5, "b": 5}, {"only": 19, "rare": 1}, {"a": 10, "b": 10},
    {1: 4, "1": 4, 2.0: 2, "2": 2, "x": 4, "y": 4},
)  # fmt: skip


def test_numbers_texts_and_nulls_are_groups(tmp_path):
    for sizes in GROUPS:
        train, test = ({str(value) for value in side} for side in cut(make_groups(tmp_path, sizes), 0.25))
        assert min(len(train), len(test)) > 0
        assert not train & test


def test_a_share_that_is_missed_is_warned_of_with_the_reason_and_rows_of_one_group_are_refused(tmp_path, caplog):
    cut(make_groups(tmp_path, {"a": 50, "b": 50}), 0.1)
    assert "50 of 100 rows are held out, 50.0% instead of 10.0%: no group of 'patient' is parted" in caplog.text
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
    path = write_table(tmp_path / "t.jsonl", rows)
    assert list_ids(make_env(path, where=["answer == 'yes'", "level<0.6"])) == ["t1", "t3", "t5"]
    drawn = {"count": 50, "seed": 1}
    first, again = (list_ids(make_env(path, sample=drawn)) for _ in range(2))
    assert first == again != list_ids(make_env(path, sample=50))
    assert len(set(first)) == 50
    assert list_ids(make_env(path, sample=drawn, limit=7)) == first[:7]
    assert list_ids(make_env(path, limit=3)) == ["t0", "t1", "t2"]


def test_a_band_of_difficulty_is_a_column_or_a_file_of_rewards(tmp_path, rows):
    path = write_table(tmp_path / "t.jsonl", rows)
    assert list_ids(make_env(path, difficulty={"column": "level", "range": [0.2, 0.4]})) == ["t2", "t3", "t4"]
    rewards = write_table(tmp_path / "r.jsonl", [{"task": f"t{i}", "reward": i / 10, "episodes": 8} for i in (1, 5, 9)])
    band = {"rewards": str(rewards), "range": [0.2, 0.8]}
    assert list_ids(make_env(path, difficulty=band)) == ["t5"]


def test_decimals_of_a_table_are_numbers_for_a_band_and_a_condition(tmp_path):
    write_images(tmp_path, 1)
    rows = [{**row, "image": "0.png", "level": Decimal(i)} for i, row in enumerate(make_rows(6))]
    parquet.write_table(pa.Table.from_pylist(rows), path := tmp_path / "t.parquet")
    assert list_ids(make_env(path, difficulty={"column": "level", "range": [2, 3.5]})) == ["t2", "t3"]
    assert list_ids(make_env(path, where=["level<1.5"])) == ["t0", "t1"]


WRONG = {  # what is said when the tasks are opened
    "data.where: t.jsonl: unknown column 'levl'": {"where": "levl>1"}, "allowed: field op value": {"where": "level"},
    "none of its 200 rows is left of split 'train' where level>9999": {"where": "level>9999"},
    "unknown column 'levl'": {"difficulty": {"column": "levl", "range": [0, 1]}},
    "No such file": {"difficulty": {"rewards": "none.jsonl", "range": [0, 1]}},
    "did you mean 'patient'?": {"hold_out": {"share": 0.1, "by": "patiend"}},
    "needs something that stays with a row": {"hold_out": 0.5, "columns": COLUMNS | {"id": None}},
}  # fmt: skip
REFUSED = (  # when the environment is made
    {"sample": 0}, {"hold_out": 1.0}, {"hold_out": {"share": 0.0, "by": "x"}}, {"difficulty": {"range": [0, 1]}},
    {"bad_rows": "drop"}, {"limits": 3},
)  # fmt: skip


def test_a_selection_that_cannot_be_made_says_why(tmp_path, rows):
    path = write_table(tmp_path / "t.jsonl", rows)
    for said, data in WRONG.items():
        columns = {name: column for name, column in data.get("columns", COLUMNS).items() if column}
        refuse(said, path, **{**data, "columns": columns})
    for data in REFUSED:
        with pytest.raises(ConfigError) as caught:
            make_env(path, **data)
        assert str(caught.value.key).startswith("data.")


def test_a_row_whose_id_was_there_before_is_left_out_of_a_table_too(tmp_path, rows):
    path = tmp_path / "t.parquet"
    parquet.write_table(pa.Table.from_pylist([*rows, rows[0]]), path)
    assert len(make_env(path).tasks) == 200


# ---- rows that belong together

BOX = ["x1", "y1", "x2", "y2"]
FIELDS = {"id": "n", "image": "image", "question": "q", "boxes": BOX, "labels": "label"}
ALONE = FIELDS | {"labels": ["label"]}
LONG = [  # as VinDr, RSNA and Open Images write them: a row for each box; pictures of 30 x 20
    {"n": n, "image": image, "q": "Find all.", **dict(zip(BOX, box, strict=True)), "label": label, "patient": patient}
    for n, image, box, label, patient in (
        ("7", "0.png", (3, 2, 6, 4), "cyst", "a"),
        ("8", "1.png", (0, 0, 30, 20), "mass", "b"),
        ("9", "0.png", (15, 10, 30, 20), "mass", "a"),
    )
]
FIRST = [{"label": "cyst", "box": (0.1, 0.1, 0.2, 0.2)}, {"label": "mass", "box": (0.5, 0.5, 1.0, 1.0)}]


def make(folder, rows=LONG, kind="jsonl", columns=FIELDS, group="image", **data):
    write_images(folder, 3)
    source = str(write_table(folder / f"t.{kind}", rows, group=1))
    return viewbox.make("grounding", data={"source": source, "columns": columns, "group": group, **data})


def change(number, **values):
    return [row | values if place == number else row for place, row in enumerate(LONG)]


@each("kind", ["jsonl", "json", "csv", "parquet", "arrow"])
def test_the_rows_of_a_group_are_one_task_with_all_their_boxes_and_labels_also_in_a_package(tmp_path, kind):
    env = make(tmp_path, kind=kind)
    first, second = env.tasks
    assert (first.id, second.id) == ("7", "8")
    assert [dict(box) for box in first.reference["boxes"]] == FIRST
    assert len(second.reference["boxes"]) == 1
    assert env.play(first, lambda messages: env.write_answer(first)).scores.total == pytest.approx(1, abs=0.01)
    assert len(env.images(first)) == 1
    assert open_all_rows(env, lambda count: None).total == 3
    (tmp_path / "package").mkdir()
    data = write_tasks(env, tmp_path / "package")
    again = viewbox.make("grounding", data=data | {"source": str(tmp_path / "package" / data["source"])})
    assert [(task.id, task.reference) for task in again.tasks] == [(task.id, task.reference) for task in env.tasks]


DISAGREE = (
    (change(2, q="Find cysts."), "line 3: column 'q' is 'Find cysts.'; expected: that of line 1"),
    (change(2, x2=40), "line 3: column 'x1, y1, x2, y2' is [15, 10, 40, 20]; expected: a box inside"),
    (change(2, label=["mass", "cyst"]), "expected: one label for each of the 1 boxes"),
    (change(2, x2="?"), "line 3: .*expected: a box of four numbers"),
)


@each("rows, words", DISAGREE)
def test_a_group_whose_rows_do_not_agree_is_refused_by_line(tmp_path, rows, words):
    env = make(tmp_path, rows)
    said = [*map(str, env.tasks.skipped.values()), *(task.metadata.get("bad_row", "") for task in env.tasks)]
    assert words.replace(".*", "") in "".join(said) or all(word in "".join(said) for word in words.split(".*"))
    assert any(task.id == "8" and "bad_row" not in task.metadata for task in env.tasks)


def test_pictures_of_a_group_must_be_the_same_and_a_row_without_a_box_adds_none(tmp_path):
    env = make(tmp_path, group="patient", rows=change(2, image="2.png"))
    assert "line 3: column 'image' is ['2.png']; expected: the images of ['0.png']" in str(env.tasks.skipped[0])
    # RSNA: a picture without pneumonia has one row, whose box is empty
    columns = {name: column for name, column in FIELDS.items() if name != "labels"}
    env = make(tmp_path, change(1, **dict.fromkeys(BOX)), columns=columns)
    assert [len(task.reference["boxes"]) for task in env.tasks] == [2, 0]


def test_groups_are_made_of_the_rows_that_meet_the_conditions_and_rows_without_one_stay_apart(tmp_path):
    assert [len(task.reference["boxes"]) for task in make(tmp_path, where="label=mass").tasks] == [1, 1]
    assert len(make(tmp_path, change(2, g=""), group="g").tasks) == 3
    (tmp_path / "r.jsonl").write_text('{"task": "7", "reward": 0.5}\n')
    env = make(tmp_path, difficulty={"rewards": str(tmp_path / "r.jsonl"), "range": [0, 1]})
    assert [len(task.reference["boxes"]) for task in env.tasks] == [2]
    with pytest.raises(ConfigError, match=r"data\.group: t\.jsonl: unknown column 'imag'"):
        len(make(tmp_path, group="imag").tasks)


def test_a_cut_parts_no_group(tmp_path):
    rows = [row | {"n": f"{n}{row['n']}", "image": f"{n % 3}.png"} for n in range(30) for row in LONG[:1]]
    sides = [make(tmp_path, rows, hold_out=0.3, split=split) for split in ("train", "test")]
    assert sum(len(task.reference["boxes"]) for side in sides for task in side.tasks) == 30
    assert describe_splits(*sides, labels=True)[0].startswith("train: 2 tasks, 2 groups of image; labels: cyst 20")


def test_tasks_that_contradict_each_other_are_refused_with_the_key_that_joins_them(tmp_path, caplog):
    with pytest.raises(ConfigError, match=r"2 of 3 tasks ask the same .* line 1 and line 3; data\.group: COLUMN"):
        len(make(tmp_path, columns=ALONE, group=None).tasks)
    with pytest.raises(ConfigError, match=r"'label' is 'cyst'; expected: a list, or one item a row with data\.group"):
        len(make(tmp_path, group=None).tasks)
    assert len(make(tmp_path, group="n").tasks) == 3
    same = [LONG[0] | {"n": str(n), "q": f"Find {n}."} for n in range(12)]
    rows = [*same, LONG[0] | {"n": "x", "q": "Find 3.", "x2": 9}]
    assert len(make(tmp_path, rows, columns=ALONE, group=None).tasks) == 13
    assert "2 of 13 tasks ask the same of the same picture" in caplog.text


@each("kind, column, golds", [
    ("vqa", "answer", ("Lung.", "lung")), ("vqa", "answer", ("5 mm", "5mm")),
    ("grounding", "boxes", ([[3, 2, 6, 4], [0, 0, 9, 9]], [[0.0, 0.0, 9.0, 9.0], [3.0, 2.0, 6.0, 4.0]])),
])  # fmt: skip
def test_right_answers_that_are_equal_to_rewards_contradict_nothing(tmp_path, caplog, kind, column, golds):
    write_images(tmp_path, 1)
    rows = [{"n": str(n), "image": "0.png", "q": "What?", column: gold} for n, gold in enumerate(golds)]
    columns = {"id": "n", "image": "image", "question": "q", column: column}
    source = str(write_table(tmp_path / "t.jsonl", rows))
    assert len(viewbox.make(kind, data={"source": source, "columns": columns}).tasks) == 2
    assert "ask the same" not in caplog.text


def leak(folder, caplog, rows, hold_out=0.5, **columns):
    write_images(folder, 20)
    env = make_env(write_table(folder / "t.jsonl", rows), COLUMNS | columns, hold_out=hold_out, split="test")
    with caplog.at_level(logging.WARNING):
        caplog.clear()
        count = len(env.tasks)
    return count, [message for message in caplog.messages if "also trained on" in message]


def test_a_picture_or_a_patient_on_both_sides_of_a_cut_is_told_with_the_key_that_mends_it(tmp_path, caplog):
    rows = [row | {"image": f"{n // 2}.png", "patient": f"p{n // 10}"} for n, row in enumerate(make_rows(40))]
    count, [said] = leak(tmp_path, caplog, rows)
    assert f"{count} of {count} held-out rows have a patient that is also trained on" in said
    assert "held-out rows show a picture that is also trained on" in said
    assert "{share: 0.5, by: patient}" in said
    assert leak(tmp_path, caplog, rows)[1] == []  # said once, whichever sides are opened
    [said] = leak(tmp_path, caplog, rows, {"share": 0.5, "by": "image"})[1]
    assert "picture" not in said
    assert not leak(tmp_path, caplog, rows, {"share": 0.5, "by": "patient"})[1]
    [said] = leak(tmp_path, caplog, [{k: v for k, v in row.items() if k != "patient"} for row in rows])[1]
    assert "{share: 0.5, by: image}" in said
    assert not leak(tmp_path, caplog, [row | {"image": f"{n}.png"} for n, row in enumerate(make_rows(20))])[1]


def test_pictures_in_the_rows_themselves_are_compared_by_their_content(tmp_path, caplog):
    write_images(tmp_path, 4)
    rows = [row | {"image": {"bytes": (tmp_path / f"{n % 4}.png").read_bytes(), "path": f"{n}.png"}}
            for n, row in enumerate(make_rows(40))]  # fmt: skip
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    assert len(make_env(tmp_path / "t.parquet", hold_out=0.5, split="test").tasks) > 5
    assert "held-out rows show a picture that is also trained on; {share: 0.5, by: image}" in caplog.text


def test_a_cut_of_rows_that_are_all_bad_names_them(tmp_path):
    (tmp_path / "t.csv").write_text("id,patient,image,question,answer\n1,a,0.png,Which, plane?,axial\n")
    hold_out = {"share": 0.3, "by": "patient"}
    refuse("expected: 5 cells, as the header has", tmp_path / "t.csv", hold_out=hold_out)
