"""Finds one saved episode, for `viewbox picture` and `viewbox reward try`: RUN#LINE, or the best of a run."""

from pathlib import Path

from ..errors import ConfigError, StoreError
from ..records import Episode
from ..rollouts.store.reader import LINES, load

NAME = "RUN#LINE, a run folder and the number of the episode's line in it, from 1"


def split_name(name: str, option: str) -> tuple[str, int | None]:
    """The run and the line that a name gives; the line is None for a name without one.

    >>> split_name("runs/a#12", "RUN"), split_name("runs/a", "RUN")
    (('runs/a', 12), ('runs/a', None))
    """
    run, mark, line = name.rpartition("#")
    if not mark:
        return name, None
    if not run or not line.isdecimal() or len(line) > 12 or int(line) < 1:
        raise ConfigError(f"{option} {name!r}; allowed: {NAME}")
    return run, int(line)


def load_episode(run: str, line: int) -> tuple[Episode, Path]:
    """The episode in this line, and the folder that holds it.

    Raises:
        StoreError: there are no episodes, the line does not exist, or it cannot be read.
    """
    episodes = load(run, errors="skip")
    for episode in episodes:
        if episodes.line == line:
            return episode, episodes.folder
        if episodes.line > line:
            break
    where = f"{episodes.folder / LINES}, line {line}"
    if line in episodes.unreadable:
        raise StoreError(f"{where}: {episodes.unreadable[line]}")
    raise StoreError(f"{where}: there is no episode in this line; allowed: 1 to {episodes.line}")


def find_best_episode(run: str) -> tuple[Episode, int]:
    """The episode with the highest reward among those that used a tool (if none did, among all), and its line.

    Raises:
        StoreError: no episode can be read.
    """
    best: tuple[tuple[bool, float], Episode, int] | None = None
    episodes = load(run, errors="skip")
    for episode in episodes:
        total = episode.scores.total if episode.scores else None
        rank = bool(episode.tools_used()), -1.0 if total is None else total
        if best is None or rank > best[0]:
            best = rank, episode, episodes.line
    if best is None:
        raise StoreError(f"{run} holds no readable episodes")
    return best[1], best[2]
