"""Keys, values and states of many conversations in one preallocated cache.

Each conversation owns one slot until it ends, so what it has computed stays there across turns. A decode step reads the
first slots as a plain slice, without a copy. Slots in that slice whose sequences wait for a tool are computed in vain.
If there are too many of them, `compact` moves the running sequences together; with states, one is too many
(`cache_layers.py`).

Used of transformers, and checked by `tests/engines/hf/test_transformers_contract.py`:

| name | what is relied on |
| --- | --- |
| `cache_utils.Cache(layers=…)` | calls `update` of the layer with the index of the attention layer |
"""

from collections.abc import Collection, Iterable
from typing import Any

import psutil
import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from .cache_layers import CacheIndex, KVCacheLayer, LayerFactory, StateLayer, find_layers
from .scheduler import Sequence

GROWTH = 128  # columns added at least when the cache grows
MAX_WASTE = 0.25  # largest share of a decode step that may be computed in vain
GPU_SHARE = 0.8  # of the free memory; the rest is for activations of a prefill, features and logits
CPU_SHARE = 0.5  # of the available memory, which other programs need, too


class KVCache(Cache):
    """The cache of all layers, and which sequence owns each slot."""

    def __init__(self, layers: list[LayerFactory], slots: int) -> None:
        self.factories = layers
        self.bytes_copied = 0  # within the cache, by `copy_prefix`, `compact` and growth
        self.allocate(slots, 0)
        super().__init__(layers=self.layers)

    @property
    def has_states(self) -> bool:
        """Whether slots hold states: then all rows of a forward must be equally long, and all new or none."""
        return bool(self._state_layers)

    @property
    def num_used(self) -> int:
        return len(self.owners) - self.owners.count(None)

    def take_slot(self, sequence: Sequence) -> None:
        sequence.slot = self.owners.index(None)
        self.owners[sequence.slot] = sequence

    def free_slot(self, sequence: Sequence) -> None:
        if sequence.slot is not None:
            self.owners[sequence.slot], sequence.slot = None, None

    def allocate(self, slots: int, max_len: int) -> None:
        """Replace the contents by empty slots of up to `max_len` tokens (0: no limit); memory is taken when they are
        written."""
        self.owners: list[Sequence | None] = [None] * slots
        self.max_len, self.index = max_len, CacheIndex()
        self.layers = [build(self.index, slots) for build in self.factories]
        self._state_layers = [layer for layer in self.layers if isinstance(layer, StateLayer)]

    def compact(self, running: Collection[Sequence]) -> int:
        """Move the running sequences into the first slots if too much of a decode step would be wasted; return how many
        of the first slots it must read."""
        width = 1 + max(sequence.held_slot for sequence in running)
        if width - len(running) <= (0 if self.has_states else MAX_WASTE * width):
            return width
        owners = self.owners[: len(running)]
        holes = [slot for slot, owner in enumerate(owners) if owner is None or owner not in running]
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

    def prepare(
        self, slots: Collection[int], lengths: Iterable[int], width: int, num_read: int, device: torch.device
    ) -> torch.Tensor:
        """Set what the next forward writes and reads, and grow the cache if needed; return the columns written, (rows,
        width). Each row writes behind the `lengths` of its slot; columns beyond the capacity are padding and go to the
        last column."""
        self.reserve(num_read)
        lengths = list(lengths)
        columns = to_device(lengths, device)[:, None] + torch.arange(width, device=device)
        columns = columns.clamp_(max=self.index.capacity - 1)
        self.index.slots, self.index.columns, self.index.num_read = to_device(list(slots), device), columns, num_read
        self.index.first_slots = len(slots) if list(slots) == list(range(len(slots))) else None
        if self.has_states and any(lengths) and not all(lengths):  # not every model begins with zeros
            raise RuntimeError("states that are new and states that go on in one forward")
        for layer in self._state_layers:
            layer.load_states(fresh=not any(lengths))
        return columns

    def store_states(self) -> None:
        for layer in self._state_layers:
            layer.store_states()

    def reserve(self, num_read: int) -> None:
        """Grow the cache until it has more than `num_read` columns; the last one takes padding."""
        capacity = self.index.capacity
        if num_read >= capacity:
            larger = max(num_read + GROWTH, capacity + capacity // 2)
            if self.max_len:
                larger = min(larger, self.max_len + 1)
            for layer in self._get_initialized_layers():
                self.bytes_copied += layer.keys.nbytes + layer.values.nbytes
                layer.keys = torch.nn.functional.pad(layer.keys, (0, 0, 0, larger - layer.keys.shape[2]))
                layer.values = torch.nn.functional.pad(layer.values, (0, 0, 0, larger - layer.values.shape[2]))
            self.index.capacity = larger  # last: if memory runs out, the cache can still be used

    def list_tensors(self) -> list[torch.Tensor]:
        return [states for layer in self._get_initialized_layers() for states in (layer.keys, layer.values)]

    def list_states(self) -> list[torch.Tensor]:
        return [states for layer in self._state_layers for states in layer.stored.values()]

    def copy_states(self, slot: int) -> list[torch.Tensor]:
        return [states[slot].clone() for states in self.list_states()]

    def copy_prefix(
        self, source: int, targets: Collection[int], length: int, states: Iterable[torch.Tensor] = ()
    ) -> None:
        """Copy the first `length` columns of one slot to others, and give them the `states` it had there."""
        if not self.list_tensors() and not self.list_states():
            return
        rows = to_device(list(targets), self.index.slots.device)  # once: a list as an index waits for the device
        for tensor in self.list_tensors():
            tensor[rows, :, :length] = tensor[source, :, :length]
            self.bytes_copied += len(targets) * tensor[source, :, :length].nbytes
        for tensor, state in zip(self.list_states(), states, strict=True):
            tensor[rows] = state
            self.bytes_copied += len(targets) * state.nbytes

    def _move(self, targets: dict[int, int], length: int) -> None:
        """Move several slots at once, of which `length` columns count; `targets` maps each slot to its new place."""
        parts = [*(tensor[:, :, :length] for tensor in self.list_tensors()), *self.list_states()]
        if not targets or not parts:
            return
        old, new = (to_device(list(rows), parts[0].device) for rows in (targets, targets.values()))
        for tensor in parts:
            moving = tensor[old]
            tensor[new] = moving
            self.bytes_copied += moving.nbytes

    def _get_initialized_layers(self) -> list[Any]:
        return [layer for layer in self.layers if isinstance(layer, KVCacheLayer) and layer.is_initialized]


@torch.no_grad()
def measure_slot(model: PreTrainedModel) -> tuple[int, int]:
    """Return the bytes that a conversation takes: for each token, and for its states whatever its length. One token
    goes through the language model, also on `meta`: layers differ, and no config says what a state takes."""
    cache = KVCache(find_layers(model.config.get_text_config()), 1)
    cache.prepare([0], [0], 1, 1, model.device)
    ids = torch.zeros(1, 1, dtype=torch.long, device=model.device)
    model.get_decoder().forward(input_ids=ids, past_key_values=cache)  # hooks count forwards of conversations only
    cache.store_states()
    numbers = sum(tensor[0, :, 0].numel() for tensor in cache.list_tensors())
    return numbers * model.dtype.itemsize, sum(states.nbytes for states in cache.list_states())


def find_kv_cache_bytes(device: torch.device) -> int:
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
