"""What is read, and how a run ends: a table of people's files, servers and command lines, with the outcome of each.

Kinds D1 to D13 are tables of rows, Y1 and Y2 YAML, E1 to E8 servers; V1, F1, O2, O3, P1 and N1 are commands. Right
values are worked out by hand, by a standard (YAML 1.2, JSON, RFC 4180), or as `datasets`, pandas or pyarrow read the
file. Many rows stand for a bug report of other software.
"""

import json
import os
import re
import shutil
import unicodedata
from contextlib import chdir, contextmanager
from datetime import datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import pyarrow as pa
import pytest
from pyarrow import parquet

import viewbox
from tests.support.said_cases import (
    GOOD,
    Refusal,
    Table,
    by_request,
    either,
    ends,
    haste,
    make_vqa,
    page,
    play,
    read_messages,
    refuse,
    refused,
    roll,
    run,
    says,
    write_config,
    write_rows,
    write_six,
)
from tests.support.servers import cut_body, hang_up, make_response, serve
from tests.support.servers import make_completion as completion

row = Table()
NAMES = ("id", "image", "question", "answer")


# ---------------------------------------------------------------------- files
def q(i, answer="yes", **more):
    return {
        "id": i if isinstance(i, str) else f"t{i}",
        "image": "0.png",
        "question": "Is it gray?",
        "answer": answer,
        **more,
    }


def csv(*lines, header="id,image,question,answer"):
    """The text of a file; `lines` have the columns of the header."""
    return "\n".join([header, *lines]) + "\n"


def labeled(names, values, ids, field="answer", **more):
    """A Parquet file of class labels, as the library `datasets` writes it."""

    def write(path):
        import datasets

        table = {**{name: [q(i)[name] for i in ids] for name in NAMES}, **more, field: values}
        label = datasets.ClassLabel(names=names)
        is_list = isinstance(values[0], list)
        kinds = {name: datasets.Value("string") for name in table}
        kinds[field] = datasets.Sequence(label) if is_list else label
        path.parent.mkdir(parents=True, exist_ok=True)
        datasets.Dataset.from_dict(table, features=datasets.Features(kinds)).to_parquet(path)

    return write


def columns(rows, **own):
    """A Parquet file whose columns are pyarrow's own where they are given."""

    def write(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pa.table({**{name: [one.get(name) for one in rows] for name in rows[0]}, **own}), path)

    return write


