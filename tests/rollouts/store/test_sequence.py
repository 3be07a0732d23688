"""What `load` gives is a sequence: length, index, slices, as many walks as one likes, and a data frame."""

import json
import sys

import pytest

from tests.support.saved_episodes import made, written
from viewbox import ConfigError, Scores, StoreError, ToolCall, ToolResult, Turn, load
from viewbox.rollouts.scoring.rescore import score_run
from viewbox.rollouts.store.layout import LINES


def number_of(episode):
    return episode.task.metadata["number"]


def list_numbers(episodes):
    return [number_of(episode) for episode in episodes]


@pytest.fixture
def damaged(store):
    """Forty episodes with a blank line, a bad line and a torn last one."""
    lines = (store / LINES).read_bytes().splitlines(keepends=True)
    (store / LINES).write_bytes(b"".join([*lines[:10], b"\n", b"{bad\n", *lines[10:], lines[0][:50]]))
    return store


def test_it_is_walked_twice_and_has_a_length_indices_and_slices(store):
    episodes = load(store)
    assert list_numbers(episodes) == list_numbers(episodes) == list(range(40))
    assert (episodes.line, episodes.skipped, len(episodes), number_of(episodes[0])) == (40, 0, 40, 0)
    assert (number_of(episodes[-1]), episodes.line) == (39, 40)
    assert list_numbers(episodes[3:9:2]) == [3, 5, 7]
    assert list_numbers(reversed(episodes)) == list(range(39, -1, -1))
    assert episodes[2:2] == []
    assert episodes[7] in episodes
    with pytest.raises(IndexError, match="episode 40: there are 40"):
        episodes[40]
    episodes = load(store)  # `next` goes on in the last walk
    assert [number_of(next(episodes)) for _ in range(3)] == [0, 1, 2]
    for episode in episodes:
        assert number_of(episode) == 0
        break
    assert number_of(next(episodes)) == 1


def test_bad_lines_have_no_place_if_they_are_skipped_and_are_errors_where_they_are_otherwise(damaged):
    episodes = load(damaged, errors="skip")
    assert len(episodes) == 40
    assert (number_of(episodes[9]), episodes.line) == (9, 10)
    assert (number_of(episodes[10]), episodes.line) == (10, 13)
    for _ in range(2):
        assert list_numbers(episodes) == list(range(40))
        assert (episodes.skipped, list(episodes.unreadable)) == (1, [12])
    episodes = load(damaged)
    assert len(episodes) == 41
    assert number_of(episodes[11]) == 10
    for read in (lambda: episodes[10], lambda: list(episodes)):
        with pytest.raises(StoreError, match=r"episodes\.jsonl, line 12: "):
            read()


def test_a_line_that_is_damaged_after_its_place_was_read_says_why(store):
    episodes = load(store, errors="skip")
    assert len(episodes) == 40
    path = episodes.folder / "episodes.jsonl"
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([b"[" + b" " * (len(lines[0]) - 2) + b"]", *lines[1:]]))
    with pytest.raises(StoreError, match=r"line 1: not an episode: Expected `object`, got `array`"):
        episodes[0]
    assert (episodes.skipped, episodes.unreadable) == (0, {})


def test_scores_of_a_column_have_their_place_too(store):
    score_run(store, reward=lambda answer, reference: 0.25, name="quarter", where=["task.metadata.number>=20"])
    episodes = load(store, scores="quarter")
    assert episodes[30].scores == Scores(0.25, {"<lambda>": 0.25})
    assert episodes[3].scores is None
    assert [episode.scores is None for episode in episodes[19:21]] == [True, False]
    assert sum(episode.scores is not None for episode in episodes) == 20
    lines = (store / LINES).read_bytes().splitlines()
    data = json.loads(lines[30])
    lines[30] = json.dumps(data | {"environment": "other"}).encode()
    (store / LINES).write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(StoreError, match="the episode in line 31 changed after it was scored"):
        load(store, scores="quarter")[30]


def test_a_run_that_grows_is_walked_to_its_end(tmp_path):
    episodes = load(written(tmp_path, made(0)))
    assert len(episodes) == 1
    written(tmp_path, made(1))
    assert list_numbers(episodes) == [0, 1]
    assert len(load(tmp_path)) == 2


def test_a_data_frame_has_a_row_for_each_episode(tmp_path):
    pytest.importorskip("pandas")
    call, result = ToolCall("c", "zoom", {}), ToolResult("zoom", "done")
    turns = (Turn("assistant", "", (call,)), Turn("tool_result", tool_results=(result,)), Turn("assistant", "{}"))
    played = made(1, turns=turns, info={"step": 5, "index": 2, "sample": 3}, total_tokens=70)
    frame = load(written(tmp_path, made(0), played, made(2, scores=None, answer=None))).to_pandas()
    assert frame["line"].tolist() == [1, 2, 3]
    assert frame["total"].tolist()[:2] == [1.0, 0.0]
    assert frame[["reward.label", "step"]].isna().to_numpy().tolist() == [[False, True], [False, False], [True, True]]
    row = frame.iloc[1].to_dict()
    wanted = {"task": "t0", "environment": "digits", "step": 5, "index": 2, "sample": 3, "end_reason": "answered"}
    wanted |= {"turns": 2, "tool_calls": 1, "tools": "zoom", "tokens": 70, "answer.label": "b", "reference.label": "a"}
    assert {name: row[name] for name in wanted} == wanted


def test_columns_of_forged_episodes_are_bounded_and_without_episodes_the_frame_is_empty(tmp_path):
    pytest.importorskip("pandas")
    forged = [made(n, answer={f"field{n}-{m}": m for m in range(300)}) for n in range(5)]
    frame = load(written(tmp_path / "forged", *forged)).to_pandas()
    assert (frame.shape[0], frame.shape[1] <= 512) == (5, True)
    assert len(load(written(tmp_path / "none")).to_pandas()) == 0


def test_missing_pandas_is_said_in_words(store, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigError, match="pip install pandas"):
        load(store).to_pandas()


def test_reading_writes_nothing_into_a_run(damaged):
    before = {path: path.stat().st_mtime_ns for path in damaged.rglob("*")}
    episodes = load(damaged, errors="skip", tokens=True)
    list(episodes), len(episodes), episodes[3]
    assert {path: path.stat().st_mtime_ns for path in damaged.rglob("*")} == before
