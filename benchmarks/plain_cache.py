"""The lower bound of the engine's forwards: each is repeated on the simplest possible cache.

`PairedModel` replaces the model. It runs every forward of the engine twice with the same inputs: on the engine's KV
cache, and on a cache whose layers write one slice and read one slice, without copies or look-ups. The order alternates,
so that neither side always profits from a warm processor cache.
"""

import time
from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin


@dataclass
class Slice:
    """The current forward writes the columns `start` to `end`, and reads the columns before `end`."""

    start: int = 0
    end: int = 0


class PlainLayer(CacheLayerMixin):
    """Keys and values of one layer, (rows, heads, columns, head size), with all rows written at the same columns."""

    keys: Any
    values: Any

    def __init__(self, columns: Slice) -> None:
        super().__init__()
        self.columns = columns

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        raise RuntimeError("allocated before it is timed")

    def allocate(self, rows: int, heads: int, columns: int, size: int, like: torch.Tensor) -> None:
        self.keys, self.values = (like.new_zeros(rows, heads, columns, size) for _ in range(2))
        self.is_initialized = True

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> tuple:
        rows, start, end = len(key_states), self.columns.start, self.columns.end
        self.keys[:rows, :, start:end] = key_states
        self.values[:rows, :, start:end] = value_states
        return self.keys[:rows, :, :end], self.values[:rows, :, :end]

    def get_mask_sizes(self, query_length: Any) -> tuple[int, int]:
        return self.columns.end, 0

    def get_seq_length(self) -> int:
        return self.columns.start

    def get_max_length(self) -> int:
        return self.keys.shape[2]

    get_max_cache_shape = get_max_length


class PlainCache(Cache):
    """The `PlainLayer`s of a model, large enough for the forwards that were prepared."""

    def __init__(self, model: Any) -> None:
        self.columns, self.num_rows, self.num_columns = Slice(), 0, 0
        config = model.config.get_text_config()
        self.head = (config.num_key_value_heads, config.head_dim)
        self.like = torch.empty(0, dtype=model.dtype, device=model.device)
        super().__init__(layers=[PlainLayer(self.columns) for _ in range(config.num_hidden_layers)])

    def prepare(self, rows: int, width: int, end: int) -> None:
        """Prepare a forward that writes the `width` columns before `end`; not part of the timing."""
        if rows > self.num_rows or end > self.num_columns:
            self.num_rows, self.num_columns = max(rows, self.num_rows), max(end + 256, self.num_columns)
            for layer in self.layers:
                layer.allocate(self.num_rows, self.head[0], self.num_columns, self.head[1], self.like)  # type: ignore[attr-defined]
        self.columns.start, self.columns.end = end - width, end


class PairedModel:
    """A model that repeats every forward on a plain cache; `seconds[kind]` is [engine's cache, plain cache]."""

    def __init__(self, model: Any) -> None:
        self._model, self._plain = model, PlainCache(model)
        self.calls = 0
        self.reset()

    def reset(self) -> None:
        """Resets the counters."""
        self.seconds = {"prefill": [0.0, 0.0], "decode": [0.0, 0.0]}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, **given: Any) -> Any:
        rows, width = given["input_ids"].shape
        self._plain.prepare(rows, width, given["attention_mask"].shape[-1])
        sides = [given, given | {"past_key_values": self._plain}]
        spent = self.seconds["decode" if width == 1 else "prefill"]
        found: dict[int, Any] = {}
        self.calls += 1
        for side in (0, 1) if self.calls % 2 else (1, 0):
            started = time.perf_counter()
            found[side] = self._model(**sides[side])
            spent[side] += time.perf_counter() - started
        return found[0]

    def compute_ratio(self, kind: str | None = None) -> float:
        """Seconds on the engine's cache over those on the plain one; `kind`: "prefill", "decode", or None for both."""
        kinds = [kind] if kind else list(self.seconds)
        ours, plain = (sum(self.seconds[one][side] for one in kinds) for side in (0, 1))
        return ours / plain
