"""A run's config in the settings of verl's trainer; what verl cannot run is refused.

verl reads its settings from YAML with hydra (`trainer/config/ppo_trainer.yaml`); only those that differ are written.
"""

from collections.abc import Mapping
from typing import Any

from ...configs.schema import Config
from ...core.base import BaseMultiTurnEnv
from ...errors import ConfigError
from ...utils.secrets import mask_settings

NAME = "viewbox"  # of the agent loop
GROUP = 8  # TRL's default of `num_generations`, and of `per_device_train_batch_size`
LOSSES = {
    "dapo": "token-mean",
    "bnpo": "token-mean",
    "grpo": "seq-mean-token-mean",
    "dr_grpo": "seq-mean-token-sum-norm",
}
SCALES = {"group": True, True: True, "none": False, False: False}
SCHEDULES = {"constant": "constant", "constant_with_warmup": "constant", "cosine": "cosine"}
# Arguments of our trainer that become settings of verl; `describe_left_out` lists the others.
CARRIED = frozenset(
    (
        *("num_generations", "per_device_train_batch_size", "gradient_accumulation_steps", "num_iterations"),
        *("learning_rate", "lr_scheduler_type", "warmup_steps", "weight_decay", "max_grad_norm"),
        *("max_steps", "num_train_epochs", "save_steps", "save_total_limit", "gradient_checkpointing"),
        *("beta", "epsilon", "epsilon_high", "loss_type", "scale_rewards", "mask_truncated_completions"),
    )
)


def check_config(config: Config) -> None:
    """Raise `ConfigError` if verl cannot run a config as it is meant; the error names the setting."""
    train, rollout = config.train, config.rollout
    arguments = train.arguments

    def refuse(key: str, given: object, allowed: str) -> None:
        raise ConfigError(f"{key} = {given!r}: verl cannot do this; allowed: {allowed}", key=key, given=given)

    if train.method != "grpo":
        refuse("train.method", train.method, "grpo")
    if config.model.name is None:
        refuse("model.tiny", "a new model", "`model.name`, of a saved one")
    if config.model.revision is not None:
        refuse("model.revision", config.model.revision, "none; download it and name its folder")
    if train.curriculum is not None:
        refuse("train.curriculum", "a curriculum", "none; every step plays `env` as it is")
    if train.dynamic_sampling_rounds:
        refuse("train.dynamic_sampling_rounds", train.dynamic_sampling_rounds, "0; see verl's algorithm.filter_groups")
    if config.lora is not None and config.lora.quantize:
        refuse("lora.quantize", config.lora.quantize, "none")
    if rollout.temperature == 0:
        refuse("rollout.temperature", 0, "above 0")
    for name, value in rollout.list_filters().items():  # verl's log-probs would be of the filtered distribution
        refuse(f"rollout.{name}", value, "the default: sampled as the loss sees it")
    for name, choices in (("loss_type", LOSSES), ("scale_rewards", SCALES)):
        if name in arguments and arguments[name] not in choices:
            refuse(f"train.{name}", arguments[name], ", ".join(str(choice) for choice in choices))


def describe_left_out(config: Config) -> list[str]:
    """Return the settings of a config that verl's trainer decides itself, one `key = value` a line."""
    arguments = mask_settings(dict(config.train.arguments))
    lines = [f"train.{key} = {value}" for key, value in arguments.items() if key not in CARRIED]
    schedule = config.train.arguments.get("lr_scheduler_type")
    if schedule is not None and schedule not in SCHEDULES:
        lines.append(f"train.lr_scheduler_type = {schedule} (verl has {', '.join(sorted(set(SCHEDULES.values())))})")
    if "dtype" in config.model.model_fields_set:
        lines.append(f"model.dtype = {config.model.dtype} (verl trains float32 weights in bfloat16)")
    for name in sorted(config.log.model_fields_set - {"eval_tasks", "eval_steps", "eval_temperature", "report_to"}):
        lines.append(f"log.{name} = {mask_settings(getattr(config.log, name))}")
    return lines


