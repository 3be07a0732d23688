"""Scores the lines of a run, in several processes if nothing but built-in code is called."""

import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from viewbox.errors import ConfigError
from viewbox.network.data_policy import guard_sending
from viewbox.records import Episode, Scores
from viewbox.rewards.remote import count_threads, find_remote_address, iter_rewards
from viewbox.rollouts.scoring.data_policy import SharingCheck
from viewbox.rollouts.scoring.metric_samples import EnvironmentMetrics
from viewbox.rollouts.scoring.parallel import map_in_order, map_in_processes
from viewbox.rollouts.scoring.reward_source import RewardSource
from viewbox.rollouts.scoring.score_collector import ScoreCollector
from viewbox.rollouts.scoring.summary import EpisodeTally
from viewbox.rollouts.store.columns import encode_scores
from viewbox.rollouts.store.layout import LINES
from viewbox.rollouts.store.parts import LinePart, split_lines
from viewbox.rollouts.store.reader import MAX_UNREADABLE, load

MIN_PART = 4 * 2**20  # bytes: smaller runs are scored before other processes have begun
PARTS = 4  # for each process, so that all end at about the same time
MAX_PROCESSES = 16
GARBAGE = 200_000  # new containers before garbage is collected


@dataclass(frozen=True)
class ScoreJob:
    """How the episodes of a folder are scored.

    Args:
        folder: of the episodes.
        source: the reward.
        conditions: only episodes that meet all of them are scored.
        check_sharing: raises `ConfigError` if an episode must not be sent where the reward sends it.
        metrics: of the environment.
        group_by: a field.
    """

    folder: Path
    source: RewardSource
    conditions: Sequence[Callable[[Episode], bool]]
    check_sharing: SharingCheck
    metrics: EnvironmentMetrics
    group_by: str | None = None


@dataclass
class ScoredLines:
    """What was found in the lines of a run, or in a part of them; `totals` by task."""

    collector: ScoreCollector
    tally: EpisodeTally
    totals: dict[str, list[float]] = field(default_factory=dict)
    skipped: int = 0
    unreadable: dict[int, str] = field(default_factory=dict)
    refusal: str = ""  # the first: what an episode names is not allowed, or cannot be made

    def extend(self, other: "ScoredLines") -> None:
        """Add what was found in the lines that follow."""
        self.collector.extend(other.collector)
        self.tally.extend(other.tally)
        for task, totals in other.totals.items():
            self.totals.setdefault(task, []).extend(totals)
        self.skipped += other.skipped
        self.unreadable = dict([*self.unreadable.items(), *other.unreadable.items()][:MAX_UNREADABLE])
        self.refusal = self.refusal or other.refusal


class _ScoredEpisode(NamedTuple):
    line: int
    crc: int
    episode: Episode
    scores: Scores | None
    refusal: str = ""  # if there are no scores


def score_lines(job: ScoreJob, write: Callable[[bytes], object] | None = None) -> ScoredLines:
    """Score every episode; `write` gets the lines of a score column, in order.

    Raises:
        ConfigError: an episode must not be sent where the reward sends it, or there are too many groups.
    """
    with _collect_garbage_rarely():
        return _score_lines(job, write)


@contextmanager
def _collect_garbage_rarely() -> Iterator[None]:
    """Records hold no cycles, and a search of the numbers that are kept would take a third of the time."""
    thresholds = gc.get_threshold()
    gc.set_threshold(GARBAGE, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def _score_lines(job: ScoreJob, write: Callable[[bytes], object] | None) -> ScoredLines:
    size, processes = (job.folder / LINES).stat().st_size, count_processes(job)
    parts = split_lines(job.folder, max(MIN_PART, size // (PARTS * processes))) if processes > 1 else [LinePart()]
    if len(parts) == 1:
        return _score_part(job, parts[0], write)
    found = ScoredLines(ScoreCollector(job.group_by), EpisodeTally(scores=False, metrics=job.metrics))
    for part, lines in map_in_processes(partial(_score_for_parent, job, write is not None), parts, processes):
        found.extend(part)
        if write is not None:
            write(lines)
    return found


def count_processes(job: ScoreJob) -> int:
    """How many processes score a run: one for each core, or 1 if code that may keep a state is called.

    A copy of such code in another process would keep a state of its own. Nor is a process copied that has threads.
    """
    if sys.platform != "linux" or threading.active_count() > 1 or not _is_built_in(job):
        return 1
    return min(MAX_PROCESSES, len(os.sched_getaffinity(0)))


def _is_built_in(job: ScoreJob) -> bool:
    """Whether only viewbox's own code is called, which keeps no state and sends nothing."""
    reward, environment = job.source.reward, job.metrics.source
    if reward is None or count_threads(reward) > 1 or find_remote_address(reward) is not None:
        return False
    owners = [*iter_rewards(reward), *([] if environment is None or isinstance(environment, str) else [environment])]
    return not job.metrics.trusts_code and all(type(one).__module__.startswith("viewbox.") for one in owners)


def _score_for_parent(job: ScoreJob, writes: bool, part: LinePart) -> tuple[ScoredLines, bytes]:
    lines = bytearray()
    return _score_part(job, part, lines.extend if writes else None), bytes(lines)


def _score_part(job: ScoreJob, part: LinePart, write: Callable[[bytes], object] | None) -> ScoredLines:
    found = ScoredLines(ScoreCollector(job.group_by), EpisodeTally(scores=False, metrics=job.metrics))
    episodes, is_built_in = load(job.folder, errors="skip"), _is_built_in(job)

    def select_episodes() -> Iterator[tuple[int, int, Episode]]:
        for episode in episodes.walk(part):
            if all(condition(episode) for condition in job.conditions):
                job.check_sharing(episode)
                yield episodes.line, episodes.crc, episode

    def score_episode(selected: tuple[int, int, Episode]) -> _ScoredEpisode:
        if is_built_in:
            return _ScoredEpisode(*selected, job.source.score(selected[2]))
        guard = guard_sending(partial(job.check_sharing, selected[2]))  # of a reward that does not say where it sends
        with guard:
            try:
                return _ScoredEpisode(*selected, job.source.score(selected[2]))
            except ConfigError as error:
                return _ScoredEpisode(*selected, None, str(error))

    for scored in map_in_order(score_episode, select_episodes(), threads=count_threads(job.source.reward)):
        if scored.scores is None:
            found.refusal = found.refusal or scored.refusal
            episodes.skip(scored.line, scored.refusal)
            continue
        task = scored.episode.task.id
        for component, fault in list(scored.scores.faults.items())[:1]:
            found.collector.add_failure(scored.line, task, f"reward component {component!r} {fault}")
        found.collector.add(scored.episode, scored.scores)
        if scored.scores.total is not None:
            found.totals.setdefault(task, []).append(scored.scores.total)
        found.tally.add(scored.episode)
        if write is not None:
            write(encode_scores(scored.line, scored.crc, task, scored.scores))
    found.skipped, found.unreadable = episodes.skipped, episodes.unreadable
    return found
