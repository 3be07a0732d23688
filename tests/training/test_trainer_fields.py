"""Every argument of the pinned TRL and transformers is used, owned by viewbox, or refused with a sentence."""

from dataclasses import fields

import pytest
from transformers import TrainingArguments
from trl import GRPOConfig

from viewbox.configs import schema as configs
from viewbox.errors import ConfigError
from viewbox.training.trainer_args import build_trainer_arguments
from viewbox.training.trainer_fields import OWNED, REFUSED, USED, USED_BY_GRPO, USED_BY_SFT, explain_refusal, list_used

CLASSES = {"grpo": GRPOConfig, "sft": TrainingArguments}
TABLES = {"used": USED, "grpo": USED_BY_GRPO, "sft": USED_BY_SFT, "owned": OWNED, "refused": REFUSED}


def build(method, **train):
    sft = {"demonstrations": {"count": 5}} if method == "sft" else {}
    section = {"method": method, **sft, **train}
    return build_trainer_arguments(
        configs.parse({"model": {"tiny": {}}, "env": {"name": "digits"}, "train": section}), "out"
    )


def test_every_field_of_both_libraries_stands_in_exactly_one_table():
    known = [name for table in TABLES.values() for name in table]
    assert len(known) == len(set(known))
    assert {field.name for cls in CLASSES.values() for field in fields(cls) if field.init} == set(known)


def test_what_only_grpo_reads_is_no_argument_of_the_supervised_trainer():
    assert not USED_BY_GRPO & {field.name for field in fields(TrainingArguments)}


@pytest.mark.parametrize("method", CLASSES)
def test_what_is_not_used_is_refused_by_name_with_the_reason_even_with_its_default(method):
    used = list_used(method) | {"seed"}  # `train` has a seed of its own
    for field in (field for field in fields(CLASSES[method]) if field.init and field.name not in used):
        with pytest.raises(ConfigError) as caught:
            build(method, **{field.name: field.default if isinstance(field.default, int | float | str) else None})
        reason = explain_refusal(field.name, method)
        assert str(caught.value) == f"train.{field.name}: {reason}"
        assert caught.value.key == f"train.{field.name}"
        assert len(reason) > 30


def test_a_field_that_no_table_has_is_refused_too(monkeypatch):
    monkeypatch.setattr("viewbox.training.trainer_fields.USED", USED - {"weight_decay"})
    with pytest.raises(ConfigError, match=r"train\.weight_decay: unknown key"):
        build("grpo", weight_decay=0.1)


@pytest.mark.parametrize("method", CLASSES)
def test_what_is_used_reaches_the_trainers_arguments(method):
    given = {"weight_decay": 0.25, "max_steps": 7, "adam_beta2": 0.9, "ddp_timeout": 60}
    arguments = build(method, **given)
    assert {name: getattr(arguments, name) for name in given} == given


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("eval_strategy", "log.eval_steps"),
        ("load_best_model_at_end", "log.eval_steps"),
        ("reward_weights", "reward.components"),
        ("max_tool_calling_iterations", "env.max_turns"),
        ("vllm_mode", "rollout.engine"),
        ("fsdp", "DDP"),
        ("chat_template_kwargs", "chat template"),
        ("log_completions", "log.episodes_per_step"),
    ],
)
def test_a_refusal_names_what_to_use_instead(name, words):
    assert words in explain_refusal(name, "grpo")
