"""A server in processes of its own, which viewbox starts, starts again if it dies, and ends.

    server = ServerProcess(lambda port: ["python", "-m", "some.server", "--port", str(port)], Path("server.log"))
    server.wait()       # until it answers at `server.url`
    server.end()

The server ends with this process at the latest, however that ends: `watch` runs it, in a process of its own.

`build_server` makes the one of a config without `rollout.url`. vLLM is the package of this environment or, if it has
none, the command `vllm` on the PATH, which may belong to another: vLLM and the trainer pin other transformers.
"""

import inspect
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

import httpx

from ...configs.sections import ModelSection
from ...errors import ConfigError
from ...network.http import build_client_settings
from ...utils.secrets import mask_message
from ...utils.terminal import make_line, make_printable
from ..generator import GeneratorError
from ..settings import ServerSettings as Settings

LOG = "server.log"  # its name in the folder of a run
START = 1800.0  # seconds that a start may take; large weights may be downloaded in it
PAUSE = 0.5  # seconds between two looks at a server that starts
MAX_STARTS = 2  # in a row, without anything that worked between them
TAIL = 20  # lines of the log that an error shows
LINE = 300  # characters of such a line
GRACE = 20.0  # seconds that the server has to end by itself

log = logging.getLogger("viewbox.server")
FLAGS = "--enable-scale-out --logprobs-mode processed_logprobs --max-logprobs -1"
EXTENSION = "viewbox_vllm_extension"  # the name under which the server imports `vllm_extension.py`
SHARE_ALONE, SHARE_BESIDE_TRAINER = 0.9, 0.4  # of the GPU's memory; 0.4 is a guess, no GPU was used
CPU_VARIABLES = {
    "VLLM_CPU_KVCACHE_SPACE": "2",  # GiB; by default vLLM takes nine tenths of the memory
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # cores may be shared with other processes
    "TORCHDYNAMO_DISABLE": "1",  # compiling takes longer than a small model gains
}
# Set by torchrun and accelerate for the processes of the trainer, of which the server is none
LAUNCHERS = ("TORCHELASTIC_", "ACCELERATE_", "GROUP_", "ROLE_", "MASTER_")
RANKS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")


def watch(command: list[str], grace: float) -> None:
    """Run a command for as long as the process that asked for it lives; every process of the command ends with it.
    Standard input is a pipe whose end says that the owner is gone. This runs alone (`python -c`), as the leader of the
    command's process group, and ends last."""
    import os
    import signal
    import subprocess
    import sys
    import threading

    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def end(number: int = 0, frame: object = None) -> None:
        child.terminate()
        threading.Timer(grace, child.kill).start()

    def wait_for_owner() -> None:
        sys.stdin.buffer.read()
        end()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    threading.Thread(target=wait_for_owner, daemon=True).start()
    status = child.wait()
    print(f"viewbox: the command ended with status {status}", flush=True)
    os.killpg(os.getpid(), signal.SIGKILL)  # this process, too


WATCH = f"{inspect.getsource(watch)}\nimport sys\nwatch(sys.argv[1:], {GRACE})"


