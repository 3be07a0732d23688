"""Checkpoints that are whole or absent, and hold all that decides what comes next.

transformers writes a checkpoint file by file into its final folder, so a kill leaves one that looks complete; and it
does not know of our counters, of a batch that is used for several updates, or of sums not logged yet. Here each
checkpoint is written to `.draft` beside the others, forced to disk, and renamed.
"""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerState

from viewbox.errors import ConfigError
from viewbox.files import sync_to_disk

# Every private name of transformers' `Trainer` that is used, all of them in this file. `training/grpo/trainer.py` has
# those of TRL. `tests/training/grpo/test_private_names.py` is the contract test.
PRIVATE_NAMES = {
    "_save_checkpoint": "extended: writes to a draft folder, adds our state, renames",
    "_get_output_dir": "overridden while a checkpoint is written: the draft folder",
    "_load_from_checkpoint": "called: the weights of a run that has ended",
    "_tr_loss": "saved and restored: the sum of losses not logged yet",
    "_globalstep_last_logged": "saved and restored: when they were last logged",
}

_NAME = re.compile(r"checkpoint-(\d+)")
DRAFT = ".draft"


def step_of(checkpoint: Path) -> int:
    """The step at which a checkpoint was taken."""
    found = _NAME.fullmatch(checkpoint.name)
    if found is None:
        raise ConfigError(f"{checkpoint}: not a checkpoint; expected a folder named checkpoint-<step>")
    return int(found[1])


def complete(folder: Path) -> list[Path]:
    """The whole checkpoints in a run's folder, the latest last."""
    found = [one for one in (folder / "checkpoints").glob("checkpoint-*") if _NAME.fullmatch(one.name)]
    return sorted((one for one in found if _whole(one)), key=step_of)


def check(checkpoint: Path) -> Path:
    """The checkpoint itself; raises `ConfigError` where there is none, or not a whole one."""
    step_of(checkpoint)
    if not _whole(checkpoint):
        others = ", ".join(one.name for one in complete(checkpoint.parent.parent)) or "none"
        raise ConfigError(f"{checkpoint}: not a whole checkpoint; there are: {others}")
    if not (checkpoint / "optimizer.pt").is_file():
        raise ConfigError(f"{checkpoint}: saved without its optimizer (train.save_only_model); it cannot be resumed")
    return checkpoint


def _whole(checkpoint: Path) -> bool:
    return all((checkpoint / name).is_file() for name in ("trainer_state.json", _own_file(0)))


def _own_file(process: int) -> str:
    return f"viewbox-{process}.pt"


class Checkpoints:
    """Mixed into a transformers `Trainer`, before it; subclasses add what is theirs to `own_state`.

    `train(resume_from_checkpoint=…)` then goes on as if it had never stopped.
    """

    args: Any
    state: Any
    accelerator: Any
    _tr_loss: torch.Tensor
    _globalstep_last_logged: int
    _drafting = False

    def own_state(self) -> dict[str, Any]:
        """What this process must remember beyond weights, optimizer, scheduler and random state."""
        return {"loss": self._tr_loss, "last_logged": self._globalstep_last_logged}

    def load_own_state(self, state: dict[str, Any]) -> None:
        """Puts back what `own_state` gave."""
        self._tr_loss, self._globalstep_last_logged = state["loss"].to(self.args.device), state["last_logged"]

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(resume_from_checkpoint, str):
            self.add_callback(_Restore(self, Path(resume_from_checkpoint)))  # type: ignore[attr-defined]
        return super().train(resume_from_checkpoint, *args, **kwargs)  # type: ignore[misc]

    def finished(self, checkpoint: Path) -> bool:
        """Whether the checkpoint is of the last step there is; if so its weights are loaded."""
        at = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
        done = at.global_step >= (self.args.max_steps if self.args.max_steps > 0 else at.max_steps)
        if done:
            self._load_from_checkpoint(str(checkpoint))  # type: ignore[attr-defined]
        return done

    def _get_output_dir(self, trial: Any) -> str:
        folder = super()._get_output_dir(trial)  # type: ignore[misc]
        return os.path.join(folder, DRAFT) if self._drafting else folder

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        parent = Path(self.args.output_dir)
        draft = parent / DRAFT
        name = f"checkpoint-{self.state.global_step}"
        if self.args.should_save:
            shutil.rmtree(draft, ignore_errors=True)  # what a killed process left
        self.accelerator.wait_for_everyone()
        self._drafting = True
        try:
            super()._save_checkpoint(model, trial)  # type: ignore[misc]
        finally:
            self._drafting = False
        torch.save(self.own_state(), draft / name / _own_file(self.accelerator.process_index))
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            _force_to_disk(draft / name)
            shutil.rmtree(parent / name, ignore_errors=True)  # the same step, saved before an earlier resume
            os.replace(draft / name, parent / name)
            self._forget_old(parent)
        self.accelerator.wait_for_everyone()

    def _forget_old(self, parent: Path) -> None:
        limit = self.args.save_total_limit
        kept = complete(parent.parent)
        for old in kept[: -max(1, limit)] if limit else ():
            os.replace(old, parent / DRAFT / old.name)  # gone at once, whatever happens while it is deleted
        shutil.rmtree(parent / DRAFT, ignore_errors=True)


class _Restore(TrainerCallback):
    """Gives a trainer its own state back once it has set up everything else."""

    def __init__(self, trainer: Any, checkpoint: Path) -> None:
        self.trainer, self.checkpoint = trainer, checkpoint

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        file = self.checkpoint / _own_file(self.trainer.accelerator.process_index)
        if not file.is_file():
            raise ConfigError(f"{self.checkpoint}: holds no {file.name}; was it saved by as many processes as run now?")
        self.trainer.load_own_state(torch.load(file, map_location="cpu", weights_only=True))


def _force_to_disk(folder: Path) -> None:
    for path in (*_files(folder), folder):
        sync_to_disk(path)


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())
