"""Counts the bytes of live tensors, of a computation with numbers or of one with shapes alone.

`LiveBytes` sees what operations make. What a kernel uses inside, the allocator's rounding and its unused blocks are not
counted. `ShapesOnly` runs the same code without computing: floating-point tensors are torch's fake tensors, which have
a shape and no memory. Token ids, grids, masks and indices stay real, because code branches on them.

Used of torch, and checked by `tests/training/memory/test_live_bytes.py`:

| name | what is relied on |
| --- | --- |
| `_subclasses.fake_tensor.FakeTensorMode`, `FakeTensor` | shapes, types, autocast and autograd without numbers |
| `utils._python_dispatch.TorchDispatchMode` | sees every operation, those of the backward pass included |
| `UntypedStorage._cdata` | one number for the memory that several tensors share |
"""

import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

INDEXED = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put"}


class LiveBytes(TorchDispatchMode):
    """The bytes of the tensors that operations make inside this mode, and the largest number alive in each phase.

    Args:
        given: tensors that were there before; they are not counted, but what is freed of them is.

    Attributes:
        part: the name under which new tensors are counted.
        phase: the name under which the peak is kept.
        live: bytes alive now.
        parts: those of each part.
        peaks: for each phase, the bytes of each part at the moment of its peak.
    """

    def __init__(self, given: Iterable[torch.Tensor] = ()) -> None:
        super().__init__()
        self.part, self.phase, self.live = "activations", "all", 0
        self.parts: Counter[str] = Counter()
        self.peaks: dict[str, Counter[str]] = {}
        self._largest: Counter[str] = Counter()
        self._storages: dict[int, Any] = {}
        for tensor in given:
            self._watch(tensor.untyped_storage(), "given")

    @property
    def peak(self) -> int:
        """The largest number of bytes alive at once, in any phase."""
        return max(self._largest.values(), default=0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if func.namespace == "prim":  # asks for a tensor's device
            return output
        for tensor in tree_leaves(output):
            if isinstance(tensor, torch.Tensor):
                self._add(tensor.untyped_storage())
        return output

    def move(self, tensor: torch.Tensor, part: str) -> None:
        """Counts a live tensor under another part from now on."""
        entry = self._storages.get(tensor.untyped_storage()._cdata)
        if entry is not None:
            size = tensor.untyped_storage().nbytes()
            self.parts[entry[1]] -= size
            self.parts[part] += size
            entry[1] = part

    def _add(self, storage: torch.UntypedStorage) -> None:
        size = storage.nbytes()
        if storage._cdata in self._storages:
            return
        self._watch(storage, self.part)
        self.live += size
        self.parts[self.part] += size
        if self.live > self._largest[self.phase]:
            self._largest[self.phase], self.peaks[self.phase] = self.live, self.parts.copy()

    def _watch(self, storage: torch.UntypedStorage, part: str) -> None:
        key, size = storage._cdata, storage.nbytes()

        def free(_: Any) -> None:
            part = self._storages.pop(key)[1]
            self.live -= size
            self.parts[part] -= size

        self._storages[key] = [weakref.ref(storage, free), part]


class ShapesOnly(TorchDispatchMode):
    """Runs operations on fake tensors as fake ones, and all others as they are. A boolean index keeps its numbers."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "prim":  # asks for a tensor's device
            return func(*args, **kwargs)
        fakes = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, FakeTensor)]
        if fakes:
            if func.overloadpacket.__name__ in INDEXED:
                args = (args[0], _to_places(args[1]), *args[2:])
            with fakes[0].fake_mode:
                args, kwargs = tree_map_only(torch.Tensor, _to_shape, (args, kwargs))
        return func(*args, **kwargs)


def _to_shape(tensor: torch.Tensor) -> torch.Tensor:
    """A fake tensor like this one; made inside the mode of fake tensors."""
    if isinstance(tensor, FakeTensor):
        return tensor
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)


def _to_places(indices: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
    """Boolean masks as the indices of their true places, whose number is known without numbers."""
    places: list[torch.Tensor | None] = []
    for index in indices:
        if index is not None and index.dtype == torch.bool and not isinstance(index, FakeTensor):
            places += index.nonzero().unbind(1)
        else:
            places.append(index)
    return places


def create_shapes_mode() -> FakeTensorMode:
    """The mode inside which tensors are made that have a shape and no memory."""
    return FakeTensorMode(allow_non_fake_inputs=True)


def replace_by_shapes(model: torch.nn.Module, mode: FakeTensorMode) -> None:
    """Replaces the weights and buffers of a model on the meta device by fake tensors of a CPU; tied ones stay tied."""
    made: dict[int, torch.Tensor] = {}

    def make(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in made:
            with mode:
                made[id(tensor)] = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
        return made[id(tensor)]

    parameters: dict[int, torch.nn.Parameter] = {}
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                if id(weight) not in parameters:
                    parameters[id(weight)] = torch.nn.Parameter(make(weight), requires_grad=weight.requires_grad)
                module._parameters[name] = parameters[id(weight)]
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = make(buffer)


@contextmanager
def count_shapes(given: Iterable[torch.Tensor] = ()) -> Iterator[LiveBytes]:
    """Inside it, operations on fake tensors are counted as if they had memory."""
    with ShapesOnly(), LiveBytes(given) as counter:
        yield counter
