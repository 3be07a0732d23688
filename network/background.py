"""One event loop in a daemon thread: for synchronous code that calls asynchronous functions, such as a judge, and for
clients that several event loops share, such as the connection to a specialist.

The thread starts on first use and is shared. It does not delay the exit of the program. A forked child gets its own.
"""

import asyncio
import os
from collections.abc import Coroutine
from threading import Lock, Thread
from typing import Any, TypeVar

T = TypeVar("T")

_lock = Lock()
_loop: asyncio.AbstractEventLoop | None = None


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine and return its result. Blocks the calling thread, which may have an event loop of its own."""
    future = asyncio.run_coroutine_threadsafe(coroutine, get_loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()  # the waiting thread was interrupted
        raise


async def run_beside(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that runs on the background's event loop, with the caller's context variables;
    it is cancelled if the caller is."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, get_loop()))


def get_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of the background thread, which is started if needed."""
    global _loop
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            Thread(target=_loop.run_forever, daemon=True, name="viewbox-background").start()
        return _loop


def _reset_in_child() -> None:
    global _loop, _lock
    _loop, _lock = None, Lock()


os.register_at_fork(after_in_child=_reset_in_child)
