"""Every argument of the pinned TRL and transformers is passed on, owned by viewbox, or refused with a sentence."""

from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from transformers import TrainingArguments
from trl import GRPOConfig

from tests.support.tables import each
from viewbox.configs import schema as configs
from viewbox.configs.train_sections import GRPO_ONLY
from viewbox.errors import ConfigError
from viewbox.training import trainer_args
from viewbox.training.findings import check
from viewbox.training.plan import Plan

CLASSES = {"grpo": GRPOConfig, "sft": TrainingArguments}
SHIPPED = sorted(path.stem for path in Path(configs.__file__).parent.glob("*.yaml"))
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
    return trainer_args.build_trainer_arguments(parsed(method=method, **sft, **train), "out")


@each("name", SHIPPED)
def test_a_shipped_config_sets_only_what_its_trainer_takes(name):
    assert list(trainer_args.list_problems(configs.load(name))) == []


def test_every_field_of_both_libraries_was_looked_at_once():
    known = [*PASSED_ON.split(), *trainer_args.USED_BY_SFT, *trainer_args.OWNED, *trainer_args.REFUSED]
    assert len(known) == len(set(known))
    assert {field.name for cls in CLASSES.values() for field in fields(cls) if field.init} == set(known)


@pytest.mark.parametrize("method", CLASSES)
def test_the_arguments_that_are_read_from_the_source_are_those_of_the_class(method):
    assert trainer_args.read_fields(method).keys() == {field.name for field in fields(CLASSES[method]) if field.init}
    arguments = CLASSES[method](output_dir="x", use_cpu=True)
    for name in ("optim", "lr_scheduler_type", "hub_strategy"):
        members = type(getattr(arguments, name))
        assert set(trainer_args.read_choices(trainer_args.read_fields(method)[name])) == {
            str(member.value) for member in members
        }


INSTEAD = {
    "load_best_model_at_end": "log.eval_steps", "reward_weights": "reward.components", "vllm_mode": "rollout.engine",
    "fsdp": "DDP", "deepspeed": "viewbox export CONFIG --to verl", "parallelism_config": "--to verl",
    "log_completions": "log.episodes_per_step",
}  # fmt: skip


@pytest.mark.parametrize("method", CLASSES)
def test_what_is_passed_on_reaches_the_arguments_and_the_rest_is_refused_by_name_even_with_its_default(method):
    for field in (field for field in fields(CLASSES[method]) if field.init and field.name != "seed"):
        reason = trainer_args.explain_refusal(field.name, method)
        if reason is None:
            continue
        with pytest.raises(ConfigError) as caught:
            build(method, **{field.name: field.default if isinstance(field.default, int | float | str) else None})
        assert (str(caught.value), caught.value.key) == (f"train.{field.name}: {reason}", f"train.{field.name}")
        assert len(reason) > 30
    given = {"weight_decay": 0.25, "max_steps": 7, "adam_beta2": 0.9, "ddp_timeout": 60}
    arguments = build(method, **given)
    assert {name: getattr(arguments, name) for name in given} == given
    assert [name for name, words in INSTEAD.items() if words not in trainer_args.explain_refusal(name, "grpo")] == []


# ---------------------------------------------------------------------- viewbox's own keys of `train`
GIVEN = {"importance_sampling_cap": 3.0, "micro_batch_tokens": 4096}
SFT = {"method": "sft", "demonstrations": {"count": 5}}


def parsed(**train):
    return configs.parse({"model": {"tiny": {}}, "env": {"name": "digits"}, "train": train})


def written_and_read(config):
    return configs.parse(yaml.safe_load(yaml.safe_dump(config.model_dump(mode="json", exclude_none=True))))


@each("key, value, allowed", [
    ("importance_sampling_cap", 0.5, "a number"), ("importance_sampling_cap", True, "a number"),
    ("micro_batch_tokens", 1e4, "a whole number"),
])  # fmt: skip
def test_a_value_out_of_range_is_refused_with_what_is_allowed(key, value, allowed):
    with pytest.raises(ConfigError) as caught:
        parsed(**{key: value})
    assert f"train.{key} = {value!r}; allowed: {allowed} of at least 1 or null" in str(caught.value)


