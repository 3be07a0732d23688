"""The fast way to read a line makes what the careful way makes, or leaves the line to it."""

import copy
import json
import pickle
import random
from dataclasses import fields, replace
from pathlib import Path

import pytest

from tests.fuzz.mutate import mutate_value
from tests.support.forged_runs import make_line
from viewbox.errors import StoreError
from viewbox.images.ref import ImageRef
from viewbox.images.shown import ShownView
from viewbox.records import Episode, RunConfig, Scores, Task, ToolCall, ToolResult, Turn
from viewbox.rollouts.store import line_types, reader
from viewbox.rollouts.store.decode import UnusualError
from viewbox.utils.frozen import FrozenDict

RECORDED = Path(__file__).parent / "recorded" / "format2"
LINES = (RECORDED / "episodes" / "episodes.jsonl").read_bytes().splitlines()
MIRRORS = {
    line_types.EpisodeLine: Episode,
    line_types.TaskLine: Task,
    line_types.TurnLine: Turn,
    line_types.CallLine: ToolCall,
    line_types.ResultLine: ToolResult,
    line_types.ScoresLine: Scores,
    line_types.RunConfigLine: RunConfig,
    line_types.ImageLine: ImageRef,
    line_types.ViewLine: ShownView,
}


@pytest.fixture
def ways():
    """Both ways to read a line of the recorded run: each gives the episode, or None."""
    stored = reader.load(RECORDED)

    def read_fast(line):
        try:
            return stored._decoder.decode(line)[0]
        except UnusualError:
            return None

    def read_carefully(line):
        try:
            return stored._parse_carefully(line, None)[0]
        except StoreError:
            return None

    return read_fast, read_carefully


def list_types(value):
    """The types of a value and of everything in it: frozen containers, and numbers as JSON gave them."""
    if isinstance(value, dict):
        return type(value), {key: list_types(item) for key, item in value.items()}
    if isinstance(value, tuple | frozenset):
        return type(value), sorted(map(repr, map(list_types, value)))
    if hasattr(value, "__dataclass_fields__"):
        return type(value), {item.name: list_types(getattr(value, item.name)) for item in fields(value)}
    return type(value)


def assert_equal(fast, careful):
    assert fast == careful
    assert fast.to_json() == careful.to_json()
    assert list_types(fast) == list_types(careful)
    assert (fast.num_turns, fast.tool_call_count) == (careful.num_turns, careful.tool_call_count)


@pytest.mark.parametrize(("mirror", "record"), MIRRORS.items(), ids=lambda cls: cls.__name__)
def test_every_field_of_a_record_is_read_with_its_default(mirror, record):
    beside = {"stored_tokens", "uri"}
    wanted = {item.name for item in fields(record) if not item.metadata.get("beside")} - beside
    assert set(mirror.__struct_fields__) - beside == wanted
    known = dict(zip(reversed(mirror.__struct_fields__), reversed(mirror.__struct_defaults__), strict=False))
    for item in fields(record):
        if type(item.default) in (str, int, float, bool, type(None)) and item.name in known:
            assert known[item.name] == item.default


def test_lines_that_viewbox_wrote_are_read_fast_and_equally(ways):
    for line in LINES:
        fast, careful = (read(line) for read in ways)
        assert_equal(fast, careful)
        for ref, other in zip(fast.task.images, careful.task.images, strict=True):
            assert (ref.uri, ref.folder, ref.pixels) == (other.uri, other.folder, None)


def test_damaged_lines_are_read_equally_or_left_to_the_careful_way(ways):
    chance, read = random.Random(7), 0
    read_fast, read_carefully = ways
    for number in range(3000):
        try:
            line = json.dumps(mutate_value(chance, json.loads(LINES[number % len(LINES)]))).encode()
        except RecursionError:
            continue
        fast = read_fast(line)
        if fast is not None:
            assert_equal(fast, read_carefully(line))
            read += 1
    assert read > 300


ODD = {
    "a number of 30 digits": {"info": {"n": 10**30, "m": -(10**19), "k": 2**64}},
    "numbers that look whole": {"info": {"a": 1.0, "b": -0.0, "c": 1e22}},
    "deep values": {"info": {"a": [[[[[[[[[1]]]]]]]]]}},
    "values of four levels": {"info": {"a": [[[1, {"b": 2}]]], "c": {"d": {"e": [1]}}}},
    "whole scores": {"scores": {"total": 1, "components": {"a": 0, "b": None}, "faults": {}}},
    "scores that are true": {"scores": {"total": True}},
    "a confidence of text": {"confidence": "0.5"},
    "a whole confidence": {"confidence": 1},
    "a confidence of 2": {"confidence": 2},
    "a count that is true": {"info": {"index": True}},
    "a count below 0": {"info": {"sample": -1}},
    "fields of no record": {"tokens": "x", "more": [1], "turns": [{"role": "user", "tokens": 7}]},
    "a hash with a line break": {"task": {"id": "a", "images": [{"hash": "a\n", "width": 1, "height": 1}]}},
    "an image without a mode": {"task": {"id": "a", "images": [{"hash": "a", "width": 1, "height": 1}]}},
    "pixels": {"task": {"id": "a", "images": [{"hash": "a", "width": 1, "height": 1, "mode": "L", "pixels": "x"}]}},
    "a type without a picture": {
        "turns": [{"role": "tool_result", "tool_results": [{"tool_name": "a", "mime_type": "x"}]}]
    },
    "half a surrogate": {"info": {"a": "\ud800"}},
    "another end": {"end_reason": "bored"},
    "another role": {"turns": [{"role": "system"}]},
    "no turns": {"turns": None},
    "a flag twice": {"flags": ["a", "a"]},
    "arguments of text": {"turns": [{"role": "assistant", "tool_calls": [{"id": "", "name": "", "arguments": "{"}]}]},
    "views": {"turns": [{"role": "user", "views": [{"image": 0, "corners": [0, 0, 1, 1]}, {}]}]},
}


@pytest.mark.parametrize("changes", ODD.values(), ids=ODD)
def test_odd_lines_are_read_equally_or_left_to_the_careful_way(ways, changes):
    line = json.dumps(make_line(0, **changes)).encode()
    fast, careful = (read(line) for read in ways)
    if fast is not None:
        assert_equal(fast, careful)


def test_a_line_with_other_tokens_is_read_if_they_are_not_asked_for(ways):
    for stored in (7, "x", [1], {"file": 3}):
        assert ways[0](json.dumps(make_line(0, stored_tokens=stored)).encode()) is not None


def test_turns_are_made_when_they_are_asked_for_and_once(ways):
    episode = ways[0](LINES[1])
    assert "turns" not in episode.__dict__
    assert (episode.num_turns, episode.tool_call_count) == (2, 1)
    assert "turns" not in episode.__dict__
    assert episode.turns is episode.turns
    assert isinstance(episode.turns[1].tool_calls[0].arguments, FrozenDict)


@pytest.mark.parametrize("change", [copy.copy, copy.deepcopy, replace, lambda e: pickle.loads(pickle.dumps(e))])
def test_an_episode_whose_turns_were_not_asked_for_can_be_copied(ways, change):
    episode, careful = (read(LINES[1]) for read in ways)
    assert change(episode) == careful
    assert hash(episode) == hash(careful)


def test_an_episode_without_turns_has_none():
    assert Episode(Task("a")).turns == Episode.turns == ()
