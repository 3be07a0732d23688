"""The last resort: a model whose layers our cache cannot serve plays by its own forward, with its own cache.

Each turn computes the whole conversation again, pixels included; conversations of one length do it together, and then
decode together. Nothing is padded, kept from an earlier turn or shared by a group. That is slower than
`model_runner.py` and just as exact: it is what `generate` does.

What a model leaves on itself, such as Qwen's `rope_deltas`, is kept with the cache that it belongs to.
"""

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
from transformers import PreTrainedModel

from . import scheduler
from .architectures import Architecture, Pixels
from .cache_layers import find_layers
from .chat_tokens import ChatTokens
from .kv_cache import KVCache
from .model_parts import get_base_model, keep_state
from .model_runner import ModelRunner
from .vision_cache import VisionCache


@dataclass(eq=False)
class _Batch:
    """Conversations of one length that decode together."""

    rows: int
    cache: Any = None
    state: dict[str, Any] = field(default_factory=dict)  # what the model leaves on itself


class PlainRunner(ModelRunner):
    """Forwards of one model over caches of its own. `cache` counts the slots and holds nothing."""

    starts_over = True

    def __init__(self, model: PreTrainedModel, tokens: ChatTokens, slots: int, stats: scheduler.Stats) -> None:
        self.model, self.tokens, self.cache, self.stats = model, tokens, KVCache([], slots), stats
        self._places: WeakKeyDictionary[scheduler.Sequence, tuple[_Batch, int]] = WeakKeyDictionary()

    @torch.no_grad()
    def prefill(self, sequences: list[scheduler.Sequence]) -> torch.Tensor:
        """Run whole conversations; return the logits after the last token of each, (sequences, vocabulary) float32."""
        return self._start({sequence: _get_ids(sequence) for sequence in sequences})

    @torch.no_grad()
    def decode(self, running: list[scheduler.Sequence]) -> torch.Tensor:
        """Run the last token of every running sequence, the whole conversation of one that has no cache yet."""
        fresh = {active: _get_ids(active) + active.output_ids for active in running if active not in self._places}
        logits = dict(zip(fresh, self._start(fresh), strict=True)) if fresh else {}
        batches: dict[_Batch, dict[int, scheduler.Sequence]] = {}
        for sequence in running:
            if sequence not in fresh:
                batch, row = self._places[sequence]
                batches.setdefault(batch, {})[row] = sequence
        for batch, members in batches.items():  # rows whose reply has ended are computed in vain
            ids = [members[row].output_ids[-1] if row in members else self.tokens.pad_id for row in range(batch.rows)]
            output = self._forward(batch, torch.tensor(ids)[:, None], {})
            for row, sequence in members.items():
                logits[sequence] = output[row]
                sequence.length = sequence.position = sequence.length + 1
        self.stats.steps += 1
        return torch.stack([logits[sequence] for sequence in running])

    def collect_new_images(self, sequence: scheduler.Sequence) -> list[tuple[str, Pixels]]:
        return [(image.hash, self.tokens.get_pixels(image)) for image in sequence.conversation.record.images]

    @torch.no_grad()
    def measure_slot(self) -> tuple[int, int]:
        """Return the bytes that a conversation takes: for each token, and for its states whatever its length."""
        sizes = []
        for length in (1, 2):
            batch = _Batch(1)
            self._forward(batch, torch.full((1, length), self.tokens.end_id), {})
            held = (value for layer in batch.cache.layers for value in vars(layer).values())
            held = (tensor for value in held for tensor in (value.values() if isinstance(value, dict) else [value]))
            sizes.append(sum(tensor.nbytes for tensor in held if isinstance(tensor, torch.Tensor)))
        return sizes[1] - sizes[0], 2 * sizes[0] - sizes[1]

    def _start(self, given: dict[scheduler.Sequence, list[int]]) -> torch.Tensor:
        """Compute conversations from their first token, those of one length together."""
        architecture, groups = self.tokens.architecture, defaultdict(list)
        for sequence, ids in given.items():
            groups[len(ids) if architecture.takes_features else id(sequence)].append(sequence)
        logits: dict[scheduler.Sequence, torch.Tensor] = {}
        for members in groups.values():
            batch, pixels = _Batch(len(members)), [image for member in members for _, image in member.images]
            vision = architecture.build_vision_inputs(pixels, self.model.device, self.model.dtype)
            rows = self._forward(batch, torch.tensor([given[member] for member in members]), vision)
            logits |= zip(members, rows, strict=True)
            for row, sequence in enumerate(members):
                self._places[sequence] = batch, row
                sequence.length = sequence.position = len(given[sequence])
                self.stats.prefilled += sequence.length
            self.stats.prefills += 1
        return torch.stack([logits[sequence] for sequence in given])

    def _forward(self, batch: _Batch, ids: torch.Tensor, vision: dict[str, Any]) -> torch.Tensor:
        architecture, started, ids = self.tokens.architecture, time.perf_counter(), ids.to(self.model.device)
        if batch.cache is None:
            vision |= architecture.build_token_types(ids)
        with keep_state(self.model) as state:
            state.update(batch.state)
            output = self.model(
                input_ids=ids,
                past_key_values=batch.cache,  # None: the model makes one of its own kind
                use_cache=True,
                **vision,
                **architecture.keep_logits(1),
            )
            batch.cache = getattr(output, "past_key_values", None)
            batch.state = {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
        self.stats.forward_seconds += time.perf_counter() - started
        if batch.cache is None:
            raise architecture.refuse("keeps no cache of its own")
        logits: torch.Tensor = output.logits[:, -1].float()
        return logits


def _get_ids(sequence: scheduler.Sequence) -> list[int]:
    record = sequence.conversation.record
    return [*record.prompt_ids, *record.completion_ids]


def compute_logits(
    model: Any, architecture: Architecture, ids: torch.Tensor, pixels: Sequence[Pixels], **more: Any
) -> torch.Tensor:
    """Return the logits of one forward without a cache, (rows, width, vocabulary), with gradient if torch records it.
    `ids` are whole conversations without padding, `pixels` those of the images of all rows, in order."""
    base = get_base_model(model)
    vision = architecture.build_vision_inputs(pixels, base.device, base.dtype)
    with keep_state(model):
        types = architecture.build_token_types(ids)
        logits: torch.Tensor = model(input_ids=ids, use_cache=False, **types, **vision, **more).logits
    return logits


def build_runner(
    model: PreTrainedModel, tokens: ChatTokens, features: VisionCache, slots: int, stats: scheduler.Stats
) -> ModelRunner:
    """Return what runs a model for the engine, by what the model has (`Architecture.find_lack`)."""
    if tokens.architecture.find_lack() is not None or not hasattr(get_base_model(model), "model"):
        return PlainRunner(model, tokens, slots, stats)
    cache = KVCache(find_layers(model.config.get_text_config()), slots)
    return ModelRunner(model, tokens, features, cache, stats)
