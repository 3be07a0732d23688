"""What tests say to the server that viewbox starts in place of vLLM's, and what it did: see `fake_vllm/`."""

import json
import os
import shutil
from contextlib import ExitStack
from pathlib import Path

import viewbox
from tests.support.servers import serve
from tests.support.vllm_server import TrainedVLLM
from tests.support.waiting import wait_until_gone
from viewbox.configs.sections import ModelSection
from viewbox.engines.hf import loading

ROOT = Path(__file__).resolve().parents[2]
FAKE = Path(__file__).with_name("fake_vllm") / "vllm"


class FakeVLLM(ExitStack):
    """What tests say to the stand-in, and what it did, by files in a folder, which also holds the package `vllm`.

    The process that starts servers needs the folder on its import path, and `variables` in its environment. Each start
    loads its model anew (`tests/support/vllm_server.py`), in this process, which has torch imported.
    """

    def __init__(self, folder):
        super().__init__()
        self.folder, self.loaded = folder, []
        shutil.copytree(FAKE, folder / "vllm")
        paths = [str(folder), str(ROOT), str(Path(viewbox.__file__).parent.parent)]
        self.variables = {"FAKE_VLLM": str(folder), "PYTHONPATH": os.pathsep.join(paths)}
        self.variables["FAKE_VLLM_MODELS"] = str(self.enter_context(serve(self._load)).server_port)

    def _load(self, body, number):
        section = ModelSection(name=body["model"], dtype="float32")
        _, processor = loading.load_processor(section)
        for name, value in body["settings"].items():
            setattr(processor.image_processor, name, value)
        self.loaded.append(TrainedVLLM(loading.load_model(section).eval(), processor))
        return {"port": self.enter_context(self.loaded[-1].serve()).server_port}

    def set(self, name, number):
        """Sets `fails`, `hangs`, `dies` or `then`."""
        (self.folder / name).write_text(str(number))

    def read_starts(self):
        path = self.folder / "starts"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def read_calls(self):
        """The requests about weights and sleep."""
        return [path for served in self.loaded for path in served.calls]

    def check_ended(self, seconds=60):
        """Waits until no process of any start is left."""
        pids = [pid for start in self.read_starts() for pid in start["pids"]]
        assert pids
        wait_until_gone(pids, seconds)
