"""Held-out tasks of a training run: their stored episodes, and evaluations between the steps.

Evaluation every so many steps keeps the best checkpoint and can stop a run early. The episodes of the first, the best
and the latest evaluation stay in `held_out/<step>/`, so that those before and after can be looked at and compared.
"""

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from accelerate import PartialState
from msgspec.structs import replace
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ..records import Episode
from ..rollouts.scoring.metrics import drop_undefined
from ..rollouts.scoring.summary import ABOUT
from ..rollouts.store import run_folder
from ..rollouts.store.run_folder import HELD_OUT
from ..rollouts.store.writer import EpisodeWriter
from .checkpoints import Best

PREFIX = "held_out/"
FEWER = 0.02  # share of the episodes that may lack a score more than at the best step: a reward that fails is no gain


def store_episodes(run: Path, step: int, episodes: Sequence[Episode], best: int | None = None) -> None:
    """Store the held-out episodes of a step in `held_out/<step>/`, without tokens; remove those no longer wanted.

    Every process calls this, and stores the episodes that it played. A step that is stored already stays as it is.

    Args:
        run: the run's folder.
        step: of the weights.
        episodes: in the order of the tasks.
        best: the step with the best reward before.
    """
    processes = PartialState()
    folder, part = run / HELD_OUT / str(step), run / HELD_OUT / f".{step}"
    if folder.exists():
        return
    if processes.is_main_process:
        shutil.rmtree(part, ignore_errors=True)
    processes.wait_for_everyone()
    with EpisodeWriter(part) as writer:
        for episode in _select_own(episodes, processes):
            writer.append_or_error(replace(episode, tokens=None, info={**episode.info, "step": step}))
    processes.wait_for_everyone()
    if processes.is_main_process:
        part.rename(folder)
        for other in run_folder.list_held_out(run)[1:]:
            if other.name not in (str(step), str(best)):
                shutil.rmtree(other)


def _select_own(episodes: Sequence[Episode], processes: PartialState) -> Iterator[Episode]:
    """Yield the episodes that this process played: the others have no pixels here."""
    for episode in episodes:
        if episode.info["index"] % processes.num_processes == processes.process_index:
            yield episode


class HeldOutEvaluation(TrainerCallback):
    """Evaluates after every `every`-th step and after the last one, on all processes.

    The figures join the step's line as `held_out/…`. If the reward is the best so far, that before training included,
    a checkpoint is saved, which stays until there is a better one. A step with fewer scored episodes than the best so
    far, by more than `FEWER`, is not better: its mean leaves out what cannot be scored. If nothing is better after
    `patience` evaluations, training stops.

    Args:
        trainer: one of `Checkpoints`, which has `add_figures`; its `best` is set, and its `is_finished`.
        evaluate: plays the held-out tasks and returns the same figures on every process.
        every: steps between evaluations.
        patience: evaluations without a better reward after which training stops; None: it never does.
        before: the figures before training, if they were measured.
        keeps: whether the weights of the best step are wanted, those of step 0 too.
    """

    def __init__(
        self,
        trainer: Any,
        evaluate: Callable[[], dict[str, Any]],
        every: int,
        patience: int | None = None,
        before: Mapping[str, Any] | None = None,
        keeps: bool = True,
    ) -> None:
        self.trainer, self.evaluate, self.every, self.patience = trainer, evaluate, every, patience
        self.before, self.keeps = before or {}, keeps
        self.figures: dict[int, dict[str, Any]] = {}  # by step, of this process's life
        trainer.is_finished = self.is_exhausted

    def is_exhausted(self, step: int) -> bool:
        """Return whether so many evaluations up to `step` brought nothing better that training ends."""
        best = self.trainer.best
        if self.patience is None or step % self.every:
            return False
        return step // self.every - (0 if best is None else best.step // self.every) >= self.patience

    def on_train_begin(self, args: object, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        # a resumed run takes the best step from its checkpoint, unless that is of other tasks
        if self._set_best(0, self.before) and self.keeps and state.global_step == 0:
            self.trainer.save_first()

    def _set_best(self, step: int, figures: Mapping[str, Any]) -> bool:
        """Make a step the best if it is; returns whether."""
        reward, scored, best = figures.get("reward"), figures.get("episodes/scored", 1.0), self.trainer.best
        if reward is None or (best is not None and (reward <= best.reward or scored < best.scored - FEWER)):
            return False
        self.trainer.best = Best(step, reward, scored if best is None else max(scored, best.scored))
        return True

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        step = state.global_step
        if step % self.every and step != state.max_steps:
            return
        started = time.perf_counter()
        figures = self.figures[step] = self.evaluate()
        numbers = drop_undefined({name: value for name, value in figures.items() if name not in ABOUT})
        if self._set_best(step, numbers):
            control.should_save = True
        if self.trainer.best is not None:
            numbers["best"] = self.trainer.best.reward
        self.trainer.add_figures({PREFIX + name: value for name, value in numbers.items()})
        self.trainer.add_figures({"time/evaluation": time.perf_counter() - started})
        control.should_log = True  # in the line of this step, whatever `logging_steps` is
        if step < state.max_steps and self.is_exhausted(step):
            control.should_training_stop = True
