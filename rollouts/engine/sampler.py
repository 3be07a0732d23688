"""One token for every row at once, and how likely the model found it.

Log-probs are those of the model at the temperature, log_softmax(logits / T), before any filter or penalty: what a
trainer's own forward gives. Every sample has its own random numbers, fixed by its seed and by how much it has said.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from viewbox.configs.schema import SamplingParams
from viewbox.rollouts.engine.devices import sent


class Sampler:
    """Draws one token for each sequence of a batch, as `params` say."""

    def __init__(self, params: SamplingParams) -> None:
        self.params = params

    def draw(
        self, logits: torch.Tensor, uniform: torch.Tensor, never: Sequence[int], seen: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(ids, log-probs), each (rows,), of logits (rows, vocabulary) float32 and `uniform` (rows,) in [0, 1).

        Token ids in `never` are never drawn; `seen` (rows, vocabulary) bool marks what the penalty is for.
        """
        heat = self.params.temperature or 1.0
        logp = torch.log_softmax(logits / heat, dim=-1)
        if self.params.repetition_penalty != 1.0 and seen is not None:
            punished = torch.where(
                logits > 0, logits / self.params.repetition_penalty, logits * self.params.repetition_penalty
            )
            allowed = torch.log_softmax(torch.where(seen, punished, logits) / heat, dim=-1)
        else:
            allowed = logp.clone()
        allowed.index_fill_(1, sent(list(never), logits.device).long(), -torch.inf)
        greedy = self.params.temperature == 0
        ids = allowed.argmax(dim=-1) if greedy else _inverted(self._filtered(allowed), uniform)
        return ids, logp.gather(1, ids[:, None])[:, 0]

    def _filtered(self, logp: torch.Tensor) -> torch.Tensor:
        """Log-probs with what the filters leave out at -inf: top-k, then top-p, then min-p."""
        if 0 < self.params.top_k < logp.shape[1]:
            least = logp.topk(self.params.top_k, dim=-1).values[:, -1:]
            logp = logp.masked_fill(logp < least, -torch.inf)
        if self.params.top_p < 1:
            ordered, places = logp.sort(dim=-1, descending=True)
            share = ordered.softmax(dim=-1)
            beyond = share.cumsum(dim=-1) - share >= self.params.top_p  # the likeliest is always kept
            logp = logp.masked_fill(beyond.scatter(1, places, beyond), -torch.inf)
        if self.params.min_p > 0:
            bar = logp.max(dim=-1, keepdim=True).values + float(np.log(self.params.min_p))
            logp = logp.masked_fill(logp < bar, -torch.inf)
        return logp


def _inverted(logp: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """The ids where the cumulative distribution passes `uniform`; what is at -inf is never one of them."""
    cumulative = logp.double().softmax(dim=-1).cumsum(dim=-1)
    target = uniform[:, None] * cumulative[:, -1:] * (1 - 1e-9)
    return torch.searchsorted(cumulative, target, right=True)[:, 0].clamp(max=logp.shape[1] - 1)


def uniform(seed: int, said: int, count: int) -> Any:
    """(count,) random numbers of the reply that begins after `said` tokens: fixed by the sample, not by its batch."""
    return np.random.default_rng([seed, said]).random(count)
