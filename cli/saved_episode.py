"""One saved episode, by its number: what `viewbox picture` and `viewbox reward try` ask for."""

from itertools import islice
from pathlib import Path

from viewbox.errors import StoreError
from viewbox.records import Episode
from viewbox.rollouts.store.reader import load


def load_episode(run: str, number: int) -> tuple[Episode, Path]:
    """The episode with this number among those that can be read, from 0, and the folder of episodes it is in.

    Raises:
        StoreError: there are no episodes here, or not so many.
    """
    episodes = load(run, errors="skip")
    episode = next(islice(episodes, number, None), None)
    if episode is None:
        count = sum(1 for _ in load(run, errors="skip"))
        allowed = f"; allowed: 0 to {count - 1}" if count else ""
        raise StoreError(f"episode {number}: {run} holds {count} episodes that can be read{allowed}")
    return episode, episodes.folder


def find_best_episode(run: str) -> Episode:
    """The episode with the greatest reward among those that used a tool; among all if none did.

    Raises:
        StoreError: there is no episode that can be read.
    """

    def rank(episode: Episode) -> tuple[bool, float]:
        return bool(episode.tools_used()), episode.scores.total if episode.scores else 0.0

    best = max(load(run, errors="skip"), key=rank, default=None)
    if best is None:
        raise StoreError(f"{run} holds 0 episodes that can be read")
    return best
