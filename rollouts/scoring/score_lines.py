"""Scores the lines of a run, in several processes if nothing but built-in code is called."""

import gc
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from ...utils.conditions import format_value, sort_key
from ..store.columns import encode_scores
from ..store.layout import LINES
from ..store.lines import LinePart, split_lines
from ..store.reader import MAX_UNREADABLE, load
from . import filters
from .bootstrap import Interval, TaskSamples
from .data_policy import SharingCheck
from .metric_samples import EnvironmentMetrics
from .reward_source import RewardSource
from .score_report import EpisodeGroup, RewardFailure, ScoreChange
from .summary import EpisodeTally

TOTAL = ""  # the name under which the total stands among the components
MAX_GROUPS = 100


class ScoreCollector:
    """Collects the stored and new scores of episodes, of all and by group."""

    def __init__(self, group_by: str | None) -> None:
        self.group_by = group_by
        self.samples = TaskSamples()
        self.groups: dict[str, TaskSamples] = {}
        self.saved: str | None = None
        self.failures = 0
        self.first_failure: RewardFailure | None = None

    def extend(self, other: "ScoreCollector") -> None:
        """Add the episodes of another collector after those of this one."""
        self.samples.extend(other.samples)
        self.saved = self.saved or other.saved
        self.failures += other.failures
        self.first_failure = self.first_failure or other.first_failure
        for group, samples in other.groups.items():
            self._get_group(group).extend(samples)

    def add_failure(self, line: int, task: str, error: str) -> None:
        """Count a reward that failed."""
        self.failures += 1
        self.first_failure = self.first_failure or RewardFailure(line, task, error)

    def add(self, episode: Episode, scores: Scores) -> None:
        """Add an episode, whose stored scores it holds, with its new scores."""
        values = {f"new/{TOTAL}": scores.total}
        for part, value in scores.components.items():
            values[f"new/{part}"] = value
        self.saved = self.saved or (str(episode.info["saved"]) if "saved" in episode.info else None)
        stored = episode.scores
        if stored is not None:
            values[f"stored/{TOTAL}"] = stored.total
            for part, value in stored.components.items():
                values[f"stored/{part}"] = value
        self.samples.add(episode.task.id, values)
        if self.group_by is not None:
            group = format_value(filters.get_field(episode, self.group_by))
            totals = {key: values[key] for key in (f"new/{TOTAL}", f"stored/{TOTAL}") if key in values}
            self._get_group(group).add(episode.task.id, totals)

    def _get_group(self, group: str) -> TaskSamples:
        if group not in self.groups and len(self.groups) == MAX_GROUPS:
            raise ConfigError(f"--group-by {self.group_by}: more than {MAX_GROUPS} values; choose another field")
        return self.groups.setdefault(group, TaskSamples())

    def compare_scores(
        self, samples: TaskSamples, resamples: int, seed: int
    ) -> tuple[ScoreChange, dict[str, ScoreChange]]:
        """The total and every component; components of the new scores come first."""
        names = samples.get_names()
        parts = list(dict.fromkeys(key.partition("/")[2] for key in sorted(names, key=lambda key: key[:3] != "new")))
        both = [part for part in parts if {f"new/{part}", f"stored/{part}"} <= set(names)]
        intervals = samples.compute_intervals(
            resamples, seed=seed, differences={f"change/{part}": (f"new/{part}", f"stored/{part}") for part in both}
        )
        changes = {part: _build_change(intervals, part) for part in parts}
        return changes.pop(TOTAL), changes

    def compare_groups(self, resamples: int, seed: int) -> tuple[EpisodeGroup, ...]:
        """The total of each group, in the order of their values."""
        return tuple(
            EpisodeGroup(value, samples.rows, samples.tasks, self.compare_scores(samples, resamples, seed)[0])
            for value, samples in sorted(self.groups.items(), key=lambda group: sort_key(group[0]))
        )


def _build_change(intervals: Mapping[str, Interval], part: str) -> ScoreChange:
    new, stored = intervals.get(f"new/{part}"), intervals.get(f"stored/{part}")
    main = new or stored
    return ScoreChange(main.count if main else 0, stored, new, intervals.get(f"change/{part}"))


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
