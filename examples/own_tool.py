"""An environment with a tool of its own: a function of the view, whose docstring is what the model reads.

python examples/own_tool.py
viewbox rollout --env examples/own_tool.py:Brightest --model package:tiny_viewer --tasks 5
"""

import json

import numpy as np
from pydantic import BaseModel

import viewbox
from viewbox.core.tasks import ProceduralTasks


class Side(BaseModel):
    brighter: str


def compare_halves(view):
    """Measure the mean brightness of the left and the right half of the current view."""
    pixels = np.asarray(view.render().convert("L"), dtype=float)
    left, right = np.array_split(pixels, 2, axis=1)
    return {"left": left.mean(), "right": right.mean()}


class Brightest(viewbox.BaseMultiTurnEnv):
    """Which half of a noisy image is brighter, left or right?"""

    name = "brightest"
    answer = Side
    tools = ("zoom", compare_halves)  # a built-in tool by name, an own one as the function
    max_turns = 4
    reward = viewbox.ExactMatchReward(field="brighter")
    num_tasks: int = 100

    @property
    def tasks(self):
        return ProceduralTasks(self.num_tasks, self.build_task)

    def build_task(self, seed):
        side = "left" if np.random.default_rng(seed).random() < 0.5 else "right"
        question = {"question": "Which half is brighter?"}
        return viewbox.Task(f"side-{seed}", prompt=question, reference={"brighter": side}, metadata={"seed": seed})

    def images(self, task):
        pixels = np.random.default_rng(task.metadata["seed"]).integers(0, 200, (96, 128), dtype=np.uint8)
        half = slice(0, 64) if task.reference["brighter"] == "left" else slice(64, 128)
        pixels[:, half] += 20
        return [pixels]


if __name__ == "__main__":
    env = Brightest()
    task = env.tasks[0]
    call = '<tool_call>{"name": "compare_halves", "arguments": {}}</tool_call>'
    episode = env.play(task, viewbox.ScriptedPolicy([call, json.dumps(dict(task.reference))]))
    print(episode.turns[2].tool_results[0].text)
    print(episode.end_reason, episode.scores.total)
