"""What the tests of the turn loop share: two small environments, replies, and a play of one reply at a time."""

import asyncio
import json
from typing import ClassVar

from PIL import Image
from pydantic import BaseModel

from viewbox.core.base import BaseMultiTurnEnv
from viewbox.engines.scripted import ScriptedPolicy
from viewbox.images.ref import ImageRef
from viewbox.records import Task
from viewbox.rewards import ExactMatchReward

PICTURE = Image.linear_gradient("L").resize((80, 40))
TASK = Task("t", (ImageRef.of(PICTURE),), {"question": "What is it?"}, {"label": "left", "bbox": [0, 0, 0.5, 1]})

# How the default templates begin.
NUDGE = "Your reply could not be used"
FINALIZE = "Stop here."
LAST = "This is your last reply"


class Finding(BaseModel):
    label: str
    bbox: tuple[float, float, float, float] | None = None


class Find(BaseMultiTurnEnv):
    """Answers are JSON. Tool output has no boundary marks, so that tests can compare it."""

    name = "find"
    answer: ClassVar = Finding
    boxes = ("bbox",)
    max_turns = 6
    boundary = False

    def default_reward(self):
        return ExactMatchReward("label")


class Plain(BaseMultiTurnEnv):
    """Answers are plain text: there is no answer schema."""

    name = "plain"
    max_turns = 3
    boundary = False

    def default_reward(self):
        return ExactMatchReward("text", reference_field="label")


def write_call(name="zoom", **arguments):
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def write_answer(label="left", **fields):
    return json.dumps({"label": label, **fields})


NOTES = write_answer(**{"continue": True})


class Play:
    """One play, a reply at a time, as a driver would play it."""

    def __init__(self, env, task=TASK, seed=0):
        self.env, self.state = env, env.reset(task, seed=seed)

    def say(self, *replies):
        for reply in replies:
            self.result = asyncio.run(self.env.step(self.state, reply))
        return self.result

    def build_episode(self, run_config=None):
        return self.env.build_episode(self.state, run_config)

    def say_and_read(self, *replies):
        """Says the replies; returns the text of the environment's messages after the last one."""
        return "\n".join(message.text for message in self.say(*replies).messages)


def play_replies(env, *replies, task=TASK, seed=0):
    return env.play(task, ScriptedPolicy(replies), seed=seed)


async def ask(question: str) -> str:
    """Answers with what it was asked."""
    return f"you asked {question}"


def make_env_with_tools(*functions, **settings):
    """An environment that offers these tools beside zoom and reset."""
    return Find(tools=[*functions, "zoom", "reset"], **settings)
