"""What the vision tower makes of an image, computed once while its weights stay as they are.

A group's members look at one prompt image, and at equal pictures when they use tools alike. Features are kept up to a
number of bytes, the least recently used going first, and dropped as soon as a weight of the tower changes.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from cachetools import LRUCache

from viewbox.rollouts.engine.architectures import Family, Pixels

Key = TypeVar("Key")
KEPT = 2**28  # bytes of features
MOST_PATCHES = 65_536  # of one forward of the tower


class Features:
    """The features of images by the hash of their pixels, for the forwards of one model."""

    def __init__(self, model: Any, family: Family, kept: int = KEPT) -> None:
        self.model, self.family = model, family
        self.images = 0  # that went through the tower
        self._kept: LRUCache[str, Any] = LRUCache(kept, getsizeof=family.feature_bytes)
        self._weights: Any = None

    @torch.no_grad()
    def of(self, images: Sequence[tuple[str, Pixels]]) -> dict[str, Any]:
        """The model's keyword arguments for these images (hash, pixels), in order; nothing for none."""
        if not images:
            return {}
        weights = [(id(weight), weight._version) for weight in self.family.tower(self.model).parameters()]
        if weights != self._weights:
            self._kept.clear()
            self._weights = weights
        found = {name: self._kept[name] for name, _ in images if name in self._kept}
        missing = {name: pixels for name, pixels in images if name not in found}
        for part in in_parts(missing):
            made = self.family.features(self.model, [missing[name] for name in part])
            self.images += len(part)
            for name, one in zip(part, made, strict=True):
                found[name] = one
                if self.family.feature_bytes(one) <= self._kept.maxsize:
                    self._kept[name] = one
        return self.family.feature_inputs([found[name] for name, _ in images])

    def clear(self) -> None:
        self._kept.clear()


def in_parts(images: dict[Key, Pixels]) -> list[list[Key]]:
    """The images in batches that the tower takes at once."""
    parts: list[list[Key]] = []
    room = 0
    for name, pixels in images.items():
        patches = len(pixels.values)
        if not parts or patches > room:
            parts.append([])
            room = MOST_PATCHES
        parts[-1].append(name)
        room -= patches
    return parts
