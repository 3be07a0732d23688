"""What is read, and how a run ends: a table of people's files, servers and command lines, with the outcome of each.

Kinds D1 to D12 are tables of rows, Y1 and Y2 YAML, E1 to E12 servers; F1, O3, P1 and N1 are commands. A row is
what somebody brings, what is asked, what is right, and the bug report of other software that it stands for. What is
right is worked out by hand, by a standard (YAML 1.2, JSON, RFC 4180), or as `datasets`, pandas or pyarrow read it.
"""

import json
import os
import re
import shutil
import unicodedata
from contextlib import chdir, contextmanager
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.support import said_cases as kit
from tests.support.said_cases import GOOD, by_request, either, ends, refuse, refused, roll, run, says
from tests.support.servers import hang_up, make_response, serve
from tests.support.servers import make_completion as completion

TABLE = kit.Table()
NAMES = ("id", "image", "question", "answer")
HEAD = ",".join(NAMES)
NO_YES = ["no", "yes"]
RIGHT = completion(GOOD)


def rows(kind, *cases):
    """Add (given, ask, right, and a bug report if there is one) of a kind."""
    for number, (given, ask, right, *report) in enumerate(cases):
        TABLE(f"{kind}-{number}", given, ask, right, "see the table", *report)


# ---------------------------------------------------------------------- files
def q(i, answer="yes", **more):
    name = i if isinstance(i, str) else f"t{i}"
    return {"id": name, "image": "0.png", "question": "Is it gray?", "answer": answer, **more}


def csv(*lines, header=HEAD):
    """The text of a file; `lines` have the columns of the header."""
    return "\n".join([header, *lines]) + "\n"


def labeled(names, values, ids, field="answer", **more):
    """A Parquet file of class labels, as the library `datasets` writes it."""

    def write(path):
        import datasets

        table = {**{name: [q(i)[name] for i in ids] for name in NAMES}, **more, field: values}
        label = datasets.ClassLabel(names=names)
        kinds = {name: datasets.Value("string") for name in table}
        kinds[field] = datasets.Sequence(label) if isinstance(values[0], list) else label
        path.parent.mkdir(parents=True, exist_ok=True)
        datasets.Dataset.from_dict(table, features=datasets.Features(kinds)).to_parquet(path)

    return write


def columns(rows, **own):
    """A Parquet file whose columns are pyarrow's own where they are given."""

    def write(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pa.table({**{name: [one.get(name) for one in rows] for name in rows[0]}, **own}), path)

    return write


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


def twice(*spellings, count=30):
    """Rows of JSONL in which each patient stands twice: `spellings` make a value of its number."""
    pairs = [(n, k) for n in range(count) for k in range(len(spellings))]
    groups = [[f"t{2 * n + k}" for k in range(len(spellings))] for n in range(count)]
    return {"d.jsonl": [q(2 * n + k, patient=spellings[k](n)) for n, k in pairs]}, groups


def sheet(line, header=HEAD):
    """A function of cells: a file with a line for each, of its number and the cell."""
    return lambda *cells: {"d.csv": csv(*(line.format(i, cell) for i, cell in enumerate(cells)), header=header)}


numbered = sheet("{1},0.png,Q?,yes")
noted = sheet("t{0},0.png,Q?,yes,{1}", HEAD + ",code")
checked = sheet("t{0},0.png,Is it round?,{1}")
wide = sheet("t{0};0.png;How wide in cm?;{1}", HEAD.replace(",", ";"))


def with_nan(name):
    return {"d.parquet": columns([q(0), q(1)], **{name: pa.array([1.5, NAN])})}


def pair(first, second, *contents, end="parquet"):
    """Two files of a folder, of two rows each or of what is given."""
    return {f"d/{name}.{end}": rows for name, rows in zip((first, second), contents or TWO, strict=True)}


def spread(files, folder):
    """Write files by their names: rows, text, bytes, or a function of the path."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if callable(content):
            content(path)
        elif isinstance(content, bytes | str):
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        else:
            kit.write_rows(path, content)


# ---------------------------------------------------------------------- what is asked of tables
def opened(files, folder, source="d", columns=None, **data):
    spread(files, folder)
    source = source if (folder / source).exists() else next(iter(files))
    return kit.make_vqa(folder, source, NAMES, {**data, "columns": columns or {}})


def of_tasks(read):
    """A question that `read` answers of each task."""
    return lambda **data: lambda given, folder: [read(task) for task in opened(given, folder, **data).tasks]


ids = of_tasks(lambda task: task.id)
golds = of_tasks(lambda task: [task.id, task.reference["answer"]])


def values(field, place="reference", **data):
    """The id of each task and a field of it."""
    return of_tasks(lambda task: [task.id, getattr(task, place).get(field)])(**{"columns": {field: field}, **data})


def kept(field, **data):
    """A column of the rows as metadata, as it is stored."""
    return of_tasks(lambda task: task.metadata["it"])(columns={"metadata": {"it": field}}, **data)


def asked(template):
    """The questions that a template makes."""
    return of_tasks(lambda task: task.prompt["question"])(columns={"question": {"template": template}})


def last(ask):
    return lambda given, folder: ask(given, folder)[-1]


def late(given, folder):
    """How many tasks there are, and those of a category."""
    found = values("category")(given, folder)
    return [len(found), [one for one in found if one[1] is not None]]


def scores(*replies, number=0, tolerance=0.0, **data):
    """The scores of replies to a task."""

    def ask(given, folder):
        env = opened(given, folder, **data)
        env = type(env)(data=env.data, tolerance=tolerance) if tolerance else env
        return [kit.play(env, json.dumps({"answer": reply}), number=number).scores.total for reply in replies]

    return ask


def parted(by="patient", share=0.5):
    """How many of the groups of rows are in both splits: given are files, and groups of ids that are one patient."""

    def ask(given, folder):
        files, groups = given
        split = {"hold_out": {"share": share, "by": by}}
        found = [{task.id for task in opened(files, folder, split=one, **split).tasks} for one in ("train", "test")]
        assert all(found)
        assert sum(map(len, found)) == sum(map(len, groups))
        return sum(bool(found[0] & set(group) and found[1] & set(group)) for group in groups)

    return ask


def command(*arguments, rest="", more="", source=None):
    """How `viewbox` ends on a config of the first file, or of a folder; `CONFIG` stands for its path."""

    def ask(given, folder):
        spread(given, folder)
        where = source or ("d" if (folder / "d").exists() else next(iter(given)))
        config = kit.write_config(folder, where, more, rest)
        return run(*(str(config) if one == "CONFIG" else one for one in arguments))

    return ask


def shown(value, name="limit", **more):
    """How `data show` ends where `data.NAME` is this YAML."""
    return command("data", "show", "CONFIG", "--tasks", "9", rest=f"    {name}: {value}\n", **more)


def fitting(labels):
    """How `data check` ends where the answers are these, in YAML."""
    return command("data", "check", "CONFIG", rest=f"    features: {{answer: {labels}}}\n")


# ---------------------------------------------------------------------- what is asked of servers
def cycle(*answers):
    """A server that gives these answers again and again."""
    return by_request(lambda body, number: answers[number % len(answers)])


def series(*answers):
    """A server that gives these answers, the last one for ever."""
    return by_request(lambda body, number: answers[min(number, len(answers) - 1)])


def rolled(*arguments, tasks=6):
    """How a rollout ends; then how another command on its folder does, if one is given: `RUN` stands for it."""

    def ask(given, folder):
        found = roll(given, folder, tasks=tasks)
        return run(*(str(found.folder) if one == "RUN" else one for one in arguments)) if arguments else found.ended

    return ask


def seen(check, *more, tasks=6):
    """What `check` finds in a rollout."""
    return lambda given, folder: check(roll(given, folder, *more, tasks=tasks))


def totals(one):
    return [episode.scores and episode.scores.total for episode in one.episodes]


def reasons(one):
    return [episode.end_reason for episode in one.episodes]


def why(one):
    return str(one.episodes[0].info.get("error")) if one.episodes else one.ended.said


def stored(one):
    return (one.folder / "episodes" / "episodes.jsonl").read_text()


def few(one, most=10):
    """Whether a run ended soon, not with 0, and whether it played nothing."""
    return [one.ended.status != 0, len(one.bodies) <= most, "viewbox failed" not in one.ended.said]


def soon(word):
    """A server that never helps: the run ends after few requests, not with 0, and in the server's words."""

    def check(found):
        return [*few(found), word.lower() in found.ended.said.lower() or found.ended.said[-300:]]

    return seen(check)


