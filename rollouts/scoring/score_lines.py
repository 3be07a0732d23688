"""Scores the lines of a run, in several processes if nothing but built-in code is called."""

import gc
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple, TypeVar

from ...errors import ConfigError, ViewboxError
from ...network.data_policy import guard_sending
from ...records import Episode, Scores
from ...rewards.remote import count_threads, find_remote_address, iter_rewards
from ...utils.conditions import format_value
from ..store.columns import encode_scores
from ..store.layout import LINES
from ..store.lines import LinePart, split_lines
from ..store.reader import MAX_UNREADABLE, load
from . import filters
from .data_policy import SharingCheck
from .metric_samples import EnvironmentMetrics
from .reward_source import RewardSource
from .summary import EpisodeTally

MAX_GROUPS = 100
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


@dataclass(frozen=True)
class RewardFailure:
    """A failure of a reward: the episode's line and task, and the error."""

    line: int
    task: str
    error: str


@dataclass
class ScoredLines:
    """What was found in the lines of a run, or in a part of them.

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
        self.tally.add(episode, values, group)
        self._check_groups(group_by)
        if scores.total is not None:
            self.totals.setdefault(episode.task.id, []).append(scores.total)
        self.saved = self.saved or (str(episode.info["saved"]) if "saved" in episode.info else None)

    def _check_groups(self, group_by: str | None) -> None:
        if len(self.tally.table.groups) > MAX_GROUPS:
            raise ConfigError(f"--group-by {group_by}: more than {MAX_GROUPS} values; choose another field")

    def extend(self, other: "ScoredLines", group_by: str | None = None) -> None:
        """Add what was found in the lines that follow."""
        self.tally.extend(other.tally)
        self._check_groups(group_by)
        self.saved = self.saved or other.saved
        self.failures += other.failures
        self.first_failure = self.first_failure or other.first_failure
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
    """Record hold no cycles, and a search of the numbers that are kept would take a third of the time."""
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
    found = ScoredLines(EpisodeTally(scores=False, metrics=job.metrics))
    for part, lines in map_in_processes(partial(_score_for_parent, job, write is not None), parts, processes):
        found.extend(part, job.group_by)
        if write is not None:
            write(lines)
    return found


def count_processes(job: ScoreJob) -> int:
    """Return how many processes score a run: one for each core, or 1 if code that may keep a state is called.

    A copy of such code in another process would keep a state of its own. Nor is a process copied that has threads.
    """
    if sys.platform != "linux" or threading.active_count() > 1 or not _is_built_in(job):
        return 1
    return min(MAX_PROCESSES, len(os.sched_getaffinity(0)))


def _is_built_in(job: ScoreJob) -> bool:
    """Return whether only viewbox's own code is called, which keeps no state and sends nothing."""
    reward, environment = job.source.reward, job.metrics.source
    if reward is None or count_threads(reward) > 1 or find_remote_address(reward) is not None:
        return False
    owners = [*iter_rewards(reward), *([] if environment is None or isinstance(environment, str) else [environment])]
    return not job.metrics.trusts_code and all(type(one).__module__.startswith("viewbox.") for one in owners)


def _score_for_parent(job: ScoreJob, writes: bool, part: LinePart) -> tuple[ScoredLines, bytes]:
    lines = bytearray()
    return _score_part(job, part, lines.extend if writes else None), bytes(lines)


def _score_part(job: ScoreJob, part: LinePart, write: Callable[[bytes], object] | None) -> ScoredLines:
    found = ScoredLines(EpisodeTally(scores=False, metrics=job.metrics))
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
        found.add(scored, scored.scores, job.group_by)
        if write is not None:
            write(encode_scores(scored.line, scored.crc, scored.episode.task.id, scored.scores))
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


_function: Callable[[Any], Any] | None = None  # what forked processes call: it cannot be sent to them


def map_in_processes(function: Callable[[T], R], items: Iterable[T], processes: int) -> Iterator[R]:
    """Like `map(function, items)`, but in forked processes, which have a copy of everything that `function` refers to.

    Items and results are pickled. The first exception, in the order of `items`, is raised.

    >>> list(map_in_processes(abs, [-1, 2, -3], 2))
    [1, 2, 3]
    """
    global _function
    _function = function
    try:
        with ProcessPoolExecutor(processes, mp_context=get_context("fork")) as pool:
            yield from pool.map(_call_function, items)
    except BrokenProcessPool as error:
        raise ViewboxError("a process that scored episodes was killed; perhaps there was too little memory") from error
    finally:
        _function = None


def _call_function(item: Any) -> Any:
    assert _function is not None
    return _function(item)
