"""Which episodes supervised training learns from: conditions on each, and the best of each task."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...configs.train_sections import TrainSection
from ...errors import ConfigError, StoreError
from ...records import Episode
from ...rollouts.scoring.filters import parse_filter


@dataclass(frozen=True)
class Selection:
    """The episodes that are kept, in their order, and how many were left out for each reason.

    >>> Selection((), {"train.where end_reason=answered": 3, "not the best of their task": 1}).describe()
    '0 of 4 episodes are kept; left out: 3 (train.where end_reason=answered), 1 (not the best of their task)'
    """

    kept: tuple[Episode, ...]
    left_out: Mapping[str, int]

    def describe(self) -> str:
        """Return the counts in one line."""
        total = len(self.kept) + sum(self.left_out.values())
        reasons = ", ".join(f"{count} ({reason})" for reason, count in self.left_out.items())
        return f"{len(self.kept)} of {total} episodes are kept" + (f"; left out: {reasons}" if reasons else "")


def select_episodes(episodes: Iterable[Episode], section: TrainSection) -> Selection:
    """Return the episodes that meet all conditions of `train.where`, and with `train.best_of_group` the best of each
    task. An episode that a fault ended is never kept. Of equal scores the first is the best; an episode without a score
    is not compared and left out. Raise `ConfigError` if a condition cannot be read."""
    try:
        conditions = [(text, parse_filter(text, "train.where")) for text in section.filters]
    except ConfigError as error:
        error.key = "train.where"
        raise
    left_out: Counter[str] = Counter()
    chosen: list[Episode] = []
    for episode in episodes:
        failed = next((text for text, meets in conditions if not meets(episode)), None)
        if episode.is_fault:
            left_out["a fault ended them"] += 1
        elif failed is not None:
            left_out[f"train.where {failed}"] += 1
        else:
            chosen.append(episode)
    if section.best_of_group:
        best = find_best_of_each_task(chosen)
        left_out["without a score"] = sum(_get_total(episode) is None for episode in chosen)
        left_out["not the best of their task"] = len(chosen) - left_out["without a score"] - len(best)
        chosen = best
    return Selection(tuple(chosen), {reason: count for reason, count in left_out.items() if count})


def find_best_of_each_task(episodes: Iterable[Episode]) -> list[Episode]:
    """Return the episode with the highest total of each task, by the order in which the tasks appear."""
    best: dict[tuple[str, str], tuple[float, Episode]] = {}
    for episode in episodes:
        total, key = _get_total(episode), (episode.environment, episode.task.id)
        if total is not None and (key not in best or total > best[key][0]):
            best[key] = total, episode
    return [episode for _, episode in best.values()]


def _get_total(episode: Episode) -> float | None:
    return None if episode.scores is None else episode.scores.total


def require_episodes(selection: Selection, what: str) -> None:
    """Raise `StoreError` with the counts if no episode is kept."""
    if not selection.kept:
        raise StoreError(f"{what}: {selection.describe()}; allowed: at least one to train on")
