"""One loaded model for all episodes of a process: calls are collected, run as a batch, and their results kept.

A `ModelServer` holds one model. Episodes ask it on any event loop; its dispatcher thread waits a few milliseconds for
more calls, and one worker thread runs the batch. What goes wrong stays with the call that caused it:

- a batch that fails is run again one call at a time, so that only the bad call fails, and that at its second try;
- a batch for which the device has no memory is halved, and later batches are no larger;
- a batch that takes longer than `timeout` is given up. Its thread cannot be stopped: it goes on alone, with the memory
  it holds, and what it returns is dropped. Another thread runs its calls again, one at a time; the error of the call
  that hangs again is kept like a result.

Nothing here knows torch: a `SpecialistRunner` does the work (`viewbox.tools.specialists.models`).
"""

import asyncio
import logging
import os
import pickle
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from queue import Empty, SimpleQueue
from threading import Lock, RLock, Thread
from typing import Any, Protocol, TypeVar

from cachetools import LRUCache

from ...errors import ConfigError, ToolError, ToolFault
from ...images.ref import ImageRef
from ...images.view import View
from ...utils import concurrency

log = logging.getLogger("viewbox.tools.specialists.models")

T = TypeVar("T")


class Runner(Protocol):
    """A loaded model: a `SpecialistRunner`."""

    def run(self, requests: Sequence[Any]) -> Sequence[Any]: ...
    def release(self) -> None: ...
    def wake(self) -> None: ...


class OutOfMemory(Exception):
    """A runner's device has no memory for a batch of this size."""


class HungError(Exception):
    """A batch has taken longer than its timeout."""


@dataclass(frozen=True)
class ModelRequest:
    """What a model is asked: a picture, and what else its result depends on."""

    picture: ImageRef
    arguments: tuple[Any, ...] = ()

    @property
    def key(self) -> Hashable:
        """What names the result in the cache: the hash of the pixels as they are shown, and the arguments."""
        return self.picture.hash, self.arguments


@dataclass(frozen=True)
class ServingSettings:
    max_batch: int = 16  # most calls in a batch
    wait: float = 0.005  # seconds to wait for further calls after the first
    timeout: float = 20.0  # seconds after which a batch is given up
    cache_bytes: int = 64 * 2**20  # of the results that are kept
    offload: bool = False  # whether `release` moves the weights off their device

    def merge(self, other: "ServingSettings") -> "ServingSettings":
        """Return those of a model that two specialists share: the smaller values; offload only if both have it."""
        return ServingSettings(*map(min, astuple(self), astuple(other)))


@dataclass
class Call:
    """A request in a queue; `futures` are those of all calls that wait for it."""

    request: ModelRequest
    futures: list[Future[Any]] = field(default_factory=list)
    is_second_try: bool = False


def set_outcome(future: Future[Any], outcome: Any) -> None:
    """Every future gets an exception of its own: one that is raised again and again keeps every traceback."""
    if isinstance(outcome, ToolError | ToolFault):
        future.set_exception(type(outcome)(str(outcome)))
    else:
        future.set_result(outcome)


def describe_failure(error: Exception) -> ToolError | ToolFault:
    """Return the error of a call in words, without its traceback; the tool's name is put in front of it."""
    if isinstance(error, ToolError | ToolFault):
        return type(error)(str(error))
    if isinstance(error, OutOfMemory):
        return ToolFault("has no memory left for this picture")
    if isinstance(error, HungError):
        return ToolFault("gave no result in time")
    return ToolFault(f"failed on this picture ({type(error).__name__})")


def measure_bytes(value: Any) -> int:
    """Return about how many bytes a result takes.

    >>> 10_000 < measure_bytes(bytes(10_000)) < 10_100
    True
    """
    return len(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))