def exported(one):
    ended = run("export", one.folder, "--to", "openai", "--out", "x.jsonl")
    return Path("x.jsonl").read_text() if Path("x.jsonl").is_file() else kit.Refusal(ended.said)


def strict(first):
    """A server that refuses empty messages; it first gives a reply, then right ones."""

    def answer(body, number):
        said = [one for one in body["messages"] if one["role"] == "assistant"]
        if any(not str(one.get("content") or "").strip() and not one.get("tool_calls") for one in said):
            return refuse(400, "messages: text content must be non-empty")
        return RIGHT if said else first

    return by_request(answer)


def has_calls(body):
    return any(one.get("tool_calls") for one in body["messages"])


def choose(whole, **more):
    """A completion, whose choice has more fields."""
    whole["choices"][0] |= more
    return whole


def again(given, folder):
    """The score of one task, and how many requests it took, where the first reply is `given`."""
    one = roll(series(given, RIGHT), folder, tasks=1)
    return [totals(one), len(one.bodies)]


def wanting(said, status=400):
    """A server that refuses the results of native calls with these words."""

    def answer(body, number):
        if number == 0 and "tools" in body:
            return completion(None, ZOOM)
        return refuse(status, said) if has_calls(body) else RIGHT

    return by_request(answer)


def named(name, identity="c1"):
    """A server that takes only its own ids, and names of letters, of the calls that it made."""

    def takes(body):
        calls = [one for message in body["messages"] for one in message.get("tool_calls") or ()]
        results = [message["tool_call_id"] for message in body["messages"] if message["role"] == "tool"]
        names = all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", one["function"]["name"]) for one in calls)
        return names and [one["id"] for one in calls] == results and set(results) <= {identity, "c2"}

    made, refused = completion(None, (identity, name, "{}"), ("c2", "reset", "{}")), refuse(400, "another name or id")
    return by_request(lambda body, number: made if number == 0 else RIGHT if takes(body) else refused)


def infinite(old, new):
    """A good completion whose JSON has something else in it."""
    return make_response(200, json.dumps(completion(GOOD, usage={"prompt_tokens": 7})).replace(old, new))


# ---------------------------------------------------------------------- what is asked of commands
@cache
def make_good_run():
    """A folder with the run `run` of six good episodes, which no row changes."""
    made = TemporaryDirectory()
    with chdir(made.name):
        assert roll(RIGHT, Path(made.name)).ended.status == 0
        Path("file").write_text("a file")
    return made


def after(*arguments):
    """How a command ends on a copy of a good run; with something given, also what it left beside the run and `file`."""

    def ask(given, folder):
        shutil.copytree(make_good_run().name, folder, dirs_exist_ok=True)
        before = {path.name for path in folder.iterdir()}
        ended = run(*arguments)
        return ended if given is None else [ended, sorted({path.name for path in folder.iterdir()} - before)]

    return ask


def imported(given, folder):
    spread(given, folder)
    ended = run("import", next(iter(given)), "--from", "openai", "--out", "f")
    return [ended, (folder / "f").exists()]


def rolls(*arguments, endpoint="URL", **variables):
    """How `viewbox rollout` ends on six tasks, and what it left; `URL` is a server of this machine.

    The variables of the user's surroundings are these.
    """

    def ask(given, folder):
        with surroundings(**variables):
            kit.write_six(folder)
            before = {path.name for path in folder.iterdir()}
            with serve(by_request(lambda body, number: RIGHT)) as server, kit.haste():
                url = endpoint.replace("URL", f"http://127.0.0.1:{server.server_port}/v1")
                ended = run("rollout", "--config", "six.yaml", "--endpoint", url, "--model", "m", *arguments)
        return ended if given is None else [ended, sorted({path.name for path in folder.iterdir()} - before)]

    return ask


def sentence(*words):
    return [ends(2, says=words, without="viewbox failed|Traceback"), []]


@contextmanager
def surroundings(**variables):
    names = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ssl_cert_file", "ssl_cert_dir")
    own = {name: text for name, text in os.environ.items() if name.lower() not in names and name not in variables}
    own |= {name: text for name, text in variables.items() if text is not None}
    with mock.patch.dict(os.environ, own, clear=True):
        yield


def with_variables(endpoint="https://example.invalid/v1", **variables):
    """How a rollout ends where these variables are set."""
    return rolls("--tasks", "1", "--out", "run", endpoint=endpoint, **variables)


