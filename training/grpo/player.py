"""Plays the tasks of a batch with the engine, an episode each, and stores them, or whole groups drawn at random.

Every episode of a run has its own seed. It belongs to the number of a sample, which all processes count together; a
resumed run counts on, and plays the same episodes again.
"""

import random
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from msgspec.structs import replace

from ...core.base import BaseMultiTurnEnv
from ...engines.generator import Generator
from ...records import Episode, Task
from ...rollouts.play import play_many, sample_seed
from ...rollouts.store.writer import EpisodeWriter
from ...utils import concurrency
from ..generation import Sampler, use_for_generation


class BatchPlayer:
    """Plays batches of this process. `folder`: the folder to which the episodes of every step are appended.
    `episodes_per_step`: how many of this process are, in groups drawn at random; None: all."""

    def __init__(
        self,
        accelerator: Accelerator,
        sampler: Sampler,
        *,
        seed: int,
        folder: Path | None = None,
        episodes_per_step: int | None = None,
    ) -> None:
        self.accelerator, self.sampler, self.seed, self.weights = accelerator, sampler, seed, sampler.weights
        self.num_played = 0  # sample numbers used so far by all processes
        self.on_episode: Callable[[int, int], None] = lambda done, total: None
        self.episodes_per_step = episodes_per_step
        self.latest_episodes: list[Episode] = []  # those of the last batch that are kept
        self._writer = EpisodeWriter(folder) if folder is not None and episodes_per_step != 0 else None

    def play(
        self, model: object, env: BaseMultiTurnEnv, tasks: Sequence[Task], step: int, group_size: int = 1
    ) -> list[Episode]:
        """Return an episode for each task, in order, each with its own seed and its number in its group
        (`info.sample`). Every process plays as many. A group is `group_size` tasks in a row, over the borders of
        processes."""
        place = self.accelerator.process_index * len(tasks)
        first = self.num_played + place
        slots = min(self.sampler.rollout.slots, len(tasks))

        async def play_all(make_generator: Callable[[], Generator]) -> list[Episode]:
            generator = make_generator()
            seed = sample_seed(self.seed, first)
            limits: dict[str, Any] = {"concurrency": slots, "timeout": self.sampler.timeout}
            episodes: list[Episode] = []
            async for episode in play_many(env, tasks, generator, seed=seed, **limits):
                episodes.append(episode)
                self.on_episode(len(episodes), len(tasks))
            episodes.sort(key=lambda episode: episode.info["index"])
            return [
                replace(e, info={**e.info, "step": step, "number": first + i, "sample": (place + i) % group_size})
                for i, e in enumerate(episodes)
            ]

        with use_for_generation(self.accelerator, model) as ready:
            make = self.sampler.prepare(ready, step, slots=slots)
            episodes = concurrency.run(play_all(make))
        env.release()
        self.num_played += len(tasks) * self.accelerator.num_processes
        return episodes

    def store(self, episodes: Sequence[Episode], advantages: Sequence[Sequence[float]]) -> None:
        """Keep episodes of a batch with their advantages in `info` (a number, or a list of one a reply), and append
        those that were trained on to the run's folder. If they are a part, whole groups are drawn at random, and
        `info["saved"]` says "8 of 64"."""
        pairs = list(zip(episodes, advantages, strict=True))
        said: dict[str, str] = {}
        if self.episodes_per_step is not None and self.episodes_per_step < len(pairs):
            groups = [[*group] for _, group in groupby(pairs, key=lambda pair: pair[0].task.id)]
            random.Random(sample_seed(self.seed, episodes[0].info.get("number", 0))).shuffle(groups)
            said = {"saved": f"{self.episodes_per_step} of {len(pairs)}"}
            pairs = [pair for group in groups for pair in group][: self.episodes_per_step]
        self.latest_episodes = [
            replace(e, info={**e.info, **said, "advantage": values[0] if len(values) == 1 else values[: e.num_turns]})
            for e, values in pairs
        ]
        for episode in self.latest_episodes:
            if self._writer is not None:
                self._writer.append_or_error(episode)
