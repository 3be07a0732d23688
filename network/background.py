"""An event loop in a daemon thread: for synchronous code that calls asynchronous functions, such as a judge, and for
clients that several event loops share, such as the connection to a specialist.

The thread starts on first use and is shared; what may block it has one of another name. It does not delay the exit of
the program. A forked child gets its own.
"""

import asyncio
import os
from collections.abc import Coroutine
from contextlib import suppress
from threading import Lock, Thread
from typing import Any, TypeVar

T = TypeVar("T")

SHARED = "viewbox-background"
_lock = Lock()
_loops: dict[str, asyncio.AbstractEventLoop] = {}  # by the names of their threads


def run(coroutine: Coroutine[Any, Any, T], name: str = SHARED) -> T:
    """Run a coroutine and return its result. Blocks the calling thread, which may have an event loop of its own."""
    future = asyncio.run_coroutine_threadsafe(coroutine, get_loop(name))
    try:
        return future.result()
    except BaseException:
        future.cancel()  # the waiting thread was interrupted
        raise


async def run_beside(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that runs on the background's event loop, with the caller's context variables;
    it is cancelled if the caller is."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, get_loop()))


def get_loop(name: str = SHARED) -> asyncio.AbstractEventLoop:
    """Return the event loop of the background thread of a name, which is started if needed."""
    with _lock:
        if name not in _loops:
            _loops[name] = asyncio.new_event_loop()
            Thread(target=_run_for_ever, args=(_loops[name],), daemon=True, name=name).start()
        return _loops[name]


def _run_for_ever(loop: asyncio.AbstractEventLoop) -> None:
    while True:
        with suppress(BaseException):  # what an author's code raised to end the process: it has its own future
            loop.run_forever()


def _reset_in_child() -> None:
    global _lock
    _lock = Lock()
    _loops.clear()


os.register_at_fork(after_in_child=_reset_in_child)
