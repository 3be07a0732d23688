"""A vLLM server in processes of its own, with a model of this machine and the flags of tests."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import viewbox
from viewbox.engines.vllm.process import ServerProcess

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
    *("--worker-extension-cls", "viewbox.engines.vllm.vllm_extension.FileWeights"),
    *("--weight-transfer-config", '{"backend": "file"}'),
]


def save_as_released(name, model, processor, folder):
    """Save a tiny family with what vLLM reads of the released config.json and transformers' class has no field for."""
    for part in (model, processor):
        part.save_pretrained(folder)
    if name.startswith("gemma4"):
        config = json.loads((folder / "config.json").read_text())
        config["vision_config"]["default_output_length"] = processor.image_seq_length
        (folder / "config.json").write_text(json.dumps(config))


class VLLMProcess(ServerProcess):
    """A server and its processes, which can be killed, stopped and started again on the same port.

    `flags` come after those that all servers have; of two with one name the last one counts.
    """

    def __init__(self, model, log, *flags, python=sys.executable):
        start = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
        command = lambda port: [*start, "--port", str(port), *FLAGS, *flags]  # noqa: E731
        super().__init__(command, log, {**os.environ, **ENVIRONMENT})

    def start(self):
        self.confirm()  # a test may kill it as often as it likes
        self.poll()
        return self

    def wait(self):
        super().wait()
        return self

    def kill(self):
        if self.is_running():
            os.killpg(self.pid, signal.SIGKILL)
            while self.is_running():
                time.sleep(0.05)
