"""Features of the vision tower, computed once for each image while the tower's weights do not change.

The members of a group share the prompt image, and often the views that tools return. Features are kept up to a number
of bytes (the least recently used are dropped first), and all are dropped when a weight of the tower changes.

Used of torch, and checked by `tests/rollouts/engine/test_transformers_contract.py`:

| name | what is relied on |
| --- | --- |
| `Tensor._version` | counts in-place changes, an optimizer's step included |
"""

from collections.abc import Iterable
from typing import Any, TypeVar

import torch
from cachetools import LRUCache
from transformers import PreTrainedModel

from viewbox.rollouts.engine.architectures import Architecture, Pixels

Key = TypeVar("Key")
MAX_BYTES = 2**28  # of features
MAX_PATCHES = 65_536  # in one forward of the tower


class VisionCache:
    """Image features of one model, by the hash of the image.

    Args:
        model: the model with the vision tower.
        architecture: the model's.
        max_bytes: limit of the stored features.
    """

    def __init__(self, model: PreTrainedModel, architecture: Architecture, max_bytes: int = MAX_BYTES) -> None:
        self.model, self.architecture = model, architecture
        self.num_encoded = 0  # images that went through the tower
        self._features: LRUCache[str, Any] = LRUCache(max_bytes, getsizeof=architecture.count_feature_bytes)
        self._weights: Any = None

    @torch.no_grad()
    def get_inputs(self, images: Iterable[tuple[str, Pixels]]) -> dict[str, Any]:
        """The model's keyword arguments for these (hash, pixels), in order; {} for no images."""
        images = list(images)
        if not images:
            return {}
        tower = self.architecture.get_vision_tower(self.model)
        weights = [(id(weight), weight._version) for weight in tower.parameters()]
        if weights != self._weights:
            self._features.clear()
            self._weights = weights
        features = {name: self._features[name] for name, _ in images if name in self._features}
        missing = {name: pixels for name, pixels in images if name not in features}
        for batch in split_into_batches(missing):
            encoded = self.architecture.encode_images(self.model, [missing[name] for name in batch])
            self.num_encoded += len(batch)
            for name, image in zip(batch, encoded, strict=True):
                features[name] = image
                if self.architecture.count_feature_bytes(image) <= self._features.maxsize:
                    self._features[name] = image
        return self.architecture.build_feature_inputs([features[name] for name, _ in images])

    def clear(self) -> None:
        """Drops all features."""
        self._features.clear()


def split_into_batches(images: dict[Key, Pixels]) -> list[list[Key]]:
    """Splits images into batches of at most `MAX_PATCHES`, in order; a larger image gets a batch of its own."""
    batches: list[list[Key]] = []
    left = 0
    for name, pixels in images.items():
        patches = len(pixels.values)
        if not batches or patches > left:
            batches.append([])
            left = MAX_PATCHES
        batches[-1].append(name)
        left -= patches
    return batches
