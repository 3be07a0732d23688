"""An episode that cannot be stored costs itself: it is stored as an error, and the run goes on. A full disk ends it."""

import asyncio
import errno
import os
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from msgspec.structs import force_setattr, replace
from PIL import Image

from viewbox.core.base import BaseMultiTurnEnv
from viewbox.errors import StoreError
from viewbox.images.ref import ImageRef
from viewbox.records import Episode, EpisodeTokens, Reply, RunConfig, Scores, Task, ToolCall, ToolResult, Turn
from viewbox.rewards import ExactMatchReward
from viewbox.rollouts.play import play_many
from viewbox.rollouts.store.reader import load
from viewbox.rollouts.store.writer import EpisodeWriter, UnstorableError

NAN, INF = float("nan"), float("inf")
PLACES = {"index": 3, "sample": 1}


class Mute:
    """An object whose every conversion fails in its own way."""

    def __repr__(self):
        raise KeyError("no name")

    __str__ = __repr__


class Angry(dict):
    def items(self):
        raise OSError(errno.EIO, "not the disk's fault")


def nest(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


def make(**fields):
    return Episode(Task("t", reference={"label": "x"}), **{"info": PLACES, **fields})


def with_facts(facts):
    return make(turns=(Turn("tool_result", tool_results=(ToolResult("a", facts=facts),)),))


def with_scores(**components):
    return make(scores=Scores(1.0, components))


def with_tokens(ids, logprobs=None):
    return make(tokens=EpisodeTokens((1,), ids, (1,) * len(ids), logprobs or (0.0,) * len(ids)))


EPISODES = {
    "an answer of NaN": make(answer={"a": NAN}),
    "a deep infinity": make(answer={"a": [{"b": [INF]}]}),
    "NaN as a key": make(answer={"a": {(1, 2): NAN}}),
    "a tuple as a key": make(answer={"a": {(1, 2): 3}}),
    "an object": make(answer={"a": object()}),
    "a mute object": make(answer={"a": Mute()}),
    "a mute key": make(info={**PLACES, "a": {Mute(): 1}}),
    "a set of objects": make(answer={"a": {1, Mute()}}),
    "bytes": make(info={**PLACES, "a": b"raw"}),
    "a function": make(info={**PLACES, "a": print}),
    "an exception": make(info={**PLACES, "a": ValueError("x")}),
    "an array of NaN": make(info={**PLACES, "a": np.array([1.0, NAN])}),
    "a NumPy infinity": make(info={**PLACES, "a": np.float32(INF)}),
    "an array of objects": make(info={**PLACES, "a": np.array([object()])}),
    "a path": make(info={**PLACES, "a": Path("x")}),
    "nested 70 deep": make(answer={"a": nest(70)}),
    "nested 300 deep": make(answer={"a": nest(300)}),
    "nested 70 deep in info": make(info={**PLACES, "a": nest(70)}),
    "too long": make(turns=(Turn("assistant", "x" * (2**25 + 1)),)),
    "a huge integer": make(answer={"a": 10**5000}),
    "facts of NaN": with_facts({"a": NAN}),
    "facts with an object": with_facts({"a": object()}),
    "a score that is an object": make(scores=object()),
    "a score beyond all others": with_scores(a=1e300),
    "a thousand scores": with_scores(**{f"a{number}": 0.0 for number in range(1000)}),
    "a negative place": make(info={"index": -1, "sample": 0}),
    "a place that is text": make(info={"index": "first", "sample": 0}),
    "malformed that is text": make(info={**PLACES, "malformed": "many"}),
    "flags that are numbers": make(flags=frozenset({1})),
    "an end without a name": make(end_reason="bored"),
    "a text that is none": make(turns=(Turn("assistant", 7),)),
    "arguments that are a list": make(turns=(Turn("assistant", tool_calls=(ToolCall("a", "b", ["c"]),)),)),
    "a turn that is text": make(turns=("hello",)),
    "a token beyond 32 bits": with_tokens((2**40,)),
    "a token that is text": with_tokens(("a",)),
    "a task whose name is a number": replace(make(), task=Task(7)),
    "a task whose name is mute": replace(make(), task=Task(Mute())),
    "settings of a run that are an object": make(run_config=RunConfig(model_name=object())),
    "settings and an answer": make(run_config=RunConfig(versions={"a": Mute()}), answer={"a": NAN}),
    "an environment that is no name": make(environment=Mute()),
    "an image without pixels": make(turns=(Turn("user", images=(ImageRef("0" * 64, 1, 1, "L"),)),)),
    "an image with a path for a hash": make(turns=(Turn("user", images=(ImageRef("../a", 1, 1, "L"),)),)),
    "an image of a missing file": make(turns=(Turn("user", images=(ImageRef("0" * 64, 1, 1, "L", uri="/no/x.png"),)),)),
    "an image that is another": make(
        turns=(Turn("user", images=(replace(ImageRef.of(Image.new("L", (2, 2))), hash="0" * 64),)),)
    ),
}


@pytest.mark.parametrize("episode", EPISODES.values(), ids=EPISODES)
def test_it_is_stored_as_an_error_and_the_next_one_as_it_is(tmp_path, episode):
    good = make(answer={"label": "x"})
    with EpisodeWriter(tmp_path) as writer:
        with pytest.raises(UnstorableError, match="was not stored"):
            writer.append(episode)
        assert not list((tmp_path / "tokens").iterdir())
        stored = writer.append_or_error(episode)
        assert writer.append_or_error(good) is good
    first, second = load(tmp_path)
    assert (first.end_reason, first.answer, first.scores, first.truncated) == ("error", None, None, True)
    assert first.info["error"] == stored.info["error"]
    assert "was not stored" in first.info["error"]
    assert first.info.get("sample", 0) == episode.info["sample"]
    assert second.answer == {"label": "x"}
    (tmp_path / "episodes.jsonl").read_bytes().decode()


def test_an_object_that_raises_what_a_full_disk_raises_is_still_the_episode(tmp_path):
    episode = make()
    force_setattr(episode, "info", Angry(PLACES))
    with EpisodeWriter(tmp_path) as writer:
        assert writer.append_or_error(episode).end_reason == "error"


# ---------------------------------------------------------------------- the folder
def fill_disk(writer, monkeypatch):
    def write(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", write)


def write_half(writer, monkeypatch):
    whole = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: whole(fd, data[: len(data) // 2]))


def close(writer, monkeypatch):
    writer.close()


def close_file(writer, monkeypatch):
    os.close(writer._fd)


@pytest.mark.parametrize("break_it", [fill_disk, write_half, close, close_file])
def test_a_folder_that_cannot_be_written_ends_the_run_and_keeps_what_is_stored(tmp_path, monkeypatch, break_it):
    writer = EpisodeWriter(tmp_path)
    writer.append(make(answer={"label": "safe"}))
    with monkeypatch.context() as patch:
        break_it(writer, patch)
        with pytest.raises(StoreError, match="was not stored") as caught:
            writer.append_or_error(make())
    assert not isinstance(caught.value, UnstorableError)
    assert [episode.answer["label"] for episode in load(tmp_path)] == ["safe"]


def test_a_folder_of_images_that_vanished_ends_the_run(tmp_path):
    with EpisodeWriter(tmp_path) as writer:
        writer.append(make(answer={"label": "safe"}))
        (tmp_path / "images").rmdir()
        with pytest.raises(StoreError, match="was not stored"):
            writer.append_or_error(make(turns=(Turn("user", images=(ImageRef.of(Image.new("L", (2, 2))),)),)))
    assert len(list(load(tmp_path))) == 1


# ---------------------------------------------------------------------- whole runs
class Reading(BaseMultiTurnEnv):
    name = "reading"
    answer: ClassVar[Any] = {"type": "object"}
    tools = ()
    tasks = tuple(Task(f"t{number}", reference={"label": "x"}) for number in range(12))
    reward = ExactMatchReward("label")


class Spoils(Reading):
    """Every third answer becomes what no file can hold, behind the back of every check."""

    async def step(self, state, reply):
        result = await super().step(state, reply)
        number = int(state.task.id[1:])
        if number % 3 == 0:
            state.answer = {"label": "x", "made": (NAN, object(), {Mute(): 1}, nest(80))[number // 3]}
        return result


def play(env, folder, **options):
    async def run():
        with EpisodeWriter(folder) as writer:
            async for episode in play_many(env, env.tasks, lambda _: Reply('{"label": "x"}'), **options):
                writer.append_or_error(episode)

    asyncio.run(run())
    return list(load(folder))


def test_a_run_stores_every_episode_the_spoiled_ones_as_errors(tmp_path):
    ended = {episode.task.id: episode.end_reason for episode in play(Spoils(), tmp_path, concurrency=3)}
    assert ended == {f"t{number}": "error" if number % 3 == 0 else "answered" for number in range(12)}
    assert {episode.info["index"] for episode in load(tmp_path)} == set(range(12))
