"""Ordered parallel maps: over threads, for rewards that wait for a network, and over processes."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from viewbox.errors import ViewboxError

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
