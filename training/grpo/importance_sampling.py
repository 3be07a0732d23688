"""Truncated importance sampling: tokens the engine drew, learnt by the trainer.

Other kernels and precisions give the same token slightly different probabilities. Where a batch serves several
updates, the clipped loss starts from the trainer's own log-probs before the first of them (`old`), and every token's
loss is weighted by min(exp(old − engine), cap): the expectation is the trainer's, the variance bounded (Yao et al.
2025, "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training"; what TRL does for vLLM). Where update
and generation share the weights there is one forward only, the loss's own, and no ratio is applied.
"""

from typing import Any

import torch

FAR = 20.0  # |log ratio| beyond which only "far" matters: keeps every figure finite


def importance_ratio(old: torch.Tensor, engine: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """exp(old − engine) where `mask` is 1, and 1 elsewhere; all (B, T), natural logs at the sampling temperature.

    >>> importance_ratio(torch.tensor([[0.0, -1.0]]), torch.tensor([[-0.5, -9.0]]), torch.tensor([[1, 0]]))
    tensor([[1.6487, 1.0000]])
    """
    return torch.where(mask.bool(), old - engine, 0.0).clamp(-FAR, FAR).exp()


def weighted(advantages: torch.Tensor, ratio: torch.Tensor, cap: float, loss_type: str) -> dict[str, torch.Tensor]:
    """The entries of a batch through which TRL 1.16's loss weights every token by min(ratio, cap).

    Its losses are linear in a non-negative factor of the advantage, and take advantages of (B, T). `vespo` is not: it
    has an entry of its own for the ratio.

    >>> weighted(torch.tensor([-2.0]), torch.tensor([[0.5, 3.0]]), 2.0, "dapo")
    {'advantages': tensor([[-1., -4.]])}
    """
    weights = ratio.clamp(max=cap)
    if loss_type == "vespo":
        return {"advantages": advantages, "importance_sampling_ratio": weights}
    return {"advantages": advantages[:, None] * weights}


def figures(ratio: torch.Tensor, mask: torch.Tensor, accelerator: Any) -> dict[str, float]:
    """Mean, least and greatest ratio of all processes' masked tokens, before the cap; 1 where there is none."""
    found = ratio[mask.bool()]
    if not len(found):
        found = ratio.new_ones(1)
    mean, least, most = accelerator.gather(torch.stack([found.mean(), found.min(), found.max()])).view(-1, 3).T
    return {"mean": mean.mean().item(), "min": least.min().item(), "max": most.max().item()}
