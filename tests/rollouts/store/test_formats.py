"""The format of the store: a recorded run is read as it was written, and a damaged line costs itself, in words.

`recorded/format2` was written by the first viewbox with that format: twelve episodes of digits, nine of them with
tokens, and a score column. It is never written again.
"""

import copy
import json
import os
import pickle
import random
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from tests.fuzz.mutate import mutate_value
from tests.support.saved_episodes import without_uris, written
from tests.support.tables import each
from viewbox import Episode, EpisodeTokens, EpisodeWriter, ImageRef, StoreError, Task, ToolCall, ToolResult, Turn, load
from viewbox.rollouts.scoring.rescore import score_run
from viewbox.rollouts.store.layout import FORMAT, LINES
from viewbox.rollouts.store.lines import decode_episode
from viewbox.rollouts.store.tokens import TOKEN
from viewbox.utils.frozen import FrozenDict

RECORDED = Path(__file__).parent / "recorded"
RAW = (RECORDED / "format2" / "episodes" / LINES).read_bytes().splitlines()
STORED, LABELS = 0.9175309619875076, 2 / 3  # mean scores, as they were computed when it was written


def read_raw(episodes):
    return [json.loads(line) for line in (episodes / LINES).read_bytes().splitlines()]


def iter_refs(episode):
    yield from episode.task.images
    for turn in episode.turns:
        yield from turn.images
        yield from (result.image for result in turn.tool_results if result.image)
    yield from episode.tokens.images if episode.tokens else ()


def test_recorded_episodes_are_read_as_their_lines_say():
    raw = read_raw(RECORDED / "format2" / "episodes")
    episodes = list(load(RECORDED / "format2", tokens=True))
    assert len(episodes) == len(raw) == 12
    for episode, line in zip(episodes, raw, strict=True):
        stored = line.pop("stored_tokens", None)
        assert without_uris(episode.to_json()) == without_uris(json.dumps(line))
        assert [ImageRef.of(ref.open()).hash for ref in iter_refs(episode)] == [ref.hash for ref in iter_refs(episode)]
        assert (stored is None) == (episode.tokens is None)
        if stored is not None:
            shard = (RECORDED / "format2" / "episodes" / "tokens" / stored["file"]).read_bytes()
            rows = np.frombuffer(shard, TOKEN, stored["rows"], stored["offset"])
            assert [*episode.tokens.prompt_ids, *episode.tokens.completion_ids] == rows["id"].tolist()
            assert episode.tokens.mask == tuple(rows["mask"][stored["prompt_length"] :].tolist())
            assert episode.tokens.logprobs == tuple(rows["logprob"][stored["prompt_length"] :].tolist())
            assert [ref.hash for ref in episode.tokens.images] == [ref["hash"] for ref in stored["images"]]
    assert {ref.mode for episode in episodes for ref in iter_refs(episode)} == {"L", "F"}


def test_recorded_episodes_get_the_scores_they_had():
    report = score_run(RECORDED / "format2")
    assert report.total.stored.mean == report.total.new.mean == STORED
    assert report.total.change.mean == 0
    assert (report.skipped, report.failures) == (0, 0)
    column = [episode.scores.total for episode in load(RECORDED / "format2", scores="label")]
    assert sum(column) / len(column) == LABELS
    labels = score_run(RECORDED / "format2", reward="viewbox.rewards:ExactMatchReward")
    assert labels.total.new.mean == LABELS


def make(name="t", length=3, image=0):
    ref = ImageRef.of(np.full((4, 6), image, np.uint8))
    ids = tuple(range(length))
    return Episode(Task(name, (ref,)), tokens=EpisodeTokens(ids, ids, (1,) * length, (-0.5,) * length, (ref,), 1))


def make_run(tmp_path):
    return written(tmp_path / "run", make("a", 3, 0), make("b", 4, 1), make("c", 0, 0))


def test_a_new_folder_has_the_format_and_tokens_of_a_shard_come_back(tmp_path):
    run = make_run(tmp_path)
    assert json.loads((run / "format.json").read_text()) == {"format": FORMAT}
    hashes = {make(image=image).task.images[0].hash for image in (0, 1)}
    images = {path.relative_to(run / "images").as_posix() for path in (run / "images").rglob("*.png")}
    assert images == {f"{digest[:2]}/{digest}.png" for digest in hashes}
    assert [path.stat().st_size for path in (run / "tokens").iterdir()] == [13 * 14]
    for episode, length in zip(load(run, tokens=True), (3, 4, 0), strict=True):
        back, given = (replace(tokens, images=()) for tokens in (episode.tokens, make(length=length).tokens))
        assert back == given
        assert [ref.hash for ref in episode.tokens.images] == [episode.task.images[0].hash]


OTHERS = ['{"format": 3}', '{"format": 1}', "{}", "[]", "x", '{"format": "2"}', "[" * 3000, '{"format": true}', None]


