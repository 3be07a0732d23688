"""Replies of a policy, one text and whole episodes: each ends with a named reason, is scored, stored and read again."""

import json
import math
import random
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel

from tests.fuzz.mutate import ODD_TEXTS, mutate_text, mutate_value, write_json
from tests.support import loop_kit, tool_play
from tests.support.specialist_env import Clinic
from viewbox.core.base import BaseMultiTurnEnv
from viewbox.envs import make
from viewbox.envs.digits import Digits
from viewbox.records import Task
from viewbox.rewards import ExactMatchReward
from viewbox.rollouts.store.reader import load
from viewbox.rollouts.store.writer import EpisodeWriter
from viewbox.tools import Box, Picture, Range, ToolOutput, ViewFractions

CPU_SECONDS = 5.0  # of up to six replies of 64 KiB and their tools
OBJECTS: tuple[Any, ...] = (
    {"label": "left", "bbox": [0.1, 0.1, 0.5, 0.9]},
    {"label": "seven", "bbox": [10, 10, 40, 40]},
    {"label": "left", "score": 0.5, "notes": {"a": ["b"]}, "many": [1.5, 2]},
    {"label": "left", "bbox": [0, 0, 5, 5], "view": 1},
    {"continue": True, "label": "left"},
    {"name": "zoom", "arguments": {"center": [0.5, 0.5], "factor": 2}},
    {"name": "crop", "arguments": {"box": [0.1, 0.1, 0.9, 0.9]}},
    {"name": "rotate", "arguments": {"angle": 90}},
    {"name": "reset", "arguments": {}},
    {"name": "ground", "arguments": {"image": "image_1", "phrase": "opacity", "within": [0, 0, 1, 1]}},
    {"name": "segment", "arguments": {"image": "image_1", "at_least": 100}},
    {"answer": "no", "findings": ["cardiomegaly"], "bbox": [0, 0, 500, 500]},
    {"ask": "What was found before?"},
)
FRAMES = (
    "{}", "<tool_call>{}</tool_call>", "```json\n{}\n```", "```tool\n{}\n```", "<think>so {}</think>{}",
    "So {} is it.",
)  # fmt: skip


class Measured(BaseModel):
    label: str
    score: float = 0.0
    notes: dict[str, Any] = {}
    many: list[float] = []


class Measure(BaseMultiTurnEnv):
    """An answer of free objects and floats."""

    name = "measure"
    answer: ClassVar = Measured
    max_turns = 3

    def default_reward(self):
        return ExactMatchReward("score", tolerance=0.1)


def segment(image: Picture, at_least: Annotated[int, Range(1, 255), "gray value"] = 128) -> ToolOutput:
    """Shows what is bright."""
    mask = image.to_gray() >= at_least
    return ToolOutput("bright regions", {"area_percent": 100 * mask.mean()}, mask)


async def ground(image: Picture, phrase: str, within: Box | None = None) -> ToolOutput:
    """The box of what a phrase names."""
    return ToolOutput(phrase, {"box": ViewFractions(within or (0.0, 0.0, 1.0, 1.0))})


@cache
def get_plays() -> tuple[tuple[BaseMultiTurnEnv, Task], ...]:
    digits = Digits()
    find = tool_play.FindInView(tools=("zoom", "crop", "rotate", "flip_horizontal", "undo", "reset", "window_level"))
    clinic, chest = Clinic(tools=(segment, ground, "zoom")), make("chest_xray")  # with a user who is asked
    text = Task("text", prompt={"question": "?"}, reference={"label": "left", "score": 0.5})
    return (
        (digits, digits.tasks[0]), (find, tool_play.TASK), (find, tool_play.TWO), (loop_kit.Plain(), loop_kit.TASK),
        (Measure(), text), (Measure(reply_format="native"), text), (clinic, clinic.tasks[0]),
        (chest, chest.tasks[0]),
    )  # fmt: skip


def make_case(chance: random.Random) -> bytes:
    replies = [make_reply(chance) for _ in range(chance.choice([1, 1, 2, 6]))]
    return json.dumps({"play": chance.randrange(len(get_plays())), "replies": replies}).encode()


def make_reply(chance: random.Random) -> str:
    value = chance.choice(OBJECTS)
    text = write_json(mutate_value(chance, value) if chance.random() < 0.6 else value)
    if chance.random() < 0.1:
        text = repr(value)
    text = chance.choice(FRAMES).replace("{}", text)
    others = [*ODD_TEXTS, *map(json.dumps, OBJECTS)]
    return mutate_text(chance, text, others)[:100_000] if chance.random() < 0.6 else text


def check_case(content: bytes, folder: Path) -> None:
    case = json.loads(content)
    env, task = get_plays()[case["play"]]
    replies = iter([*case["replies"], *["?"] * 50])
    episode = env.play(task, lambda messages: next(replies))
    assert episode.end_reason not in (None, "error"), episode.info
    for score in (episode.scores.total, *episode.scores.components.values()):
        assert score is None or (math.isfinite(score) and 0 <= score <= 1), score
    with EpisodeWriter(folder / "run") as writer:
        writer.append(episode)
    (folder / "run" / "episodes.jsonl").read_bytes().decode("utf-8")
    (stored,) = load(folder / "run")
    assert stored.answer == episode.answer
    assert stored.scores == episode.scores
