"""What all episodes of a process share: the environments of an exported config, their tasks and the model's tokens."""

import copy
import hashlib
import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...configs.schema import Config, load
from ...core.base import BaseMultiTurnEnv
from ...core.tasks import to_sequence
from ...engines.hf.chat_tokens import ChatTokens
from ...engines.hf.loading import get_view_settings
from ...envs.from_config import build_envs, prepare_env
from ...errors import ConfigError
from ...network.data_policy import check_may_leave
from ...records import Episode, Task
from ...rewards.combined import list_component_names
from ...rollouts.scoring.metrics import get_episode_values

PIXEL_BOUNDS = ("min_pixels", "max_pixels")  # of `data.mm_processor_kwargs`
LOCAL_LOGGERS = ("console", "file")  # what verl writes with them stays on this machine
TRAIN, HELD_OUT = "train", "held_out"  # `split` of a row


@dataclass(frozen=True)
class Stage:
    """The environments and the tokens, made once a process, with the pixel bounds that verl gives to its servers."""

    config: Config
    env: BaseMultiTurnEnv
    held_out: BaseMultiTurnEnv
    tokens: ChatTokens

    def find_task(self, place: Mapping[str, object]) -> tuple[BaseMultiTurnEnv, Task]:
        """Return the environment and the task of a row. Raise `ConfigError` if another task, or none, is at this place
        now."""
        split, number = place.get("split"), place.get("index")
        if split not in (TRAIN, HELD_OUT) or not isinstance(number, numbers.Integral):
            raise ConfigError(
                f"extra_info: split = {split!r:.40}, index = {number!r:.40}; allowed: the rows that "
                "`viewbox export --to verl` wrote",
                key="extra_info",
            )
        env, number = self.env if split == TRAIN else self.held_out, int(number)
        tasks = to_sequence(env.tasks, env.name)
        task = tasks[number] if 0 <= number < len(tasks) else None
        if task is None or task.id != place.get("task"):
            raise ConfigError(
                f"extra_info.task = {place.get('task')!r:.80}: task {number} of the {split} tasks is "
                f"{task.id if task else 'missing'!r}; the data changed after the export, so export again",
                key="extra_info.task",
            )
        return env, task

    def derive_seed(self, task: Task, row: Mapping[str, Any]) -> int:
        """Return the seed of an episode: of its step (its `uid`, which verl draws, if that is not known), its task and
        its place in the group."""
        step = row.get("global_steps")
        group = row.get("uid", "") if step is None else step
        sample = row.get("session_id", row.get("priority", 0))
        digest = hashlib.sha256(f"{self.config.train.seed}/{group}/{task.id}/{int(sample)}".encode()).digest()
        return int.from_bytes(digest[:8], "big") >> 1


_stages: dict[Any, Stage] = {}


def open_stage(name: str, trainer: Any, processor: Any) -> Stage:
    """Return the stage of a config, made when it is first asked for; `processor` is the model's, as verl loads it.
    Raise `ConfigError` if a setting of verl does not fit, or the data may not leave this machine, and `ModelError`."""
    path = Path(name)
    if not path.is_absolute():
        from verl.utils.import_utils import resolve_config_path

        loops = trainer.actor_rollout_ref.rollout.agent.agent_loop_config_path
        path = Path(resolve_config_path(loops)).parent / name
    bounds = tuple((trainer.data.get("mm_processor_kwargs") or {}).items())
    key = (str(path), str(trainer.actor_rollout_ref.model.path), bounds)
    if key not in _stages:
        _stages[key] = _build_stage(path, trainer, processor, dict(bounds))
    return _stages[key]


def _build_stage(path: Path, trainer: Any, processor: Any, bounds: Mapping[str, Any]) -> Stage:
    if processor is None:
        raise ConfigError(
            "actor_rollout_ref.model.path: verl found no image processor; allowed: a vision-language model",
            key="actor_rollout_ref.model.path",
        )
    check_trainer(trainer)
    config = load(str(path))
    env, held_out = build_envs(config, get_view_settings(processor.config, processor))
    for played in (env, held_out):
        check_data_stays(played, trainer)
        prepare_env(played)
    tokens = ChatTokens(set_pixel_bounds(processor, bounds), processor.config)
    tokens.pixel_cache.counts_by_size = True  # the pixels are made by verl's server and trainer
    return Stage(config, env, held_out, tokens)


