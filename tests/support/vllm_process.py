"""A vLLM server in processes of its own, with a model of this machine."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx

import viewbox

START = 300.0  # seconds a start may take
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_SERVER_DEV_MODE": "1",
    "PYTHONPATH": str(Path(viewbox.__file__).parent.parent),
}
FLAGS = [
    *("--served-model-name", "tiny", "--host", "127.0.0.1", "--dtype", "float32", "--enforce-eager"),
    *("--max-model-len", "4096", "--max-num-seqs", "16", "--limit-mm-per-prompt", '{"image": 8, "video": 0}'),
    *("--enable-scale-out", "--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--block-size", "32"),
    *("--logprobs-mode", "processed_logprobs", "--max-logprobs", "-1"),
    *("--worker-extension-cls", "viewbox.rollouts.token_server.vllm_extension.FileWeights"),
    *("--weight-transfer-config", '{"backend": "file"}'),
]


class VLLMProcess:
    """A server and its processes, which can be killed, stopped and started again on the same port.

    Args:
        model: a folder.
        log: the file that everything is written to.
        flags: of the command, after those that all servers have; of two with one name the last one counts.
        python: of the environment that has vLLM.
    """

    def __init__(self, model, log, *flags, python=sys.executable):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url, self.log, self.model, self.python = f"http://127.0.0.1:{self.port}", log, str(model), python
        self.flags = [*FLAGS, *flags]
        self.process = None

    def start(self):
        command = [self.python, "-m", "vllm.entrypoints.openai.api_server"]
        command += ["--model", self.model, "--port", str(self.port), *self.flags]
        with self.log.open("ab") as out:
            environment = {**os.environ, **ENVIRONMENT}
            self.process = subprocess.Popen(
                command, env=environment, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )
        return self

    def wait(self):
        """Waits until it answers."""
        deadline = time.monotonic() + START
        while time.monotonic() < deadline:
            try:
                if httpx.get(f"{self.url}/health", timeout=5.0, trust_env=False).status_code == 200:
                    return self
            except httpx.TransportError:
                pass
            if self.process.poll() is not None:
                break
            time.sleep(0.5)
        raise RuntimeError(f"vLLM did not start:\n{self.log.read_text(errors='replace')[-3000:]}")

    def send_signal(self, number):
        """To the server and its processes, and to no other."""
        os.killpg(self.process.pid, number)

    def kill(self):
        if self.process is not None and self.process.poll() is None:
            self.send_signal(signal.SIGKILL)
            self.process.wait(30)
