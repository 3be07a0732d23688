"""A reward from YAML: a mapping with a `type`, and the settings of that reward's class.

    type: combined
    components:
      label: {type: exact_match, field: label, weight: 0.5}
      box: {type: iou, field: bbox, weight: 0.5}

The class is the specification (`declare.py`); a component may also have `weight` and `needs` (`Component`).
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator

from ..errors import ConfigError, describe_unknown
from .brier import BrierReward
from .combined import CombinedReward, Component
from .declare import AnyReward, EpisodeReward, Reward, create_validated, get_reward_class, list_reward_types
from .imported import ImportedReward, load_reward

COMPONENT_KEYS = ("weight", "needs")


Check = Callable[[str, Mapping[str, Any], str], None]  # of (type, settings, path), before a reward is made


def build(spec: object, path: str = "reward", *, check: Check | None = None) -> AnyReward:
    """Build the reward that a mapping from YAML describes; a reward object is returned as it is.

    Raises:
        ConfigError: a key that is unknown, missing or out of range. It names the key, the value and what is allowed.

    >>> build({"type": "exact_match", "field": "answer"})
    ExactMatchReward(field='answer', reference_field=None, aliases={}, tolerance=None, name='exact_match')
    >>> build({"type": "box"})
    Traceback (most recent call last):
    viewbox.errors.ConfigError: reward: unknown reward 'box'; allowed: brier, combined, exact_match, format, iou, \
judge, label_set_f1, python, ranking, seen, token_f1, tool_use
    """
    if isinstance(spec, Mapping):
        for key in COMPONENT_KEYS:
            if spec.get(key) is not None:
                text = f"{path}.{key} = {spec[key]!r:.80}: allowed only in a component of a combined reward"
                raise ConfigError(text, key=f"{path}.{key}")
    elif isinstance(spec, Reward | EpisodeReward):
        return spec
    reward: AnyReward = _build_reward(spec, path, check)
    return reward


RewardSpec = Annotated[Any, BeforeValidator(build)]  # a field of a pydantic model: YAML becomes the reward


def _build_reward(spec: Any, path: str, check: Check | None) -> Any:
    if not isinstance(spec, Mapping):
        raise ConfigError(f"{path} = {spec!r:.80}; allowed: a mapping with `type`", key=path)
    if "type" not in spec:
        types = list_reward_types()
        text = f"{path}.type: is missing; allowed: {', '.join(types)}"
        raise ConfigError(text, key=f"{path}.type")
    if check is not None:
        check(str(spec["type"]), spec, path)
    try:
        cls = get_reward_class(str(spec["type"]))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}", key=path) from error
    settings = {
        key: value
        for key, value in spec.items()
        if key not in ("type", *COMPONENT_KEYS) and (value is not None or key not in ("name", "of"))
    }
    _check_keys(settings, cls, path)
    if cls is CombinedReward and isinstance(settings.get("components"), Mapping):
        parts = settings["components"].items()
        settings["components"] = {
            name: _build_component(part, f"{path}.components.{name}", check) for name, part in parts
        }
    if cls is BrierReward and "of" in settings:
        settings["of"] = build(settings["of"], f"{path}.of", check=check)
    reward = create_validated(cls, settings, path)
    return load_reward(reward.function, reward.name) if isinstance(reward, ImportedReward) else reward


def _build_component(spec: Any, path: str, check: Check | None) -> Component:
    reward = _build_reward(spec, path, check)
    keys = {key: spec[key] for key in COMPONENT_KEYS if spec.get(key) is not None}
    component: Component = create_validated(Component, {"reward": reward, **keys}, path)
    return component


def _check_keys(settings: Mapping[str, Any], cls: Any, path: str) -> None:
    fields = [field.name for field in dataclasses.fields(cls)]
    for key, value in settings.items():
        if key not in fields:
            text = describe_unknown("key", str(key), ["type", *fields, *COMPONENT_KEYS])
            raise ConfigError(f"{path}.{key} = {value!r:.80}: {text}", key=f"{path}.{key}")
