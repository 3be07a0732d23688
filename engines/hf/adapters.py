"""LoRA adapters, beside the weights they adapt and in the same matrix product while a model generates.

A change that is small beside a weight of two bytes is rounded away when it is added to it, and when the output of an
adapter is added to a rounded output: of a step of 1e-4 of the weight, a twentieth is left. So the adapters become
further columns of the weight: [W, sB] times [x, Ax] is one product, whose kernel adds in float32 and rounds once.
It costs two small operations a layer, and a hundredth of the weight's memory at rank 32; no copy of a weight is kept.

Used of peft, and checked by `tests/engines/hf/test_adapters.py`:

| name | what is relied on |
| --- | --- |
| `LoraLayer.lora_A`, `lora_B`, `scaling`, `active_adapters` | the active adapters add scaling · B A to the weight |
| `BaseTunerLayer.merged_adapters` | the forward leaves the adapters to the base layer unless this list is empty |
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import MethodType
from typing import Any

import torch
from torch.nn import functional

ALIGNED = 8  # columns are added in multiples of this, so that rows of two-byte weights begin at 16 bytes
WIDE, DOWN = "wide_weight", "adapter_down"  # buffers of a base layer: [W, sB], and A


@contextmanager
def use_merged_adapters(model: object) -> Iterator[None]:
    """Let a model's layers compute with their active adapters in one product; afterward the weights are as before.
    Adapters stay peft's own if the weight is quantized or serves another module, too (a tied embedding). Layers are
    changed one by one, so the most that is added is one weight. A model without adapters is left alone."""
    if not hasattr(model, "peft_config"):
        yield
        return
    changed: list[Any] = []
    try:
        for layer in list(find_mergeable(model)):
            changed.append(layer)
            _widen(layer)
        yield
    finally:
        for layer in changed:
            _restore(layer)


def find_mergeable(model: Any) -> Iterator[Any]:
    """Yield the LoRA layers of a model with active adapters whose linear layer is neither quantized nor used
    elsewhere."""
    from peft.tuners.lora import LoraLayer

    uses = Counter(id(weight) for _, weight in model.named_parameters(remove_duplicate=False))
    for layer in model.modules():
        if not isinstance(layer, LoraLayer) or layer.merged or layer.disable_adapters:
            continue
        base = layer.get_base_layer()
        if isinstance(base, torch.nn.Linear) and base.weight.is_floating_point() and uses[id(base.weight)] == 1:
            yield layer


def get_factors(layer: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the (R, inputs) and (outputs, R) factors of what the active adapters add to the weight, in their
    precision."""
    names = [name for name in layer.active_adapters if name in layer.lora_A]
    down = torch.cat([layer.lora_A[name].weight.detach() for name in names])
    return down, torch.cat([layer.lora_B[name].weight.detach() * layer.scaling[name] for name in names], dim=1)


def list_active(model: torch.nn.Module) -> tuple[str, ...]:
    """Return which adapters are active in each adapted layer of a model, and how they are scaled."""
    layers = [layer for layer in model.modules() if hasattr(layer, "active_adapters")]
    return tuple(str((one.active_adapters, one.disable_adapters, getattr(one, "scaling", None))) for one in layers)


def round_stochastically(exact: torch.Tensor, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Round float32 to bfloat16 or float16, up or down by chance, so that the expected value is the exact one.

    >>> ones = torch.full((10_000,), 1 + 2**-10)
    >>> rounded = round_stochastically(ones, torch.bfloat16, torch.Generator().manual_seed(0))
    >>> sorted(set(rounded.tolist())), round(rounded.double().mean().item(), 2)
    ([1.0, 1.0078125], 1.0)
    """
    near = exact.to(dtype)
    gap = exact - near.float()
    other = torch.nextafter(near, torch.where(gap > 0, torch.inf, -torch.inf).to(dtype))
    step = (other.float() - near.float()).abs()
    drawn = torch.rand(exact.shape, generator=generator, device=exact.device)
    return torch.where((drawn * step < gap.abs()) & other.isfinite(), other, near)


def _widen(layer: Any) -> None:
    base = layer.get_base_layer()
    weight, (down, up) = base.weight, get_factors(layer)
    rank, inputs = down.shape
    columns = -(-rank // ALIGNED) * ALIGNED
    wide = torch.cat([weight.data, weight.new_zeros(len(weight), columns)], dim=1)
    wide[:, inputs : inputs + rank] = up
    weight.data = wide[:, :inputs]
    base.register_buffer(WIDE, wide, persistent=False)
    base.register_buffer(DOWN, functional.pad(down.to(weight.dtype), (0, 0, 0, columns - rank)), persistent=False)
    base.forward = MethodType(_compute_wide, base)
    layer.merged_adapters.extend(layer.active_adapters)


def _compute_wide(base: Any, x: torch.Tensor) -> torch.Tensor:
    return functional.linear(
        torch.cat([x, functional.linear(x, base.adapter_down)], dim=-1), base.wide_weight, base.bias
    )


def _restore(layer: Any) -> None:
    base = layer.get_base_layer()
    layer.merged_adapters.clear()
    base.__dict__.pop("forward", None)
    for name in (WIDE, DOWN):
        base._buffers.pop(name, None)
        base._non_persistent_buffers_set.discard(name)
    base.weight.data = base.weight.data.contiguous()


def has_two_byte_weights(model: torch.nn.Module) -> bool:
    """Return whether every weight beside adapters has two bytes or fewer, so that nothing is gained from autocast."""
    weights = ((name, weight) for name, weight in model.named_parameters() if ".lora_" not in name)
    return all(weight.element_size() <= 2 for _, weight in weights)
