"""What a reward is: a function of an answer, or of a whole episode."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from ..records import Episode


@runtime_checkable
class Reward(Protocol):
    """A pure function of the final answer and the task's reference.

    The score is finite and in [0, 1]; `None` means that the reward does not apply to this task. Whatever the answer, a
    reward does not raise; it may if it cannot be computed now, such as a judge that is down, and raises `Unmeasurable`
    if no answer can meet the reference.

    >>> from viewbox.rewards import ExactMatchReward
    >>> isinstance(ExactMatchReward(), Reward)
    True
    """

    @property
    def name(self) -> str: ...

    def __call__(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> float | None: ...


@runtime_checkable
class EpisodeReward(Protocol):
    """A pure function of a whole episode, for what an answer alone cannot show (format, use of tools).

    The score is finite and in [0, 1]; `None` means that the reward does not apply to this episode.

    >>> class Short:
    ...     name = "short"
    ...     def of_episode(self, episode):
    ...         return 1.0 if episode.num_turns <= 3 else 0.0
    >>> isinstance(Short(), EpisodeReward)
    True
    """

    @property
    def name(self) -> str: ...

    def of_episode(self, episode: Episode) -> float | None: ...


AnyReward = Reward | EpisodeReward


def get_reward_name(reward: object) -> str:
    """Return the name of a reward in logs: its `name`, else that of the function or class."""
    return str(getattr(reward, "name", None) or getattr(reward, "__name__", type(reward).__name__))
