"""One process that checks cases: in each, nothing raises, takes too long or too much, or writes elsewhere."""

import faulthandler
import importlib
import logging
import os
import random
import re
import resource
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

MAX_MEMORY = 2**33  # bytes of address space of a process
MAX_GROWTH = 2**30  # bytes by which one case may raise the peak of a process
RETRIES = 2  # of a case that was slow: the machine may have been busy
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
FOLDER_EVENTS = {
    "os.mkdir": 0, "os.rename": 1, "os.remove": 0, "os.rmdir": 0, "os.link": 1, "os.symlink": 1, "os.chmod": 0,
}  # fmt: skip
PROCESSES = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "pty.spawn")


class Finding(AssertionError):
    """What a case did that no case may do."""


class Guard:
    """Collects forbidden actions while a case runs: writing outside its folder, starting a process, calling out."""

    def __init__(self, processes: bool) -> None:
        self.folder: str | None = None
        self.found: list[str] = []
        self.processes = processes  # whether the area may start some: files are decoded in others
        sys.addaudithook(self._see)

    def _see(self, event: str, args: tuple[Any, ...]) -> None:
        if self.folder is None:
            return
        if event == "open" and isinstance(args[2], int) and args[2] & WRITES:
            self._check_path(event, args[0])
        elif event in FOLDER_EVENTS:
            self._check_path(event, args[FOLDER_EVENTS[event]])
        elif event in PROCESSES and not self.processes:
            self.found.append(f"{event} {args!r:.200}")
        elif event == "socket.connect" and isinstance(args[1], tuple) and args[1][0] not in ("127.0.0.1", "::1"):
            self.found.append(f"{event} {args[1]!r:.200}")

    def _check_path(self, event: str, path: object) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return
        real = os.path.realpath(os.fsdecode(path))
        own = [self.folder or "", "/dev/null", "/dev/shm", "/proc/self"]
        own += [tempfile.gettempdir()] if self.processes else []
        if not any(real == one or real.startswith(one + os.sep) for one in own):
            self.found.append(f"{event} {real}")


class Checker:
    """Checks the cases of one area; `check` raises what the case did wrong and returns its processor seconds."""

    def __init__(self, name: str, module: str) -> None:
        self.name, self.area = name, importlib.import_module(module)

    def make_case(self, seed: int, number: int) -> bytes:
        """The same bytes for the same seed and number, on any machine."""
        return self.area.make_case(random.Random(f"{self.name} {seed} {number}"))

    def check(self, content: bytes, guard: Guard) -> float:
        seconds = self._check_once(content, guard)
        for _ in range(RETRIES):
            if seconds <= self.area.CPU_SECONDS:
                return seconds
            seconds = min(seconds, self._check_once(content, guard))
        if seconds > self.area.CPU_SECONDS:
            raise Finding(f"took {seconds:.1f} s of processor time; allowed: {self.area.CPU_SECONDS} s")
        return seconds

    def _check_once(self, content: bytes, guard: Guard) -> float:
        with tempfile.TemporaryDirectory(prefix="viewbox-fuzz-") as folder:
            guard.found, guard.processes = [], getattr(self.area, "PROCESSES", False)
            peak, started = get_peak(), time.process_time()
            guard.folder = os.path.realpath(folder)
            try:
                self.area.check_case(content, Path(folder))
            finally:
                guard.folder = None
            seconds, growth = time.process_time() - started, get_peak() - peak
        if guard.found:
            raise Finding("outside its folder: " + "; ".join(guard.found[:5]))
        if growth > MAX_GROWTH:
            raise Finding(f"took {growth / 2**20:.0f} MiB of memory; allowed: {MAX_GROWTH / 2**20:.0f} MiB")
        return seconds


def get_peak() -> int:
    """Bytes that this process took at most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@contextmanager
def limit_memory() -> Iterator[None]:
    """Inside the block this process has an address space of `MAX_MEMORY` bytes, on Linux."""
    if sys.platform != "linux":
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def describe(error: BaseException) -> tuple[str, str]:
    """A name for all cases with this error, and the traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{Path(one.filename).name}:{one.lineno}" for one in frames]
    place = places[-1] if places else ""
    detail = re.sub(r"viewbox-fuzz-\w+", "…", str(error).split(";")[0])[:100] if isinstance(error, Finding) else ""
    return f"{type(error).__name__} at {place} {detail}".strip(), _shorten("".join(traceback.format_exception(error)))


def _shorten(text: str, most: int = 20_000) -> str:
    return text if len(text) <= most else f"{text[: most // 2]}\n…\n{text[-most // 2 :]}"


@limit_memory()
def work(
    connection: Any, areas: dict[str, str], seed: int, step: int, shared: Any, cases: int, hang: float, trace: Path
) -> None:
    """Check cases until the parent ends this process, or each area has had its number of cases.

    `shared` holds four numbers an area: the next case, seconds spent so far, and processor seconds and number of the
    slowest case. Its last two numbers are the area and the wall time at which the present case began. Of a case that
    takes nearly `hang` seconds, the stacks of all threads are written to the file `trace`.
    """
    stacks = trace.open("w")
    sys.dont_write_bytecode = True
    logging.disable(logging.CRITICAL)
    guard, checkers = Guard(False), [Checker(name, module) for name, module in areas.items()]
    for checker in checkers:
        checker.make_case(seed, 0)  # corpora are made before a case is measured
    parent = os.getppid()
    while os.getppid() == parent:
        waiting = [n for n in range(len(checkers)) if not cases or shared[4 * n] < cases]
        if not waiting:
            break
        area = min(waiting, key=lambda n: (shared[4 * n + 1], n))
        number, began = int(shared[4 * area]), time.monotonic()
        shared[-2], shared[-1] = area, began
        faulthandler.dump_traceback_later(0.9 * hang, file=stacks)
        content = checkers[area].make_case(seed, number)
        try:
            seconds = checkers[area].check(content, guard)
            if seconds > shared[4 * area + 2]:
                shared[4 * area + 2], shared[4 * area + 3] = seconds, number
        except (Exception, SystemExit) as error:
            with suppress(OSError):
                connection.send((checkers[area].name, number, content, *describe(error)))
        shared[4 * area] = number + step
        shared[4 * area + 1] += time.monotonic() - began
        shared[-1] = 0.0
    faulthandler.cancel_dump_traceback_later()
    connection.close()