INSTALLED = cache(packages_distributions)  # which takes a quarter of a second


def new(given, folder):
    with mock.patch("viewbox.publish.new.packages_distributions", INSTALLED):
        ended = run("new", given)
    return [ended, (folder / given).exists() if given else False]


# ---------------------------------------------------------------------- the table
# fmt: off
NAN = float("nan")
SHOW, CHECK = ("data", "show", "CONFIG", "--tasks", "9"), ("data", "check", "CONFIG")
LOST, ALL, ZOOM, THOUGHT = make_response(413, {}), [1] * 6, ("c1", "zoom", '{"factor": 2}'), "The picture is gray, so "
TWO = [q(0), q(1)], [q(2), q(3)]

# ---- D1: splits of file and folder names, as `datasets` tells them (data_files: KEYWORDS_IN_FILENAME_BASE_PATTERNS,
# KEYWORDS_IN_DIR_NAME_BASE_PATTERNS, SPLIT_PATTERN_SHARDED); `test` before `train`, and all are told, or none
rows("D1", (pair("train", "extra"), ids(), refused("extra", "train"), "huggingface/datasets#5021"),
    (pair("train", "test_of_train"), ids(), ["t0", "t1"], "huggingface/datasets#7343"),
    (pair("data/train-00000-of-00001", "data/calibration-00000-of-00001"), ids(split="calibration"),
        either(["t2", "t3"], refused("calibration")), "huggingface/datasets#4150"),
    (pair("cases_train", "cases_test", end="jsonl"), ids(), either(["t0", "t1"], refused("cases_train", "cases_test")),
        "huggingface/datasets#5778"),
    ({"d/cases_test.parquet": TWO[0]}, ids(), refused("split", "test"), "hiyouga/LlamaFactory#1731"))
AB, ABCD = labeled(NO_YES, [0, 1], ["a", "b"]), [["a", "no"], ["b", "yes"], ["c", "yes"], ["d", "no"]]
SHARDS = {"d/train-00000-of-00002.parquet": AB, "d/train-00001-of-00002.parquet": labeled(["yes", "no"], [0, 1],
    ["c", "d"])}

# ---- D2: class names: each file says what its own numbers mean; two types of one column are an error, or both are read
rows("D2", (SHARDS, golds(), either(ABCD, refused("answer")), "huggingface/datasets#2457"),
    (pair("a_train", "b_train", labeled(["cyst", "mass"], [0, 1], ["a", "b"]), labeled(["cyst", "fat", "mass"], [1, 2],
        ["c", "d"])), golds(), either([["a", "cyst"], ["b", "mass"], ["c", "fat"], ["d", "mass"]], refused("answer")),
        "covartech/PRT#10"),
    ({"d/train.parquet": labeled(NO_YES, [0], ["a"]), "d/test.parquet": labeled(["yes", "no"], [0], ["b"])},
        golds(split="test"), [["b", "yes"]], "macabdul9/CASA-Dialogue-Act-Classifier#10"),
    (pair("a_train", "b_train", labeled(NO_YES, [[0]], ["a"]), labeled(["yes", "no"], [[0]], ["b"])), golds(),
        either([["a", "no"], ["b", "yes"]], refused("answer")), "huggingface/datasets#4277"))
ORGANS = labeled(["lung", "heart"], [1, -1], ["a", "b"], field="organ")

# ---- D3: labels that are not known: `datasets` writes -1 for them, which is null; in a plain column -1 is a number
rows("D3", ({"d.parquet": labeled(NO_YES, [0, -1], ["a", "b"])}, golds(), [["a", "no"]], "huggingface/datasets#5624"),
    ({"d.parquet": labeled(NO_YES, [0, -1], ["a", "b"])}, golds(bad_rows="stop"), refused("answer"),
        "tensorflow/datasets#1356"),
    ({"d.parquet": labeled(["lung", "heart"], [1, -1], ["a", "b"], field="category")}, values("category"),
        [["a", "heart"], ["b", None]]),
    ({"d.parquet": columns([q("a"), q("b")], answer=pa.array([1, -1]))}, golds(), [["a", 1], ["b", -1]]),
    ({"d.parquet": ORGANS}, ids(where="organ=null"), ["b"]))

# ---- D4: a shard that is missing: the name of a file says how many there are
rows("D4",
    ({f"d/train-0000{i}-of-00005.parquet": [q(i)] for i in (0, 1, 3)}, ids(), refused("train-0000[24]-of-00005"),
        "kpertsch/rlds_dataset_builder#15"),
    ({"d/train-00000-of-00002-a1b2c3d4e5f60718.parquet": TWO[0]}, ids(), refused("00001-of-00002"),
        "huggingface/datasets#7728"),
    ({"d/train-00000-of-00002.parquet": TWO[0]}, ids(streaming=True), refused("train-00001-of-00002")),
    (pair("train-00000-of-00001", "train-00000-of-00002"), ids(), refused("of-0000[12]")),
    (saved(), ids(), refused("data-00001-of-00002")), (saved(cut=100), ids(), refused("save_to_disk")))

# ---- D5: `by` promises that its values are never parted, also of a patient written in two ways: 7.0 is 7 (JSON), and
# case, spaces, NFC, NFKC and what nobody can see say nothing; all rows without a value are one group
rows("D5", (twice(int, str), parted(), 0, "Lightning-Universe/lightning-Covid19#11"),
    (twice(lambda n: f"P{n}", lambda n: f"p{n}"), parted(), 0, "UCSD-AI4H/COVID-CT#11"),
    (twice(lambda n: unicodedata.normalize("NFC", f"Müller {n}"), lambda n: unicodedata.normalize("NFD",
        f"Müller {n}")), parted(), 0),
    (twice(str, lambda n: "".join(chr(0xFF10 + int(digit)) for digit in str(n))), parted(), 0),
    (twice(lambda n: f"P{n}", lambda n: f"\u200bP{n}"), parted(), 0),
    (({"d.csv": csv(*(f"t{2 * n + k},0.png,Q?,yes,{v}" for n in range(30) for k, v in enumerate((n, f"{n} "))),
        header=HEAD + ",patient")}, [[f"t{2 * n}", f"t{2 * n + 1}"] for n in range(30)]), parted(), 0,
        "pandas-dev/pandas#31821"),
    (({"d.jsonl": [q(i, patient=(None, "", " ", float("nan"))[i % 4]) if i < 20 else q(i,
        patient=i) for i in range(40)]}, [[f"t{i}" for i in range(20)], *([f"t{i}"] for i in range(20, 40))]),
        parted(share=0.4), 0, "pandas-dev/pandas#3729"),
    (({"d.parquet": labeled([f"p{n}" for n in range(20)], [n % 20 for n in range(40)], [f"t{n}" for n in range(40)],
        field="patient")}, [[f"t{n}", f"t{n + 20}"] for n in range(20)]), parted(), 0, "mlmed/torchxrayvision#2"))

