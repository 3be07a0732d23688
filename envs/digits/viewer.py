"""A scripted viewer of `digits`, for demonstrations and as the oracle.

It can find and read the digit. As a demonstrator it often answers without looking, zooms once too often, or zooms in on
the wrong place. Its demonstrations teach the format, where the digit is and how to read it, but *not to look first*:
that is left to training.
"""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.messages import write_call
from ...images.coordinates import from_unit
from ...records import Task
from .canvas import LABELS


@dataclass(frozen=True)
class Habits:
    """Shares of the kinds of demonstrations; the others zoom once in on the digit and read it."""

    guess: float = 0.6  # answers from the overview: the box is right, the label is a guess
    too_far: float = 0.1  # zooms in twice, closer than needed, and reads
    astray: float = 0.1  # zooms in far from the digit and guesses


def write_zoom(env: Any, factor: float, x: float, y: float) -> str:
    """Return a zoom about a point (fractions of the current view) in the tool-call format of the prompt."""
    center = list(from_unit((x, y), env.coordinates, env.overview_size))
    return write_call("zoom", {"factor": factor, "center": center})


def write_answer(env: Any, task: Task, label: str | None = None) -> str:
    """Return the final answer with the right box, and with the right label unless `label` is another."""
    return json.dumps(env.gold_answer(task) | ({"label": label} if label else {}))


def write_gold_look(env: Any, task: Task) -> str:
    """Return the zoom that makes the digit readable: four times, centered on it."""
    x1, y1, x2, y2 = task.reference["bbox"]
    return write_zoom(env, 4, (x1 + x2) / 2, (y1 + y2) / 2)


def write_demonstration(env: Any, task: Task, seed: int, habits: Habits) -> list[str]:
    rng = np.random.default_rng([seed, 2])
    kind = rng.random()
    wrong = str(rng.choice(LABELS))
    if kind < habits.guess:
        return [write_answer(env, task, wrong)]
    x1, y1, x2, y2 = task.reference["bbox"]
    x, y = (x1 + x2) / 2, (y1 + y2) / 2
    if kind < habits.guess + habits.too_far:
        # the second zoom is centered on the first view: still on the digit, only larger
        return [write_gold_look(env, task), write_zoom(env, 2, 0.5, 0.5), write_answer(env, task)]
    if kind < habits.guess + habits.too_far + habits.astray:
        x, y = rng.uniform(0.1, 0.9, size=2)
        in_view = max(abs(x - (x1 + x2) / 2), abs(y - (y1 + y2) / 2)) < 0.1
        return [write_zoom(env, 4, x, y), write_answer(env, task, None if in_view else wrong)]
    near = rng.normal(0, 0.006, size=2)  # an honest look is not perfectly centered
    return [write_zoom(env, 4, x + near[0], y + near[1]), write_answer(env, task)]