def spread(files, folder):
    """Write files by their names: rows, text, bytes, or a function of the path."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if callable(content):
            content(path)
        elif isinstance(content, bytes):
            path.write_bytes(content)
        elif isinstance(content, str):
            path.write_text(content, encoding="utf-8")
        else:
            write_rows(path, content)


# ---------------------------------------------------------------------- what is asked of tables
def opened(files, folder, source="d", columns=None, **data):
    spread(files, folder)
    source = source if (folder / source).exists() else next(iter(files))
    return make_vqa(folder, source, NAMES, {**data, "columns": columns or {}})


def ids(**data):
    """The ids of the tasks."""
    return lambda given, folder: [task.id for task in opened(given, folder, **data).tasks]


def golds(**data):
    """The id and the accepted answer of each task."""
    return lambda given, folder: [[task.id, task.reference["answer"]] for task in opened(given, folder, **data).tasks]


def values(field, place="reference", **data):
    """The id of each task and a field of it."""

    def ask(given, folder):
        env = opened(given, folder, **{"columns": {field: field}, **data})
        return [[task.id, getattr(task, place).get(field)] for task in env.tasks]

    return ask


def kept(field, **data):
    """A column of the rows as metadata, as it is stored."""
    return lambda given, folder: [
        task.metadata["it"] for task in opened(given, folder, columns={"metadata": {"it": field}}, **data).tasks
    ]


def scores(*replies, number=0, tolerance=0.0, **data):
    """The scores of replies to a task."""

    def ask(given, folder):
        env = opened(given, folder, **data)
        env = type(env)(data=env.data, tolerance=tolerance) if tolerance else env
        return [play(env, json.dumps({"answer": reply}), number=number).scores.total for reply in replies]

    return ask


def parted(by="patient", share=0.5):
    """How many of the groups of rows are in both splits: given are files, and groups of ids that are one patient."""

    def ask(given, folder):
        files, groups = given
        found = []
        for split in ("train", "test"):
            env = opened(files, folder, split=split, hold_out={"share": share, "by": by})
            found.append({task.id for task in env.tasks})
        assert all(found)
        assert sum(map(len, found)) == sum(map(len, groups))
        return sum(bool(found[0] & set(group) and found[1] & set(group)) for group in groups)

    return ask


def command(*arguments, rest="", more="", source=None):
    """How `viewbox` ends on a config of the first file, or of a folder; `CONFIG` stands for its path."""

    def ask(given, folder):
        spread(given, folder)
        where = source or ("d" if (folder / "d").exists() else next(iter(given)))
        config = write_config(folder, where, more, rest)
        return run(*(str(config) if one == "CONFIG" else one for one in arguments))

    return ask


SHOW = ("data", "show", "CONFIG", "--tasks", "9")
CHECK = ("data", "check", "CONFIG")

# fmt: off
# ---- D1: splits of file names
TWO = [q(0), q(1)], [q(2), q(3)]
DATASETS = "`datasets`: data_files.KEYWORDS_IN_FILENAME_BASE_PATTERNS"
row("D1-folder-with-a-prefix", {"d/data/my_train/a.parquet": TWO[0], "d/data/my_test/a.parquet": TWO[1]}, ids(),
    ["t0", "t1"], "`datasets`: data_files.KEYWORDS_IN_DIR_NAME_BASE_PATTERNS")
row("D1-untold", {"d/train.parquet": TWO[0], "d/extra.parquet": TWO[1]}, ids(), refused("extra", "train"),
    "decided: one is told and another is not", "huggingface/datasets#5021")
row("D1-inside-a-word", {"d/latest.parquet": TWO[0], "d/contest.parquet": TWO[1]}, ids(),
    either(["t2", "t3", "t0", "t1"], ["t0", "t1", "t2", "t3"]), f"{DATASETS}: `test` inside of a word is none")
row("D1-both-words", {"d/train.parquet": TWO[0], "d/test_of_train.parquet": TWO[1]}, ids(), ["t0", "t1"],
    "decided: test before train", "huggingface/datasets#7343")
row("D1-own-name", {"d/data/train-00000-of-00001.parquet": TWO[0], "d/data/calibration-00000-of-00001.parquet": TWO[1]},
    ids(split="calibration"), either(["t2", "t3"], refused("calibration")), "`datasets`: SPLIT_PATTERN_SHARDED",
    "huggingface/datasets#4150")
row("D1-own-name-beside", {"d/data/train-00000-of-00001.parquet": TWO[0],
    "d/data/calibration-00000-of-00001.parquet": TWO[1]}, ids(), either(["t0", "t1"], refused("calibration")),
    "`datasets`: SPLIT_PATTERN_SHARDED")
row("D1-text", {"d/cases_train.jsonl": TWO[0], "d/cases_test.jsonl": TWO[1]}, ids(),
    either(["t0", "t1"], refused("cases_train", "cases_test")), DATASETS, "huggingface/datasets#5778")
row("D1-only-test", {"d/cases_test.parquet": TWO[0]}, ids(), refused("split", "test"), "there is no split train",
    "hiyouga/LlamaFactory#1731")

# ---- D2: class names are each file's own
OWN = "each file says what its numbers mean"
SHARDS = {"d/train-00000-of-00002.parquet": labeled(["no", "yes"], [0, 1], ["a", "b"]),
          "d/train-00001-of-00002.parquet": labeled(["yes", "no"], [0, 1], ["c", "d"])}
row("D2-shards", SHARDS, golds(), either([["a", "no"], ["b", "yes"], ["c", "yes"], ["d", "no"]], refused("answer")),
    OWN,
    "huggingface/datasets#2457")
row("D2-more-names", {"d/a_train.parquet": labeled(["cyst", "mass"], [0, 1], ["a", "b"]),
    "d/b_train.parquet": labeled(["cyst", "fat", "mass"], [1, 2], ["c", "d"])}, golds(),
    either([["a", "cyst"], ["b", "mass"], ["c", "fat"], ["d", "mass"]], refused("answer")), OWN,
    "covartech/PRT#10")
row("D2-same-names", {"d/a_train.parquet": labeled(["no", "yes"], [0, 1], ["a", "b"]),
    "d/b_train.parquet": labeled(["no", "yes"], [1, 0], ["c", "d"])}, golds(),
    [["a", "no"], ["b", "yes"], ["c", "yes"], ["d", "no"]], OWN)
row("D2-names-and-texts", {"d/a_train.parquet": labeled(["no", "yes"], [0, 1], ["a", "b"]),
    "d/b_train.parquet": [q("c", "yes"), q("d", "no")]}, golds(),
    either([["a", "no"], ["b", "yes"], ["c", "yes"], ["d", "no"]], refused("answer")),
    "decided: two types of one column are an error, or both are read")
row("D2-names-and-numbers", {"d/a_train.parquet": labeled(["no", "yes"], [0, 1], ["a", "b"]),
    "d/b_train.parquet": [q("c", 1), q("d", 0)]}, golds(), either(refused("answer"),
    [["a", "no"], ["b", "yes"], ["c", 1], ["d", 0]]), "decided: two types of one column are an error")
row("D2-splits", {"d/train.parquet": labeled(["no", "yes"], [0], ["a"]),
    "d/test.parquet": labeled(["yes", "no"], [0], ["b"])}, golds(split="test"), [["b", "yes"]], OWN,
    "macabdul9/CASA-Dialogue-Act-Classifier#10")
row("D2-lists", {"d/a_train.parquet": labeled(["no", "yes"], [[0]], ["a"]),
    "d/b_train.parquet": labeled(["yes", "no"], [[0]], ["b"])}, golds(),
    either([["a", "no"], ["b", "yes"]], refused("answer")), OWN, "huggingface/datasets#4277")
row("D2-streaming", SHARDS, golds(streaming=True), either([["a", "no"], ["b", "yes"], ["c", "yes"], ["d", "no"]],
    refused("answer")), OWN)

# ---- D3: labels that are not known
UNKNOWN = "`datasets`: ClassLabel writes -1 for a label that is not known"
row("D3-answer", {"d.parquet": labeled(["no", "yes"], [0, -1], ["a", "b"])}, golds(), [["a", "no"]], UNKNOWN,
    "huggingface/datasets#5624")
row("D3-stop", {"d.parquet": labeled(["no", "yes"], [0, -1], ["a", "b"])}, golds(bad_rows="stop"), refused("answer"),
    UNKNOWN, "tensorflow/datasets#1356")
row("D3-category", {"d.parquet": labeled(["lung", "heart"], [1, -1], ["a", "b"], field="category")}, values("category"),
    [["a", "heart"], ["b", None]], UNKNOWN)
row("D3-question", {"d.parquet": labeled(["Is it?", "Was it?"], [1, -1], ["a", "b"], field="question")}, ids(), ["a"],
    UNKNOWN)
row("D3-metadata", {"d.parquet": labeled(["lung", "heart"], [1, -1], ["a", "b"], field="organ")}, kept("organ"),
    ["heart", None], UNKNOWN)
row("D3-null", {"d.parquet": labeled(["no", "yes"], [0, None], ["a", "b"])}, golds(), [["a", "no"]], "null is null")
row("D3-beyond", {"d.parquet": columns([q("a"), q("b")], answer=pa.array([0, 5])), }, golds(), [["a", 0], ["b", 5]],
    "a column of plain numbers has no class names")
row("D3-plain-minus-one", {"d.parquet": columns([q("a"), q("b")], answer=pa.array([1, -1]))}, golds(),
    [["a", 1], ["b", -1]], "in a plain column -1 is a number")
row("D3-where", {"d.parquet": labeled(["lung", "heart"], [1, -1], ["a", "b"], field="organ")}, ids(where="organ=null"),
    ["b"], "null is null for a condition, too")


def out_of_range(path):
    """A class number of which the names say nothing, as a broken writer leaves it."""
    labeled(["no", "yes"], [0, 1], ["a", "b"])(path)
    table = parquet.read_table(path)
    broken = table.set_column(table.schema.get_field_index("answer"), table.schema.field("answer"), pa.array([0, 7]))
    parquet.write_table(broken, path)


row("D3-out-of-range", {"d.parquet": out_of_range}, golds(), [["a", "no"]], "decided: a bad row: 7 names no class")

# ---- D4: a shard that is missing
NAMED = "the name of the file says how many there are"
row("D4-of-five", {f"d/train-0000{i}-of-00005.parquet": [q(i)] for i in (0, 1, 3)}, ids(),
    refused("train-0000[24]-of-00005"), NAMED, "kpertsch/rlds_dataset_builder#15")
row("D4-with-a-hash", {"d/train-00000-of-00002-a1b2c3d4e5f60718.parquet": TWO[0]}, ids(), refused("00001-of-00002"),
    NAMED, "huggingface/datasets#7728")
row("D4-complete", {"d/train-00000-of-00002.parquet": TWO[0], "d/train-00001-of-00002.parquet": TWO[1]}, ids(),
    ["t0", "t1", "t2", "t3"], "all are there")
row("D4-complete-splits", {"d/train-00000-of-00001.parquet": TWO[0], "d/test-00000-of-00001.parquet": TWO[1]}, ids(),
    ["t0", "t1"], "all are there")
row("D4-streaming", {"d/train-00000-of-00002.parquet": TWO[0]}, ids(streaming=True), refused("train-00001-of-00002"),
    NAMED)
row("D4-two-counts", {"d/train-00000-of-00001.parquet": TWO[0], "d/train-00000-of-00002.parquet": TWO[1]}, ids(),
    refused("of-0000[12]"), "one of the two counts is wrong")


def saved(*, cut=None):
    """A folder of `save_to_disk` in two shards, of which the second is missing, or cut off."""

    def write(path):
        import datasets

        datasets.Dataset.from_list([q(0), q(1)]).save_to_disk(path.parent, num_shards=2)
        shard = path.parent / "data-00001-of-00002.arrow"
        content = shard.read_bytes()[:cut]
        shard.unlink()
        if cut:
            shard.write_bytes(content)

    return {"d/x": write}


row("D4-saved", saved(), ids(), refused("data-00001-of-00002"), NAMED)
row("D4-saved-cut", saved(cut=100), ids(), refused("save_to_disk"), "a file that is cut off cannot be read")

# ---- D5: one patient, written in two ways


def twice(*spellings, count=30):
    """Rows of JSONL in which each patient stands twice: `spellings` make a value of its number."""
    rows, groups = [], []
    for n in range(count):
        rows += [q(2 * n + k, patient=spell(n)) for k, spell in enumerate(spellings)]
        groups.append([f"t{2 * n + k}" for k in range(len(spellings))])
    return {"d.jsonl": rows}, groups


KEPT = "`by` promises that its values are never parted"
row("D5-number-and-text", twice(int, str), parted(), 0, KEPT, "Lightning-Universe/lightning-Covid19#11")
row("D5-float-and-text", twice(float, str), parted(), 0, f"{KEPT}; JSON: 7.0 is 7")
row("D5-float-and-number", twice(float, int), parted(), 0, f"{KEPT}; JSON: 7.0 is 7")
row("D5-case", twice(lambda n: f"P{n}", lambda n: f"p{n}"), parted(), 0, "decided: P7 and p7 are never parted",
    "UCSD-AI4H/COVID-CT#11")
row("D5-spaces", twice(lambda n: f"P{n}", lambda n: f" P{n} "), parted(), 0, "decided: spaces around it say nothing")
row("D5-unicode", twice(lambda n: unicodedata.normalize("NFC", f"Müller {n}"),
    lambda n: unicodedata.normalize("NFD", f"Müller {n}")), parted(), 0, "Unicode: NFC and NFD are one text")
row("D5-full-width", twice(str, lambda n: "".join(chr(0xFF10 + int(digit)) for digit in str(n))), parted(), 0,
    "Unicode: NFKC makes them one text")
row("D5-invisible", twice(lambda n: f"P{n}", lambda n: f"\u200bP{n}"), parted(), 0, "nobody can see the difference")
row("D5-csv", ({"d.csv": csv(*(f"t{2 * n + k},0.png,Q?,yes,{v}" for n in range(30) for k, v in enumerate((n, f"{n} "))),
    header="id,image,question,answer,patient")}, [[f"t{2 * n}", f"t{2 * n + 1}"] for n in range(30)]), parted(), 0,
    KEPT,
    "pandas-dev/pandas#31821")
row("D5-null", ({"d.jsonl": [q(i, patient=(None, "", " ", float("nan"))[i % 4]) if i < 20 else q(i, patient=i)
    for i in range(40)]}, [[f"t{i}" for i in range(20)], *([f"t{i}"] for i in range(20, 40))]), parted(share=0.4), 0,
    "docs: all rows without a value are one group", "pandas-dev/pandas#3729")
row("D5-missing", ({"d.jsonl": [q(i) if i < 10 else q(i, patient=None if i < 20 else i) for i in range(40)]},
    [[f"t{i}" for i in range(20)], *([f"t{i}"] for i in range(20, 40))]), parted(share=0.4), 0,
    "docs: all rows without a value are one group")
row("D5-labels", ({"d.parquet": labeled([f"p{n}" for n in range(20)], [n % 20 for n in range(40)], [f"t{n}" for n in
    range(40)], field="patient")}, [[f"t{n}", f"t{n + 20}"] for n in range(20)]), parted(), 0, KEPT,
    "mlmed/torchxrayvision#2")

# ---- D6: a cell is a number only if it would be written the same again
AGAIN = "decided: a cell is a number only if it would be written the same again"


def numbered(*cells):
    return {"d.csv": csv(*(f"{cell},0.png,Q?,yes" for cell in cells))}


def noted(*cells, header="id,image,question,answer,code"):
    return {"d.csv": csv(*(f"t{i},0.png,Q?,yes,{cell}" for i, cell in enumerate(cells)), header=header)}


row("D6-trailing-zero", numbered("1.1", "1.10", "1.2"), ids(), ["1.1", "1.10", "1.2"], AGAIN)
row("D6-leading-zero", numbered("007", "7"), ids(), ["007", "7"], AGAIN, "pandas-dev/pandas#54665")
row("D6-power", numbered("12e4", "120000"), ids(), ["12e4", "120000"], AGAIN, "sdv-dev/SDV#2786")
row("D6-signs", numbered("+3", "3", "-0", "0"), ids(), ["+3", "3", "-0", "0"], AGAIN)
row("D6-long", numbered("12345678901234567890", "12345678901234567891"), ids(),
    ["12345678901234567890", "12345678901234567891"], "a float has 53 bits", "project-koku/koku#4762")
row("D6-points", numbered("5.", "5", ".5", "0.5"), ids(), ["5.", "5", ".5", "0.5"], AGAIN)
row("D6-metadata", noted("1.1", "1.10"), kept("code"), [1.1, "1.10"], AGAIN)
row("D6-where", noted("1.1", "1.10", "1.1"), ids(where="code=1.10"), ["t1"], "decided: 1.10 is not 1.1 as text")
row("D6-where-number", noted("7", "7.0", "007", "8"), ids(where="code=7"), ["t0", "t1"],
    "decided: 7 = 7.0, and 007 is a label")
row("D6-greater", noted("1.10", "0.90", "1.0"), ids(where="code>=1"), ["t0", "t2"],
    "decided: > takes text that is a number")
row("D6-by", ({"d.csv": csv(*(f"t{2 * n + k},0.png,Q?,yes,{n}.1{'0' * k}" for n in range(20) for k in range(2)),
    header="id,image,question,answer,patient")}, [[f"t{i}"] for i in range(40)]), parted(), 0, "40 patients, not 20")
row("D6-tsv", {"d.tsv": csv("1.10\t0.png\tQ?\tyes", "1.1\t0.png\tQ?\tyes", header="id\timage\tquestion\tanswer")},
    ids(),
    ["1.10", "1.1"], AGAIN)
row("D6-question", {"d.csv": csv("a,0.png,12e4,yes", "b,0.png,1.50,no")}, values("question", "prompt"),
    [["a", "12e4"], ["b", "1.50"]], "as it is in the file")

row("D6-check-boxes", numbered("TRUE", "FALSE"), ids(), ["TRUE", "FALSE"], "a name is as it was written in the file")
row("D6-where-items", {"d.jsonl": [q(0, code=7), q(1, code="7"), q(2, code=7.0), q(3, code=[7, 8]), q(4, code="007"),
    q(5, code=None)]}, ids(where="code=7"), ["t0", "t1", "t2", "t3"], "decided: and items of lists each")
row("D6-difficulty", {"d.jsonl": [q(0, level="0.5"), q(1, level=0.2), q(2, level="0.9"), q(3, level="easy")]},
    ids(difficulty={"column": "level", "range": [0.2, 0.8]}), ["t0", "t1"], "decided: figures may be text")
for kind in (pa.float32(), pa.float16()):
    narrow = {"d.parquet": columns([q("a"), q("b")], answer=pa.array([0.1, 2.7], kind))}
    row(f"D6-{kind}", narrow, golds(), [["a", 0.1], ["b", 2.7]], "NumPy: str(np.float32(0.1)) is 0.1")
    row(f"D6-{kind}-where", narrow, ids(where="answer=0.1"), ["a"], "NumPy: str(np.float32(0.1)) is 0.1")
row("D6-float32-score", {"d.parquet": columns([q("a")], answer=pa.array([0.1], pa.float32()))}, scores("0.1", "0.2"),
    [1, 0], "NumPy: str(np.float32(0.1)) is 0.1")
row("D6-float32-lists", {"d.parquet": columns([q("a")], answer=pa.array([[0.1, 2.7]], pa.list_(pa.float32())))},
    golds(streaming=True), [["a", (0.1, 2.7)]], "NumPy: str(np.float32(0.1)) is 0.1")
row("D6-double", {"d.parquet": columns([q("a")], answer=pa.array([0.10000000149011612]))}, golds(),
    [["a", 0.10000000149011612]], "a column of doubles says all digits")
row("D12-parquet", {"d.parquet": lambda path: parquet.write_table(pa.Table.from_arrays([pa.array([one]) for one in
    ("a", "0.png", "Q?", "yes", "x", "y")], [*NAMES, "z", "z"]), path)}, ids(), refused("two columns", "z"),
    "which of the two?")

# ---- D7: booleans of a spreadsheet


def checked(*cells):
    return {"d.csv": csv(*(f"t{i},0.png,Is it round?,{cell}" for i, cell in enumerate(cells)))}


BOX = "a check box is a boolean"
row("D7-kind", checked("TRUE", "FALSE"), values("kind", columns={}), [["t0", "closed"], ["t1", "closed"]], BOX)
row("D7-true", checked("TRUE", "FALSE"), scores("yes", "true", "no"), [1, 1, 0], BOX)
row("D7-false", checked("TRUE", "FALSE"), scores("no", "false", "yes", number=1), [1, 1, 0], BOX)
row("D7-pandas", checked("True", "False"), scores("yes", "no"), [1, 0], "pandas writes True", "pydantic/pydantic#1130")
row("D7-json", checked("true", "false"), scores("no", "yes", number=1), [1, 0], "JSON writes true")
row("D7-with-null", checked("TRUE", "", "FALSE"), ids(), ["t0", "t2"], "an empty cell is null")
row("D7-among-others", checked("TRUE", "maybe"), scores("yes", "no"), [1, 0], "decided: cells are read one by one")
row("D7-parquet", {"d.parquet": [q(0, True), q(1, False)]}, scores("no", "yes", number=1), [1, 0], BOX)
row("D7-category", {"d.csv": csv("a,0.png,Q?,yes,TRUE", header="id,image,question,answer,category")},
    values("category"),
    [["a", "TRUE"]], "decided: a text field takes it as it was written in the file")
row("D7-where", noted("TRUE", "FALSE", "true"), ids(where="code=true"), ["t0", "t2"], "decided: true = TRUE")
row("D7-metadata", noted("TRUE", "False"), kept("code"), [True, False], BOX)
row("D7-own-words", checked("ja", "nein"), scores("yes", "no", cells={"true": ["ja"], "false": ["nein"]}), [1, 0],
    "decided: `data.cells` lists further texts")
row("D7-not-told", checked("ja", "nein"), scores("ja", "yes", group="id"), [1, 0], "a text is a text")

# ---- D8: decimal commas


def wide(*cells, separator=";"):
    lines = (separator.join((f"t{i}", "0.png", "How wide in cm?", cell)) for i, cell in enumerate(cells))
    return {"d.csv": csv(*lines, header=separator.join(NAMES))}


COMMA = "semicolons separate the cells: the comma is the decimal sign"
row("D8-gold", wide("3,5", "12,25"), golds(), either([["t0", 3.5], ["t1", 12.25]], refused("decimal")), COMMA,
    "pandas-dev/pandas#12933")
row("D8-score", wide("3,5", "12,25"), scores("3.5", "3,5", "35"), either([1, 0, 0], refused("decimal")), COMMA)
row("D8-tolerance", wide("3,5", "12,25"), scores("12.5", "13", number=1, tolerance=0.05), either([1, 0],
    refused("decimal")), "12.5 is within 5% of 12.25")
row("D8-whole", wide("3,5", "12"), golds(), either([["t0", 3.5], ["t1", 12]], refused("decimal")), COMMA)
row("D8-points", wide("3.5", "12.25"), golds(), [["t0", 3.5], ["t1", 12.25]], "no cell has a comma",
    "asteca/ASteCA#90")
row("D8-both", wide("3,5", "12.25"), golds(), refused("decimal", "cells"),
    "decided: both kinds in one file need the setting", "pandas-dev/pandas#14403")
row("D8-told", wide("3,5", "12.25"), golds(cells={"decimal": ","}), [["t0", 3.5], ["t1", "12.25"]],
    "decided: `data.cells.decimal`")
row("D8-point-told", wide("3,5", "12.25"), golds(cells={"decimal": "."}), [["t0", "3,5"], ["t1", 12.25]],
    "decided: `data.cells.decimal`")
row("D8-thousands", wide("1.299,99", "3,5"), golds(), either([["t0", "1.299,99"], ["t1", 3.5]],
    [["t0", 1299.99], ["t1", 3.5]], refused("decimal")), "pandas: a text; where commas are decimal, 1299.99 is meant",
    "pola-rs/polars#18797")
row("D8-thousands-alone", wide("1.299", "3,5"), golds(), either([["t0", "1.299"], ["t1", 3.5]], [["t0", 1299], ["t1",
    3.5]],
    refused("decimal")), "beside decimal commas, 1.299 is not one and a bit")
row("D8-commas", {"d.csv": csv('a,0.png,Q?,"3,5"')}, scores("3,5", "3.5"), [1, 0], "RFC 4180: commas separate: a text",
    "pandas-dev/pandas#8200")
row("D8-tab", {"d.tsv": csv("a\t0.png\tQ?\t3,5", header="\t".join(NAMES))}, golds(cells={"decimal": ","}),
    [["a", 3.5]], "decided: `data.cells.decimal`", "JuliaData/DataFrames.jl#291")
row("D8-text-with-comma", wide("left, upper", "3,5"), golds(), either([["t0", "left, upper"], ["t1", 3.5]],
    refused("decimal")), "a text is a text")
row("D8-plus", wide("+3,5", "-0,5"), scores("+3.5", "3,5"), [1, 0], COMMA)
row("D8-names", {"d.csv": csv("1,10;0.png;Q?;yes", "1,1;0.png;Q?;yes", header=";".join(NAMES))}, ids(),
    ["1,10", "1,1"], "a name is as it was written in the file")
row("D8-where", {"d.csv": csv("a;0.png;Q?;yes;0,5", "b;0.png;Q?;yes;1,5", header="id;image;question;answer;level")},
    ids(where="level>1"), either(["b"], refused("decimal")), COMMA)
row("D8-null", wide("3.5", "n.a."), golds(cells={"null": ["n.a."]}), [["t0", 3.5]], "decided: `data.cells.null`")

# ---- D9: NaN is null
NAN = float("nan")
NULL = "NaN in a table is how pandas writes that there is none"


def with_nan(name):
    return {"d.parquet": columns([q(0), q(1)], **{name: pa.array([1.5, NAN])})}


row("D9-category", with_nan("category"), values("category"), [["t0", "1.5"], ["t1", None]], NULL,
    "pandas-dev/pandas#25353")
row("D9-question", with_nan("question"), ids(), ["t0"], NULL)
row("D9-template", with_nan("size"), lambda given, folder: [task.prompt["question"] for task in opened(given, folder,
    columns={"question": {"template": "Is it {{ size }} cm?"}}).tasks], ["Is it 1.5 cm?"], "nobody asks for None cm")
row("D9-template-or", with_nan("size"), lambda given, folder: [task.prompt["question"] for task in opened(given, folder,
    columns={"question": {"template": "Is it {{ size or '' }} cm?"}}).tasks], ["Is it 1.5 cm?", "Is it  cm?"],
    "the template says what stands for null")
row("D9-float32", {"d.parquet": columns([q(0)], answer=pa.array([0.1], pa.float32()))}, scores("0.1", "0.2"), [1, 0],
    "pandas and numpy print it as 0.1")
row("D9-float16-list", {"d.parquet": columns([q(0)], size=pa.array([[0.1]], pa.list_(pa.float16())))}, kept("size"),
    [[0.1]], "numpy prints it as 0.1")
row("D9-float-and-double", {"d/a_train.parquet": columns([q(0)], size=pa.array([0.1], pa.float32())),
    "d/b_train.parquet": columns([q(1)], size=pa.array([0.123456789]))}, lambda given, folder: kept("size")(given,
    folder)[1], 0.123456789, "a double keeps its digits")
row("D9-id", with_nan("id"), ids(), ["1.5"], NULL)
row("D9-answer", with_nan("answer"), golds(), [["t0", 1.5]], NULL)
row("D9-metadata", with_nan("organ"), kept("organ"), [1.5, None], NULL, "pandas-dev/pandas#25716")
row("D9-where", with_nan("organ"), ids(where="organ=null"), ["t1"], "decided: null = NaN = missing",
    "pandas-dev/pandas#10468")
row("D9-where-not", with_nan("organ"), ids(where="organ!=null"), ["t0"], "decided: null = NaN = missing")
row("D9-date", {"d.parquet": columns([q(0), q(1)], organ=pa.array([datetime(2024, 1, 2), None]))}, lambda given,
    folder: kept("organ")(given, folder)[1], None, "NaT is null")
row("D9-pandas", {"d.parquet": lambda path: __import__("pandas").DataFrame([q(0, category="lung"), q(1, category=None)])
    .to_parquet(path)}, values("category"), [["t0", "lung"], ["t1", None]], "pandas: None in a column of text")
row("D9-choices", {"d.parquet": columns([q(0), q(1)], choices=pa.array([["yes", "no"], None]))}, values("choices",
    "prompt"), [["t0", ["yes", "no"]], ["t1", None]], "null is null")
row("D9-text", {"d.jsonl": [q(0, category="nan"), q(1, category="None")]}, values("category"),
    [["t0", "nan"], ["t1", "None"]], "a text is a text")
row("D9-json", {"d.jsonl": ['{"id": "a", "image": "0.png", "question": "Q?", "answer": "yes", "category": NaN}']},
    values("category"), either([["a", None]], []), "Python's json writes NaN", "THUDM/slime#1790")

# ---- D10: a column that begins late
LATE = [q(i) for i in range(1005)]
COUNT = lambda given, folder: [  # noqa: E731
    len(found := values("category")(given, folder)), [one for one in found if one[1] is not None]]
BEGINS = "the column is there"
row("D10-jsonl", {"d.jsonl": [*LATE, q(1005, category="lung")]}, COUNT, [1006, [["t1005", "lung"]]], BEGINS,
    "huggingface/datasets#7169")
row("D10-json", {"d.json": json.dumps([*LATE, q(1005, category="lung")])}, COUNT, [1006, [["t1005", "lung"]]], BEGINS)
row("D10-ndjson", {"d.ndjson": "\n".join(map(json.dumps, [*LATE, q(1005, category="lung")]))}, COUNT,
    [1006, [["t1005", "lung"]]], BEGINS, "huggingface/datasets#6162")
row("D10-where", {"d.jsonl": [*LATE, q(1005, organ="lung")]}, ids(where="organ=lung"), ["t1005"], BEGINS)
row("D10-nested", {"d.jsonl": [*LATE, q(1005, meta={"organ": "lung"})]}, lambda given, folder: kept("meta.organ")(given,
    folder)[-1], "lung", BEGINS)
row("D10-by", ({"d.jsonl": [*LATE, *(q(1005 + i, patient=i % 5) for i in range(1000))]},
    [[f"t{i}" for i in range(1005)],
    *([f"t{1005 + i}" for i in range(k, 1000, 5)] for k in range(5))]), parted(share=0.4), 0, BEGINS)
row("D10-needed", {"d.jsonl": [*({name: one[name] for name in NAMES[:3]} for one in LATE), q(1005)]}, ids(), ["t1005"],
    "rows without an answer are bad, one has it", "huggingface/datasets#3965")
row("D10-unknown", {"d.jsonl": LATE}, COUNT, refused("category"), "no row has the column")
row("D10-bad-line", {"d.jsonl": [*LATE, "{broken", q(1006, category="lung")]}, COUNT, [1006, [["t1006", "lung"]]],
    "a bad line costs itself")

# ---- D11: hidden files
MAC = b"\0\5\x16\7\0\2\0\0Mac OS X        " + bytes(60)
ONE = csv("a,0.png,Q?,yes")
HIDDEN = "hidden files are no data"
row("D11-apple-double", {"d/cases.csv": ONE, "d/._cases.csv": MAC}, ids(), ["a"], HIDDEN, "bids-standard/pybids#1069")
row("D11-macosx", {"d/train.parquet": [q("a")], "d/__MACOSX/._train.parquet": MAC}, ids(), ["a"], HIDDEN,
    "troeger/opensubmit#89")
row("D11-macosx-tables", {"d/data/train.parquet": [q("a")], "d/__MACOSX/data/train.parquet": MAC}, ids(), ["a"], HIDDEN)
row("D11-lock", {"d/cases.csv": ONE, "d/.~lock.cases.csv#": ",me,here;"}, ids(), ["a"], "LibreOffice leaves its lock")
row("D11-checkpoints", {"d/train.parquet": [q("a")], "d/.ipynb_checkpoints/train-checkpoint.parquet": [q("b")]}, ids(),
    ["a"], "Jupyter leaves copies")
row("D11-two-seen", {"d/cases.csv": ONE, "d/more.csv": ONE}, ids(), refused("cases.csv", "more.csv"),
    "two files that can be seen stay two")
row("D11-told", {"d/cases.csv": ONE, "d/._cases.csv": MAC}, command(*CHECK), ends(0, 1, says=[r"\._cases\.csv|hidden"]),
    "decided: `data check` prints what was left out", "martin-ueding/geo-activity-playground#83")

# ---- D12: columns without a name
SHEET = "id,image,question,answer,,"
row("D12-right", {"d.csv": csv("a,0.png,Q?,yes,,", "b,0.png,Q?,no,,", header=SHEET)}, golds(), [["a", "yes"], ["b",
    "no"]],
    "without a name and without values a column is none", "pandas-dev/pandas#40976")
row("D12-one", {"d.csv": csv("a,0.png,Q?,yes,", header="id,image,question,answer,")}, ids(), ["a"],
    "without a name and without values a column is none", "wireservice/csvkit#1108")
row("D12-middle", {"d.csv": csv("a,0.png,,Q?,yes,", header="id,image,,question,answer,")}, ids(), ["a"],
    "wherever it stands")
row("D12-spaces", {"d.csv": csv("a,0.png,Q?,yes, ,", header="id,image,question,answer, ,")}, ids(), ["a"],
    "spaces are no name and no value")
row("D12-blank-rows", {"d.csv": csv("a,0.png,Q?,yes", ",,,", "b,0.png,Q?,no", ",,,", ",,,")}, ids(bad_rows="stop"),
    ["a", "b"], "decided: blank rows are no data", "pandas-dev/pandas#41167")
row("D12-blank-rows-and-columns", {"d.csv": csv("a,0.png,Q?,yes,,", ",,,,,", header=SHEET)}, ids(bad_rows="stop"),
    ["a"],
    "decided: blank rows are no data", "dilshod/xlsx2csv#90")
row("D12-with-values", {"d.csv": csv("a,0.png,Q?,yes,,5", header=SHEET)}, ids(), refused("column|name|header"),
    "decided: a column without a name that has values is an error", "probcomp/bayeslite#477")
row("D12-index", {"d.csv": csv("0,a,0.png,Q?,yes", "1,b,0.png,Q?,no", header=",id,image,question,answer")}, ids(),
    either(refused("column|name|header"), ["a", "b"]), "decided: a column without a name that has values is an error",
    "cpadavis/billy#18")
row("D12-doubled", {"d.csv": csv("a,0.png,Q?,yes,no", header="id,image,question,answer,answer")}, ids(),
    refused("answer|two columns"), "two columns of one name stay an error")
row("D12-semicolons", {"d.csv": csv("a;0.png;Q?;yes;;", header="id;image;question;answer;;")}, ids(), ["a"],
    "without a name and without values a column is none")
row("D12-tsv", {"d.tsv": csv("a\t0.png\tQ?\tyes\t\t", header="id\timage\tquestion\tanswer\t\t")}, ids(), ["a"],
    "without a name and without values a column is none")
row("D12-told", {"d.csv": csv("a,0.png,Q?,yes,,", ",,,,,", header=SHEET)}, command(*CHECK),
    ends(0, 1, says=["blank|empty|without a name|nameless"]), "decided: `data check` prints what was left out")

# ---- D13: the place of a bad row
PLACES = "the lines of the file, from 1"
NO_ROW = r"viewbox failed|row [12]\b"
row("D13-csv", {"d.csv": csv("a,0.png,Q?,yes", "b,0.png,Q?,", "c,0.png,Q?")}, command(*SHOW),
    ends(1, says=["line 3", "line 4"], without=NO_ROW), PLACES)
row("D13-tsv", {"d.tsv": csv("a\t0.png\tQ?\tyes", "b\t0.png\tQ?\t", "c\t0.png\tQ?", header="\t".join(NAMES))},
    command(*SHOW), ends(0, 1, says=["line 3", "line 4"], without=NO_ROW), PLACES)
row("D13-jsonl", {"d.jsonl": [q("a"), {"id": "b", "image": "0.png", "question": "Q?"}, "{broken"]}, command(*SHOW),
    ends(0, 1, says=["line 2", "line 3"], without=r"viewbox failed|row [12]\b"), PLACES)
row("D13-line-breaks", {"d.csv": csv('a,0.png,"Is it\ngray?",yes', "b,0.png,Q?,")}, command(*SHOW),
    ends(0, 1, says=["line 4"], without=NO_ROW), "RFC 4180: a cell may hold line breaks; the row ends on line 4")
row("D13-blank-lines", {"d.csv": csv("a,0.png,Q?,yes", "", "b,0.png,Q?,")}, command(*SHOW),
    ends(0, 1, says=["line 4"], without=NO_ROW), PLACES)
row("D13-stop", {"d.csv": csv("a,0.png,Q?,yes", "b,0.png,Q?,")}, ids(bad_rows="stop"), refused("line 3"), PLACES)
row("D13-picture", {"d.csv": csv("a,0.png,Q?,yes", "b,lost.png,Q?,yes")}, ids(bad_rows="stop"), refused("line 3"),
    PLACES)
row("D13-parquet", {"d.parquet": [q("a"), q("b", None)]}, ids(bad_rows="stop"), refused("row 1"),
    "decided: rows of tables keep their number from 0")

# ---- Y1, Y2: YAML 1.2
HUNDRED = {"d.csv": csv(*(f"c{i},{i % 6}.png,Q?,yes" for i in range(100)))}
CORE = "YAML 1.2.2, 10.3.2: the core schema"


def settings(value, name="limit"):
    """The setting `data.NAME` as it is read from YAML; as an override if the name is followed by =."""

    def ask(given, folder):
        spread(given, folder)
        config = write_config(folder, next(iter(given)), rest="" if name.endswith("=") else f"    {name}: {value}\n")
        more = [f"env.data.{name}{value}"] if name.endswith("=") else []
        from viewbox.configs import schema
        from viewbox.envs.from_config import build_envs

        env = build_envs(schema.load_config(str(config), more))[0]
        return len(env.tasks) if name.startswith("limit") else getattr(env.data, name.strip("="))

    return ask


row("Y1-leading-zero", HUNDRED, command(*SHOW, rest="    limit: 010\n"), ends(0, 2, says=["10 tasks|limit"],
    without=r"viewbox failed|\b8 tasks"), CORE, "opensanctions/opensanctions#3845")
row("Y1-more-zeros", HUNDRED, command(*SHOW, rest="    limit: 0012\n"), ends(0, 2, says=["12 tasks|limit"],
    without=r"viewbox failed|\b10 tasks"), CORE, "arp242/arp242.net#3")
row("Y1-octal", HUNDRED, command(*SHOW, rest="    limit: 0o10\n"), ends(0, 2, says=[r"\b8 tasks|limit"]),
    f"{CORE}: 0o10 is 8")
row("Y1-sexagesimal", HUNDRED, command(*SHOW, rest="    limit: 1:30\n"), ends(2, says=["limit"],
    without=r"viewbox failed|\b90 tasks"), f"{CORE}: 1:30 is text")
row("Y1-underscore", HUNDRED, command(*SHOW, rest="    limit: 1_0\n"), ends(0, 2, says=[r"\b10 tasks|limit"]),
    f"{CORE}: 1_0 is text")
row("Y1-boolean", HUNDRED, command(*SHOW, rest="    limit: true\n"), ends(2, says=["limit"]), "true is no number")
row("Y1-boolean-sample", HUNDRED, command(*SHOW, rest="    sample: true\n"), ends(2, says=["sample"]),
    "true is no number")
row("Y1-override", HUNDRED, command("data", "show", "CONFIG", "env.data.limit=010"), ends(0, 2,
    says=["10 tasks|limit"], without=r"viewbox failed|\b8 tasks"), "an override is read as YAML, too")
row("Y1-time", HUNDRED, command(*SHOW, more=", metadata: {at: {value: 12:30:45}}"), ends(0, says=["12:30:45"]),
    f"{CORE}: a text")
row("Y1-norway", HUNDRED, command(*SHOW, more=", metadata: {country: {value: NO}}"), ends(0, says=[r"(?-i:\bNO\b)"]),
    f"{CORE}: a text", "tomasz-c/nft-blackhole#4")
row("Y1-off", HUNDRED, command(*SHOW, more=", metadata: {flash: {value: off}}"), ends(0, says=[r"\boff\b"]),
    f"{CORE}: a text", "xkbcommon/libxkbcommon#268")
row("Y1-true", HUNDRED, command(*SHOW, rest="    restricted: true\n"), ends(0), f"{CORE}: a boolean",
    "yaml/pyyaml#795")
row("Y1-yes-as-boolean", HUNDRED, command(*SHOW, rest="    restricted: yes\n"), ends(0, 2), "a boolean, or refused")
row("Y1-hash", {"d.csv": csv("a,0.png,Q?,yes,#fff", "b,0.png,Q?,yes,#000", header="id,image,question,answer,color")},
    command("data", "show", "CONFIG", "env.data.where=color=#fff"), ends(0, says=[r"\b1 tasks"]),
    "issue 43: an override keeps its #", "hydra-ecosystem/hydra#2705")
row("Y1-hash-after-space", {"d.csv": csv("a,0.png,Q?,yes,x #1", "b,0.png,Q?,yes,x", header=
    "id,image,question,answer,color")}, command("data", "show", "CONFIG", "env.data.where=color=x #1"),
    ends(0, says=[r"\b1 tasks", r"\ba\b"]), "issue 43: an override keeps its #")

QUOTES = ends(0, 1, 2, says=["quot|it fits"], without="viewbox failed|True, False")
row("Y2-features", HUNDRED, command(*CHECK, rest="    features: {answer: [yes, no]}\n"), QUOTES,
    f"{CORE}: yes and no are texts; or it says that they need quotes", "docker/docs#21378")
row("Y2-upper-case", {"d.csv": csv("a,0.png,Q?,Yes", "b,0.png,Q?,No")}, command(*CHECK,
    rest="    features: {answer: [Yes, No]}\n"), QUOTES, f"{CORE}: Yes and No are texts", "acl-org/acl-anthology#282")
row("Y2-on", {"d.csv": csv("a,0.png,Q?,on", "b,0.png,Q?,off")}, command(*CHECK,
    rest="    features: {answer: [on, off]}\n"), QUOTES, f"{CORE}: on and off are texts")
row("Y2-quoted", HUNDRED, command(*CHECK, rest='    features: {answer: ["yes", "no"]}\n'), ends(0, 1, says=["it fits"]),
    "texts in quotes")
row("Y2-check-boxes", {"d.csv": csv("a,0.png,Q?,TRUE", "b,0.png,Q?,FALSE")}, command(*CHECK,
    rest='    features: {answer: ["TRUE", "FALSE"]}\n'), ends(0, says=["it fits"]), "as it is in the file")
row("Y2-letters", {"d.csv": csv("a,0.png,Q?,y", "b,0.png,Q?,n")}, command(*CHECK,
    rest="    features: {answer: [y, n]}\n"), QUOTES, f"{CORE}: y and n are texts", "crdoconnor/strictyaml#186")
row("Y2-booleans", HUNDRED, command(*CHECK, rest="    features: {answer: [true, false]}\n"),
    ends(1, 2, says=["true|text"], without="viewbox failed"), "booleans are no texts that a column may hold")

# ---------------------------------------------------------------------- what is asked of servers
LOST = (413, {})


def half(*bad):
    """Every second request is refused."""
    return by_request(lambda body, number: completion(GOOD) if number % 2 == 0 else bad[0])


def rolled(*arguments, tasks=6, **options):
    """How a rollout ends; then how another command on its folder does, if one is given: `RUN` stands for it."""

    def ask(given, folder):
        found = roll(given, folder, tasks=tasks, **options)
        return run(*(str(found.folder) if one == "RUN" else one for one in arguments)) if arguments else found.ended

    return ask


def seen(check, tasks=6, **options):
    """What `check` finds in a rollout."""
    return lambda given, folder: check(roll(given, folder, tasks=tasks, **options))


def totals(one):
    return [episode.scores and episode.scores.total for episode in one.episodes]


def reasons(one):
    return [episode.end_reason for episode in one.episodes]


def why(one):
    return str(one.episodes[0].info.get("error")) if one.episodes else one.ended.said


def stored(one):
    return (one.folder / "episodes" / "episodes.jsonl").read_text()


def find_means(value, name):
    """The means of all figures of a name in JSON, at any depth."""
    if not isinstance(value, dict):
        return []
    own = [one["mean"] for key, one in value.items() if key.endswith(name) and isinstance(one, dict) and "mean" in one]
    return own + [mean for one in value.values() for mean in find_means(one, name)]


def few(one, most=10):
    """Whether a run ended soon, not with 0, and whether it played nothing."""
    return [one.ended.status != 0, len(one.bodies) <= most, "viewbox failed" not in one.ended.said]


def soon(*words):
    """A server that never helps: the run ends after few requests, not with 0, and in the server's words."""

    def ask(given, folder):
        found = roll(given, folder)
        told = all(word.lower() in found.ended.said.lower() for word in words)
        return [*few(found), told or found.ended.said[-300:]]

    return ask


