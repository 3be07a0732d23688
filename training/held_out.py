"""Evaluation during training: held-out tasks every so many steps, the best checkpoint kept, and early stopping."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from viewbox.rollouts.scoring.metrics import drop_undefined
from viewbox.training.checkpoints import Best

PREFIX = "held_out/"


class EvaluatedTrainer(Protocol):
    """What the callback needs of a trainer: `Checkpoints`, and figures that join the next line of metrics."""

    best: Best | None
    is_finished: Callable[[int], bool]

    def add_figures(self, figures: Mapping[str, float]) -> None: ...


class HeldOutEvaluation(TrainerCallback):
    """Evaluates after every `every`-th step and after the last one, on all processes.

    The figures join the step's line as `held_out/…`. If the reward is the best so far, a checkpoint is saved, which
    stays until there is a better one. If nothing is better after `patience` evaluations, training stops.

    Args:
        trainer: the trainer; its `best` is set, and its `is_finished`.
        evaluate: plays the held-out tasks and returns the same figures on every process.
        every: steps between evaluations.
        patience: evaluations without a better reward after which training stops; None: it never does.
    """

    def __init__(
        self,
        trainer: EvaluatedTrainer,
        evaluate: Callable[[], dict[str, Any]],
        every: int,
        patience: int | None = None,
    ) -> None:
        self.trainer, self.evaluate, self.every, self.patience = trainer, evaluate, every, patience
        self.figures: dict[int, dict[str, Any]] = {}  # by step, of this process's life
        trainer.is_finished = self.is_exhausted

    def is_exhausted(self, step: int) -> bool:
        """Whether so many evaluations up to `step` brought nothing better that training ends."""
        best = self.trainer.best
        if self.patience is None or step % self.every:
            return False
        return step // self.every - (0 if best is None else best.step // self.every) >= self.patience

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        step = state.global_step
        if step % self.every and step != state.max_steps:
            return
        started = time.perf_counter()
        figures = self.figures[step] = self.evaluate()
        numbers = drop_undefined({name: value for name, value in figures.items() if name != "intervals"})
        reward = numbers.get("reward")
        if reward is not None and (self.trainer.best is None or reward > self.trainer.best.reward):
            self.trainer.best = Best(step, reward)
            control.should_save = True
        if self.trainer.best is not None:
            numbers["best"] = self.trainer.best.reward
        self.trainer.add_figures({PREFIX + name: value for name, value in numbers.items()})
        self.trainer.add_figures({"time/evaluation": time.perf_counter() - started})
        control.should_log = True  # in the line of this step, whatever `logging_steps` is
        if step < state.max_steps and self.is_exhausted(step):
            control.should_training_stop = True


def find_best_checkpoint(folder: Path, best: Best) -> Path | None:
    """The checkpoint of the best step in a run's folder; None if it is not there any more."""
    path = folder / "checkpoints" / f"checkpoint-{best.step}"
    return path if path.is_dir() else None
