"""Plays the tasks of a batch with the engine, an episode each, and stores them, or whole groups drawn at random.

Every episode of a run has its own seed. It belongs to the number of a sample, which all processes count together; a
resumed run counts on, and plays the same episodes again.
"""

import asyncio
import math
import random
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from msgspec.structs import replace

from ...core.base import BaseMultiTurnEnv
from ...engines.generator import Generator
from ...engines.hf.adapters import measure_kept_change
from ...records import Episode, Task
from ...rollouts.play import play_many, sample_seed
from ...rollouts.store.writer import EpisodeWriter
from ..generation import Sampler, use_for_generation
from .groups import draw_other_tasks, replace_uniform_groups


class BatchPlayer:
    """Plays batches of this process.

    Args:
        candidates: all tasks that are trained on, by index.
        folder: the folder to which the episodes of every step are appended.
        episodes_per_step: how many of this process are, in groups drawn at random; None: all.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        sampler: Sampler,
        *,
        seed: int,
        candidates: Sequence[int] = (),
        dynamic_sampling_rounds: int = 0,
        folder: Path | None = None,
        episodes_per_step: int | None = None,
    ) -> None:
        self.accelerator, self.sampler, self.seed, self.weights = accelerator, sampler, seed, sampler.weights
        self.candidates, self.dynamic_sampling_rounds = candidates, dynamic_sampling_rounds
        self._resamples = False  # whether episodes are played in rounds of resampling, each process its own
        self.num_played = 0  # sample numbers used so far by all processes
        self.kept_change = math.nan  # of adapters, in the weights of the last batch; see `KeptChange`
        self.on_episode: Callable[[int, int], None] = lambda done, total: None
        self.episodes_per_step = episodes_per_step
        self.latest_episodes: list[Episode] = []  # those of the last batch that are kept
        self._writer = EpisodeWriter(folder) if folder is not None and episodes_per_step != 0 else None

    def play(
        self,
        model: object,
        env: BaseMultiTurnEnv,
        tasks: Sequence[Task],
        step: int,
        num_seeds: int | None = None,
        group_size: int = 1,
    ) -> list[Episode]:
        """Return an episode for each task, in order, each with its own seed and its number in its group
        (`info.sample`).

        `num_seeds` seeds are reserved for each process (default: one for each task), whether they are used or not. A
        group is `group_size` tasks in a row, over the borders of processes.
        """
        num_seeds = len(tasks) if num_seeds is None else num_seeds
        place = self.accelerator.process_index * num_seeds
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
            make = self.sampler.prepare(ready, step, slots=slots, sends=not self._resamples)
            self.kept_change = measure_kept_change(model) if self.weights is None else self.weights.kept_change
            episodes = asyncio.run(play_all(make))
        env.release()
        self.num_played += num_seeds * self.accelerator.num_processes
        return episodes

    def replace_uniform_groups(
        self,
        episodes: list[Episode],
        tasks: Sequence[int],
        group_size: int,
        get_reward: Callable[[Episode], float | None],
        play: Callable[[list[int], int], Sequence[Episode]],
    ) -> tuple[list[Episode], int]:
        """Return the batch with its uniform groups replaced, and how many groups this process played for that.

        All processes shuffle the tasks in the same way and take every n-th of them. A process does not know how many
        rounds the others play, so the sample numbers of all rounds are reserved.

        Args:
            play: plays tasks and reserves so many seeds for each process; calls `BatchPlayer.play`.
        """
        process, processes, batch_size = self.accelerator.process_index, self.accelerator.num_processes, len(tasks)
        taken = self.accelerator.gather(torch.tensor(tasks, device=self.accelerator.device))
        rounds = self.dynamic_sampling_rounds
        count, seed = rounds * processes * batch_size, sample_seed(self.seed, self.num_played)
        others = draw_other_tasks(self.candidates, taken.tolist(), count // group_size, seed)[process::processes]
        after = self.num_played + count
        self._resamples = True
        result = replace_uniform_groups(
            episodes, group_size, rounds, others, get_reward, lambda drawn: play(drawn, batch_size)
        )
        self._resamples, self.num_played = False, after
        return result

    def store(self, episodes: Sequence[Episode], advantages: Sequence[float]) -> None:
        """Keep episodes of a batch with their advantages in `info`, and append those that were trained on to the run's
        folder. If they are a part, whole groups are drawn at random, and `info["saved"]` says "8 of 64"."""
        kept = list(zip(episodes, advantages, strict=True))
        said: dict[str, str] = {}
        if self.episodes_per_step is not None and self.episodes_per_step < len(kept):
            groups = [[*group] for _, group in groupby(kept, key=lambda pair: pair[0].task.id)]
            random.Random(sample_seed(self.seed, episodes[0].info.get("number", 0))).shuffle(groups)
            said = {"saved": f"{self.episodes_per_step} of {len(kept)}"}
            kept = [pair for group in groups for pair in group][: self.episodes_per_step]
        self.latest_episodes = [replace(e, info={**e.info, **said, "advantage": value}) for e, value in kept]
        for episode in self.latest_episodes:
            if self._writer is not None:
                self._writer.append_or_error(episode)