SOON = [True, True, True, True]
HALF = half(make_response(*LOST))

# ---- E1: one statement about the same episodes
row("E1-score", HALF, rolled("score", "RUN"), ends(0, says=[r"accuracy/all\s+1\.000",
    r"reward\s+3\s+1\.000|3 episodes"],
    without=r"viewbox failed|accuracy/all\s+0\.5"), "docs: means are over episodes with a score",
    "UKGovernmentBEIS/inspect_ai#4286")
row("E1-macro", HALF, rolled("score", "RUN"), ends(0, says=[r"macro_f1\s+1\.000"]),
    "scikit-learn: three right of three",
    "UKGovernmentBEIS/inspect_ai#4412")
row("E1-rollout", HALF, rolled(), ends(0, says=[r"reward\s+1\.000", "3 × .*413", "--retry-failed"]),
    "decided: some were played: 0, and the faults are counted", "UKGovernmentBEIS/inspect_ai#2914")
row("E1-json", HALF, lambda given, folder: find_means(json.loads(rolled("score", "RUN", "--format", "json")(given,
    folder)
    .out), "accuracy/all"), [1], "the same figures in JSON")
row("E1-hang-up", half(hang_up), rolled("score", "RUN"), ends(0, says=[r"accuracy/all\s+1\.000"]),
    "a broken connection says nothing about the policy", "allenai/vla-evaluation-harness#129")
