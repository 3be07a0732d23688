"""Counts the bytes of tensors that are alive in a computation, for `memory.py` and the tests of forecasts."""

import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """Counts the bytes that operations make and that are alive. What a kernel uses inside is not seen.

    Args:
        given: tensors that were there before, and are not counted: weights, and the batch. What is freed of them is.
    """

    def __init__(self, given: Iterable[torch.Tensor] = ()) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._storages: dict[int, Any] = {}
        for tensor in given:
            self._watch(tensor.untyped_storage())

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(output):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage()._cdata not in self._storages:
                self._watch(tensor.untyped_storage())
                self.live += tensor.untyped_storage().nbytes()
                self.peak = max(self.peak, self.live)
        return output

    def _watch(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()

        def free(_: Any) -> None:
            del self._storages[key]
            self.live -= size

        self._storages[key] = weakref.ref(storage, free)
