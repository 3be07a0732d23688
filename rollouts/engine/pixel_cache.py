"""A cache of preprocessed images; each image is preprocessed once, by the first thread that needs it."""

from threading import Lock
from typing import Any

from cachetools import LRUCache

from viewbox.errors import ImageError
from viewbox.images.ref import ImageRef
from viewbox.rollouts.engine.architectures import Architecture, Pixels

MAX_BYTES = 2**31
MIN_BYTES_EACH = 2**20  # every image counts for at least this much: at most 2,048 images are kept


class PixelCache:
    """Pixels by the hash of the image. The least recently used are dropped first. Safe for threads."""

    def __init__(self, architecture: Architecture, image_processor: Any) -> None:
        self.architecture, self.image_processor = architecture, image_processor
        self._pixels: LRUCache[str, Pixels] = LRUCache(
            MAX_BYTES, getsizeof=lambda pixels: max(MIN_BYTES_EACH, pixels.values.nbytes)
        )
        self._guard = Lock()
        self._locks = [Lock() for _ in range(64)]  # an image always uses the same lock

    def __contains__(self, image: ImageRef) -> bool:
        with self._guard:
            return image.hash in self._pixels

    def get(self, image: ImageRef) -> Pixels:
        """The pixels of an image.

        Raises:
            ImageError: the image cannot be opened, or the image processor rejects it.
        """
        with self._locks[int(image.hash[:8], 16) % len(self._locks)]:
            with self._guard:
                pixels = self._pixels.get(image.hash)
            if pixels is None:
                try:
                    pixels = self.architecture.preprocess(self.image_processor, image.open())
                except (ValueError, OSError) as error:  # for example, a strip too thin for the image processor
                    raise ImageError(f"image {image.hash[:12]} ({image.width}x{image.height}): {error}") from error
                if pixels.values.nbytes <= MAX_BYTES:
                    with self._guard:
                        self._pixels[image.hash] = pixels
        return pixels