row("E1-said", HALF, rolled("score", "RUN"), ends(0, says=[r"\b3\b.*(fault|error|no score)|faults.*\b(3|0\.5)"]),
    "decided: the faults are said", "vibrantlabsai/ragas#2980")
row("E1-wrong", by_request(lambda body, number: [completion(GOOD), completion('{"answer": "no"}'),
    make_response(*LOST)][
    number % 3]), rolled("score", "RUN"), ends(0, says=[r"accuracy/all\s+0\.500"]), "two right of four")
row("E1-summary", HALF, seen(lambda one: viewbox.summarize(one.episodes, resamples=0).figures["metrics/accuracy/all"]
    .mean), 1, "the same from Python")

# ---- E2: a content filter
FILTERED = completion(None, finish="content_filter")
row("E2-ends", FILTERED, seen(lambda one: [set(reasons(one)) <= {"error"}, set(totals(one)) <= {None}]), [True, True],
    "the model was not asked", "BerriAI/litellm#8953")
row("E2-named", FILTERED, seen(why), says("content_filter"), "the error names it", "microsoft/semantic-kernel#5240")
row("E2-with-text", completion(GOOD, finish="content_filter"), seen(lambda one: [set(reasons(one)), set(totals(one))]
    == [{"error"}, {None}] or one.ended.status), either(True, 2), "decided: with or without text")
