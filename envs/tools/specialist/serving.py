"""One loaded model for all episodes of a process: calls are collected, run as a batch, and their results kept.

A `ModelServer` holds one model. Episodes ask it on any event loop; its dispatcher thread waits a few milliseconds for
more calls, and one worker thread runs the batch. What goes wrong stays with the call that caused it:

- a batch that fails is run again one call at a time, so that only the bad call fails;
- a batch for which the device has no memory is halved, and later batches are no larger;
- a batch that takes longer than `timeout` is given up. Its thread cannot be stopped: it goes on alone, with the memory
  it holds, and what it returns is dropped. Another thread runs its calls again, one at a time; the error of the call
  that hangs again is kept like a result. If `MAX_HUNG` threads of a model have not come back, further calls are refused
  until one does.

Nothing here knows torch: a `Runner` does the work (`viewbox.specialists`).
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Lock, RLock, Thread
from typing import Any, Protocol

from viewbox.envs import concurrency
from viewbox.envs.tools.results import ADVICE
from viewbox.envs.tools.specialist.cache import ResultCache
from viewbox.errors import ConfigError, ToolError
from viewbox.images.ref import ImageRef
from viewbox.images.view import View

log = logging.getLogger("viewbox.specialists")

MAX_HUNG = 4  # threads of one model that have not come back, with which it still takes calls


class OutOfMemory(Exception):
    """A runner's device has no memory for a batch of this size."""


class HungError(Exception):
    """A batch has taken longer than its timeout."""


@dataclass(frozen=True)
class Request:
    """What a model is asked: a picture, and what else its result depends on. Equal requests have equal results."""

    picture: ImageRef
    arguments: Hashable = ()

    @property
    def key(self) -> Hashable:
        """Names the result in the cache: the hash of the pixels as they are shown, and the arguments."""
        return self.picture.hash, self.arguments


class Runner(Protocol):
    """A loaded model."""

    def run(self, requests: Sequence[Request]) -> Sequence[Any]:
        """One result for each request, or a `ToolError` in its place. Episodes share results: nobody changes one.

        Raises:
            OutOfMemory: the batch is too large for the device.
            Exception: the batch failed; its requests are run again one at a time.
        """
        ...

    def rest(self) -> None:
        """Move the weights off the device. No batch is running."""
        ...

    def wake(self) -> None:
        """Move them back. Raises `ConfigError` if the device has no memory for them any more."""
        ...


@dataclass(frozen=True)
class ServingSettings:
    """How calls are collected.

    Args:
        max_batch: most calls in a batch.
        wait: seconds to wait for further calls after the first.
        timeout: seconds after which a batch is given up.
        cache_bytes: of the results that are kept.
        offload: whether `rest` moves the weights off their device.
    """

    max_batch: int = 16
    wait: float = 0.005
    timeout: float = 20.0
    cache_bytes: int = 64 * 2**20
    offload: bool = False

    def merge(self, other: "ServingSettings") -> "ServingSettings":
        """Settings of a model that two specialists share: the smaller values; offload only if both have it."""
        return ServingSettings(
            min(self.max_batch, other.max_batch),
            min(self.wait, other.wait),
            min(self.timeout, other.timeout),
            min(self.cache_bytes, other.cache_bytes),
            self.offload and other.offload,
        )


class _Call:
    """A request in a queue; `futures` are those of all calls that wait for it."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.futures: list[Future[Any]] = []

    def finish(self, outcome: Any) -> None:
        for future in self.futures:
            if not future.done() and future.set_running_or_notify_cancel():
                _set_outcome(future, outcome)


@dataclass(frozen=True)
class _Failed:
    """A call's error in words."""

    text: str


def _set_outcome(future: Future[Any], outcome: Any) -> None:
    """Every future gets an exception of its own: one that is raised again and again keeps every traceback."""
    if isinstance(outcome, _Failed):
        future.set_exception(ToolError(outcome.text))
    else:
        future.set_result(outcome)


