"""The same task, seed and replies: the same bytes, in every process, whatever order things finish in.

Run as a script, this file plays and prints everything the model was shown and every record: a line of JSON each.
"""

import asyncio
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, RootModel

from viewbox.core.base import BaseMultiTurnEnv
from viewbox.core.messages import to_openai_messages
from viewbox.images.ref import ImageRef
from viewbox.records import Message, Reply, Task, ToolCall
from viewbox.rewards import CombinedReward, ExactMatchReward, IoUReward
from viewbox.tools import Picture, ToolOutput

CHANCE = random.Random(os.urandom(8))  # how long things take: another time in every process


async def search(query: str) -> dict:
    """Finds a set of words, some time."""
    await asyncio.sleep(CHANCE.random() / 50)
    return {"words": {f"{query} {name}" for name in NAMES}}


def outline(image: Picture) -> ToolOutput:
    """Draws on a picture, some time."""
    asyncio.run(asyncio.sleep(CHANCE.random() / 50))
    pixels = image.to_gray().copy()
    pixels[:2] = 255
    return ToolOutput("drawn", {"mean": float(image.to_gray().mean())}, pixels)


class Names(RootModel[set[str]]):
    """A set that is a model."""


@dataclass
class Part:
    names: set[str]


class Finding(BaseModel):
    model_config = ConfigDict(serialize_by_alias=True)
    label: str
    bbox: tuple[float, float, float, float] | None = None
    view: int = 0
    seen: frozenset[str] = frozenset()
    other: set[str] = Field(default_factory=set, alias="renamed")
    root: Names | None = None
    part: Part | None = None


class Ward(BaseMultiTurnEnv):
    name = "ward"
    answer: ClassVar = Finding
    boxes = ("bbox",)
    view_field = "view"
    tools = ("zoom", "crop", "invert", "get_intensity_stats", "undo", "reset", search, outline)
    max_turns = 12

    def default_reward(self):
        return CombinedReward({"label": (ExactMatchReward("label"), 0.5), "box": (IoUReward("bbox"), 0.5)})

    def on_answer(self, state, answer):
        return "Are you sure?" if answer["label"] == "?" else None


def call(name: str, **arguments: object) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def answer(label: str = "left", **fields: object) -> str:
    return json.dumps({"label": label, "bbox": [0.1, 0.1, 0.5, 0.5], "view": 0, **fields})


NAMES = ["one", "two", "three", "four", "five"]
REPLIES: tuple[Reply | str, ...] = (
    call("outline", image="view_0")
    + call("search", query="left")
    + call("zoom", factor=2)
    + call("outline", image="image_1")
    + call("search", query="right"),
    "I see it.",
    Reply("", (ToolCall("a", "invert"), ToolCall("b", "get_intensity_stats", '{"box": [0, 0, 0.5, 0.5]}'))),
    answer(bbox=[0, 0, 2, 2], more=1),
    answer(**{"continue": "yes"}),
    call("zoomm", factor=2) + call("crop", bocks=[0, 0, 1, 1]) + "<tool_call>{</tool_call>",
    answer("?"),
    "{'label': 'left', 'bbox': [0.1, 0.1, 0.5, 0.5], 'view': 2, 'seen': NAMES, 'renamed': NAMES, 'root': NAMES, "
    "'part': {'names': NAMES},}".replace("NAMES", str(NAMES)),
)
REFERENCE = {"label": "left", "bbox": [0.2, 0.2, 0.6, 0.6]}
HISTORIES = ("full", {"last_images": 2})
PIXELS = np.arange(64 * 48, dtype=np.uint32).reshape(48, 64) // 13 % 256
TASKS = [
    Task(f"t{i}", (ImageRef.of(Image.fromarray((PIXELS + i).astype(np.uint8))),), {"question": "What?"}, REFERENCE)
    for i in range(3)
]


def played(seed: int = 0) -> Iterator[str]:
    """Everything that is shown to the model, reply by reply, and the records."""
    for history in HISTORIES:
        env, shown = Ward(history=history, max_pixels=2000), []

        async def policy(messages: list[Message]) -> Reply | str:
            shown.append(json.dumps(to_openai_messages(messages)))  # noqa: B023  (is awaited before the next turn)
            await asyncio.sleep(CHANCE.random() / 200)
            return REPLIES[sum(message.role == "assistant" for message in messages)]

        async def all_of_them() -> list[str]:
            plays = [env.play_async(task, policy, seed=seed + i) for i, task in enumerate(TASKS)]  # noqa: B023
            return [episode.to_json() for episode in await asyncio.gather(*plays)]

        records = asyncio.run(all_of_them())
        yield from sorted(shown)  # episodes take turns in no order
        yield from records


def elsewhere(hash_seed: str) -> list[str]:
    """The same plays in a process of their own."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_messages_and_records_are_the_same_bytes_in_every_process():
    here = list(played())
    assert here == elsewhere("0") == elsewhere("4242")
    assert len(here) == len(HISTORIES) * len(TASKS) * (len(REPLIES) + 1)


def test_the_plays_that_are_compared_hold_all_that_could_differ():
    episode = json.loads(list(played())[-1])
    results = [result for turn in episode["turns"] for result in turn["tool_results"]]
    assert [result["tool_name"] for result in results[:5]] == ["outline", "search", "zoom", "outline", "search"]
    assert [result["facts"].get("view") for result in results[:5]] == [1, None, 2, 3, None]
    assert [result["error"] is None for result in results[5:]] == [True, True, False, False, False]
    answer = episode["answer"]
    sets = (answer["seen"], answer["renamed"], answer["root"], answer["part"]["names"])
    assert [sorted(names) for names in sets] == [sorted(NAMES)] * 4
    assert episode["end_reason"] == "answered"
    assert episode["flags"] == ["repaired"]
    assert episode["info"]["malformed"] == 2


if __name__ == "__main__":
    print("\n".join(played()))