row("E2-some", by_request(lambda body, number: completion(GOOD) if number % 2 == 0 else FILTERED), rolled("score",
    "RUN"),
    ends(0, says=[r"accuracy/all\s+1\.000"]), "three were asked, and right", "promptfoo/promptfoo#2822")
row("E2-some-said", by_request(lambda body, number: completion(GOOD) if number % 2 == 0 else FILTERED), rolled(),
    ends(0, says=["3 × .*content_filter", "--retry-failed"]), "decided: the reasons are given")
row("E2-stored", by_request(lambda body, number: completion(GOOD) if number else FILTERED), seen(stored),
    says("content_filter"), "its finish_reason is stored with the turn", "Azure-Samples/azure-search-openai-demo#2076")
row("E2-no-retry", FILTERED, seen(lambda one: len(one.bodies) <= 6), True, "asking again does not help",
    "tatsu-lab/alpaca_eval#227")
row("E2-azure", refuse(400, "The response was filtered due to the prompt triggering a content management policy.",
    "content_filter"), soon("filtered"), SOON, "Azure: prompts are filtered with 400", "stanford-crfm/helm#3327")
row("E2-other-word", completion(GOOD, finish="model_paused"), seen(stored), says('"model_paused"'),
    "decided: the server's own word is stored, and is as stop")
row("E2-safety", completion(None, finish="safety"), seen(stored, tasks=1), says('"(safety|content_filter)"'),
    "the word is stored")
for word in ("ContentFilter", "IMAGE_SAFETY", "guardrail_intervened"):
    row(f"E2-{word}", completion(None, finish=word), seen(lambda one: [reasons(one), totals(one)], tasks=1),
        [["error"], [None]], "Azure, Gemini, Bedrock: words for the same")
