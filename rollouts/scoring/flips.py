"""The rewards of each pair of episodes, and the tasks that only one of two runs solves."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from viewbox.rollouts.scoring.pairing import EpisodePair

SOLVED = 0.5  # a task is solved if its reward is at least this
MAX_FLIPS = 1000  # tasks that are listed, of each direction


class PairedReward(NamedTuple):
    """The rewards of a pair; `a_line` and `b_line` are lines of episodes.jsonl."""

    task: str
    a: float
    b: float
    a_line: int
    b_line: int


@dataclass(frozen=True)
class Flip:
    """A task that one side solves and the other does not; `a_line` and `b_line` are lines of episodes.jsonl."""

    task: str
    a: float
    b: float
    a_line: int
    b_line: int


def get_rewards(pair: EpisodePair, name: str) -> PairedReward:
    """The score of this name on both sides of a pair."""
    a, b = (float(one.values[name] or 0.0) for one in (pair.a, pair.b))
    return PairedReward(pair.task, a, b, pair.a.line, pair.b.line)


def find_flips(rewards: Sequence[PairedReward]) -> tuple[tuple[Flip, ...], tuple[Flip, ...]]:
    """The tasks that only b solves, and those that only a solves; a task counts once, with its largest change."""
    flips: tuple[dict[str, Flip], dict[str, Flip]] = ({}, {})
    for pair in rewards:
        if (pair.a >= SOLVED) == (pair.b >= SOLVED):
            continue
        found = flips[0 if pair.b > pair.a else 1]
        if pair.task not in found or abs(pair.b - pair.a) > abs(found[pair.task].b - found[pair.task].a):
            found[pair.task] = Flip(*pair)
    gained, lost = (
        tuple(sorted(some.values(), key=lambda flip: (-abs(flip.b - flip.a), flip.task))[:MAX_FLIPS]) for some in flips
    )
    return gained, lost
