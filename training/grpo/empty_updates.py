"""An update that nothing teaches leaves the weights as they are; momentum and weight decay would move them."""

from typing import Any

import torch
from accelerate import Accelerator
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


class SkipEmptyUpdates(TrainerCallback):
    """Takes away the gradients before an optimizer step if no process had a token to learn from since the last one."""

    def __init__(self, accelerator: Accelerator) -> None:
        self.accelerator = accelerator
        self._learned = torch.zeros((), device=accelerator.device)

    def add(self, tokens: torch.Tensor) -> None:
        """Counts tokens that the update learns from, a tensor of one number."""
        self._learned += tokens

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        learned = self.accelerator.gather(self._learned).sum().item()
        self._learned.zero_()
        if not learned:
            kwargs["model"].zero_grad(set_to_none=True)  # an optimizer passes over a weight without a gradient
