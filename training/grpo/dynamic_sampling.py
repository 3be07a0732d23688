"""Dynamic sampling: groups that teach nothing give way to groups of other tasks (DAPO, arXiv 2503.14476).

A group whose members all earn the same has advantages of zero. Such groups are replaced, in at most as many rounds as
the setting says; what still has no spread then stays in the batch, so a step's work is bounded. Everything here is a
pure function of its arguments: which tasks come next depends on the run's seed and the sample numbers already given.
"""

import random
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice
from typing import TypeVar

from viewbox.errors import ConfigError

T = TypeVar("T")
ALIKE = 1e-6  # rewards this close are the same, as in frac_reward_zero_std


def check_groups(rounds: int, batch: int, group: int) -> None:
    """Raises `ConfigError` where a process would hold parts of groups: it could not tell whether they have a spread.

    >>> check_groups(1, 6, 4)
    Traceback (most recent call last):
    viewbox.errors.ConfigError: train.resample = 1: a process plays 6 episodes, which are not whole groups of \
train.num_generations = 4; allowed: 0, or a multiple of 4 episodes (train.per_device_train_batch_size x \
train.steps_per_generation)
    """
    if rounds and batch % group:
        raise ConfigError(
            f"train.resample = {rounds}: a process plays {batch} episodes, which are not whole groups of "
            f"train.num_generations = {group}; allowed: 0, or a multiple of {group} episodes "
            "(train.per_device_train_batch_size x train.steps_per_generation)"
        )


def without_spread(rewards: Sequence[float | None], group: int) -> list[int]:
    """The places of the groups whose rewards are all the same; a None (a sample that cannot be used) does not count.

    >>> without_spread([0.5, 0.5, 0.0, 1.0, None, 1.0], group=2)
    [0, 2]
    """
    found = []
    for place in range(len(rewards) // group):
        counted = [reward for reward in rewards[place * group : (place + 1) * group] if reward is not None]
        if not counted or max(counted) - min(counted) < ALIKE:
            found.append(place)
    return found


def other_tasks(tasks: Sequence[int], taken: Collection[int], count: int, seed: int) -> list[int]:
    """Up to `count` of `tasks` that are not `taken`, each once, in an order fixed by `seed`.

    >>> other_tasks(range(5), {0, 1}, 9, seed=0) == other_tasks(range(5), {0, 1}, 9, seed=0)
    True
    >>> sorted(other_tasks(range(5), {0, 1}, 9, seed=0))
    [2, 3, 4]
    """
    taken = set(taken)
    drawn = random.Random(seed).sample(range(len(tasks)), min(len(tasks), count + len(taken)))
    found = dict.fromkeys(tasks[row] for row in drawn)
    return list(islice((task for task in found if task not in taken), count))


def resampled(
    batch: Sequence[T],
    group: int,
    rounds: int,
    others: Iterable[int],
    reward: Callable[[T], float | None],
    play: Callable[[list[int]], Sequence[T]],
) -> tuple[list[T], int]:
    """The batch with its groups without spread replaced, and how many groups were played in their stead.

    `play` gives the episodes of the tasks it is called with, once a round; `others` are the tasks to draw from. Ends
    early where every group has a spread, or no task is left.
    """
    kept, replaced, left = list(batch), 0, iter(others)
    for _ in range(rounds):
        flat = without_spread([reward(one) for one in kept], group)
        drawn = list(islice(left, len(flat)))
        if not drawn:
            break
        played = play([task for task in drawn for _ in range(group)])
        for i, place in enumerate(flat[: len(drawn)]):
            kept[place * group : (place + 1) * group] = played[i * group : (i + 1) * group]
        replaced += len(drawn)
    return kept, replaced
