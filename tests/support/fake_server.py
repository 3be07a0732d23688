"""What tests say to the server that viewbox starts in place of vLLM's, and what it did: see `fake_vllm/`."""

import json
import os
import shutil
from pathlib import Path

import viewbox
from tests.support.waiting import wait_until_gone

ROOT = Path(__file__).resolve().parents[2]
FAKE = Path(__file__).with_name("fake_vllm") / "vllm"


class FakeVLLM:
    """What tests say to the stand-in, and what it did, by files in a folder, which also holds the package `vllm`.

    The process that starts servers needs the folder on its import path, and `variables` in its environment.
    """

    def __init__(self, folder):
        self.folder = folder
        shutil.copytree(FAKE, folder / "vllm")
        paths = [str(folder), str(ROOT), str(Path(viewbox.__file__).parent.parent)]
        self.variables = {"FAKE_VLLM": str(folder), "PYTHONPATH": os.pathsep.join(paths)}

    def set(self, name, number):
        """Sets `fails`, `dies` or `then`."""
        (self.folder / name).write_text(str(number))

    def read_starts(self):
        path = self.folder / "starts"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def read_calls(self):
        return (self.folder / "calls").read_text().split()

    def check_ended(self, seconds=60):
        """Waits until no process of any start is left."""
        pids = [pid for start in self.read_starts() for pid in start["pids"]]
        assert pids
        wait_until_gone(pids, seconds)
