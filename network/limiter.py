"""Never more than so many requests a second to one server.

A request of this process holds a place from before it is sent until its answer is there, and for one more second. It
has arrived by then, wherever in between. So never more than so many arrive within a second, however late some are.

All processes of this user together send requests one after the other, a little more than their share of a second
apart. When the next one may leave is in a small file, changed under its lock. A pause that the server asks for moves
this time.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from ..utils.files import try_lock
from .errors import RequestError

MAX_PAUSE = 300.0  # seconds for which a server can stop all requests
MAX_LOCKED = 5.0  # seconds for which another process may hold the lock of the file
MARGIN = 1.05  # of a second: clocks are rounded


class Limiter:
    """The turns of the requests to one server. It belongs to one event loop.

    Args:
        name: of the server; all processes share the turns of a name.
        rate: requests a second, a whole number.
        folder: of the file; None: viewbox's folder in the user's cache.

    >>> import tempfile
    >>> limiter = Limiter("doctest", 3, Path(tempfile.mkdtemp()))
    >>> limiter.try_turn(), 0.3 < limiter.try_turn() <= 0.35
    (0.0, True)
    """

    def __init__(self, name: str, rate: int, folder: Path | None = None) -> None:
        self.interval = MARGIN / rate
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        self.path = (folder or cache / "viewbox") / f"requests-{name}.txt"
        self._places = asyncio.Semaphore(rate)

    @asynccontextmanager
    async def turn(self, patience: float) -> AsyncIterator[None]:
        """Wait until a request may leave; inside the block it is sent and answered.

        Raises:
            RequestError: the server asked for a pause that lasts longer than `patience` seconds, or the file cannot be
                used.
        """
        await self._places.acquire()
        try:
            while wait := self.try_turn():
                if wait > patience:
                    raise RequestError(f"it asked for a pause, which lasts for another {wait:.0f} s")
                await asyncio.sleep(wait)
            yield
        finally:
            asyncio.get_running_loop().call_later(MARGIN, self._places.release)

    def try_turn(self) -> float:
        """Take the next turn if it has come; returns 0, or the seconds until it comes."""
        now = time.time()
        free = self._change(lambda free: now + self.interval if free <= now else free)
        return max(0.0, free - now)

    def pause(self, seconds: float) -> None:
        """Let nothing leave for some time, from no process: the server asked for it."""
        until = time.time() + min(seconds, MAX_PAUSE)
        self._change(lambda free: max(free, until))

    def check(self) -> None:
        """Raise `RequestError` if the file cannot be used."""
        self._change(lambda free: free)

    def _change(self, change: Callable[[float], float]) -> float:
        """Change when the next request may leave; returns what it was."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a+") as file:
                give_up = time.monotonic() + MAX_LOCKED
                while not try_lock(file.fileno()):  # others hold it for a fraction of a millisecond
                    if time.monotonic() > give_up:
                        raise OSError(f"another process has held its lock for {MAX_LOCKED:g} s")
                    time.sleep(0.0005)
                file.seek(0)
                before = _read_time(file.read(100))
                file.truncate(0)
                file.write(repr(change(before)))
                return before
        except OSError as error:
            raise RequestError(f"requests cannot be counted in {self.path}: {error}") from error


def _read_time(text: str) -> float:
    """A time; 0 if it is none, or further away than a pause can last: the clock was changed."""
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if value <= time.time() + MAX_PAUSE + 1 else 0.0