# ---- D6: a cell is a number only if it would be written the same again (007 is a label); str(np.float32(0.1)) is 0.1
rows("D6", (numbered("007", "7"), ids(), ["007", "7"], "pandas-dev/pandas#54665"),
    (numbered("12e4", "120000"), ids(), ["12e4", "120000"], "sdv-dev/SDV#2786"),
    (numbered("12345678901234567890", "12345678901234567891"), ids(), ["12345678901234567890", "12345678901234567891"],
        "project-koku/koku#4762"),
    (noted("1.1", "1.10", "1.1"), ids(where="code=1.10"), ["t1"]),
    ({"d.jsonl": [q(0, code=7), q(1, code="7"), q(2, code=7.0), q(3, code=[7, 8]), q(4, code="007"), q(5, code=None)]},
        ids(where="code=7"), ["t0", "t1", "t2", "t3"]),
    ({"d.jsonl": [q(0, level="0.5"), q(1, level=0.2), q(2, level="0.9"), q(3, level="easy")]},
        ids(difficulty={"column": "level", "range": [0.2, 0.8]}), ["t0", "t1"]),
    *(({"d.parquet": columns([q("a"), q("b")], answer=pa.array([0.1, 2.7], kind))}, ask,
        right) for kind in (pa.float32(), pa.float16()) for ask, right in ((golds(), [["a", 0.1], ["b", 2.7]]),
        (ids(where="answer=0.1"), ["a"]))),
    ({"d.parquet": columns([q("a")], answer=pa.array([[0.1, 2.7]], pa.list_(pa.float32())))}, golds(streaming=True),
        [["a", (0.1, 2.7)]]),
    ({"d.parquet": columns([q("a")], answer=pa.array([0.10000000149011612]))}, golds(), [["a", 0.10000000149011612]]))

# ---- D7: a check box is a boolean (pandas writes True, JSON true); cells are read one by one, and a text field takes
# the text
rows("D7", (checked("TRUE", "FALSE"), scores("yes", "true", "no"), [1, 1, 0]),
    (checked("True", "False"), scores("yes", "no"), [1, 0], "pydantic/pydantic#1130"),
    ({"d.parquet": [q(0, True), q(1, False)]}, scores("no", "yes", number=1), [1, 0]),
    (noted("TRUE", "FALSE", "true"), ids(where="code=true"), ["t0", "t2"]))

# ---- D8: where semicolons separate, the comma is decimal; both kinds in one file need `data.cells.decimal`. RFC 4180:
# commas separate, and 3,5 is a text. 1.299,99 is 1299.99 or a text, and 1.299 beside decimal commas not one and a bit
rows("D8",
    (wide("3,5", "12,25"), golds(), either([["t0", 3.5], ["t1", 12.25]], refused("decimal")),
        "pandas-dev/pandas#12933"),
    (wide("3,5", "12,25"), scores("3.5", "3,5", "35"), either([1, 0, 0], refused("decimal"))),
    (wide("3.5", "12.25"), golds(), [["t0", 3.5], ["t1", 12.25]], "asteca/ASteCA#90"),
    (wide("3,5", "12.25"), golds(), refused("decimal", "cells"), "pandas-dev/pandas#14403"),
    (wide("1.299,99", "3,5"), golds(), either([["t0", "1.299,99"], ["t1", 3.5]], [["t0", 1299.99], ["t1", 3.5]],
        refused("decimal")), "pola-rs/polars#18797"),
    ({"d.csv": csv('a,0.png,Q?,"3,5"')}, scores("3,5", "3.5"), [1, 0], "pandas-dev/pandas#8200"),
    ({"d.tsv": csv("a\t0.png\tQ?\t3,5", header="\t".join(NAMES))}, golds(cells={"decimal": ","}), [["a", 3.5]],
        "JuliaData/DataFrames.jl#291"),
    ({"d.csv": csv("a;0.png;Q?;yes;0,5", "b;0.png;Q?;yes;1,5", header="id;image;question;answer;level")},
        ids(where="level>1"), either(["b"], refused("decimal"))))

# ---- D9: NaN in a table is how pandas writes that there is none, NaT and None too, and Python's json; the text `nan`
# is a text. Narrow floats are the number that pandas and NumPy print
rows("D9", (with_nan("category"), values("category"), [["t0", "1.5"], ["t1", None]], "pandas-dev/pandas#25353"),
    (with_nan("size"), asked("Is it {{ size }} cm?"), ["Is it 1.5 cm?"]),
    (pair("a_train", "b_train", columns([q(0)], size=pa.array([0.1], pa.float32())), columns([q(1)],
        size=pa.array([0.123456789]))), last(kept("size")), 0.123456789),
    (with_nan("organ"), kept("organ"), [1.5, None], "pandas-dev/pandas#25716"),
    (with_nan("organ"), ids(where="organ=null"), ["t1"], "pandas-dev/pandas#10468"),
    ({"d.parquet": lambda path: __import__("pandas").DataFrame([q(0, category="lung"),
        q(1, category=None)]).to_parquet(path)}, values("category"), [["t0", "lung"], ["t1", None]]),
    ({"d.parquet": columns([q(0), q(1)], choices=pa.array([["yes", "no"], None]))}, values("choices", "prompt"),
        [["t0", ["yes", "no"]], ["t1", None]]),
    ({"d.jsonl": [q(0, category="nan"), q(1, category="None")]}, values("category"), [["t0", "nan"], ["t1", "None"]]),
    ({"d.jsonl": ['{"id": "a", "image": "0.png", "question": "Q?", "answer": "yes", "category": NaN}']},
        values("category"), either([["a", None]], []), "THUDM/slime#1790"))
LATE = [q(i) for i in range(1005)]

