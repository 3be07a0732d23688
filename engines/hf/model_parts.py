"""A model without peft's wrapper, its vision tower, and what its backbone keeps on itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def get_base_model(model: Any) -> Any:
    return model.get_base_model() if hasattr(model, "get_base_model") else model


@contextmanager
def keep_state(model: Any) -> Iterator[dict[str, Any]]:
    """Yield the attributes of a model's backbone. Inside, tensors that earlier forwards left are gone, such as Qwen's
    `rope_deltas`, which a later conversation without a picture would count with; afterward they are back, alone."""
    base = get_base_model(model)
    attributes = vars(getattr(base, "model", base))
    before = dict(attributes)
    attributes.update({name: None for name, value in before.items() if isinstance(value, torch.Tensor)})
    try:
        yield attributes
    finally:
        attributes.update(before)


def list_vision_parts(model: Any) -> list[torch.nn.Module]:
    """Return what stands beside the language model: the vision tower, and what projects if it is a part of its own."""
    decoder, children = model.get_decoder(), getattr(model, "model", model).children()
    return [child for child in children if all(module is not decoder for module in child.modules())]


def list_vision_weights(model: Any) -> Iterator[torch.Tensor]:
    """Yield all numbers that image features depend on, also inside a PEFT model: those of the vision parts, and what
    belongs to none (`image_newline` of LLaVA-NeXT)."""
    base = get_base_model(model)
    for part in list_vision_parts(base):
        yield from part.parameters()
        yield from part.buffers()
    yield from getattr(base, "model", base).parameters(recurse=False)
