"""What `viewbox export` writes is read by what it is for; `--to run` takes what was asked, `--push` goes to a hub."""

import base64
import io
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow as pa
import pytest
import yaml
from pyarrow import parquet

from tests.support.saved_episodes import run, written  # noqa: F401
from tests.support.tables import each
from viewbox.errors import ConfigError
from viewbox.images.ref import ImageRef
from viewbox.records import Episode, Scores, Task, Turn
from viewbox.rollouts.exchange.conversation import list_messages
from viewbox.rollouts.exchange.export import export_run
from viewbox.rollouts.exchange.importing import import_file
from viewbox.rollouts.exchange.selection import Choice, filter_run
from viewbox.rollouts.store.reader import load


def test_openai_lines_have_messages_with_data_urls(run, tmp_path, viewbox):  # noqa: F811
    status, out, _ = viewbox("export", run, "--to", "openai", "--out", tmp_path / "out.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert status == 0
    assert "21 of 21" in out
    episode = load(run)[0]
    assert [message["role"] for message in rows[0]["messages"]] == [m.role for m in list_messages(episode)]
    assert rows[0]["messages"][1]["content"][0]["image_url"]["url"].startswith("data:image/png;base64,")
    assert rows[0]["viewbox"]["scores"]["total"] == episode.scores.total


def test_datasets_opens_it_with_images(run, tmp_path):  # noqa: F811
    datasets = pytest.importorskip("datasets")
    report = export_run(run, "parquet", tmp_path / "out")
    assert report.kept == 21
    found = datasets.Dataset.from_parquet(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))
    assert found.features["images"] == datasets.List(datasets.Image())
    for row, episode in zip(found, load(run), strict=True):
        images = [image for message in list_messages(episode) for image in message.images]
        assert [ImageRef.of(image).hash for image in row["images"]] == [image.hash for image in images]
        assert row["reward"] == (None if episode.scores is None else episode.scores.total)


def test_a_missing_image_costs_its_own_episodes(run, tmp_path):  # noqa: F811
    image = load(run)[0].turns[0].images[0]
    users = sum(any(image.hash == i.hash for t in e.turns for i in t.images) for e in load(run))
    with open(image.uri, "wb") as file:
        file.write(b"junk")
    report = export_run(run, "openai", tmp_path / "out.jsonl")
    assert (report.kept, report.left_out["broken"]) == (21 - users, users)
    assert "line 1" in report.broken


@each("to, kept", [("sft", 2), ("openai", 3)])
def test_what_a_fault_ended_is_not_learned_from_and_is_counted(tmp_path, to, kept):
    turns, ends = (Turn("user", "What?"), Turn("assistant", "")), {"answered": (1.0, 0.0), "error": (0.5,)}
    pairs = [(end, total) for end, totals in ends.items() for total in totals]
    episodes = [Episode(Task("a"), turns, scores=Scores(total), end_reason=end) for end, total in pairs]
    report = export_run(written(tmp_path / "run", *episodes), to, tmp_path / "out")
    assert (report.kept, report.left_out["ended by a fault"], report.skipped) == (kept, 3 - kept, 0)


