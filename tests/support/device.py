"""A GPU that is not there: tensors that say they are on `cuda:0`, compute on the CPU, and refuse tensors that are not.

    with PretendedDevice() as device:
        device.move(model)
        model(input_ids=ids.to("cuda:0"))  # RuntimeError for each tensor on the way that was left on the CPU
    device.waits  # where the host would have waited for a GPU

Every operation runs on real numbers, so results can be compared with those of the same code on the CPU, and code that
reads a number of the device (`.item()`, `.tolist()`, `nonzero`) goes on. Gradients are recorded by the tensors inside:
`get_host(x)` has the graph, and is what `backward` is called on.

torch's own `FakeTensorMode` has no numbers: towers that read sizes from the device end there, and so does `backward`.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

aten = torch.ops.aten
CUDA = torch.device("cuda:0")
COPIES = {aten._to_copy.default, aten.copy_.default, aten.lift_fresh.default}
READS = {  # of which the host needs the result before it goes on
    aten._local_scalar_dense.default, aten.nonzero.default, aten.masked_select.default, aten.equal.default,
    aten._unique2.default, aten.unique_consecutive.default, aten.unique_dim.default,
}  # fmt: skip
INDEXED = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default}
KEYS = torch._C.DispatchKey
GRAPH = torch._C.DispatchKeySet(KEYS.AutogradFunctionality) | torch._C.DispatchKeySet(KEYS.ADInplaceOrView)


class DeviceTensor(torch.Tensor):
    """A tensor on the pretended device; `held` has its numbers, on the CPU."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> "DeviceTensor":
        given = {"strides": held.stride(), "storage_offset": held.storage_offset(), "dtype": held.dtype}
        self = torch.Tensor._make_wrapper_subclass(cls, held.shape, device=CUDA, **given)  # type: ignore[attr-defined]
        self.held = held
        return self  # type: ignore[no-any-return]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{func}: a tensor of the pretended device is used after it has gone")

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def numpy(self, **given: Any) -> Any:
        raise TypeError("can't convert a tensor on cuda:0 to numpy; use Tensor.cpu() first")

    def pin_memory(self, device: Any = None) -> Any:
        raise RuntimeError("cannot pin a tensor on cuda:0")

    def __repr__(self, **given: Any) -> str:
        return f"on cuda:0: {self.held!r}"


def get_host(value: Any) -> Any:
    """Return the numbers of a tensor, or of all tensors in a structure, on the CPU and with their graph."""
    return tree_map(lambda x: x.held if isinstance(x, DeviceTensor) else x, value)


def is_cuda(device: Any) -> bool:
    return device is not None and torch.device(device).type == "cuda"


