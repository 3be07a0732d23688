"""Never more than so many requests at a server in any second, from all processes of this machine together.

A limiter that counts when requests leave cannot promise when they arrive: one that is delayed by the network or by a
busy machine arrives together with those sent after it. So a request holds a place from before it is sent until its
answer is there, and for one more window of time. It has arrived by then, wherever in between. Of all requests that
arrive within one window, the last one to be sent found the others in their places: so there were never more than
places. The price is a rate of `requests` in `window` plus the time of an answer. (The log of departures that
pyrate-limiter and others keep, also in a file, allows a burst at the end of one second and one at the beginning of the
next, which meet if the first is late.)

The places of all processes are in one small file, changed under its lock. A process that is killed leaves its places
taken for `LEASE` seconds. A request that is given up before its answer may arrive later than its place is held.
"""

import asyncio
import json
import math
import os
import stat
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO

from ...utils.files import try_lock

LEASE = 40.0  # seconds for which the place of a request without an answer is kept; longer than any request takes
MAX_PAUSE = 300.0  # seconds for which a server can stop all requests
MAX_LOCKED = 5.0  # seconds for which another process may hold the lock of the file
MAX_STATE = 2**16  # bytes of the file
POLL = 0.02  # seconds between two looks at places that are held by requests in progress
_MARGIN = 0.002  # seconds: clocks are rounded
_lock = Lock()  # between the threads of this process, also where files have no locks


def _reset_in_child() -> None:
    global _lock
    _lock = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_in_child)


class Busy(TimeoutError):
    """There is no place in time."""


class Limiter:
    """The places of the requests to one server.

    Args:
        name: of the server; all limiters of a name share their places.
        requests: that may arrive in a window.
        window: in seconds.
        folder: of the file; by default one that all users and processes of this machine share.

    >>> limiter = Limiter("doctest", 3, folder=Path(tempfile.mkdtemp()))
    >>> limiter.try_enter("a"), limiter.try_enter("b"), limiter.try_enter("c"), limiter.try_enter("d") > 0
    (0.0, 0.0, 0.0, True)
    """

    def __init__(self, name: str, requests: int, window: float = 1.0, folder: Path | None = None) -> None:
        self.requests, self.window = requests, window
        self.path = (folder or find_shared_folder()) / f"viewbox-requests-{name}.json"
        self._turn = asyncio.Lock()  # the first in the queue looks for a place, the others of this process wait

    @asynccontextmanager
    async def enter(self, deadline: float | None = None) -> AsyncIterator[None]:
        """Hold a place for one request.

        Args:
            deadline: on the event loop's clock; None: wait until it is this request's turn.

        Raises:
            Busy: there is no place before the deadline.
            OSError: the file of the places cannot be used.
        """
        place = uuid.uuid4().hex[:12]
        try:
            async with asyncio.timeout_at(deadline), self._turn:
                while wait := self.try_enter(place):  # not in a thread: one that is left alone would keep the place
                    await asyncio.sleep(wait)
        except TimeoutError:
            raise Busy(f"no place among {self.requests} requests in {self.window:g} s") from None
        try:
            yield
        finally:
            with suppress(OSError):  # then the place stays taken for `LEASE` seconds
                self.leave(place)

    def try_enter(self, place: str) -> float:
        """Take a place; returns 0, or the seconds after which to try again."""
        with self._open_state() as state:
            now = time.monotonic()
            if state.closed_until > now:
                return min(state.closed_until - now, 1.0)
            if len(state.taken) < self.requests:
                state.taken[place] = now + LEASE
                return 0.0
            first = min(state.taken.values()) - now
            return first if first <= self.window + _MARGIN else min(first, POLL)

    def leave(self, place: str) -> None:
        """The answer is there: give the place back after one window."""
        with self._open_state() as state:
            state.taken[place] = time.monotonic() + self.window + _MARGIN

    def pause(self, seconds: float) -> None:
        """Let nothing be sent for some time, by no process: the server asked for it."""
        with self._open_state() as state:
            until = time.monotonic() + min(seconds, MAX_PAUSE)
            state.closed_until = max(state.closed_until, until)

    def get_pause(self) -> float:
        """The seconds for which nothing is sent because the server asked for it."""
        with self._open_state() as state:
            return max(0.0, state.closed_until - time.monotonic())

    @contextmanager
    def _open_state(self) -> Iterator["_State"]:
        with _lock, _open_shared(self.path) as file:
            give_up = time.monotonic() + MAX_LOCKED
            while not try_lock(file.fileno()):  # others hold it for a fraction of a millisecond
                if time.monotonic() > give_up:
                    raise OSError(f"{self.path}: another process has held its lock for {MAX_LOCKED:g} s")
                time.sleep(0.0005)
            state = _State.read(file, self.requests)
            before = state.encode()
            yield state
            if state.encode() != before:
                state.write(file)


class _State:
    """What is in the file: until when each place is taken, and until when nothing is sent, by the machine's clock."""

    def __init__(self, taken: dict[str, float], closed_until: float) -> None:
        self.taken, self.closed_until = taken, closed_until

    @classmethod
    def read(cls, file: BinaryIO, requests: int) -> "_State":
        """The places that are taken now. If the file cannot be read, they all are: nobody knows what was sent."""
        now = time.monotonic()  # since the machine's start, the same for all processes
        content = file.read(MAX_STATE + 1)
        try:
            value: Any = json.loads(content) if content else {"taken": {}, "closed_until": 0.0}
            taken = {str(place): float(until) for place, until in value["taken"].items()}
            closed = float(value["closed_until"])
            if len(content) > MAX_STATE or not all(map(math.isfinite, (*taken.values(), closed))):
                raise ValueError
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
            return cls({f"unknown-{number}": now + LEASE for number in range(requests)}, 0.0)
        # what is further away than a request can last was written before the machine started anew
        taken = {place: until for place, until in taken.items() if now < until <= now + LEASE + 1}
        return cls(taken, closed if closed <= now + MAX_PAUSE else 0.0)

    def encode(self) -> bytes:
        return json.dumps({"taken": self.taken, "closed_until": self.closed_until}).encode()

    def write(self, file: BinaryIO) -> None:
        """Write first and cut then: what a kill leaves is unreadable, never an empty list of places."""
        file.seek(0)
        file.write(self.encode())
        file.flush()
        file.truncate()


def find_shared_folder() -> Path:
    """The folder for short-lived files of all users, also if a job has one of its own in `TMPDIR`."""
    shared = Path("/tmp")
    return shared if os.access(shared, os.W_OK) else Path(tempfile.gettempdir())


def _open_shared(path: Path) -> BinaryIO:
    """Open a file that every user of this machine may change; links and other things in its place are refused."""
    flags = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        try:
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:  # another process was first
            descriptor = os.open(path, flags)
        else:
            os.chmod(descriptor if os.chmod in os.supports_fd else path, 0o666)  # whatever the umask says
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        os.close(descriptor)
        raise OSError(f"{path} is not a regular file with one name")
    return os.fdopen(descriptor, "r+b")