class ModelServer:
    """A model that is loaded once, and the queue of its calls.

    Args:
        load: loads the model; raises `ConfigError` if that is not possible.
        settings: how calls are collected.
    """

    def __init__(self, load: Callable[[], Runner], settings: ServingSettings | None = None) -> None:
        self.settings = settings or ServingSettings()
        self.batch_size = self.settings.max_batch  # smaller after the device had no memory for more
        self.batches: list[int] = []  # the sizes of the last batches, for people who measure
        self.runner: Runner | None = None
        self._load = load
        self._load_lock = RLock()
        self._failure: ConfigError | None = None
        self._cache = ResultCache(self.settings.cache_bytes)
        self._lock = Lock()  # of the cache and the calls in flight
        self._in_flight: dict[Hashable, _Call] = {}
        self._inbox: SimpleQueue[_Call] = SimpleQueue()
        self._dispatcher: Thread | None = None
        self._worker: _Worker | None = None
        self._hung: list[Future[Any]] = []
        self._device_lock = Lock()  # held while a batch runs, and while the weights are moved
        self._rests = False

    def apply(self, settings: ServingSettings) -> None:
        """Take on the settings of one more specialist: the smaller value of each holds."""
        self.settings = self.settings.merge(settings)
        self.batch_size = min(self.batch_size, self.settings.max_batch)
        self._cache.max_bytes = self.settings.cache_bytes

    def prepare(self) -> None:
        """Load the model if it is not loaded yet, or move it back to its device. Raises `ConfigError`."""
        with self._load_lock:
            if self.runner is None:
                try:
                    self.runner = self._load()
                    self._failure = None
                except ConfigError as error:
                    self._failure = error
                    raise
        with self._device_lock:
            self._wake(self.runner)

    def rest(self) -> None:
        """With `offload`, move the weights off their device until the next call or `prepare`. Waits for a batch."""
        if self.runner is None or not self.settings.offload:
            return
        with self._device_lock:
            if not self._rests:
                self.runner.rest()
                self._rests = True

    def _wake(self, runner: Runner) -> None:
        if self._rests:
            runner.wake()
            self._rests = False

    async def ask(self, request: Request) -> Any:
        """The result of a request.

        Raises:
            ToolError: the model cannot be loaded, or failed on this request.
        """
        if self.runner is None:
            if self._failure is not None:  # it was asked before: it is not loaded again for every call
                raise ToolError(f"is not available. {ADVICE}")
            try:
                await concurrency.run_in_thread(self.prepare)
            except ConfigError as error:
                log.error("a specialist cannot be loaded: %s", error)
                raise ToolError(f"is not available. {ADVICE}") from error
        return await asyncio.wrap_future(self.submit(request))

    def submit(self, request: Request) -> Future[Any]:
        """Queue a request; equal requests that wait at the same time are run once. The model is loaded."""
        future: Future[Any] = Future()
        with self._lock:
            if request.key in self._cache:
                _set_outcome(future, self._cache.get(request.key))
                return future
            call = self._in_flight.get(request.key)
            if call is not None:
                call.futures.append(future)
                return future
            call = self._in_flight[request.key] = _Call(request)
            call.futures.append(future)
            if self._dispatcher is None:
                self._dispatcher = Thread(target=self._dispatch, daemon=True, name="viewbox specialist")
                self._dispatcher.start()
        self._inbox.put(call)
        return future

    # ------------------------------------------------------------------ the dispatcher thread
    def _dispatch(self) -> None:
        while True:
            calls = self._collect()
            try:
                self._answer(calls)
            except Exception as error:  # a bug here must not leave episodes waiting
                log.exception("the dispatcher of a specialist failed")
                for call in calls:
                    self._finish(call, _describe_failure(error))

    def _collect(self) -> list[_Call]:
        """The first call that waits, and those that come within `wait` seconds."""
        calls = [self._inbox.get()]
        deadline = time.monotonic() + self.settings.wait
        while len(calls) < self.batch_size:
            try:
                calls.append(self._inbox.get(timeout=max(0.0, deadline - time.monotonic())))
            except Empty:
                break
        return calls

    def _answer(self, calls: Sequence[_Call]) -> None:
        calls = [call for call in calls if not self._is_dropped(call)]
        if not calls:
            return
        self._hung = [future for future in self._hung if not future.done()]
        if len(self._hung) >= MAX_HUNG:
            for call in calls:
                self._finish(call, _Failed(f"is busy with calls that do not end. {ADVICE}"))
            return
        try:
            results = self._run([call.request for call in calls])
        except OutOfMemory as error:
            if len(calls) == 1:
                self._finish(calls[0], _describe_failure(error))
                return
            self.batch_size = len(calls) // 2
            log.warning("a specialist's device has no memory for %d calls; %d from now on", len(calls), self.batch_size)
            while calls:  # the size may become smaller still
                some, calls = calls[: self.batch_size], calls[self.batch_size :]
                self._answer(some)
        except Exception as error:
            if len(calls) == 1:
                log.error("a specialist failed", exc_info=error)
                self._finish(calls[0], _describe_failure(error), keep=isinstance(error, HungError))
                return
            log.warning("a batch of %d calls failed (%s) and is run one by one", len(calls), type(error).__name__)
            for call in calls:
                self._answer([call])
        else:
            for call, result in zip(calls, results, strict=True):
                outcome = _Failed(str(result)) if isinstance(result, ToolError) else result
                self._finish(call, outcome, keep=True)

    def _is_dropped(self, call: _Call) -> bool:
        """Whether every call that waited has been cancelled; the request is then forgotten."""
        with self._lock:
            dropped = all(future.cancelled() for future in call.futures)
            if dropped:
                self._in_flight.pop(call.request.key, None)
        return dropped

    def _finish(self, call: _Call, outcome: Any, *, keep: bool = False) -> None:
        with self._lock:
            self._in_flight.pop(call.request.key, None)
            if keep:
                self._cache.put(call.request.key, outcome)
        call.finish(outcome)

    def _run(self, requests: Sequence[Request]) -> Sequence[Any]:
        runner = self.runner
        assert runner is not None
        self.batches = [*self.batches[-999:], len(requests)]
        with self._device_lock:
            self._wake(runner)
            results: Sequence[Any] = self._run_in_worker(lambda: runner.run(requests))
        if len(results) != len(requests):
            raise ValueError(f"{len(results)} results for {len(requests)} requests")
        return results

    def _run_in_worker(self, function: Callable[[], Any]) -> Any:
        """What the function returns; raises `HungError` after `timeout` seconds, and leaves its thread alone."""
        if self._worker is None:
            self._worker = _Worker()
        future: Future[Any] = Future()
        self._worker.inbox.put((future, function))
        try:
            return future.result(self.settings.timeout)
        except TimeoutError as error:
            if future.done():  # the function itself raised it
                raise
            self._worker.inbox.put(None)  # its last job
            self._worker = None
            self._hung.append(future)
            raise HungError(f"no result after {self.settings.timeout:g} s") from error


