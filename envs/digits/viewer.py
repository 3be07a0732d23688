"""A scripted viewer of `digits`, for demonstrations and as the oracle.

It can find and read, but as a demonstrator it often answers without looking, looks once too far, or stops before it
has looked: what it shows is the format, where the digit is, and how to read it, not *that one should look first*.
"""

import json
from dataclasses import dataclass

import numpy as np

from viewbox.envs.digits.canvas import LABELS
from viewbox.envs.digits.env import Digits
from viewbox.images.coordinates import from_unit
from viewbox.records import Task


@dataclass(frozen=True)
class Habits:
    """How often a demonstration does what; the rest looks once in the right place and reads."""

    guess: float = 0.6  # answers from the overview: the box is right, the label a guess
    too_far: float = 0.1  # looks, then looks again closer than is needed, and reads
    astray: float = 0.1  # looks well beside the digit and guesses


def call(env: Digits, factor: float, x: float, y: float) -> str:
    """A zoom about a point (fractions of the current view) in the tool-call format of the prompt."""
    center = list(from_unit((x, y), env.coordinates, env.overview_size))
    body = json.dumps({"name": "zoom", "arguments": {"factor": factor, "center": center}})
    return f"<tool_call>\n{body}\n</tool_call>"


def answer(env: Digits, task: Task, label: str | None = None) -> str:
    """The final answer with the right box, and the right label unless another is given."""
    return json.dumps(env.gold_answer(task) | ({"label": label} if label else {}))


def gold_look(env: Digits, task: Task) -> str:
    """The look that makes the digit readable: four times closer, centered on it."""
    x1, y1, x2, y2 = task.reference["bbox"]
    return call(env, 4, (x1 + x2) / 2, (y1 + y2) / 2)


def demonstration(env: Digits, task: Task, seed: int, habits: Habits) -> list[str]:
    """The replies of one demonstration, in order."""
    rng = np.random.default_rng([seed, 2])
    kind = rng.random()
    wrong = str(rng.choice(LABELS))
    if kind < habits.guess:
        return [answer(env, task, wrong)]
    x1, y1, x2, y2 = task.reference["bbox"]
    x, y = (x1 + x2) / 2, (y1 + y2) / 2
    if kind < habits.guess + habits.too_far:
        # the second zoom is about the middle of the first view: still on the digit, only larger
        return [gold_look(env, task), call(env, 2, 0.5, 0.5), answer(env, task)]
    if kind < habits.guess + habits.too_far + habits.astray:
        x, y = rng.uniform(0.1, 0.9, size=2)
        shown = max(abs(x - (x1 + x2) / 2), abs(y - (y1 + y2) / 2)) < 0.1
        return [call(env, 4, x, y), answer(env, task, None if shown else wrong)]
    near = rng.normal(0, 0.006, size=2)  # an honest look is not perfectly centered
    return [call(env, 4, x + near[0], y + near[1]), answer(env, task)]
