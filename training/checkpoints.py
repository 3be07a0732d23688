"""Checkpoints that are complete or absent, and hold all the state a run depends on.

transformers writes a checkpoint file by file into its final folder: a killed process leaves one that looks complete.
Nor does it save our counters, a batch that still serves updates, or sums that are not logged yet. Here a checkpoint is
written to `.draft` beside the others, synced to disk, and then renamed.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from accelerate import Accelerator
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ..errors import ConfigError
from ..rollouts.store.run_folder import read_json
from ..utils.files import sync_to_disk

# Every private name of transformers' `Trainer` that viewbox uses; only this file uses them. `training/grpo/trainer.py`
# lists those of TRL, and `tests/training/grpo/test_private_names.py` checks both lists.
PRIVATE_NAMES = {
    "_save_checkpoint": "extended: writes to a draft folder, adds our state, renames",
    "_get_output_dir": "overridden while a checkpoint is written: the draft folder",
    "_load_from_checkpoint": "called: the weights of a run that has ended",
    "_tr_loss": "saved and restored: the sum of losses not logged yet",
    "_total_loss_scalar": "saved and restored: the sum of losses that were logged; the last line has their mean",
    "_initial_global_step": "read: the step that this session began with",
    "_globalstep_last_logged": "saved and restored: when they were last logged",
}

_NAME = re.compile(r"checkpoint-(\d+)")
DRAFT = ".draft"
MAX_STATE = 2**30  # bytes of trainer_state.json, which holds every line that was logged


def get_step(checkpoint: Path) -> int:
    """Return the step of a checkpoint, from its folder's name; raise `ConfigError` for any other name."""
    match = _NAME.fullmatch(checkpoint.name)
    if match is None:
        raise ConfigError(f"{checkpoint}: not a checkpoint; allowed: a folder named checkpoint-<step>")
    return int(match[1])


def list_complete(folder: Path) -> list[Path]:
    """Return the complete checkpoints in a run's folder, the latest last."""
    paths = [path for path in (folder / "checkpoints").glob("checkpoint-*") if _NAME.fullmatch(path.name)]
    return sorted((path for path in paths if _is_complete(path)), key=get_step)


def check_resumable(checkpoint: Path) -> Path:
    """Return the checkpoint; raise `ConfigError` if it is missing, incomplete, or saved without its optimizer."""
    get_step(checkpoint)
    if not _is_complete(checkpoint):
        others = ", ".join(path.name for path in list_complete(checkpoint.parent.parent)) or "none"
        raise ConfigError(f"{checkpoint}: not a complete checkpoint; allowed: {others}")
    if not (checkpoint / "optimizer.pt").is_file():
        raise ConfigError(f"{checkpoint}: saved without its optimizer (train.save_only_model); it cannot be resumed")
    return checkpoint


def _is_complete(checkpoint: Path) -> bool:
    return all((checkpoint / name).is_file() for name in ("trainer_state.json", _get_state_file(0)))


def _get_state_file(process: int) -> str:
    return f"viewbox-{process}.pt"


class Best(NamedTuple):
    """The step with the highest held-out reward so far, and the largest share of scored episodes of such a step."""

    step: int
    reward: float
    scored: float = 1.0


