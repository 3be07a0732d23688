"""Blocking work in threads beside the event loop; a thread that hangs is abandoned.

The standard executor joins its threads when the interpreter ends, and a hanging call keeps one of its few threads until
then. Here a call that exceeds its timeout is abandoned at once: its daemon thread continues alone and its result is
dropped. At most `MAX_RUNNING` calls of an event loop start together, so that thousands of episodes do not work on their
images at the same time. A call that runs longer than `LONG_CALL` waits for something or hangs, and no longer counts.
"""

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import Context, copy_context
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")
R = TypeVar("R")
Jobs = SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]

MAX_RUNNING = 32
LONG_CALL = 1.0  # seconds
AHEAD = 2  # pending results per thread of `map_in_order`


class CallTimeout(TimeoutError):
    """The call exceeded its timeout. A `TimeoutError` that the called function raises itself is not a `CallTimeout`."""


class ForeignError(RuntimeError):
    """The function raised what must not enter an event loop: SystemExit, KeyboardInterrupt, StopIteration, …"""


def run(work: Awaitable[T]) -> T:
    """`asyncio.run` without the text of the result, which Python 3.11 makes of a task that returns one, and drops.

    >>> run(run_in_thread(divmod, 7, 2))
    (3, 1)
    """
    results: list[T] = []

    async def collect() -> None:
        results.append(await work)

    asyncio.run(collect())
    return results[0]


async def run_in_thread(
    function: Callable[..., T], /, *args: object, timeout: float | None = None, **kwargs: object
) -> T:
    """Return the result of `function(*args, **kwargs)`, run in a thread with this task's context variables.
    Raises what the function raises, and `CallTimeout` after `timeout` seconds of running. Then, and if the waiting task
    is cancelled, the thread is abandoned: it cannot be stopped, but nothing waits for it.

    >>> asyncio.run(run_in_thread(divmod, 7, 2))
    (3, 1)
    """
    loop = asyncio.get_running_loop()
    semaphore = _semaphores.setdefault(loop, asyncio.Semaphore(MAX_RUNNING))
    await semaphore.acquire()
    future: asyncio.Future[T] = loop.create_future()
    permit = _Permit(semaphore, future, timeout)
    try:
        _take_thread().inbox.put((loop, future, copy_context(), function, args, kwargs))
        return await future
    finally:
        permit.release()
        permit.timer.cancel()


class _Permit:
    """One of the `MAX_RUNNING` permits, released once: at the end of the call or after `LONG_CALL` seconds."""

    def __init__(self, semaphore: asyncio.Semaphore, future: asyncio.Future[Any], timeout: float | None) -> None:
        self._semaphore, self._future, self._timeout, self._held = semaphore, future, timeout, True
        loop = future.get_loop()
        if timeout is not None and timeout <= LONG_CALL:
            self.timer = loop.call_later(timeout, self._time_out)
        else:
            self.timer = loop.call_later(LONG_CALL, self._release_early)

    def release(self) -> None:
        if self._held:
            self._held = False
            self._semaphore.release()

    def _release_early(self) -> None:
        self.release()
        if self._timeout is not None:
            self.timer = self._future.get_loop().call_later(self._timeout - LONG_CALL, self._time_out)

    def _time_out(self) -> None:
        if not self._future.done():
            self._future.set_exception(CallTimeout(f"no result after {self._timeout:g} s"))


_semaphores: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


_idle: "list[_Worker]" = []  # append and pop are atomic, so event loops of several threads can share it
os.register_at_fork(after_in_child=_idle.clear)  # a child process has none of these threads


def _take_thread() -> "_Worker":
    try:
        return _idle.pop()
    except IndexError:
        return _Worker()


class _Worker:
    def __init__(self) -> None:
        self.inbox: SimpleQueue[tuple[Any, ...]] = SimpleQueue()
        Thread(target=self._work, daemon=True, name="viewbox").start()

    def _work(self) -> None:
        while self._run_job():
            pass

    def _run_job(self) -> bool:
        """Run one job and return whether to wait for another. A frame of its own frees the job's objects afterwards."""
        loop, future, context, function, args, kwargs = self.inbox.get()
        outcome = _call(context, function, args, kwargs)
        stays = len(_idle) < MAX_RUNNING
        if stays:  # before the result is set: the waiting task may start the next job at once
            _idle.append(self)
        with suppress(RuntimeError):  # the loop is closed: nothing waits for the result
            loop.call_soon_threadsafe(_set_outcome, future, *outcome)
        return stays


def _call(
    context: Context, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, BaseException | None]:
    try:
        return context.run(function, *args, **kwargs), None
    except BaseException as error:
        is_plain = isinstance(error, Exception) and not isinstance(error, StopIteration)
        return None, error if is_plain else to_foreign(error)


def to_foreign(error: BaseException) -> ForeignError:
    """Return the error wrapped in a `ForeignError`, as its cause."""
    wrapper = ForeignError(f"{type(error).__name__}: {error}")
    wrapper.__cause__ = error
    return wrapper


@contextmanager
def contain_exit() -> Iterator[None]:
    """Raise what would end the process, such as `SystemExit`, as a `ForeignError`. Ctrl-C and cancellations stay.

    >>> with contain_exit():
    ...     raise SystemExit(3)
    Traceback (most recent call last):
    viewbox.utils.concurrency.ForeignError: SystemExit: 3
    """
    try:
        yield
    except (Exception, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:
        raise to_foreign(error) from error


async def await_foreign(awaitable: Awaitable[T]) -> T:
    """Await an author's code; also a cancellation is raised as a `ForeignError` if it is not one of this task."""
    try:
        with contain_exit():
            return await awaitable
    except (asyncio.CancelledError, GeneratorExit) as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise to_foreign(error) from error


def unwrap(error: BaseException) -> BaseException:
    """Return what a `ForeignError` wraps; any other error as it is."""
    return error.__cause__ or error if isinstance(error, ForeignError) else error


def _set_outcome(future: asyncio.Future[Any] | Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():  # abandoned
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


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
    jobs: Jobs = SimpleQueue()
    for _ in range(threads):
        Thread(target=run_jobs, args=(jobs,), daemon=True, name="viewbox-map").start()
    waiting: deque[Future[R]] = deque()
    try:
        for item in items:
            future: Future[R] = Future()
            jobs.put((future, partial(function, item)))
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


def run_jobs(jobs: Jobs) -> None:
    """Do the jobs of a queue, up to None: what a function returns or raises, its future has."""
    while (job := jobs.get()) is not None:
        _do_job(*job)
        del job  # frees its objects while the next is waited for


def _do_job(future: Future[Any], function: Callable[[], Any]) -> None:
    if future.set_running_or_notify_cancel():
        _set_outcome(future, *_call(copy_context(), function, (), {}))
