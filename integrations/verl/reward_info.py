"""What is reported of each episode beside its reward: numbers under the same names for every episode."""

import math
from collections.abc import Mapping

from ...core.base import BaseMultiTurnEnv
from ...records import Episode
from ...rewards.combined import list_component_names
from ...rollouts.scoring.metrics import get_episode_values


def build_reward_info(
    episode: Episode, env: BaseMultiTurnEnv, missing: float | None = math.nan
) -> dict[str, float | None]:
    """The values of one episode by the names that our own trainer logs.

    The names depend on the environment alone: verl puts the values of many episodes side by side. Those of the end are
    `end/<reason>`, 1 for the one that it was. `reward` is left out: verl reports it itself.

    Args:
        episode: the episode.
        env: the environment whose components are listed; of a mixture, also those of its parts.
        missing: the value of what does not apply. verl's validation leaves None out of its means, which NaN would
            spoil; its dynamic sampling in training reads numbers only.
    """
    values = get_episode_values(episode)
    del values["reward"]
    parts: Mapping[str, BaseMultiTurnEnv] = getattr(env, "parts", {})
    for reward in (env.reward, *(part.reward for part in parts.values())):
        for name in list_component_names(reward):
            values.setdefault(f"rewards/{name}/mean", None)
    return {name: missing if value is None else float(value) for name, value in sorted(values.items())}