# ---- D10: a column that begins late is there; a bad line costs itself
rows("D10",
    ({"d.jsonl": [*LATE, q(1005, category="lung")]}, late, [1006, [["t1005", "lung"]]], "huggingface/datasets#7169"),
    ({"d.ndjson": "\n".join(map(json.dumps, [*LATE, q(1005, category="lung")]))}, late, [1006, [["t1005", "lung"]]],
        "huggingface/datasets#6162"),
    ({"d.jsonl": [*({name: one[name] for name in NAMES[:3]} for one in LATE), q(1005)]}, ids(), ["t1005"],
        "huggingface/datasets#3965"),
    ({"d.jsonl": LATE}, late, refused("category")),
    ({"d.jsonl": [*LATE, "{broken", q(1006, category="lung")]}, late, [1006, [["t1006", "lung"]]]))
MAC = b"\0\5\x16\7\0\2\0\0Mac OS X        " + bytes(60)
ONE = csv("a,0.png,Q?,yes")

# ---- D11: hidden files are no data: what macOS, LibreOffice and Jupyter leave; `data check` prints what was left out
rows("D11", ({"d/cases.csv": ONE, "d/._cases.csv": MAC}, ids(), ["a"], "bids-standard/pybids#1069"),
    ({"d/train.parquet": [q("a")], "d/__MACOSX/._train.parquet": MAC}, ids(), ["a"], "troeger/opensubmit#89"),
    ({"d/cases.csv": ONE, "d/.~lock.cases.csv#": ",me,here;"}, ids(), ["a"]),
    ({"d/train.parquet": [q("a")], "d/.ipynb_checkpoints/train-checkpoint.parquet": [q("b")]}, ids(), ["a"]),
    ({"d/cases.csv": ONE, "d/._cases.csv": MAC}, command(*CHECK), ends(0, 1, says=[r"\._cases\.csv|hidden"]),
        "martin-ueding/geo-activity-playground#83"))
SHEET = HEAD + ",,"

# ---- D12: a column without a name and without values is none, wherever it stands, and a blank row is no row; one that
# has values is an error, as are two columns of one name
rows("D12",
    ({"d.parquet": lambda path: parquet.write_table(pa.Table.from_arrays([pa.array([one]) for one in ("a", "0.png",
        "Q?", "yes", "x", "y")], [*NAMES, "z", "z"]), path)}, ids(), refused("two columns", "z")),
    ({"d.csv": csv("a,0.png,Q?,yes,,", "b,0.png,Q?,no,,", header=SHEET)}, golds(), [["a", "yes"], ["b", "no"]],
        "pandas-dev/pandas#40976"),
    ({"d.csv": csv("a,0.png,Q?,yes,", header=HEAD + ",")}, ids(), ["a"], "wireservice/csvkit#1108"),
    ({"d.csv": csv("a,0.png,Q?,yes", ",,,", "b,0.png,Q?,no", ",,,", ",,,")}, ids(bad_rows="stop"), ["a", "b"],
        "pandas-dev/pandas#41167"),
    ({"d.csv": csv("a,0.png,Q?,yes,,", ",,,,,", header=SHEET)}, ids(bad_rows="stop"), ["a"], "dilshod/xlsx2csv#90"),
    ({"d.csv": csv("a,0.png,Q?,yes,,5", header=SHEET)}, ids(), refused("column|name|header"), "probcomp/bayeslite#477"),
    ({"d.csv": csv("0,a,0.png,Q?,yes", "1,b,0.png,Q?,no", header=",id,image,question,answer")}, ids(),
        either(refused("column|name|header"), ["a", "b"]), "cpadavis/billy#18"),
    ({"d.csv": csv("a,0.png,Q?,yes,,", ",,,,,", header=SHEET)}, command(*CHECK),
        ends(0, 1, says=["blank|empty|without a name|nameless"])))
HUNDRED = {"d.csv": csv(*(f"c{i},{i % 6}.png,Q?,yes" for i in range(100)))}

# ---- Y1: YAML 1.2.2, 10.3.2, the core schema: 0o10 is 8, and 1:30, 1_0, NO and off are texts; an override keeps its #
rows("Y1",
    (HUNDRED, shown("010"), ends(0, 2, says=["10 tasks|limit"], without=r"viewbox failed|\b8 tasks"),
        "opensanctions/opensanctions#3845"),
    (HUNDRED, shown("0012"), ends(0, 2, says=["12 tasks|limit"], without=r"viewbox failed|\b10 tasks"),
        "arp242/arp242.net#3"),
    (HUNDRED, command(*SHOW, more=", metadata: {country: {value: NO}}"), ends(0, says=[r"(?-i:\bNO\b)"]),
        "tomasz-c/nft-blackhole#4"),
    (HUNDRED, command(*SHOW, more=", metadata: {flash: {value: off}}"), ends(0, says=[r"\boff\b"]),
        "xkbcommon/libxkbcommon#268"),
    (HUNDRED, shown("true", "restricted"), ends(0), "yaml/pyyaml#795"),
    ({"d.csv": csv("a,0.png,Q?,yes,#fff", "b,0.png,Q?,yes,#000", header=HEAD + ",color")}, command("data", "show",
        "CONFIG", "env.data.where=color=#fff"), ends(0, says=[r"\b1 tasks"]), "hydra-ecosystem/hydra#2705"),
    ({"d.csv": csv("a,0.png,Q?,yes,x #1", "b,0.png,Q?,yes,x", header=HEAD + ",color")}, command("data", "show",
        "CONFIG", "env.data.where=color=x #1"), ends(0, says=[r"\b1 tasks", r"\ba\b"])))
QUOTES = ends(0, 1, 2, says=["quot|it fits"], without="viewbox failed|True, False")

# ---- Y2: yes, no, on, off, y and n are texts (YAML 1.2.2, 10.3.2), or it says that they need quotes; true is a boolean
rows("Y2", (HUNDRED, fitting("[yes, no]"), QUOTES, "docker/docs#21378"),
    ({"d.csv": csv("a,0.png,Q?,Yes", "b,0.png,Q?,No")}, fitting("[Yes, No]"), QUOTES, "acl-org/acl-anthology#282"),
    (HUNDRED, fitting('["yes", "no"]'), ends(0, 1, says=["it fits"])),
    ({"d.csv": csv("a,0.png,Q?,TRUE", "b,0.png,Q?,FALSE")}, fitting('["TRUE", "FALSE"]'), ends(0, says=["it fits"])),
    ({"d.csv": csv("a,0.png,Q?,y", "b,0.png,Q?,n")}, fitting("[y, n]"), QUOTES, "crdoconnor/strictyaml#186"))
HALF = cycle(RIGHT, LOST)

