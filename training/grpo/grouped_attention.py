"""Causal attention of packed episodes (`packing.py`), without a mask.

The columns of a part are [shared prompt | rest of an episode | padding] for each of its rows. That is plain causal
attention: padding is on the right, where no token looks. So the fast kernels of every device apply (`is_causal`), and
keys and values are not repeated for grouped heads. The queries of a prompt are computed again with each row; this
costs P² / 2 pairs of tokens a row, less than a mask would (it computes the pairs that it hides).

Used of transformers, and checked by `tests/training/grpo/test_grouped_attention.py`:

| name | what is relied on |
| --- | --- |
| `AttentionInterface.register` | attention functions by the name in `config._attn_implementation` |
| `forward(layout=…)` | unknown arguments of a model reach its attention function, also when it is computed again |
"""

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PretrainedConfig
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from viewbox.training.grpo.packing import AttentionPart

GROUPED = {"sdpa": "viewbox_sdpa", "eager": "viewbox_eager"}  # the grouped attention for each implementation


def use_grouped_attention(config: PretrainedConfig) -> None:
    """Lets a language model accept `layout`; without this argument it computes what it did before."""
    config._attn_implementation = GROUPED.get(config._attn_implementation or "sdpa", config._attn_implementation)


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    layout: Sequence[AttentionPart] | None = None,
    plain: bool = False,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """An attention function of transformers: (1, heads, tokens, size) states to (1, tokens, heads, size).

    Args:
        layout: the parts of a packed row; None: `attention_mask` says which tokens are seen.
        plain: use matrix products and a softmax instead of fused kernels ("eager").
    """
    with sdpa_kernel(SDPBackend.MATH) if plain else nullcontext():
        if layout is None:
            states = (module, query, key, value, attention_mask)
            return sdpa_attention_forward(*states, dropout=dropout, scaling=scaling, **kwargs)
        if key.shape[1] != query.shape[1] and not _can_group_heads(query):
            key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], dim=1) for x in (key, value))
        outputs: list[torch.Tensor] = []
        for part in layout:
            q, k, v = (_take(states[0], part) for states in (query, key, value))
            settings = {"dropout_p": dropout, "scale": scaling, "enable_gqa": k.shape[1] != q.shape[1]}
            output = scaled_dot_product_attention(q, k, v, is_causal=True, **settings).transpose(1, 2)  # type: ignore[arg-type]
            shared = part.prompt.stop - part.prompt.start
            if part.with_prompt:
                outputs.append(output[0, :shared])
            outputs.append(output[:, shared:].flatten(0, 1)[part.kept])
        return torch.cat(outputs)[None], None


def _take(states: torch.Tensor, part: AttentionPart) -> torch.Tensor:
    """(rows, heads, columns, size): each row's prompt and rest, of (heads, tokens, size) states."""
    rows = states[:, part.tokens]
    prompt = states[:, None, part.prompt].expand(-1, len(part.tokens), -1, -1)
    return torch.cat([prompt, rows], dim=2).transpose(0, 1)


def _can_group_heads(query: torch.Tensor) -> bool:
    """Whether a fused kernel takes fewer heads of keys than of queries. On a GPU, only in two bytes."""
    device = query.device.type
    return device == "cpu" or query.element_size() == 2 or torch.is_autocast_enabled(device)


for _name, _plain in (("viewbox_sdpa", False), ("viewbox_eager", True)):
    AttentionInterface.register(_name, partial(attend, plain=_plain))
    AttentionMaskInterface.register(_name, sdpa_mask)
