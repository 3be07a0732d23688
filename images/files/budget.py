"""An amount that threads share, such as bytes of memory: first come, first served."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock


class Budget:
    """Threads hold parts of `total`, and wait until their part fits.

    Parts are given in the order in which threads asked, so that small ones do not keep a large one waiting for ever.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self._used = 0
        self._lock = Lock()
        self._waiting: deque[tuple[int, Lock]] = deque()

    @contextmanager
    def hold(self, amount: int) -> Iterator[None]:
        """Hold `amount`, which is at most `total`, until the block ends."""
        self._acquire(amount)
        try:
            yield
        finally:
            with self._lock:
                self._used -= amount
                self._serve()

    def _acquire(self, amount: int) -> None:
        with self._lock:
            if not self._waiting and self._used + amount <= self.total:
                self._used += amount
                return
        turn = Lock()
        turn.acquire()
        place = amount, turn
        with self._lock:
            self._waiting.append(place)
            self._serve()
        try:
            turn.acquire()
        except BaseException:  # Ctrl-C while waiting
            with self._lock:
                if place in self._waiting:
                    self._waiting.remove(place)
                else:
                    self._used -= amount
                self._serve()
            raise

    def _serve(self) -> None:
        while self._waiting and self._used + self._waiting[0][0] <= self.total:
            amount, turn = self._waiting.popleft()
            self._used += amount
            turn.release()
