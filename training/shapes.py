"""What is trained of a model, which way it takes, and what it makes of a picture: asked of its shapes."""

import math
from collections import Counter
from typing import Any, NamedTuple

import torch
from PIL import Image

from ..configs.schema import Config
from ..core.base import BaseMultiTurnEnv
from ..engines.hf import parity
from ..engines.hf.architectures import Architecture
from ..engines.hf.model_parts import get_base_model
from ..engines.hf.picture_settings import find_largest_view, set_max_pixels
from .plan import LocalModel
from .precision import list_untrained


class WeightCounts(NamedTuple):
    """How many parameters a run has, how many of them it trains, and both in one line."""

    total: int
    trained: int
    line: str


def count_parameters(model: Any) -> WeightCounts:
    """Return the parameters of a model with its adapters, which needs no numbers."""
    weights = dict(model.named_parameters())
    total = sum(weight.numel() for name, weight in weights.items() if ".lora_" not in name)
    trained = sum(weight.numel() for weight in weights.values() if weight.requires_grad)
    adapted = {name.partition(".lora_")[0] for name in weights if ".lora_" in name}
    tower = set(Architecture(model.config).get_vision_tower(model).modules())
    parts = Counter(sorted("vision" if model.get_submodule(name) in tower else "language" for name in adapted))
    share, rest = f"{trained / 1e6:.1f} M of {total / 1e6:.1f} M parameters", ", ".join(list_untrained(model))
    if adapted:
        layers = " and ".join(f"{count} {name}" for name, count in parts.items())
        return WeightCounts(total, trained, f"{share}: adapters on {layers} layers{'; none in ' if rest else ''}{rest}")
    return WeightCounts(total, trained, f"{share}; frozen: {rest}" if rest else f"all {total / 1e6:.1f} M parameters")


def describe_way(config: Config, model: Any) -> str:
    """Return how a model without numbers plays and learns, in one line."""
    architecture = Architecture(model.config)
    several = "a mask for each kind of layer" if len(architecture.masks.kinds) > 1 else "a mask"
    if config.train.method != "grpo":
        learns = "padded rows, by its own forward"
    elif not architecture.takes_features:
        learns = "one episode at a time, by its own forward"
    elif architecture.has_states:
        learns = "padded rows: no prompt is shared"
    elif is_causal(architecture, model):
        learns = "packed rows without a mask, in which a group shares its prompt"
    else:
        learns = f"packed rows with {several}, in which a group shares its prompt; masks grow with the square of a row"
    return f"plays {parity.describe_way(architecture)}; learns from {learns}"


def describe_pictures(config: Config, env: BaseMultiTurnEnv, model: LocalModel) -> str:
    """Return what a model's processor makes of the largest view and what it costs, in one line."""
    architecture = Architecture(model.config, model.processor)
    processor, multiple = model.processor, model.view_settings.get("pixel_multiple")
    allowed = config.model.max_pixels or env.max_pixels
    set_max_pixels(processor, env.max_pixels)
    (width, height), view = find_largest_view(architecture, env.max_pixels, env.pixel_multiple)
    set_max_pixels(processor, allowed)
    pixels = architecture.preprocess(Image.new("RGB", (width, height)))
    line = f"the largest view, {width} x {height}, costs {pixels.tokens} tokens"
    if multiple is not None:
        subject = "views" if pixels.tokens * multiple**2 == width * height else "smaller ones"
        line += f"; {subject} keep their size, in multiples of {multiple}"
    else:
        *several, _, rows, columns = (1, 1, 1, *pixels.inputs["pixel_values"].shape)
        tiles = math.prod(several) if pixels.inputs["pixel_values"].ndim > 3 else 0
        line += f": {tiles} picture{'s' * (tiles > 1)} of {columns} x {rows}" if tiles else ""
        small = Image.new("RGB", (max(1, width // 2), max(1, height // 2)))
        if architecture.preprocess(small).tokens == pixels.tokens:
            line += "; smaller ones cost the same"
        if tiles == 1 and rows * columns < env.max_pixels:
            line += f"; env.max_pixels above {rows * columns} is never reached"
    if allowed < env.max_pixels and pixels.tokens == view.tokens:
        line += f"; model.max_pixels = {allowed} is never reached: the processor shrinks by other limits"
    return line


class _NoEmbedding(torch.nn.Module):
    """Stands for the embedding of a model without numbers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = torch.empty(0, width)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return torch.zeros(*ids.shape, self.weight.shape[1])


def is_causal(architecture: Architecture, model: Any) -> bool:
    """Whether the layers of a model without numbers need no mask; also false if that cannot be told."""
    base = get_base_model(model)
    embedding = base.get_input_embeddings()
    base.set_input_embeddings(_NoEmbedding(embedding.weight.shape[1]))
    try:
        architecture.learn_masks(base)
    except Exception:  # some models compute more of their numbers before their masks
        return False
    finally:
        base.set_input_embeddings(embedding)
    return architecture.masks.is_causal
