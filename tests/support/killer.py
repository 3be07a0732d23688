"""Trains, and kills itself with SIGKILL at a given moment; to be run in a process of its own."""

import os
import resource
import shutil
import signal
from pathlib import Path

import torch

from viewbox.engines.hf.engine import HFGenerator
from viewbox.rollouts.store.writer import EpisodeWriter
from viewbox.training import command as train
from viewbox.training.reporting import callbacks


def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


def half_a_line(self, line, replaces):
    os.write(self._fd, line[: len(line) // 2])
    die()


def half_of_the_metrics(self, args, state, control, logs=None, **_):
    with self.path.open("a") as file:
        file.write('{"step": 3, "los')
    die()


def half_a_file(value, path, *_, **__):
    Path(path).write_bytes(b"half")
    die()


MOMENTS = {
    "generation": (HFGenerator, "_draw", die),
    "an append": (EpisodeWriter, "_append_line", half_a_line),
    "a metrics line": (callbacks.MetricsFile, "on_log", half_of_the_metrics),
    "saving tensors": (torch, "save", half_a_file),
    "the rename": (os, "replace", die),
    "forgetting an old checkpoint": (shutil, "rmtree", die),
}


def fill_disk(argv):
    """`argv`: the bytes that a file may have, and the arguments of `viewbox train`."""
    limit, *arguments = argv
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
    return train.main(arguments)


def main(argv):
    """`argv`: a moment, which time it kills (1: the first), and the arguments of `viewbox train`."""
    moment, number, *arguments = argv
    owner, name, instead = MOMENTS[moment]
    real, calls = getattr(owner, name), [0]

    def counted(*args, **kwargs):
        calls[0] += 1
        return (instead if calls[0] == int(number) else real)(*args, **kwargs)

    setattr(owner, name, counted)
    return train.main(arguments)
