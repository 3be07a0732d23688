"""The table of a run: a row for each readable episode, and the rows that are appended while it is looked at."""

import json
import os

import pytest

from tests.support.saved_episodes import written
from tests.support.tables import each
from viewbox.errors import StoreError
from viewbox.records import Episode, EpisodeTokens, Scores, Task, Turn
from viewbox.rollouts.store.writer import EpisodeWriter
from viewbox.viewer.sources import MAX_COLUMNS, EpisodeIndex, find_sets, read_all


def make(number, **changes):
    return Episode(
        Task(f"t{number}", prompt={"question": "Where?"}, reference={"kind": "a", "box": [0, 0, 1, 1]}),
        answer={"label": number},
        scores=Scores(number / 10, components={"label": 1.0, "none": None}),
        info={"step": number, "sample": 0},
        **{"turns": (Turn("assistant", "x"),), **changes},
    )


@pytest.fixture
def folder(tmp_path):
    return written(tmp_path / "run" / "episodes", *(make(n) for n in range(3)))


def read(folder):
    index = EpisodeIndex(folder)
    index.refresh()
    return index


def test_a_row_has_the_fields_that_filters_name(folder):
    columns = read(folder).columns
    assert columns["line"] == [1, 2, 3]
    assert columns["task.id"] == ["t0", "t1", "t2"]
    assert columns["scores.total"] == [0.0, 0.1, 0.2]
    assert columns["scores.components.none"] == [None, None, None]
    assert columns["answer.label"] == [0, 1, 2]
    assert columns["task.reference.box"] == [[0, 0, 1, 1]] * 3
    assert columns["info.step"] == [0, 1, 2]
    assert columns["num_turns"] == [1, 1, 1]


def test_what_is_appended_is_found_and_a_line_that_is_being_written_waits(folder):
    index = read(folder)
    assert index.refresh() == 0
    with EpisodeWriter(folder) as writer:
        writer.append(make(3))
    line = (folder / "episodes.jsonl").read_bytes().splitlines(keepends=True)[0]
    with (folder / "episodes.jsonl").open("ab") as file:
        file.write(line[:40])
        file.flush()
        assert index.refresh() == 1
        file.write(line[40:])
    assert index.refresh() == 1
    assert index.columns["task.id"] == ["t0", "t1", "t2", "t3", "t0"]
    assert index.to_dict(3)["columns"]["line"] == [4, 5]


def test_each_episode_is_read_by_its_line(folder):
    with (folder / "episodes.jsonl").open("ab") as file:
        file.write(b"junk\n\n")
    written(folder, make(7, tokens=EpisodeTokens((1,), (2,), (1,), (-0.5,))))
    index = read(folder)
    assert index.columns["line"] == [1, 2, 3, 6]
    assert (index.reader.skipped, list(index.reader.unreadable)) == (1, [4])
    assert index.read(2).task.id == "t1"
    assert index.read(6, tokens=True).tokens.completion_ids == (2,)
    assert index.read(4) is None
    assert index.read(99) is None


def test_tokens_that_cannot_be_read_cost_themselves(folder):
    written(folder, make(7, tokens=EpisodeTokens((1,), (2,), (1,), (-0.5,))))
    for path in (folder / "tokens").iterdir():
        path.write_bytes(b"")
    assert read(folder).read(4, tokens=True).task.id == "t7"


def test_odd_values_become_cells_of_json(folder, tmp_path):
    lines = [json.loads(line) for line in (folder / "episodes.jsonl").read_text().splitlines()]
    lines[0]["answer"] = {f"k{n}": n for n in range(200)}
    lines[1]["answer"] = {"label": "x" * 10_000, "deep": [[1], {"a": 2}], "big": 10**200, "list": ["y" * 999]}
    lines[2]["info"]["step"] = "soon"
    (folder / "episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    index = read(folder)
    assert len(index.columns) == MAX_COLUMNS
    assert {len(values) for values in index.columns.values()} == {3}
    assert len(json.dumps(index.to_dict(), allow_nan=False)) < 20_000


@each("word, count", [("lesion", 2), ("LESION", 2), ("no lesion", 1), ("kas", 1), ("content", 30), ("nowhere", 0)])
def test_a_search_in_the_turns_finds_what_decoding_every_line_finds(tmp_path, word, count):
    said = ["x"] * 26 + ["No lesion.", "a Lesion", "\u212aa\u017f", "\x07l"]  # Kelvin and a long s have these letters
    folder = written(tmp_path / "run", *(make(0, turns=(Turn("assistant", text),)) for text in said))
    for condition in (f"turns~{word}", f"turns~{word}|{word}"):  # the second decodes every line
        assert len(read(folder).select([condition])) == count


# ---------------------------------------------------------------------- sets
def test_held_out_episodes_and_the_sides_of_an_evaluation_are_sets(folder, tmp_path):
    for step in ("0", "20", "100"):
        written(tmp_path / "run" / "held_out" / step, make(1))
    for side in ("with_tools", "without_tools"):
        written(tmp_path / "both" / side / "episodes", make(1))
    sets = find_sets([tmp_path / "run", tmp_path / "both"])
    names = ["run", "run held out 0", "run held out 20", "run held out 100", "both with tools", "both without tools"]
    assert [one.name for one in sets] == names
    assert read_all(sets) == 8
    with pytest.raises(StoreError, match="no episodes here"):
        find_sets([tmp_path / "run" / "held_out"[:3]])


def test_a_run_that_was_cut_is_named_and_one_that_is_linked_from_elsewhere_is_shown(folder, tmp_path):
    (tmp_path / "run" / "summary.json").write_text('{"episodes": 5}')
    (tmp_path / "linked").symlink_to(tmp_path / "run")
    (tmp_path / "both").mkdir()
    (tmp_path / "both" / "with_tools").symlink_to(tmp_path / "run")
    (tmp_path / "run" / "metrics.jsonl").write_text('{"step": 1, "reward": 0.5}')
    sets = find_sets([tmp_path / "linked", tmp_path / "both"])
    assert [one.name for one in sets] == ["run", "both with tools"]
    assert sets[0].read_curves()["series"] == {"reward": [0.5]}
    assert read_all(sets) == 6
    assert sets[0].index.reader.skipped == 2
    assert sets[0].index.reader.unreadable == {4: "cut off: summary.json counts 5 episodes, 3 are here"}


def test_the_curves_are_those_of_training_and_only_of_its_own_episodes(folder, tmp_path):
    written(tmp_path / "run" / "held_out" / "0", make(1))
    lines = [
        '{"step": 1, "reward": 0.5, "loss": 3}', "junk", '{"step": 2, "reward": NaN, "tools/rate": 0.25}', "[]",
        '{"step": "x"}',
    ]  # fmt: skip
    (tmp_path / "run" / "metrics.jsonl").write_text("\n".join(lines))
    own, held_out = find_sets([tmp_path / "run"])
    assert own.read_curves() == {"step": [1, 2], "series": {"reward": [0.5, None], "tools/rate": [None, 0.25]}}
    assert held_out.read_curves() is None


@pytest.mark.parametrize("put", [os.mkfifo, lambda path: path.symlink_to("/etc/passwd"), lambda path: path.mkdir()])
def test_metrics_that_are_no_file_of_the_run_are_not_read(folder, tmp_path, put):
    put(tmp_path / "run" / "metrics.jsonl")
    assert find_sets([tmp_path / "run"])[0].read_curves() is None