def test_another_format_is_refused_with_the_one_that_is_known(tmp_path):
    run = make_run(tmp_path)
    for content in OTHERS:
        (run / "format.json").unlink(missing_ok=True)
        if content is not None:
            (run / "format.json").write_text(content)
        for use in (load, EpisodeWriter):
            with pytest.raises(StoreError, match=r"format\.json: (.* reads format 2|cannot be read)"):
                use(run)


def test_each_writer_and_its_copy_in_a_forked_process_have_shards_of_their_own(tmp_path):
    run = make_run(tmp_path)
    written(run, make("d"))
    with EpisodeWriter(run) as one, EpisodeWriter(run) as other:
        for number in range(3):
            one.append(make(f"one{number}", number + 1))
            other.append(make(f"other{number}", number + 5))
    assert len(list((run / "tokens").iterdir())) == 4
    lengths = [len(episode.tokens.mask) for episode in load(run, tokens=True)]
    assert lengths == [3, 4, 0, 3, 1, 5, 2, 6, 3, 7]
    with EpisodeWriter(tmp_path / "forked") as writer:
        writer.append(make("before", 1))
        child = os.fork()
        if child == 0:
            writer.append(make("child", 2))
            os._exit(0)
        os.waitpid(child, 0)
        writer.append(make("after", 3))
    found = {episode.task.id: episode.tokens.mask for episode in load(tmp_path / "forked", tokens=True)}
    assert found == {"before": (1,), "child": (1, 1), "after": (1, 1, 1)}


BAD_PLACES = [
    *({"offset": offset} for offset in (-13, 13 * 14, 10**30, 1, "0", None)),  # between two rows, too
    *({"rows": rows} for rows in (100, 10**12, -1, 4)), {"crc": 0}, {"crc": None},
    *({"file": name} for name in ("0.bin", "../episodes.jsonl", "")),
]  # fmt: skip


@each("place", [*BAD_PLACES, None])
def test_rows_that_are_not_there_or_were_changed_cost_their_episode(tmp_path, place):
    run = make_run(tmp_path)
    (shard,) = (run / "tokens").iterdir()
    if place is None:
        with shard.open("r+b") as file:
            file.seek(6 * 13 + 2)
            file.write(b"x")
        said = f"{shard.name}: the rows at byte 78 are not those that were stored"
    else:
        lines = read_raw(run)
        lines[1]["stored_tokens"] |= place
        (run / LINES).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        said = "its tokens cannot be read"
    episodes = load(run, tokens=True, errors="skip")
    assert [episode.task.id for episode in episodes] == ["a", "c"]
    assert said in episodes.unreadable[2]
    assert len(list(load(run))) == 3


def test_many_shards_are_read_with_few_open_files(tmp_path):
    for number in range(40):
        written(tmp_path, make(f"t{number}", number + 1))
    episodes = iter(load(tmp_path, tokens=True))
    next(episodes)
    assert [len(episode.tokens.mask) for episode in episodes] == list(range(2, 41))


def list_containers(value):
    """Every list, dict and set in a value, records included."""
    if hasattr(value, "__struct_fields__"):
        value = {name: getattr(value, name) for name in value.__struct_fields__}
    elif isinstance(value, list | dict | set | tuple | frozenset):
        yield value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else ()
    for item in inner:
        yield from list_containers(item)


def test_what_is_read_is_frozen_to_the_bottom():
    episode = decode_episode(RAW[1])
    assert {type(value) for value in list_containers(episode)} == {tuple, frozenset, FrozenDict}
    assert Episode.from_json(episode.to_json()) == episode


def test_damaged_lines_are_episodes_that_can_be_written_again_or_refused_in_words():
    chance, read = random.Random(7), 0
    for number in range(1000):
        try:
            line = json.dumps(mutate_value(chance, json.loads(RAW[number % len(RAW)]))).encode()
        except RecursionError:  # deeper than Python writes
            continue
        try:
            episode = decode_episode(line)
        except ValueError:
            continue
        assert Episode.from_dict(episode.to_dict()) == episode
        read += 1
    assert read > 100


def test_what_is_read_late_is_frozen_and_stands_in_every_copy(tmp_path):
    call = ToolCall("c", "zoom", {"box": [0, 1]})
    turns = [Turn("assistant", "", (call,)), Turn("tool_result", tool_results=(ToolResult("zoom", facts={"a": [1]}),))]
    written(tmp_path, Episode(Task("t"), turns, tokens=EpisodeTokens((1,), (2,), (1,), (-0.5,))))
    (episode,) = load(tmp_path, tokens=True)
    copies = pickle.loads(pickle.dumps(episode)), copy.deepcopy(episode), replace(episode, environment="")
    assert episode.num_turns == episode.tool_call_count == episode.run_call_count == 1
    for one in (episode, *copies):
        assert one.turns == tuple(turns)
        assert one.turns[0].tool_calls[0].arguments == FrozenDict({"box": (0, 1)})
        assert type(one.turns[1].tool_results[0].facts) is FrozenDict
        assert one.tokens.completion_ids == (2,)
    assert Episode.from_json((tmp_path / LINES).read_bytes()).tokens is None
