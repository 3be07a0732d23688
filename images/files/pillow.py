"""Pictures that Pillow reads: PNG, JPEG, TIFF, BMP, WebP, GIF; their pages and frames.

The plugins are called directly and not through `Image.open`, which has one size limit for the whole process, half of
what is allowed here, and would try some forty formats.
"""

from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import numpy as np
from PIL import (
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)

from ...errors import ImageError
from .. import limits
from ..pixels import pillow_to_array, to_native_dtype
from ..source import Source, Volume

FORMATS: dict[str, tuple[Callable[[bytes], bool], Callable[..., Any]]] = {
    "PNG": (lambda head: head.startswith(b"\x89PNG\r\n\x1a\n"), PngImagePlugin.PngImageFile),
    "JPEG": (lambda head: head.startswith(b"\xff\xd8\xff"), JpegImagePlugin.jpeg_factory),
    "TIFF": (lambda head: head[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"), TiffImagePlugin.TiffImageFile),
    "BMP": (lambda head: head.startswith(b"BM"), BmpImagePlugin.BmpImageFile),
    "WebP": (lambda head: head[:4] == b"RIFF" and head[8:12] == b"WEBP", WebPImagePlugin.WebPImageFile),
    "GIF": (lambda head: head[:6] in (b"GIF87a", b"GIF89a"), GifImagePlugin.GifImageFile),
}
Reserve = Callable[[int], None]
ANIMATED = ("TIFF", "GIF", "WEBP", "PNG")  # a JPEG with several pictures holds previews of the same one
# Bytes of a pixel in Pillow's memory. Other modes need 4, because they become RGB; WebP needs 16 for copies.
BYTES = {"1": 1, "L": 1, "I;16": 2, "I;16B": 2, "I;16L": 2, "I;16N": 2}
SCAN = b"\xff\xda"
MAX_SCANNED = 2**30  # pixels times scans of a JPEG: a progressive one has about ten, each over all pixels


def is_picture(head: bytes) -> bool:
    """Return whether a file that begins with `head` is one of `FORMATS`."""
    return any(accepts(head) for accepts, _ in FORMATS.values())


def load_picture(file: BinaryIO, head: bytes, reserve: Reserve) -> Image.Image:
    """Decode the first picture of a file; raise `ImageError` if it is damaged or, from its header, too large."""
    return _load(file, head, reserve, frames=False)[0]


def read(file: BinaryIO, head: bytes, reserve: Reserve) -> Source:
    """Return the first frame of a file; if there are several, its volume has the others."""
    image, count = _load(file, head, reserve, frames=True)
    first = pillow_to_array(image)
    frames = [first, *_read_frames(image, count)]
    if len(frames) == 1:
        del image
        return Source.of(first)
    if len({frame.ndim for frame in frames}) > 1:
        frames = [frame if frame.ndim == 3 else np.repeat(frame[:, :, None], 3, axis=2) for frame in frames]
    voxels, display, blank = to_native_dtype(np.stack(frames))
    return Volume(voxels, display, planes=False, blank=blank).get_slice(0)


def _load(file: BinaryIO, head: bytes, reserve: Reserve, *, frames: bool) -> tuple[Image.Image, int]:
    """Return the first picture, decoded, and how many frames the file has: 1 if they are not wanted."""
    opener = next((opener for accepts, opener in FORMATS.values() if accepts(head)), None)
    if opener is None:
        kinds = ", ".join(FORMATS)
        raise ImageError(f"this is not an image that can be opened; allowed: {kinds}, DICOM, NIfTI, NumPy .npy")
    scans = _count_scans(file) if opener is JpegImagePlugin.jpeg_factory else 1
    if opener is WebPImagePlugin.WebPImageFile:  # its canvas is allocated when it is opened
        reserve(_measure_webp(file))
    try:
        image: Image.Image = opener(file, "")
        shape = image.height, image.width
        size = limits.check_size(shape, 16 if image.format == "WEBP" else BYTES.get(image.mode, 4))
        count = 1
        if image.format in ANIMATED and getattr(image, "is_animated", False) and (frames or image.format != "TIFF"):
            count = _count_frames(image)
            wide = BYTES.get(image.mode, 4) if image.format == "TIFF" else 3
            size = max(size, limits.check_size(shape, wide, frames=count))
        if scans * image.width * image.height > MAX_SCANNED:
            raise ImageError(f"a JPEG of {image.width}x{image.height} pixels in {scans} scans takes too long")
        if image.format != "WEBP":
            reserve(size)
        image.load()
        return image, count if frames else 1
    except Image.DecompressionBombError:
        reason = f"more pixels than this kind of file may have; allowed: {2 * (Image.MAX_IMAGE_PIXELS or 0)}"
    except (OSError, SyntaxError) as error:  # Pillow's messages
        text = "".join(letter for letter in str(error) if letter.isprintable())[:100]
        reason = f"it is damaged or cut short ({text})"
    raise ImageError(reason)


def _count_scans(file: BinaryIO) -> int:
    """Return how often the marker of a scan stands in a JPEG file."""
    count, last = 0, b""
    while part := file.read(2**20):
        count += part.count(SCAN) + (last + part[:1] == SCAN)
        last = part[-1:]
    file.seek(0)
    return count


def _measure_webp(file: BinaryIO) -> int:
    """Bytes of the canvas and all frames of a WebP file, from the headers of its chunks (RFC 9649, section 2)."""
    width, height, frames, place = 1, 1, 0, 12
    while frames <= limits.MAX_FRAMES:
        file.seek(place)
        chunk = file.read(18)
        if len(chunk) < 18:
            break
        if chunk[:4] == b"VP8X":
            width, height = (1 + int.from_bytes(chunk[at : at + 3], "little") for at in (12, 15))
        elif place == 12 and chunk[:4] == b"VP8L":
            bits = int.from_bytes(chunk[9:13], "little")
            width, height = 1 + bits % 2**14, 1 + (bits >> 14) % 2**14
        elif place == 12 and chunk[:4] == b"VP8 ":
            width, height = (int.from_bytes(chunk[at : at + 2], "little") % 2**14 for at in (14, 16))
        frames += chunk[:4] == b"ANMF"
        size = int.from_bytes(chunk[4:8], "little")
        place += 8 + size + size % 2
    file.seek(0)
    one = limits.check_size((height, width), 16)
    return max(one, limits.check_size((height, width), 3, frames=max(1, frames)))


def _count_frames(image: Image.Image) -> int:
    """Return the frames of an animation or the pages of a TIFF: `MAX_FRAMES` + 1 if there are more."""
    if image.format != "TIFF":
        return int(getattr(image, "n_frames", 1))
    for number in range(1, limits.MAX_FRAMES + 1):
        try:
            image.seek(number)
        except EOFError:
            image.seek(0)
            return number
    return limits.MAX_FRAMES + 1


def _read_frames(image: Image.Image, count: int) -> Iterator[np.ndarray]:
    """Yield the frames after the first one; pages of another size or depth are previews and are left out."""
    shape, depth = (image.height, image.width), _get_depth(image)
    for number in range(1, count):
        try:
            image.seek(number)
        except EOFError:
            return
        if (image.height, image.width) == shape and _get_depth(image) == depth:
            yield pillow_to_array(image)


def _get_depth(image: Image.Image) -> str:
    """Return the depth of a mode. The frames of one animation share it, though later ones are often stored in another
    mode."""
    return image.mode if image.mode in ("I", "F") or image.mode.startswith("I;") else "8 bits"
