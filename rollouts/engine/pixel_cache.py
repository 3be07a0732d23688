"""A cache of preprocessed images; each image is preprocessed once, by the first thread that needs it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from typing import Any

import torch
from cachetools import LRUCache

from viewbox.errors import ImageError
from viewbox.images.ref import ImageRef
from viewbox.rollouts.engine.architectures import Architecture, Pixels

MAX_BYTES = 2**31
MIN_BYTES_EACH = 2**20  # every image counts for at least this much: at most 2,048 images are kept
MAX_COUNTS = 2**20  # images whose number of tokens is remembered


class PixelCache:
    """Pixels by the hash of the image. The least recently used are dropped first. Safe for threads.

    `dtype` is the type that pixels are kept in: that in which the vision tower computes, if it takes two bytes.
    `num_prepared` counts the images that were preprocessed. With `counts_by_size`, tokens are counted without
    preprocessing: the pixels are needed elsewhere, such as at a server.
    """

    def __init__(self, architecture: Architecture, image_processor: Any) -> None:
        self.architecture, self.image_processor = architecture, image_processor
        self.dtype = torch.float32
        self.num_prepared = 0
        self.counts_by_size = False
        self._pixels: LRUCache[str, Pixels] = LRUCache(
            MAX_BYTES, getsizeof=lambda pixels: max(MIN_BYTES_EACH, pixels.values.nbytes)
        )
        self._counts: LRUCache[str, int] = LRUCache(MAX_COUNTS)
        self._held: dict[str, Pixels] | None = None  # while `hold` is open
        self._guard = Lock()
        self._locks = [Lock() for _ in range(64)]  # an image always uses the same lock

    def __contains__(self, image: ImageRef) -> bool:
        with self._guard:
            return self._find(image.hash) is not None

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Inside the block nothing is dropped, so that the images of a whole batch are preprocessed once."""
        with self._guard:
            self._held = {}
        try:
            yield
        finally:
            with self._guard:
                self._held = None

    def count_tokens(self, image: ImageRef) -> int:
        """The image's tokens in a prompt; remembered also after its pixels were dropped. Raises `ImageError`."""
        with self._guard:
            count = self._counts.get(image.hash)
        if count is None and self.counts_by_size:
            with _named(image):
                return self.architecture.count_tokens(self.image_processor, image.width, image.height)
        return self.get(image).tokens if count is None else count

    def get(self, image: ImageRef) -> Pixels:
        """The pixels of an image.

        Raises:
            ImageError: the image cannot be opened, or the image processor rejects it.
        """
        with self._locks[int(image.hash[:8], 16) % len(self._locks)]:
            with self._guard:
                pixels = self._find(image.hash)
            if pixels is None:
                with _named(image):
                    pixels = self.architecture.preprocess(self.image_processor, image.open())
                pixels = replace(pixels, values=pixels.values.to(self.dtype))
                with self._guard:
                    self.num_prepared += 1
                    self._keep(image.hash, pixels)
        return pixels

    def _find(self, name: str) -> Pixels | None:
        if self._held is None:
            return self._pixels.get(name)
        pixels = self._held.get(name) or self._pixels.get(name)
        if pixels is not None:
            self._held[name] = pixels
        return pixels

    def _keep(self, name: str, pixels: Pixels) -> None:
        self._counts[name] = pixels.tokens
        if self._held is not None:
            self._held[name] = pixels
        if pixels.values.nbytes <= MAX_BYTES:
            self._pixels[name] = pixels


@contextmanager
def _named(image: ImageRef) -> Iterator[None]:
    """Errors raised inside it, as for a strip too thin for the image processor, become `ImageError` with the image."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise ImageError(f"image {image.hash[:12]} ({image.width}x{image.height}): {error}") from error
