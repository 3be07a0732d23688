"""Builds environments and generator settings from the sections `env`, `reward` and `rollout` of a config.

Training, held-out evaluation and `viewbox rollout` all call these functions, so a setting means the same in each.
"""

from collections.abc import Mapping
from typing import Any

from ..configs.schema import Config
from ..core.base import BaseMultiTurnEnv
from ..errors import ConfigError
from ..network.data_policy import check_may_leave
from ..rewards.base import EpisodeReward, Reward
from .data.settings import merge_data

FILTERS = ("top_p", "top_k", "repetition_penalty")
ENGINE_ONLY = ("kv_cache_bytes", "tool_wait_timeout", "cuda_graphs")  # a server decides these itself
# What a path in an environment's settings raises if it leads to no file that can be read
MISSING_FILE = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)
_NOT_ENV_SETTINGS = {
    "name": "held-out tasks use the same environment",
    "reward": "the reward has a section of its own",
    "eval": "it is allowed in `env` only",
}


# ---------------------------------------------------------------------- environments
def build_envs(config: Config, defaults: Mapping[str, Any]) -> tuple[BaseMultiTurnEnv, BaseMultiTurnEnv]:
    """The (training, held-out) environments, with the reward of the config.

    Args:
        config: the run; `env.eval` overrides `env` for the held-out environment.
        defaults: environment settings that follow from the model; settings in the config override them.

    Raises:
        ConfigError: a setting is invalid; the message begins with its key in the YAML.
    """
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
    except MISSING_FILE as error:
        raise ConfigError(describe_missing_file("env", error), key="env") from error
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
        raise ConfigError(
            f"{section}.history = {{last_images: {env.history.last_images}}}: training uses the sampled tokens and "
            "removes none of them; allowed: full",
            key=f"{section}.history",
        )
    if env.max_turns == 1 and env.tools and not hasattr(env, "parts"):
        raise ConfigError(
            f"{section}.max_turns = 1: the only turn is for the answer, so no tool can be called; allowed: at least 2, "
            f"or {section}.tools: [] (given: {', '.join(env.tools)})",
            key=f"{section}.max_turns",
        )


def prepare_env(env: BaseMultiTurnEnv, section: str = "env") -> None:
    """Loads the models of an environment's tools and connects to their servers, before the first episode.

    Raises:
        ConfigError: one of them cannot be used; the message begins with its key in the YAML.
    """
    try:
        env.prepare()
    except ConfigError as error:
        key = f"{section}.{error.key}" if error.key else section
        raise ConfigError(f"{key}: {env.name}: {error}", key=key, given=error.given, allowed=error.allowed) from error


def merge_settings(settings: Mapping[str, Any], held_out: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the held-out environment: those of `env.eval` replace others; `data` is merged, and so are the
    settings of each environment of a mixture.

    >>> merge_settings({"max_turns": 4, "data": {"source": "a.csv", "split": "train"}}, {"data": {"split": "test"}})
    {'max_turns': 4, 'data': {'source': 'a.csv', 'split': 'test'}}
    """
    merged = {**settings, **held_out}
    for key, merge in (("data", merge_data), ("environments", _merge_parts)):
        before, after = settings.get(key), held_out.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            merged[key] = merge(before, after)
    return merged


def _merge_parts(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    both = {key for key in before.keys() & after.keys() if isinstance(before[key], Mapping) and after[key]}
    return {**before, **after, **{key: merge_settings(before[key], after[key]) for key in both}}


def describe_missing_file(key: str, error: OSError) -> str:
    """The sentence for a file of the environment's own, such as its list of tasks, that cannot be opened.

    >>> describe_missing_file("env", FileNotFoundError(2, "No such file or directory", "tasks.jsonl"))
    "env: its file 'tasks.jsonl' cannot be opened: No such file or directory"
    """
    return f"{key}: its file {str(error.filename)!r} cannot be opened: {error.strerror or error}"


# ---------------------------------------------------------------------- generators
def build_engine_settings(config: Config, **changes: Any) -> dict[str, Any]:
    """Keyword arguments of `HFGenerator`: those of the section `rollout`, overridden by `changes`.

    With `rollout.engine: vllm` they are those of `build_vllm_generator`, and `slots`.

    >>> from viewbox.configs.schema import parse
    >>> config = parse({"model": {"name": "m"}, "env": {"name": "digits"}, "rollout": {"kv_cache_bytes": "2GiB"}})
    >>> settings = build_engine_settings(config, slots=8)
    >>> settings["model_name"], settings["kv_cache_bytes"], settings["slots"], settings["sampling"].temperature
    ('m', 2147483648, 8, 1.0)
    """
    section = config.rollout
    if section.engine == "vllm":
        return build_vllm_settings(config, slots=section.slots, **changes)
    others = {"timeout", "engine", "url", "gpu_memory"}
    names = section.__class__.model_fields.keys() - type(section.sampling).model_fields.keys() - others
    settings = section.model_dump(mode="json", include=names)
    return {**settings, "sampling": section.sampling, "model_name": config.model.name or "tiny", **changes}


def build_endpoint_settings(config: Config) -> dict[str, Any]:
    """Keyword arguments of `OpenAIGenerator`: only what the config sets; the server chooses the rest.

    Raises:
        ConfigError: a setting of the local engine is set, which no server accepts from a client.
    """
    section = config.rollout
    check_server_settings(config)
    settings: dict[str, Any] = {"sampling": section.sampling}
    if "max_reply_tokens" in section.model_fields_set:
        settings["max_tokens"] = section.max_reply_tokens
    return settings


def build_vllm_settings(config: Config, **changes: Any) -> dict[str, Any]:
    """Keyword arguments of `build_vllm_generator`, overridden by `changes`.

    Raises:
        ConfigError: a setting of the local engine is set.
    """
    check_server_settings(config)
    section = config.rollout
    names = ("url", "sampling", "max_reply_tokens", "max_completion_tokens")
    return {**{name: getattr(section, name) for name in names}, "model_name": config.model.name, **changes}


def check_server_settings(config: Config) -> None:
    """Raises `ConfigError` if a setting of the local engine is set, which no server accepts from a client."""
    section = config.rollout
    for name in ENGINE_ONLY:
        if name in section.model_fields_set and getattr(section, name) is not None:
            raise ConfigError(
                f"rollout.{name} = {getattr(section, name)}: applies to a local model only; a server decides this "
                "itself, so remove it",
                key=f"rollout.{name}",
            )


def check_url_for_data(env: BaseMultiTurnEnv, config: Config) -> None:
    """Raises `ConfigError` if the images of a restricted environment would be sent to another machine."""
    check_may_leave(
        env,
        config.rollout.url,
        action="rollout.url sends its images to",
        allowed="a server on localhost",
        key="rollout.url",
    )


def describe_filters(config: Config) -> list[str]:
    """A warning if a GRPO run samples with filters: the loss uses log-probs of the unfiltered distribution.

    >>> from viewbox.configs.schema import parse
    >>> print(*describe_filters(parse({"model": {"name": "m"}, "env": {"name": "digits"}, "rollout": {"top_p": 0.9}})))
    rollout.top_p = 0.9: episodes are sampled from a filtered distribution, but the loss uses the unfiltered one
    """
    section = config.rollout
    fields = type(section).model_fields
    active = {name: getattr(section, name) for name in FILTERS if getattr(section, name) != fields[name].default}
    if not active or config.train.method != "grpo":
        return []
    settings = ", ".join(f"rollout.{name} = {value}" for name, value in active.items())
    return [f"{settings}: episodes are sampled from a filtered distribution, but the loss uses the unfiltered one"]