class ServerProcess:
    """A server on 127.0.0.1. Its port is chosen once, so that it is found at the same address after a restart. What it
    prints is appended to the file `log` (None: a temporary one), and `show` is called with progress while it starts."""

    def __init__(
        self,
        build_command: Callable[[int], Sequence[str]],
        log: Path | None = None,
        environment: Mapping[str, str] = os.environ,
        *,
        show: Callable[[str], None] = lambda line: None,
    ) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url, self.command = f"http://127.0.0.1:{port}", list(build_command(port))
        self.log, self.environment, self.show = log, dict(environment), show
        self.num_started = 0
        self._starts = 0  # since something worked
        self._was_up = self._is_up = False
        self._process: subprocess.Popen[bytes] | None = None
        self._began = 0.0
        self._lock = Lock()

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def is_running(self) -> bool:
        """Return whether its processes run; it may not answer yet."""
        return self._process is not None and self._process.poll() is None

    def is_ready(self) -> bool:
        return self._is_up and self.is_running()

    def poll(self) -> bool:
        """Start the server if it does not run; return whether it answers. It does not wait. Raise `GeneratorError` if
        the first start failed, or `MAX_STARTS` in a row."""
        with self._lock:
            if not self.is_running():
                self._start()
            elif not self._is_up:
                if self._probe():
                    self._is_up = self._was_up = True
                    log.info("the server at %s answers after %.0f s", self.url, time.monotonic() - self._began)
                elif time.monotonic() - self._began > START:
                    self._end()
            return self._is_up

    def wait(self) -> None:
        """Start the server if needed and wait until it answers; raise as `poll` does."""
        while not self.poll():
            self.show(self.describe_start())
            time.sleep(PAUSE)

    def confirm(self) -> None:
        """Reset the count of failed starts after a success."""
        self._starts = 0

    def end(self) -> None:
        with self._lock:
            self._end()

    def describe_start(self) -> str:
        lines = self._read_log(1)
        return f"the server starts: {time.monotonic() - self._began:.0f} s  {lines[-1] if lines else ''}".rstrip()

    def _start(self) -> None:
        if self._process is not None:
            if not self._was_up or self._starts >= MAX_STARTS:
                lines = "\n".join(f"  {line}" for line in self._read_log(TAIL))
                what = f"ended {self._starts} times in a row" if self._was_up else "did not start"
                raise GeneratorError(f"the server {what}; its log, {self.log}, ends with:\n{lines}")
            log.warning("the server at %s has ended and is started again; its log: %s", self.url, self.log)
        self._starts += 1
        self.num_started += 1
        self._is_up, self._began = False, time.monotonic()
        self.log = self.log or Path(tempfile.mkdtemp(prefix="viewbox-server-")) / LOG
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-c", WATCH, *self.command],
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in a terminal reaches this process alone, which then ends the server
            )

    def _probe(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", timeout=5.0, **build_client_settings(self.url)).is_success
        except httpx.HTTPError:
            return False

    def _read_log(self, count: int) -> list[str]:
        if self.log is None or not self.log.is_file():
            return []
        with self.log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 64 * 1024))
            text = file.read().decode(errors="replace")
        lines = [line for line in text.replace("\r", "\n").splitlines() if line.strip()]
        return [make_line(mask_message(make_printable(line)), LINE) for line in lines[-count:]]

    def _end(self) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            return
        assert process.stdin is not None
        process.stdin.close()  # `watch` ends the rest
        try:
            process.wait(GRACE + 10.0)
        finally:  # it hangs, or Ctrl-C was pressed again
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def find_vllm() -> list[str]:
    """Return the command that a server is started with, without its flags. Raise `ConfigError` if there is no vLLM."""
    if find_spec("vllm") is not None:
        return [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    command = shutil.which("vllm")
    if command is None:
        raise ConfigError(
            "rollout.engine = vllm: vLLM is not installed, and no command `vllm` is on the PATH; allowed: `pip install "
            "vllm`, here or in an environment of its own, or rollout.url, the address of a server that was started "
            "before (docs/scaling.md)",
            key="rollout.engine",
        )
    return [command, "serve"]


def build_server(
    model: ModelSection, settings: Settings, image_processor: Any, *, dtype: str, gpu: bool, run: Path | None = None
) -> ServerProcess:
    """Return a server for a named model; it is not started yet. Settings of the image processor that are not those of
    the model's folder become the server's. `run` is the folder of a training run that sends it weights."""
    from ...assets import find_model_folder
    from ..hf.loading import find_changed_settings

    changed = find_changed_settings(model, image_processor)
    flags = build_flags(model, settings, changed, dtype=dtype, gpu=gpu, trains=run is not None)
    environment = build_environment(os.environ, gpu=gpu)
    if run is not None:
        environment["VLLM_SERVER_DEV_MODE"] = "1"
        folder = (run / "server").resolve()  # holds the extension alone, so that the server needs no viewbox
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(Path(__file__).with_name("vllm_extension.py"), folder / f"{EXTENSION}.py")
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), environment.get("PYTHONPATH", "")]))
    start, name = find_vllm(), str(find_model_folder(str(model.name)) or model.name)
    start += ["--model", name] if "-m" in start else [name]
    return ServerProcess(
        lambda port: [*start, "--host", "127.0.0.1", "--port", str(port), *flags], run and run / LOG, environment
    )


def build_flags(
    model: ModelSection, settings: Settings, changed: Mapping[str, Any], *, dtype: str, gpu: bool, trains: bool
) -> list[str]:
    """Return the flags of a server, without its model and address; `changed` are settings of its image processor."""
    flags = [
        *FLAGS.split(),
        *("--dtype", dtype, "--max-num-seqs", str(settings.slots)),
        *("--max-model-len", "-1"),  # the longest one that fits
        *("--limit-mm-per-prompt", json.dumps({"video": 0})),
        *(("--mm-processor-kwargs", json.dumps(changed)) if changed else ()),
        "--disable-uvicorn-access-log",
    ]
    if model.revision is not None:
        flags += ["--revision", model.revision]
    if trains:
        flags += ["--worker-extension-cls", f"{EXTENSION}.FileWeights"]
        flags += ["--weight-transfer-config", json.dumps({"backend": "file"})]
    if gpu:
        share = settings.gpu_memory or (SHARE_BESIDE_TRAINER if trains else SHARE_ALONE)
        return [*flags, "--gpu-memory-utilization", str(share), *(["--enable-sleep-mode"] if trains else [])]
    # vLLM 0.32 on a CPU dies of a request with a seed whose prompt it reads in parts
    return [*flags, "--enforce-eager", "--no-enable-chunked-prefill"]


def build_environment(variables: Mapping[str, str], *, gpu: bool) -> dict[str, str]:
    """Return the environment variables of a server that a process with these starts.

    >>> build_environment({"HOME": "/root", "RANK": "0", "MASTER_PORT": "29500"}, gpu=True)
    {'VLLM_NO_USAGE_STATS': '1', 'HOME': '/root'}
    """
    passed = {key: value for key, value in variables.items() if key not in RANKS and not key.startswith(LAUNCHERS)}
    return {"VLLM_NO_USAGE_STATS": "1", **({} if gpu else CPU_VARIABLES), **passed}


def choose_dtype(dtype: str, model_config: object) -> str:
    """Return the precision for vLLM: "auto" is that of the saved weights, for which vLLM would take another.

    >>> from types import SimpleNamespace
    >>> choose_dtype("auto", SimpleNamespace(dtype="torch.float32")), choose_dtype("bfloat16", None)
    ('float32', 'bfloat16')
    """
    saved = getattr(model_config, "dtype", None)
    return dtype if dtype != "auto" or saved is None else str(saved).removeprefix("torch.")
