"""viewbox's own keys of `train`: ranges, refusals, and a written config that says the same."""

import pytest
import yaml

from viewbox.configs import schema as configs
from viewbox.configs.train_sections import GRPO_ONLY
from viewbox.errors import ConfigError
from viewbox.training.findings import check
from viewbox.training.plan import Plan
from viewbox.training.trainer_args import build_trainer_arguments

GIVEN = {"importance_sampling_cap": 3.0, "micro_batch_tokens": 4096}
SFT = {"method": "sft", "demonstrations": {"count": 5}}


def parsed(**train):
    return configs.parse({"model": {"tiny": {}}, "env": {"name": "digits"}, "train": train})


def written_and_read(config):
    return configs.parse(yaml.safe_load(yaml.safe_dump(config.model_dump(mode="json", exclude_none=True))))


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("importance_sampling_cap", 0.5, "a number of at least 1 or null"),
        ("importance_sampling_cap", True, "a number of at least 1 or null"),
        ("micro_batch_tokens", 1e4, "a whole number of at least 1 or null"),
    ],
)
def test_a_value_out_of_range_is_refused_with_what_is_allowed(key, value, allowed):
    with pytest.raises(ConfigError) as caught:
        parsed(**{key: value})
    assert f"train.{key} = {value!r}; allowed: {allowed}" in str(caught.value)


@pytest.mark.parametrize("given", [GIVEN, {"importance_sampling_cap": None}, {}], ids=["numbers", "null", "defaults"])
def test_a_written_config_says_the_same_again(given):
    config = parsed(**given)
    again = written_and_read(config).train
    assert [getattr(again, key) for key in GRPO_ONLY] == [getattr(config.train, key) for key in GRPO_ONLY]


def test_a_warm_start_refuses_what_only_grpo_reads():
    for key in GRPO_ONLY:
        value = configs.TrainSection.model_fields[key].default
        with pytest.raises(ConfigError, match=rf"train\.{key}: only with train\.method = grpo; given: sft"):
            check(Plan(parsed(**SFT, **{key: GIVEN[key] if value is None else value})))
    assert check(Plan(written_and_read(parsed(**SFT)))).lines["trainer"] == "TrainingArguments"


GONE = {
    "method": ("rejection_sampling", " = 'rejection_sampling': cannot be used; play with `viewbox rollout`"),
    "rejection_sampling": ({"rounds": 2}, ": cannot be used; .* --best 1 --per-task .*train.episodes"),
    "curriculum": ({"levels": []}, ": cannot be used; use env.name: mixture"),
    "dynamic_sampling_rounds": (2, ": cannot be used; leave it out"),
}


@pytest.mark.parametrize("key", GONE)
def test_what_older_versions_had_is_refused_with_what_to_use_instead(key):
    value, words = GONE[key]
    with pytest.raises(ConfigError, match=f"train.{key}{words}") as caught:
        check(Plan(parsed(**{key: value})))
    assert caught.value.key == f"train.{key}"
    assert parsed(dynamic_sampling_rounds=0) == parsed()  # as every older run wrote


FEW = {"name": "digits", "eval": {"num_tasks": 12}}
REFUSED = [
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
    assert build_trainer_arguments(config, "out").max_completion_length == room
    assert plan.notes[0] == "log.eval_tasks = 12, not its default 200: there are only 12 held-out tasks"
    assert plan.notes[1].startswith(f"rollout.max_completion_tokens = {room}, not its default 4096: with a prompt")
    short = check(Plan(configs.parse(raw | {"rollout": {"max_completion_tokens": 300}}))).config
    assert short.rollout.max_reply_tokens == 300
    assert check(Plan(written_and_read(config))).config == config  # as a resumed run reads it
    for sections, words in REFUSED:
        with pytest.raises(ConfigError, match=words):
            check(Plan(configs.parse(raw | sections)))


@pytest.mark.parametrize(
    ("key", "value"), [("entropy_coef", 0.01), ("use_adaptive_entropy", True), ("top_entropy_quantile", 0.8)]
)
def test_micro_batches_refuse_a_loss_that_looks_at_a_whole_batch(key, value):
    reason = rf"train\.micro_batch_tokens = 400: train\.{key} = {value} needs the whole batch at once"
    with pytest.raises(ConfigError, match=reason):
        build_trainer_arguments(parsed(micro_batch_tokens=400, **{key: value}), "out")
    build_trainer_arguments(parsed(**{key: value}), "out")
    build_trainer_arguments(parsed(micro_batch_tokens=400), "out")
