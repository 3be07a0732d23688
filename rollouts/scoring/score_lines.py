"""Scores the episodes of a run, in several threads if its reward waits for a judge."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import NamedTuple, TypeVar

from ...errors import ConfigError
from ...network.data_policy import guard_sending
from ...records import Episode, Scores
from ...rewards.remote import count_threads
from ..store.reader import EpisodeReader
from .reward_source import RewardSource


class ScoredEpisode(NamedTuple):
    """An episode, its line, the checksum of that line, and its scores."""

    line: int
    crc: int
    episode: Episode
    scores: Scores | None


def score_episodes(
    reader: EpisodeReader,
    conditions: Sequence[Callable[[Episode], bool]],
    source: RewardSource | None,
    check_sharing: Callable[..., None],
) -> Iterator[ScoredEpisode]:
    """Yield the episodes that meet all conditions, with the scores of a reward; without one, with those stored.

    What an episode names may be refused: then it is skipped.

    Raises:
        ConfigError: as `check_sharing` does, or all episodes were refused.
    """

    def select_episodes() -> Iterator[ScoredEpisode]:
        for episode in reader:
            if all(condition(episode) for condition in conditions):
                check_sharing(episode)
                yield ScoredEpisode(reader.line, reader.crc, episode, episode.scores)

    def score_episode(one: ScoredEpisode) -> tuple[ScoredEpisode, ConfigError | None]:
        with guard_sending(partial(check_sharing, one.episode)):  # of a reward that does not say where it sends
            try:
                return (one if source is None else one._replace(scores=source.score(one.episode))), None
            except ConfigError as error:
                return one, error

    first, is_any = None, False
    threads = 1 if source is None else count_threads(source.reward)
    for scored, refusal in map_in_order(score_episode, select_episodes(), threads=threads):
        if refusal is None:
            is_any = True
            yield scored
        else:
            first = first or refusal
            reader.skip(scored.line, str(refusal))
    if first is not None and not is_any:
        raise first


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
