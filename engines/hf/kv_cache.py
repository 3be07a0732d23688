"""Keys and values of many conversations in one preallocated cache.

Each conversation owns one slot until it ends, so its keys and values stay there across turns. A decode step reads the
first slots as a plain slice, without a copy. Slots in that slice whose sequences wait for a tool are computed in vain.
If there are too many of them, `compact` moves the running sequences together.

Used of transformers, and checked by `tests/engines/hf/test_transformers_contract.py`:

| name | what is relied on |
| --- | --- |
| `cache_utils.Cache(layers=…)` | calls `update` of the layer with the index of the attention layer |
| `cache_utils.CacheLayerMixin` | the abstract methods that `KVCacheLayer` implements |
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import psutil
import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin

from .scheduler import Sequence

GROWTH = 128  # columns added at least when the cache grows
MAX_WASTE = 0.25  # largest share of a decode step that may be computed in vain
GPU_SHARE = 0.8  # of the free memory; the rest is for activations of a prefill, features and logits
CPU_SHARE = 0.5  # of the available memory, which other programs need, too


@dataclass
class CacheIndex:
    """Which part of the cache the current forward writes and reads; shared by all layers."""

    capacity: int = 0  # allocated columns
    slots: Any = None  # (rows,) slots written
    columns: Any = None  # (rows, width) columns written
    num_read: int = 0  # columns read
    first_slots: int | None = None  # if the slots are 0 … n - 1: n

    def set(self, slots: torch.Tensor, columns: torch.Tensor, num_read: int, first_slots: int | None) -> None:
        """Set what the next forward writes and reads."""
        self.slots, self.columns, self.num_read, self.first_slots = slots, columns, num_read, first_slots


class KVCacheLayer(CacheLayerMixin):
    """Keys and values of one layer, (slots, heads, capacity, head size)."""

    keys: Any
    values: Any

    def __init__(self, index: CacheIndex, slots: int) -> None:
        super().__init__()
        self.index, self.slots = index, slots

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocates the tensors, with the heads, head size and dtype of the first states."""
        shape = (self.slots, key_states.shape[1], self.index.capacity)
        self.keys = key_states.new_zeros(*shape, key_states.shape[3])
        self.values = value_states.new_zeros(*shape, value_states.shape[3])
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the states of this forward; return what attention reads.

        Args:
            key_states, value_states: (rows, heads, width, head size).

        Returns:
            Keys and values, each (rows, heads, `num_read`, head size).
        """
        key_states = key_states.to(value_states.dtype)  # autocast makes them wider than attention accepts
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        index = self.index
        self.keys[index.slots[:, None], :, index.columns] = key_states.transpose(1, 2)
        self.values[index.slots[:, None], :, index.columns] = value_states.transpose(1, 2)
        if index.first_slots is not None:
            first, read = index.first_slots, index.num_read
            return self.keys[:first, :, :read], self.values[:first, :, :read]
        return self.keys[index.slots, :, : index.num_read], self.values[index.slots, :, : index.num_read]

    def get_mask_sizes(self, query_length: object) -> tuple[int, int]:
        return self.index.num_read, 0

    def get_seq_length(self) -> int:
        return self.index.num_read

    def get_max_length(self) -> int:
        return self.index.capacity

    get_max_cache_shape = get_max_length


class KVCache(Cache):
    """The cache of all layers, and which sequence owns each slot."""

    def __init__(self, layers: int, slots: int) -> None:
        self.index, self.num_layers = CacheIndex(), layers
        self.bytes_copied = 0  # within the cache, by `copy_prefix`, `compact` and growth
        self.owners: list[Sequence | None] = [None] * slots
        self.max_len = 0  # tokens a slot may hold; 0: no limit
        super().__init__(layers=[KVCacheLayer(self.index, slots) for _ in range(layers)])

    # ------------------------------------------------------------------ slots
    @property
    def num_used(self) -> int:
        """How many slots have an owner."""
        return len(self.owners) - self.owners.count(None)

    def take_slot(self, sequence: Sequence) -> None:
        """Give a sequence the first free slot."""
        sequence.slot = self.owners.index(None)
        self.owners[sequence.slot] = sequence

    def free_slot(self, sequence: Sequence) -> None:
        """Free the slot of a sequence, if it has one."""
        if sequence.slot is not None:
            self.owners[sequence.slot], sequence.slot = None, None

    def allocate(self, slots: int, max_len: int) -> None:
        """Replace the contents by empty slots; memory is taken when they are written.

        Args:
            max_len: tokens a slot may hold; one more column takes the padding.
        """
        self.owners, self.max_len, self.index = [None] * slots, max_len, CacheIndex()
        self.layers = [KVCacheLayer(self.index, slots) for _ in range(self.num_layers)]

    def compact(self, running: Collection[Sequence]) -> int:
        """Move the running sequences into the first slots if too much of a decode step would be wasted.

        Returns:
            How many of the first slots a decode step must read.
        """
        width = 1 + max(sequence.held_slot for sequence in running)
        if width - len(running) <= MAX_WASTE * width:
            return width
        holes = [
            slot for slot, owner in enumerate(self.owners[: len(running)]) if owner is None or owner not in running
        ]
        outside = [sequence for sequence in running if sequence.held_slot >= len(running)]
        outside.sort(key=lambda sequence: sequence.held_slot)
        targets: dict[int, int] = {}
        length = 0
        for hole, sequence in zip(holes, outside, strict=True):
            old, other = sequence.held_slot, self.owners[hole]
            targets[old], length = hole, max(length, sequence.length)
            if other is not None:
                targets[hole], length, other.slot = old, max(length, other.length), old
            self.owners[hole], self.owners[old], sequence.slot = sequence, other, hole
        self._move(targets, length)
        return len(running)

    # ------------------------------------------------------------------ contents
    def prepare(
        self, slots: Collection[int], lengths: Iterable[int], width: int, num_read: int, device: torch.device
    ) -> torch.Tensor:
        """Set what the next forward writes and read, and grows the cache if needed.

        Args:
            slots: the slot of each row of the forward.
            lengths: tokens already in each of these slots; the forward writes after them.
            width: columns written in each slot. Columns beyond the capacity are padding and go to the last column.
            num_read: columns read of each slot.

        Returns:
            The columns written, (rows, width).
        """
        self.reserve(num_read)
        columns = to_device(list(lengths), device)[:, None] + torch.arange(width, device=device)
        columns = columns.clamp_(max=self.index.capacity - 1)
        first = len(slots) if list(slots) == list(range(len(slots))) else None
        self.index.set(to_device(list(slots), device), columns, num_read, first)
        return columns

    def reserve(self, num_read: int) -> None:
        """Grows the cache until it has more than `num_read` columns; the last one takes padding."""
        capacity = self.index.capacity
        if num_read >= capacity:
            larger = max(num_read + GROWTH, capacity + capacity // 2)
            if self.max_len:
                larger = min(larger, self.max_len + 1)
            self._grow(larger)

    def list_tensors(self) -> list[torch.Tensor]:
        """Return the keys and values of all layers that hold any."""
        return [states for layer in self._get_initialized_layers() for states in (layer.keys, layer.values)]

    def copy_prefix(self, source: int, targets: Collection[int], length: int) -> None:
        """Copy the first `length` columns of one slot to others."""
        for states in self.list_tensors():
            states[list(targets), :, :length] = states[source, :, :length]
            self.bytes_copied += len(targets) * states[source, :, :length].nbytes

    def _move(self, targets: dict[int, int], length: int) -> None:
        """Copy the first `length` columns of several slots at once; `targets` maps each slot to its new place."""
        for states in self.list_tensors() if targets else ():
            moving = states[list(targets), :, :length]
            states[list(targets.values()), :, :length] = moving
            self.bytes_copied += moving.nbytes

    def _grow(self, capacity: int) -> None:
        for layer in self._get_initialized_layers():
            self.bytes_copied += layer.keys.nbytes + layer.values.nbytes
            layer.keys = torch.nn.functional.pad(layer.keys, (0, 0, 0, capacity - layer.keys.shape[2]))
            layer.values = torch.nn.functional.pad(layer.values, (0, 0, 0, capacity - layer.values.shape[2]))
        self.index.capacity = capacity  # last: if memory runs out, the cache can still be used

    def _get_initialized_layers(self) -> list[Any]:
        layers: list[Any] = self.layers
        return [layer for layer in layers if layer.is_initialized]


def compute_bytes_per_token(model: PreTrainedModel) -> int:
    """Bytes of keys and values that one token of one conversation takes."""
    config = model.config.get_text_config()
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    return int(2 * config.num_hidden_layers * heads * head * model.dtype.itemsize)


def find_kv_cache_bytes(device: torch.device) -> int:
    """Bytes that keys and values may take on a device, from the memory that is free now.

    >>> find_kv_cache_bytes(torch.device("cpu")) > 0
    True
    """
    if device.type != "cuda":
        return int(CPU_SHARE * psutil.virtual_memory().available)
    free, _ = torch.cuda.mem_get_info(device)
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # PyTorch gives it out again
    return int(GPU_SHARE * (free + cached))


def to_device(values: list[Any], device: torch.device) -> torch.Tensor:
    """Return a tensor of Python numbers on a device; the copy to a GPU goes through pinned memory and does not
    block."""
    tensor = torch.tensor(values)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
