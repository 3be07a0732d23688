"""`ImageRef`: a picture named by the hash of its pixels. Equal pictures are held in memory once."""

import base64
import hashlib
import io
from dataclasses import fields
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any, ClassVar
from weakref import WeakValueDictionary

import msgspec
import numpy as np
from msgspec.structs import force_setattr
from PIL import Image

from ..errors import ImageError
from ..utils.frozen import PlainRecord

if TYPE_CHECKING:
    from .source import Source

    Pixels = np.ndarray | Image.Image | Source
else:
    Pixels = Any  # a line of JSON never holds them

NATIVE = "native"  # the mode of what is more than a picture of 8 bits: deep values, a unit, a spacing, a stack


_STRIP = 2**22  # pixels that are hashed at a time


class ImageRef(PlainRecord, frozen=True):
    """A picture named by the hash of its decoded pixels, which are in memory, in a store's folder, or at `uri`.

    Args:
        hash: SHA-256 of mode, size and raw bytes: the same pixels have one name, whatever file they came from. Of a
            `Source` that is more than its pixels: of all that it holds (`files/native.py`).
        width, height: in pixels.
        mode: Pillow's, such as "L" or "RGB"; "native" for such a source.
        uri: a path, if the pixels can be read from there.
        pixels: in memory only, never stored: a uint8 array, a Pillow image after `open`, or the source.
        folder: of a store that may be somebody else's: `uri` must then lie in it, and its pixels must match `hash`.

    >>> ref = ImageRef.of(Image.new("L", (4, 2), 7))
    >>> ref.width, ref.height, ref.mode, ref.open().getpixel((0, 0))
    (4, 2, 'L', 7)
    """

    hash: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    width: int
    height: int
    mode: str = "RGB"
    uri: str | None = None
    pixels: Pixels | None = None
    folder: str | None = None

    _beside: ClassVar = frozenset({"pixels", "folder"})

    @classmethod
    def of(cls, image: "Image.Image | np.ndarray | Source", *, uri: str | None = None) -> "ImageRef":
        """Return the reference of an image in memory: Pillow, an array (height, width[, channels]) or a source."""
        if not isinstance(image, np.ndarray | Image.Image):
            return cls._from_source(image, uri)
        if isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.shape[2:] in ((), (3,)):
            return cls._from_array(image, uri)
        picture = image if isinstance(image, Image.Image) else Image.fromarray(np.ascontiguousarray(image))
        if picture.mode == "P":  # a palette is not in the bytes: two pictures would share a hash
            picture = picture.convert("RGBA" if "transparency" in picture.info else "RGB")
        digest = hashlib.sha256(f"{picture.mode} {picture.width} {picture.height} ".encode())
        rows = max(1, _STRIP // max(1, picture.width))
        for top in range(0, picture.height, rows):  # a copy of all pixels may be very large
            box = (0, top, picture.width, min(top + rows, picture.height))
            digest.update((picture.crop(box) if rows < picture.height else picture).tobytes())
        return cls(digest.hexdigest(), picture.width, picture.height, picture.mode, uri, picture)

    @classmethod
    def _from_array(cls, pixels: np.ndarray, uri: str | None) -> "ImageRef":
        """Return the reference of uint8 (h, w) or (h, w, 3), which stay an array: most views are only ever encoded.
        Equal pixels share the reference that is in memory."""
        flat = np.ascontiguousarray(pixels)
        (height, width), mode = flat.shape[:2], "L" if flat.ndim == 2 else "RGB"
        digest = hashlib.sha256(f"{mode} {width} {height} ".encode())
        digest.update(flat.reshape(-1).data)
        key = digest.hexdigest(), uri
        with _LOCK:
            there = _IN_MEMORY.get(key)
            if there is None:
                frozen = flat.copy() if flat is pixels and flat.flags.writeable else flat
                frozen.flags.writeable = False
                there = _IN_MEMORY[key] = cls(key[0], width, height, mode, uri, frozen)
        return there

    @classmethod
    def _from_source(cls, source: "Source", uri: str | None) -> "ImageRef":
        """Return the reference of a source: that of its pixels, if it is nothing but pixels as they are shown."""
        others = ((getattr(source, field.name), field.default) for field in fields(source) if field.name != "pixels")
        if source.pixels.dtype == np.uint8 and all(value == default for value, default in others):
            return cls._from_array(source.pixels, uri)
        from .files.native import compute_hash

        return cls(compute_hash(source), *source.size, NATIVE, uri, source)

    def load(self) -> "Source":
        """Return the native pixels, with all that is known of them; raise `ImageError` as `open` does."""
        from .source import Source

        if isinstance(self.pixels, Source):
            return self.pixels
        if self.mode != NATIVE:
            return Source.of(self.open())
        if self.uri is None:
            raise ImageError(f"image {self.hash[:12]} has neither pixels nor a path")
        from .files.native import read_native

        return read_native(self.uri, self.folder, self.hash)

    def open(self) -> Image.Image:
        """Return the picture; raise `ImageError` if its pixels are neither in memory nor readable at `uri`.
        Of a source it is what is shown: 8 bits, of a stack the slice at which it was opened."""
        if self.mode == NATIVE:
            return Image.fromarray(self.load().render())
        pixels: Any = self.pixels
        if isinstance(pixels, np.ndarray):
            pixels = Image.fromarray(pixels)
            force_setattr(self, "pixels", pixels)
        if isinstance(pixels, Image.Image):
            return pixels
        if self.uri is None:
            raise ImageError(f"image {self.hash[:12]} has neither pixels nor a path")
        from .files import open_picture

        picture = open_picture(self.uri, self.folder)
        if self.folder is not None:
            self._check_pixels(picture)
        force_setattr(self, "pixels", picture)
        return picture

    def _check_pixels(self, picture: Image.Image) -> None:
        actual = ImageRef.of(picture)
        if (actual.hash, actual.mode, *picture.size) != (self.hash, self.mode, self.width, self.height):
            other = f"{actual.width}x{actual.height}, {actual.mode}, {actual.hash[:12]}"
            reason = f"its file holds other pixels ({other}); it was changed after it was stored"
            raise ImageError(f"image {self.hash[:12]}: {reason}")

    def render(self) -> "ImageRef":
        """Return what a model sees of the picture: itself if it is L or RGB, else RGB of 8 bits."""
        if self.mode in ("L", "RGB"):
            return self
        from .source import render_picture

        return ImageRef.of(render_picture(self.open()))

    def to_png(self) -> bytes:
        """Return the pixels as a PNG file (lossless)."""
        picture: Any = self.open() if self.pixels is None or self.mode == NATIVE else self.pixels
        if isinstance(picture, np.ndarray) or picture.mode in ("L", "RGB"):
            return _encode_png(np.asarray(picture))
        buffer = io.BytesIO()
        picture.save(buffer, format="PNG", compress_level=1)
        return buffer.getvalue()

    def to_data_url(self) -> str:
        """Return the pixels as a `data:image/png;base64,…` URL."""
        return "data:image/png;base64," + base64.b64encode(self.to_png()).decode()


# Equal pictures are held once: thousands of episodes look at the same few images, often in the same way. Fifty equal
# pictures of 512 x 512 take 0.3 MB instead of 13 MB.
_IN_MEMORY: WeakValueDictionary[tuple[str, str | None], ImageRef] = WeakValueDictionary()
_LOCK = Lock()


def _encode_png(pixels: np.ndarray) -> bytes:
    """Encode uint8 (h, w) or (h, w, 3) with one filter and run lengths only: twice as fast as Pillow, and no larger."""
    import cv2

    how = [cv2.IMWRITE_PNG_FILTER, cv2.IMWRITE_PNG_FILTER_UP, cv2.IMWRITE_PNG_STRATEGY, cv2.IMWRITE_PNG_STRATEGY_RLE]
    stored = pixels if pixels.ndim == 2 else cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)
    return cv2.imencode(".png", stored, how)[1].tobytes()
