"""Rejection sampling: the policy plays episodes, the good ones are kept, and it learns from these.

A round is one such turn. Yuan et al. 2023 (arXiv 2308.01825) call it rejection sampling fine-tuning, and Dong et al.
2023 (RAFT, arXiv 2304.06767) repeat it as here: every round goes on from the weights of the one before.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from ...configs.train_sections import RejectionSampling, TrainSection
from ...core.base import BaseMultiTurnEnv
from ...core.tasks import to_sequence
from ...engines.generator import Generator
from ...records import Episode, EpisodeTokens, Task
from ...rollouts.play import play_many, sample_seed
from ...rollouts.scoring.metrics import compute_environment_metrics, drop_undefined
from ...rollouts.store.reader import load
from ...rollouts.store.writer import EpisodeWriter
from ..generation import Sampler, use_for_generation
from .selection import require_episodes, select_episodes
from .trainer import SFTTrainer, select_usable


class RejectionSamplingTrainer(SFTTrainer):
    """`SFTTrainer` whose episodes are those of the policy itself: a round plays, selects and learns.

    The steps are divided evenly among the rounds. The episodes of a round are stored as they end, so that a resumed run
    plays only those that are missing.

    Args:
        section: the section `train`; its `arguments` have `max_steps`.
        folder: the folder of the rounds: `round-1/process-0/episodes.jsonl`, …
        kwargs: arguments of `SFTTrainer`, without a dataset.

    Raises:
        StoreError: no episode of a round is kept.
    """

    def __init__(
        self,
        *,
        env: BaseMultiTurnEnv,
        section: TrainSection,
        folder: Path,
        sampler: Sampler,
        print_line: Callable[[str], None],
        **kwargs: Any,
    ) -> None:
        self.env, self.section, self.folder, self.print_line = env, section, folder, print_line
        self.sampler = sampler
        self.sampling = section.rejection_sampling or RejectionSampling()
        self._round = -1
        self._episodes: list[EpisodeTokens] = []  # those of the round that are learned from
        args = kwargs["args"]
        window = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
        # the rows only say how many episodes a batch has: `_draw` decides which
        rows: Any = [0] * (args.max_steps * window)
        super().__init__(train_dataset=rows, data_collator=lambda batch: {"count": len(batch)}, **kwargs)

    # ------------------------------------------------------------------ batches
    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[Any], torch.Tensor | None]:
        rows = [next(epoch_iterator) for _ in range(num_batches)]
        number = self.state.global_step * self.sampling.rounds // self.args.max_steps
        if number != self._round:
            self._episodes, self._round = self._start_round(number), number
        counts = [row["count"] for row in rows]
        window = [self._collate(self._draw(number, k, counts)) for k in range(len(counts))]
        return window, self._sum_window(window, device)

    def _find_first_step(self, number: int) -> int:
        return -int(-number * self.args.max_steps // self.sampling.rounds)

    def _draw(self, number: int, k: int, counts: Sequence[int]) -> list[EpisodeTokens]:
        """Return the episodes of accumulation step `k` on this process: the next ones in shuffled passes over the
        round."""
        window = counts[0] * len(counts) * self.accelerator.num_processes
        start = (self.state.global_step - self._find_first_step(number)) * window
        start += (k * self.accelerator.num_processes + self.accelerator.process_index) * counts[0]
        drawn = []
        for position in range(start, start + counts[k]):
            cycle, place = divmod(position, len(self._episodes))
            rng = torch.Generator().manual_seed(sample_seed(self.args.seed, number * 1_000_003 + cycle))
            order = torch.randperm(len(self._episodes), generator=rng)
            drawn.append(self._episodes[int(order[place])])
        return drawn

    # ------------------------------------------------------------------ a round
    def _start_round(self, number: int) -> list[EpisodeTokens]:
        """Play what is missing of a round, and return the episodes that are learned from."""
        process, processes = self.accelerator.process_index, self.accelerator.num_processes
        tasks = self._choose_tasks(number)
        parent = self.folder / f"round-{number + 1}"
        self._play(tasks[process::processes], parent / f"process-{process}", number * processes + process)
        self.accelerator.wait_for_everyone()
        episodes: list[Episode] = []
        for one in range(processes):
            # by task: episodes are stored in the order in which they end
            own = load(parent / f"process-{one}", tokens=True)
            episodes += sorted(own, key=lambda episode: (episode.info["index"], episode.info["sample"]))
        selection = select_episodes(episodes, self.section)
        metrics = drop_undefined(compute_environment_metrics(episodes, self.env))
        reward = f", reward {metrics['reward']:.3f}" if "reward" in metrics else ""
        title = f"round {number + 1} of {self.sampling.rounds}"
        if self.is_world_process_zero():
            self.print_line(f"{title}{reward}: {selection.describe()}")
        require_episodes(selection, title)
        if self.state.global_step == self._find_first_step(number):  # a resumed run has logged them before
            self.add_figures({"round": number + 1, "episodes/kept": len(selection.kept) / len(episodes)})
            self.add_figures({f"rollouts/{name}": value for name, value in metrics.items()})
        return select_usable(selection.kept, self.tokens)

    def _choose_tasks(self, number: int) -> list[Task]:
        """Return the tasks of a round: the next ones in an order that the seed decides."""
        tasks = to_sequence(self.env.tasks, self.env.name)
        order = torch.randperm(len(tasks), generator=torch.Generator().manual_seed(self.args.seed)).tolist()
        count = min(self.sampling.tasks, len(tasks))
        return [tasks[order[k % len(tasks)]] for k in range(number * count, (number + 1) * count)]

    def _play(self, tasks: Sequence[Task], folder: Path, number: int) -> None:
        async def play(make_generator: Callable[[], Generator], writer: EpisodeWriter) -> None:
            recorded = {(episode.info["index"], episode.info["sample"]) for episode in load(folder)}
            if len(recorded) == len(tasks) * self.sampling.samples:
                return
            generator = make_generator()
            seed = sample_seed(self.args.seed, number)
            limits: dict[str, Any] = {"concurrency": self.sampler.rollout.slots, "timeout": self.sampler.timeout}
            limits |= {"group": self.sampling.samples, "skip": recorded}
            async for episode in play_many(self.env, tasks, generator, seed=seed, **limits):
                writer.append_or_error(episode)

        with EpisodeWriter(folder) as writer, use_for_generation(self.accelerator, self.model) as model:
            asyncio.run(play(self.sampler.prepare(model), writer))
        self.sampler.release()
