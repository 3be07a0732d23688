"""What the tests of the turn loop share: two small environments, replies, and a play that goes one reply at a time."""

import asyncio
import json
import subprocess
import sys
from typing import ClassVar

from PIL import Image
from pydantic import BaseModel

from viewbox.envs.base import BaseMultiTurnEnv
from viewbox.images.ref import ImageRef
from viewbox.records import Task
from viewbox.rewards import ExactMatchReward
from viewbox.rollouts.scripted import ScriptedPolicy

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
    """Answers with JSON; tools' text stands without boundary marks, so that it can be compared."""

    name = "find"
    answer: ClassVar = Finding
    boxes = ("bbox",)
    max_turns = 6
    boundary = False

    def default_reward(self):
        return ExactMatchReward("label")


class Plain(BaseMultiTurnEnv):
    """No answer schema: plain text answers."""

    name = "plain"
    max_turns = 3
    boundary = False

    def default_reward(self):
        return ExactMatchReward("text", reference_field="label")


def call(name="zoom", **arguments):
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def answer(label="left", **fields):
    return json.dumps({"label": label, **fields})


NOTES = answer(**{"continue": True})


class Play:
    """One play, a reply at a time, as a driver plays it."""

    def __init__(self, env, task=TASK, seed=0):
        self.env, self.state = env, env.reset(task, seed=seed)

    def say(self, *replies):
        for reply in replies:
            self.result = asyncio.run(self.env.step(self.state, reply))
        return self.result

    def build_episode(self, run_config=None):
        return self.env.build_episode(self.state, run_config)

    def told(self, *replies):
        """The environment's words to the last reply."""
        return "\n".join(message.text for message in self.say(*replies).messages)


def played(env, *replies, task=TASK, seed=0):
    return env.play(task, ScriptedPolicy(replies), seed=seed)


async def ask(question: str) -> str:
    """Answers with what it was asked."""
    return f"you asked {question}"


def with_tools(*functions, **settings):
    """An environment that offers these tools beside zoom and reset."""
    return Find(tools=[*functions, "zoom", "reset"], **settings)


def elsewhere_and_here(script: str, folder, hash_seed: int) -> tuple[str, str]:
    """The variable `line` that a script makes: in another process with that PYTHONHASHSEED, and in this one."""
    there = subprocess.run(
        [sys.executable, "-c", script + "print(line)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env={"PYTHONHASHSEED": str(hash_seed), "PYTHONUTF8": "1"},
    ).stdout.removesuffix("\n")
    here: dict = {}
    exec(script, here)
    return there, here["line"]