# ---- E1: one statement about the same episodes: means are over those with a score, the faults are counted and said
rows("E1",
    (HALF, rolled("score", "RUN"), ends(0, says=[r"accuracy/all\s+1\.000", r"reward\s+3\s+1\.000|3 episodes"],
        without=r"viewbox failed|accuracy/all\s+0\.5"), "UKGovernmentBEIS/inspect_ai#4286"),
    (HALF, rolled("score", "RUN"), ends(0, says=[r"macro_f1\s+1\.000"]), "UKGovernmentBEIS/inspect_ai#4412"),
    (HALF, rolled(), ends(0, says=[r"reward\s+1\.000", "3 × .*413", "--retry-failed"]),
        "UKGovernmentBEIS/inspect_ai#2914"),
    (cycle(RIGHT, hang_up), rolled("score", "RUN"), ends(0, says=[r"accuracy/all\s+1\.000"]),
        "allenai/vla-evaluation-harness#129"),
    (HALF, rolled("score", "RUN"), ends(0, says=[r"\b3\b.*(fault|error|no score)|faults.*\b(3|0\.5)"]),
        "vibrantlabsai/ragas#2980"))
FILTERED = completion(None, finish="content_filter")

# ---- E2: a content filter: the model was not asked, with or without a text (Azure, Gemini, Bedrock: words for the
# same); asking again does not help; a word that is not known is stored, and is as stop
rows("E2",
    (FILTERED, seen(lambda one: [set(reasons(one)) <= {"error"}, set(totals(one)) <= {None}]), [True, True],
        "BerriAI/litellm#8953"),
    (FILTERED, seen(why), says("content_filter"), "microsoft/semantic-kernel#5240"),
    (cycle(RIGHT, FILTERED), rolled("score", "RUN"), ends(0, says=[r"accuracy/all\s+1\.000"]),
        "promptfoo/promptfoo#2822"),
    (cycle(RIGHT, FILTERED), rolled(), ends(0, says=["3 × .*content_filter", "--retry-failed"])),
    (series(FILTERED, RIGHT), seen(stored), says("content_filter"), "Azure-Samples/azure-search-openai-demo#2076"),
    (FILTERED, seen(lambda one: len(one.bodies) <= 6), True, "tatsu-lab/alpaca_eval#227"),
    (refuse(400, "The response was filtered due to the prompt triggering a content management policy.",
        "content_filter"), soon("filtered"), [True] * 4, "stanford-crfm/helm#3327"),
    *((completion(None, finish=word), seen(lambda one: [reasons(one), totals(one)], tasks=1), [["error"], [None]])
        for word in ("ContentFilter", "IMAGE_SAFETY", "guardrail_intervened")))
CUT = completion(None, finish="length", reasoning_content=THOUGHT)

# ---- E3: a budget that went into thinking: what was written is stored, shown and exported as reasoning_content, and
# the nudge says so; what is as usual is not stored
rows("E3", (CUT, seen(stored, tasks=1), says("The picture is gray, so"), "mindcraft-bots/mindcraft#789"),
    (CUT, seen(lambda one: kit.read_messages(one.episodes[0]), tasks=1), says("cut|limit", "think"),
        "vllm-project/vllm-ascend#8042"),
    (CUT, seen(exported, tasks=1), says("reasoning_content", "The picture is gray"), "stanford-crfm/helm#3632"),
    (completion(GOOD), seen(stored, tasks=1), says("yes", without='"finish_reason"|"reasoning"')))
UNKNOWN_MODEL = "Model m not found. Available: a, b"

# ---- E4: an error that every request meets ends the run soon, in the server's words; after a good reply it costs its
# episode, and errors that differ do not say that nothing works. Servers put an id into every message
rows("E4", (refuse(400, UNKNOWN_MODEL), soon("Model m not found"), [True] * 4, "serverless/serverless#773"),
    (refuse(400, UNKNOWN_MODEL), rolled(), ends(2, says=["Model m not found"]), "leggedrobotics/kleinkram#225"),
    (series(RIGHT, refuse(400, UNKNOWN_MODEL)), seen(lambda one: [one.ended.status, reasons(one).count("answered"),
        reasons(one).count("error")]), [0, 1, 5]),
    (by_request(lambda body, number: refuse(400, f"{UNKNOWN_MODEL} (request req_{number}{number}a)")),
        soon("Model m not found"), [True] * 4, "anthropics/claude-code#62312"))
QUOTA = "You exceeded your current quota, please check your plan and billing details."

# ---- E5: quota: no pause helps; a rate limit and 5xx pass; what was played stays
rows("E5", (refuse(429, QUOTA, "insufficient_quota"), soon("quota"), [True] * 4, "langchain-ai/langchainjs#1929"),
    (refuse(429, QUOTA), soon("quota"), [True] * 4, "mindsdb/anton#284"),
    (refuse(429, "Your billing hard limit has been reached"), soon("billing"), [True] * 4, "OpenHands/OpenHands#998"),
    (series(RIGHT, RIGHT, refuse(429, QUOTA, "insufficient_quota")), seen(lambda one: [one.ended.status != 0,
        len(one.bodies) < 8, totals(one)[:2]]), [True, True, [1, 1]], "LionSR/TeXRA#3851"),
    (cycle(*[refuse(429, "Rate limit reached for requests", "rate_limit_exceeded")] * 2, RIGHT), seen(totals), ALL,
        "sierra-research/tau-bench#38"),
    (refuse(429, "quota exhausted", "insufficient_quota"), rolled(), ends(1, 2, says=["quota exhausted"]),
        "typedef-ai/fenic#231"),
    (cycle(kit.page(429, "<html>busy</html>"), RIGHT), seen(totals), ALL))
SIGN_IN = "<html><body>Please sign in</body></html>"

# ---- E6: no JSON at all, or an error in a 200: in the server's words; redirects are not followed, a torn body passes
rows("E6", (kit.page(200, SIGN_IN), soon("sign in"), [True] * 4, "EleutherAI/lm-evaluation-harness#2863"),
    (make_response(200, {"error": {"message": "No such model: m", "code": 404}}), soon("No such model"), [True] * 4,
        "openai/openai-agents-python#2850"),
    (make_response(200, {"choices": None, "error": {"message": "Provider returned error", "code": 400}}),
        soon("Provider returned error"), [True] * 4, "langchain-ai/langchain#32252"),
    (make_response(200, {"error": "model m is not loaded"}), soon("not loaded"), [True] * 4,
        "langchain-ai/langchainjs#11418"),
    (kit.page(200, f"<!DOCTYPE html>\n{SIGN_IN}"), soon("sign in"), [True] * 4, "openonion/connectonion#736"),
    (kit.page(200, SIGN_IN), rolled(), ends(2, says=["html|page|JSON"]), "lorenzodifuccia/safaribooks#381"),
    (cycle(make_response(200, {"error": {"message": "Provider returned error", "code": 429}}), RIGHT), seen(totals),
        ALL, "UKGovernmentBEIS/inspect_ai#1534"),
    (make_response(200, 'data: {"choices": [{"delta": {"content": "x"}}]}\n\ndata: [DONE]\n'), soon("data:"),
        [True] * 4),
    (make_response(200, {"choices": []}), seen(lambda one: few(one, 20)), [True, True, True], "vercel/ai#20351"))

