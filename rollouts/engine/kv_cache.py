"""Keys and values of many conversations in one preallocated cache.

Every conversation owns a slot for as long as it lives, so its keys and values stay across turns. A decode step reads
the first slots as they lie, a plain slice, and copies nothing; who is with a tool goes through it for nothing, until
those are too many: then the rows that speak move together (`compact`), one copy of what the moving rows hold.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from viewbox.rollouts.engine.devices import sent
from viewbox.rollouts.engine.sequence import Row

GROWTH = 128  # columns that are added at least
WASTE = 0.25  # of the rows of a decode step may be there for nothing


@dataclass
class Where:
    """What the forward under way reads and writes; shared by all layers."""

    capacity: int = 0  # columns that are allocated
    slots: Any = None  # (rows,) that are written
    columns: Any = None  # (rows, width) that are written
    shown: int = 0  # columns that are read
    first: int | None = None  # how many slots are read, where they are the first ones


class SlotLayer(CacheLayerMixin):
    """Keys and values of one layer, (slots, heads, capacity, head size); each row is written at its own columns."""

    keys: Any
    values: Any

    def __init__(self, where: Where, slots: int) -> None:
        super().__init__()
        self.where, self.slots = where, slots

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        shape = (self.slots, key_states.shape[1], self.where.capacity)
        self.keys = key_states.new_zeros(*shape, key_states.shape[3])
        self.values = value_states.new_zeros(*shape, value_states.shape[3])
        self.is_initialized = True

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> tuple:
        key_states = key_states.to(value_states.dtype)  # under autocast they come wider than attention takes them
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        where = self.where
        self.keys[where.slots[:, None], :, where.columns] = key_states.transpose(1, 2)
        self.values[where.slots[:, None], :, where.columns] = value_states.transpose(1, 2)
        if where.first is not None:
            return self.keys[: where.first, :, : where.shown], self.values[: where.first, :, : where.shown]
        return self.keys[where.slots, :, : where.shown], self.values[where.slots, :, : where.shown]

    def get_mask_sizes(self, query_length: Any) -> tuple[int, int]:
        return self.where.shown, 0

    def get_seq_length(self) -> int:
        return self.where.shown

    def get_max_length(self) -> int:
        return self.where.capacity

    get_max_cache_shape = get_max_length


class SlotCache(Cache):
    """`SlotLayer`s that share one `Where`, and whose each slot is; `copied` counts the bytes that were moved about."""

    def __init__(self, layers: int, slots: int) -> None:
        self.where, self.copied = Where(), 0
        self.held: list[Row | None] = [None] * slots
        self.room = 0  # tokens a slot may come to hold, where that is bounded
        super().__init__(layers=[SlotLayer(self.where, slots) for _ in range(layers)])

    # ------------------------------------------------------------------ slots
    @property
    def taken(self) -> int:
        """How many slots are somebody's."""
        return len(self.held) - self.held.count(None)

    def take(self, row: Row) -> None:
        """Gives a row the first free slot."""
        row.slot = self.held.index(None)
        self.held[row.slot] = row

    def drop(self, row: Row) -> None:
        """Takes a row's slot back."""
        if row.slot is not None:
            self.held[row.slot], row.slot = None, None

    def compact(self, speaking: Sequence[Row]) -> int:
        """How many slots a decode step must read for these rows, which are moved together where they lie too wide."""
        width = 1 + max(row.place for row in speaking)
        if width - len(speaking) <= WASTE * width:
            return width
        holes = [slot for slot, row in enumerate(self.held[: len(speaking)]) if row is None or row not in speaking]
        outside = sorted((row for row in speaking if row.place >= len(speaking)), key=lambda row: row.place)
        places, length = {}, 0
        for hole, row in zip(holes, outside, strict=True):
            old, other = row.place, self.held[hole]
            places[old], length = hole, max(length, row.length)
            if other is not None:
                places[hole], length, other.slot = old, max(length, other.length), old
            self.held[hole], self.held[old], row.slot = row, other, hole
        self._move(places, length)
        return len(speaking)

    def free(self) -> None:
        """No slot is anybody's any more."""
        self.held = [None] * len(self.held)

    def lay(self, slots: int, room: int) -> None:
        """So many slots of so many tokens and a column for padding, all of them free and empty."""
        self.held, self.room, self.where.capacity = [None] * slots, room, 0
        layers: list[Any] = self.layers  # type: ignore[assignment]
        for layer in layers:
            layer.slots, layer.is_initialized = slots, False
            layer.keys = layer.values = None

    # ------------------------------------------------------------------ contents
    def aim(self, slots: Sequence[int], filled: Sequence[int], width: int, shown: int, device: Any) -> torch.Tensor:
        """Prepares a forward that writes `width` columns of each slot after those `filled`; returns (rows, width).

        It reads the first `shown` columns of each. What lies beyond is padding: all of it goes to the last column.
        """
        where = self.where
        if shown >= where.capacity:
            larger = max(shown + GROWTH, where.capacity + where.capacity // 2)
            self._grow(min(larger, self.room + 1) if self.room else larger)
        where.slots = sent(list(slots), device)
        columns = sent(list(filled), device)[:, None] + torch.arange(width, device=device)
        where.columns = columns.clamp_(max=where.capacity - 1)
        where.shown = shown
        where.first = len(slots) if list(slots) == list(range(len(slots))) else None
        return where.columns

    def copy(self, source: int, targets: Sequence[int], length: int) -> None:
        """The first `length` columns of one slot to others."""
        for layer in self._filled():
            for kept in (layer.keys, layer.values):
                kept[list(targets), :, :length] = kept[source, :, :length]
                self.copied += len(targets) * kept[source, :, :length].nbytes

    def _move(self, places: dict[int, int], length: int) -> None:
        """The first `length` columns of the slots at `places`' keys go to those at its values, all at once."""
        sources, targets = list(places), list(places.values())
        for layer in self._filled() if places else ():
            for kept in (layer.keys, layer.values):
                moving = kept[sources, :, :length]
                kept[targets, :, :length] = moving
                self.copied += moving.nbytes

    def _grow(self, capacity: int) -> None:
        for layer in self._filled():
            self.copied += layer.keys.nbytes + layer.values.nbytes
            layer.keys = torch.nn.functional.pad(layer.keys, (0, 0, 0, capacity - layer.keys.shape[2]))
            layer.values = torch.nn.functional.pad(layer.values, (0, 0, 0, capacity - layer.values.shape[2]))
        self.where.capacity = capacity  # last: memory may run out, and the cache is used again

    def _filled(self) -> list[Any]:
        layers: list[Any] = self.layers  # type: ignore[assignment]
        return [layer for layer in layers if layer.is_initialized]


def bytes_per_token(model: Any) -> int:
    """Bytes of keys and values that one token of one conversation takes."""
    config = model.config.get_text_config()
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    return 2 * config.num_hidden_layers * heads * head * model.dtype.itemsize
