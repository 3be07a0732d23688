"""Log-probs of the trainer's batches: in the loss, before the first update of a batch, and of the reference model.

`logprobs.py` has the forward pass itself.

Truncated importance sampling: engine and trainer use different kernels and precisions, so their probabilities of a
token differ slightly. If a batch serves several updates, the clipped loss starts from the trainer's own log-probs
before the first one (`old`), and each token's loss is weighted by min(exp(old − engine), cap). The cap bounds the
variance (Yao et al. 2025, "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training"; TRL does the same
for vLLM). If a batch serves one update only, no ratio is applied and the loss's own forward pass is the only one.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from accelerate import Accelerator

from ...engines.hf.architectures import Pixels
from ...engines.hf.chat_tokens import ChatTokens
from ...engines.hf.vision_cache import VisionCache
from .batch import get_sampled, select, split_by_tokens
from .logprobs import EpisodeLogProbs


class BatchLogProbs:
    """Computes log-probs in the precision of the loss.

    Args:
        accelerator: the trainer's.
        tokens: the ids of images and of padding.
        vision_cache: the engine's features; they serve the loss if the tower is frozen.
        temperature: the temperature at which the episodes were sampled.
        micro_batch_tokens: the maximum number of tokens in a part of a batch; None: any.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        tokens: ChatTokens,
        vision_cache: VisionCache,
        temperature: float,
        micro_batch_tokens: int | None,
    ) -> None:
        self.accelerator, self.tokens, self.vision_cache = accelerator, tokens, vision_cache
        self.temperature, self.micro_batch_tokens = temperature, micro_batch_tokens
        self.pixels: Mapping[int, Pixels] = {}  # of every image in the current batch, on the host
        self.latest = torch.empty(0)  # the log-probs that `compute` returned last

    def compute(self, model: Any, batch: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """(log-probs, entropies), each (B, C), of a batch under `model`, with gradient."""
        unwrapped = self.accelerator.unwrap_model(model)
        cached = self.vision_cache.frozen and unwrapped is self.vision_cache.model
        log_probs = EpisodeLogProbs(
            unwrapped,
            self.tokens.architecture,
            self.tokens.image_id,
            self.tokens.pad_id,
            self.temperature,
            self.pixels,
            self.vision_cache if cached else None,
        )
        with self.accelerator.autocast():
            logps, entropies = log_probs(batch) if model is unwrapped else model(compute=partial(log_probs, batch))
        self.latest = logps.detach()
        return logps, entropies

    def compute_old(
        self, model: object, batch: dict[str, Any], size: int, cap: float | None, loss_type: str
    ) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
        """For a batch that serves several updates: what it needs from before the first one, and figures.

        Args:
            model: the policy.
            batch: with the engine's log-probs and with advantages.
            size: see `compute_in_parts`.
            cap: the largest importance weight of a token; None: the engine's log-probs are taken as they are.
            loss_type: TRL's.

        Returns:
            The entries of the batch: `old_per_token_logps` (B, C), and importance-weighted advantages.
        """
        engine, sampled = batch["sampling_per_token_logps"], get_sampled(batch)
        if cap is None:
            return {"old_per_token_logps": engine}, {}  # they equal those of a full forward pass (tested)
        old = self.compute_in_parts(model, batch, size)
        ratio = compute_importance_ratio(old, engine, sampled)
        summary = summarize_ratio(ratio, sampled, self.accelerator)
        weighted = weight_advantages(batch["advantages"], ratio, cap, loss_type)
        figures = {f"sampling/importance_ratio/{name}": value for name, value in summary.items()}
        return {"old_per_token_logps": old, **weighted}, figures

    def compute_reference(self, model: object, reference: object, batch: dict[str, Any], size: int) -> torch.Tensor:
        """(B, C) log-probs under the reference model; None: under the policy without its adapters."""
        if reference is not None:
            return self.compute_in_parts(reference, batch, size)
        with self.accelerator.unwrap_model(model).disable_adapter():
            return self.compute_in_parts(model, batch, size)

    @torch.no_grad()
    def compute_in_parts(self, model: object, batch: dict[str, Any], size: int) -> torch.Tensor:
        """(B, C) log-probs of a whole batch, computed in parts: of `micro_batch_tokens`, or of `size` episodes."""
        count = len(batch["prompt_ids"])
        parts = [list(range(count))[start : start + size] for start in range(0, count, size)]
        if self.micro_batch_tokens is not None:
            parts = split_by_tokens(batch, self.micro_batch_tokens)
        unwrapped = self.accelerator.unwrap_model(model)
        logps = torch.cat([self.compute(unwrapped, select(batch, part))[0] for part in parts])
        return logps[torch.tensor([k for part in parts for k in part], device=logps.device).argsort()]


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
    """Return the entries of a batch that make TRL 1.16's loss weight every token by min(ratio, cap).

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
