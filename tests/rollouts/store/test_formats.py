"""Runs recorded with earlier versions are read as they were written, and scored to the same numbers.

`recorded/format1` was written by viewbox 0.1: twelve episodes of digits, nine of them with tokens, and a score column.
It is never written again.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from viewbox.images.ref import ImageRef
from viewbox.rollouts.scoring.rescore import score_run
from viewbox.rollouts.store.reader import load
from viewbox.rollouts.store.writer import EpisodeWriter

RECORDED = Path(__file__).parent / "recorded"
STORED, LABELS = 0.9175309619875076, 2 / 3  # mean scores, as viewbox 0.1 computed them


@pytest.fixture
def old_run(tmp_path):
    return Path(shutil.copytree(RECORDED / "format1", tmp_path / "old"))


def read_raw(run):
    return [json.loads(line) for line in (run / "episodes" / "episodes.jsonl").read_bytes().splitlines()]


def without_uris(text):
    return json.loads(text, object_hook=lambda d: {key: value for key, value in d.items() if key != "uri"})


def iter_refs(episode):
    yield from episode.task.images
    for turn in episode.turns:
        yield from turn.images
        yield from (result.image for result in turn.tool_results if result.image)
    yield from episode.tokens.images if episode.tokens else ()


def read_everything(run):
    """The episodes of a run as plain values: fields, tokens, and the hashes of their pixels."""
    return [
        (
            without_uris(episode.to_json()),
            episode.tokens and (episode.tokens.prompt_ids, episode.tokens.completion_ids),
            episode.tokens and (episode.tokens.mask, episode.tokens.logprobs, episode.tokens.prompt_images),
            [ImageRef.of(ref.open()).hash for ref in iter_refs(episode)],
        )
        for episode in load(run, tokens=True)
    ]


def test_episodes_of_format_1_are_read_as_their_lines_say():
    raw = read_raw(RECORDED / "format1")
    episodes = list(load(RECORDED / "format1", tokens=True))
    assert len(episodes) == len(raw) == 12
    for episode, line in zip(episodes, raw, strict=True):
        stored = line.pop("stored_tokens", None)
        assert without_uris(episode.to_json()) == without_uris(json.dumps(line))
        assert [ImageRef.of(ref.open()).hash for ref in iter_refs(episode)] == [ref.hash for ref in iter_refs(episode)]
        assert (stored is None) == (episode.tokens is None)
        if stored is not None:
            rows = np.load(RECORDED / "format1" / "episodes" / "tokens" / stored["file"])
            assert [*episode.tokens.prompt_ids, *episode.tokens.completion_ids] == rows["id"].tolist()
            assert episode.tokens.mask == tuple(rows["mask"][stored["prompt_length"] :].tolist())
            assert episode.tokens.logprobs == tuple(rows["logprob"][stored["prompt_length"] :].tolist())
            assert [ref.hash for ref in episode.tokens.images] == [ref["hash"] for ref in stored["images"]]
    assert {ref.mode for episode in episodes for ref in iter_refs(episode)} == {"L", "F"}


def test_episodes_of_format_1_get_the_scores_they_had():
    report = score_run(RECORDED / "format1", write=False)
    assert report.total.stored.mean == report.total.new.mean == STORED
    assert report.total.change.mean == 0
    assert (report.skipped, report.failures) == (0, 0)
    column = [episode.scores.total for episode in load(RECORDED / "format1", scores="label")]
    assert sum(column) / len(column) == LABELS
    labels = score_run(RECORDED / "format1", reward="viewbox.rewards:ExactMatchReward", write=False)
    assert labels.total.new.mean == LABELS


def test_appending_to_format_1_keeps_what_is_there(old_run):
    before = read_everything(old_run)
    episodes = list(load(old_run, tokens=True))
    with EpisodeWriter(old_run / "episodes") as writer:
        assert writer.count == 12
        for episode in episodes:
            writer.append(episode)
    assert read_everything(old_run) == before * 2
    assert [episode.scores and episode.scores.total for episode in load(old_run, scores="label")][12:] == [None] * 12
