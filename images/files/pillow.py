"""Pictures that Pillow reads: PNG, JPEG, TIFF, BMP, WebP, GIF; their pages and frames, modes, EXIF rotation.

The plugins are asked directly and not through `Image.open`: its limit is one number for the whole process, half of what
is allowed here, and it would try some forty formats.
"""

from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import numpy as np
from PIL import (
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    ImageOps,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)

from viewbox.errors import ImageError
from viewbox.images.files import limits
from viewbox.images.files.arrays import integers, of_array, settled
from viewbox.images.source import Source
from viewbox.images.volume import Volume

FORMATS: dict[str, tuple[Callable[[bytes], bool], Callable[..., Any]]] = {
    "PNG": (lambda head: head.startswith(b"\x89PNG\r\n\x1a\n"), PngImagePlugin.PngImageFile),
    "JPEG": (lambda head: head.startswith(b"\xff\xd8\xff"), JpegImagePlugin.jpeg_factory),
    "TIFF": (lambda head: head[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"), TiffImagePlugin.TiffImageFile),
    "BMP": (lambda head: head.startswith(b"BM"), BmpImagePlugin.BmpImageFile),
    "WebP": (lambda head: head[:4] == b"RIFF" and head[8:12] == b"WEBP", WebPImagePlugin.WebPImageFile),
    "GIF": (lambda head: head[:6] in (b"GIF87a", b"GIF89a"), GifImagePlugin.GifImageFile),
}
ANIMATED = ("TIFF", "GIF", "WEBP", "PNG")  # a JPEG with several pictures holds previews of the same one
# of a pixel in Pillow's memory; of other modes 4, for they become RGB, and of WebP 16: its decoder keeps three copies
BYTES = {"1": 1, "L": 1, "I;16": 2, "I;16B": 2, "I;16L": 2, "I;16N": 2}
SCANNED = 2**30  # pixels times scans of a JPEG: a progressive one has about ten, and each goes over all pixels
STRIP = 2**22  # pixels copied at a time
WHITE_IS_ZERO = 262, 0  # a TIFF's PhotometricInterpretation
ORIENTATION = 0x0112


def is_picture(head: bytes) -> bool:
    """Whether a file that begins with `head` is one of `FORMATS`."""
    return any(accepts(head) for accepts, _ in FORMATS.values())


def load(file: BinaryIO, head: bytes) -> Image.Image:
    """The first picture of a file, decoded; raises `ImageError` from its header where it is too large."""
    opener = next((opener for accepts, opener in FORMATS.values() if accepts(head)), None)
    if opener is None:
        kinds = ", ".join(FORMATS)
        raise ImageError(f"this is no image that can be opened; allowed: {kinds}, DICOM, NIfTI, NumPy .npy")
    scans = 1
    if opener is JpegImagePlugin.jpeg_factory:
        scans = file.read().count(b"\xff\xda")
        file.seek(0)
    try:
        image = opener(file, "")
        limits.check((image.height, image.width), 16 if image.format == "WEBP" else BYTES.get(image.mode, 4))
        if image.format in ANIMATED[1:] and image.is_animated:
            limits.check((image.height, image.width), 3, frames=image.n_frames)
        if scans * image.width * image.height > SCANNED:
            raise ImageError(f"a JPEG of {image.width}x{image.height} pixels in {scans} scans takes too long")
        image.load()
        return image
    except Image.DecompressionBombError:
        reason = f"more pixels than this kind of file may have; allowed: {2 * (Image.MAX_IMAGE_PIXELS or 0)}"
    except (OSError, SyntaxError) as error:  # Pillow's own words
        words = "".join(ch for ch in str(error) if ch.isprintable())[:100]
        reason = f"it is damaged or cut short ({words})"
    raise ImageError(reason)


def read(file: BinaryIO, head: bytes) -> Source:
    """The source of a file; of several frames the first, with the others in its volume."""
    image = load(file, head)
    first = pixels_of(image)
    if image.format not in ANIMATED or not getattr(image, "is_animated", False):
        return of_array(first)
    frames = [first, *_more(image, first.nbytes // (first.shape[0] * first.shape[1]))]
    if len(frames) == 1:
        return of_array(first)
    if len({frame.ndim for frame in frames}) > 1:
        frames = [frame if frame.ndim == 3 else np.repeat(frame[:, :, None], 3, axis=2) for frame in frames]
    voxels, display = settled(np.stack(frames))
    return Volume(voxels, display, planes=False).slice(0)


def _more(image: Image.Image, itemsize: int) -> Iterator[np.ndarray]:
    """The frames after the first; pages of another size or depth (previews) are left out."""
    shape, depth = (image.height, image.width), _depth(image)
    for number in range(1, limits.MAX_FRAMES + 1):
        limits.check(shape, itemsize, frames=number + 1)
        try:
            image.seek(number)
        except EOFError:
            return
        if (image.height, image.width) == shape and _depth(image) == depth:
            yield pixels_of(image)


def _depth(image: Image.Image) -> str:
    """Modes that share it may be frames of one animation: its later frames are often stored in another one."""
    return image.mode if image.mode in ("I", "F") or image.mode.startswith("I;") else "8 bits"


def of_picture(image: Image.Image, **about: Any) -> Source:
    """The source of a Pillow image in memory: turned upright by EXIF, transparency on black."""
    if 0 in image.size:
        raise ImageError(f"image of {image.width}x{image.height} pixels: nothing to show")
    return of_array(pixels_of(image), **about)


def pixels_of(image: Image.Image) -> np.ndarray:
    """A Pillow image of any mode as (h, w) or (h, w, 3): gray stays gray, deep stays deep, everything else is RGB."""
    tags = getattr(image, "tag_v2", {})
    if image.getexif().get(ORIENTATION, 1) != 1:  # else it would be copied
        image = ImageOps.exif_transpose(image)
    if image.mode == "1":
        image = image.convert("L")
    elif image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or (image.mode == "P" and "transparency" in image.info):
        image = _over_black(image)
    elif image.mode not in ("L", "RGB", "I", "F") and not image.mode.startswith("I;16"):
        image = image.convert("RGB")
    pixels = _copied(image)
    if pixels.dtype.kind == "u" and pixels.dtype.itemsize == 2 and tags.get(WHITE_IS_ZERO[0]) == WHITE_IS_ZERO[1]:
        pixels = 65535 - pixels  # Pillow does this for 8 bits only
    if image.mode == "I":
        pixels = integers(pixels, int(pixels.min()), int(pixels.max()))
    return pixels


def _over_black(image: Image.Image) -> Image.Image:
    gray = image.mode in ("LA", "La")
    image = image.convert("LA" if gray else "RGBA")
    black = Image.new("L" if gray else "RGB", image.size)
    black.paste(image.convert(black.mode), mask=image.getchannel("A"))
    return black


def _copied(image: Image.Image) -> np.ndarray:
    """The pixels as an array, a strip at a time: Pillow's own way takes three times the memory."""
    if image.width * image.height <= STRIP:
        return np.asarray(image)
    rows = max(1, STRIP // image.width)
    strips = ((y, min(image.height, y + rows)) for y in range(0, image.height, rows))
    whole: np.ndarray | None = None
    for top, bottom in strips:
        strip = np.asarray(image.crop((0, top, image.width, bottom)))
        if whole is None:
            whole = np.empty((image.height, *strip.shape[1:]), strip.dtype)
        whole[top:bottom] = strip
    assert whole is not None
    return whole
