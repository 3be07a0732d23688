"""A check that every environment should pass on its own tasks: a gold answer scores 1.0, a missing answer 0."""

from collections.abc import Iterable, Mapping
from itertools import islice
from math import isclose
from typing import Any, Protocol

from ..records import Task
from .combined import CombinedReward


class RewardedTasks(Protocol):
    """The parts of an environment that the check reads. It may also have `perfect_answer(task)`."""

    @property
    def tasks(self) -> Iterable[Task]: ...

    @property
    def reward(self) -> CombinedReward: ...


def check_rewards(env: RewardedTasks, num_tasks: int = 20) -> list[str]:
    """Check the reward of an environment on its first `num_tasks` tasks; returns a sentence for each problem.

    The gold answer is `env.perfect_answer(task)` if the environment has that method (boxes as fractions, nothing
    rounded), else the reference itself. It must score 1.0, in total and in every component that applies.
    `None`, an empty object and the gold answer with all fields emptied must score 0. Components that read an episode
    do not apply, because no episode is played.

    >>> from types import SimpleNamespace as Env
    >>> from viewbox.rewards import ExactMatchReward, to_combined
    >>> task = Task("t1", reference={"label": "cyst"})
    >>> check_rewards(Env(tasks=[task], reward=to_combined(ExactMatchReward("label"))))
    []
    >>> check_rewards(Env(tasks=[task], reward=to_combined(ExactMatchReward("lable"))))
    ['task t1: gold scores 0.0 (exact_match: 0.0); expected 1.0']
    """
    return [problem for task in islice(iter(env.tasks), num_tasks) for problem in _check_task(env, task)]


def _check_task(env: RewardedTasks, task: Task) -> list[str]:
    perfect_answer = getattr(env, "perfect_answer", None)
    gold = task.reference if perfect_answer is None else perfect_answer(task)
    total, scores = env.reward.score(gold, task.reference)
    problems: list[str] = []
    if total is None or not all(isclose(value, 1.0) for value in (total, *scores.values()) if value is not None):
        listed = ", ".join(f"{name}: {value}" for name, value in scores.items())
        problems.append(f"task {task.id}: gold scores {total} ({listed}); expected 1.0")
    empty: list[Mapping[str, Any] | None] = [None, {}, dict.fromkeys(gold), dict.fromkeys(gold, "")]
    for answer in empty:
        score, _ = env.reward.score(answer, task.reference)
        if score not in (None, 0.0):
            problems.append(f"task {task.id}: the answer {answer} scores {score}; expected 0")
    return problems
