"""What `viewbox export` writes is read by what it is for; `--to run` takes what was asked, `--push` goes to a hub."""

import json

import pyarrow as pa
import pytest
import yaml
from pyarrow import parquet

from tests.support.hf_hub import KEY
from tests.support.hub_server import say
from tests.support.saved_episodes import written
from tests.support.tables import each
from viewbox import ConfigError, Episode, ImageRef, Scores, Task, Turn, load
from viewbox.rollouts.exchange.conversation import list_messages
from viewbox.rollouts.exchange.export import export_run
from viewbox.rollouts.exchange.importing import import_file
from viewbox.rollouts.exchange.selection import Choice, filter_run


def test_openai_lines_have_messages_with_data_urls(run, tmp_path, viewbox):
    status, out, _ = viewbox("export", run, "--to", "openai", "--out", tmp_path / "out.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert (status, "21 of 21" in out) == (0, True)
    episode = load(run)[0]
    assert [message["role"] for message in rows[0]["messages"]] == [m.role for m in list_messages(episode)]
    assert rows[0]["messages"][1]["content"][0]["image_url"]["url"].startswith("data:image/png;base64,")
    assert rows[0]["viewbox"]["scores"]["total"] == episode.scores.total


def test_datasets_opens_it_with_images(run, tmp_path):
    datasets = pytest.importorskip("datasets")
    report = export_run(run, "parquet", tmp_path / "out")
    assert report.kept == 21
    found = datasets.Dataset.from_parquet(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))
    assert found.features["images"] == datasets.List(datasets.Image())
    for row, episode in zip(found, load(run), strict=True):
        images = [image for message in list_messages(episode) for image in message.images]
        assert [ImageRef.of(image).hash for image in row["images"]] == [image.hash for image in images]
        assert row["reward"] == (None if episode.scores is None else episode.scores.total)


def spoil_image(run):
    """Break the first picture; how many episodes show it."""
    episodes = list(load(run, errors="skip"))
    image = episodes[0].turns[0].images[0]
    with open(image.uri, "wb") as file:
        file.write(b"junk")
    shown = [[one.hash for turn in episode.turns for one in turn.images] for episode in episodes]
    return sum(image.hash in hashes for hashes in shown)


def test_broken_images_and_lines_cost_themselves(run, tmp_path, viewbox):
    users = spoil_image(run)
    report = export_run(run, "openai", tmp_path / "out.jsonl")
    assert (report.kept, report.left_out["broken"]) == (21 - users, users)
    assert "line 1" in report.broken
    lines = run / "episodes" / "episodes.jsonl"
    lines.write_bytes(b"\xff\x00junk\n" + lines.read_bytes())
    status, _, err = viewbox("export", run, "--to", "run", "--out", tmp_path / "new")
    assert (status, "line 1:" in err, "line 2:" in err) == (1, True, True)
    assert len(load(tmp_path / "new")) == 21 - users


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


def test_a_table_that_another_tool_wrote_again_is_read(run, tmp_path):
    export_run(run, "parquet", tmp_path / "e.parquet")
    table = parquet.read_table(tmp_path / "e.parquet")
    large = table.cast(pa.schema([(field.name, cast(field.type)) for field in table.schema]))
    named = table.set_column(0, "task", table["task"].combine_chunks().dictionary_encode())
    kinds = ("DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY")  # the second versions of DuckDB and parquet-mr
    duck, spark = ({"use_dictionary": False, "column_encoding": {"record": kind}} for kind in kinds)
    second = {"use_dictionary": False, "data_page_version": "2.0"}
    tables = {4: (table, {}), 3: (large, {}), 1: (named, {}), 20: (table, duck), 6: (table, second), 5: (table, spark)}
    for size, (one, options) in tables.items():
        with parquet.ParquetWriter(tmp_path / f"{size}.parquet", one.schema, **options) as writer:
            writer.write_table(one.slice(0, 0))  # a group without rows
            writer.write_table(one, row_group_size=size)
        assert import_file(tmp_path / f"{size}.parquet", "parquet", tmp_path / str(size)).kept == 21


