"""Which tokens see which, by kind of layer: learned from a model's own masks, built for a cache and for packed rows."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import torch

from .model_parts import get_base_model, keep_state

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
LONGEST = 4096  # tokens of an image with which masks are tried


class AttentionMasks:
    """The masks of a model's layers; `image_id` is the token that stands for a piece of an image."""

    def __init__(self, text_config: Any, image_id: int) -> None:
        self._config, self._image_id = text_config, image_id
        self._mutual: set[str] | None = None  # kinds of layers in which an image sees all of itself …
        self._unbounded: set[str] = set()  # … also what is out of their window

    @cached_property
    def kinds(self) -> frozenset[str]:
        kinds = getattr(self._config, "layer_types", None)
        if kinds is None:
            chunked = getattr(self._config, "attention_chunk_size", None)
            kinds = [SLIDING if self.window else CHUNKED if chunked else FULL]
        return frozenset(kinds)

    @cached_property
    def window(self) -> int | None:
        """The tokens that a sliding layer sees, its own included."""
        is_used = getattr(self._config, "use_sliding_window", True)
        return getattr(self._config, "sliding_window", None) if is_used else None

    @property
    def is_causal(self) -> bool:
        """Whether every layer sees all tokens before, and none after; known once `learn` was called."""
        return self.kinds == {FULL} and not self._mutual

    @torch.no_grad()
    def learn(self, model: Any, build_token_types: Callable[[torch.Tensor], dict[str, torch.Tensor]]) -> bool:
        """Learn from the masks that the model gives its decoder in which kinds of layers an image sees all of itself.
        Return False if text sees what comes after it, so that a conversation cannot grow."""
        if self._mutual is not None:
            return True
        received: list[Any] = []

        def catch(module: object, args: object, kwargs: dict[str, Any]) -> None:
            received.append(kwargs.get("attention_mask"))
            raise _CaughtMaskError

        base = get_base_model(model)
        text = 0 if self._image_id else 1
        device = base.get_input_embeddings().weight.device
        last = min(self.window or 0, LONGEST) + 2 if SLIDING in self.kinds else 2  # of the first image's tokens
        ids = torch.tensor([[text, *[self._image_id] * last, text, self._image_id, text]], device=device)
        handle = base.get_decoder().register_forward_pre_hook(catch, with_kwargs=True)
        try:
            with keep_state(base):
                base.model(input_ids=ids, use_cache=False, **build_token_types(ids))
        except _CaughtMaskError:
            pass
        finally:
            handle.remove()
        masks = received[0] if received else None
        named = masks if isinstance(masks, Mapping) else dict.fromkeys(self.kinds, masks)
        self._mutual, self._unbounded = set(), set()
        for kind, mask in named.items():
            if not isinstance(mask, torch.Tensor) or mask.ndim != 4:
                continue  # none: the decoder makes a causal one
            seen = (mask if mask.dtype == torch.bool else mask >= 0)[0, 0].cpu()
            after = seen.triu(1)
            if after[0].any() or after[last + 1].any():
                self._mutual = None
                return False
            if after[1, 2]:
                self._mutual.add(kind)
                self._unbounded |= {kind} if seen[last, 1] else set()
        return True

    def build(self, columns: torch.Tensor, num_read: int, ids: torch.Tensor) -> Any:
        """Return which columns of the cache new tokens read, (rows, 1, width, num_read) bool; a dict of them for
        several kinds of layers. `columns` are those of the new tokens `ids`, (rows, width) each."""
        read, written = torch.arange(num_read, device=ids.device)[None, None, None, :], columns[:, None, :, None]
        causal, mutual = read <= written, None
        if self._mutual and ids.shape[1] > 1:
            blocks = self._number_images(ids)
            at = torch.zeros(len(ids), num_read + 1, dtype=blocks.dtype, device=ids.device)
            at.scatter_(1, columns.clamp(max=num_read), blocks)  # padding ends in the column that is cut off
            mutual = ((blocks[:, :, None] == at[:, None, :num_read]) & (blocks[:, :, None] > 0))[:, None]
        return self._split_by_kind(causal, mutual, written, read)

    def build_packed(self, owners: torch.Tensor, prompts: torch.Tensor, index: torch.Tensor, ids: torch.Tensor) -> Any:
        """Return the masks of a packed row, (1, 1, N, N) bool; a dict of them for several kinds of layers. Each token
        reads its own segment, `owners`, and the segment of its prompt, `prompts`; `index` is its place in its
        conversation."""
        same_owner = owners[:, None] == owners[None]
        seen = same_owner | (owners[None] == prompts[:, None])
        causal, mutual = seen & (index[None] <= index[:, None]), None
        if self._mutual:
            blocks = self._number_images(ids[None])[0]
            mutual = (same_owner & (blocks[:, None] == blocks[None]) & (blocks[:, None] > 0))[None, None]
        return self._split_by_kind(causal[None, None], mutual, index[None, None, :, None], index[None, None, None])

    def _number_images(self, ids: torch.Tensor) -> torch.Tensor:
        """(rows, width): the number of the run of image tokens that each token belongs to, from 1; 0 for text."""
        image = ids == self._image_id
        starts = image & ~torch.nn.functional.pad(image, (1, 0))[:, :-1]
        return starts.int().cumsum(1) * image

    def _split_by_kind(self, causal: torch.Tensor, mutual: Any, own: torch.Tensor, read: torch.Tensor) -> Any:
        masks: dict[str, Any] = {}
        for kind in self.kinds & {FULL, SLIDING, CHUNKED} or {FULL}:
            mask = causal if mutual is None or kind not in (self._mutual or ()) else causal | mutual
            if kind == SLIDING and self.window:
                mask = mask & (read > own - self.window)
            if kind == CHUNKED:
                size = self._config.attention_chunk_size
                mask = mask & (read // size == own // size)
            masks[kind] = mask | mutual if mutual is not None and kind in self._unbounded else mask
        if len(masks) == 1 and not self._mutual:
            return next(iter(masks.values()))
        return masks | dict.fromkeys(self.kinds - masks.keys())


class _CaughtMaskError(Exception):
    """Ends a forward when its masks are known."""
