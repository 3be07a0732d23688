"""Truncated importance sampling: the engine samples the tokens, the trainer learns from them.

Engine and trainer use different kernels and precisions, so their probabilities of a token differ slightly. If a
batch serves several updates, the clipped loss starts from the trainer's own log-probs before the first one (`old`), and
each token's loss is weighted by min(exp(old − engine), cap). The cap bounds the variance (Yao et al. 2025, "Your
Efficient RL Framework Secretly Brings You Off-Policy RL Training"; TRL does the same for vLLM). If a batch serves one
update only, no ratio is applied and the loss's own forward pass is the only one.
"""

import torch
from accelerate import Accelerator

LARGEST_LOG_RATIO = 20.0  # keeps exp finite


def compute_importance_ratio(old: torch.Tensor, engine: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """exp(old − engine) where `mask` is 1, and 1 elsewhere; all (B, T), natural logs at the sampling temperature.

    >>> compute_importance_ratio(torch.tensor([[0.0, -1.0]]), torch.tensor([[-0.5, -9.0]]), torch.tensor([[1, 0]]))
    tensor([[1.6487, 1.0000]])
    """
    return torch.where(mask.bool(), old - engine, 0.0).clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO).exp()


def weight_advantages(
    advantages: torch.Tensor, ratio: torch.Tensor, cap: float, loss_type: str
) -> dict[str, torch.Tensor]:
    """The entries of a batch that make TRL 1.16's loss weight every token by min(ratio, cap).

    The losses are linear in the advantage and accept advantages of (B, T). The exception is `vespo`, which reads the
    ratio from an entry of its own.

    >>> weight_advantages(torch.tensor([-2.0]), torch.tensor([[0.5, 3.0]]), 2.0, "dapo")
    {'advantages': tensor([[-1., -4.]])}
    """
    weights = ratio.clamp(max=cap)
    if loss_type == "vespo":
        return {"advantages": advantages, "importance_sampling_ratio": weights}
    return {"advantages": advantages[:, None] * weights}


def summarize_ratio(ratio: torch.Tensor, mask: torch.Tensor, accelerator: Accelerator) -> dict[str, float]:
    """Mean, min and max over all processes of the ratios where `mask` is 1, before the cap; 1 if it is 1 nowhere."""
    values = ratio[mask.bool()]
    if not len(values):
        values = ratio.new_ones(1)
    mean, least, most = accelerator.gather(torch.stack([values.mean(), values.min(), values.max()])).view(-1, 3).T
    return {"mean": mean.mean().item(), "min": least.min().item(), "max": most.max().item()}
