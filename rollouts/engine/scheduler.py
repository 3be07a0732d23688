"""Who is in the engine, and when each is expected back: a clock that counts decode steps, not seconds.

A row that got its reply is expected back a fixed number of decode steps later, neither earlier nor later, however fast
its tool was. So tools run beside the decoding of other rows, and yet a run can be repeated bit for bit. Where somebody
is not back in time the engine waits, but not for ever: after `tool_wait_timeout` seconds a row
is late, and nobody waits for it.
"""

import asyncio
import heapq
import time
from collections.abc import Collection

from viewbox.rollouts.engine.sequence import Row
from viewbox.rollouts.generator import Conversation, GeneratedReply

LOOK = 4  # a row comes back at the first multiple of so many decode steps …
AWAY = 4  # … that is at least so many after its reply


class Schedule:
    """The rows of an engine, by conversation."""

    def __init__(self, tool_wait_timeout: float) -> None:
        self.tool_wait_timeout = tool_wait_timeout
        self.rows: dict[Conversation, Row] = {}
        self.step = 0
        self._leaving: list[Row] = []  # their slots become free when they were expected back
        self._places: list[int] = []  # when those who left were expected: who comes next is expected then
        self.begin()

    def begin(self) -> None:
        """Before the first row of an event loop comes."""
        self._news = asyncio.Event()

    def join(self, conversation: Conversation) -> None:
        since = heapq.heappop(self._places) if self._places else self.step
        self.rows[conversation] = Row(conversation, self.back(since))
        self._news.set()

    def leave(self, conversation: Conversation) -> None:
        row = self.rows.pop(conversation, None)
        if row is None:  # the engine has failed, or was closed
            return
        row.gone = True
        heapq.heappush(self._places, row.due)
        self._leaving.append(row)
        self._news.set()

    def ask(self, row: Row) -> "asyncio.Future[GeneratedReply]":
        """The row wants a reply."""
        if row.late:  # nobody waits for it any more
            row.due, row.late = self.back(self.step), False
        row.future = asyncio.get_running_loop().create_future()
        self._news.set()
        return row.future

    def answered(self, row: Row) -> "asyncio.Future[GeneratedReply] | None":
        """The row speaks no more; the future of who listens, if anybody still does."""
        row.due = self.back(self.step)
        future, row.future = row.future, None
        return None if future is None or future.done() else future

    def back(self, step: int) -> int:
        """The step at which a row that leaves the engine at `step` is expected back."""
        return -(-(step + AWAY) // LOOK) * LOOK

    def asking(self, speaking: Collection[Row]) -> list[Row]:
        """Who wants a reply now and does not speak, in the order of conversations."""
        found = [row for row in self.rows.values() if row.future and row.due <= self.step and row not in speaking]
        return sorted(found, key=lambda row: row.conversation.index)

    def over(self, speaking: Collection[Row]) -> list[Row]:
        """Who has left, from the step on where it was expected."""
        found = [row for row in self._leaving if row.due <= self.step or row in speaking]
        self._leaving = [row for row in self._leaving if row not in found]
        return found

    async def expect(self, busy: bool) -> None:
        """Waits for the rows that are due now; where there is nothing to do, for the next to be due."""
        if not busy:
            away = [*self._leaving, *(row for row in self.rows.values() if row.due > self.step or not row.future)]
            awaited = [row.due for row in away if row.gone or not row.late]
            if not awaited:  # all of them late: whoever comes first
                await self._heard(None)
                return
            self.step = max(self.step, min(awaited))
        deadline = time.monotonic() + self.tool_wait_timeout
        while missing := [row for row in self.rows.values() if row.due <= self.step and not (row.future or row.late)]:
            if not await self._heard(deadline - time.monotonic()):
                for row in missing:
                    row.late = True

    async def _heard(self, timeout: float | None) -> bool:
        """Whether a row came or left within `timeout` seconds."""
        self._news.clear()
        try:
            async with asyncio.timeout(timeout):  # `wait_for` of Python 3.11 may swallow a cancellation
                await self._news.wait()
        except TimeoutError:
            return False
        return True

    def end(self, why: Exception) -> None:
        """Nobody is in the engine; who waits there for a reply is told why."""
        for row in self.rows.values():
            self.fail(row, why)
        self.rows, self.step, self._leaving, self._places = {}, 0, [], []

    def fail(self, row: Row, why: Exception) -> None:
        """Who waits for this row's reply is told why there is none."""
        future = self.answered(row)
        if future is not None:
            future.set_exception(why)
