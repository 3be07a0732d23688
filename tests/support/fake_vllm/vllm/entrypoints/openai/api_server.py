"""Stands for vLLM's server, in a process of its own; the model is a plain one (`tests/support/vllm_server.py`).

The folder that FAKE_VLLM names holds what a test wants and what happened here:

    fails   a number of starts that end at once, with an error
    dies    a number of replies after which this process ends, once
    then    becomes `fails` when it does
    starts  a line of JSON for each start: the arguments, some environment variables, and all process ids
    calls   a line for each request about weights and sleep
"""

import argparse
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

FOLDER = Path(os.environ["FAKE_VLLM"])
VARIABLES = ("VLLM_SERVER_DEV_MODE", "RANK", "MASTER_PORT", "PYTHONPATH")


def take(name, count=1):
    """The number in a file, which is lowered by `count`; 0 if there is none."""
    path = FOLDER / name
    number = int(path.read_text()) if path.exists() else 0
    if number > count:
        path.write_text(str(number - count))
    else:
        path.unlink(missing_ok=True)
    return number


def write(name, line):
    with (FOLDER / name).open("a") as file:
        file.write(line + "\n")


def main():
    worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])  # as vLLM has some
    given = {"arguments": sys.argv[1:], "pids": [os.getpid(), worker.pid]}
    write("starts", json.dumps(given | {name: os.environ.get(name) for name in VARIABLES}))
    print("the server loads", flush=True)
    if take("fails"):
        print("CUDA out of memory", flush=True)
        os._exit(1)

    from tests.support.vllm_server import TrainedVLLM
    from viewbox.configs.sections import ModelSection
    from viewbox.engines.hf import loading

    class Fake(TrainedVLLM):
        def _record(self, path, method):
            answer = super()._record(path, method)
            return lambda body: write("calls", path) or answer(body)

        def generate(self, body):
            with lock:
                if take("dies") == 1:
                    if (FOLDER / "then").exists():
                        (FOLDER / "then").rename(FOLDER / "fails")
                    os._exit(1)
            return super().generate(body)

    lock = threading.Lock()
    parser = argparse.ArgumentParser()
    parser.add_argument("--model")
    parser.add_argument("--port", type=int)
    parser.add_argument("--mm-processor-kwargs", type=json.loads, default={})
    found, _ = parser.parse_known_args()
    section = ModelSection(name=found.model, dtype="float32")
    _, processor = loading.load_processor(section)
    for name, value in found.mm_processor_kwargs.items():
        setattr(processor.image_processor, name, value)
    with Fake(loading.load_model(section).eval(), processor).serve(found.port):
        threading.Event().wait()


if __name__ == "__main__":
    main()
