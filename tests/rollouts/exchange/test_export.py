"""What `viewbox export` writes is read by the tools it is for: datasets, TRL, and viewbox's own transcripts."""

import json

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.support.saved_episodes import run, written  # noqa: F401
from viewbox.errors import ConfigError
from viewbox.images.ref import ImageRef
from viewbox.records import Episode, Scores, Task, Turn
from viewbox.rollouts.exchange.conversation import list_messages
from viewbox.rollouts.exchange.export import Export, export_run
from viewbox.rollouts.exchange.importing import import_file
from viewbox.rollouts.exchange.selection import Choice
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


@pytest.mark.parametrize("form", ["parquet", "hf"])
def test_datasets_opens_it_with_images(run, tmp_path, form):  # noqa: F811
    datasets = pytest.importorskip("datasets")
    report = export_run(run, form, tmp_path / "out")
    assert report.kept == 21
    if form == "hf":
        found = datasets.load_from_disk(tmp_path / "out")
    else:
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


def test_pairs_are_the_best_and_the_worst_of_a_group(tmp_path):
    datasets = pytest.importorskip("datasets")
    rewards = {"a": (0.2, 1.0, 0.0, 0.5), "b": (0.5, 0.5), "c": (0.5, 0.55), "d": (None, 1.0)}
    given = [
        Episode(
            Task(task),
            (Turn("user", f"Which? {task}"), Turn("assistant", str(total))),
            scores=None if total is None else Scores(total),
        )
        for task, totals in rewards.items()
        for total in totals
    ]
    report = export_run(written(tmp_path / "run", *given), "dpo", tmp_path / "out")
    (row,) = datasets.Dataset.from_parquet(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))
    assert row["prompt"][0]["content"] == [{"type": "text", "text": "Which? a"}]
    assert [row[side][0]["content"][0]["text"] for side in ("chosen", "rejected")] == ["1.0", "0.0"]
    assert (report.kept, sum(report.left_out.values())) == (2, 8)


@pytest.mark.parametrize(("to", "kept"), [("sft", 2), ("dpo", 2), ("openai", 3)])
def test_what_a_fault_ended_is_not_learned_from_and_is_counted(tmp_path, to, kept):
    turns = (Turn("user", "What?"), Turn("assistant", ""))
    given = [
        Episode(Task("a"), turns, scores=Scores(total), end_reason=end)
        for total, end in ((1.0, "answered"), (0.0, "answered"), (0.5, "error"))
    ]
    report = export_run(written(tmp_path / "run", *given), to, tmp_path / "out")
    assert (report.kept, report.left_out["ended by a fault"], report.skipped) == (kept, 3 - kept, 0)


@pytest.mark.parametrize(
    ("to", "name", "says"),
    [
        ("sft", "x.jsonl", "a name with .parquet, or --to openai"),
        ("openai", "x.parquet", "a name with .jsonl, or --to sft"),
        ("inspect", "x.eval", "a name with .json"),
        ("hf", "x.parquet", "a name with no ending, or --to sft"),
    ],
)
def test_a_name_of_another_kind_of_file_is_refused(run, tmp_path, to, name, says):  # noqa: F811
    with pytest.raises(ConfigError, match=says):
        export_run(run, to, tmp_path / name)


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
    duck = {
        "use_dictionary": False,
        "column_encoding": {"record": "DELTA_LENGTH_BYTE_ARRAY"},
    }  # DuckDB's second version
    spark = duck | {"column_encoding": {"record": "DELTA_BYTE_ARRAY"}}  # parquet-mr's second version
    tables = {"4": table, "3": large, "1": named, "20": table, "6": table, "5": table}
    options = {"20": duck, "6": {"use_dictionary": False, "data_page_version": "2.0"}, "5": spark}
    for size, one in tables.items():
        with parquet.ParquetWriter(tmp_path / f"{size}.parquet", one.schema, **options.get(size, {})) as writer:
            writer.write_table(one.slice(0, 0))  # a group without rows
            writer.write_table(one, row_group_size=int(size))
        assert import_file(tmp_path / f"{size}.parquet", "parquet", tmp_path / size).kept == 21


def test_nothing_is_left_of_an_export_that_fails(run, tmp_path):  # noqa: F811
    for to, options in (("xml", Export()), ("openai", Export(Choice(["nonsense=1"]))), ("dpo", Export(tokens=True))):
        with pytest.raises(ConfigError):
            export_run(run, to, tmp_path / "out", options)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
