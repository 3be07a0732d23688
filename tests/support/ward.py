"""An environment whose tasks say which call is made: for faults of one episode's tool beside the others."""

import asyncio
import base64

import numpy as np
from PIL import Image

from tests.support.image_files import saved
from tests.support.replies import call
from viewbox.core.base import BaseMultiTurnEnv
from viewbox.records import Task
from viewbox.rewards import TokenF1Reward
from viewbox.rollouts.play import play_many

SIZE = (48, 32)  # of every picture


class Ward(BaseMultiTurnEnv):
    """Each task is a picture of one gray value."""

    name = "ward"
    tools = ("zoom",)
    reward = TokenF1Reward("text")

    def images(self, task):
        return [np.full(SIZE[::-1], 40 + len(task.id), np.uint8)]

    def user_message(self, task):
        return task.prompt["call"]


class ClosedWard(Ward):
    restricted = True


def make_tasks(*calls):
    """A task for each (tool, arguments)."""
    return [
        Task(f"t{number}", prompt={"call": call(tool, **arguments)}, reference={"text": "done"})
        for number, (tool, arguments) in enumerate(calls)
    ]


def follow(messages):
    """The policy: makes the call that the question asks for, then answers."""
    if sum(message.role == "assistant" for message in messages):
        return "done"
    question = messages[1].text
    return question[question.index("<tool_call>") : question.index("</tool_call>") + len("</tool_call>")]


def play(env, tasks, concurrency=64):
    """The episodes of all tasks, played at once, in the order of the tasks."""

    async def run():
        return [episode async for episode in play_many(env, tasks, follow, concurrency=concurrency)]

    return sorted(asyncio.run(run()), key=lambda episode: episode.info["index"])


def ask(env, tool, **arguments):
    """The result of one call."""
    (episode,) = play(env, make_tasks((tool, arguments)))
    return get_result(episode)


def get_result(episode):
    (result,) = (result for turn in episode.turns for result in turn.tool_results)
    return result


def make_png(size=SIZE, value=255, mode="L"):
    """A PNG of one value as Base64."""
    return base64.b64encode(saved(Image.new(mode, size, value), "PNG")).decode()
