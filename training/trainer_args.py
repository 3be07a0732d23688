"""Builds the arguments of TRL's and transformers' trainers from the section `train`.

The libraries check little of it. Names, types and choices are checked here, so that a mistake is found at once. They
also take what a trainer that plays episodes never reads: `USED_BY_SFT`, `OWNED` and `REFUSED` say why it is refused.
`tests/training/test_trainer_fields.py` fails if a new version has an argument that was not looked at.
"""

import ast
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from functools import cache, reduce
from importlib.util import find_spec
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from ..configs.schema import Config
from ..configs.train_sections import GONE, TrainSection
from ..configs.validation import describe_errors, suggest_switch
from ..errors import ConfigError, describe_unknown, suggest_nearest
from ..registry import list_plugins
from ..utils.secrets import remember
from .precision import LEARNING_RATES

if TYPE_CHECKING:
    from transformers import TrainingArguments

# What other trainers call TRL's arguments
SYNONYMS = {
    "learning_rate": "lr",
    "weight_decay": "wd",
    "num_train_epochs": "epochs num_epochs n_epochs",
    "max_steps": "steps num_steps train_steps",
    "per_device_train_batch_size": "batch_size train_batch_size micro_batch_size",
    "num_generations": "group_size n_generations rollouts_per_prompt",
    "gradient_accumulation_steps": "grad_accum accumulation_steps",
    "max_grad_norm": "grad_clip clip_grad gradient_clipping",
    "warmup_steps": "warmup",
    "lr_scheduler_type": "scheduler lr_scheduler",
    "optim": "optimizer",
    "beta": "kl kl_coef kl_beta",
    "epsilon": "clip_eps cliprange",
    "loss_type": "loss",
    "gradient_checkpointing": "checkpointing",
    "save_steps": "save_every",
    "logging_steps": "log_every",
    "bf16": "precision",
}
# Values that TRL 1.16 checks only in the first step
CHOICES = {
    "loss_type": ("grpo", "bnpo", "dr_grpo", "dapo", "luspo", "cispo", "sapo", "vespo"),
    "importance_sampling_level": ("token", "sequence"),
    "scale_rewards": ("group", "batch", "none", True, False),
    "save_strategy": ("no", "steps", "epoch"),  # "best" needs the trainer's own evaluation
}
# The least value that means something; what is below it would train nothing, or fail later
_LEAST = {
    0: "warmup_steps weight_decay max_grad_norm beta epsilon epsilon_high delta top_entropy_quantile",
    1: "per_device_train_batch_size gradient_accumulation_steps steps_per_generation generation_batch_size "
    "num_iterations save_total_limit ref_model_sync_steps ddp_timeout",
    2: "num_generations",
    1e-9: "num_train_epochs save_steps logging_steps sapo_temperature_neg sapo_temperature_pos",
    1e-30: "learning_rate",
}
LEAST: Mapping[str, float] = {name: least for least, names in _LEAST.items() for name in names.split()}
# Read by the supervised trainer only, and what GRPO has instead.
_COMPILED = "the engine and the loss call the parts of the model, not the compiled whole"
USED_BY_SFT = {
    "average_tokens_across_devices": "train.loss_type decides what the loss is divided by",
    "neftune_noise_alpha": "noise in the loss alone would make its log-probs differ from the engine's",
    "torch_compile": _COMPILED,
    "torch_compile_backend": _COMPILED,
    "torch_compile_mode": _COMPILED,
}

# Set by viewbox only, and what decides their values.
OWNED = {
    "output_dir": "log.dir",
    "seed": "train.seed",
    "data_seed": "train.seed",
    "report_to": "log.report_to",
    "disable_tqdm": "viewbox, which prints its own progress",
    "remove_unused_columns": "viewbox, which needs the column `task`",
    "resume_from_checkpoint": "the option --resume",
    "local_rank": "the launcher (accelerate launch, torchrun)",
    "use_cache": "viewbox, whose engine has its own cache",
    "model_init_kwargs": "the section model",
    "max_completion_length": "rollout.max_completion_tokens",
    "temperature": "rollout.temperature",
    "top_p": "rollout.top_p",
    "top_k": "rollout.top_k",
    "repetition_penalty": "rollout.repetition_penalty",
    "generation_kwargs": "the section rollout",
    "cache_implementation": "viewbox, whose engine has its own cache (rollout.kv_cache_bytes)",
    "max_tool_calling_iterations": "env.max_turns",
    "reward_weights": "the weights of reward.components",
    "use_vllm": "rollout.engine",
    "vllm_importance_sampling_correction": "train.importance_sampling_cap",
    "vllm_importance_sampling_mode": "viewbox, which truncates the ratio of every token",
    "vllm_importance_sampling_clip_max": "train.importance_sampling_cap",
    "vllm_importance_sampling_clip_min": "viewbox, which sets no lower bound",
    "vllm_importance_sampling_cap": "train.importance_sampling_cap",
}

