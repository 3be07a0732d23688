"""Builds environments from the sections `env` and `reward` of a config.

Training, held-out evaluation and `viewbox rollout` all call these functions, so a setting means the same in each.
"""

from collections.abc import Mapping
from typing import Any

from ..configs.schema import Config
from ..core.base import BaseMultiTurnEnv
from ..errors import ConfigError
from ..rewards.declare import EpisodeReward, Reward
from .data.settings import merge_data

_NOT_ENV_SETTINGS = {
    "name": "held-out tasks use the same environment",
    "reward": "the reward has a section of its own",
    "eval": "it is allowed in `env` only",
}


def build_envs(config: Config, defaults: Mapping[str, object]) -> tuple[BaseMultiTurnEnv, BaseMultiTurnEnv]:
    """Return the (training, held-out) environments, with the reward of the config; `env.eval` overrides `env` for the
    second, and the config the `defaults` that follow from the model. Raise `ConfigError`, which begins with a key in
    the YAML."""
    from ..rewards import build

    try:
        reward = None if config.reward is None else build(config.reward)
    except ConfigError as error:
        error.key = error.key or "reward"
        raise
    settings = {**defaults, **config.env.settings}
    return _build_env(config, reward, settings, {}), _build_env(config, reward, settings, config.env.eval)


def _build_env(
    config: Config, reward: Reward | EpisodeReward | None, settings: Mapping[str, Any], held_out: Mapping[str, Any]
) -> BaseMultiTurnEnv:
    from . import make

    for section, values in (("env", settings), ("env.eval", held_out)):
        for key in _NOT_ENV_SETTINGS.keys() & values.keys():
            text = f"{section}.{key}: not a setting of an environment: {_NOT_ENV_SETTINGS[key]}"
            raise ConfigError(text, key=f"{section}.{key}")
    try:
        return make(config.env.name, reward=reward, **merge_settings(settings, held_out))
    except ConfigError as error:
        if error.key is None:
            raise ConfigError(f"env: {error}", key="env") from error
        section = "env.eval" if error.key.split(".")[0] in held_out else "env"
        key = f"{section}.{error.key}"
        raise ConfigError(f"{key}: {error}", key=key) from error


def check_turns(env: BaseMultiTurnEnv, section: str) -> None:
    """Raise `ConfigError` if the turns of an environment, or of one of a mixture, cannot be trained on."""
    for key, part in getattr(env, "parts", {}).items():
        check_turns(part, f"{section}.environments.{key}")
    if env.history != "full":
        written = ", ".join(f"{name}: {value}" for name, value in env.history.model_dump(exclude_none=True).items())
        raise ConfigError(
            f"{section}.history = {{{written}}}: training uses the sampled tokens and removes none; allowed: full",
            key=f"{section}.history",
        )
    if env.max_turns == 1 and env.tools and not hasattr(env, "parts"):
        raise ConfigError(
            f"{section}.max_turns = 1: the only turn is for the answer, so no tool can be called; allowed: at least 2, "
            f"or {section}.tools: [] (given: {', '.join(env.tools)})",
            key=f"{section}.max_turns",
        )


def prepare_env(env: BaseMultiTurnEnv, section: str = "env") -> None:
    """Load the models of an environment's tools and connect to their servers. Raise `ConfigError`, which begins with a
    key in the YAML, if one of them cannot be used."""
    try:
        env.prepare()
    except ConfigError as error:
        key = f"{section}.{error.key}" if error.key else section
        raise ConfigError(f"{key}: {env.name}: {error}", key=key) from error


def merge_settings(settings: Mapping[str, object], held_out: Mapping[str, object]) -> dict[str, object]:
    """Return the settings of the held-out environment: those of `env.eval` replace others; `data` is merged, and so are
    the settings of each environment of a mixture."""
    merged = {**settings, **held_out}
    for key, merge in (("data", merge_data), ("environments", _merge_parts)):
        before, after = settings.get(key), held_out.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            merged[key] = merge(before, after)
    return merged


def _merge_parts(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    both = {key for key in before.keys() & after.keys() if isinstance(before[key], Mapping) and after[key]}
    return {**before, **after, **{key: merge_settings(before[key], after[key]) for key in both}}
