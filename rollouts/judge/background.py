"""One event loop in a daemon thread, for plain functions that need something asynchronous: a reward that asks a judge.

The thread starts when it is first needed, is shared by all, holds up no exit, and a forked child gets its own.
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
    """What the coroutine returns or raises; blocks the calling thread, which may have an event loop of its own.

    >>> run(asyncio.sleep(0, "done"))
    'done'
    """
    future = asyncio.run_coroutine_threadsafe(coroutine, loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()  # whoever waited has been interrupted
        raise


def loop() -> asyncio.AbstractEventLoop:
    """The loop, running."""
    global _loop
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            Thread(target=_loop.run_forever, daemon=True, name="viewbox-background").start()
        return _loop


def _in_child() -> None:
    global _loop, _lock
    _loop, _lock = None, Lock()


os.register_at_fork(after_in_child=_in_child)
