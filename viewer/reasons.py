"""Why the components of a saved episode's reward scored what they did. No code of the run is run, no judge is asked."""

from functools import lru_cache
from pathlib import Path

from ..errors import ViewboxError
from ..records import Episode
from ..rewards import CombinedReward
from ..rewards.explain import explain_score
from ..rewards.remote import is_blocking
from ..rollouts.scoring.reward_source import find_reward
from ..rollouts.scoring.trust import make_environment
from ..rollouts.store.reader import find_episodes_folder

MAX_REASON = 1_000  # characters
SAME = 1e-6  # difference up to which two scores are equal


@lru_cache(maxsize=64)
def find_trusted_reward(run: str | Path, environment: str = "") -> CombinedReward | None:
    """The reward that a run's own files name, if it is made of built-in parts and asks nobody; None otherwise.

    Args:
        run: the run, or a folder of episodes.
        environment: that of the episode, for a run without a config.
    """
    try:
        source = find_reward(None, Path(run), find_episodes_folder(run))
        reward = source.reward or make_environment(environment, {}, "").reward
    except (ViewboxError, OSError, ValueError):
        return None
    return None if not isinstance(reward, CombinedReward) or is_blocking(reward) else reward


def explain_saved(episode: Episode, reward: CombinedReward | None) -> dict[str, str]:
    """The reason of each component that an episode was scored on, by name.

    A reason that explains another score than the stored one is left out: the episode was scored by another reward.
    """
    scores = episode.scores
    if reward is None or scores is None or episode.is_fault:
        return {}
    explained = explain_score(reward, episode.answer, episode.task.reference, episode)
    return {
        one.name: one.why[:MAX_REASON]
        for one in explained.components
        if one.why and one.name in scores.components and _is_same(scores.components[one.name], one.score)
    }


def _is_same(stored: float | None, now: float | None) -> bool:
    if stored is None or now is None:
        return stored is now
    return abs(stored - now) <= SAME
