"""What a layer of the cache keeps: keys and values of every token, or states that each token changes.

Which layers a model has is asked of transformers, as its own `DynamicCache` asks. Keys and values beyond a sequence's
end are harmless, because they are overwritten before they are read. A state (of a recurrence such as the gated delta
rule, or of a short convolution) is different: it cannot be rolled back, so no padding and no sequence that is away may
pass through it. A forward takes the states of its rows out of the slots, and puts them back when it is done.

Used of transformers, and checked by `tests/engines/hf/test_transformers_contract.py`:

| name | what is relied on |
| --- | --- |
| `cache_utils.CacheLayerMixin` | the abstract methods that `KVCacheLayer` implements |
| `cache_utils.LinearAttentionLayer` | has states in two dicts, changed in place; `has_previous_state` until the first |
| `cache_utils.get_layer_types_and_kwargs` | the kind of each layer of a text config |
| `cache_utils.DYNAMIC_LAYER_TYPE_MAPPING` | the class of each kind |
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from transformers import PretrainedConfig, cache_utils
from transformers.cache_utils import CacheLayerMixin, LinearAttentionLayer

from ...errors import ModelError


@dataclass
class CacheIndex:
    """Which part of the cache the current forward writes and reads; shared by all layers."""

    capacity: int = 0  # allocated columns
    slots: Any = None  # (rows,) slots written
    columns: Any = None  # (rows, width) columns written
    num_read: int = 0  # columns read
    first_slots: int | None = None  # if the slots are 0 … n - 1: n


class KVCacheLayer(CacheLayerMixin):
    """Keys and values of one layer, (slots, heads, capacity, head size)."""

    keys: Any
    values: Any

    def __init__(self, index: CacheIndex, slots: int) -> None:
        super().__init__()
        self.index, self.slots = index, slots

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocate the tensors, with the heads, head size and dtype of the first states."""
        shape = (self.slots, key_states.shape[1], self.index.capacity)
        self.keys = key_states.new_zeros(*shape, key_states.shape[3])
        self.values = value_states.new_zeros(*shape, value_states.shape[3])
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the states of this forward, (rows, heads, width, head size); return what attention reads: keys and
        values, (rows, heads, `num_read`, head size) each."""
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


class StateLayer(LinearAttentionLayer):
    """States of one layer: `stored` for each slot; while a forward runs, transformers' own dicts hold its rows'."""

    def __init__(self, index: CacheIndex, slots: int, number_of_states: int = 1) -> None:
        super().__init__(number_of_states)
        self.index, self.slots, self.in_place = index, slots, False
        self.stored: dict[tuple[str, int], torch.Tensor] = {}  # (slots, …), by the name of a dict and its key

    def load_states(self, fresh: bool) -> None:
        """Take the states of the rows of the next forward; rows that are `fresh` have none."""
        LinearAttentionLayer.__init__(self, self.number_of_states)
        first = self.index.first_slots
        self.in_place = first is not None and not fresh
        for (name, number), states in () if fresh else self.stored.items():
            getattr(self, name)[number] = states[self.index.slots] if first is None else states[:first]
            getattr(self, f"is_{name}_initialized")[number] = self.has_previous_state[number] = True
            if name == "conv_states":
                self.conv_kernel_size[number] = states.shape[-1]

    def store_states(self) -> None:
        """Put the states of the last forward's rows back into their slots."""
        for name in ("conv_states", "recurrent_states"):
            for number, states in getattr(self, name).items():
                if states is None or self.in_place:
                    continue
                if (name, number) not in self.stored:
                    self.stored[name, number] = states.new_zeros(self.slots, *states.shape[1:])
                self.stored[name, number][self.index.slots] = states
        LinearAttentionLayer.__init__(self, self.number_of_states)


class KVAndStateLayer(KVCacheLayer, StateLayer):
    """Keys and values, and states, of one layer."""

    def __init__(self, index: CacheIndex, slots: int, number_of_states: int = 1) -> None:
        KVCacheLayer.__init__(self, index, slots)
        StateLayer.__init__(self, index, slots, number_of_states)

    def lazy_initialization(self, *args: Any, **kwargs: Any) -> None:
        """Allocate what is given: keys and values come by position, states by name."""
        (KVCacheLayer if args else StateLayer).lazy_initialization(self, *args, **kwargs)


LayerFactory = Callable[[CacheIndex, int], Any]  # of the index and the number of slots
_NAMES: dict[str, Any] = {  # ours for each that transformers may choose; some are not in 5.9, which verl[vllm] pins
    "DynamicLayer": KVCacheLayer,
    "DynamicSlidingWindowLayer": KVCacheLayer,  # all tokens are kept; the mask hides those out of the window
    "DummyLayer": KVCacheLayer,  # is never written
    "LinearAttentionLayer": StateLayer,
    "LinearAttentionAndFullAttentionLayer": KVAndStateLayer,
    "LinearAttentionAndSlidingWindowAttentionLayer": KVAndStateLayer,
}
LAYERS: dict[type, Any] = {
    getattr(cache_utils, name): ours for name, ours in _NAMES.items() if hasattr(cache_utils, name)
}


def find_layers(config: PretrainedConfig) -> list[LayerFactory]:
    """Return what builds each layer of the cache of a text config. Raise `ModelError` if a layer keeps something
    else."""
    try:
        from transformers.cache_utils import DYNAMIC_LAYER_TYPE_MAPPING, get_layer_types_and_kwargs
    except ImportError as error:  # not in 5.9 and 5.10
        raise ModelError("layers that this transformers does not list; the one of `viewbox[train]` does") from error
    factories: list[LayerFactory] = []
    unknown = set()
    for kind, options in zip(*get_layer_types_and_kwargs(config), strict=True):
        layer = LAYERS.get(DYNAMIC_LAYER_TYPE_MAPPING.get(kind))
        if layer is None:
            unknown.add(kind)
        else:
            factories.append(partial(layer, **{name: options[name] for name in options if name == "number_of_states"}))
    if unknown:
        raise ModelError(
            f"layers of {', '.join(sorted(unknown))}: allowed are layers that keep keys and values of every token, or "
            "states of a recurrence or a convolution"
        )
    return factories
