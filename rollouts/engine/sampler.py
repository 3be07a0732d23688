"""One token for every row at once, and how likely the model found it.

Log-probs are those of the model at the temperature, log_softmax(logits / T), before any filter or penalty: what a
trainer's own forward gives. Every sample has its own random numbers, fixed by its seed and by how much it has said.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from viewbox.errors import ConfigError
from viewbox.rollouts.engine.devices import sent


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn. `temperature` 0 is greedy.

    `top_k` keeps the k likeliest tokens (0: all); `top_p` the fewest whose probability reaches p (nucleus sampling,
    Holtzman et al. 2020, arXiv 1904.09751); `min_p` those at least `min_p` times as likely as the likeliest (Nguyen et
    al. 2024, arXiv 2407.01082); `repetition_penalty` divides the positive logits of what stands in the conversation and
    multiplies its negative ones (Keskar et al. 2019, arXiv 1909.05858).
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        allowed = {
            "temperature": self.temperature >= 0,
            "top_p": 0 < self.top_p <= 1,
            "top_k": self.top_k >= 0,
            "min_p": 0 <= self.min_p <= 1,
            "repetition_penalty": self.repetition_penalty > 0,
        }
        ranges = {
            "temperature": "at least 0 (0: greedy)",
            "top_p": "above 0, at most 1",
            "top_k": "at least 0 (0: all)",
            "min_p": "0 to 1",
            "repetition_penalty": "above 0 (1: none)",
        }
        for name, fine in allowed.items():
            if not fine:
                raise ConfigError(f"{name} = {getattr(self, name)}; allowed: {ranges[name]}", key=f"rollout.{name}")

    def draw(
        self, logits: torch.Tensor, uniform: torch.Tensor, never: Sequence[int], seen: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(ids, log-probs), each (rows,), of logits (rows, vocabulary) float32 and `uniform` (rows,) in [0, 1).

        Token ids in `never` are never drawn; `seen` (rows, vocabulary) bool marks what the penalty is for.
        """
        heat = self.temperature or 1.0
        logp = torch.log_softmax(logits / heat, dim=-1)
        if self.repetition_penalty != 1.0 and seen is not None:
            punished = torch.where(logits > 0, logits / self.repetition_penalty, logits * self.repetition_penalty)
            allowed = torch.log_softmax(torch.where(seen, punished, logits) / heat, dim=-1)
        else:
            allowed = logp.clone()
        allowed.index_fill_(1, sent(list(never), logits.device).long(), -torch.inf)
        greedy = self.temperature == 0
        ids = allowed.argmax(dim=-1) if greedy else _inverted(self._filtered(allowed), uniform)
        return ids, logp.gather(1, ids[:, None])[:, 0]

    def _filtered(self, logp: torch.Tensor) -> torch.Tensor:
        """Log-probs with what the filters leave out at -inf: top-k, then top-p, then min-p."""
        if 0 < self.top_k < logp.shape[1]:
            least = logp.topk(self.top_k, dim=-1).values[:, -1:]
            logp = logp.masked_fill(logp < least, -torch.inf)
        if self.top_p < 1:
            ordered, places = logp.sort(dim=-1, descending=True)
            share = ordered.softmax(dim=-1)
            beyond = share.cumsum(dim=-1) - share >= self.top_p  # the likeliest is always kept
            logp = logp.masked_fill(beyond.scatter(1, places, beyond), -torch.inf)
        if self.min_p > 0:
            bar = logp.max(dim=-1, keepdim=True).values + float(np.log(self.min_p))
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