def check_trainer(trainer: Any) -> None:
    """Raise `ConfigError` if a setting of verl would give other tokens or log-probs than those that are trained on."""
    rollout = trainer.actor_rollout_ref.rollout
    for key, value, allowed, reason in (
        ("name", rollout.get("name", "vllm"), "vllm", "others read the tokens of prompts with images again"),
        ("calculate_log_probs", rollout.get("calculate_log_probs", True), True, "log-probs come from the server"),
        (
            "logprobs_mode",
            rollout.get("logprobs_mode", "processed_logprobs"),
            "processed_logprobs",
            "others are those before the temperature",
        ),
    ):
        if value != allowed:
            name = f"actor_rollout_ref.rollout.{key}"
            raise ConfigError(f"{name} = {value!r}: {reason}; allowed: {allowed!r}", key=name)


def check_data_stays(env: BaseMultiTurnEnv, trainer: Any) -> None:
    """Raise `ConfigError` if verl would send data of a restricted environment to another machine."""
    section = trainer.get("trainer") or {}
    nodes = section.get("nnodes", 1)
    if nodes != 1 or _count_machines() > 1:
        check_may_leave(
            env,
            f"the machines of the cluster (trainer.nnodes = {nodes})",
            action="its images would go to",
            allowed="a cluster of this machine alone",
            key="trainer.nnodes",
        )
    loggers = section.get("logger") or []
    for logger in [loggers] if isinstance(loggers, str) else loggers:
        if logger not in LOCAL_LOGGERS and section.get("log_val_generations", 0):
            check_may_leave(
                env, logger, action="replies would be sent to", allowed="trainer.log_val_generations=0", key="trainer"
            )
    check_may_leave(
        env,
        (trainer.actor_rollout_ref.rollout.get("trace") or {}).get("backend"),
        action="its episodes would be sent to",
        allowed="null",
        key="actor_rollout_ref.rollout.trace.backend",
    )


def _count_machines() -> int:
    import ray

    return sum(node["Alive"] for node in ray.nodes()) if ray.is_initialized() else 0


def set_pixel_bounds(processor: Any, bounds: Mapping[str, Any]) -> object:
    """Return a copy of a processor that resizes images as verl's server and trainer do with
    `data.mm_processor_kwargs`."""
    if set(bounds) not in (set(), set(PIXEL_BOUNDS)):
        raise ConfigError(
            f"data.mm_processor_kwargs = {dict(bounds)!s:.200}: a prompt would have an unknown length, or the trainer "
            f"would ignore a bound; allowed: {' and '.join(PIXEL_BOUNDS)}, both or none",
            key="data.mm_processor_kwargs",
        )
    processor = copy.copy(processor)
    images = processor.image_processor = copy.deepcopy(processor.image_processor)
    if bounds:
        images.size = {"shortest_edge": bounds["min_pixels"], "longest_edge": bounds["max_pixels"]}
    return processor


def build_reward_info(
    episode: Episode, env: BaseMultiTurnEnv, missing: float | None = math.nan
) -> dict[str, float | None]:
    """Return the values of one episode by the names that our own trainer logs, without `reward`, which verl reports
    itself.

    The names depend on the environment alone: verl puts the values of many episodes side by side. `missing` stands for
    what does not apply: verl's validation leaves None out of its means; its dynamic sampling reads numbers only."""
    values = get_episode_values(episode)
    del values["reward"]
    parts: Mapping[str, BaseMultiTurnEnv] = getattr(env, "parts", {})
    for reward in (env.reward, *(part.reward for part in parts.values())):
        for name in list_component_names(reward):
            values.setdefault(f"rewards/{name}/mean", None)
    return {name: missing if value is None else float(value) for name, value in sorted(values.items())}
