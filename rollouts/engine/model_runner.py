"""The model forwards of the engine: new tokens into the cache, and one token of every row that speaks.

Positions and masks are explicit, so nothing depends on state that is left on the model, and none is left.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import add
from typing import Any

import torch

from viewbox.rollouts.engine.chat_tokens import ChatTokens
from viewbox.rollouts.engine.devices import sent
from viewbox.rollouts.engine.kv_cache import SlotCache
from viewbox.rollouts.engine.sequence import Row, Stats
from viewbox.rollouts.engine.vision_cache import Features


class Forwards:
    """Forwards of one model over one cache; every method returns logits, (rows, vocabulary) float32."""

    def __init__(self, model: Any, tokens: ChatTokens, features: Features, cache: SlotCache, stats: Stats) -> None:
        self.model, self.tokens, self.features, self.cache, self.stats = model, tokens, features, cache, stats

    @torch.no_grad()
    def prefill(self, rows: Sequence[Row]) -> torch.Tensor:
        """Each row's new tokens into its slot, padded to the longest; the logits after them."""
        chunks = [row.new_tokens for row in rows]
        lengths, width = [len(chunk) for chunk in chunks], max(map(len, chunks))
        ids = torch.full((len(rows), width), self.tokens.pad_id)
        positions = torch.zeros(3, len(rows), width, dtype=torch.long)
        images = []
        for i, (row, chunk) in enumerate(zip(rows, chunks, strict=True)):
            images += row.images
            ids[i, : len(chunk)] = torch.tensor(chunk)
            grids = [pixels.grid for _, pixels in row.images]
            stretch, row.position = self.tokens.family.positions(chunk, self.tokens.image_id, grids, row.position)
            positions[:, i, : len(chunk)] = stretch
        filled, device = [row.length for row in rows], self.model.device
        started = time.perf_counter()
        vision = self.features.of(images)
        self.stats.forward_seconds += time.perf_counter() - started
        if vision:
            vision["mm_token_type_ids"] = (ids == self.tokens.image_id).int().to(device)
        slots, shown = [row.place for row in rows], max(map(add, filled, lengths))
        found = self._forward(slots, filled, shown, ids.to(device), positions.to(device), lengths, vision)
        for row, length in zip(rows, lengths, strict=True):
            row.length += length
        self.stats.prefills += 1
        self.stats.prefilled += sum(lengths)
        return found

    @torch.no_grad()
    def decode(self, rows: Sequence[Row]) -> torch.Tensor:
        """The last token each row said into its slot; the logits after it.

        What is written for the rows in between, which do not speak now, is overwritten by what they get next.
        """
        width, device = self.cache.compact(rows), self.model.device
        ids, positions = [self.tokens.pad_id] * width, [0] * width
        filled = [0 if row is None else row.length for row in self.cache.held[:width]]
        for row in rows:
            ids[row.place], positions[row.place] = row.said[-1], row.position
        shown = 1 + max(row.length for row in rows)
        at = sent(positions, device)[None, :, None].expand(3, -1, -1)
        new = sent(ids, device)[:, None]
        logits = self._forward(range(width), filled, shown, new, at, [1] * width, {})
        for row in rows:
            row.position += 1
            row.length += 1
        self.stats.steps += 1
        places = [row.place for row in rows]
        return logits if places == list(range(width)) else logits.index_select(0, sent(places, device))

    def images(self, row: Row) -> list[Any]:
        """(hash, pixels) of the images among a row's new tokens; raises `ImageError` where one cannot be opened."""
        tokens = row.new_tokens.count(self.tokens.image_id)
        found: list[Any] = []
        for image in reversed(row.conversation.record.images):
            if tokens <= 0:
                break
            found.append((image.hash, self.tokens.pixels(image)))
            tokens -= found[-1][1].tokens
        return found[::-1]

    def _forward(
        self,
        slots: Sequence[int],
        filled: Sequence[int],
        shown: int,
        ids: torch.Tensor,
        positions: torch.Tensor,
        lengths: Sequence[int],
        vision: dict[str, Any],
    ) -> torch.Tensor:
        """One forward of `ids` (rows, width), of which `lengths` count; the logits at each row's last one."""
        width, device = ids.shape[1], ids.device
        columns = self.cache.aim(slots, filled, width, shown, device)
        mask = torch.arange(shown, device=device)[None, None, None, :] <= columns[:, None, :, None]
        mask = understood(self.model, mask)
        last: Any = 1 if min(lengths) == width else sent(lengths, device)[:, None] - 1
        started = time.perf_counter()
        out = self.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=last,  # of each row one: logits of all would be (rows, width, vocabulary)
            **vision,
        )
        found = out.logits[:, 0].float()
        self.stats.forward_seconds += time.perf_counter() - started
        return found


def understood(model: Any, mask: torch.Tensor) -> torch.Tensor:
    """A mask (…, queries, keys), True where a query may look, as the model's attention takes it."""
    if model.config.get_text_config()._attn_implementation == "sdpa":
        return mask
    lowest = torch.finfo(model.dtype).min  # an additive mask is understood by all
    return torch.zeros(mask.shape, dtype=model.dtype, device=mask.device).masked_fill(~mask, lowest)


@contextmanager
def inference(model: Any) -> Iterator[None]:
    """`eval()` without gradient checkpointing (which silently drops the cache), both as before afterward."""
    modes = [(module, module.training) for module in model.modules()]  # parts may be frozen in eval mode
    checkpointed = [m for m in model.modules() if getattr(m, "gradient_checkpointing", False)]
    model.eval()
    for module in checkpointed:
        module.gradient_checkpointing = False
    try:
        yield
    finally:
        for module in checkpointed:
            module.gradient_checkpointing = True
        for module, training in modes:
            module.training = training
