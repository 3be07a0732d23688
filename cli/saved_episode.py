"""Finds one saved episode, for `viewbox picture` and `viewbox reward try`."""

from itertools import islice
from pathlib import Path

from viewbox.errors import StoreError
from viewbox.records import Episode
from viewbox.rollouts.store.reader import load


def load_episode(run: str, number: int) -> tuple[Episode, Path]:
    """The episode with this number, and the folder that holds it. Only readable episodes count, from 0.

    Raises:
        StoreError: there are no episodes, or fewer than `number` + 1.
    """
    episodes = load(run, errors="skip")
    episode = next(islice(episodes, number, None), None)
    if episode is None:
        count = sum(1 for _ in load(run, errors="skip"))
        allowed = f"; allowed: 0 to {count - 1}" if count else ""
        raise StoreError(f"episode {number}: {run} holds {count} readable episodes{allowed}")
    return episode, episodes.folder


def find_best_episode(run: str) -> Episode:
    """The episode with the highest reward among those that used a tool; if none did, among all.

    Raises:
        StoreError: no episode can be read.
    """

    def rank(episode: Episode) -> tuple[bool, float]:
        total = episode.scores.total if episode.scores else None
        return bool(episode.tools_used()), -1.0 if total is None else total

    best = max(load(run, errors="skip"), key=rank, default=None)
    if best is None:
        raise StoreError(f"{run} holds no readable episodes")
    return best
