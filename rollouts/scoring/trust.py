"""What the files of a run may do when the run is scored: a run may come from somebody else.

From a run's own files (its config.yaml, its episodes, a YAML file beside them) only registered environments and
built-in rewards are made, and no judge is asked. Specialists are left out, trusted or not: scoring calls no tool, so it
loads no model, starts no server and imports no function of theirs. This does not limit what the user names in Python or
on the command line.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from ... import plugins
from ...core.base import BaseMultiTurnEnv
from ...core.settings import LoopSettings, ToolName, model_of
from ...envs import load_class, make
from ...errors import ConfigError
from ...rewards import AnyReward, CombinedReward, ExactMatchReward, build
from ...rewards.declare import REWARD_TYPES, list_reward_types
from ...rewards.remote import iter_rewards

ADD_TRUST = "if you know who wrote it, add --trust (in Python trust=True)"
ADD_ASK_JUDGE = "to ask it, add --ask-judge (in Python ask_judge=True)"
USE_YOUR_REWARD = "; or give a reward of your own with --reward, or an environment with --env"
_RUN_FILES = ("episodes.jsonl", "episodes/episodes.jsonl", "versions.json")  # a folder with one of them is a run


@dataclass(frozen=True)
class Trust:
    """What the user allows a run's own files: `code` may be imported, a `judge` may be asked."""

    code: bool = False
    judge: bool = False


NO_TRUST = Trust()
# Settings that no score depends on: texts, where tasks come from, and what tools a model could call.
NOT_SCORED = ("templates", "data", "specialists")
MIXTURE, PART_KEYS = "mixture", ("weight", "name", "reward")  # an environment of environments, and the keys of each


def make_environment(
    name: object, settings: Mapping[str, object], origin: str, trust: Trust = NO_TRUST, **changes: object
) -> BaseMultiTurnEnv:
    """Make the environment that a run's own files name.

    Its templates are left out: no score depends on them. Without `trust.code` it must be registered, and text among its
    settings must be one of named choices, because other text may be a path or an address.

    Args:
        name: as the file gives it.
        settings: as the file gives them.
        origin: the file, for messages; empty if the caller says it.
        trust: what the user allows.
        changes: keyword arguments of `viewbox.make` that are not from the file.

    >>> make_environment("digits", {"max_turns": 3, "templates": {"system": "never rendered"}}, "config.yaml").max_turns
    3
    >>> make_environment("gift.code:Env", {}, "config.yaml")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    viewbox.errors.ConfigError: config.yaml: env.name = 'gift.code:Env' would import and run gift.code; allowed in a \
run's own files: the registered environments (..., digits, ...); if you know who wrote it, add --trust \
(in Python trust=True)
    """
    where = f"{origin}: " if origin else ""
    specialists = _list_names(settings.get("specialists"))
    settings = _forget_tools({str(key): value for key, value in settings.items()}, specialists)
    if not isinstance(name, str):
        raise ConfigError(f"{where}env.name = {name!r:.80}; allowed: text", key="name")
    if "reward" in settings:
        raise ConfigError(f"{where}env.reward: the reward has a section of its own; allowed: `reward` beside `env`")
    if not trust.code:
        path = name if ":" in name else plugins.find_plugin("environments", name)
        if name not in plugins.ENVIRONMENTS and path is not None:
            known = ", ".join(sorted(plugins.ENVIRONMENTS))
            raise ConfigError(
                f"{where}env.name = {name!r:.200} would import and run {path.rpartition(':')[0]:.200}; allowed in a "
                f"run's own files: the registered environments ({known}); {ADD_TRUST}",
                key="name",
            )
        if name in plugins.ENVIRONMENTS and name != MIXTURE:
            _check_settings(load_class(name), settings, where)
    if name == MIXTURE:
        settings["environments"] = _check_parts(settings.get("environments"), where, trust, specialists)
    try:
        return make(name, **settings, **changes)
    except ConfigError as error:
        raise ConfigError(f"{where}{error}", key=error.key) from error


def _list_names(specialists: Any) -> list[str]:
    """Return the names of specialists, and of the tools of a server that have no prefix."""
    if not isinstance(specialists, Mapping):
        return []
    listed = [spec.get("tools") for spec in specialists.values() if isinstance(spec, Mapping)]
    return [str(name) for names in (specialists, *listed) if isinstance(names, Mapping) for name in names]


def _forget_tools(settings: Mapping[str, Any], specialists: Sequence[str]) -> dict[str, Any]:
    """Return the settings that scores depend on; they name no tool of these specialists, because there is none."""

    def is_theirs(tool: object) -> bool:
        return isinstance(tool, str) and any(tool == name or tool.startswith(f"{name}_") for name in specialists)

    kept = {key: value for key, value in settings.items() if key not in NOT_SCORED}
    if isinstance(tools := kept.get("tools"), list | tuple):
        kept["tools"] = [tool for tool in tools if not is_theirs(tool)]
    if isinstance(limits := kept.get("max_calls"), Mapping):
        kept["max_calls"] = {tool: limit for tool, limit in limits.items() if not is_theirs(tool)}
    return kept


