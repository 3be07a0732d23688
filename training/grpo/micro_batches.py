"""Splits a batch of episodes into micro-batches of a limited number of tokens, which bounds the memory of a step.

Loss and gradient stay those of the whole batch, because the loss of each part is weighted by its share.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from operator import add
from typing import Any

import torch
from accelerate import Accelerator
from trl import GRPOConfig

from ...errors import ConfigError


def check_additive_loss(tokens: int | None, arguments: GRPOConfig) -> None:
    """Raises `ConfigError` if micro-batches are used (`tokens` is not None) and the loss is not a sum over them."""
    if tokens is None:
        return
    neutral_values = {"entropy_coef": 0.0, "use_adaptive_entropy": False, "top_entropy_quantile": 1.0}
    for name, neutral in neutral_values.items():
        if getattr(arguments, name) != neutral:
            raise ConfigError(
                f"train.micro_batch_tokens = {tokens}: train.{name} = {getattr(arguments, name)} needs the "
                f"whole batch at once; allowed: train.{name} = {neutral}, or no train.micro_batch_tokens",
                key="train.micro_batch_tokens",
            )


def split_by_tokens(
    batch: dict[str, Any], tokens: int, gather: Callable[[torch.Tensor], torch.Tensor] = lambda table: table
) -> list[list[int]]:
    """Splits a batch into parts of at most `tokens` tokens; a prompt that episodes share counts once.

    Episodes of a group stay together if they fit. An episode longer than `tokens` is a part of its own.

    Args:
        batch: a collated batch.
        tokens: the maximum number of tokens in a part.
        gather: stacks a tensor of all processes. They cut after the same number of episodes, because they synchronize
            in every part.

    Returns:
        The indices of the episodes in each part.
    """
    prompts, completions = batch["prompt_mask"].sum(1).tolist(), batch["completion_mask"].sum(1).tolist()
    pictures = batch["image_keys"][:, :1].tolist()
    names = [(*ids, *keys) for ids, keys in zip(batch["prompt_ids"].tolist(), pictures, strict=True)]
    groups = {name: i for i, name in enumerate(dict.fromkeys(names))}
    group = [groups[name] for name in names]
    order = sorted(range(len(names)), key=lambda k: (group[k], -completions[k]))
    table = torch.tensor([[group[k], prompts[k], completions[k]] for k in order], device=batch["prompt_ids"].device)
    ends = _find_cuts(gather(table).view(-1, len(order), 3).tolist(), tokens)
    return [order[start:end] for start, end in pairwise([0, *ends])]


def _find_cuts(tables: list[list[list[int]]], tokens: int) -> list[int]:
    """Where parts end such that no process has more than `tokens` in one; rows are (group, prompt, completion).

    >>> _find_cuts([[[0, 10, 5], [0, 10, 5], [1, 10, 5]], [[0, 10, 1], [0, 10, 1], [0, 10, 1]]], 25)
    [2, 3]
    """
    ends, held, last = [], [0] * len(tables), [-1] * len(tables)
    for i, rows in enumerate(zip(*tables, strict=True)):
        more = [row[2] + (0 if row[0] == group else row[1]) for row, group in zip(rows, last, strict=True)]
        if i and max(map(add, held, more)) > tokens:
            ends.append(i)
            held, more = [0] * len(tables), [prompt + completion for _, prompt, completion in rows]
        held, last = list(map(add, held, more)), [row[0] for row in rows]
    return [*ends, len(tables[0])]


def select(batch: dict[str, Any], part: Sequence[int]) -> dict[str, Any]:
    """The batch of only the episodes with the indices `part`, in that order."""
    count = len(batch["prompt_ids"])
    rows = list(part)
    return {
        name: value[rows] if isinstance(value, torch.Tensor) and value.ndim and len(value) == count else value
        for name, value in batch.items()
    }


def accumulate_loss(
    batch: dict[str, Any],
    tokens: int,
    model: Any,
    accelerator: Accelerator,
    compute_loss: Callable[[dict[str, Any]], torch.Tensor],
    loss_type: str,
) -> torch.Tensor:
    """The loss of a batch in parts of at most `tokens` tokens. All parts but the last do their backward pass here.

    Args:
        batch: a collated batch.
        tokens: the maximum number of tokens in a part.
        model: as it was prepared; processes synchronize in the last part.
        accelerator: the trainer's.
        compute_loss: the loss of a part.
        loss_type: see `compute_share`.
    """
    *parts, last = split_by_tokens(batch, tokens, accelerator.gather)
    earlier = torch.zeros((), device=accelerator.device)
    for part in parts:
        with accelerator.no_sync(model):
            loss = compute_loss(select(batch, part)) * compute_share(batch, part, loss_type)
            accelerator.backward(loss)
        earlier += loss.detach()
    return compute_loss(select(batch, last)) * compute_share(batch, last, loss_type) + earlier


def compute_share(batch: dict[str, Any], part: Sequence[int], loss_type: str) -> float:
    """The weight of a part's loss in the loss of the batch; it depends on what TRL averages over for `loss_type`."""
    if loss_type in ("dapo", "cispo", "vespo"):  # sums over tokens, divided by the number in the whole batch
        return 1.0
    if loss_type == "bnpo":
        sampled = (batch["completion_mask"] * batch["tool_mask"]).sum(1)
        return (sampled[list(part)].sum() / sampled.sum().clamp(min=1)).item()
    return len(part) / len(batch["prompt_ids"])
