"""How a run was launched: ways that viewbox does not support, or that start fewer processes than were asked for."""

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from ...errors import ConfigError

_SHARDED = {
    "ACCELERATE_USE_FSDP": "FSDP",
    "ACCELERATE_USE_DEEPSPEED": "DeepSpeed",
    "ACCELERATE_USE_MEGATRON_LM": "Megatron-LM",
    "ACCELERATE_USE_PARALLELISM_CONFIG": "a parallelism config",
}


def check_launch(variables: Mapping[str, str] = os.environ) -> None:
    """Raises `ConfigError` if the launcher's environment variables ask for what would not happen.

    >>> check_launch({"WORLD_SIZE": "2", "MASTER_PORT": "29500", "ACCELERATE_MIXED_PRECISION": "no"})
    """
    for name, kind in _SHARDED.items():
        if variables.get(name, "").lower() in ("true", "1", "yes", "on"):
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


def get_state_settings(arguments: Mapping[str, Any], gpu: bool) -> dict[str, Any]:
    """Keyword arguments of accelerate's `PartialState`, which is made before the trainer's arguments are.

    >>> get_state_settings({"ddp_timeout": 60, "use_cpu": True}, gpu=True)
    {'cpu': True, 'timeout': datetime.timedelta(seconds=60)}
    """
    settings: dict[str, Any] = {"cpu": bool(arguments.get("use_cpu", not gpu))}
    if "ddp_timeout" in arguments:
        settings["timeout"] = timedelta(seconds=arguments["ddp_timeout"])
    if arguments.get("ddp_backend") is not None:
        settings["backend"] = arguments["ddp_backend"]
    return settings