def cast(kind):
    """The type as other writers choose it: 64-bit offsets."""
    if pa.types.is_list(kind):
        return pa.large_list(cast(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, cast(field.type)) for field in kind])
    return {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(kind, kind)


def test_a_table_that_another_tool_wrote_again_is_read(run, tmp_path):  # noqa: F811
    export_run(run, "parquet", tmp_path / "e.parquet")
    table = parquet.read_table(tmp_path / "e.parquet")
    large = table.cast(pa.schema([(field.name, cast(field.type)) for field in table.schema]))
    named = table.set_column(0, "task", table["task"].combine_chunks().dictionary_encode())
    duck, spark = (  # the second versions of DuckDB and parquet-mr
        {"use_dictionary": False, "column_encoding": {"record": kind}}
        for kind in ("DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY")
    )
    tables = {"4": table, "3": large, "1": named, "20": table, "6": table, "5": table}
    options = {"20": duck, "6": {"use_dictionary": False, "data_page_version": "2.0"}, "5": spark}
    for size, one in tables.items():
        with parquet.ParquetWriter(tmp_path / f"{size}.parquet", one.schema, **options.get(size, {})) as writer:
            writer.write_table(one.slice(0, 0))  # a group without rows
            writer.write_table(one, row_group_size=int(size))
        assert import_file(tmp_path / f"{size}.parquet", "parquet", tmp_path / size).kept == 21


NAMED = {  # a name of another kind of file: what is refused
    ("sft", "x.jsonl"): "a name with .parquet, or --to openai", ("inspect", "x.eval"): "a name with .json",
    ("openai", "x.parquet"): "a name with .jsonl, or --to sft",
    ("parquet", "x.jsonl"): "a name with .parquet, or --to openai",
}  # fmt: skip


def test_nothing_is_left_of_an_export_that_fails(run, tmp_path):  # noqa: F811
    for to, options in (("xml", {}), ("openai", {"choice": Choice(["nonsense=1"])}), ("sft", {"push": "me/runs"})):
        with pytest.raises(ConfigError):
            export_run(run, to, tmp_path / "out", **options)
    for (to, name), says in NAMED.items():
        with pytest.raises(ConfigError, match=says):
            export_run(run, to, tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def make_episode(task, total, **changes):
    scores = None if total is None else Scores(total)
    return Episode(Task(task), answer={"label": "a"}, scores=scores, **changes)


BEST, BELOW, BAND = "not among the best 2 of its task", "not reward<1", "its task is outside --reward-between"
LOWER = [("a", 0.5), ("b", 0.0), ("c", 0.25)]


@each(
    "choice, rewards, left_out",
    [
        ({"best": 2, "per_task": True}, [("a", 1.0), ("a", 1.0), ("b", 0.0), ("b", 0.0), ("c", 0.25)],
         {BEST: 1, "without a score": 1, "broken": 0}),
        ({"best": 3}, [("a", 1.0), ("a", 0.5), ("a", 1.0)], {}),
        # conditions come before the best are chosen, and an episode without a score is not below 1
        ({"where": ["reward<1"], "best": 1, "per_task": True}, LOWER, {BELOW: 3}),
        ({"reward_between": (0.2, 0.8)}, [("c", 0.25)], {BAND: 5}),  # of tasks by their mean
    ],
)  # fmt: skip
def test_the_best_of_each_task_or_of_the_run_and_what_meets_conditions_are_taken_in_their_order(
    tmp_path, choice, rewards, left_out
):
    given = [("a", 1.0), ("a", 0.5), ("a", 1.0), ("b", 0.0), ("b", 0.0), ("c", 0.25), ("c", None)]
    graded = written(tmp_path / "graded", *(make_episode(*one) for one in given))
    report = filter_run(graded, tmp_path / "out", Choice(**choice))
    assert [(episode.task.id, episode.scores.total) for episode in load(tmp_path / "out")] == rewards
    assert left_out.items() <= report.left_out.items()
    assert len(left_out) < 3 or report.left_out == left_out


def test_a_filtered_run_is_complete(run, tmp_path, viewbox):  # noqa: F811
    status, out, _ = viewbox("export", run, "--to", "run", "--where", "end_reason=answered", "--out", tmp_path / "new")
    before = [episode for episode in load(run, tokens=True) if episode.end_reason == "answered"]
    assert status == 0
    assert f"{len(before)} of {len(load(run))} episodes" in out
    after = list(load(tmp_path / "new", tokens=True))
    old = (run / "episodes" / "episodes.jsonl").read_bytes().splitlines()
    new = (tmp_path / "new" / "episodes" / "episodes.jsonl").read_bytes().splitlines()
    assert new == [line for line in old if b'"end_reason":"answered"' in line.replace(b'": "', b'":"')]
    assert [image.open().size for episode in after for image in episode.turns[0].images]
    assert yaml.safe_load((tmp_path / "new" / "config.yaml").read_text())["env"]["name"] == "digits"
    assert viewbox("score", tmp_path / "new", "--bootstrap", "0")[0] == 0


def test_broken_lines_and_images_cost_themselves(run, tmp_path, viewbox):  # noqa: F811
    lines = run / "episodes" / "episodes.jsonl"
    total = len(load(run))
    lines.write_bytes(b"\xff\x00junk\n" + lines.read_bytes())
    image = load(run, errors="skip")[0].turns[0].images[0]
    users = sum(any(image.hash == i.hash for t in e.turns for i in t.images) for e in load(run, errors="skip"))
    with open(image.uri, "wb") as file:
        file.write(b"not an image")
    status, _, err = viewbox("export", run, "--to", "run", "--out", tmp_path / "new")
    assert status == 1
    assert "line 1:" in err
    assert "line 2:" in err
    assert len(load(tmp_path / "new")) == total - users


def test_bad_options_write_nothing(tmp_path):
    graded = written(tmp_path / "graded", make_episode("a", 1.0))
    for choice in ({"where": ["nonsense=1"]}, {"best": 0}, {"per_task": True}, {"reward_between": (0.8, 0.2)}):
        with pytest.raises(ConfigError):
            filter_run(graded, tmp_path / "out", Choice(**choice))
    with pytest.raises(ConfigError, match="exists"):
        filter_run(graded, graded, Choice())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graded"]


class Hub(BaseHTTPRequestHandler):
    """As much of the hub as an upload of small files needs."""

    asked: list
    status = 200

    def do_GET(self):
        self.reply({"id": "me/runs", "sha": "0" * 40, "private": True, "siblings": []})

    def do_POST(self):
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        type(self).asked.append((self.path, content, self.headers.get("Authorization")))
        if self.path == "/api/repos/create":
            return self.reply({"url": "https://huggingface.co/datasets/me/runs", "name": "me/runs", "id": "me/runs"})
        if "/preupload/" in self.path:
            same = {"uploadMode": "regular", "shouldIgnore": False}
            return self.reply({"files": [{"path": one["path"], **same} for one in json.loads(content)["files"]]})
        commit = {"commitUrl": "https://huggingface.co/datasets/me/runs/commit/1", "commitOid": "1" * 40}
        return self.reply({**commit, "errors": [], "warnings": []}, self.status)

    def reply(self, value, status=200):
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def hub():
    class Own(Hub):
        asked: list = []  # noqa: RUF012

    server = ThreadingHTTPServer(("127.0.0.1", 0), Own)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server, Own
    server.shutdown()
    server.server_close()


def push(server, folder, out, name="me/runs"):
    line = [
        sys.executable,
        "-m",
        "viewbox",
        "export",
        str(folder),
        "--to",
        "parquet",
        "--out",
        str(out),
        "--push",
        name,
    ]
    address = f"http://127.0.0.1:{server.server_port}"
    variables = {
        **os.environ, "HF_ENDPOINT": address, "HF_TOKEN": "hf_" + "x" * 20, "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_XET": "1",
    }  # fmt: skip
    return subprocess.run(line, capture_output=True, text=True, env=variables, timeout=120, check=False)


def test_a_run_becomes_a_private_dataset_that_comes_back(run, tmp_path, hub):  # noqa: F811
    (run / "config.yaml").write_text("env: {name: digits}")
    server, own = hub
    done = push(server, run, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "me/runs" in done.stdout
    _, content, key = next(one for one in own.asked if one[0] == "/api/repos/create")
    assert "private" in (json.loads(content).get("visibility"), *json.loads(content)), content
    assert key == "Bearer hf_" + "x" * 20
    commit = next(content for path, content, _ in own.asked if "/commit/" in path)
    files = {line["value"]["path"]: base64.b64decode(line["value"]["content"])
             for line in map(json.loads, commit.splitlines()) if line["key"] == "file"}  # fmt: skip
    assert set(files) == {"README.md", "data/train-00000-of-00001.parquet"}
    assert "21 episodes of the environment `digits`" in files["README.md"].decode()
    (tmp_path / "back.parquet").write_bytes(io.BytesIO(files["data/train-00000-of-00001.parquet"]).read())
    assert import_file(tmp_path / "back.parquet", "parquet", tmp_path / "back").kept == 21
    assert [one.scores for one in load(tmp_path / "back")] == [one.scores for one in load(run)]


def test_a_refusal_of_the_hub_is_said_and_the_export_stays(run, tmp_path, hub):  # noqa: F811
    (run / "config.yaml").write_text("env: {name: digits}")
    server, own = hub
    own.status = 403
    done = push(server, run, tmp_path / "out")
    assert done.returncode == 2
    assert "--push me/runs: " in done.stderr
    assert "403" in done.stderr
    assert "xxxx" not in done.stderr
    assert (tmp_path / "out").is_file()


@each("env", ["{name: vqa, data: {source: a.csv, restricted: true}}", "{name: 'mine:Env'}"])
def test_restricted_data_is_refused_before_anything_is_written(run, tmp_path, env):  # noqa: F811
    (run / "config.yaml").write_text(f"env: {env}")
    with pytest.raises(ConfigError, match="must not leave this machine"):
        export_run(run, "parquet", tmp_path / "out", push="me/runs")
    assert not (tmp_path / "out").exists()


@each("name", ["runs", "a/b/c", "me/../x", "/x", "me/", "me/r uns", "me/" + "r" * 200])
def test_what_is_no_name_is_refused_and_only_parquet_is_pushed(run, tmp_path, name):  # noqa: F811
    with pytest.raises(ConfigError, match="owner/name"):
        export_run(run, "parquet", tmp_path / "out", push=name)
    with pytest.raises(ConfigError, match="--to parquet"):
        export_run(run, "sft", tmp_path / "out", push="me/runs")