class ModelServer:
    """A model that is loaded once by `load`, which may raise `ConfigError`, and the queue of its calls."""

    def __init__(self, load: Callable[[], Runner], settings: ServingSettings = ServingSettings()) -> None:
        self.settings = settings
        self.batch_size = settings.max_batch  # smaller after the device had no memory for more
        self.batches: list[int] = []  # the sizes of the last batches, for people who measure
        self.runner: Runner | None = None
        self._load = load
        self._load_lock = RLock()
        self._failure: ConfigError | None = None
        self._cache: LRUCache[Hashable, Any] = LRUCache(settings.cache_bytes, measure_bytes)
        self._lock = Lock()  # of the cache and the calls in flight
        self._in_flight: dict[Hashable, Call] = {}
        self._inbox: SimpleQueue[Call] = SimpleQueue()
        self._dispatcher: Thread | None = None
        self._worker = ModelWorker()
        self._device_lock = Lock()  # held while a batch runs, and while the weights are moved
        self._released = False

    def apply(self, settings: ServingSettings) -> None:
        """Take on the settings of one more specialist: the smaller value of each holds."""
        self.settings = self.settings.merge(settings)
        self.batch_size = min(self.batch_size, self.settings.max_batch)
        with self._lock:
            if self.settings.cache_bytes < self._cache.maxsize:
                self._cache = LRUCache(self.settings.cache_bytes, measure_bytes)

    def prepare(self) -> None:
        """Load the model if it is not loaded yet, or move it back to its device. Raise `ConfigError`."""
        with self._load_lock:
            if self.runner is None:
                try:
                    self.runner = self._load()
                    self._failure = None
                except ConfigError as error:
                    self._failure = error
                    raise
        if self._released:  # otherwise it need not wait for a batch that runs
            with self._device_lock:
                self._wake(self.runner)

    def release(self) -> None:
        """With `offload`, move the weights off their device until the next call or `prepare`. Waits for a batch."""
        if self.runner is None or not self.settings.offload:
            return
        with self._device_lock:
            if not self._released:
                self.runner.release()
                self._released = True

    def _wake(self, runner: Runner) -> None:
        if self._released:
            runner.wake()
            self._released = False

    async def ask(self, request: ModelRequest) -> Any:
        """Return the result of a request. Raise `ToolError` if the model refuses it, and `ToolFault` if the model
        cannot be loaded, or fails on it."""
        if self.runner is None:
            if self._failure is not None:  # it was asked before: it is not loaded again for every call
                raise ToolFault("is not available")
            try:
                await concurrency.run_in_thread(self.prepare)
            except ConfigError as error:
                log.error("a specialist cannot be loaded: %s", error)
                raise ToolFault("is not available") from error
        return await asyncio.wrap_future(self.submit(request))

    def submit(self, request: ModelRequest) -> Future[Any]:
        """Queue a request; equal requests that wait at the same time are run once. The model is loaded."""
        future: Future[Any] = Future()
        with self._lock:
            if request.key in self._cache:
                set_outcome(future, self._cache[request.key])
                return future
            call = self._in_flight.get(request.key)
            if call is not None:
                call.futures.append(future)
                return future
            call = self._in_flight[request.key] = Call(request, [future])
            if self._dispatcher is None:
                self._dispatcher = Thread(target=self._dispatch, daemon=True, name="viewbox specialist")
                self._dispatcher.start()
        self._inbox.put(call)
        return future

    def _dispatch(self) -> None:
        while True:
            calls = self._collect()
            try:
                self._answer(calls)
            except Exception as error:  # a bug here must not leave episodes waiting
                log.exception("the dispatcher of a specialist failed")
                for call in calls:
                    self._finish(call, describe_failure(error))

    def _collect(self) -> list[Call]:
        """Return the first call that waits, and those that come within `wait` seconds."""
        calls = [self._inbox.get()]
        deadline = time.monotonic() + self.settings.wait
        while len(calls) < self.batch_size:
            try:
                calls.append(self._inbox.get(timeout=max(0.0, deadline - time.monotonic())))
            except Empty:
                break
        return calls

    def _answer(self, calls: Sequence[Call]) -> None:
        calls = [call for call in calls if not self._is_dropped(call)]
        if not calls:
            return
        try:
            results = self._run([call.request for call in calls])
        except OutOfMemory as error:
            if len(calls) == 1:
                self._finish(calls[0], describe_failure(error))
                return
            self.batch_size = len(calls) // 2
            log.warning("a specialist's device has no memory for %d calls; %d from now on", len(calls), self.batch_size)
            while calls:  # the size may become smaller still
                batch, calls = calls[: self.batch_size], calls[self.batch_size :]
                self._answer(batch)
        except Exception as error:
            if len(calls) == 1 and (calls[0].is_second_try or isinstance(error, HungError)):
                log.error("a specialist failed", exc_info=error)
                self._finish(calls[0], describe_failure(error), keep=isinstance(error, HungError))
                return
            log.warning("a batch of %d calls failed (%s) and is run one by one", len(calls), type(error).__name__)
            for call in calls:
                call.is_second_try = True
                self._answer([call])
        else:
            for call, result in zip(calls, results, strict=True):
                self._finish(call, describe_failure(result) if isinstance(result, Exception) else result, keep=True)

    def _is_dropped(self, call: Call) -> bool:
        """Return whether every call that waited has been cancelled; the request is then forgotten."""
        with self._lock:
            dropped = all(future.cancelled() for future in call.futures)
            if dropped:
                self._in_flight.pop(call.request.key, None)
        return dropped

    def _finish(self, call: Call, outcome: Any, *, keep: bool = False) -> None:
        with self._lock:
            self._in_flight.pop(call.request.key, None)
            if keep:
                with suppress(ValueError):  # larger than all that is kept
                    self._cache[call.request.key] = outcome
        for future in call.futures:
            if not future.done() and future.set_running_or_notify_cancel():
                set_outcome(future, outcome)

    def _run(self, requests: Sequence[ModelRequest]) -> Sequence[Any]:
        runner = self.runner
        assert runner is not None
        self.batches = [*self.batches[-999:], len(requests)]
        with self._device_lock:
            self._wake(runner)
            results: Sequence[Any] = self._worker.run(lambda: runner.run(requests), self.settings.timeout)
        if len(results) != len(requests):
            raise ValueError(f"{len(results)} results for {len(requests)} requests")
        return results


