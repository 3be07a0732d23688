"""Images as a vision tower takes them, each made once, in whatever thread asks first."""

from threading import Lock
from typing import Any

from cachetools import LRUCache

from viewbox.errors import ImageError
from viewbox.images.ref import ImageRef
from viewbox.rollouts.engine.architectures import Family, Pixels

KEPT = 2**31  # bytes of pixels that are kept
LEAST = 2**20  # bytes that each counts for at least: so no more than 2,048 images are kept


class PixelStore:
    """Pixels by the hash of an image; the least recently used are dropped, and made again where they are needed."""

    def __init__(self, family: Family, image_processor: Any) -> None:
        self.family, self.image_processor = family, image_processor
        self._kept: LRUCache[str, Pixels] = LRUCache(KEPT, getsizeof=lambda one: max(LEAST, one.values.nbytes))
        self._guard = Lock()
        self._makers = [Lock() for _ in range(64)]  # of which an image always has the same

    def __contains__(self, image: ImageRef) -> bool:
        with self._guard:
            return image.hash in self._kept

    def of(self, image: ImageRef) -> Pixels:
        """The pixels of an image; raises `ImageError` where it cannot be opened or taken."""
        with self._makers[int(image.hash[:8], 16) % len(self._makers)]:
            with self._guard:
                found = self._kept.get(image.hash)
            if found is None:
                try:
                    found = self.family.pixels(self.image_processor, image.open())
                except (ValueError, OSError) as error:  # a strip too thin for the image processor, for one
                    raise ImageError(f"image {image.hash[:12]} ({image.width}x{image.height}): {error}") from error
                if found.values.nbytes <= KEPT:
                    with self._guard:
                        self._kept[image.hash] = found
        return found
