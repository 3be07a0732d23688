"""Scores the lines of a run, in several threads if its reward waits for a judge."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import NamedTuple, TypeVar

from ...errors import ConfigError
from ...network.data_policy import guard_sending
from ...records import Episode, Scores
from ...rewards.remote import count_threads
from ...utils.conditions import format_value
from ..store.columns import ScoreColumnWriter
from ..store.reader import load
from . import filters
from .reward_source import RewardSource
from .summary import EnvironmentMetrics, EpisodeTally

MAX_GROUPS = 100


@dataclass(frozen=True)
class RewardFailure:
    """A failure of a reward: the episode's line and task, and the error."""

    line: int
    task: str
    error: str


@dataclass
class ScoredLines:
    """What was found in the lines of a run.

    Args:
        tally: of the episodes; scores are its columns `stored/NAME` and `new/NAME`, the total as `stored/` and `new/`.
        totals: the new totals by task.
        saved: what part of a step is stored.
        failures: episodes on which the reward failed; `first_failure` is the first of them.
        skipped: lines that cannot be read or scored; `unreadable` has the first reasons.
        refusal: the first: what an episode names is not allowed, or cannot be made.
    """

    tally: EpisodeTally
    totals: dict[str, list[float]] = field(default_factory=dict)
    saved: str | None = None
    failures: int = 0
    first_failure: RewardFailure | None = None
    skipped: int = 0
    unreadable: dict[int, str] = field(default_factory=dict)
    refusal: str = ""

    def add(self, scored: "_ScoredEpisode", scores: Scores, group_by: str | None) -> None:
        """Add an episode with its new scores."""
        episode, stored = scored.episode, scored.episode.scores
        for component, fault in list(scores.faults.items())[:1]:
            self.failures += 1
            failure = RewardFailure(scored.line, episode.task.id, f"reward component {component!r} {fault}")
            self.first_failure = self.first_failure or failure
        values = {"new/": scores.total, **{f"new/{name}": one for name, one in scores.components.items()}}
        if stored is not None:
            values |= {"stored/": stored.total, **{f"stored/{name}": one for name, one in stored.components.items()}}
        group = "" if group_by is None else format_value(filters.get_field(episode, group_by))
        self.tally.add(episode, values, group, scores)
        if len(self.tally.table.groups) > MAX_GROUPS:
            raise ConfigError(f"--group-by {group_by}: more than {MAX_GROUPS} values; choose another field")
        if scores.total is not None:
            self.totals.setdefault(episode.task.id, []).append(scores.total)
        self.saved = self.saved or (str(episode.info["saved"]) if "saved" in episode.info else None)


class _ScoredEpisode(NamedTuple):
    line: int
    crc: int
    episode: Episode
    scores: Scores | None
    refusal: str = ""  # if there are no scores


def score_lines(
    folder: Path,
    source: RewardSource,
    conditions: Sequence[Callable[[Episode], bool]],
    check_sharing: Callable[..., None],
    metrics: EnvironmentMetrics,
    group_by: str | None = None,
    column: ScoreColumnWriter | None = None,
) -> ScoredLines:
    """Score the episodes of a folder that meet all conditions.

    Raises:
        ConfigError: as `check_sharing` does, or there are too many groups.
    """
    found = ScoredLines(EpisodeTally(scores=False, metrics=metrics))
    episodes = load(folder, errors="skip")

    def select_episodes() -> Iterator[tuple[int, int, Episode]]:
        for episode in episodes:
            if all(condition(episode) for condition in conditions):
                check_sharing(episode)
                yield episodes.line, episodes.crc, episode

    def score_episode(selected: tuple[int, int, Episode]) -> _ScoredEpisode:
        with guard_sending(partial(check_sharing, selected[2])):  # of a reward that does not say where it sends
            try:
                return _ScoredEpisode(*selected, source.score(selected[2]))
            except ConfigError as error:
                return _ScoredEpisode(*selected, None, str(error))

    for scored in map_in_order(score_episode, select_episodes(), threads=count_threads(source.reward)):
        if scored.scores is None:
            found.refusal = found.refusal or scored.refusal
            episodes.skip(scored.line, scored.refusal)
            continue
        found.add(scored, scored.scores, group_by)
        if column is not None:
            column.add(scored.line, scored.crc, scored.episode.task.id, scored.scores)
    found.skipped, found.unreadable = episodes.skipped, episodes.unreadable
    return found


T = TypeVar("T")
R = TypeVar("R")

AHEAD = 2  # pending results per thread


def map_in_order(function: Callable[[T], R], items: Iterable[T], *, threads: int) -> Iterator[R]:
    """Like `map(function, items)`, but in `threads` threads; results come in the order of `items`.

    `items` is read in the caller's thread, and only as far ahead as needed. The first exception, in the order of
    `items`, is raised. The threads are daemons: an interrupted program does not wait for them.

    >>> list(map_in_order(str, range(5), threads=3))
    ['0', '1', '2', '3', '4']
    """
    if threads < 2:
        yield from map(function, items)
        return
    jobs: SimpleQueue[tuple[Future[R], T] | None] = SimpleQueue()
    for _ in range(threads):
        Thread(target=_run_jobs, args=(function, jobs), daemon=True, name="viewbox-scoring").start()
    waiting: deque[Future[R]] = deque()
    try:
        for item in items:
            future: Future[R] = Future()
            jobs.put((future, item))
            waiting.append(future)
            if len(waiting) >= AHEAD * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
        for _ in range(threads):
            jobs.put(None)


def _run_jobs(function: Callable[[T], R], jobs: "SimpleQueue[tuple[Future[R], T] | None]") -> None:
    while (job := jobs.get()) is not None:
        future, item = job
        if not future.set_running_or_notify_cancel():
            continue
        try:
            future.set_result(function(item))
        except BaseException as error:  # the caller raises it
            future.set_exception(error)