# ---- E7: no server takes an empty message for sure: it is sent with a mark, and the record keeps what the model said,
# nothing
rows("E7", (strict(completion("")), seen(totals), ALL, "anthropics/anthropic-sdk-python#461"),
    (strict(completion(None, reasoning_content=THOUGHT)), seen(totals), ALL, "anthropics/claude-code#62150"),
    (strict(completion([])), seen(totals), ALL, "cecli-dev/cecli#102"),
    (by_request(lambda body, number: RIGHT if has_calls(body) else completion(None, ZOOM)), seen(totals), ALL))
HALF_AN_ANSWER = 'It is. {"answer": "no"}'
AGAIN = [[1], 2]
WENT = {"code": 502, "message": "the model went away"}

# ---- E9: half a reply is asked for again: OpenRouter, OpenAI's Responses, DeepSeek, GLM, vLLM, Gemini and Anthropic by
# their words; a budget that ended (watsonx, Cohere) is no half reply
rows("E9", (choose(completion(HALF_AN_ANSWER, finish="error"), error=WENT), again, AGAIN, "earendil-works/pi#9002"),
    (choose(completion(HALF_AN_ANSWER), error=WENT), again, AGAIN),
    (completion(HALF_AN_ANSWER) | {"error": {"message": "stream broke"}}, again, AGAIN),
    (completion(HALF_AN_ANSWER) | {"error": {"message": "upstream", "code": 401}}, again, AGAIN),
    (choose(completion(HALF_AN_ANSWER), native_finish_reason="MALFORMED_FUNCTION_CALL"), again, AGAIN),
    (completion(HALF_AN_ANSWER) | {"status": "incomplete"}, again, AGAIN),
    (choose(completion(GOOD), error=None) | {"error": {"message": None}}, again, [[1], 1]),
    *((completion(HALF_AN_ANSWER, finish=word), again, AGAIN, "genkit-ai/genkit#6259") for word in ("network_error",
        "insufficient_system_resource", "abort", "aborted", "cancelled", "timeout", "failed", "FinishReason.OTHER",
        "time_limit", "not_finished", "evicted", "out_of_memory", "terminated", "OTHER", "MALFORMED_FUNCTION_CALL",
        "function_call_filter: MALFORMED_FUNCTION_CALL", "server error")),
    (completion(GOOD, finish="length") | {"status": "incomplete"}, again, [[1], 1], "BerriAI/litellm#37710"),
    (choose(completion(HALF_AN_ANSWER, finish=None), stop_reason="error"), again, AGAIN),
    *((completion(HALF_AN_ANSWER) | more, again, AGAIN) for name,
        more in (("errors", {"errors": [{"message": "gone"}]}), ("base", {"base_resp": {"status_code": 1013}}))),
    (choose(completion(HALF_AN_ANSWER), stop_reason="error"), again, AGAIN),
    *((completion(GOOD, finish=word),
        seen(lambda found: [turn.finish_reason for turn in found.episodes[0].turns if turn.role == "assistant"],
        tasks=1), ["length"]) for word in ("max_tokens_exceeded", "context_window_exceeded", "ERROR_LIMIT",
        "token_limit", "MAX_TOKENS", "FinishReason.MAX_TOKENS", "max_new_tokens", "max_length")),
    *((completion(GOOD, finish=word), again, [[1], 1]) for word in ("stop", "end_turn", "length",
        "model_context_window_exceeded", "model_paused")),
    (completion(HALF_AN_ANSWER, finish="error"), seen(lambda one: [reasons(one), totals(one)], tasks=1),
        either([["error"], [None]], [[], []])))

# ---- E10: a limit that passes names a pause; no pause of minutes helps one of a day. FastAPI repeats the question: the
# server does not say it
rows("E10",
    *((refuse(429, message, **headers), again, AGAIN, "google-gemini/gemini-cli#8437") for name, message,
        headers in (("again", "Too many requests per day (10000 of 10000). Please try again in 0.1s.", {}),
        ("ms", "Limit 500 requests per day. Please retry in 60ms.", {}), ("after", "requests per day",
        {"Retry_After": "0.1"}), ("header-ms", "daily limit", {"retry_after_ms": "60"}), ("reset", "requests per day",
        {"x_ratelimit_reset_requests": "60ms"}),
        ("minute", "Quota of 15 requests per minute exceeded; retry in 0.1s. The free tier has 1500 requests per day.",
        {}) )),
    *((refuse(429, message, **headers), soon("no pause helps"), [True] * 4) for name, message,
        headers in (("day", "The 50 free requests per day are used up; credits buy more", {}),
        ("daily", "Daily quota exceeded", {}), ("tomorrow", "Too many requests per day. Please try again in 11h5m.",
        {}), ("header", "You have used your requests per day", {"Retry_After": "40000"}), ("days", "Resets in 3 days",
        {}), ("today", "You used up all requests for today", {}), ("arrears", "您的账户已欠费", {}) )),
    (make_response(422, {"detail": [{"loc": ["body", "seed"], "msg": "Extra inputs are not permitted",
        "input": "Which nodule was flagged by moderation? My quota per day"}]}), seen(why, tasks=1),
        says("Extra inputs", without="content_filter|no pause")),
    (series(make_response(429, {"detail": [{"msg": "slow down", "input": "insufficient quota"}]}), RIGHT),
        seen(totals, tasks=1), [1]))