# By what to use instead: read by nothing in a run of viewbox, or read at a time when it breaks the run.
_REFUSED = {
    "viewbox plays held-out episodes itself: see log.eval_tasks and log.eval_steps": """
        eval_strategy eval_steps eval_delay per_device_eval_batch_size num_generations_eval prediction_loss_only
        eval_on_start eval_do_concat_batches eval_use_gather_object eval_accumulation_steps include_for_metrics
        batch_eval_metrics bf16_full_eval fp16_full_eval""",
    "viewbox keeps the checkpoint with the best held-out reward: see log.eval_steps and log.keep_best": """
        load_best_model_at_end metric_for_best_model greater_is_better""",
    "no trainer reads it; `viewbox train` always trains": "do_train do_eval do_predict",
    "TRL's own use of vLLM leaves out the pictures of tools: see rollout.engine (vllm) and the settings beside it": """
        vllm_mode vllm_model_impl vllm_enable_sleep_mode vllm_structured_outputs_regex vllm_server_base_url
        vllm_server_host vllm_server_port vllm_server_timeout vllm_group_port vllm_gpu_memory_utilization
        vllm_max_model_length vllm_tensor_parallel_size""",
    "transformers' batching takes no pictures: see rollout.engine": """
        use_transformers_continuous_batching transformers_continuous_batching_config use_transformers_paged""",
    "episodes are saved and shown by viewbox: see log.episodes_per_step and `viewbox view`": """
        log_completions log_multimodal num_completions_to_print log_unique_prompts log_completions_hub_repo""",
    "viewbox trains on one device, or on several with DDP; for large models use the section lora, or verl's trainer, "
    "which shards them (viewbox export CONFIG --to verl --out DIR)": """
        fsdp fsdp_config deepspeed ds3_gather_for_generation parallelism_config""",
    "the loss is viewbox's own and reads no labels": "label_names label_smoothing_factor",
    "viewbox makes the batches; allowed: train.per_device_train_batch_size and train.num_generations": """
        auto_find_batch_size train_sampling_strategy length_column_name accelerator_config""",
    "TRL does not find the layers of a vision-language model; allowed: model.dtype: float32": "cast_lm_head_to_fp32",
    "viewbox renders the chat template itself, without further arguments": "chat_template_kwargs",
    "train.credit = {type: components} compares each component by itself": "multi_objective_aggregation",
    "viewbox samples with rollout.top_p and rollout.top_k": "min_p",
    "viewbox pads batches itself": "pad_to_multiple_of",
    "the routers of experts have no loss of their own here": "router_aux_loss_coef",
    "viewbox never runs code from a model's folder": "trust_remote_code",
    "the log-probs of the loss are viewbox's own": "use_liger_kernel liger_kernel_config",
    "see episodes/* in metrics.jsonl": "include_num_input_tokens_seen",
    "viewbox saves a checkpoint at SIGTERM and Ctrl-C by itself": "enable_jit_checkpoint",
    "a resumed run continues exactly where it stopped": "ignore_data_skip",
    "the state of viewbox's callbacks is not in it; see --resume": "restore_callback_states_from_checkpoint",
}
REFUSED: Mapping[str, str] = {name: reason for reason, names in _REFUSED.items() for name in names.split()}


def get_defaults(gpu: bool) -> dict[str, object]:
    """viewbox's own defaults for arguments that the YAML does not set."""
    computing = {"bf16": gpu, "use_cpu": not gpu, "gradient_checkpointing": False}
    saving = {"logging_steps": 1, "save_strategy": "steps", "save_steps": 50, "save_total_limit": 2}
    return {**computing, **saving, "dataloader_num_workers": 0, "dataloader_pin_memory": gpu}


def pass_hub_token(config: Config) -> None:
    """Pass `train.hub_token` on as HF_TOKEN, from where the hub's library reads it: the trainer saves its arguments."""
    token = config.train.arguments.get("hub_token")
    if token:
        os.environ["HF_TOKEN"] = str(remember(str(token)))


