"""Runs the model for the engine: prefills of new tokens, and decode steps of one token for every running sequence.

Positions and masks are passed explicitly, so a forward neither reads nor leaves state on the model.

Used of transformers, and checked by `tests/engines/hf/test_transformers_contract.py`:

| name | what is relied on |
| --- | --- |
| `config._attn_implementation` | names that end in "sdpa" accept a boolean mask; others need an additive one |
| `module.gradient_checkpointing` | True silently drops the cache, so it is off here |
| `forward(logits_to_keep=…)` | a (rows, 1) tensor of indices selects one position of each row |
"""

import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from operator import add
from typing import Any

import torch
from transformers import PreTrainedModel

from .architectures import Pixels
from .chat_tokens import ChatTokens
from .kv_cache import KVCache, measure_slot, to_device
from .scheduler import Sequence, Stats
from .vision_cache import VisionCache


class ModelRunner:
    """Forwards of one model over one KV cache."""

    starts_over = False  # whether a prefill computes a whole conversation

    def __init__(
        self, model: PreTrainedModel, tokens: ChatTokens, vision_cache: VisionCache, cache: KVCache, stats: Stats
    ) -> None:
        self.model, self.tokens, self.vision_cache, self.cache, self.stats = model, tokens, vision_cache, cache, stats
        tokens.architecture.learn_masks(model)

    @torch.no_grad()
    def prefill(self, sequences: list[Sequence]) -> torch.Tensor:
        """Run the new tokens of each sequence, padded to the longest; return the logits after its last token,
        (sequences, vocabulary) float32."""
        architecture = self.tokens.architecture
        chunks = [sequence.new_ids for sequence in sequences]
        widths, width = [len(chunk) for chunk in chunks], max(map(len, chunks))
        if self.cache.has_states and min(widths) < width:
            raise RuntimeError("padding would enter a state")
        ids = torch.full((len(sequences), width), self.tokens.pad_id)
        positions = torch.zeros(architecture.axes, len(sequences), width, dtype=torch.long)
        images: list[tuple[str, Pixels]] = []
        for i, (sequence, chunk) in enumerate(zip(sequences, chunks, strict=True)):
            images += sequence.images
            ids[i, : len(chunk)] = torch.tensor(chunk)
            positions[:, i, : len(chunk)], sequence.position = architecture.compute_positions(
                chunk, [image for _, image in sequence.images], sequence.position
            )
        lengths, device = [sequence.length for sequence in sequences], self.model.device
        started = time.perf_counter()
        vision = self.vision_cache.get_inputs(images)
        self.stats.forward_seconds += time.perf_counter() - started
        ids = ids.to(device)
        if vision:
            vision |= architecture.build_token_types(ids)
        slots, num_read = [sequence.held_slot for sequence in sequences], max(map(add, lengths, widths))
        logits = self.forward(slots, lengths, num_read, ids, positions.to(device), widths, vision)
        for sequence, added in zip(sequences, widths, strict=True):
            sequence.length += added
        self.stats.prefills += 1
        self.stats.prefilled += sum(widths)
        return logits

    @torch.no_grad()
    def decode(self, running: list[Sequence]) -> torch.Tensor:
        """Run the last token of every running sequence; return the logits after it, (sequences, vocabulary) float32.
        Slots of other sequences in between are computed too; what is written there is overwritten by their next
        tokens."""
        width, device = self.cache.compact(running), self.model.device
        num_read = 1 + max(sequence.length for sequence in running)
        ids, positions = [self.tokens.pad_id] * width, [0] * width
        lengths = [0 if owner is None else owner.length for owner in self.cache.owners[:width]]
        for sequence in running:
            ids[sequence.held_slot], positions[sequence.held_slot] = sequence.output_ids[-1], sequence.position
        position_ids = to_device(positions, device)[None, :, None].expand(self.tokens.architecture.axes, -1, -1)
        input_ids = to_device(ids, device)[:, None]
        logits = self.forward(range(width), lengths, num_read, input_ids, position_ids, [1] * width, {})
        for sequence in running:
            sequence.position += 1
            sequence.length += 1
        self.stats.steps += 1
        slots = [sequence.held_slot for sequence in running]
        return logits if slots == list(range(width)) else logits.index_select(0, to_device(slots, device))

    def measure_slot(self) -> tuple[int, int]:
        return measure_slot(self.model)

    def collect_new_images(self, sequence: Sequence) -> list[tuple[str, Pixels]]:
        tokens = sequence.new_ids.count(self.tokens.image_id)
        images: list[tuple[str, Pixels]] = []
        for image in reversed(sequence.conversation.record.images):
            if tokens <= 0:
                break
            images.append((image.hash, self.tokens.get_pixels(image)))
            tokens -= images[-1][1].tokens
        return images[::-1]

    def forward(
        self,
        slots: Collection[int],
        lengths: Iterable[int],
        num_read: int,
        ids: torch.Tensor,
        positions: torch.Tensor,
        widths: list[int],
        vision: dict[str, Any],
    ) -> torch.Tensor:
        """Return one forward of `ids` (rows, width); the logits at each row's last token before its padding."""
        width, device = ids.shape[1], ids.device
        columns = self.cache.prepare(slots, lengths, width, num_read, device)
        last: Any = 1 if min(widths) == width else to_device(widths, device)[:, None] - 1
        started = time.perf_counter()
        architecture = self.tokens.architecture
        output = self.model(
            input_ids=ids,
            attention_mask=to_additive_mask(self.model, architecture.masks.build(columns, num_read, ids)),
            position_ids=architecture.to_position_ids(positions),
            past_key_values=self.cache,
            use_cache=True,
            **architecture.keep_logits(last),  # one position per row: all would be (rows, width, vocabulary)
            **vision,
        )
        self.cache.store_states()
        logits = output.logits
        if logits.shape[1] > 1:
            logits = logits[range(len(ids)), [length - 1 for length in widths]][:, None]
        logits = logits[:, 0].float()
        self.stats.forward_seconds += time.perf_counter() - started
        return logits  # type: ignore[no-any-return]


def to_additive_mask(model: PreTrainedModel, mask: Any) -> Any:
    """Return a boolean mask, True where a query attends, in the form the model's attention accepts: "sdpa" (and the
    trainer's "viewbox_sdpa") takes it as it is, others 0 and the lowest number of the model's dtype."""
    if isinstance(mask, dict):
        return {kind: to_additive_mask(model, item) for kind, item in mask.items()}
    if str(model.config.get_text_config()._attn_implementation).endswith("sdpa"):
        return mask
    lowest = torch.finfo(model.dtype).min
    return torch.zeros(mask.shape, dtype=model.dtype, device=mask.device).masked_fill(~mask, lowest)


@contextmanager
def use_eval_mode(model: torch.nn.Module) -> Iterator[None]:
    """`model.eval()` without gradient checkpointing; restores both afterward, for each module."""
    modes = [(module, module.training) for module in model.modules()]  # some modules may be frozen in eval mode
    checkpointed = [module for module in model.modules() if getattr(module, "gradient_checkpointing", False)]
    model.eval()
    for module in checkpointed:
        module.gradient_checkpointing = False  # type: ignore[assignment]
    try:
        yield
    finally:
        for module in checkpointed:
            module.gradient_checkpointing = True  # type: ignore[assignment]
        for module, training in modes:
            module.training = training
