"""Stands for vLLM's server, in a process of its own without torch: the process of the test computes its replies.

The folder that FAKE_VLLM names holds what a test wants and what happened here:

    fails   a number of starts that end at once, with an error
    hangs   a number of starts that take minutes
    dies    a number of replies after which this process ends, once
    then    becomes `fails` when it does
    starts  a line of JSON for each start: the arguments, some environment variables, and all process ids
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from http.client import HTTPConnection
from pathlib import Path

from tests.support.servers import Handler, Server, run_server, send_bytes

FOLDER, MODELS = Path(os.environ["FAKE_VLLM"]), int(os.environ["FAKE_VLLM_MODELS"])
VARIABLES = ("VLLM_SERVER_DEV_MODE", "RANK", "MASTER_PORT", "PYTHONPATH")
LOCK = threading.Lock()


def take(name):
    """The number in a file, which is lowered by one; 0 if there is none."""
    path = FOLDER / name
    number = int(path.read_text()) if path.exists() else 0
    path.write_text(str(number - 1)) if number > 1 else path.unlink(missing_ok=True)
    return number


def ask(port, method, path, body):
    connection = HTTPConnection("127.0.0.1", port)
    connection.request(method, path, body)
    response = connection.getresponse()
    return response.status, response.read()


class Relay(Handler):
    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with LOCK:
            if self.path == "/inference/v1/generate" and take("dies") == 1:
                if (FOLDER / "then").exists():
                    (FOLDER / "then").rename(FOLDER / "fails")
                os._exit(1)
        send_bytes(*ask(self.server.answer, self.command, self.path, body))(self)

    do_POST = do_GET


def main():
    worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])  # as vLLM has some
    given = {"arguments": sys.argv[1:], "pids": [os.getpid(), worker.pid]}
    with (FOLDER / "starts").open("a") as file:
        file.write(json.dumps(given | {name: os.environ.get(name) for name in VARIABLES}) + "\n")
    print("the server loads", flush=True)
    if take("fails"):
        print("CUDA out of memory", flush=True)
        os._exit(1)
    if take("hangs"):
        time.sleep(600)
    parser = argparse.ArgumentParser()
    parser.add_argument("--model")
    parser.add_argument("--port", type=int)
    parser.add_argument("--mm-processor-kwargs", type=json.loads, default={})
    found, _ = parser.parse_known_args()
    wanted = {"model": found.model, "settings": found.mm_processor_kwargs}
    status, said = ask(MODELS, "POST", "/", json.dumps(wanted))
    assert status == 200, said
    with run_server(Server(json.loads(said)["port"], found.port, handler=Relay)):
        threading.Event().wait()


if __name__ == "__main__":
    main()