class Checkpoints:
    """A mixin for a transformers `Trainer`, before it in the bases; subclasses extend `collect_state`.

    `train(resume_from_checkpoint=…)` then continues as if it had never stopped.
    """

    args: TrainingArguments
    state: TrainerState
    accelerator: Accelerator
    _tr_loss: torch.Tensor
    _total_loss_scalar: float
    _initial_global_step: int
    _globalstep_last_logged: int
    _drafting = False
    best: Best | None = None  # its checkpoint is kept whatever `save_total_limit` is
    is_finished: Callable[[int], bool] = staticmethod(lambda step: False)  # whether training ended early at a step

    def collect_state(self) -> dict[str, object]:
        """Return the state of this process besides weights, optimizer, scheduler and random state."""
        best = None if self.best is None else tuple(self.best)
        return {
            "loss": self._tr_loss,
            "total_loss": self._total_loss_scalar,
            "last_logged": self._globalstep_last_logged,
            "best": best,
        }

    def restore_state(self, state: dict[str, Any]) -> None:
        """Restore what `collect_state` returned."""
        self._tr_loss, self._globalstep_last_logged = state["loss"].to(self.args.device), state["last_logged"]
        self._total_loss_scalar = state.get("total_loss", 0.0)  # not in checkpoints of earlier versions
        self._restore_best(state)

    def _restore_best(self, state: dict[str, Any]) -> None:
        self.best = None if state.get("best") is None else Best(*state["best"])

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: object, **kwargs: object) -> Any:
        if isinstance(resume_from_checkpoint, str):
            self.add_callback(_Restore(self, Path(resume_from_checkpoint)))  # type: ignore[attr-defined]
        return super().train(resume_from_checkpoint, *args, **kwargs)  # type: ignore[misc]

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Log; the closing `train_loss` is the mean over the whole run, not over the steps since it was resumed."""
        if "train_loss" in logs:
            own_steps = self.state.global_step - self._initial_global_step
            logs["train_loss"] *= max(own_steps, 0.001) / max(self.state.global_step, 0.001)
        super().log(logs, *args, **kwargs)  # type: ignore[misc]

    def load_if_finished(self, checkpoint: Path) -> bool:
        """Load the checkpoint's weights if training had ended there; return whether it had."""
        read_json(checkpoint / "trainer_state.json", limit=MAX_STATE)  # raises if it is damaged or no regular file
        state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
        self._restore_best(_load_state(checkpoint, self.accelerator.process_index))
        done = state.global_step >= (self.args.max_steps if self.args.max_steps > 0 else state.max_steps)
        done = done or self.is_finished(state.global_step)
        if done:
            self.load_weights(checkpoint)
        return done

    def save_first(self) -> None:
        """Save a checkpoint of step 0, whose weights are the best so far. Every process calls this."""
        self._save_checkpoint(self.model, None)  # type: ignore[attr-defined]

    def load_weights(self, checkpoint: Path) -> None:
        """Load the weights of a checkpoint, and nothing else of it."""
        self._load_from_checkpoint(str(checkpoint))  # type: ignore[attr-defined]

    def save_unsaved(self) -> Path | None:
        """Save a checkpoint of the last step, unless there is one or none is wanted; return it. For a run that ends
        between two steps: every process calls this."""
        path = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
        if not self.state.global_step or self.args.save_strategy == "no" or _is_complete(path):
            return None
        self._save_checkpoint(self.model, None)  # type: ignore[attr-defined]
        return path

    def _get_output_dir(self, trial: Any) -> str:
        folder = super()._get_output_dir(trial)  # type: ignore[misc]
        return os.path.join(folder, DRAFT) if self._drafting else folder

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        parent = Path(self.args.output_dir)
        draft = parent / DRAFT
        name = f"checkpoint-{self.state.global_step}"
        if self.args.should_save:
            shutil.rmtree(draft, ignore_errors=True)  # left by a killed process
        self.accelerator.wait_for_everyone()
        self._drafting = True
        try:
            super()._save_checkpoint(model, trial)  # type: ignore[misc]
        finally:
            self._drafting = False
        torch.save(self.collect_state(), draft / name / _get_state_file(self.accelerator.process_index))
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            _sync_folder(draft / name)
            shutil.rmtree(parent / name, ignore_errors=True)  # the same step, saved before an earlier resume
            os.replace(draft / name, parent / name)
            self._delete_old(parent)
        self.accelerator.wait_for_everyone()

    def _delete_old(self, parent: Path) -> None:
        limit = self.args.save_total_limit
        kept = list_complete(parent.parent)
        for old in kept[: -max(1, limit)] if limit else ():
            if self.best is not None and get_step(old) == self.best.step:
                continue
            os.replace(old, parent / DRAFT / old.name)  # renamed first: a half-deleted checkpoint is never seen
        shutil.rmtree(parent / DRAFT, ignore_errors=True)


class _Restore(TrainerCallback):
    """Restores a trainer's own state after transformers has restored the rest."""

    def __init__(self, trainer: Any, checkpoint: Path) -> None:
        self.trainer, self.checkpoint = trainer, checkpoint

    def on_train_begin(self, args: object, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        self.trainer.restore_state(_load_state(self.checkpoint, self.trainer.accelerator.process_index))


def _load_state(checkpoint: Path, process: int) -> dict[str, Any]:
    file = checkpoint / _get_state_file(process)
    if not file.is_file():
        raise ConfigError(f"{checkpoint}: holds no {file.name}; was it saved by the same number of processes?")
    state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    return state


def _sync_folder(folder: Path) -> None:
    for path in (*_files(folder), folder):
        sync_to_disk(path)


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())
