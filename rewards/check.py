"""A check every environment passes: gold scores 1.0 and no answer scores 0, on its own tasks."""

from collections.abc import Mapping
from itertools import islice
from typing import Any

EMPTY: tuple[Mapping[str, Any] | None, ...] = (None, {})


def check_rewards(env: Any, tasks: int = 20) -> list[str]:
    """What is wrong with the reward of an environment on its first `tasks` tasks, in words; empty: nothing.

    Gold is `env.perfect_answer(task)` where the environment has that (an answer as rewards read it: boxes as
    fractions, nothing rounded), else the reference itself. It has to score 1.0 exactly, and every component that
    applies too; `None`, an empty object and every field emptied have to score 0. Components that read an episode do

    >>> from types import SimpleNamespace as Some
    >>> from viewbox.rewards import ExactMatchReward, guarded
    >>> task = Some(id="t1", reference={"label": "cyst"})
    >>> check_rewards(Some(tasks=[task], reward=guarded(ExactMatchReward("label"))))
    []
    >>> check_rewards(Some(tasks=[task], reward=guarded(ExactMatchReward("lable"))))
    ['task t1: gold scores 0.0 (exact_match: 0.0); expected 1.0']
    """
    found: list[str] = []
    for task in islice(iter(env.tasks), tasks):
        found += _wrong(env, task)
    return found


def _wrong(env: Any, task: Any) -> list[str]:
    perfect = getattr(env, "perfect_answer", None)
    gold = task.reference if perfect is None else perfect(task)
    total, parts = env.reward.score(gold, task.reference)
    found: list[str] = []
    if total != 1.0 or any(value not in (None, 1.0) for value in parts.values()):
        listed = ", ".join(f"{name}: {value}" for name, value in parts.items())
        found.append(f"task {task.id}: gold scores {total} ({listed}); expected 1.0")
    for empty in (*EMPTY, dict.fromkeys(gold), dict.fromkeys(gold, "")):
        nothing, _ = env.reward.score(empty, task.reference)
        if nothing not in (None, 0.0):
            found.append(f"task {task.id}: the answer {empty} scores {nothing}; expected 0")
    return found
