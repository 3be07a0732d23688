"""Features of the vision tower, computed once for each image while the tower's weights do not change.

The members of a group share the prompt image, and often the views that tools return. Features are kept up to a number
of bytes (the least recently used are dropped first). Those of a frozen tower serve the loss too, and later steps; they
are kept on the host and cost no memory of the device.

Whoever begins a batch calls `refresh`, which drops all features unless every bit of the tower is what it was. No count
of changes will do: torch counts neither the steps of a fused optimizer nor what is written through `Tensor.data`.
"""

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import torch
from cachetools import LRUCache
from transformers import PreTrainedModel

from .adapters import list_active
from .architectures import Architecture, Pixels
from .model_parts import list_vision_weights

MAX_BYTES = 2**28  # of features on the device, of a tower that is trained
MAX_HOST_BYTES = 2**32  # of features on the host, of a frozen tower
KEY_DIGITS = 15  # of an image's hash
MAX_NUMBERS = 2**26  # of pixels in one forward of the tower
INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by the bytes of a number


class VisionCache:
    """Image features of one model, by the key of the image; at most `max_bytes` of them."""

    def __init__(self, model: PreTrainedModel, architecture: Architecture, max_bytes: int | None = None) -> None:
        architecture.check_forward()
        self.model, self.architecture = model, architecture
        max_bytes = (MAX_HOST_BYTES if self.frozen else MAX_BYTES) if max_bytes is None else max_bytes
        self.num_encoded = 0  # images that went through the tower
        self._features: LRUCache[int, Any] = LRUCache(max_bytes, getsizeof=count_bytes)
        self._weights: Hashable = None  # of the tower whose features are kept

    @property
    def frozen(self) -> bool:
        """Whether nothing that features depend on is trained now."""
        return not any(weight.requires_grad for weight in list_vision_weights(self.model))

    def refresh(self) -> None:
        """Drop all features if they are no longer those of the tower: of other numbers, or other active adapters."""
        if self._weights is not None and self._weights != self._describe_weights():
            self.clear()

    def _describe_weights(self) -> Hashable:
        sums = [sum_bits(weight) for weight in list_vision_weights(self.model) if weight.numel()]
        adapters = list_active(self.architecture.get_vision_tower(self.model))
        return tuple(torch.stack([total.to(sums[0].device) for total in sums]).tolist()), adapters

    def get_inputs(self, images: Iterable[tuple[str, Pixels]]) -> dict[str, object]:
        named = [(get_image_key(name), pixels) for name, pixels in images]
        if not named:
            return {}
        features = self.get_features(dict(named))
        return self.architecture.build_feature_inputs([features[key] for key, _ in named])

    @torch.no_grad()
    def get_features(self, images: Mapping[int, Pixels]) -> dict[int, tuple[torch.Tensor, ...]]:
        """Return the features of each image on the model's device, without gradient, by `get_image_key`."""
        if self._weights is None:
            self._weights = self._describe_weights()
        device, frozen = self.model.device, self.frozen
        known = [key for key in images if key in self._features]
        features = {key: tuple(layer.to(device) for layer in self._features[key]) for key in known}
        missing = {key: pixels for key, pixels in images.items() if key not in features}
        for batch in split_into_batches(missing):
            encoded = self.architecture.encode_images(self.model, [missing[key] for key in batch])
            self.num_encoded += len(batch)
            for key, image in zip(batch, encoded, strict=True):
                features[key] = image
                if count_bytes(image) <= self._features.maxsize:
                    self._features[key] = tuple(layer.cpu() for layer in image) if frozen else image
        return features

    def clear(self) -> None:
        self._features.clear()
        self._weights = None


def get_image_key(name: str) -> int:
    """Return the key of an image with this hash.

    >>> get_image_key("00000000000002a" + "f" * 49)
    42
    """
    return int(name[:KEY_DIGITS], 16)


def count_bytes(layers: Iterable[torch.Tensor]) -> int:
    return sum(layer.nbytes for layer in layers)


def sum_bits(weight: torch.Tensor) -> torch.Tensor:
    bits = weight.detach().view(INTEGERS[weight.element_size()])
    # numpy takes a twentieth of torch's time on a CPU
    return torch.as_tensor(bits.numpy().sum()) if bits.device.type == "cpu" else bits.sum()


def split_into_batches(images: Mapping[int, Pixels]) -> list[list[int]]:
    """Split images into batches of at most `MAX_NUMBERS`, in order; a larger image gets a batch of its own."""
    batches: list[list[int]] = []
    left = 0
    for name, pixels in images.items():
        if not batches or pixels.numbers > left:
            batches.append([])
            left = MAX_NUMBERS
        batches[-1].append(name)
        left -= pixels.numbers
    return batches
