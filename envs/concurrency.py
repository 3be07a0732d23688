"""Blocking work beside the event loop, in threads that nobody has to wait for.

A thread of the standard executor that hangs is joined when the interpreter ends, and holds one of a few places until
then. Here a call that takes too long is abandoned at once: its daemon thread goes on alone and whatever it returns is
dropped. At most `CROWD` calls of an event loop start out together, so thousands of episodes do not work on their images
at the same moment; a call that runs longer than `PATIENCE` waits for something or hangs, and no longer counts.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from queue import SimpleQueue
from threading import Thread
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

P = ParamSpec("P")
T = TypeVar("T")

CROWD = 32
PATIENCE = 1.0  # seconds


class TookTooLong(TimeoutError):
    """The call ran longer than its limit. A `TimeoutError` of the called function's own is not one of these."""


class Foreign(RuntimeError):
    """The function raised what must not pass into an event loop: SystemExit, KeyboardInterrupt, StopIteration, …"""


async def run(function: Callable[..., T], /, *args: Any, limit: float | None = None, **kwargs: Any) -> T:
    """The result of `function(*args, **kwargs)`, run in a thread with this task's context variables.

    Raises what the function raises, and `TookTooLong` (a `TimeoutError`) after `limit` seconds of running. Then, and
    when the waiting task is cancelled, the thread is abandoned: it cannot be stopped, but holds nothing up.

    >>> asyncio.run(run(divmod, 7, 2))
    (3, 1)
    """
    loop = asyncio.get_running_loop()
    room = _room(loop)
    await room.acquire()
    done: asyncio.Future[T] = loop.create_future()
    place = _Place(room, done, limit)
    try:
        _thread().inbox.put((loop, done, copy_context(), function, args, kwargs))
        return await done
    finally:
        place.leave()
        place.timer.cancel()


class _Place:
    """A place in the crowd, left once: by whichever comes first of patience and the end. One timer at a time."""

    def __init__(self, room: asyncio.Semaphore, done: asyncio.Future, limit: float | None) -> None:
        self._room, self._done, self._limit, self._held = room, done, limit, True
        loop = done.get_loop()
        short = limit is not None and limit <= PATIENCE
        self.timer = loop.call_later(limit or 0, self._late) if short else loop.call_later(PATIENCE, self._tired)

    def leave(self) -> None:
        if self._held:
            self._held = False
            self._room.release()

    def _tired(self) -> None:
        self.leave()
        if self._limit is not None:
            self.timer = self._done.get_loop().call_later(self._limit - PATIENCE, self._late)

    def _late(self) -> None:
        if not self._done.done():
            self._done.set_exception(TookTooLong(f"no result after {self._limit:g} s"))


_rooms: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


def _room(loop: asyncio.AbstractEventLoop) -> asyncio.Semaphore:
    room = _rooms.get(loop)
    if room is None:
        room = _rooms[loop] = asyncio.Semaphore(CROWD)
    return room


# ---- the threads: idle ones wait for a job, the last to become idle gets the next

_idle: "list[_Thread]" = []  # append and pop are atomic: event loops of several threads share it
os.register_at_fork(after_in_child=_idle.clear)  # a child process has none of these threads


def _thread() -> "_Thread":
    try:
        return _idle.pop()
    except IndexError:
        return _Thread()


class _Thread:
    def __init__(self) -> None:
        self.inbox: SimpleQueue[tuple] = SimpleQueue()
        Thread(target=self._work, daemon=True, name="viewbox").start()

    def _work(self) -> None:
        while self._one():
            pass

    def _one(self) -> bool:
        """One job; an own frame, so that an idle thread holds on to nothing of it. Whether to wait for another."""
        loop, done, context, function, args, kwargs = self.inbox.get()
        outcome = _outcome(context, function, args, kwargs)
        stays = len(_idle) < CROWD
        if stays:  # before the result is known: who waits for it may have the next job
            _idle.append(self)
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_settle, done, *outcome)
        return stays


def _outcome(
    context: Context, function: Callable[..., Any], args: tuple, kwargs: dict[str, Any]
) -> tuple[Any, BaseException | None]:
    try:
        return context.run(function, *args, **kwargs), None
    except (StopIteration, asyncio.CancelledError) as error:
        return None, foreign(error)
    except Exception as error:
        return None, error
    except BaseException as error:
        return None, foreign(error)


def foreign(error: BaseException) -> Foreign:
    wrapped = Foreign(f"{type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped


def _settle(done: asyncio.Future, result: Any, error: BaseException | None) -> None:
    if done.done():  # abandoned
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)
