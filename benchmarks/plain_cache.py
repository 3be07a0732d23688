"""The floor of the engine's forwards: each of them repeated at once on the simplest possible cache.

`Beside` replaces the model. It runs every forward of the engine twice with the same inputs: on the engine's KV cache,
and on a cache whose layers write one slice and read one slice, without copies or look-ups. The order alternates, so
that both find the processor's caches in the same state.
"""

import time
from dataclasses import dataclass
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin


@dataclass
class Slice:
    """The columns that the current forward writes (`at` to `shown`); it reads the first `shown`."""

    at: int = 0
    shown: int = 0


class PlainLayer(CacheLayerMixin):
    """Keys and values of one layer, (rows, heads, columns, head size), with all rows written at the same columns."""

    keys: Any
    values: Any

    def __init__(self, where: Slice) -> None:
        super().__init__()
        self.where = where

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        raise RuntimeError("allocated before it is timed")

    def allocate(self, rows: int, heads: int, columns: int, size: int, like: torch.Tensor) -> None:
        self.keys, self.values = (like.new_zeros(rows, heads, columns, size) for _ in range(2))
        self.is_initialized = True

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> tuple:
        rows, at, shown = len(key_states), self.where.at, self.where.shown
        self.keys[:rows, :, at:shown] = key_states
        self.values[:rows, :, at:shown] = value_states
        return self.keys[:rows, :, :shown], self.values[:rows, :, :shown]

    def get_mask_sizes(self, query_length: Any) -> tuple[int, int]:
        return self.where.shown, 0

    def get_seq_length(self) -> int:
        return self.where.at

    def get_max_length(self) -> int:
        return self.keys.shape[2]

    get_max_cache_shape = get_max_length


class PlainCache(Cache):
    """`PlainLayer`s of one model, large enough for every forward that was prepared."""

    def __init__(self, model: Any) -> None:
        self.where, self.rows, self.columns = Slice(), 0, 0
        config = model.config.get_text_config()
        self.head = (config.num_key_value_heads, config.head_dim)
        self.like = torch.empty(0, dtype=model.dtype, device=model.device)
        super().__init__(layers=[PlainLayer(self.where) for _ in range(config.num_hidden_layers)])

    def prepare(self, rows: int, width: int, shown: int) -> None:
        """Prepares a forward that writes `width` new columns and reads `shown`; not part of the timing."""
        if rows > self.rows or shown > self.columns:
            self.rows, self.columns = max(rows, self.rows), max(shown + 256, self.columns)
            for layer in self.layers:
                layer.allocate(self.rows, self.head[0], self.columns, self.head[1], self.like)  # type: ignore[attr-defined]
        self.where.at, self.where.shown = shown - width, shown


class Beside:
    """A model that repeats every forward on a plain cache; `seconds[kind]` are (the engine's, the plain cache's)."""

    def __init__(self, model: Any) -> None:
        self._model, self._plain = model, PlainCache(model)
        self.calls = 0
        self.restart()

    def restart(self) -> None:
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

    def ratio(self, kind: str | None = None) -> float:
        """The engine's seconds over the plain ones."""
        kinds = [kind] if kind else list(self.seconds)
        ours, plain = (sum(self.seconds[one][side] for one in kinds) for side in (0, 1))
        return ours / plain


class Clock:
    """Seconds inside a module's forwards."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.seconds = 0.0
        module.register_forward_pre_hook(self._start)
        module.register_forward_hook(self._stop)

    def _start(self, *args: Any) -> None:
        self.started = time.perf_counter()

    def _stop(self, *args: Any) -> None:
        self.seconds += time.perf_counter() - self.started
