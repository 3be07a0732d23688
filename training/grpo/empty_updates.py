"""An update that nothing teaches leaves the weights as they are; momentum and weight decay would move them."""

from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


class SkipEmptyUpdates(TrainerCallback):
    """Takes away the gradients before an optimizer step if no sample of the update had a token to learn from.

    `take_learned` says whether one had, in any process, since the last call.
    """

    def __init__(self, take_learned: Callable[[], bool]) -> None:
        self.take_learned = take_learned

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if not self.take_learned():
            kwargs["model"].zero_grad(set_to_none=True)  # an optimizer passes over a weight without a gradient
