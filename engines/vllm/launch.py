"""The vLLM server that viewbox starts for a config without `rollout.url`: its command and environment variables.

vLLM is the package of this environment or, if it has none, the command `vllm` on the PATH, which may belong to another
environment: vLLM and viewbox's trainer pin other versions of transformers.
"""

import json
import os
import shutil
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...configs.sections import ModelSection
from ...errors import ConfigError
from ..hf.loading import find_model_folder
from .process import LOG, ServerProcess
from .settings import Settings
from .vllm import FLAGS

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


def find_vllm() -> list[str]:
    """Return the command that a server is started with, without its flags.

    Raises:
        ConfigError: there is no vLLM.
    """
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
    model: ModelSection,
    settings: Settings,
    image_processor: object,
    *,
    dtype: str,
    gpu: bool,
    run: Path | None = None,
) -> ServerProcess:
    """Return a server for a model; it is not started yet.

    Args:
        model: of which `name` is set.
        settings: the section `rollout`.
        image_processor: its bounds of pixels become the server's.
        dtype: precision of the weights, or "auto".
        gpu: whether this machine has a GPU.
        run: the folder of the training run that sends weights to the server; None: it only plays.

    Raises:
        ConfigError: there is no vLLM.
    """
    flags = build_flags(model, settings, image_processor, dtype=dtype, gpu=gpu, trains=run is not None)
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
    model: ModelSection, settings: Settings, image_processor: Any, *, dtype: str, gpu: bool, trains: bool
) -> list[str]:
    """Return the flags of a server, without its model and address."""
    bounds = dict(image_processor.size)
    size = {name: bounds[name] for name in ("shortest_edge", "longest_edge")}
    flags = [
        *FLAGS.split(),
        *("--dtype", dtype, "--max-num-seqs", str(settings.slots)),
        *("--max-model-len", "-1"),  # the longest one that fits
        *("--limit-mm-per-prompt", json.dumps({"video": 0})),
        *("--mm-processor-kwargs", json.dumps({"size": size})),
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
    kept = {key: value for key, value in variables.items() if key not in RANKS and not key.startswith(LAUNCHERS)}
    return {"VLLM_NO_USAGE_STATS": "1", **({} if gpu else CPU_VARIABLES), **kept}


def choose_dtype(dtype: str, model_config: object) -> str:
    """Return the precision for vLLM: "auto" is the one that the weights were saved in, for which vLLM would take
    another.

    >>> from types import SimpleNamespace
    >>> choose_dtype("auto", SimpleNamespace(dtype="torch.float32")), choose_dtype("bfloat16", None)
    ('float32', 'bfloat16')
    """
    saved = getattr(model_config, "dtype", None)
    return dtype if dtype != "auto" or saved is None else str(saved).removeprefix("torch.")
