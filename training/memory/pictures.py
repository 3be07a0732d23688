"""Images of an episode by their shapes: pixels, and the features that the vision tower makes of them."""

from collections.abc import Mapping
from typing import Any

import torch

from ...engines.hf.architectures import Pixels, get_architecture
from .workload import Grid, count_image_tokens


def is_tower_frozen(model: Any) -> bool:
    """Whether no weight of the vision tower is trained."""
    tower = get_architecture(model.config).get_vision_tower(model)
    return not any(weight.requires_grad for weight in tower.parameters())


def build_pixels(grid: Grid, model: Any) -> Pixels:
    """The pixels of one image, in the type in which they are kept, beside the model's weights."""
    vision, dtype = model.config.vision_config, get_architecture(model.config).get_pixel_dtype(model)
    width = 3 * vision.temporal_patch_size * vision.patch_size**2
    tokens = count_image_tokens(grid)
    return Pixels(next(model.parameters()).new_zeros(4 * tokens, width, dtype=dtype), grid, tokens)


def build_batch_pixels(batch: Mapping[str, Any], model: Any) -> dict[int, Pixels]:
    """The pixels of every image of a batch, by key."""
    keys, grids = batch["image_keys"].flatten().tolist(), batch["image_grids"].reshape(-1, 3).tolist()
    return {key: build_pixels(tuple(grid), model) for key, grid in dict(zip(keys, grids, strict=True)).items()}


def build_features(pixels: Pixels, model: Any, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """The features of one image: those of the tower's end, then of each DeepStack layer."""
    layers = 1 + len(getattr(model.config.vision_config, "deepstack_visual_indexes", None) or ())
    shape = (pixels.tokens, model.config.get_text_config().hidden_size)
    like = next(model.parameters())
    return tuple(like.new_zeros(shape, dtype=dtype) for _ in range(layers))


class KnownFeatures:
    """Stands for the `VisionCache` of a frozen tower: its features are copied to the device when they are asked for."""

    def __init__(self, model: Any, dtype: torch.dtype) -> None:
        self.model, self.dtype = model, dtype

    def get_features(self, images: Mapping[str, Pixels]) -> dict[str, tuple[torch.Tensor, ...]]:
        """The features of each image."""
        return {name: build_features(pixels, self.model, self.dtype) for name, pixels in images.items()}
