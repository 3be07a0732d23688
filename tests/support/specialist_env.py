"""An environment that offers the specialists of a test, and the results of calls in it."""

import json

import numpy as np

import viewbox
from viewbox.core.base import BaseMultiTurnEnv
from viewbox.records import Task
from viewbox.rewards import TokenF1Reward


class Clinic(BaseMultiTurnEnv):
    """Each task has a picture of its own: `number` is the seed of its noise."""

    name = "clinic"
    tools = ()
    max_turns = 8
    reward = TokenF1Reward("text")
    num_tasks: int = 16
    width: int = 48

    @property
    def tasks(self):
        return [Task(f"t{i}", prompt={"number": i}, reference={"text": "done"}) for i in range(self.num_tasks)]

    def images(self, task):
        rng = np.random.default_rng(task.prompt["number"])
        return [rng.integers(0, 256, (32, self.width), np.uint8)]


def call(name, **arguments):
    return f"<tool_call>{json.dumps({'name': name, 'arguments': {'image': 'image_1', **arguments}})}</tool_call>"


def get_results(env, *calls, task=0):
    """The results of the calls of one reply."""
    policy = viewbox.ScriptedPolicy(["\n".join(calls), "done"])
    return env.play(env.tasks[task], policy).turns[2].tool_results


def offer(kind, folder, env=Clinic, settings=None, **spec):
    """An environment that offers the model of a folder as the tool `look`."""
    look = {"kind": kind, "model": str(folder), "device": "cpu", **spec}
    return env(specialists={"look": look}, **(settings or {}))


def get_picture(env, task=0):
    """What a model is given of a task as it begins."""
    return env.reset(env.tasks[task], seed=0).view.render().convert("RGB")