row("E2-other-word-score", completion(GOOD, finish="model_paused"), seen(totals), [1] * 6, "and is as stop")
# ---- E3: a budget that went into thinking
THOUGHT = "The picture is gray, so "
CUT = completion(None, finish="length", reasoning_content=THOUGHT)
row("E3-stored", CUT, seen(stored, tasks=1), says("The picture is gray, so"), "what the model wrote is in the episode",
    "mindcraft-bots/mindcraft#789")
row("E3-nudge", CUT, seen(lambda one: read_messages(one.episodes[0]), tasks=1), says("cut|limit", "think"),
    "the nudge says that the reply was cut while thinking", "vllm-project/vllm-ascend#8042")
row("E3-reason", CUT, seen(stored, tasks=1), says('"finish_reason":"length"'), "its finish_reason is stored")


def viewed(given, folder):
    found = roll(given, folder, tasks=1)
    ended = run("view", found.folder)
    return Refusal(ended.said) if ended.status else (folder / "report.html").read_text()


row("E3-view", CUT, viewed, says("The picture is gray, so"), "the page shows it, as thinking")


def exported(to, name):
    def ask(given, folder):
        found = roll(given, folder, tasks=1)
        ended = run("export", found.folder, "--to", to, "--out", name)
        return (folder / name).read_text() if (folder / name).is_file() else Refusal(ended.said)

    return ask


row("E3-export", CUT, exported("openai", "x.jsonl"), says("reasoning_content", "The picture is gray"),
    "decided: exported as reasoning_content", "stanford-crfm/helm#3632")
row("E3-goes-on", by_request(lambda body, number: completion(GOOD) if number % 2 else CUT), seen(totals), [1] * 6,
    "the episode goes on")
row("E3-normal", completion(GOOD), seen(stored, tasks=1), says("yes", without='"finish_reason"|"reasoning"'),
    "decided: nothing is stored that is as usual")

# ---- E4: an error that every request meets
UNKNOWN_MODEL = "Model m not found. Available: a, b"
row("E4-model", refuse(400, UNKNOWN_MODEL), soon("Model m not found"), SOON, "no episode was played",
    "serverless/serverless#773")
row("E4-status", refuse(400, UNKNOWN_MODEL), rolled(), ends(2, says=["Model m not found"]),
    "decided: nothing could be done: 2", "leggedrobotics/kleinkram#225")
row("E4-many-slots", refuse(400, UNKNOWN_MODEL), lambda given, folder: few(roll(given, folder, concurrency=6), 12),
    [True, True, True], "however many are asked at once")
row("E4-404", refuse(404, "The model `m` does not exist"), soon("does not exist"), SOON, "as today")
row("E4-422", refuse(422, "tools: extra inputs are not permitted"), soon("extra inputs"), SOON, "no pause helps")
row("E4-413", make_response(413, "Request Entity Too Large"), soon("413"), SOON, "no pause helps")
row("E4-text", make_response(400, "no such deployment"), soon("no such deployment"), SOON, "in the server's words")
row("E4-and-score", refuse(400, UNKNOWN_MODEL), rolled("score", "RUN"), ends(0, 1, 2,
    says=["no score|no episode|nothing"]),
    "there is nothing to score, and it says so")
row("E4-later", by_request(lambda body, number: completion(GOOD) if number == 0 else refuse(400, UNKNOWN_MODEL)),
    seen(lambda one: [one.ended.status, reasons(one).count("answered"), reasons(one).count("error")]), [0, 1, 5],
    "decided: after a good reply an error costs its episode")
row("E4-different", by_request(lambda body, number: refuse(400, f"{'abcdef'[number]} is no field") if number < 5 else
    completion(GOOD)), seen(lambda one: [one.ended.status, reasons(one).count("answered")]), [0, 1],
    "errors that differ do not say that nothing works")
row("E4-different-numbers", by_request(lambda body, number: refuse(400, f"you requested {5000 + number} tokens") if
    number < 5 else completion(GOOD)), seen(lambda one: [one.ended.status, "tokens" in one.ended.said]),
    either([0, True], [2, True]), "numbers may be those of a request: it goes on, or ends in the server's words")
row("E4-request-ids", by_request(lambda body, number: refuse(400, f"{UNKNOWN_MODEL} (request req_{number}{number}a)")),
    soon("Model m not found"), SOON, "servers put an id into every message", "anthropics/claude-code#62312")
# ---- E5: quota
QUOTA = "You exceeded your current quota, please check your plan and billing details."
row("E5-quota", refuse(429, QUOTA, "insufficient_quota"), soon("quota"), SOON, "no pause helps",
    "langchain-ai/langchainjs#1929")
row("E5-text-only", refuse(429, QUOTA), soon("quota"), SOON, "no pause helps", "mindsdb/anton#284")
row("E5-payment", refuse(402, "Insufficient credits. Add more to continue."), soon("credits"), SOON, "no pause helps")
row("E5-billing", refuse(429, "Your billing hard limit has been reached"), soon("billing"), SOON, "no pause helps",
    "OpenHands/OpenHands#998")
row("E5-after-replies", by_request(lambda body, number: completion(GOOD) if number < 2 else refuse(429, QUOTA,
    "insufficient_quota")), seen(lambda one: [one.ended.status != 0, len(one.bodies) < 8, totals(one)[:2]]),
    [True, True, [1, 1]], "decided: it ends the run, what was played stays", "LionSR/TeXRA#3851")
row("E5-rate", by_request(lambda body, number: completion(GOOD) if number % 3 == 2 else refuse(429,
    "Rate limit reached for requests", "rate_limit_exceeded")), seen(totals), [1] * 6, "a rate limit passes",
    "sierra-research/tau-bench#38")
row("E5-busy", by_request(lambda body, number: completion(GOOD) if number % 2 else refuse(503, "overloaded")),
    seen(totals), [1] * 6, "5xx passes")
row("E5-fenic", refuse(429, "quota exhausted", "insufficient_quota"), rolled(), ends(1, 2, says=["quota exhausted"]),
    "in the server's words", "typedef-ai/fenic#231")

row("E5-overloaded", by_request(lambda body, number: completion(GOOD) if number % 2 else page(529,
    "<html>busy</html>")),
    seen(totals), [1] * 6, "5xx passes, also as a page")
row("E5-slow-down", by_request(lambda body, number: completion(GOOD) if number % 2 else page(429, "<html>busy</html>")),
    seen(totals), [1] * 6, "429 without a word of quota passes")

# ---- E6: no JSON at all
SIGN_IN = "<html><body>Please sign in</body></html>"
row("E6-page", page(200, SIGN_IN), soon("sign in"), SOON, "the first replies are no JSON at all",
    "EleutherAI/lm-evaluation-harness#2863")
row("E6-redirect", make_response(302, "", Location="https://login.example.org/"), soon("login.example.org"), SOON,
    "redirects are not followed")
row("E6-error-body", make_response(200, {"error": {"message": "No such model: m", "code": 404}}), soon("No such model"),
    SOON, "an error in a 200, in the server's words", "openai/openai-agents-python#2850")
row("E6-null-choices", make_response(200, {"choices": None, "error": {"message": "Provider returned error",
    "code": 400}}),
    soon("Provider returned error"), SOON, "an error in a 200, in the server's words", "langchain-ai/langchain#32252")
row("E6-error-text", make_response(200, {"error": "model m is not loaded"}), soon("not loaded"), SOON,
    "an error in a 200, in the server's words", "langchain-ai/langchainjs#11418")
row("E6-doctype", page(200, f"<!DOCTYPE html>\n{SIGN_IN}"), soon("sign in"), SOON, "a page",
    "openonion/connectonion#736")
row("E6-torn", by_request(lambda body, number: completion(GOOD) if number % 2 else cut_body), seen(totals), [1] * 6,
    "a torn body passes")
row("E6-forbidden", page(403, SIGN_IN), soon("403"), SOON, "as today")
row("E6-message", page(200, SIGN_IN), rolled(), ends(2, says=["html|page|JSON"]), "it says what came",
    "lorenzodifuccia/safaribooks#381")

row("E6-passes", by_request(lambda body, number: completion(GOOD) if number % 2 else make_response(200, {"error": {
    "message": "Provider returned error", "code": 429}})), seen(totals), [1] * 6, "a rate limit in a 200 passes",
    "UKGovernmentBEIS/inspect_ai#1534")
row("E6-stream", make_response(200, 'data: {"choices": [{"delta": {"content": "x"}}]}\n\ndata: [DONE]\n'),
    soon("data:"),
    SOON, "a stream that nobody asked for")
row("E6-completions", make_response(200, {"choices": [{"text": GOOD}]}), lambda given, folder: "no message" in
    roll(given, folder).ended.said, True, "it is the older API: there is a choice, and no message in it")
row("E6-no-choices", make_response(200, {"choices": []}), lambda given, folder: few(roll(given, folder), 20),
    [True, True, True], "no reply is in it, however often it is sent", "vercel/ai#20351")

# ---- E7: a server that takes no empty message


def strict(first):
    """A server that refuses empty messages; it first gives a reply, then right ones."""

    def answer(body, number):
        said = [one for one in body["messages"] if one["role"] == "assistant"]
        if any(not str(one.get("content") or "").strip() and not one.get("tool_calls") for one in said):
            return refuse(400, "messages: text content must be non-empty")
        return completion(GOOD) if said else first

    return by_request(answer)


EMPTY = "no server takes an empty message for sure: it is sent with a mark"
row("E7-empty", strict(completion("")), seen(totals), [1] * 6, EMPTY, "anthropics/anthropic-sdk-python#461")
row("E7-thinking", strict(completion(None, reasoning_content=THOUGHT)), seen(totals), [1] * 6, EMPTY,
    "anthropics/claude-code#62150")
row("E7-cut", strict(completion("", finish="length")), seen(totals), [1] * 6, EMPTY)
row("E7-parts", strict(completion([])), seen(totals), [1] * 6, EMPTY, "cecli-dev/cecli#102")
row("E7-only-thoughts", strict(completion("<think>hm</think>")), seen(totals), [1] * 6, "thinking is text")
row("E7-calls", by_request(lambda body, number: completion(GOOD) if any(one.get("tool_calls") for one in
    body["messages"]) else completion(None, ("c1", "zoom", '{"factor": 2}'))), seen(totals), [1] * 6,
    "a message of calls needs no text")
row("E7-stored", strict(completion("")), seen(lambda one: one.episodes[0].turns[1].content, tasks=1), "",
    "the record keeps what the model said: nothing")

# ---- E9: half a reply
HALF_AN_ANSWER = 'It is. {"answer": "no"}'
AGAIN = [[1], 2]


def choose(whole, **more):
    """A completion, whose choice has more fields."""
    whole["choices"][0] |= more
    return whole


