"""LoRA adapters, added to the weights while a model generates.

A decode step is bound by the number of operations, and every adapter costs five beside its layer. So the engine plays
with weights to which the adapters have been added. Subtracting them again would round, so the original weights are
kept, and are put back as they were.

Used of peft, and checked by `tests/rollouts/engine/test_adapters.py`:

| name | what is relied on |
| --- | --- |
| `BaseTunerLayer.merge` | adds the active adapters to `get_base_layer().weight.data` |
| `BaseTunerLayer.merged_adapters` | the forward leaves the adapters out unless this list is empty |
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def use_merged_adapters(model: Any) -> Iterator[None]:
    """Adds the active adapters of a model to its weights; restores the weights bit for bit afterward.

    Adapters stay beside their layer if its weight is quantized or serves another module, too (a tied embedding).
    The originals need as much memory again as the adapted weights. A model without adapters is left alone.
    """
    if not hasattr(model, "peft_config"):
        yield
        return
    from peft.tuners.tuners_utils import BaseTunerLayer

    uses = Counter(id(weight) for _, weight in model.named_parameters(remove_duplicate=False))
    originals: list[tuple[torch.Tensor, torch.Tensor]] = []
    merged: list[Any] = []
    try:
        for layer in model.modules():
            if not isinstance(layer, BaseTunerLayer) or layer.merged or layer.disable_adapters:
                continue
            weights = list(layer.get_base_layer().parameters(recurse=False))
            if any(uses[id(weight)] > 1 or not weight.is_floating_point() for weight in weights):
                continue
            for weight in weights:
                originals.append((weight, weight.data))
                weight.data = weight.data.clone()
            merged.append(layer)
            layer.merge()
        yield
    finally:
        for layer in merged:
            layer.merged_adapters.clear()
        for weight, data in originals:
            weight.data = data


def has_two_byte_weights(model: torch.nn.Module) -> bool:
    """Whether every weight beside adapters has two bytes or fewer, so that nothing is gained from autocast."""
    weights = ((name, weight) for name, weight in model.named_parameters() if ".lora_" not in name)
    return all(weight.element_size() <= 2 for _, weight in weights)