def build_trainer_arguments(config: Config, output: Path | str) -> "TrainingArguments":
    """Return the `GRPOConfig` (grpo) or `TrainingArguments` (sft) of a run. `output`: the folder of the checkpoints.
    Raise `ConfigError` if a key of `train` is unknown, is set by viewbox only, or has an invalid value."""
    for problem in list_problems(config):
        raise problem
    import torch
    from transformers import TrainingArguments
    from trl import GRPOConfig

    cls, arguments = GRPOConfig if config.train.method == "grpo" else TrainingArguments, config.train.arguments
    arguments = {name: value for name, value in arguments.items() if name != "hub_token"}  # see `pass_hub_token`
    gpu = torch.cuda.is_available() and not arguments.get("use_cpu", False)
    rate = LEARNING_RATES[config.train.method, config.lora is not None]
    defaults = {**get_defaults(gpu), "learning_rate": rate}
    if cls is GRPOConfig:
        rollout = config.rollout
        defaults |= {"temperature": rollout.temperature, "max_completion_length": rollout.max_completion_tokens}
    owned: dict[str, Any] = {"output_dir": str(output), "seed": config.train.seed, "remove_unused_columns": False}
    owned |= {"report_to": config.log.report_to or "none", "disable_tqdm": True}
    if cls is GRPOConfig and config.model.revision is not None and config.lora is None:
        owned["model_init_kwargs"] = {"revision": config.model.revision}  # of the reference model, which TRL loads
    try:
        with warnings.catch_warnings():  # TRL itself still sets the old name of activation_checkpointing
            warnings.simplefilter("ignore", FutureWarning)
            return cls(**{**defaults, **arguments, **owned})
    except (TypeError, ValueError, ImportError) as error:
        reason = " ".join(str(error).split())
        names = [name for name in arguments if re.search(rf"\b{name}\b", reason)]  # TRL's errors carry no key
        key, setting = (f"train.{names[0]}", f" = {arguments[names[0]]!r}") if names else ("train", "")
        raise ConfigError(f"{key}{setting}: {reason:.500}", key=key) from error


SOURCES = {  # of the fields, those of a later class before those of an earlier one of the same name
    "TrainingArguments": ("transformers", "training_args.py"),
    "_BaseConfig": ("trl", "trainer/base_config.py"),
    "GRPOConfig": ("trl", "trainer/grpo_config.py"),
}
ENUMS = ("training_args.py", "trainer_utils.py")  # files of transformers with the choices


@cache
def read_source(package: str, file: str) -> dict[str, ast.ClassDef]:
    """Return the classes of a file of an installed package, which is not imported: that takes seconds."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ConfigError(f"training needs the package {package}; install it with pip install 'viewbox[train]'")
    tree = ast.parse((Path(spec.origin).parent / file).read_bytes())
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


@cache
def read_fields(method: str) -> Mapping[str, str]:
    """Return the arguments of a trainer with their types, as they are written.

    >>> read_fields("sft")["max_steps"], "beta" in read_fields("sft"), read_fields("grpo")["beta"]
    ('int', False, 'float')
    """
    fields: dict[str, str] = {}
    for name, source in SOURCES.items():
        if name == "TrainingArguments" or method == "grpo":
            body = read_source(*source)[name].body
            lines = [line for line in body if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)]
            fields |= {line.target.id: ast.unparse(line.annotation) for line in lines if line.target.id[0] != "_"}  # type: ignore[union-attr]
    return fields


def read_choices(hint: str) -> tuple[str, ...]:
    """Return the values of the enumerations in a type.

    >>> read_choices("SaveStrategy | str")
    ('no', 'steps', 'epoch', 'best')
    """
    classes = {name: item for file in ENUMS for name, item in read_source("transformers", file).items()}
    enums = [classes[name] for name in hint.split(" | ") if name in classes and name[0].isupper()]
    values = [item.value for enum in enums for item in enum.body if isinstance(item, ast.Assign)]
    return tuple(str(item.value) for item in values if isinstance(item, ast.Constant))


# What decides how many episodes are generated together
GROUP = {
    *("num_generations", "per_device_train_batch_size", "steps_per_generation", "gradient_accumulation_steps"),
    *("generation_batch_size", "entropy_coef", "use_adaptive_entropy", "top_entropy_quantile"),
}


def list_problems(config: Config) -> Iterator[ConfigError]:
    """Yield what is wrong with the keys of `train` that are TRL's or transformers'."""
    set_names, train = set[str](), config.train
    for name, problem in _list_problems(train.method, train.arguments):
        set_names.add(name)
        yield ConfigError(f"train.{name}{problem}", key=f"train.{name}")
    if set_names & GROUP or train.method != "grpo":
        return
    try:
        _check_group(train.arguments, int(os.environ.get("WORLD_SIZE", "1")))
        check_additive_loss(train.micro_batch_tokens, train.arguments)
        check_credit(train.credit.type, train.arguments)
    except ConfigError as error:
        yield error


def _list_problems(method: str, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (key, what is wrong with it) of each argument that cannot be used."""
    hints = {name: hint for name, hint in read_fields(method).items() if not explain_refusal(name, method)}
    names = hints.keys() | TrainSection.model_fields.keys()
    for name, value in given.items():
        if (refusal := explain_refusal(name, method)) is not None:
            yield name, f": {refusal}"
        elif name not in hints:
            text = describe_unknown("key", name, names)
            if meant := [ours for ours, others in SYNONYMS.items() if ours in names and name in others.split()]:
                text = f"unknown key {name!r} (did you mean {meant[0]!r}?)"
            yield name, f": {text}"
        else:
            yield from _list_problems_of_value(name, value, hints[name])


