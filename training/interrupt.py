"""Ctrl-C (and a cluster's SIGTERM) while training: finish the step, save a checkpoint, end. Twice: end at once."""

import os
import signal
from typing import Any

import torch
from transformers import TrainerCallback

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt(TrainerCallback):
    """Turns the first signal into a checkpoint after the step under way; `stopped` says that it did."""

    def __init__(self) -> None:
        self.asked = self.stopped = False
        self._before: dict[int, Any] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._before = {one: signal.signal(one, self._heard) for one in SIGNALS}

    def restore(self) -> None:
        """Puts back the handlers that stood before training."""
        for one, handler in self._before.items():
            signal.signal(one, handler)
        self._before = {}

    def _heard(self, number: int, frame: Any) -> None:
        self.asked = True
        for one in SIGNALS:
            signal.signal(one, signal.SIG_DFL)
        # straight to the file: a signal comes between any two instructions, and may find a print half done
        os.write(2, b"\nstopping after this step, with a checkpoint; once more ends at once\n")

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._anyone_asked() and state.global_step < state.max_steps:
            self.stopped = control.should_save = control.should_training_stop = True

    def _anyone_asked(self) -> bool:
        """Every process must stop after the same step, or the others wait for it for ever."""
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return self.asked
        on_gpu = torch.distributed.get_backend() == "nccl"
        flag = torch.tensor(int(self.asked), device="cuda" if on_gpu else "cpu")
        torch.distributed.all_reduce(flag, torch.distributed.ReduceOp.MAX)
        return bool(flag)