def again(given, folder):
    """The score of one task, and how many requests it took, where the first reply is `given`."""
    one = roll(by_request(lambda body, number: completion(GOOD) if number else given), folder, tasks=1)
    return [totals(one), len(one.bodies)]


WENT = {"code": 502, "message": "the model went away"}
row("E9-choice-error", choose(completion(HALF_AN_ANSWER, finish="error"), error=WENT), again, AGAIN,
    "OpenRouter: the choice says so", "earendil-works/pi#9002")
row("E9-error-stop", choose(completion(HALF_AN_ANSWER), error=WENT), again, AGAIN, "the same, with `stop`")
row("E9-error-beside", completion(HALF_AN_ANSWER) | {"error": {"message": "stream broke"}}, again, AGAIN,
    "an error beside the choices")
row("E9-error-401", completion(HALF_AN_ANSWER) | {"error": {"message": "upstream", "code": 401}}, again, AGAIN,
    "an error beside half a text is about this reply")
row("E9-native", choose(completion(HALF_AN_ANSWER), native_finish_reason="MALFORMED_FUNCTION_CALL"), again, AGAIN,
    "OpenRouter: the provider's own word")
row("E9-status", completion(HALF_AN_ANSWER) | {"status": "incomplete"}, again, AGAIN, "OpenAI's Responses")
row("E9-no-error", choose(completion(GOOD), error=None) | {"error": {"message": None}}, again, [[1], 1], "no error")
for word in ("network_error", "insufficient_system_resource", "abort", "aborted", "cancelled", "timeout", "failed",
             "FinishReason.OTHER", "time_limit", "not_finished", "evicted", "out_of_memory", "terminated",
             "OTHER", "MALFORMED_FUNCTION_CALL", "function_call_filter: MALFORMED_FUNCTION_CALL", "server error"):
    row(f"E9-{word}", completion(HALF_AN_ANSWER, finish=word), again, AGAIN, "DeepSeek, GLM, vLLM, Gemini: their words",
        "genkit-ai/genkit#6259")
row("E9-status-length", completion(GOOD, finish="length") | {"status": "incomplete"}, again, [[1], 1],
    "the budget ended it", "BerriAI/litellm#37710")
row("E9-stop-reason", choose(completion(HALF_AN_ANSWER, finish=None), stop_reason="error"), again, AGAIN,
    "Anthropic, by a proxy")
for name, more in (("errors", {"errors": [{"message": "gone"}]}), ("base", {"base_resp": {"status_code": 1013}})):
    row(f"E9-{name}", completion(HALF_AN_ANSWER) | more, again, AGAIN, "an error beside the choices")
row("E9-second-reason", choose(completion(HALF_AN_ANSWER), stop_reason="error"), again, AGAIN, "any of its reasons")
for word in ("max_tokens_exceeded", "context_window_exceeded", "ERROR_LIMIT", "token_limit", "MAX_TOKENS",
             "FinishReason.MAX_TOKENS", "max_new_tokens", "max_length"):
    row(f"E9-{word}", completion(GOOD, finish=word), seen(lambda found: [turn.finish_reason for turn in
        found.episodes[0].turns if turn.role == "assistant"], tasks=1), ["length"], "watsonx, Cohere: the budget")
for word in ("stop", "end_turn", "length", "model_context_window_exceeded", "model_paused"):
    row(f"E9-{word}", completion(GOOD, finish=word), again, [[1], 1], "the model ended it, or its budget")
row("E9-always", completion(HALF_AN_ANSWER, finish="error"), seen(lambda one: [reasons(one), totals(one)], tasks=1),
    either([["error"], [None]], [[], []]), "it is never the model's answer")

# ---- E10: a limit that passes, and one that does not
for name, message, headers in (
    ("again", "Too many requests per day (10000 of 10000). Please try again in 0.1s.", {}),
    ("ms", "Limit 500 requests per day. Please retry in 60ms.", {}),
    ("after", "requests per day", {"Retry_After": "0.1"}), ("header-ms", "daily limit", {"retry_after_ms": "60"}),
    ("reset", "requests per day", {"x_ratelimit_reset_requests": "60ms"}),
    ("minute", "Quota of 15 requests per minute exceeded; retry in 0.1s. The free tier has 1500 requests per day.", {}),
):
    row(f"E10-{name}", refuse(429, message, **headers), again, AGAIN, "the server names a pause",
        "google-gemini/gemini-cli#8437")
for name, message, headers in (
    ("day", "The 50 free requests per day are used up; credits buy more", {}), ("daily", "Daily quota exceeded", {}),
    ("tomorrow", "Too many requests per day. Please try again in 11h5m.", {}),
    ("header", "You have used your requests per day", {"Retry_After": "40000"}), ("days", "Resets in 3 days", {}),
    ("today", "You used up all requests for today", {}), ("arrears", "您的账户已欠费", {}),
):
    row(f"E10-{name}", refuse(429, message, **headers), soon("no pause helps"), SOON, "no pause of minutes helps")
row("E10-echo", make_response(422, {"detail": [{"loc": ["body", "seed"], "msg": "Extra inputs are not permitted",
    "input": "Which nodule was flagged by moderation? My quota per day"}]}), seen(why, tasks=1),
    says("Extra inputs", without="content_filter|no pause"), "FastAPI repeats the question: the server does not say it")
row("E10-echo-429", by_request(lambda body, number: completion(GOOD) if number else make_response(429, {"detail":
    [{"msg": "slow down", "input": "insufficient quota"}]})), seen(totals, tasks=1), [1], "the same with a limit")

# ---- E11: a server that wants calls in another form
ZOOM = ("c1", "zoom", '{"factor": 2}')


def wanting(said, status=400):
    """A server that refuses the results of native calls with these words."""
    return by_request(lambda body, number: completion(None, ZOOM) if number == 0 and "tools" in body else
        completion(GOOD) if not any(one.get("tool_calls") for one in body["messages"]) else refuse(status, said))


for name, said in (
    ("reasoning", "message 2 has a call and no reasoning_content"),
    ("order", "Unexpected role 'user' after role 'tool'"), ("content", "Invalid value for 'content': got null"),
    ("prefill", "does not support assistant message prefill"), ("details", "reasoning_details must be sent back"),
    ("signature", "Function call is missing a thought_signature"),
):
    row(f"E11-{name}", wanting(said), seen(why, tasks=1), says("endpoint.native_tools=false"),
        "the error names the setting that helps", "cloudwego/eino-ext#700")
row("E11-jinja", refuse(500, "start me with --jinja to use tools"), rolled(tasks=1), ends(2, says=["--jinja",
    "endpoint.native_tools=false"]), "so does that of a server without tools")
row("E11-helps", wanting("no"), lambda given, folder: totals(roll(given, folder, "endpoint.native_tools=false",
    tasks=1)), [1], "calls and results as text")


def named(name, identity="c1"):
    """The score against a server that takes only its own ids, and names of letters, of the calls that it made."""
    def takes(body):
        calls = [one for message in body["messages"] for one in message.get("tool_calls") or ()]
        results = [message["tool_call_id"] for message in body["messages"] if message["role"] == "tool"]
        names = all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", one["function"]["name"]) for one in calls)
        return names and [one["id"] for one in calls] == results and set(results) <= {identity, "c2"}

    made = completion(None, (identity, name, "{}"), ("c2", "reset", "{}"))
    return by_request(lambda body, number: made if number == 0 else completion(GOOD) if takes(body) else
        refuse(400, "a call has another name or id"))


for name in ("zoom in!", "", "functions.zoom", "z" * 80, "größe"):
    row(f"E11-name-{name[:9]}", named(name), seen(totals, tasks=1), [1], "a made-up name is no part of the history",
        "can1357/oh-my-pi#3458")
row("E11-long-id", named("zoom", "call_ab12__thought__" + "QUJDREVG" * 400), seen(totals, tasks=1), [1],
    "Gemini, by a proxy: the signature is in the id", "securo-finance/securo#884")

# ---- E12: a server that fails for ever
FOR_EVER = "CUDA was not compiled"
row("E12-ends", refuse(500, FOR_EVER), soon(FOR_EVER), SOON, "the same words three times before any reply")
row("E12-ids", by_request(lambda body, number: refuse(500, f"{FOR_EVER} (request a{number}b)")), soon(FOR_EVER), SOON,
    "servers put an id into every message")
row("E12-words", by_request(lambda body, number: completion(GOOD) if number > 3 else refuse(500, "abcd"[number])),
    seen(totals, tasks=1), [1], "other words each time")
row("E12-loading", by_request(lambda body, number: completion(GOOD) if number > 4 else refuse(503, "Loading model")),
    seen(totals, tasks=1), [1], "llama.cpp: it starts")
row("E12-internal", by_request(lambda body, number: completion(GOOD) if number > 4 else refuse(500,
    "Internal server error")), seen(totals, tasks=1), [1], "these words say nothing")
row("E12-later", by_request(lambda body, number: completion(GOOD) if number in (0, 5) else refuse(500, FOR_EVER)),
    seen(totals, tasks=2), [1, 1], "after a reply it may be this request")

# ---- E8: numbers that JSON does not have


def infinite(old, new):
    """A good completion whose JSON has something else in it."""
    return make_response(200, json.dumps(completion(GOOD, usage={"prompt_tokens": 7})).replace(old, new))


UNNEEDED = "a part that is not needed counts as missing"
for name, number in (("minus", "-Infinity"), ("nan", "NaN"), ("infinity", "Infinity"), ("huge", "1e999")):
    row(f"E8-{name}", infinite('"stop"', f'"stop", "logprobs": {{"content": [{{"logprob": {number}}}]}}'), seen(totals),
        [1] * 6, UNNEEDED, "vllm-project/vllm#19661" if name == "nan" else "sgl-project/sglang#5984")
row("E8-usage", infinite(": 7", ": NaN"), seen(totals), [1] * 6, UNNEEDED, "tenstorrent/vllm#435")
row("E8-created", infinite('"choices"', '"created": -Infinity, "choices"'), seen(totals), [1] * 6, UNNEEDED)
row("E8-first-time", infinite('"stop"', '"stop", "logprobs": {"token_logprobs": [-Infinity]}'),
    seen(lambda one: len(one.bodies)), 6, "one request for each episode", "dphnAI/sonar#183")
row("E8-in-the-answer", completion('{"answer": NaN}'), seen(totals, tasks=1), [0],
    "RFC 8259: NaN is no JSON: the model's own fault")

# ---------------------------------------------------------------------- what is asked of commands


