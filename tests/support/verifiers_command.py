"""Runs verifiers' installed commands in the test's own process."""

import importlib.metadata
import json
import os
import signal
import sys

import pytest


def run_command(name, *arguments, path, cwd):
    """Runs one of verifiers' installed commands in this process, with `path` on the import path."""
    (installed,) = importlib.metadata.entry_points(group="console_scripts", name=name)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with pytest.MonkeyPatch.context() as patch:
        for key in [key for key in os.environ if key.startswith("PRIME_")]:
            patch.delenv(key)
        patch.setenv("HOME", str(cwd))
        patch.setenv("VF_RUN_ID", "")  # each command makes its own
        patch.delenv("VF_RUN_ID")
        patch.setattr(sys, "argv", [name, *map(str, arguments)])
        patch.syspath_prepend(path)
        patch.chdir(cwd)
        try:
            installed.load()()
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)


def read_traces(folder):
    """The traces that `vf-eval` left in a folder."""
    (saved,) = folder.rglob("traces.jsonl")
    return [trace for line in saved.read_text().splitlines() for trace in json.loads(line)["traces"]]
