"""Which tensors a server needs, under the names of a checkpoint."""

from collections.abc import Iterator
from typing import Any

import torch

from viewbox.errors import ConfigError

HEAD = "lm_head.weight"


def iterate_weights(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The (name, tensor) pairs of a model, adapters merged before (`rollouts/engine/adapters.py`).

    The output head is always among them. If it is tied to the input embedding, a checkpoint has only the embedding, and
    a server that is sent a checkpoint would keep its old head without an error.

    Raises:
        ConfigError: an adapter is not merged, so the weights without it are not the policy's.
    """
    if hasattr(model, "peft_config"):
        _check_merged(model)
        model = model.get_base_model()
    found: dict[str, torch.Tensor] = {}
    for name, tensor in model.state_dict().items():
        if ".lora_" in name or ".original_module." in name:
            continue
        name = name.replace(".base_layer.", ".").replace(".modules_to_save.default.", ".")
        found[name] = tensor.detach()
    head = model.get_output_embeddings()
    if head is not None and HEAD not in found:
        found[HEAD] = head.weight.detach()
    yield from found.items()


def _check_merged(model: Any) -> None:
    from peft.tuners.tuners_utils import BaseTunerLayer

    apart = [
        name
        for name, layer in model.named_modules()
        if isinstance(layer, BaseTunerLayer) and not layer.merged and not layer.disable_adapters
    ]
    if apart:
        raise ConfigError(
            f"rollout.engine = vllm: {len(apart)} adapted layers cannot be merged for the server, such as {apart[0]} "
            "(its weight is quantized, or serves another layer, too); allowed: other lora.target_modules, no "
            "lora.quantize, or engine: hf",
            key="lora.target_modules",
        )
