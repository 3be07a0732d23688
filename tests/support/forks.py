"""Processes that have torch, transformers and trl imported: forks of one that does nothing but import them.

A fork has a pid, signals, an exit status and an output of its own, as a command that a shell starts, and starts at once.
The first one costs the imports, some 8 s. No thread runs in the process that is forked, and CUDA is not touched there.
"""

import multiprocessing
import os
import sys
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["viewbox.training.run"])


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
        assert self.status is not None, f"still running after {timeout} s"
        return self.status, self.output.read_text()


def start(main, *arguments, folder, **environment):
    """Runs `sys.exit(main([...]))` in `folder`, which is also on the import path, as a process of its own."""
    output = Path(folder) / f"{main.__module__.split('.')[-1]}.out"
    process = FORKS.Process(target=_run, args=(main, list(map(str, arguments)), folder, output, environment))
    process.start()
    return Fork(process, output)


def _run(main, arguments, folder, output, environment):
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    os.environ.update(environment)
    sys.exit(main(arguments))