# ---- E11: a server that wants calls in another form: the error names the setting that helps; a made-up name or id is
# no part of the history (Gemini, by a proxy: the signature is in the id)
rows("E11",
    *((wanting(said), seen(why, tasks=1), says("endpoint.native_tools=false"), "cloudwego/eino-ext#700") for name,
        said in (("reasoning", "message 2 has a call and no reasoning_content"),
        ("order", "Unexpected role 'user' after role 'tool'"), ("content", "Invalid value for 'content': got null"),
        ("prefill", "does not support assistant message prefill"), ("details", "reasoning_details must be sent back"),
        ("signature", "Function call is missing a thought_signature") )),
    (refuse(500, "start me with --jinja to use tools"), rolled(tasks=1),
        ends(2, says=["--jinja", "endpoint.native_tools=false"])),
    (wanting("no"), seen(totals, "endpoint.native_tools=false", tasks=1), [1]),
    *((named(name), seen(totals, tasks=1), [1], "can1357/oh-my-pi#3458") for name in ("zoom in!", "", "functions.zoom",
        "z" * 80, "größe")),
    (named("zoom", "call_ab12__thought__" + "QUJDREVG" * 400), seen(totals, tasks=1), [1], "securo-finance/securo#884"))
FOR_EVER = "CUDA was not compiled"

# ---- E12: a server that fails for ever, the same words three times before any reply; after one it may be this request
rows("E12", (refuse(500, FOR_EVER), soon(FOR_EVER), [True] * 4),
    (by_request(lambda body, number: refuse(500, f"{FOR_EVER} (request a{number}b)")), soon(FOR_EVER), [True] * 4),
    (series(*(refuse(500, word) for word in "abcd"), RIGHT), seen(totals, tasks=1), [1]),
    (series(*[refuse(503, "Loading model")] * 5, RIGHT), seen(totals, tasks=1), [1]),
    (series(*[refuse(500, "Internal server error")] * 5, RIGHT), seen(totals, tasks=1), [1]),
    (series(RIGHT, *[refuse(500, FOR_EVER)] * 4, RIGHT, refuse(500, FOR_EVER)), seen(totals, tasks=2), [1, 1]))

# ---- E8: numbers that JSON does not have: a part that is not needed counts as missing; in an answer it is the model's
# fault
rows("E8",
    *((infinite('"stop"', f'"stop", "logprobs": {{"content": [{{"logprob": {number}}}]}}'), seen(totals), ALL,
        "vllm-project/vllm#19661" if name == "nan" else "sgl-project/sglang#5984") for name,
        number in (("minus", "-Infinity"), ("nan", "NaN"), ("infinity", "Infinity"), ("huge", "1e999"))),
    (infinite(": 7", ": NaN"), seen(totals), ALL, "tenstorrent/vllm#435"),
    (infinite('"choices"', '"created": -Infinity, "choices"'), seen(totals), ALL),
    (infinite('"stop"', '"stop", "logprobs": {"token_logprobs": [-Infinity]}'), seen(lambda one: len(one.bodies)), 6,
        "dphnAI/sonar#183"),
    (completion('{"answer": NaN}'), seen(totals, tasks=1), [0]))

NOTHING = [ends(2), []]

# ---- F1: nothing exported, read or kept is 2; a byte order mark may be ignored (RFC 8259)
rows("F1", (True, after("export", "run", "--to", "sft", "--where", "reward>5", "--out", "f.parquet"), NOTHING),
    (None, after("export", "run", "--to", "run", "--where", "reward>=1", "--out", "f"), ends(0),
        "promptfoo/promptfoo#634"),
    (True, after("export", "run", "--to", "run", "--reward-between", "0.2", "0.8", "--out", "f"), NOTHING,
        "backtick-se/cowait#292"),
    ({"empty.jsonl": ""}, imported, [ends(2), False]),
    ({"a.jsonl":
        b'\xef\xbb\xbf{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n'},
        imported, [ends(0), True]))

# ---- O3: where an export or a rollout cannot be written: one sentence, status 2, before any work
rows("O3",
    *((True, after("export", "run", "--to", to, "--out", name), sentence("file"), "NVIDIA/NeMo-Framework-Launcher#74")
        for to, name in (("sft", "file/x.parquet"), ("run", "file/x"), ("parquet", "file/x.parquet"),
        ("inspect", "file/x.json"))),
    (True, after("export", "run", "--to", "openai", "--out", "file"), sentence("file")),
    (None, after("export", "run", "--to", "run", "--out", "run/inner"), ends(0, 2)),
    (True, after("export", "run", "--to", "openai", "--out", "."), sentence("out")),
    (True, rolls("--tasks", "2", "--out", "six.csv"), sentence("six.csv")))
SOCKS = "socks5://127.0.0.1:1"

# ---- P1: the user's surroundings: one sentence names the variable and the way out; no proxy is needed for this machine
rows("P1",
    (None, with_variables(ALL_PROXY=SOCKS), ends(2, says=["ALL_PROXY", r"httpx\[socks\]|unset"]),
        "chatchat-space/Langchain-Chatchat#605"),
    (None, with_variables("URL", ALL_PROXY=SOCKS), either(ends(0), ends(2, says=["ALL_PROXY"])), "github/spec-kit#237"),
    (None, with_variables(SSL_CERT_FILE="six.csv"), ends(2, says=["SSL_CERT_FILE"])),
    (None, with_variables("URL", HOME=None), ends(0)), (None, with_variables("URL", HOME="six.csv"), ends(0)))
# ---- N1: names of a package: those that it imports itself are taken
rows("N1",
    *((name, new, [ends(2, says=[name, "is taken"]), False], "python-poetry/poetry#3438") for name in ("numpy",
    "pydantic", "httpx", "scipy", "typer", "msgspec", "yaml", "nibabel", "packaging", "pil", "torch", "json",
    "typing-extensions", "pydantic-core", "class", "test", "conftest", "vllm")),
    *((name, new, [ends(2), False]) for name in ("true", "none", "image", "answer", "base-model", "Numpy", "my_x",
        "my.x", "x-", "")),  # nor a class that its file cannot have
    ("rich", new, [ends(2, says=["rich"]), False], "astral-sh/uv#21394"),
    ("viewbox", new, [ends(2, says=["viewbox"]), False]),
    ("bright-discs", new, [ends(0), True]),
    ("numpy-games", new, [ends(0), True]),
)
# fmt: on


def test_every_kind_has_rows():
    kinds = [*(f"D{number}" for number in range(1, 13)), *(f"E{number}" for number in range(1, 13))]
    assert sorted(TABLE.kinds) == sorted([*kinds, *["Y1", "Y2", "F1", "O3", "P1", "N1"]])
    TABLE.check_names()


@pytest.mark.parametrize("kind", TABLE.kinds)
def test_what_is_read(kind, tmp_path):
    TABLE.check(kind, tmp_path)
