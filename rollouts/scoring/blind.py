"""The best answer without the picture, which every held-out figure is read beside."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from ...core.base import BaseMultiTurnEnv
from ...records import Episode, Task
from ...utils.concurrency import contain_exit

MAX_TASKS = 200
MAX_CALLS = 4_000  # of the reward: with 200 tasks the 20 most frequent answers are tried


def measure_blind(env: BaseMultiTurnEnv, tasks: Sequence[Task]) -> float | None:
    """Return the mean reward of the best answers that know only the question; None if fewer than two right answers can
    be written, or the reward asks a service. A task gets the right answer of some task: that which scores best on the
    others with the same question, or on all others if none shares its own. So no answer is chosen by its own score.

    >>> from viewbox.envs.digits import Digits
    >>> round(measure_blind(Digits(), Digits().tasks[:40]), 2) < 0.3  # a digit in ten, and no box
    True
    """
    selected, golds, asked = list[Task](), list[str](), list[str]()
    for task in tasks[:MAX_TASKS]:
        try:
            with contain_exit():
                task_env = env.for_task(task)
                if task_env.reward.is_blocking:
                    return None
                gold, question = task_env.write_answer(task), task_env.user_message(task)
        except Exception:  # an author's code may raise anything; it costs its task
            continue
        selected.append(task)
        golds.append(gold)
        asked.append(question)
    if len(selected) < 2:
        return None
    frequent = Counter(golds).most_common(MAX_CALLS // len(selected))
    table = np.array([[_score(env, task, text) for task in selected] for text, _ in frequent])
    others = ~np.eye(len(selected), dtype=bool)
    same = (np.array(asked)[:, None] == np.array(asked)) & others
    same = np.where(same.any(axis=1, keepdims=True), same, others)
    best = (np.nan_to_num(table) @ same.T).argmax(axis=0)
    scores = table[best, np.arange(len(selected))]
    return float(np.nanmean(scores)) if np.isfinite(scores).any() else None


def _score(env: BaseMultiTurnEnv, task: Task, text: str) -> float:
    try:
        with contain_exit():
            played = env.for_task(task)
            answer = played.read_answer(text, task)
            total = None if answer is None else played.score(Episode(task, answer=answer, end_reason="answered")).total
    except Exception:
        total = None
    return math.nan if total is None else total
