"""`mixture`: several environments in one run, each with a weight, its own tools, answer, reward and metrics.

    env:
      name: mixture
      max_turns: 4                                  # a setting beside `environments` is that of all of them
      environments:
        digits: {weight: 2, noise: 8}
        hard: {name: digits, noise: 20}             # `name` is needed only if it is not the key
      eval:
        environments: {digits: {split: test}, hard: {split: test}}

A mixture is a stream of tasks and their environments: each task belongs to one (`for_task`), which plays and scores it.
`Episode.environment` is its key.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar, NoReturn, overload

import numpy as np
from pydantic import Field

from ..core.base import BaseMultiTurnEnv
from ..core.contract import Toolbox
from ..core.tasks import to_sequence
from ..errors import ConfigError
from ..records import Episode, Task
from ..rewards import CombinedReward, build
from ..rewards.combined import Scored
from ..rewards.metrics import Metric
from ..utils.frozen import FrozenDict
from . import make

KEY = "environment"  # in a task's metadata: which environment it belongs to
BLOCK = 100  # tasks in which the weights hold


class MixtureTasks(Sequence[Task]):
    """The tasks of several environments in turn, in proportion to their weights, until those of every environment have
    come once; those of a smaller one come again before that.

    >>> tasks = MixtureTasks({"a": [Task("1"), Task("2")], "b": [Task("1")]}, {"a": 2, "b": 1})
    >>> [task.id for task in tasks]
    ['a/1', 'b/1', 'a/2']
    """

    def __init__(self, parts: Mapping[str, Sequence[Task]], weights: Mapping[str, float]) -> None:
        self._parts, self._keys = parts, list(parts)
        shares = np.array([weights[key] for key in self._keys])
        counts = np.maximum(1, np.round(shares / shares.sum() * BLOCK)).astype(int)
        counts //= np.gcd.reduce(counts)
        places = [((rank + 0.5) / count, number, rank) for number, count in enumerate(counts) for rank in range(count)]
        self._block = [(number, rank) for _, number, rank in sorted(places)]  # evenly spread
        self._counts = counts
        self._length = max(self._find_end(number) for number in range(len(self._keys)))

    def _find_end(self, number: int) -> int:
        """Return how many tasks of the mixture it takes until every task of an environment has come."""
        blocks, rank = divmod(len(self._parts[self._keys[number]]) - 1, int(self._counts[number]))
        return blocks * len(self._block) + self._block.index((number, rank)) + 1

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Task]: ...
    def __getitem__(self, index: int | slice) -> Task | Sequence[Task]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(self._length))]
        block, place = divmod(range(self._length)[index], len(self._block))
        number, rank = self._block[place]
        key = self._keys[number]
        tasks = self._parts[key]
        task = tasks[(block * int(self._counts[number]) + rank) % len(tasks)]
        return Task(f"{key}/{task.id}", task.images, task.prompt, task.reference, {**task.metadata, KEY: key})


class PartReward(CombinedReward):
    """The reward of one environment of a mixture: it does not apply to the episodes of another one."""

    def _score(self, answer: Any, reference: Any, episode: Episode | None, *found: Any) -> Scored:
        if episode is None or episode.environment != self.name:
            return None, dict.fromkeys(self.components)
        return super()._score(answer, reference, episode, *found)


class Mixture(BaseMultiTurnEnv):
    """Several environments in one run; each task is played and scored by its own.

    >>> env = Mixture(environments={"digits": {"weight": 3}, "hard": {"name": "digits", "noise": 30.0}})
    >>> [task.id for task in env.tasks[:4]], env.for_task(env.tasks[1]).noise
    (['digits/digits-train-0', 'digits/digits-train-1', 'hard/digits-train-0', 'digits/digits-train-2'], 12.0)
    """

    name: ClassVar[str] = "mixture"
    environments: Annotated[
        Mapping[str, Any],
        Field(description="by key: `weight` (default 1), `name` (default: the key), `reward`, and its settings"),
    ] = FrozenDict()

    def __init__(self, *, reward: object = None, **given: Any) -> None:
        shared = {name: value for name, value in given.items() if name != "environments"}
        self.parts, self.weights = _build_parts(given.get("environments", {}), shared, reward)
        total = sum(self.weights.values())
        rewards = {key: PartReward(part.reward.components, name=key) for key, part in self.parts.items()}
        shares = {key: (part_reward, self.weights[key] / total) for key, part_reward in rewards.items()}
        super().__init__(reward=CombinedReward(shares, name=Mixture.name), **given)
        parts = self.parts.values()
        vars(self).update(
            restricted=any(part.restricted for part in parts),
            max_pixels=max(part.max_pixels for part in parts),
            tools=tuple(dict.fromkeys(tool for part in parts for tool in part.tools)),
            toolbox=Toolbox({name: tool for part in parts for name, tool in part.toolbox.items()}),
        )
        vars(self).update(tool_schemas=self.toolbox.build_schemas(self.tools))

    @cached_property
    def tasks(self) -> Sequence[Task]:
        tasks = {key: to_sequence(part.tasks, key, f"environments.{key}") for key, part in self.parts.items()}
        for key, listed in tasks.items():
            if not len(listed):
                raise ConfigError(f"mixture: environments.{key}: has no tasks", key=f"environments.{key}")
        return MixtureTasks(tasks, self.weights)

    def for_task(self, task: Task) -> BaseMultiTurnEnv:
        key = task.metadata.get(KEY)
        if key not in self.parts:
            allowed = ", ".join(self.parts)
            raise ConfigError(f"mixture: task {task.id}: its environment is {key!r}; allowed: {allowed}", key=KEY)
        return self.parts[key]

    def metrics_of(self, environment: str) -> Mapping[str, Metric]:
        part = self.parts.get(environment)
        return {} if part is None else part.metrics

    def play_unanswered(self) -> BaseMultiTurnEnv:
        copy = object.__new__(type(self))
        vars(copy).update(vars(self) | {"parts": {key: part.play_unanswered() for key, part in self.parts.items()}})
        return copy

    def check_may_train(self) -> None:
        for key, part in self.parts.items():
            try:
                part.check_may_train()
            except ConfigError as error:
                path = f"environments.{key}"
                raise ConfigError(f"{path}.{error}", key=f"{path}.{error.key}") from error

    def prepare(self) -> None:
        for key, part in self.parts.items():
            try:
                part.prepare()
            except ConfigError as error:
                raise ConfigError(f"environments.{key}: {error}", key=f"environments.{key}.{error.key}") from error

    def release(self) -> None:
        for part in self.parts.values():
            part.release()

    def _refuse(self, *given: Any, **settings: Any) -> NoReturn:
        raise TypeError("a mixture does not play: ask the environment of a task, env.for_task(task)")

    reset = step = build_episode = images = oracle = demonstration = _refuse
    read_answer = write_answer = write_box = build_system_prompt = _refuse


def _build_parts(
    sections: Mapping[str, Any], shared: Mapping[str, Any], reward: object
) -> tuple[dict[str, BaseMultiTurnEnv], dict[str, float]]:
    if not isinstance(sections, Mapping) or not sections:
        raise ConfigError("mixture: environments: is empty; allowed: settings by name", key="environments")
    parts, weights = {}, {}
    for key, section in sections.items():
        path = f"environments.{key}"
        if not isinstance(section, Mapping):
            raise ConfigError(f"mixture: {path} = {section!r:.80}; allowed: a mapping of settings", key=path)
        settings = {**shared, **section}
        weight, name, own = settings.pop("weight", 1), settings.pop("name", key), settings.pop("reward", reward)
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < float("inf"):
            place = f"{path}.weight"
            raise ConfigError(f"mixture: {place} = {weight!r:.80}; allowed: a number above 0", key=place)
        if name == Mixture.name:
            raise ConfigError(f"mixture: {path}: a mixture inside a mixture; allowed: list all of them", key=path)
        try:
            part = make(name, reward=build(own) if isinstance(own, Mapping) else own, **settings)
        except ConfigError as error:
            inner = f"{path}.{error.key}" if error.key else path
            raise ConfigError(f"mixture: {inner}: {error}", key=inner) from error
        vars(part)["name"] = key
        parts[key], weights[key] = part, float(weight)
    return parts, weights
