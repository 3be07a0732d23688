"""Processes that have torch, transformers and trl imported: forks of one that does nothing but import them.

A fork has a pid, signals, an exit status and an output of its own, like a command that a shell starts; it starts at
once. The first one costs the imports, some 8 s. The process that is forked runs no thread and does not touch CUDA.
"""

import multiprocessing
import os
import runpy
import socket
import sys
import tempfile
from dataclasses import dataclass
from itertools import count
from multiprocessing.process import BaseProcess
from pathlib import Path

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["viewbox.training.run"])
NUMBERS = count()


@dataclass
class Fork:
    """A running function. `status` is as in `subprocess`: negative where a signal ended it."""

    process: BaseProcess
    output: Path

    @property
    def pid(self):
        return self.process.pid

    @property
    def status(self):
        """None while it runs."""
        return self.process.exitcode

    def kill(self):
        """SIGKILL, unless it has ended."""
        self.process.kill()

    def wait(self, timeout=120):
        """The status, and what was printed to stdout and stderr."""
        self.process.join(timeout)
        hangs = self.status is None
        self.kill()
        assert not hangs, f"still running after {timeout} s:\n{self.output.read_text()}"
        return self.status, self.output.read_text()


def start_script(path, *arguments, folder, **environment):
    """Runs `python path arguments` in `folder`."""
    return start(_run_script, path, *arguments, folder=folder, **environment)


def _run_script(argv):
    sys.argv = argv
    sys.path.insert(0, str(Path(argv[0]).parent))
    runpy.run_path(argv[0], run_name="__main__")


def start(main, *arguments, folder, **environment):
    """Runs `sys.exit(main([...]))` in `folder`, which is also on the import path, as a process of its own."""
    output = Path(folder) / f"output-{next(NUMBERS)}"
    given = (main, list(map(str, arguments)), folder, output, environment)
    process = FORKS.Process(target=_run, args=given, daemon=True)  # ends with the tests
    process.start()
    return Fork(process, output)


def run_together(main, *arguments, folder, count=2):
    """Runs a function in several processes, which know of each other; returns what they printed."""
    running = [start(main, *arguments, folder=folder, **rank) for rank in list_ranks(count)]
    return "".join(process.wait()[1] for process in running)


def list_ranks(count):
    """The variables of each of `count` processes, as a launcher sets them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return [shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]


def _run(main, arguments, folder, output, environment):
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    os.environ.update(environment)
    tempfile.tempdir = None  # TMPDIR is read again
    sys.exit(main(arguments))