class PretendedDevice(TorchDispatchMode):
    """While it is entered, `cuda:0` exists; `waits` counts (kind, file:line) of what the host waits for on a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[tuple[str, str]] = Counter()
        self.exit = contextmanager(self._stand_in)()

    def __enter__(self) -> Any:
        self.exit.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self.exit.__exit__(None, None, None)

    def _stand_in(self) -> Iterator[None]:
        """Replace what asks a driver."""
        torch._C._ensureCUDADeviceGuardSet()
        names = {
            (torch.cuda, "_lazy_init"): lambda: None,
            (torch.cuda, "mem_get_info"): lambda device=None: (2**33, 2**34),
            (torch.cuda, "memory_reserved"): lambda device=None: 0,
            (torch.cuda, "memory_allocated"): lambda device=None: 0,
            (torch.cuda, "get_device_capability"): lambda device=None: (9, 0),
            (torch.cuda, "is_bf16_supported"): lambda including_emulation=True: True,
            (torch.cuda.amp.common, "amp_definitely_not_available"): lambda: False,
            (torch.Tensor, "pin_memory"): lambda tensor, device=None: tensor,
        }
        build = torch.tensor
        names[torch, "tensor"] = lambda data, **given: build(tree_map(_get_number, data), **given)
        before = {place: getattr(*place) for place in names}
        for (owner, name), stand_in in names.items():
            setattr(owner, name, stand_in)
        torch._C._set_only_lift_cpu_tensors(True)
        try:
            yield
        finally:
            torch._C._set_only_lift_cpu_tensors(False)
            for (owner, name), own in before.items():
                setattr(owner, name, own)

    def watch(self, owner: Any, name: str) -> "Counter[Any]":
        """Count apart what a method of an object makes the host wait for; also ("calls", "")."""
        found: Counter[Any] = Counter()
        method = getattr(owner, name)

        def call(*given: Any, **named: Any) -> Any:
            before = self.waits.copy()
            result = method(*given, **named)
            found.update(self.waits - before)
            found["calls", ""] += 1
            return result

        setattr(owner, name, call)
        return found

    def move(self, model: torch.nn.Module) -> list[torch.Tensor]:
        """Move a model's weights and buffers; return the weights inside, which get the gradients.

        What is given to it must be on the device from now on, also where transformers would move it in silence.
        """
        for module in {model, getattr(model, "model", model)}:
            module.register_forward_pre_hook(_refuse_host_tensors, with_kwargs=True)
        moved: dict[int, Any] = {}
        for module in model.modules():
            for name, weight in module._parameters.items():
                if weight is not None and id(weight) not in moved:
                    inside = weight.detach().clone().requires_grad_(weight.is_floating_point())
                    outside: Any = torch.nn.Parameter(DeviceTensor(inside), requires_grad=False)
                    outside.held = inside  # and not what `Parameter` made of it
                    moved[id(weight)] = weight, outside
                module._parameters[name] = None if weight is None else moved[id(weight)][1]
            for name, values in module._buffers.items():
                module._buffers[name] = None if values is None else DeviceTensor(values)
        return [weight.held for _, weight in moved.values()]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        on = [x for x in tensors if isinstance(x, DeviceTensor)]
        target = kwargs.get("device")
        if func is aten._fused_sdp_choice.default:
            return 0  # plain products: fused kernels have one name for each device
        if on and func not in COPIES:
            free = [x for x in args[1] if x is not None] if func in INDEXED else []  # an index may be on the CPU
            off = [x for x in tensors if not isinstance(x, DeviceTensor) and x.ndim]
            left = [x for x in off if all(x is not one for one in free)]
            if left:
                sizes = ", ".join(f"{tuple(x.shape)} {x.dtype}" for x in left)
                raise RuntimeError(f"{func}: expected all tensors on cuda:0, but found on cpu: {sizes}")
        self._count(func, args, kwargs, on)
        if is_cuda(target):
            kwargs["device"] = torch.device("cpu")
            kwargs.pop("pin_memory", None)
        if not on:
            found = func(*args, **kwargs)
            return tree_map(wrap, found) if is_cuda(target) else found
        known = {id(x.held): x for x in on}
        excluded = torch._C._dispatch_tls_local_exclude_set() - GRAPH
        with torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), excluded):
            found = compute(func, get_host(args), get_host(kwargs))
        if func is aten.copy_.default:
            return args[0]
        if target is not None and not is_cuda(target):
            return found
        return tree_map(lambda x: known[id(x)] if id(x) in known else wrap(x), found)

    def _count(self, func: Any, args: Any, kwargs: Any, on: list[DeviceTensor]) -> None:
        kind = None
        if on and (func in READS or _has_mask(func, args)):
            kind = func._schema.name.removeprefix("aten::")
        elif on and func in INDEXED and any(x is not None and not isinstance(x, DeviceTensor) for x in args[1]):
            kind = "index on the host"
        elif func is aten._to_copy.default and kwargs.get("device") is not None:
            to, at = is_cuda(kwargs["device"]), bool(on)
            if at and not to:
                kind = "copy to the host"
            elif to and not at and not kwargs.get("non_blocking"):
                kind = "copy to the device"
        elif func is aten.copy_.default and on and not all(isinstance(x, DeviceTensor) for x in args[:2]):
            kind = "copy to the device" if isinstance(args[0], DeviceTensor) else "copy to the host"
        if kind is not None:
            frame: Any = sys._getframe(2)
            while "/torch/" in frame.f_code.co_filename or frame.f_code.co_filename == __file__:
                frame = frame.f_back
            self.waits[kind, f"{frame.f_code.co_filename}:{frame.f_lineno}"] += 1


def compute(func: Any, args: Any, kwargs: Any) -> Any:
    """Run an operation on the CPU; in float32 and back where the CPU has none for this type."""
    try:
        return func(*args, **kwargs)
    except NotImplementedError:
        given = next(x.dtype for x in tree_leaves(args) if isinstance(x, torch.Tensor))
        found = func(*tree_map(lambda x: x.float() if isinstance(x, torch.Tensor) else x, args), **kwargs)
        return found.to(given)


def _refuse_host_tensors(module: torch.nn.Module, args: Any, kwargs: Any) -> None:
    for name, value in {**kwargs, "positional": args}.items():
        if any(isinstance(x, torch.Tensor) and not isinstance(x, DeviceTensor) for x in tree_leaves(value)):
            raise RuntimeError(f"{type(module).__name__}: expected {name} on cuda:0, but found on cpu")


def _get_number(value: Any) -> Any:
    return value.item() if isinstance(value, DeviceTensor) and value.ndim == 0 else value


def wrap(value: Any) -> Any:
    return DeviceTensor(value) if isinstance(value, torch.Tensor) and not isinstance(value, DeviceTensor) else value


def _has_mask(func: Any, args: Any) -> bool:
    """Return whether an index is a mask: then the size of the result is known on the device only."""
    if func in INDEXED:
        return any(x is not None and x.dtype in (torch.bool, torch.uint8) for x in args[1])
    return func is aten.repeat_interleave.Tensor
