"""What settings of a GRPO run contradict one another; needs no torch."""

from collections.abc import Mapping
from typing import Any

from ...errors import ConfigError


def check_additive_loss(tokens: int | None, given: Mapping[str, Any]) -> None:
    """Raise `ConfigError` if micro-batches are used (`tokens` is not None) and the loss is not a sum over them."""
    if tokens is None:
        return
    neutral_values = {"entropy_coef": 0.0, "use_adaptive_entropy": False, "top_entropy_quantile": 1.0}
    for name, neutral in neutral_values.items():
        if given.get(name, neutral) != neutral:
            raise ConfigError(
                f"train.micro_batch_tokens = {tokens}: train.{name} = {given[name]} needs the "
                f"whole batch at once; allowed: train.{name} = {neutral}, or no train.micro_batch_tokens",
                key="train.micro_batch_tokens",
            )
