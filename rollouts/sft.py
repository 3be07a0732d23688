"""Supervised warm start on saved episodes: the policy's own tokens are learned, the environment's are not.

Tokens that carry information (the scalar values inside a reply's JSON: labels, coordinates) are weighted up, since the
punctuation around them is learned in a few steps and would drown them.
"""

import re
from collections.abc import Sequence
from typing import Any

import torch

from viewbox.envs.types import EpisodeTokens
from viewbox.rollouts.collate import collate, model_inputs
from viewbox.rollouts.tokens import ChatTokens

_VALUE = re.compile(r'(?<=[:\[,])\s*("(?:[^"\\]|\\.)*"(?!\s*:)|-?\d+(?:\.\d+)?)|(?<=")[a-z]+(?=")')


def token_weights(episode: EpisodeTokens, tokens: ChatTokens, informative: float) -> list[float]:
    """A weight for each completion token: 0 on what the environment said, `informative` on JSON values, else 1."""
    weights = [float(bit) for bit in episode.mask]
    start = 0
    while start < len(weights):
        if not episode.mask[start]:
            start += 1
            continue
        end = start
        while end < len(weights) and episode.mask[end]:
            end += 1
        pieces = [tokens.tokenizer.decode([i]) for i in episode.completion_ids[start:end]]
        text, at = "".join(pieces), 0
        spans = [match.span() for match in _VALUE.finditer(text)]
        for k, piece in enumerate(pieces):
            if any(a < at + len(piece) and at < b for a, b in spans):
                weights[start + k] = informative
            at += len(piece)
        start = end
    return weights


def sft_batch(
    episodes: Sequence[EpisodeTokens], tokens: ChatTokens, informative: float, device: Any = "cpu"
) -> dict[str, Any]:
    """`collate` with `weights` (B, C)."""
    batch = collate(episodes, tokens, device)
    batch["weights"] = torch.zeros(batch["completion_ids"].shape, device=device)
    for i, episode in enumerate(episodes):
        batch["weights"][i, : len(episode.mask)] = torch.tensor(token_weights(episode, tokens, informative))
    return batch


def sft_loss(model: Any, batch: dict[str, Any]) -> torch.Tensor:
    """The weighted mean of −log p over the policy's tokens."""
    targets = batch["completion_ids"]
    logits = model(**model_inputs(batch), logits_to_keep=targets.shape[1] + 1).logits[:, :-1].float()
    loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2), targets, reduction="none")
    return (loss * batch["weights"]).sum() / batch["weights"].sum().clamp(min=1.0)