def _check_parts(sections: Any, where: str, trust: Trust, specialists: Sequence[str]) -> dict[str, Any]:
    """Return the sections of a mixture, each checked like an environment of its own, with its reward built."""
    parts: dict[str, Any] = {}
    for key, section in sections.items() if isinstance(sections, Mapping) else ():
        part = {str(name): value for name, value in section.items()} if isinstance(section, Mapping) else {}
        place = f"{where}environments.{str(key)[:80]}: "
        own = [*specialists, *_list_names(part.get("specialists"))]
        settings = {name: value for name, value in _forget_tools(part, own).items() if name not in PART_KEYS}
        make_environment(part.get("name", key), settings, place.removesuffix(": "), trust, reward=ExactMatchReward())
        reward = part.get("reward")
        built = {} if reward is None else {"reward": build_reward(reward, place.removesuffix(": "), trust)}
        parts[str(key)] = settings | {name: part[name] for name in ("weight", "name") if name in part} | built
    return parts


def build_reward(spec: object, origin: str, trust: Trust = NO_TRUST) -> AnyReward:
    """Build the reward that a run's own files describe; see `Trust` for what it may not contain.

    >>> build_reward({"type": "python", "function": "gift.code:score"}, "config.yaml")
    Traceback (most recent call last):
    viewbox.errors.ConfigError: config.yaml: reward.function = 'gift.code:score' would import and run gift.code; \
allowed in a run's own files: built-in rewards; if you know who wrote it, add --trust (in Python trust=True); or give \
a reward of your own with --reward, or an environment with --env
    """

    def check(kind: str, part: Mapping[str, object], path: str) -> None:
        if kind == "judge":
            if not trust.judge:
                raise ConfigError(
                    f"{origin}: {path}: {_describe_judge(part)}; {ADD_ASK_JUDGE}{USE_YOUR_REWARD}", key=path
                )
        elif not trust.code and kind in list_reward_types() and not _is_built_in(kind):
            given = str(part.get("function"))
            place, runs = f"{path}.type = {kind!r}", plugins.find_plugin("rewards", kind) or "a reward of your own"
            if kind == "python":
                place, runs = f"{path}.function = {given!r:.200}", given.rpartition(":")[0][:200]
            raise ConfigError(
                f"{origin}: {place} would import and run {runs}; allowed in a run's own files: built-in rewards; "
                f"{ADD_TRUST}{USE_YOUR_REWARD}",
                key=path,
            )

    try:
        reward = build(spec, check=check)
    except ConfigError as error:
        text = str(error) if str(error).startswith(f"{origin}: ") else f"{origin}: {error}"
        raise ConfigError(text, key=error.key) from error
    for path, judge, weight in _list_weights(reward, "reward", 1.0):
        if weight == 0 and getattr(judge, "blocking", False) is True:
            raise ConfigError(
                f"{origin}: {path} has the weight 0: it would be asked and change no score; allowed: a weight above 0",
                key=path,
            )
    return reward


def find_run_of(path: Path, *runs: Path) -> Path | None:
    """Return the run whose folder holds a file, so that whoever made the run may have written it; None if there is
    none.

    >>> find_run_of(Path("/nowhere/reward.yaml")), str(find_run_of(Path("/gift/reward.yaml"), Path("/gift")))
    (None, '/gift')
    """
    known = {run.resolve() for run in runs}
    for given in (Path.cwd() / path, path.resolve()):
        for folder in given.parents:
            if folder.resolve() in known or any((folder / name).exists() for name in _RUN_FILES):
                return folder
    return None


def _is_built_in(kind: str) -> bool:
    cls = REWARD_TYPES.get(kind)
    return kind != "python" and cls is not None and cls.__module__.startswith("viewbox.rewards.")


# Of every environment: names of tools, formats and numbers. None of them opens or imports anything
LOOP_SETTINGS = {*LoopSettings.__annotations__, "tools", "coordinates", "max_pixels", "pixel_multiple"}


def _check_settings(cls: type, settings: Mapping[str, Any], where: str) -> None:
    """Raise `ConfigError` for text that could name a file, an address or code to this (registered) environment."""
    fields = model_of(cls).model_fields
    for key, value in settings.items():
        if key not in fields or key in LOOP_SETTINGS or not _has_text(value):
            continue
        if _has_choices(fields[key].annotation):
            continue
        raise ConfigError(
            f"{where}env.{key} = {value!r:.80}: text in a setting of this environment may be a path or an address; "
            f"allowed in a run's own files: numbers and named choices; {ADD_TRUST}{USE_YOUR_REWARD}",
            key=f"env.{key}",
        )


def _has_choices(annotation: Any) -> bool:
    """Return whether a setting takes no text but that of a `Literal`, and names of tools."""
    if annotation is Ellipsis or annotation == ToolName:
        return True
    if annotation in (str, Any, object) or (
        isinstance(annotation, type) and issubclass(annotation, str | bytes | Path)
    ):
        return False
    if not get_args(annotation):
        return annotation in (int, float, bool, type(None))
    return get_origin(annotation) is Literal or all(_has_choices(one) for one in get_args(annotation))


def _has_text(value: Any) -> bool:
    if isinstance(value, Mapping):
        return _has_text([*value, *value.values()])
    return any(map(_has_text, value)) if isinstance(value, list | tuple | set | frozenset) else isinstance(value, str)


def _describe_judge(part: Mapping[str, Any]) -> str:
    key = part.get("api_key_env")
    secret = f"with the key in your variable {key!r:.80}" if key is not None else "without a key"
    return f"would send the answers and references to a judge at {part.get('endpoint')!r:.200}, {secret}"


def _list_weights(reward: Any, path: str, weight: float) -> Iterator[tuple[str, Any, float]]:
    """(path, reward, share of the total) of every reward inside that is not combined."""
    if isinstance(reward, CombinedReward):
        for name, component in reward.components.items():
            yield from _list_weights(component.reward, f"{path}.components.{name}", weight * component.weight)
    else:
        for one in iter_rewards(reward):
            yield path, one, weight
