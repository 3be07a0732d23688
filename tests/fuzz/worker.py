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
from pathlib import Path
from typing import Any

from viewbox.publish.checks import child

MAX_MEMORY = 2**33  # bytes of address space of a process
MAX_GROWTH = 2**30  # bytes by which one case may raise the peak of a process
HANG = 120.0  # seconds that a case may take by the clock
RETRIES = 2  # of a case that was slow: the machine may have been busy
PROCESSES = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "pty.spawn")


class Finding(AssertionError):
    """What a case did that no case may do."""


class Guard(child.Guard):
    """Collects forbidden actions while a case runs: writing outside its folder, starting a process, calling out."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.is_on = self.processes = False  # `processes`: whether the area may start some: files are decoded in others
        super().__init__(None, "")
        self.refuses_calls = False

    def start(self, folder: str, processes: bool) -> None:
        more = [tempfile.gettempdir()] if processes else []
        self._roots = (os.path.realpath(folder), "/dev/null", "/dev/shm", "/proc/self", *more)
        self.found, self.processes, self.is_on = [], processes, True

    def _see(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.is_on:
            return
        if event == "socket.connect" and isinstance(args[1], tuple) and args[1][0] not in ("127.0.0.1", "::1"):
            self._refuse(event, f"{args[1]!r:.200}")
        elif event in PROCESSES and not self.processes:
            self._refuse(event, f"{args!r:.200}")
        super()._see(event, args)

    def _refuse(self, kind: str, detail: str) -> None:
        self.found.append(f"{kind} {detail}")


class Checker:
    """Checks the cases of one area; `check` raises what the case did wrong and returns its processor seconds."""

    def __init__(self, name: str) -> None:
        self.name, self.area = name, importlib.import_module(f"tests.fuzz.{name}")

    def make_case(self, seed: int, number: int) -> bytes:
        """The same bytes for the same seed and number, on any machine."""
        return self.area.make_case(random.Random(f"{self.name} {seed} {number}"))

    def check(self, content: bytes, guard: Guard) -> float:
        seconds = self._check_once(content, guard)
        for _ in range(RETRIES):
            if seconds > self.area.CPU_SECONDS:
                seconds = min(seconds, self._check_once(content, guard))
        if seconds > self.area.CPU_SECONDS:
            raise Finding(f"took {seconds:.1f} s of processor time; allowed: {self.area.CPU_SECONDS} s")
        return seconds

    def _check_once(self, content: bytes, guard: Guard) -> float:
        with tempfile.TemporaryDirectory(prefix="viewbox-fuzz-") as folder:
            peak, started = get_peak(), time.process_time()
            guard.start(folder, getattr(self.area, "PROCESSES", False))
            try:
                self.area.check_case(content, Path(folder))
            finally:
                guard.is_on = False
            seconds, growth = time.process_time() - started, get_peak() - peak
        if guard.found:
            raise Finding("outside its folder: " + "; ".join(guard.found[:5]))
        if growth > MAX_GROWTH:
            raise Finding(f"took {growth / 2**20:.0f} MiB of memory; allowed: {MAX_GROWTH / 2**20:.0f} MiB")
        return seconds


def get_peak() -> int:
    """Bytes that this process took at most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def limit() -> None:
    """Give this process an address space of `MAX_MEMORY` bytes (Linux), and end it, with its stacks, after `HANG`."""
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    faulthandler.dump_traceback_later(HANG, exit=True)


def describe(error: BaseException) -> tuple[str, str]:
    """A name for all cases with this error, and the traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    place = "".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames[-1:])
    detail = re.sub(r"viewbox-fuzz-\w+", "…", str(error).split(";")[0])[:100] if isinstance(error, Finding) else ""
    return f"{type(error).__name__} at {place} {detail}".strip(), "".join(traceback.format_exception(error))


def work(connection: Any, following: dict[str, int], seed: int, step: int, seconds: float, cases: int) -> None:
    """Check cases of the areas in `following`, from those numbers on, for some seconds, or up to `cases` of each. Each
    area gets the same time. What is sent: area and number of a case that begins, and then what it did wrong, if it
    did."""
    sys.dont_write_bytecode = True
    logging.disable(logging.CRITICAL)
    limit()
    guard, checkers = Guard(), {name: Checker(name) for name in following}
    for checker in checkers.values():
        checker.make_case(seed, 0)  # corpora are made before a case is measured
    spent, end = dict.fromkeys(following, 0.0), time.monotonic() + seconds
    while (began := time.monotonic()) < end:
        name = min((name for name in following if not cases or following[name] < cases), key=spent.get, default=None)
        if name is None:
            break
        number = following[name]
        following[name] += step
        connection.send((name, number, None))
        faulthandler.dump_traceback_later(HANG, exit=True)
        try:
            checkers[name].check(checkers[name].make_case(seed, number), guard)
        except (Exception, SystemExit) as error:
            connection.send((name, number, describe(error)))
        spent[name] += time.monotonic() - began
