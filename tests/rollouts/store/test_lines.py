"""A line that was damaged in any way is an episode that can be written again, or a `ValueError` in words."""

import copy
import json
import pickle
import random
from pathlib import Path

from msgspec.structs import replace

from tests.fuzz.mutate import mutate_value
from viewbox.records import Episode, EpisodeTokens, Task, ToolCall, ToolResult, Turn
from viewbox.rollouts.store.lines import decode_episode
from viewbox.rollouts.store.reader import load
from viewbox.rollouts.store.writer import EpisodeWriter
from viewbox.utils.frozen import FrozenDict

RECORDED = Path(__file__).parent / "recorded" / "format2" / "episodes" / "episodes.jsonl"
LINES = RECORDED.read_bytes().splitlines()


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
    episode = decode_episode(LINES[1])
    assert {type(value) for value in list_containers(episode)} == {tuple, frozenset, FrozenDict}
    assert Episode.from_json(episode.to_json()) == episode


def test_damaged_lines_are_episodes_or_refused_in_words():
    chance, read = random.Random(7), 0
    for number in range(1000):
        try:
            line = json.dumps(mutate_value(chance, json.loads(LINES[number % len(LINES)]))).encode()
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
    with EpisodeWriter(tmp_path) as writer:
        writer.append(Episode(Task("t"), turns, tokens=EpisodeTokens((1,), (2,), (1,), (-0.5,))))
    (episode,) = load(tmp_path, tokens=True)
    copies = pickle.loads(pickle.dumps(episode)), copy.deepcopy(episode), replace(episode, environment="")
    assert episode.num_turns == episode.tool_call_count == episode.run_call_count == 1
    for one in (episode, *copies):
        assert one.turns == tuple(turns)
        assert one.turns[0].tool_calls[0].arguments == FrozenDict({"box": (0, 1)})
        assert type(one.turns[1].tool_results[0].facts) is FrozenDict
        assert one.tokens.completion_ids == (2,)
    assert Episode.from_json((tmp_path / "episodes.jsonl").read_bytes()).tokens is None
