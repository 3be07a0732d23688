"""Decodes files in a few worker processes, so that a hostile file costs itself and nothing else.

Workers start when they are needed. They are fresh interpreters, not forks: nothing of this process is in them, its
`__main__` is not imported, and they may be started from any thread. A worker that exceeds a limit is ended, its file
becomes an `ImageError`, and the next file gets another worker.
"""

import atexit
import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Condition, Lock
from typing import Literal

import numpy as np
from PIL import Image

from ...errors import ImageError
from .. import limits
from ..source import Source
from . import formats, transfer
from .paths import WHOLE, StackSelection
from .transfer import Channel, ChannelClosed, Message


class Budget:
    """Threads hold parts of `total`, and wait until their part fits. One thread waits at a time, in order, so small
    requests cannot starve a large one."""

    def __init__(self, total: int) -> None:
        self.total = self._free = total
        self._turn, self._returned = Lock(), Condition()

    @contextmanager
    def hold(self, amount: int) -> Iterator[None]:
        """Hold `amount`, which is at most `total`, until the block ends."""
        with self._turn, self._returned:
            self._returned.wait_for(lambda: self._free >= amount)
            self._free -= amount
        try:
            yield
        finally:
            with self._returned:
                self._free += amount
                self._returned.notify()


INLINE = 2**20  # bytes; content up to this size is sent, larger content goes into a file that the worker is given
KEPT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR", "LANG", "LC_ALL", "TZ")  # variables a worker sees
MALLOC = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": str(2**22), "MALLOC_TRIM_THRESHOLD_": str(2**24)}
LIMITS = [name for name in vars(limits) if name.isupper()]
THREADS = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
BOOT = """
import json, sys
from importlib import util
root, descriptors, sys.path[:] = json.loads(sys.argv[1])
if root:
    spec = util.spec_from_file_location("viewbox", root + "/__init__.py", submodule_search_locations=[root])
    sys.modules["viewbox"] = module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
from viewbox.images.files.worker import main
main(*descriptors)
"""  # the package may lie in a folder of any name, or in a zip file (`root` is ""): it is loaded from where it is

What = Literal["source", "picture"]


class IdleWorkerEnded(Exception):
    """The worker ended before it had the file."""


