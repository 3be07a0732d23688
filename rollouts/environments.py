"""The environments of a run, from the section `env`: errors name the key in the YAML."""

from collections.abc import Mapping
from typing import Any

from viewbox.configs.schema import Config
from viewbox.errors import ConfigError

_ELSEWHERE = {
    "name": "held-out tasks are of the same environment",
    "reward": "it is a section of its own",
    "eval": "it stands in `env` only",
}


def make_envs(config: Config, defaults: Mapping[str, Any]) -> tuple[Any, Any]:
    """(training environment, held-out environment) with the reward of the config."""
    from viewbox.rewards import build

    reward = None if config.reward is None else build(config.reward)
    settings = {**defaults, **config.env.settings}
    return (
        _make(config, reward, settings, {}),
        _make(config, reward, settings, config.env.eval),
    )


def _make(config: Config, reward: Any, settings: Mapping[str, Any], held_out: Mapping[str, Any]) -> Any:
    from viewbox import make

    for section, given in (("env", settings), ("env.eval", held_out)):
        for key in _ELSEWHERE.keys() & given.keys():
            raise ConfigError(f"{section}.{key}: not a setting of an environment: {_ELSEWHERE[key]}")
    try:
        return make(config.env.name, reward=reward, **{**settings, **held_out})
    except ConfigError as error:
        if error.key is None:
            raise ConfigError(f"env: {error}") from error
        section = "env.eval" if error.key.split(".")[0] in held_out else "env"
        raise ConfigError(f"{section}.{error.key}: {error}") from error
