"""A thread that runs one function after another, each for a limited time."""

from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import Any

from viewbox.envs import concurrency
from viewbox.envs.tools.specialist.calls import HungError

Job = tuple[Future[Any], Callable[[], Any]]


class Worker:
    """Runs functions in a daemon thread. One that takes too long keeps its thread, and the next gets another.

    >>> Worker().run(lambda: 7, timeout=60.0)
    7
    """

    def __init__(self) -> None:
        self.hung: list[Future[Any]] = []  # of functions that were given up
        self._inbox: SimpleQueue[Job | None] | None = None

    def count_hung(self) -> int:
        """How many functions that were given up have still not returned."""
        self.hung = [future for future in self.hung if not future.done()]
        return len(self.hung)

    def run(self, function: Callable[[], Any], timeout: float) -> Any:
        """What the function returns, or its exception. Raises `HungError` after `timeout` seconds."""
        if self._inbox is None:
            self._inbox = SimpleQueue()
            Thread(target=_work, args=(self._inbox,), daemon=True, name="viewbox model").start()
        future: Future[Any] = Future()
        self._inbox.put((future, function))
        try:
            return future.result(timeout)
        except TimeoutError as error:
            if future.done():  # the function itself raised it
                raise
            self._inbox.put(None)  # the thread ends when the function returns
            self._inbox = None
            self.hung.append(future)
            raise HungError(f"no result after {timeout:g} s") from error


def _work(inbox: SimpleQueue[Job | None]) -> None:
    while (job := inbox.get()) is not None:
        _run_job(*job)
        del job


def _run_job(future: Future[Any], function: Callable[[], Any]) -> None:
    try:
        result = function()
    except Exception as error:
        future.set_exception(error)
    except BaseException as error:  # SystemExit, say: it ends neither the process nor the thread
        future.set_exception(concurrency.to_foreign(error))
    else:
        future.set_result(result)
