"""Which episodes supervised training learns from: conditions on each, and the best of each task."""

from collections.abc import Iterable

from ...configs.train_sections import TrainSection
from ...errors import ConfigError
from ...records import Episode
from ...rollouts.exchange.selection import SelectionReport
from ...rollouts.scoring.filters import parse_filter


def select_episodes(episodes: Iterable[Episode], section: TrainSection, report: SelectionReport) -> list[Episode]:
    """Return the episodes that meet all conditions of `train.where`, and with `train.best_of_group` the best of each
    task; `report` counts the others. An episode that a fault ended is never kept. Of equal scores the first is the
    best; an episode without a score is not compared and left out. Raise `ConfigError` if a condition cannot be read."""
    try:
        conditions = [(text, parse_filter(text, "train.where")) for text in section.filters]
    except ConfigError as error:
        error.key = "train.where"
        raise
    chosen: list[Episode] = []
    for episode in episodes:
        failed = next((text for text, meets in conditions if not meets(episode)), None)
        if episode.is_fault:
            report.left_out["a fault ended them"] += 1
        elif failed is not None:
            report.left_out[f"train.where {failed}"] += 1
        else:
            chosen.append(episode)
    if section.best_of_group:
        best = find_best_of_each_task(chosen)
        report.left_out["without a score"] = sum(_get_total(episode) is None for episode in chosen)
        report.left_out["not the best of their task"] = len(chosen) - report.left_out["without a score"] - len(best)
        chosen = best
    report.kept = len(chosen)
    return chosen


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