NO_NAMES = ("runs", "a/b/c", "me/../x", "/x", "me/", "me/r uns", "me/" + "r" * 200)
REFUSED = [  # the form and the file, more that is given, and what is said
    ("xml", "out", {}, "xml"), ("sft", "x.jsonl", {}, "a name with .parquet, or --to openai"),
    ("inspect", "x.eval", {}, "a name with .json"), ("openai", "x.parquet", {}, "a name with .jsonl, or --to sft"),
    ("parquet", "x.jsonl", {}, "a name with .parquet, or --to openai"),
    ("openai", "out", {"choice": Choice(["nonsense=1"])}, "nonsense"),
    ("sft", "out", {"push": "me/runs"}, "--to parquet"),
    *(("parquet", "out", {"push": name}, "owner/name") for name in NO_NAMES),
]  # fmt: skip


def test_what_cannot_be_exported_or_chosen_is_refused_and_nothing_is_written(run, tmp_path):
    for to, name, options, says in REFUSED:
        with pytest.raises(ConfigError, match=says):
            export_run(run, to, tmp_path / name, **options)
    for choice in ({"where": ["nonsense=1"]}, {"best": 0}, {"per_task": True}, {"reward_between": (0.8, 0.2)}):
        with pytest.raises(ConfigError):
            filter_run(run, tmp_path / "out", Choice(**choice))
    with pytest.raises(ConfigError, match="exists"):
        filter_run(run, run, Choice())
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


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
    totals = [("a", 1.0), ("a", 0.5), ("a", 1.0), ("b", 0.0), ("b", 0.0), ("c", 0.25), ("c", None)]
    pairs = [(Task(task), None if total is None else Scores(total)) for task, total in totals]
    graded = written(tmp_path / "graded", *(Episode(task, scores=score) for task, score in pairs))
    report = filter_run(graded, tmp_path / "out", Choice(**choice))
    assert [(episode.task.id, episode.scores.total) for episode in load(tmp_path / "out")] == rewards
    assert left_out.items() <= report.left_out.items()
    assert len(left_out) < 3 or report.left_out == left_out


def test_a_filtered_run_is_complete(run, tmp_path, viewbox):
    status, out, _ = viewbox("export", run, "--to", "run", "--where", "end_reason=answered", "--out", tmp_path / "new")
    before = [episode for episode in load(run, tokens=True) if episode.end_reason == "answered"]
    assert (status, f"{len(before)} of {len(load(run))} episodes" in out) == (0, True)
    after = list(load(tmp_path / "new", tokens=True))
    old = (run / "episodes" / "episodes.jsonl").read_bytes().splitlines()
    new = (tmp_path / "new" / "episodes" / "episodes.jsonl").read_bytes().splitlines()
    assert new == [line for line in old if b'"end_reason":"answered"' in line.replace(b'": "', b'":"')]
    assert [image.open().size for episode in after for image in episode.turns[0].images]
    assert yaml.safe_load((tmp_path / "new" / "config.yaml").read_text())["env"]["name"] == "digits"
    assert viewbox("score", tmp_path / "new", "--bootstrap", "0")[0] == 0


def push(viewbox, folder, out):
    (folder / "config.yaml").write_text("env: {name: digits}")
    return viewbox("export", folder, "--to", "parquet", "--out", out, "--push", "me/runs")


def test_a_run_becomes_a_private_dataset_that_comes_back(run, tmp_path, hf, viewbox):
    status, out, err = push(viewbox, run, tmp_path / "out")
    assert status == 0, err
    assert "me/runs" in out
    repo = hf.repos["dataset", "me/runs"]
    assert repo.private
    assert {headers["authorization"] for _, _, headers, _ in hf.find("POST /api/(repos|datasets)")} == {f"Bearer {KEY}"}
    files = repo.commits[-1]
    assert set(files) == {"README.md", "data/train-00000-of-00001.parquet"}
    assert "21 episodes of the environment `digits`" in files["README.md"].decode()
    (tmp_path / "back.parquet").write_bytes(files["data/train-00000-of-00001.parquet"])
    assert import_file(tmp_path / "back.parquet", "parquet", tmp_path / "back").kept == 21
    assert [one.scores for one in load(tmp_path / "back")] == [one.scores for one in load(run)]


def test_a_refusal_of_the_hub_is_said_and_the_export_stays(run, tmp_path, hf, viewbox):
    hf.faults += [("/commit/", say(403, {"error": f"you sent {KEY}"}))]
    status, _, err = push(viewbox, run, tmp_path / "out")
    assert (status, "--push me/runs: " in err, "403" in err, KEY in err) == (2, True, True, False)
    assert (tmp_path / "out").is_file()
