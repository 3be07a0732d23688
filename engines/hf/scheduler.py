"""Decides which sequences run next, with a clock that counts decode steps instead of seconds.

A sequence that got its reply is expected back a fixed number of decode steps later, however fast its tool is. Tools
therefore run while other sequences decode, and a run still repeats bit for bit. If a sequence is not back when it is
due, the engine waits for at most `tool_wait_timeout` seconds. After that the sequence is late, and the engine continues
without it.
"""

import asyncio
import heapq
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import torch

from ...records import Reply
from ..generator import Conversation
from .architectures import Pixels

STEP_GRID = 4  # a sequence returns at a multiple of this many decode steps …
MIN_STEPS_AWAY = 4  # … and at least this many after its reply


@dataclass(eq=False)
class Sequence:
    """A conversation as the engine sees it: *waiting* (it wants a reply and is not decoded yet), *running* (one token a
    decode step), *away* (its tool runs), or *finished* (its slot can be freed)."""

    conversation: Conversation
    due: int  # the decode step at which it is expected back
    slot: int | None = None
    length: int = 0  # tokens in the cache
    position: int = 0  # rotary position of the next token
    future: "asyncio.Future[Reply] | None" = None  # set while a reply is requested
    output_ids: list[int] = field(default_factory=list)  # of the current reply
    logprobs: list[float] = field(default_factory=list)  # one for each of `output_ids`
    uniform: Any = None  # random numbers of this reply, (tokens the reply may have,)
    images: list[tuple[str, Pixels]] = field(default_factory=list)  # (hash, pixels) of the images in `new_ids`
    prompt: tuple[tuple[int, ...], tuple[str, ...]] | None = None  # (ids, image hashes); equal prompts are copied
    after_prompt: tuple[torch.Tensor, int, Any] | None = None  # (logits, next position, states) at its end
    finished: bool = False  # its conversation has ended
    late: bool = False  # missed its deadline; the engine no longer waits for it

    @property
    def held_slot(self) -> int:
        assert self.slot is not None
        return self.slot

    @property
    def new_ids(self) -> list[int]:
        record = self.conversation.record
        return [*record.prompt_ids, *record.completion_ids][self.length :]


@dataclass
class Stats:
    """What an engine has done since it was made."""

    steps: int = 0  # decode forwards
    prefills: int = 0  # prefill forwards
    tokens: int = 0  # sampled tokens
    prefilled: int = 0  # tokens computed in prefills; copied ones do not count
    forward_seconds: float = 0.0  # spent in forwards (on a GPU: until they were launched)
    busy_seconds: float = 0.0  # with sequences in the engine


class Scheduler:
    """Knows the sequences of an engine, and at which decode step each is due; waits `tool_wait_timeout` seconds for
    one."""

    def __init__(self, tool_wait_timeout: float) -> None:
        self.tool_wait_timeout = tool_wait_timeout
        self.sequences: dict[Conversation, Sequence] = {}
        self.step = 0
        self._leaving: list[Sequence] = []  # finished; their slots become free at the step they were due
        self._vacancies: list[int] = []  # due steps of finished sequences; the next to join takes the earliest
        self.start()

    def start(self) -> None:
        """Bind the scheduler to the running event loop, before the first sequence joins."""
        self._changed = asyncio.Event()

    def join(self, conversation: Conversation) -> None:
        since = heapq.heappop(self._vacancies) if self._vacancies else self.step
        self.sequences[conversation] = Sequence(conversation, self.compute_due_step(since))
        self._changed.set()

    def leave(self, conversation: Conversation) -> None:
        """Mark the sequence of a conversation as finished."""
        sequence = self.sequences.pop(conversation, None)
        if sequence is None:  # the engine has failed, or was closed
            return
        sequence.finished = True
        heapq.heappush(self._vacancies, sequence.due)
        self._leaving.append(sequence)
        self._changed.set()

    def request_reply(self, sequence: Sequence) -> "asyncio.Future[Reply]":
        """Mark the sequence as waiting; return the future of its reply."""
        if sequence.late:  # the engine does not wait for it: it gets a new due step
            sequence.due, sequence.late = self.compute_due_step(self.step), False
        sequence.future = asyncio.get_running_loop().create_future()
        self._changed.set()
        return sequence.future

    def finish_reply(self, sequence: Sequence) -> "asyncio.Future[Reply] | None":
        """End the current reply and set the next due step; return the pending future, if any."""
        sequence.due = self.compute_due_step(self.step)
        future, sequence.future = sequence.future, None
        return None if future is None or future.done() else future

    def fail(self, sequence: Sequence, error: Exception) -> None:
        future = self.finish_reply(sequence)
        if future is not None:
            future.set_exception(error)

    def clear(self, error: Exception) -> None:
        """Remove all sequences; pending replies end with `error`."""
        for sequence in self.sequences.values():
            self.fail(sequence, error)
        self.sequences, self.step, self._leaving, self._vacancies = {}, 0, [], []

    def compute_due_step(self, step: int) -> int:
        """Return the step at which a sequence that leaves the engine at `step` is expected back."""
        return -(-(step + MIN_STEPS_AWAY) // STEP_GRID) * STEP_GRID

    def get_waiting(self, running: Collection[Sequence]) -> list[Sequence]:
        """Return the sequences that are due, want a reply and are not running, ordered by conversation."""
        waiting = [s for s in self.sequences.values() if s.future and s.due <= self.step and s not in running]
        return sorted(waiting, key=lambda sequence: sequence.conversation.index)

    def pop_finished(self, running: Collection[Sequence]) -> list[Sequence]:
        """Remove and return the finished sequences whose due step has come, or that are still running."""
        finished = [sequence for sequence in self._leaving if sequence.due <= self.step or sequence in running]
        self._leaving = [sequence for sequence in self._leaving if sequence not in finished]
        return finished

    async def wait_for_due(self, busy: bool) -> None:
        """Wait until every due sequence is back, or late. If the engine is not `busy`, the clock jumps to the next due
        step."""
        if not busy:
            away = [*self._leaving, *(s for s in self.sequences.values() if s.due > self.step or not s.future)]
            due_steps = [sequence.due for sequence in away if sequence.finished or not sequence.late]
            if not due_steps:  # all are late: continue with the first that comes
                await self._wait_for_change(None)
                return
            self.step = max(self.step, min(due_steps))
        deadline = time.monotonic() + self.tool_wait_timeout
        while missing := [s for s in self.sequences.values() if s.due <= self.step and not (s.future or s.late)]:
            if not await self._wait_for_change(deadline - time.monotonic()):
                for sequence in missing:
                    sequence.late = True

    async def _wait_for_change(self, timeout: float | None) -> bool:
        """Return whether a sequence joined, left or asked for a reply within `timeout` seconds (None: no limit)."""
        self._changed.clear()
        try:
            async with asyncio.timeout(timeout):  # `wait_for` of Python 3.11 may swallow a cancellation
                await self._changed.wait()
        except TimeoutError:
            return False
        return True