def build_trainer_config(
    config: Config, env: BaseMultiTurnEnv, *, prompt_length: int, pixels: Mapping[str, int]
) -> dict[str, Any]:
    """Return the settings of verl's trainer for a config.

    Args:
        config: a config that `check_config` accepts.
        env: its environment.
        prompt_length: the most tokens of a prompt.
        pixels: `min_pixels` and `max_pixels` of an image, for server and trainer alike.
    """
    train, arguments, rollout, log = config.train, config.train.arguments, config.rollout, config.log
    group = arguments.get("num_generations", GROUP)
    samples = arguments.get("per_device_train_batch_size", GROUP) * arguments.get("gradient_accumulation_steps", 1)
    prompts, response_length = max(1, samples // group), rollout.max_completion_tokens
    trains = log.eval_tasks > 0
    eval_temperature = rollout.temperature if log.eval_temperature is None else log.eval_temperature
    return {
        "hydra": {"searchpath": ["pkg://verl.trainer.config"], "run": {"dir": "."}, "output_subdir": None},
        "defaults": ["ppo_trainer", "_self_"],
        "data": {
            "max_prompt_length": prompt_length,
            "max_response_length": response_length,
            "train_batch_size": prompts,
            "return_raw_chat": True,
            "filter_overlong_prompts": False,  # the rows hold no prompts; the agent loop checks theirs
            "mm_processor_kwargs": dict(pixels),
            "seed": train.seed,
        },
        "algorithm": {
            "adv_estimator": "grpo",
            "norm_adv_by_std_in_grpo": SCALES[arguments.get("scale_rewards", "group")],
            "rollout_correction": {
                "rollout_is": None if train.importance_sampling_cap is None else "token",
                "rollout_is_threshold": train.importance_sampling_cap or 2.0,
            },
        },
        "actor_rollout_ref": {
            "model": _build_model(config),
            "actor": _build_actor(config, prompts, prompt_length + response_length),
            "ref": {"strategy": "fsdp2"},
            "rollout": {
                "name": "vllm",
                "n": group,
                "temperature": rollout.temperature,
                "tensor_model_parallel_size": 1,
                "calculate_log_probs": True,
                "logprobs_mode": "processed_logprobs",
                "max_model_len": prompt_length + response_length,
                "agent": {"default_agent_loop": NAME},
                "val_kwargs": {"temperature": eval_temperature, "do_sample": eval_temperature > 0},
                **({} if config.lora is None else {"load_format": "safetensors"}),  # the base weights are not sent
            },
        },
        "trainer": {
            "project_name": "viewbox",
            "experiment_name": log.name or env.name,
            "logger": ["console", *(name for name in log.report_to if not env.restricted)],
            "nnodes": 1,
            "n_gpus_per_node": 1,
            "val_before_train": trains,
            "test_freq": log.eval_steps or -1,
            "save_freq": arguments.get("save_steps", 50),
            "max_actor_ckpt_to_keep": arguments.get("save_total_limit", 2),
            "total_epochs": arguments.get("num_train_epochs", 3),
            "total_training_steps": arguments.get("max_steps"),
        },
    }


def _build_model(config: Config) -> dict[str, Any]:
    model: dict[str, Any] = {
        "path": config.model.name,
        "enable_gradient_checkpointing": config.train.arguments.get("gradient_checkpointing", True),
    }
    if config.lora is not None:
        model |= {"lora_rank": config.lora.r, "lora_alpha": config.lora.alpha}
        model["target_modules"] = config.lora.target_modules
    return model


def _build_actor(config: Config, prompts: int, length: int) -> dict[str, Any]:
    """Return the section `actor`; `length` is that of the longest episode, in tokens."""
    train, arguments = config.train, config.train.arguments
    epsilon, beta = arguments.get("epsilon", 0.2), arguments.get("beta", 0.0)
    optim: dict[str, Any] = {
        "lr": float(arguments.get("learning_rate", 1e-6)),
        "weight_decay": arguments.get("weight_decay", 0.0),
        "lr_warmup_steps": arguments.get("warmup_steps", 0),
    }
    schedule = SCHEDULES.get(arguments.get("lr_scheduler_type", "constant"))
    return {
        "strategy": "fsdp2",
        "ppo_mini_batch_size": prompts,
        "ppo_epochs": arguments.get("num_iterations", 1),
        "use_dynamic_bsz": True,
        "ppo_max_token_len_per_gpu": max(train.micro_batch_tokens or 16384, length),
        "clip_ratio": epsilon,
        "clip_ratio_low": epsilon,
        "clip_ratio_high": arguments.get("epsilon_high", epsilon),
        "loss_agg_mode": LOSSES[arguments.get("loss_type", "dapo")],
        "use_kl_loss": beta > 0,
        "kl_loss_coef": beta,
        "grad_clip": arguments.get("max_grad_norm", 1.0),
        "optim": optim | ({"lr_scheduler_type": schedule} if schedule else {}),
    }
