"""Pairs the episodes of two runs by task."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class PlayedEpisode(NamedTuple):
    """What is kept of an episode that has a score."""

    line: int
    key: tuple[int, int] | None  # (seed of the run, number of the sample), if it has both
    values: dict[str, float | None]
    group: str


class EpisodePair(NamedTuple):
    """Two episodes of a task, or the means of its episodes, one of each run."""

    task: str
    a: PlayedEpisode
    b: PlayedEpisode


def pair_episodes(
    a: Mapping[str, list[PlayedEpisode]], b: Mapping[str, list[PlayedEpisode]]
) -> tuple[list[EpisodePair], int]:
    """The pairs, and the number of tasks that are paired episode by episode."""
    pairs, by_sample = [], 0
    for task in a.keys() & b.keys():
        keyed = [{one.key: one for one in played} for played in (a[task], b[task])]
        if (
            None not in keyed[0]
            and keyed[0].keys() == keyed[1].keys()
            and len(keyed[0]) == len(a[task]) == len(b[task])
        ):
            pairs += [EpisodePair(task, one, keyed[1][key]) for key, one in keyed[0].items()]
            by_sample += 1
        else:
            pairs.append(EpisodePair(task, _average(a[task]), _average(b[task])))
    return sorted(pairs, key=lambda pair: (pair.a.line, pair.b.line)), by_sample


def _average(played: Sequence[PlayedEpisode]) -> PlayedEpisode:
    """The means of a task's episodes; the line is that of the first."""
    means: dict[str, float | None] = {}
    for name in dict.fromkeys(name for one in played for name in one.values):
        values = [value for one in played if (value := one.values.get(name)) is not None]
        means[name] = sum(values) / len(values) if values else None
    return played[0]._replace(values=means)
