"""A batch of episodes in parts that a budget of tokens bounds, however long its episodes are."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from operator import add
from typing import Any

import torch
from trl.trainer.utils import split_pixel_values_by_grid, unsplit_pixel_values_by_grid

from viewbox.errors import ConfigError


def check_sums(tokens: int | None, arguments: Any) -> None:
    """Raises `ConfigError` where the loss that a `GRPOConfig` asks for is no sum over micro-batches."""
    if tokens is None:
        return
    given = {"entropy_coef": 0.0, "use_adaptive_entropy": False, "top_entropy_quantile": 1.0}
    for name, neutral in given.items():
        if getattr(arguments, name) != neutral:
            raise ConfigError(
                f"train.micro_batch_tokens = {tokens}: train.{name} = {getattr(arguments, name)} looks at a whole "
                f"batch at once; allowed with it: {neutral}, or leave train.micro_batch_tokens out"
            )


def micro_batches(
    batch: dict[str, Any], tokens: int, gather: Callable[[torch.Tensor], torch.Tensor] = lambda table: table
) -> list[list[int]]:
    """The episodes of a batch in parts of at most so many tokens, a shared prompt counted once in each.

    Members of a group stay together where they can; an episode that is longer goes by itself. `gather` stacks a tensor
    of every process: all of them cut after equally many episodes, since they meet in every part.
    """
    prompts, completions = batch["prompt_mask"].sum(1).tolist(), batch["completion_mask"].sum(1).tolist()
    pictures = batch["image_keys"][:, :1].tolist()
    names = [(*ids, *keys) for ids, keys in zip(batch["prompt_ids"].tolist(), pictures, strict=True)]
    groups = {name: i for i, name in enumerate(dict.fromkeys(names))}
    group = [groups[name] for name in names]
    order = sorted(range(len(names)), key=lambda k: (group[k], -completions[k]))
    table = torch.tensor([[group[k], prompts[k], completions[k]] for k in order], device=batch["prompt_ids"].device)
    ends = _cuts(gather(table).view(-1, len(order), 3).tolist(), tokens)
    return [order[start:end] for start, end in pairwise([0, *ends])]


def _cuts(tables: list[list[list[int]]], tokens: int) -> list[int]:
    """Where parts end, so that no process has more than so many tokens in one; rows are group, prompt, completion.

    >>> _cuts([[[0, 10, 5], [0, 10, 5], [1, 10, 5]], [[0, 10, 1], [0, 10, 1], [0, 10, 1]]], 25)
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


def chosen(batch: dict[str, Any], part: Sequence[int]) -> dict[str, Any]:
    """Some episodes of a batch, in that order."""
    count = len(batch["prompt_ids"])
    samples: dict[str, Any] = dict(split_pixel_values_by_grid(batch))
    for name, value in samples.items():
        if isinstance(value, list) and len(value) == count:
            samples[name] = [value[k] for k in part]
        elif isinstance(value, torch.Tensor) and value.ndim and len(value) == count:
            samples[name] = value[list(part)]
    return dict(unsplit_pixel_values_by_grid(samples))
