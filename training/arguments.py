"""The arguments of TRL's and transformers' trainers, from the section `train`."""

import warnings
from dataclasses import fields
from pathlib import Path
from typing import Any

from viewbox.config import Config
from viewbox.errors import ConfigError, unknown

# Arguments of TRL and transformers that a run sets itself.
OWNED = {"output_dir", "seed", "report_to", "disable_tqdm", "remove_unused_columns", "temperature", "use_vllm"}


def trainer_arguments(config: Config, output: Path | str) -> Any:
    """The `GRPOConfig` or `TrainingArguments` of a run; raises `ConfigError` for keys and values they refuse."""
    import torch
    from transformers import TrainingArguments
    from trl import GRPOConfig

    cls = GRPOConfig if config.train.method == "grpo" else TrainingArguments
    allowed = {field.name for field in fields(cls) if field.init}
    given = config.train.arguments
    for name in given:
        if name in OWNED:
            raise ConfigError(f"train.{name}: is set by viewbox (see the sections rollout, log and train.seed)")
        if name not in allowed:
            raise ConfigError(f"train.{name}: {unknown('key', name, allowed)}")
    gpu = torch.cuda.is_available()
    defaults: dict[str, Any] = {
        "bf16": gpu,
        "use_cpu": not gpu,
        "gradient_checkpointing": False,
        "logging_steps": 1,
        "save_strategy": "no",
        "dataloader_num_workers": 0,
        "dataloader_pin_memory": gpu,
    }
    if cls is GRPOConfig:
        defaults |= {
            "temperature": config.rollout.temperature,
            "max_completion_length": config.rollout.max_completion_tokens,
        }
    owned = {
        "output_dir": str(output),
        "seed": config.train.seed,
        "report_to": config.log.report_to or "none",
        "disable_tqdm": True,
        "remove_unused_columns": False,
    }
    try:
        with warnings.catch_warnings():  # TRL itself still sets the old name of activation_checkpointing
            warnings.simplefilter("ignore", FutureWarning)
            return cls(**{**defaults, **given, **owned})
    except (TypeError, ValueError, ImportError) as error:
        raise ConfigError(f"train: {error}") from error