@cache
def make_good_run():
    """A folder with the run `run` of six good episodes, which no row changes."""
    made = TemporaryDirectory()
    with chdir(made.name):
        assert roll(completion(GOOD), Path(made.name)).ended.status == 0
        Path("file").write_text("a file")
        Path("box").mkdir()
        os.mkfifo("pipe")
    return made


def after(*arguments, spoil=None):
    """How a command ends on a copy of a good run, after `spoil(folder of episodes)`.

    With something given, also what the command left beside the run, the file `file`, the folder `box` and the pipe.
    """

    def ask(given, folder):
        made = Path(make_good_run().name)
        for path in made.iterdir():
            if path.is_dir():
                shutil.copytree(path, folder / path.name)
            elif path.is_fifo():
                os.mkfifo(folder / path.name)
            else:
                shutil.copy(path, folder)
        before = {path.name for path in folder.iterdir()}
        if spoil:
            spoil(folder / "run" / "episodes")
        ended = run(*arguments)
        assert (folder / "pipe").is_fifo(), "a pipe or device was replaced by a file"
        return ended if given is None else [ended, sorted({path.name for path in folder.iterdir()} - before)]

    return ask


def remove_images(episodes, count=None):
    for path in sorted((episodes / "images").rglob("*.png"))[:count]:
        path.unlink()


def cut_images(episodes):
    for path in (episodes / "images").rglob("*.png"):
        path.write_bytes(path.read_bytes()[:20])


# ---- V1: a run that lost something
row("V1-cut", None, after("view", "run", spoil=cut_images), ends(0, 1, says=["wrote"]), "the page is made")
row("V1-export", None, after("export", "run", "--to", "openai", "--out", "x.jsonl", spoil=remove_images),
    ends(1, 2, says=["image|picture"]), "decided: nothing exported is 2, something skipped 1")
row("V1-whole", None, after("view", "run"), ends(0, says=["wrote"], without="missing|viewbox failed"),
    "nothing is missing")


def linked(*arguments):
    """How a command ends on a run folder that is a link."""

    def ask(given, folder):
        shutil.copytree(make_good_run().name, folder / "disk", ignore=shutil.ignore_patterns("pipe"))
        for name in ("run", "img", "six.csv"):
            (folder / name).symlink_to(folder / "disk" / name)
        return run(*arguments)

    return ask


row("V1-link", None, linked("view", "run"), ends(0, says=["wrote"]), "a linked folder is a folder")
row("V1-link-score", None, linked("score", "run"), ends(0), "a linked folder is a folder")

# ---- F1: nothing kept
NOTHING = [ends(2), []]
row("F1-sft", True, after("export", "run", "--to", "sft", "--where", "reward>5", "--out", "f.parquet"), NOTHING,
    "decided: nothing exported is 2")
row("F1-some", None, after("export", "run", "--to", "run", "--where", "reward>=1", "--out", "f"), ends(0),
    "all are kept", "promptfoo/promptfoo#634")
row("F1-best", True, after("export", "run", "--to", "run", "--reward-between", "0.2", "0.8", "--out", "f"), NOTHING,
    "no task has such a mean", "backtick-se/cowait#292")
row("F1-import", {"empty.jsonl": ""}, lambda given, folder: [spread(given, folder), run("import", "empty.jsonl",
    "--from", "openai", "--out", "f"), (folder / "f").exists()][1:], [ends(2), False], "decided: nothing read is 2")
row("F1-import-mark", {"a.jsonl": b"\xef\xbb\xbf" + b'{"messages": [{"role": "user", "content": "a"}, {"role": ' +
    b'"assistant", "content": "b"}]}\n'}, lambda given, folder: [spread(given, folder), run("import", "a.jsonl",
    "--from", "openai", "--out", "f")][1], ends(0), "RFC 8259: a reader may ignore a byte order mark")
# ---- O2: what cannot be written, and what is no run
def nothing_but(*arguments):
    """How a command without a run ends, and what it left beside six.csv, six.yaml and img."""

    def ask(given, folder):
        config = write_six(folder)
        before = sorted(path.name for path in folder.iterdir())
        with serve(by_request(lambda body, number: completion(GOOD))) as server, haste():
            url = f"http://127.0.0.1:{server.server_port}/v1"
            fill = {"CONFIG": config, "URL": url}
            ended = run(*(fill.get(one, one) for one in arguments))
        return [ended, sorted({path.name for path in folder.iterdir()} - set(before))]

    return ask


ROLL = ("rollout", "--config", "CONFIG", "--endpoint", "URL", "--model", "m", "--tasks", "2", "--out")
row("O2-no-run", True, after("view", ""), [ends(2), []], "the name of the run is empty")
row("O2-in-a-file", None, nothing_but(*ROLL, "six.csv"), [ends(2, says=["six.csv"]), []], "a file is no folder")

SENTENCE = "one sentence, status 2, before any work"


def sentence(*words):
    return [ends(2, says=words, without="viewbox failed|Traceback"), []]


for name, arguments in (("O2", ("view", "run")), ("O3", ("export", "run", "--to", "openai"))):
    end = ".html" if name == "O2" else ".jsonl"
    row(f"{name}-folder", True, after(*arguments, "--out", "box"), sentence("box"), SENTENCE)
    row(f"{name}-new-folder", None, after(*arguments, "--out", f"new/inner/x{end}"), ends(0),
        "decided: a missing folder is made")
    row(f"{name}-zero-byte", True, after(*arguments, "--out", f"a\0{end}"), sentence("."), SENTENCE)
row("O2-pipe", None, after("view", "run", "--out", "pipe"), ends(2, says=["pipe"]),
    "what is no file is not replaced by one")
row("O3-pipe", None, after("export", "run", "--to", "openai", "--out", "pipe"), ends(2, says=["pipe"]),
    "what is no file is not replaced by one")

# ---- O3: where an export cannot be written
for to, name in (("sft", "file/x.parquet"), ("run", "file/x"), ("parquet", "file/x.parquet"), ("inspect",
    "file/x.json")):
    row(f"O3-{to}", True, after("export", "run", "--to", to, "--out", name), sentence("file"), SENTENCE,
        "NVIDIA/NeMo-Framework-Launcher#74")
row("O3-exists", True, after("export", "run", "--to", "openai", "--out", "file"), sentence("file"),
    "decided: an existing file is no --out")
row("O3-into-itself", None, after("export", "run", "--to", "run", "--out", "run/inner"), ends(0, 2),
    "made, or refused in a sentence")
row("O3-here", True, after("export", "run", "--to", "openai", "--out", "."), sentence("out"), SENTENCE)
row("O3-missing", None, after("export", "nope", "--to", "openai", "--out", "x.jsonl"), ends(2, says=["nope"]),
    "there is no such run")
row("O3-file-as-run", None, after("export", "file", "--to", "openai", "--out", "x.jsonl"), ends(2, says=["file"]),
    "a file is no run")

# ---- P1: the user's surroundings


@contextmanager
def surroundings(**variables):
    names = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ssl_cert_file", "ssl_cert_dir")
    own = {name: text for name, text in os.environ.items() if name.lower() not in names}
    with mock.patch.dict(os.environ, {**own, **{name: text for name, text in variables.items() if text is not None}},
                         clear=True):
        for name in (name for name, text in variables.items() if text is None):
            os.environ.pop(name, None)
        yield


def with_variables(endpoint="https://example.invalid/v1", **variables):
    """How a rollout ends where these variables are set; `URL` is a server of this machine."""

    def ask(given, folder):
        with surroundings(**variables):
            write_six(folder)
            with serve(by_request(lambda body, number: completion(GOOD))) as server, haste():
                url = endpoint.replace("URL", f"http://127.0.0.1:{server.server_port}/v1")
                more = ("--endpoint", url, "--model", "m", "--tasks", "1", "--out", "run")
                return run("rollout", "--config", "six.yaml", *more)

    return ask


SOCKS = "socks5://127.0.0.1:1"
NAMES_IT = "one sentence that names the variable and the way out"
row("P1-all-proxy", None, with_variables(ALL_PROXY=SOCKS), ends(2, says=["ALL_PROXY", r"httpx\[socks\]|unset"]),
    NAMES_IT,
    "chatchat-space/Langchain-Chatchat#605")
row("P1-no-scheme", None, with_variables(HTTPS_PROXY="127.0.0.1:1"), ends(2, without="viewbox failed|Traceback"),
    "a proxy that cannot be reached, or one that needs a scheme")
row("P1-this-machine", None, with_variables("URL", ALL_PROXY=SOCKS), either(ends(0), ends(2, says=["ALL_PROXY"])),
    "a proxy is not needed for this machine", "github/spec-kit#237")
row("P1-certificate", None, with_variables(SSL_CERT_FILE="/nowhere/ca.pem"), ends(2, says=["SSL_CERT_FILE"]), NAMES_IT)
row("P1-certificate-text", None, with_variables(SSL_CERT_FILE="six.csv"), ends(2, says=["SSL_CERT_FILE"]), NAMES_IT)
row("P1-no-home", None, with_variables("URL", HOME=None), ends(0), "a home is not needed")
row("P1-home-is-a-file", None, with_variables("URL", HOME="six.csv"), ends(0), "a home is not needed")

# ---- N1: names that are taken


def new(given, folder):
    ended = run("new", given)
    return [ended, (folder / given).exists() if given else False]


IMPORTS = "the package itself imports it"
for name in ("numpy", "pydantic", "httpx", "scipy", "typer", "msgspec", "yaml", "nibabel", "packaging", "pil", "torch",
             "json", "typing-extensions", "pydantic-core", "class", "test", "conftest", "vllm"):
    row(f"N1-{name}", name, new, [ends(2, says=[name, "is taken"]), False], IMPORTS, "python-poetry/poetry#3438")
row("N1-dash", "rich", new, [ends(2, says=["rich"]), False], IMPORTS, "astral-sh/uv#21394")
row("N1-viewbox", "viewbox", new, [ends(2, says=["viewbox"]), False], "as today")
row("N1-mine", "bright-discs", new, [ends(0), True], "a name of one's own")
row("N1-like", "numpy-games", new, [ends(0), True], "a name of one's own")
# fmt: on


def test_every_kind_has_rows_of_names_of_their_own():
    kinds = [*(f"D{number}" for number in range(1, 14)), *(f"E{number}" for number in range(1, 13))]
    assert sorted(row.kinds) == sorted([*kinds, *["Y1", "Y2", "V1", "F1", "O2", "O3", "P1", "N1"]])
    row.check_names()


@pytest.mark.parametrize("kind", row.kinds)
def test_what_is_read(kind, tmp_path):
    row.check(kind, tmp_path)