def _list_problems_of_value(name: str, value: Any, hint: str) -> Iterator[tuple[str, str]]:
    choices = CHOICES.get(name) or read_choices(hint)
    if choices and value not in choices:
        near = suggest_nearest(value, map(str, choices))
        yield name, f" = {value!r}; allowed: {', '.join(map(str, choices))}{near}"
    for inner, text in value.items() if isinstance(value, Mapping) else ():
        if near := suggest_switch(text):  # a text would count as true
            yield f"{name}.{inner}", f" = {text!r}: is text; allowed: true or false{near}"
    kinds = {"int": int, "float": float, "bool": bool, "None": None}
    if not set(hint.split(" | ")) <= kinds.keys():
        return  # text and mappings have many valid forms
    union: Any = reduce(or_, (kinds[kind] for kind in hint.split(" | ")))
    try:
        TypeAdapter(union).validate_python(value, strict=True)
    except ValidationError as error:
        yield name, f" {describe_errors(error, union, value)[0]}"
        return
    least = LEAST.get(name)
    if name == "max_steps" and value < 1 and value != -1:
        yield name, f" = {value}: no step would be trained; allowed: at least 1, or -1 for train.num_train_epochs"
    elif value is not None and least is not None and value < least:
        yield name, f" = {value}; allowed: {f'at least {least}' if least in (0, 1, 2) else 'above 0'}"


def _check_group(given: Mapping[str, Any], processes: int) -> None:
    """Raise `ConfigError` if the episodes of a generation are not whole groups."""
    group, device_batch = given.get("num_generations", 8), given.get("per_device_train_batch_size", 8)
    steps = given.get("steps_per_generation") or given.get("gradient_accumulation_steps", 1)
    batch = given.get("generation_batch_size") or device_batch * steps * processes
    if not group or batch % group:
        divisors = [str(n) for n in range(2, min(batch, 10_000) + 1) if batch % n == 0]
        raise ConfigError(
            f"train.num_generations = {group}: does not divide the {batch} episodes of a generation ({device_batch} a "
            f"device x {steps} steps x {processes} processes); allowed: {', '.join(divisors[:20]) or 'a larger batch'}",
            key="train.num_generations",
        )


def check_additive_loss(tokens: int | None, given: Mapping[str, Any]) -> None:
    """Raise `ConfigError` if micro-batches are used (`tokens` is not None) and the loss is not a sum over them."""
    if tokens is None:
        return
    neutral_values = {"entropy_coef": 0.0, "use_adaptive_entropy": False, "top_entropy_quantile": 1.0}
    for name, neutral in neutral_values.items():
        if given.get(name, neutral) != neutral:
            raise ConfigError(
                f"train.micro_batch_tokens = {tokens}: train.{name} = {given[name]} needs the "
                f"whole batch at once; allowed: train.{name} = {neutral}, or no train.micro_batch_tokens",
                key="train.micro_batch_tokens",
            )


def check_credit(name: str, given: Mapping[str, Any]) -> None:
    """Raise `ConfigError` if there is no credit of that name, or the loss cannot read its advantages: one of another
    package may give one a reply, as `turns` does."""
    if name not in (known := list_plugins("credits")):
        raise ConfigError(f"train.credit.type: {describe_unknown('credit', name, known)}", key="train.credit.type")
    key, allowed, why = "importance_sampling_level", "token", "averages the advantages of the replies of an episode"
    if name == "components":
        key, allowed, why = "scale_rewards", "group", "is not read: each component is divided by its deviation"
    if name != "episode" and given.get(key, allowed) not in (allowed, True):
        problem = f"train.{key} = {given[key]!r}: {why} (train.credit = {name})"
        raise ConfigError(f"{problem}; allowed: {allowed}", key=f"train.{key}")


def explain_refusal(name: str, method: str) -> str | None:
    """Return why `train` does not take an argument, as the end of a sentence; None if it takes it, or does not know it.

    >>> explain_refusal("fsdp", "sft")[:43], explain_refusal("beta", "grpo")
    ('cannot be used; viewbox trains on one devic', None)
    """
    if name in OWNED:
        return f"cannot be set here; it is decided by {OWNED[name]}"
    reason = GONE.get(name) or REFUSED.get(name) or (USED_BY_SFT.get(name) if method == "grpo" else None)
    return f"cannot be used; {reason}" if reason else None