class _Worker:
    """A daemon thread that runs one function after another; None ends it."""

    def __init__(self) -> None:
        self.inbox: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        Thread(target=self._work, daemon=True, name="viewbox model").start()

    def _work(self) -> None:
        while (job := self.inbox.get()) is not None:
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


def _describe_failure(error: Exception) -> _Failed:
    """The error of a call in words; the tool's name is put in front of it."""
    if isinstance(error, ToolError):
        return _Failed(str(error))
    if isinstance(error, OutOfMemory):
        return _Failed(f"has no memory left for this picture. {ADVICE}")
    if isinstance(error, HungError):
        return _Failed(f"gave no result in time. {ADVICE}")
    return _Failed(f"failed on this picture ({type(error).__name__}). {ADVICE}")


# ---------------------------------------------------------------------- the models of this process
_servers: dict[Hashable, ModelServer] = {}
_servers_lock = Lock()
os.register_at_fork(after_in_child=_servers.clear)  # a child process has none of their threads


def get_server(key: Hashable, load: Callable[[], Runner], settings: ServingSettings) -> ModelServer:
    """The server of a model; a new one if no specialist has named this model yet.

    Args:
        key: everything that decides how the model is loaded.
        load: loads it.
        settings: how calls are collected; of several specialists that share a model, the smaller value of each holds.
    """
    with _servers_lock:
        server = _servers.get(key)
        if server is None:
            server = _servers[key] = ModelServer(load, settings)
        else:
            server.apply(settings)
    return server


def forget_servers() -> None:
    """Forget every model, so that a specialist that is made from now on loads its own. For tests."""
    with _servers_lock:
        _servers.clear()


@dataclass(frozen=True)
class ServedTool:
    """The base of a tool's function that asks a `ModelServer`.

    Args:
        name: of the tool, which begins the messages of its errors.
        server: of the model.
    """

    name: str
    server: ModelServer

    def prepare(self) -> None:
        """Load the model. Raises `ConfigError`; its key begins with `specialists.NAME`."""
        try:
            self.server.prepare()
        except ConfigError as error:
            path = f"specialists.{self.name}"
            key = f"{path}.{error.key}" if error.key else path
            raise ConfigError(f"{path}.{error}", key=key, given=error.given, allowed=error.allowed) from error

    def rest(self) -> None:
        """Free the device until the next call, if the specialist says `offload`."""
        self.server.rest()

    async def ask(self, view: View, arguments: Hashable = ()) -> Any:
        """The model's result for a picture as it is shown. Raises `ToolError`."""
        picture = await concurrency.run_in_thread(view.to_ref)
        try:
            return await self.server.ask(Request(picture, arguments))
        except ToolError as error:
            text = str(error)
            joint = ": " if text[:1].isupper() else " "
            raise ToolError(f"{self.name}{joint}{text}") from error
