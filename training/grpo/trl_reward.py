"""The reward of an environment as a TRL reward function, for training with plain TRL."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...core.base import BaseMultiTurnEnv
from ...core.tasks import to_sequence
from ...errors import ConfigError
from ...images.coordinates import needs_size
from ...network.data_policy import keep_on_this_machine
from ...records import Episode, Task
from ...rewards import to_combined
from ...rewards.remote import check_reward_may_ask


class TRLReward:
    """A reward function for TRL: it takes lists of completions and of dataset columns, and returns a list of floats.

    The last message of a completion is read as the environment reads a final reply, so the reward equals that of
    `env.score`. The dataset needs a column `task` (a number in `env.tasks`) or a column `reference`. If the trainer
    passes whole `episodes`, their stored scores are returned. A reward is None if it does not apply.

    >>> from viewbox.envs.digits import Digits
    >>> env = Digits()
    >>> task = env.tasks[0]
    >>> reward = TRLReward(env)
    >>> reward.__name__
    'digits_reward'
    >>> import json
    >>> reward(completions=[json.dumps(env.gold_answer(task))], reference=[task.reference])[0] > 0.9
    True
    """

    def __init__(self, env: BaseMultiTurnEnv, reward: object = None, name: str | None = None) -> None:
        self.env = env
        self.reward = env.reward if reward is None else to_combined(reward)
        check_reward_may_ask(env, self.reward)
        self.__name__ = name or f"{env.name}_reward"  # TRL logs the reward under this name

    def __call__(
        self,
        completions: Sequence[Any],
        reference: Sequence[Mapping[str, Any]] | None = None,
        task: Sequence[int] | None = None,
        episodes: Sequence[Episode] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        if episodes is not None:
            return [episode.scores.total if episode.scores else None for episode in episodes]
        if task is not None:
            all_tasks = to_sequence(self.env.tasks, self.env.name)
            tasks = [all_tasks[number] for number in task]
        elif reference is not None:
            if self.env.boxes and needs_size(self.env.coordinates):
                raise ConfigError(
                    f"{self.__name__}: boxes in pixels need the size of the image; the dataset needs a column 'task' "
                    "(a number in env.tasks)"
                )
            tasks = [Task("trl", reference=gold) for gold in reference]
        else:
            raise ConfigError(
                f"{self.__name__}: the dataset has the columns {sorted(columns)}; needed: 'task' (a number in "
                "env.tasks) or 'reference'"
            )
        return [self._score_one(*pair) for pair in zip(completions, tasks, strict=True)]

    def _score_one(self, completion: Any, task: Task) -> float | None:
        text = (
            completion if isinstance(completion, str) else _join_text(completion[-1]["content"] if completion else "")
        )
        with keep_on_this_machine(self.env):
            return self.reward(self.env.for_task(task).read_answer(text, task), task.reference)


def _join_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in content or ())
