"""Features of the vision tower, computed once for each image while the tower's weights do not change.

The members of a group share the prompt image, and often the views that tools return. Features are kept up to a number
of bytes (the least recently used are dropped first), and all are dropped when a weight of the tower changes. Those of a
frozen tower serve the loss too, and later steps; they are kept on the host and cost no memory of the device.

Used of torch, and checked by `tests/engines/hf/test_transformers_contract.py`:

| name | what is relied on |
| --- | --- |
| `Tensor._version` | counts in-place changes, an optimizer's step included |
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import torch
from cachetools import LRUCache
from transformers import PreTrainedModel

from .architectures import Architecture, Pixels

Key = TypeVar("Key")
MAX_BYTES = 2**28  # of features on the device, of a tower that is trained
MAX_HOST_BYTES = 2**32  # of features on the host, of a frozen tower
KEY_DIGITS = 15  # of an image's hash
MAX_NUMBERS = 2**26  # of pixels in one forward of the tower


class VisionCache:
    """Image features of one model, by the hash of the image.

    Args:
        max_bytes: limit of the stored features; default: `MAX_HOST_BYTES` if the tower is frozen now, else `MAX_BYTES`.
    """

    def __init__(self, model: PreTrainedModel, architecture: Architecture, max_bytes: int | None = None) -> None:
        architecture.check_forward()
        self.model, self.architecture = model, architecture
        self.frozen = not any(weight.requires_grad for weight in architecture.get_vision_tower(model).parameters())
        max_bytes = (MAX_HOST_BYTES if self.frozen else MAX_BYTES) if max_bytes is None else max_bytes
        self.num_encoded = 0  # images that went through the tower
        self._features: LRUCache[str, Any] = LRUCache(max_bytes, getsizeof=architecture.count_feature_bytes)
        self._weights: Any = None

    def get_inputs(self, images: Iterable[tuple[str, Pixels]]) -> dict[str, object]:
        """Return the model's keyword arguments for these (hash, pixels), in order; {} for no images."""
        named = [(name[:KEY_DIGITS], pixels) for name, pixels in images]
        if not named:
            return {}
        features = self.get_features(dict(named))
        return self.architecture.build_feature_inputs([features[name] for name, _ in named])

    @torch.no_grad()
    def get_features(self, images: Mapping[str, Pixels]) -> dict[str, tuple[torch.Tensor, ...]]:
        """Return the features of each image on the model's device, without gradient; names are `KEY_DIGITS` of the
        hash."""
        tower = self.architecture.get_vision_tower(self.model)
        weights = [(id(weight), weight._version) for weight in tower.parameters()]
        if weights != self._weights:
            self._features.clear()
            self._weights = weights
        device = self.model.device
        known = [name for name in images if name in self._features]
        features = {name: tuple(layer.to(device) for layer in self._features[name]) for name in known}
        missing = {name: pixels for name, pixels in images.items() if name not in features}
        for batch in split_into_batches(missing):
            encoded = self.architecture.encode_images(self.model, [missing[name] for name in batch])
            self.num_encoded += len(batch)
            for name, image in zip(batch, encoded, strict=True):
                features[name] = image
                if self.architecture.count_feature_bytes(image) <= self._features.maxsize:
                    self._features[name] = tuple(layer.cpu() for layer in image) if self.frozen else image
        return features

    def clear(self) -> None:
        self._features.clear()


def split_into_batches(images: dict[Key, Pixels]) -> list[list[Key]]:
    """Split images into batches of at most `MAX_NUMBERS`, in order; a larger image gets a batch of its own."""
    batches: list[list[Key]] = []
    left = 0
    for name, pixels in images.items():
        if not batches or pixels.numbers > left:
            batches.append([])
            left = MAX_NUMBERS
        batches[-1].append(name)
        left -= pixels.numbers
    return batches
