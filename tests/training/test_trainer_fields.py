"""Every argument of the pinned TRL and transformers is passed on, owned by viewbox, or refused with a sentence."""

from dataclasses import fields

import pytest
from transformers import TrainingArguments
from trl import GRPOConfig

from viewbox.configs import schema as configs
from viewbox.errors import ConfigError
from viewbox.training.trainer_args import (
    OWNED,
    REFUSED,
    USED_BY_SFT,
    build_trainer_arguments,
    explain_refusal,
    read_choices,
    read_fields,
)

CLASSES = {"grpo": GRPOConfig, "sft": TrainingArguments}
# Looked at, and read by a trainer. A new field of a library belongs here or into a table of `trainer_args.py`.
PASSED_ON = """
    activation_checkpointing activation_checkpointing_kwargs adam_beta1 adam_beta2 adam_epsilon beta bf16
    dataloader_drop_last dataloader_in_order dataloader_multiprocessing_context dataloader_num_workers
    dataloader_persistent_workers dataloader_pin_memory dataloader_prefetch_factor ddp_backend
    ddp_broadcast_buffers ddp_bucket_cap_mb ddp_find_unused_parameters ddp_static_graph ddp_timeout debug delta
    disable_dropout entropy_coef entropy_coef_delta entropy_coef_max entropy_coef_min entropy_target epsilon
    epsilon_high fp16 full_determinism generation_batch_size gradient_accumulation_steps gradient_checkpointing
    gradient_checkpointing_kwargs hub_always_push hub_model_id hub_private_repo hub_revision hub_strategy
    hub_token importance_sampling_level learning_rate log_level log_level_replica log_on_each_node
    logging_first_step logging_nan_inf_filter logging_steps logging_strategy loss_type lr_scheduler_kwargs
    lr_scheduler_type mask_truncated_completions max_grad_norm max_steps num_generations num_iterations
    num_train_epochs off_policy_mask_threshold optim optim_args optim_target_modules per_device_train_batch_size
    project push_to_hub ref_model_mixup_alpha ref_model_sync_steps run_name sapo_temperature_neg
    sapo_temperature_pos save_on_each_node save_only_model save_steps save_strategy save_total_limit
    scale_rewards shuffle_dataset skip_memory_metrics steps_per_generation sync_ref_model tf32
    top_entropy_quantile torch_empty_cache_steps trackio_bucket_id trackio_space_id trackio_static_space_id
    use_adaptive_entropy use_bias_correction_kl use_cpu vespo_k_neg vespo_k_pos vespo_lambda_neg
    vespo_lambda_pos warmup_steps weight_decay
"""


def build(method, **train):
    sft = {"demonstrations": {"count": 5}} if method == "sft" else {}
    section = {"method": method, **sft, **train}
    return build_trainer_arguments(
        configs.parse({"model": {"tiny": {}}, "env": {"name": "digits"}, "train": section}), "out"
    )


def test_every_field_of_both_libraries_was_looked_at_once():
    known = [*PASSED_ON.split(), *USED_BY_SFT, *OWNED, *REFUSED]
    assert len(known) == len(set(known))
    assert {field.name for cls in CLASSES.values() for field in fields(cls) if field.init} == set(known)


@pytest.mark.parametrize("method", CLASSES)
def test_the_arguments_that_are_read_from_the_source_are_those_of_the_class(method):
    assert read_fields(method).keys() == {field.name for field in fields(CLASSES[method]) if field.init}
    arguments = CLASSES[method](output_dir="x", use_cpu=True)
    for name in ("optim", "lr_scheduler_type", "hub_strategy"):
        members = type(getattr(arguments, name))
        assert set(read_choices(read_fields(method)[name])) == {str(member.value) for member in members}


@pytest.mark.parametrize("method", CLASSES)
def test_what_is_passed_on_reaches_the_arguments_and_the_rest_is_refused_by_name_even_with_its_default(method):
    for field in (field for field in fields(CLASSES[method]) if field.init and field.name != "seed"):
        reason = explain_refusal(field.name, method)
        if reason is None:
            continue
        with pytest.raises(ConfigError) as caught:
            build(method, **{field.name: field.default if isinstance(field.default, int | float | str) else None})
        assert (str(caught.value), caught.value.key) == (f"train.{field.name}: {reason}", f"train.{field.name}")
        assert len(reason) > 30
    given = {"weight_decay": 0.25, "max_steps": 7, "adam_beta2": 0.9, "ddp_timeout": 60}
    arguments = build(method, **given)
    assert {name: getattr(arguments, name) for name in given} == given


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("load_best_model_at_end", "log.eval_steps"), ("reward_weights", "reward.components"),
        ("vllm_mode", "rollout.engine"), ("fsdp", "DDP"), ("deepspeed", "viewbox export CONFIG --to verl"),
        ("parallelism_config", "--to verl"), ("log_completions", "log.episodes_per_step"),
    ],
)  # fmt: skip
def test_a_refusal_names_what_to_use_instead(name, words):
    assert words in explain_refusal(name, "grpo")
