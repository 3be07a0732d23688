"""Whether a run can start here: how it was launched, and whether its folder can be written to and has room."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...assets import resolve_model_path
from ...configs.schema import Config
from ...errors import ConfigError
from ...utils.files import check_out, find_existing

GIB = 2**30
_SHARDED = {
    "ACCELERATE_USE_FSDP": "FSDP",
    "ACCELERATE_USE_DEEPSPEED": "DeepSpeed",
    "ACCELERATE_USE_MEGATRON_LM": "Megatron-LM",
    "ACCELERATE_USE_PARALLELISM_CONFIG": "a parallelism config",
}


def check_folders(config: Config) -> None:
    """Raise `ConfigError` if `log.dir` or `log.export` is not a folder that can be written to."""
    for key, given in (("log.dir", config.log.dir), ("log.export", config.log.export)):
        if given is None:
            continue
        check_out(given, "folder", key)
        if (
            config.model.name is not None
            and Path(given).resolve() == Path(resolve_model_path(config.model.name)).resolve()
        ):
            raise ConfigError(f"{key} = {given!r}: is the folder of model.name; allowed: another folder", key=key)


def estimate_bytes(config: Config, arguments: Any, total: int, trained: int) -> int:
    """Return the bytes that a run writes: its checkpoints, the final model and `log.export`, which are saved in
    float32.
    """
    whole = 4 * total
    optimizer = 0 if arguments.save_only_model else 8 * trained  # Adam: two numbers a parameter
    checkpoint = (4 * trained if config.lora is not None else whole) + optimizer
    kept = 0
    if str(getattr(arguments.save_strategy, "value", arguments.save_strategy)) != "no":
        steps = max(1, arguments.max_steps)
        every = arguments.save_steps if arguments.save_steps >= 1 else max(1, int(arguments.save_steps * steps))
        kept = max(1, int(steps // every))
        if arguments.save_total_limit:
            kept = min(kept, arguments.save_total_limit) + 1  # a new one is complete before an old one is deleted
    return checkpoint * kept + whole * (1 + (config.log.export is not None))


def check_space(config: Config, needed: int) -> str:
    """Return the needed and the free space in words.

    Raises:
        ConfigError: there is not enough.
    """
    free = shutil.disk_usage(find_existing(Path(config.log.dir))).free
    text = f"about {needed / GIB:.2g} GiB for checkpoints and the model, {free / GIB:.3g} GiB free for {config.log.dir}"
    if needed > free:
        raise ConfigError(
            f"log.dir: {text}; allowed: a disk with more room, a smaller train.save_total_limit, or "
            "train.save_only_model",
            key="log.dir",
        )
    return text


def check_launch(variables: Mapping[str, str] = os.environ) -> None:
    """Raise `ConfigError` if the launcher's environment variables ask for what would not happen.

    >>> check_launch({"WORLD_SIZE": "2", "MASTER_PORT": "29500", "ACCELERATE_MIXED_PRECISION": "no"})
    """
    for name, kind in _SHARDED.items():
        if variables.get(name, "").lower() in ("true", "t", "1", "yes", "y", "on"):
            raise ConfigError(
                f"the launcher asks for {kind} ({name}); allowed: one device, or several with DDP: "
                "torchrun --nproc_per_node N train.py CONFIG"
            )
    # `accelerate launch --cpu --num_processes 2` sets the address of a group of processes, and starts one
    if variables.keys() >= {"ACCELERATE_MIXED_PRECISION", "MASTER_PORT"} and "WORLD_SIZE" not in variables:
        raise ConfigError(
            "accelerate launch was asked for several processes and started one (it does so with --cpu); allowed: "
            "torchrun --nproc_per_node N train.py CONFIG, or --num_processes 1"
        )