class ModelWorker:
    """Runs functions in a daemon thread. One that takes too long keeps its thread, and the next gets another.

    >>> ModelWorker().run(lambda: 7, timeout=60.0)
    7
    """

    def __init__(self) -> None:
        self._inbox: concurrency.Jobs | None = None

    def run(self, function: Callable[[], T], timeout: float) -> T:
        """Return what the function returns, or raise its exception; raise `HungError` after `timeout` seconds."""
        if self._inbox is None:
            self._inbox = SimpleQueue()
            Thread(target=concurrency.run_jobs, args=(self._inbox,), daemon=True, name="viewbox model").start()
        future: Future[T] = Future()
        self._inbox.put((future, function))
        try:
            return future.result(timeout)
        except TimeoutError as error:
            if future.done():  # the function itself raised it
                raise
            self._inbox.put(None)  # the thread ends when the function returns
            self._inbox = None
            raise HungError(f"no result after {timeout:g} s") from error


_servers: dict[Hashable, ModelServer] = {}
_servers_lock = Lock()
os.register_at_fork(after_in_child=_servers.clear)  # a child process has none of their threads


def get_server(key: Hashable, load: Callable[[], Runner], settings: ServingSettings) -> ModelServer:
    """Return the server of a model; a new one if no specialist has named this model yet.
    `key` is everything that decides how the model is loaded. Of the settings of several specialists that share a model,
    the smaller value of each holds."""
    with _servers_lock:
        server = _servers.get(key)
        if server is None:
            server = _servers[key] = ModelServer(load, settings)
        else:
            server.apply(settings)
    return server


@dataclass(frozen=True)
class ServedTool:
    """The base of a tool's function that asks a `ModelServer`."""

    name: str  # of the tool, which begins the messages of its errors
    server: ModelServer

    def prepare(self) -> None:
        """Load the model. Raise `ConfigError`; its key begins with `specialists.NAME`."""
        try:
            self.server.prepare()
        except ConfigError as error:
            path = f"specialists.{self.name}"
            key = f"{path}.{error.key}" if error.key else path
            raise ConfigError(f"{path}.{error}", key=key) from error

    def release(self) -> None:
        """Free the device until the next call, if the specialist says `offload`."""
        self.server.release()

    async def ask(self, view: View, arguments: tuple[Any, ...] = ()) -> Any:
        """Return the model's result for a picture as it is shown. Raise `ToolError` or `ToolFault`."""
        picture = await concurrency.run_in_thread(view.to_ref)
        try:
            return await self.server.ask(ModelRequest(picture, arguments))
        except (ToolError, ToolFault) as error:
            text = str(error)
            joint = ": " if text[:1].isupper() else " "
            raise type(error)(f"{self.name}{joint}{text}") from error
