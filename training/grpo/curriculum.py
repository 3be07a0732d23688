"""A curriculum: the weights of the reward, and the settings of the environment, change while a policy learns.

    train:
      curriculum:
        reward_weights:                    # tool use counts first, the answer later
          - {from_step: 0, weights: {tool_use: 0.5, label: 0.5}}
          - {from_step: 40, weights: {tool_use: 0.1, label: 0.9}}
        levels:                            # from easy to hard; the policy's own success decides which one is played
          - {env: {noise: 4}}
          - {env: {noise: 12}}

Held-out tasks are played as the sections `env` and `reward` say, at every step: the figures stay comparable. What is
played at a step depends on the step and on `state_dict` alone, so that a resumed run goes on as it would have.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from ...configs.schema import Config
from ...configs.train_sections import CurriculumSection
from ...core.base import BaseMultiTurnEnv
from ...core.tasks import to_sequence
from ...core.variants import vary
from ...envs.from_config import build_envs, merge_settings
from ...errors import ConfigError, describe_unknown
from ...rewards.combined import CombinedReward, Component

KEY = "train.curriculum"


class Curriculum:
    """Which environment is played at a step.

    Args:
        levels: the environment of each level, from easy to hard; one if the levels do not change it.

    >>> from viewbox.envs.digits import Digits
    >>> levels = [{"env": {"noise": 4}}, {"env": {"noise": 12}}]
    >>> section = CurriculumSection.model_validate({"levels": levels, "window": 1})
    >>> curriculum = Curriculum(section, [Digits(noise=4), Digits(noise=12)])
    >>> curriculum.get_env(0).noise
    4.0
    >>> curriculum.add_reward(0.9)
    >>> curriculum.get_env(1).noise
    12.0
    """

    def __init__(self, section: CurriculumSection, levels: Iterable[BaseMultiTurnEnv]) -> None:
        self.section, self.levels = section, list(levels)
        self.level = 0  # of an adaptive curriculum
        self.recent: list[float] = []  # rewards at this level, at most `window`
        for phase, weights in enumerate(section.reward_weights):
            for env in self.levels:
                _change_weights(env.reward, weights.weights, f"{KEY}.reward_weights.{phase}.weights")
        self._envs: dict[tuple[int, int], BaseMultiTurnEnv] = {}

    def get_level(self, step: int) -> int:
        """Return the index of the level that is played at a step."""
        if not self.section.is_scheduled:
            return self.level
        return max((i for i, level in enumerate(self.section.levels) if (level.from_step or 0) <= step), default=0)

    def get_env(self, step: int) -> BaseMultiTurnEnv:
        """Return the environment that is played at a step, with the reward of that step."""
        phases = self.section.reward_weights
        phase = max((i for i, weights in enumerate(phases) if weights.from_step <= step), default=-1)
        key = self.get_level(step), phase
        if key not in self._envs:
            env = self.levels[key[0]]
            if phase >= 0:
                reward = _change_weights(env.reward, phases[phase].weights, KEY)
                env = vary(env, reward=reward)
            self._envs[key] = env
        return self._envs[key]

    def add_reward(self, reward: float) -> None:
        """Take the mean reward of a step; the level changes if the mean of the last ones is out of the band."""
        section = self.section
        if section.is_scheduled or math.isnan(reward):
            return
        self.recent = [*self.recent, reward][-section.window :]
        mean = sum(self.recent) / len(self.recent)
        if len(self.recent) < section.window or section.lower_below <= mean <= section.raise_above:
            return
        level = min(max(self.level + (1 if mean > section.raise_above else -1), 0), len(self.levels) - 1)
        if level != self.level:
            self.level, self.recent = level, []

    def state_dict(self) -> dict[str, object]:
        return {"level": self.level, "recent": self.recent}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.level, self.recent = min(state["level"], len(self.levels) - 1), list(state["recent"])


def build_curriculum(config: Config, env: BaseMultiTurnEnv, defaults: Mapping[str, Any]) -> Curriculum | None:
    """Return the curriculum of a run; None if it has none.

    Args:
        defaults: environment settings that follow from the model.

    Raises:
        ConfigError: a level or the weights do not fit the environment.
    """
    section = config.train.curriculum
    if section is None:
        return None
    levels = [env]
    for number, level in enumerate(section.levels):
        changed = type(config.env).model_validate({**merge_settings(config.env.model_dump(), level.env), "eval": {}})
        key = f"{KEY}.levels.{number}"
        try:
            built = build_envs(config.model_copy(update={"env": changed}), defaults)[0]
        except ConfigError as error:
            path = (error.key or "env").removeprefix("env.")
            raise ConfigError(f"{key}.{error}", key=f"{key}.env.{path}") from error
        if not len(to_sequence(built.tasks, built.name)):
            raise ConfigError(f"{key}.env: has no tasks", key=f"{key}.env")
        levels = [built] if not number else [*levels, built]
    return Curriculum(section, levels)


def _change_weights(reward: CombinedReward, weights: Mapping[str, float], key: str) -> CombinedReward:
    for name in weights:
        if name not in reward.components:
            raise ConfigError(f"{key}: {describe_unknown('component', name, reward.components)}", key=key)
    missing = reward.components.keys() - weights.keys()
    if missing:
        raise ConfigError(f"{key}: has no weight of {', '.join(sorted(missing))}; allowed: all components", key=key)
    parts = {name: Component(part.reward, weights[name], part.needs) for name, part in reward.components.items()}
    try:
        return CombinedReward(parts, name=reward.name)
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}", key=key) from error
