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

from tests.support.tables import each
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


def with_tokens(ids, logprobs=None):
    return make(tokens=EpisodeTokens((1,), ids, (1,) * len(ids), logprobs or (0.0,) * len(ids)))


def info(value):
    return make(info={**PLACES, "a": value})


def turn(*arguments, **fields):
    return make(turns=(Turn(*arguments, **fields),))


def image(**fields):
    return turn("user", images=(ImageRef(fields.pop("hash", "0" * 64), 1, 1, "L", **fields),))


@each("episode", [
    # values that JSON does not have, and objects that say nothing of themselves
    *(make(answer={"a": value}) for value in (
        [{"b": [INF]}], {(1, 2): NAN}, object(), Mute(), {1, Mute()}, nest(70), nest(300), 10**5000)),
    *map(info, ({Mute(): 1}, b"raw", ValueError("x"), np.array([1.0, NAN]), np.array([object()]), Path("x"))),
    with_facts({"a": NAN}),
    # scores, places, tokens and settings that are none
    make(scores=object()), make(scores=Scores(1.0, {"a": 1e300})),
    make(scores=Scores(1.0, {f"a{n}": 0.0 for n in range(1000)})), make(info={"index": -1, "sample": 0}),
    make(info={**PLACES, "malformed": "many"}), make(flags=frozenset({1})),
    make(end_reason="bored"), with_tokens((2**40,)), with_tokens(("a",)), replace(make(), task=Task(7)),
    replace(make(), task=Task(Mute())), make(run_config=RunConfig(model_name=object())), make(environment=Mute()),
    make(run_config=RunConfig(versions={"a": Mute()}), answer={"a": NAN}),
    # turns that are none, and images that are not there or another one
    turn("assistant", "x" * (2**25 + 1)), turn("assistant", 7),
    turn("assistant", tool_calls=(ToolCall("a", "b", ["c"]),)), make(turns=("hello",)), image(), image(hash="../a"),
    image(uri="/no/x.png"), turn("user", images=(replace(ImageRef.of(Image.new("L", (2, 2))), hash="0" * 64),)),
])  # fmt: skip
def test_it_is_stored_as_an_error_and_the_next_one_as_it_is(tmp_path, episode):
    good, folder = make(answer={"label": "x"}), tmp_path / "run"
    with EpisodeWriter(folder) as writer:
        with pytest.raises(UnstorableError, match="was not stored"):
            writer.append(episode)
        assert not list((folder / "tokens").iterdir())
        stored = writer.append_or_error(episode)
        assert writer.append_or_error(good) is good
    first, second = load(folder)
    assert (first.end_reason, first.answer, first.scores, first.truncated) == ("error", None, None, True)
    assert first.info["error"] == stored.info["error"]
    assert "was not stored" in first.info["error"]
    assert first.info.get("sample", 0) == episode.info["sample"]
    assert second.answer == {"label": "x"}
    (folder / "episodes.jsonl").read_bytes().decode()


def test_an_object_that_raises_what_a_full_disk_raises_is_still_the_episode(tmp_path):
    episode = make()
    force_setattr(episode, "info", Angry(PLACES))
    with EpisodeWriter(tmp_path) as writer:
        assert writer.append_or_error(episode).end_reason == "error"


# ---------------------------------------------------------------------- the folder
def fill_disk(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def write_half(descriptor, data, write=os.write):
    return write(descriptor, data[: len(data) // 2])


@pytest.mark.parametrize(("write", "close"), [
    (fill_disk, None), (write_half, None), (os.write, EpisodeWriter.close),
    (os.write, lambda writer: os.close(writer._fd)),
])  # fmt: skip
def test_a_folder_that_cannot_be_written_ends_the_run_and_keeps_what_is_stored(tmp_path, monkeypatch, write, close):
    writer = EpisodeWriter(tmp_path)
    writer.append(make(answer={"label": "safe"}))
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        if close:
            close(writer)
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
