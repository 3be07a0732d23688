"""Pairs the episodes of two runs by task: a task counts once, with the mean of its episodes on each side."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

SOLVED = 0.5  # a task is solved if its mean reward is at least this
SAME = 1e-9  # a smaller difference is a tie
MAX_FLIPS = 1000  # tasks that are listed, of each direction
SEVERAL = "(several)"  # the group of a task whose episodes have different values


class PlayedEpisode(NamedTuple):
    """What is kept of an episode that has a score."""

    line: int
    values: dict[str, float | None]
    group: str


class TaskMeans(NamedTuple):
    """The mean scores of a task's episodes in one run, their lines of episodes.jsonl, and their group."""

    values: dict[str, float | None]
    lines: tuple[int, ...]
    group: str


class TaskPair(NamedTuple):
    """A task that both runs played."""

    task: str
    a: TaskMeans
    b: TaskMeans


@dataclass(frozen=True)
class TaskReward:
    """The mean reward of a task on both sides; `a_line` and `b_line` are the first of the lines of its episodes."""

    task: str
    a: float
    b: float
    a_line: int
    b_line: int
    a_episodes: int = 1
    b_episodes: int = 1


def pair_tasks(a: Mapping[str, list[PlayedEpisode]], b: Mapping[str, list[PlayedEpisode]]) -> list[TaskPair]:
    """The tasks of both, in the order of the first."""
    return [TaskPair(task, _average(a[task]), _average(b[task])) for task in a if task in b]


def _average(played: Sequence[PlayedEpisode]) -> TaskMeans:
    means: dict[str, float | None] = {}
    for name in dict.fromkeys(name for one in played for name in one.values):
        values = [value for one in played if (value := one.values.get(name)) is not None]
        means[name] = math.fsum(values) / len(values) if values else None
    groups = {one.group for one in played}
    return TaskMeans(means, tuple(one.line for one in played), groups.pop() if len(groups) == 1 else SEVERAL)


def get_reward(pair: TaskPair, name: str) -> TaskReward:
    """The score of this name on both sides of a pair."""
    a, b = (float(one.values[name] or 0.0) for one in (pair.a, pair.b))
    return TaskReward(pair.task, a, b, pair.a.lines[0], pair.b.lines[0], len(pair.a.lines), len(pair.b.lines))


def find_flips(rewards: Sequence[TaskReward]) -> tuple[tuple[TaskReward, ...], tuple[TaskReward, ...]]:
    """The tasks that only b solves, and those that only a solves; the largest changes first."""
    flips: tuple[list[TaskReward], list[TaskReward]] = ([], [])
    for one in sorted(rewards, key=lambda one: (-abs(one.b - one.a), one.task)):
        if (one.a >= SOLVED - SAME) != (one.b >= SOLVED - SAME):
            flips[0 if one.b > one.a else 1].append(one)
    return tuple(flips[0][:MAX_FLIPS]), tuple(flips[1][:MAX_FLIPS])
