"""Draws one token for every sequence of a batch, and returns its log-prob.

Log-probs are log_softmax(logits / T), before any filter or penalty, as in the trainer's forward. The random numbers of
a reply are fixed by the episode's seed and the reply's place in the episode.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ...configs.sections import SamplingParams
from .kv_cache import to_device


def sample_tokens(
    params: SamplingParams, logits: Tensor, uniform: Tensor, banned: Sequence[int], seen: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Draw a token for each row of logits (rows, vocabulary), but none of `banned`; return ids and log-probs, (rows,)
    each. `uniform` are random numbers in [0, 1), `seen` (rows, vocabulary) what the repetition penalty applies to."""
    temperature = params.temperature or 1.0
    logprobs = torch.log_softmax(logits / temperature, dim=-1)
    if params.repetition_penalty != 1.0 and seen is not None:
        penalized = torch.where(logits > 0, logits / params.repetition_penalty, logits * params.repetition_penalty)
        allowed = torch.log_softmax(torch.where(seen, penalized, logits) / temperature, dim=-1)
    else:
        allowed = logprobs.clone()
    allowed.index_fill_(1, to_device(list(banned), logits.device).long(), -torch.inf)
    ids = allowed.argmax(dim=-1) if params.temperature == 0 else _invert_cdf(_filter(params, allowed), uniform)
    return ids, logprobs.gather(1, ids[:, None])[:, 0]


def _filter(params: SamplingParams, logprobs: Tensor) -> Tensor:
    """Set the log-probs of filtered tokens to -inf: top-k, then top-p."""
    if 0 < params.top_k < logprobs.shape[1]:
        logprobs = logprobs.masked_fill(logprobs < logprobs.topk(params.top_k, dim=-1).values[:, -1:], -torch.inf)
    if params.top_p < 1:
        ordered, indices = logprobs.sort(dim=-1, descending=True)
        probs = ordered.softmax(dim=-1)
        removed = probs.cumsum(dim=-1) - probs >= params.top_p  # never the most likely token
        logprobs = logprobs.masked_fill(removed.scatter(1, indices, removed), -torch.inf)
    return logprobs


def _invert_cdf(logprobs: Tensor, uniform: Tensor) -> Tensor:
    """Return the ids at which the cumulative distribution passes `uniform`; tokens at -inf are never drawn."""
    cumulative = logprobs.double().softmax(dim=-1).cumsum(dim=-1)
    target = uniform[:, None] * cumulative[:, -1:] * (1 - 1e-9)
    return torch.searchsorted(cumulative, target, right=True)[:, 0].clamp(max=logprobs.shape[1] - 1)


def draw_uniform(seed: int, offset: int, count: int) -> np.ndarray:
    """Return the random numbers of the reply that begins after `offset` tokens, (count,) in [0, 1), whatever its
    batch."""
    return np.random.default_rng([seed, offset]).random(count)
