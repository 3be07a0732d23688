"""Never more than so many requests a second from this process to one server."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from .errors import RequestError

MAX_PAUSE = 300.0  # seconds for which a server can stop all requests
MARGIN = 1.05  # of a second: clocks are rounded


class Limiter:
    """The turns of the requests to one server. It belongs to one event loop.

    Requests leave a little more than their share of a second apart. Each also holds a place from before it is sent
    until a second after its answer: it has arrived by then, so never more than `rate` arrive within a second, however
    late some are.
    """

    def __init__(self, rate: int) -> None:
        self.interval = MARGIN / rate
        self._free = 0.0  # when the next request may leave, by `time.monotonic`
        self._places = asyncio.Semaphore(rate)

    @asynccontextmanager
    async def turn(self, patience: float) -> AsyncIterator[None]:
        """Wait until a request may leave; inside the block it is sent and answered.

        Raises:
            RequestError: the server asked for a pause that lasts longer than `patience` seconds.
        """
        await self._places.acquire()
        try:
            while (wait := self._free - time.monotonic()) > 0:
                if wait > patience:
                    raise RequestError(f"it asked for a pause, which lasts for another {wait:.0f} s")
                await asyncio.sleep(wait)
            self._free = time.monotonic() + self.interval
            yield
        finally:
            asyncio.get_running_loop().call_later(MARGIN, self._places.release)

    def pause(self, seconds: float) -> None:
        """Let nothing leave for some time: the server asked for it."""
        self._free = max(self._free, time.monotonic() + min(seconds, MAX_PAUSE))
