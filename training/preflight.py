"""What can be known about a run before any weights are loaded: whether its settings can be carried out."""

from collections.abc import Sequence
from typing import Any

from viewbox.configs.schema import GRPO_ONLY, Config, located
from viewbox.errors import ConfigError, ViewboxError, describe_unknown
from viewbox.records import Task
from viewbox.rollouts.from_config import build_envs, describe_filters
from viewbox.training import check_model


def check(config: Config) -> dict[str, Any]:
    """What a run resolves to; raises the `ViewboxError` of the first setting that cannot be, with its line."""
    with located(config):
        return _check(config)


def _check(config: Config) -> dict[str, Any]:
    from viewbox.training.tracking import check_pictures
    from viewbox.training.trainer_args import trainer_arguments

    _sections(config)
    policy = check_model.find(config.model)
    env, held_out = build_envs(config, policy.view_settings if policy else {})
    _reward_fields(config.reward, env, "reward")
    check_pictures(config.log, env)
    arguments = trainer_arguments(config, "runs")
    if config.model.tiny is not None and config.lora is None and getattr(arguments, "beta", 0.0) != 0:
        raise ConfigError(f"train.beta = {arguments.beta}: model.tiny has no saved reference; allowed: 0, or with lora")
    task = _first_task(env, "env")
    if config.log.eval_tasks:
        _first_task(held_out, "env.eval" if config.env.eval else "env")
        if config.log.eval_tasks > len(held_out.tasks):
            raise ConfigError(
                f"log.eval_tasks = {config.log.eval_tasks}: more than the held-out tasks; "
                f"allowed: at most {len(held_out.tasks)}"
            )
    _warm_start(config, env, task)
    if policy is not None:
        check_model.budget(policy, config, env, task)
    hub = config.model.name is not None and policy is None
    return {
        "environment": {
            name: getattr(env, name) for name in ("name", "max_turns", "tools", "coordinates", "max_pixels")
        },
        "reward": str(env.reward),
        "trainer": type(arguments).__name__,
        "notes": [
            *([f"{config.model.name}: a hub name; its files are checked when the run starts"] if hub else []),
            *describe_filters(config),
        ],
    }


def _sections(config: Config) -> None:
    """Settings that contradict each other."""
    rollout, train = config.rollout, config.train
    if rollout.temperature == 0 and train.method == "grpo":
        raise ConfigError("rollout.temperature = 0: GRPO needs samples that differ; allowed: above 0")
    if rollout.max_reply_tokens > rollout.max_completion_tokens:
        raise ConfigError(
            f"rollout.max_reply_tokens = {rollout.max_reply_tokens}: one reply would be longer than an episode; "
            f"allowed: at most rollout.max_completion_tokens = {rollout.max_completion_tokens}"
        )
    if train.method == "sft" and config.lora is not None:
        raise ConfigError("lora: not with train.method = sft, which trains every weight; leave the section out")
    for key in ("episodes", "demonstrations", "vision"):
        if train.method != "sft" and getattr(train, key) is not None:
            raise ConfigError(f"train.{key}: only with train.method = sft; given: {train.method}")
    for key in GRPO_ONLY:
        if train.method != "grpo" and key in train.model_fields_set:
            raise ConfigError(f"train.{key}: only with train.method = grpo; given: {train.method}")
    _trackers(config.log.report_to)


def _trackers(names: Sequence[str]) -> None:
    from transformers.integrations.integration_utils import (
        INTEGRATION_TO_CALLBACK,
        get_available_reporting_integrations,
    )

    for name in names:
        if name not in INTEGRATION_TO_CALLBACK:
            raise ConfigError(f"log.report_to: {describe_unknown('tracker', name, INTEGRATION_TO_CALLBACK)}")
        installed = get_available_reporting_integrations()
        if name not in installed:
            raise ConfigError(
                f"log.report_to = {name!r}: the package is not installed; allowed now: {', '.join(installed) or 'none'}"
            )


def _first_task(env: Any, section: str) -> Task:
    """The first task of an environment, opened as an episode opens it."""
    tasks = env.tasks
    if not isinstance(tasks, Sequence):
        raise ConfigError(f"{section}: {env.name}: its tasks are a {type(tasks).__name__}; allowed: a sequence")
    if not tasks:
        raise ConfigError(f"{section}: {env.name}: has no tasks")
    try:
        task = tasks[0]
        env.reset(task, seed=0)
    except ViewboxError as error:
        raise type(error)(f"{section}: {env.name}: the first task cannot be opened: {error}") from error
    return task


def _reward_fields(spec: Any, env: Any, path: str) -> None:
    """A reward that reads a field no answer can have would be 0 for ever."""
    if not isinstance(spec, dict) or not isinstance(env.answer_schema, dict):
        return
    known = env.answer_schema.get("properties", {})
    field = spec.get("field")
    if known and isinstance(field, str) and field.split(".")[0] not in known:
        raise ConfigError(f"{path}.field: {describe_unknown(f'answer field of {env.name}', field, known)}")
    for name, part in (spec.get("components") or {}).items():
        _reward_fields(part, env, f"{path}.components.{name}")


def _warm_start(config: Config, env: Any, task: Task) -> None:
    section = config.train
    if section.episodes is not None:
        _episodes(section.episodes)
    if section.demonstrations is not None:
        key = "train.demonstrations.habits"
        try:
            env.demonstration(task, 0, **section.demonstrations.habits)
        except TypeError as error:
            raise ConfigError(f"{key}: {error}") from error
        except ConfigError as error:
            raise ConfigError(f"{key if section.demonstrations.habits else 'train.demonstrations'}: {error}") from error
    if section.vision is not None:
        for key, field in (("label", section.vision.label), ("box", section.vision.box)):
            if field not in task.reference:
                raise ConfigError(f"train.vision.{key}: {describe_unknown('reference field', field, task.reference)}")


def _episodes(folder: str) -> None:
    from viewbox.rollouts.store.writer import load

    try:
        first = next(load(folder, tokens=True), None)
    except ViewboxError as error:
        raise ConfigError(f"train.episodes: {error}") from error
    if first is None:
        raise ConfigError(f"train.episodes = {folder!r}: no episodes in it; allowed: a folder with saved episodes")
    if first.tokens is None:
        raise ConfigError(
            f"train.episodes = {folder!r}: its episodes have no tokens; allowed: those of a local model or of "
            "train.demonstrations (an endpoint gives words only)"
        )
