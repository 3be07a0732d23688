"""The best answer without the picture, which every held-out figure is read beside."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from ...core.base import BaseMultiTurnEnv
from ...errors import ConfigError
from ...records import Episode, Task

MAX_TASKS = 200
MAX_ANSWERS = 40  # that are tried for a question, the most frequent first


def measure_blind(env: BaseMultiTurnEnv, tasks: Sequence[Task]) -> float | None:
    """Return the mean reward of the best answers that know only the question; None if no right answer can be written,
    or the reward asks a service.

    A task gets the right answer of another one with the same question, or of any other if it is the only one with its:
    that which scores best on all of these but the task itself. So no answer is chosen by its own score.

    >>> from viewbox.envs.digits import Digits
    >>> round(measure_blind(Digits(), Digits().tasks[:40]), 2) < 0.3  # a digit in ten, and no box
    True
    """
    selected = list(tasks[:MAX_TASKS])
    if any(env.for_task(task).reward.is_blocking for task in selected):
        return None
    try:
        golds = {task.id: env.for_task(task).write_answer(task) for task in selected}
    except ConfigError:
        return None
    groups = defaultdict[str, list[Task]](list)
    for task in selected:
        groups[env.for_task(task).user_message(task)].append(task)
    alone = [group[0] for group in groups.values() if len(group) == 1]
    found = [_score_group(env, group, group, golds) for group in groups.values() if len(group) > 1]
    found += [_score_group(env, alone, selected, golds)] if alone and len(selected) > 1 else []
    scores = np.concatenate([np.empty(0), *found])
    return float(np.nanmean(scores)) if np.isfinite(scores).any() else None


def _score_group(
    env: BaseMultiTurnEnv, tasks: Sequence[Task], among: Sequence[Task], golds: dict[str, str]
) -> np.ndarray:
    """Return the score of the best answer of each task, (tasks,)."""
    answers = [text for text, _ in Counter(golds[task.id] for task in among).most_common(MAX_ANSWERS)]
    table = np.array([[_score(env, task, text) for task in among] for text in answers])  # (answers, among)
    known = np.nan_to_num(table)
    others = known.sum(axis=1, keepdims=True) - known
    best = others.argmax(axis=0)
    places = [number for number, task in enumerate(among) if any(task is one for one in tasks)]
    return table[best[places], places]


def _score(env: BaseMultiTurnEnv, task: Task, text: str) -> float:
    played = env.for_task(task)
    answer = played.read_answer(text, task)
    total = None if answer is None else played.score(Episode(task, answer=answer, end_reason="answered")).total
    return math.nan if total is None else total