class WorkerProcess:
    """A process that decodes one file at a time (`viewbox.images.files.worker`)."""

    def __init__(self) -> None:
        if not sys.executable:
            raise ImageError("there is no Python (sys.executable) to start a process that decodes it")
        ours, theirs = socket.socketpair()
        root = Path(__file__).resolve().parents[2]
        is_folder = root.is_dir()
        zipped = [] if is_folder else [str(root.parent)]  # a zip file is one of the places that Python searches
        paths = [*zipped, *(os.path.abspath(path) for path in sys.path if path)]
        environment = {name: os.environ[name] for name in KEPT if name in os.environ}
        watched, self.held = os.pipe()  # nothing is ever written; it closes when this process ends, however it ends
        descriptors = [theirs.fileno(), watched]
        command = [sys.executable, "-I", "-S", "-c", BOOT, json.dumps([str(root) * is_folder, descriptors, paths])]
        problem = ""
        with theirs:
            try:
                self.process = subprocess.Popen(
                    command,
                    pass_fds=descriptors,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env={**environment, **THREADS, **MALLOC},
                    cwd="/",
                )
            except OSError as error:
                problem = error.strerror or type(error).__name__
        os.close(watched)
        if problem:
            os.close(self.held)
            ours.close()
            raise ImageError(f"no process to decode it can be started ({problem})")
        self.channel = Channel(ours)
        self.fresh = True  # it has not answered yet
        self.stays = False  # whether it can have another file
        self.limits: dict[str, float] = {}  # that it knows
        self.seconds = 0.0  # of processor time that the file may take

    def decode(
        self, what: What, content: formats.Content | bytes, memory: Budget, selection: StackSelection = WHOLE
    ) -> Source | Image.Image:
        """Send a file and receive what is in it; raise `ImageError` if it cannot be decoded."""
        self.stays, problem = False, ""
        self._set_time(0)
        try:
            self._send(what, content, selection)
            answer = self._receive()
            if "memory" not in answer:
                return self._finish(answer, limits.SMALL)
            wanted = int(answer["memory"])
            if not 0 < wanted <= memory.total:
                needs, allowed = wanted / 2**30, memory.total / 2**30
                raise ImageError(f"it needs {needs:.1f} GiB while it is opened; allowed: {allowed:.1f} GiB")
            with memory.hold(wanted):
                self._set_time(wanted)
                self.channel.send({})
                return self._finish(self._receive(), wanted)
        except TimeoutError:
            problem = f"it is not decoded after {limits.WAIT * self.seconds:.3g} s"
        except ChannelClosed:
            problem = self._describe_end()
        except (ImageError, IdleWorkerEnded, MemoryError):
            raise
        except Exception:  # a decoder may have been made to say anything
            problem = "its decoder gave no answer that can be read"
        raise ImageError(problem)

    def end(self) -> None:
        self.process.kill()
        with suppress(subprocess.TimeoutExpired):  # the kernel may keep it in a read of a disk that is gone
            self.process.wait(1)
        self._close()

    def forget(self) -> None:
        """Leave the process alone: it is the worker of the process from which this one was forked."""
        self._close()
        self.process.returncode = 0

    def _close(self) -> None:
        self.channel.sock.close()
        os.close(self.held)

    def _send(self, what: What, content: formats.Content | bytes, selection: StackSelection) -> None:
        request: Message = {"what": what} if selection == WHOLE else {"what": what, "selection": selection}
        known, self.limits = self.limits, {name: getattr(limits, name) for name in LIMITS}  # a program may change them
        if known != self.limits:
            request["limits"] = self.limits
        if isinstance(content, bytes) and len(content) <= INLINE:
            self.channel.send({**request, "inline": len(content)}, content)
        elif isinstance(content, bytes):
            with tempfile.TemporaryFile() as file:
                file.write(content)
                file.seek(0)
                self.channel.send(request, descriptors=[file.fileno()])
        else:
            self.channel.send(request, descriptors=[content if isinstance(content, int) else content.fileno()])

    def _receive(self) -> Message:
        answer, descriptors = self.channel.receive()
        for descriptor in descriptors:
            os.close(descriptor)
        self.fresh = False
        return answer

    def _finish(self, answer: Message, room: int) -> Source | Image.Image:
        if "error" in answer:
            self.stays = bool(answer["stays"])
            raise ImageError("".join(letter for letter in str(answer["error"]) if letter.isprintable())[:500])
        if answer["dtype"] not in transfer.DTYPES:
            raise ValueError
        dtype = np.dtype(np.uint8 if answer["dtype"] == "bytes" else answer["dtype"])
        shape = [int(side) for side in answer["shape"]]
        if not 1 <= len(shape) <= 4 or min(shape) < 1 or math.prod(shape) * dtype.itemsize > room:
            raise ValueError
        array = np.empty(shape, dtype)
        self.channel.read_into(array.reshape(-1).view(np.uint8).data)
        self.stays = bool(answer["stays"])
        return (transfer.unpack_picture if answer["dtype"] == "bytes" else transfer.unpack_source)(answer, array)

    def _set_time(self, memory: int) -> None:
        self.seconds = limits.get_cpu_seconds(memory)
        self.channel.deadline = time.monotonic() + limits.WAIT * self.seconds

    def _describe_end(self) -> str:
        """Return why the process has ended; raise `IdleWorkerEnded` if no file was the reason."""
        try:
            status = self.process.wait(1)
        except subprocess.TimeoutExpired:
            return "its decoder gave no answer that can be read"
        if self.fresh and status >= 0:
            return f"the process that decodes it could not be started (status {status})"
        if status == 0:
            raise IdleWorkerEnded
        if status == -signal.SIGPROF:
            return f"it takes more than {self.seconds:.3g} s of processor time to decode"
        name = signal.Signals(-status).name if -status in set(signal.Signals) else f"status {status}"
        return f"its decoder crashed ({name})"


class Pool:
    """The workers of this process, and the memory that the files they decode may take together."""

    def __init__(self) -> None:
        self.memory = Budget(limits.MAX_MEMORY)
        self._places = Budget(min(limits.MAX_WORKERS, max(4, os.cpu_count() or 1)))
        self._idle: list[WorkerProcess] = []
        self._all: set[WorkerProcess] = set()

    @contextmanager
    def lend(self) -> Iterator[WorkerProcess]:
        """Lend a worker for one file; wait until one is free."""
        with self._places.hold(1):
            worker = self._take()
            try:
                yield worker
            finally:
                if worker.stays:
                    self._idle.append(worker)
                else:
                    self._all.discard(worker)
                    worker.end()

    def _take(self) -> WorkerProcess:
        with suppress(IndexError):
            while (worker := self._idle.pop()).process.poll() is not None:  # it was idle for too long, or was killed
                self._all.discard(worker)
                worker.end()
            return worker
        worker = WorkerProcess()
        self._all.add(worker)
        return worker

    def end(self) -> None:
        """End the idle workers. The others end when this process does, which closes their sockets."""
        while self._idle:
            self._idle.pop().end()

    def forget(self) -> None:
        """Leave all workers alone, in a process that was forked from this one."""
        for worker in self._all:
            worker.forget()


_pool = Pool()


def decode(what: What, content: formats.Content | bytes, selection: StackSelection = WHOLE) -> Source | Image.Image:
    """Decode a file (open, its bytes, or the descriptor of a folder) in a worker. `what` is wanted: the source, or the
    first picture if the file is of a format that Pillow reads."""
    while True:
        with suppress(IdleWorkerEnded), _pool.lend() as worker:
            return worker.decode(what, content, _pool.memory, selection)


def _start_again() -> None:
    global _pool
    _pool.forget()
    _pool = Pool()


os.register_at_fork(after_in_child=_start_again)
atexit.register(lambda: _pool.end())
