"""What settings of a GRPO run contradict one another; needs no torch."""

from collections.abc import Mapping
from typing import Any

from ...errors import ConfigError


def check_whole_groups(rounds: int, batch: int, group: int) -> None:
    """Raise `ConfigError` if a process would play only a part of a group, so that it cannot see if it is uniform.

    >>> check_whole_groups(1, 6, 4)
    Traceback (most recent call last):
    viewbox.errors.ConfigError: train.dynamic_sampling_rounds = 1: a process plays 6 episodes, which are not whole \
groups of train.num_generations = 4; allowed: 0, or a multiple of 4 episodes (train.per_device_train_batch_size x \
train.steps_per_generation)
    """
    if rounds and batch % group:
        raise ConfigError(
            f"train.dynamic_sampling_rounds = {rounds}: a process plays {batch} episodes, which are not whole groups "
            f"of train.num_generations = {group}; allowed: 0, or a multiple of {group} episodes "
            "(train.per_device_train_batch_size x train.steps_per_generation)",
            key="train.dynamic_sampling_rounds",
        )


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