def test_a_written_config_says_the_same_again_and_a_warm_start_refuses_what_only_grpo_reads():
    for given in (GIVEN, {"importance_sampling_cap": None}, {}):
        config = parsed(**given)
        again = written_and_read(config).train
        assert [getattr(again, key) for key in GRPO_ONLY] == [getattr(config.train, key) for key in GRPO_ONLY]
    for key in GRPO_ONLY:
        value = configs.TrainSection.model_fields[key].default
        with pytest.raises(ConfigError, match=rf"train\.{key}: only with train\.method = grpo; given: sft"):
            check(Plan(parsed(**SFT, **{key: GIVEN[key] if value is None else value})))
    assert check(Plan(written_and_read(parsed(**SFT)))).lines["trainer"] == "TrainingArguments"


GONE = [
    ("method", "rejection_sampling", " = 'rejection_sampling': cannot be used; play with `viewbox rollout`"),
    ("rejection_sampling", {"rounds": 2}, ": cannot be used; .* --best 1 --per-task .*train.episodes"),
    ("curriculum", {"levels": []}, ": cannot be used; use env.name: mixture"),
    ("dynamic_sampling_rounds", 2, ": cannot be used; leave it out"),
    ("informative_weight", True, ": cannot be used; use weigh_values: true"),
]


@each("key, value, words", GONE)
def test_what_older_versions_had_is_refused_with_what_to_use_instead(key, value, words):
    with pytest.raises(ConfigError, match=f"train.{key}{words}") as caught:
        check(Plan(parsed(**{key: value})))
    assert caught.value.key == f"train.{key}"
    assert parsed(dynamic_sampling_rounds=0, informative_weight=1.0) == parsed()  # as every older run wrote


FEW = {"name": "digits", "eval": {"num_tasks": 12}}
UNFIT = [
    ({"log": {"eval_tasks": 200}}, "log.eval_tasks = 200: there are only 12 held-out tasks; allowed: at most 12"),
    ({"rollout": {"max_completion_tokens": 4096}}, "max_completion_tokens = 4096: with a prompt of"),
    ({"rollout": {"max_completion_tokens": 300, "max_reply_tokens": 400}}, "an episode has .*; allowed: at most 300"),
]  # fmt: skip


def test_a_default_that_nobody_wrote_is_fitted_and_named_and_what_was_written_is_refused(tmp_path):
    sections = {"model": {"name": "package:tiny_viewer"}, "env": FEW, "train": {"max_steps": 1}}
    raw = sections | {"log": {"dir": str(tmp_path)}}
    plan = check(Plan(configs.parse(raw)))
    config = plan.config
    assert config.log.eval_tasks == 12
    room = config.rollout.max_completion_tokens
    assert 3000 < room < 4096 == 4096 - room + room
    assert trainer_args.build_trainer_arguments(config, "out").max_completion_length == room
    assert plan.notes[0] == "log.eval_tasks = 12, not its default 200: there are only 12 held-out tasks"
    assert plan.notes[1].startswith(f"rollout.max_completion_tokens = {room}, not its default 4096: with a prompt")
    short = check(Plan(configs.parse(raw | {"rollout": {"max_completion_tokens": 300}}))).config
    assert short.rollout.max_reply_tokens == 300
    assert check(Plan(written_and_read(config))).config == config  # as a resumed run reads it
    for sections, words in UNFIT:
        with pytest.raises(ConfigError, match=words):
            check(Plan(configs.parse(raw | sections)))


@each("key, value", [("entropy_coef", 0.01), ("use_adaptive_entropy", True), ("top_entropy_quantile", 0.8)])
def test_micro_batches_refuse_a_loss_that_looks_at_a_whole_batch(key, value):
    reason = rf"train\.micro_batch_tokens = 400: train\.{key} = {value} needs the whole batch at once"
    with pytest.raises(ConfigError, match=reason):
        trainer_args.build_trainer_arguments(parsed(micro_batch_tokens=400, **{key: value}), "out")
    trainer_args.build_trainer_arguments(parsed(**{key: value}), "out")
    trainer_args.build_trainer_arguments(parsed(micro_batch_tokens=400), "out")


@each("lora, kept", [(None, {"revision": "v2"}), ({"r": 4}, None)])
def test_the_reference_model_that_trl_loads_has_the_revision_of_the_policy(lora, kept):
    sections = {"model": {"name": "m", "revision": "v2"}, "env": {"name": "digits"}, "lora": lora}
    assert trainer_args.build_trainer_arguments(configs.parse(sections), "out").model_init_kwargs == kept
