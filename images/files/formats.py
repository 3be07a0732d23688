"""Reads a file of any known format, recognized by its content. Runs in a worker (`viewbox.images.files.worker`).

Pillow reads PNG, JPEG, BMP, WebP, GIF and their frames; OpenCV reads PNG of 16 bits a channel. Pillow's plugins are
called directly and not through `Image.open`, which has one size limit for the whole process, half of what is allowed
here, and would try some forty formats.
"""

import io
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO

import numpy as np
from PIL import BmpImagePlugin, GifImagePlugin, Image, JpegImagePlugin, PngImagePlugin, TiffImagePlugin, WebPImagePlugin

from ...errors import ImageError
from .. import limits
from ..pixels import (
    NAMED,
    ORIENTATION,
    SHAPES,
    lay_on_ground,
    mark_blank,
    name_space,
    pillow_to_array,
    to_native_dtype,
    to_srgb,
    turn_upright,
)
from ..source import Source, Volume
from .dicom_header import is_dicom
from .paths import WHOLE, Reserve, StackSelection, open_in_folder, read_exactly

MAGIC = b"\x93NUMPY"  # of a .npy file
HEAD = 1024  # bytes that suffice to recognize a format

Content = BinaryIO | int  # an open file, or the descriptor of a folder
TIFFS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
FORMATS: dict[str, tuple[Callable[[bytes], bool], Callable[..., Any]]] = {
    "PNG": (lambda head: head.startswith(b"\x89PNG\r\n\x1a\n"), PngImagePlugin.PngImageFile),
    "JPEG": (lambda head: head.startswith(b"\xff\xd8\xff"), JpegImagePlugin.jpeg_factory),
    "TIFF": (lambda head: head[:4] in TIFFS, TiffImagePlugin.TiffImageFile),  # as Pillow decodes it: see `tiff`
    "BMP": (lambda head: head.startswith(b"BM"), BmpImagePlugin.BmpImageFile),
    "WebP": (lambda head: head[:4] == b"RIFF" and head[8:12] == b"WEBP", WebPImagePlugin.WebPImageFile),
    "GIF": (lambda head: head[:6] in (b"GIF87a", b"GIF89a"), GifImagePlugin.GifImageFile),
}
CHANNELS = {2: [2, 1, 0, 3], 4: [0, 3], 6: [2, 1, 0, 3]}  # of OpenCV's BGRA, for the color types of a PNG
ANIMATED = ("GIF", "WEBP", "PNG")  # a JPEG with several pictures holds previews of the same one
# Bytes of a pixel in Pillow's memory. Other modes need 4, because they become RGB; WebP needs 16 for copies.
BYTES = {"1": 1, "L": 1, "I;16": 2, "I;16B": 2, "I;16L": 2, "I;16N": 2}
SCAN = b"\xff\xda"
MAX_SCANNED = 2**30  # pixels times scans of a JPEG: a progressive one has about ten, each over all pixels


def read_source(content: Content, reserve: Reserve, selection: StackSelection = WHOLE) -> Source:
    """Return the source in a file, or in a folder: slices of a DICOM series, or the header that `selection` names."""
    from . import dicom_series

    if not isinstance(content, int):
        return _read_file(content, reserve, selection)
    if selection.header is None:
        return dicom_series.read(content, reserve, selection)
    with open_in_folder(content, selection.header) as file:
        return _read_file(file or io.BytesIO(), reserve, selection, content)


def _read_file(content: BinaryIO, reserve: Reserve, selection: StackSelection, folder: int | None = None) -> Source:
    from . import dicom, tiff, volume_files

    if selection.series is not None:
        raise ImageError("#series=… chooses among the series of a folder, but this is a file")
    head = _read_head(content)
    if is_dicom(head):
        return dicom.read(content, reserve, selection.stack)
    if selection.stack is not None:
        raise ImageError("#stack=… chooses among the stacks of a DICOM file or folder; this is another file")
    if head.startswith(MAGIC):
        return _read_npy(content, reserve)
    zipped = head.startswith(b"\x1f\x8b")
    if zipped or volume_files.get_header_size(head) is not None:
        return volume_files.read_nifti(content, reserve, zipped=zipped)
    if head[:4] in TIFFS:
        return tiff.read(content, reserve)
    return (
        volume_files.read(content, reserve, folder)
        if volume_files.is_headed(head)
        else read_pictures(content, head, reserve)
    )


def read_picture(content: Content, reserve: Reserve, selection: StackSelection = WHOLE) -> Image.Image | Source:
    """Return the first picture of a file as Pillow decodes it; the source of a deeper format."""
    if not isinstance(content, int):
        head = _read_head(content)
        if any(accepts(head) for accepts, _ in FORMATS.values()) and not is_dicom(head):
            with suppress(*((ImageError,) if head[:4] in TIFFS else ())):  # a kind that Pillow does not have
                return _load(content, head, reserve)[0]
            content.seek(0)
    return read_source(content, reserve, selection)


def _read_npy(file: BinaryIO, reserve: Reserve) -> Source:
    """Return the array in a file; raise `ImageError` for another shape or type, a damaged header, or missing bytes."""
    first = np.lib.format.read_magic(file) == (1, 0)
    read_header = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
    shape, by_columns, dtype = read_header(file)
    if dtype.kind not in "biuf":
        raise ImageError(f"a .npy file of {dtype.name}; allowed: booleans, integers and floats")
    if len(shape) not in (2, 3):
        raise ImageError(f"array of shape {str(shape)[:60]}; allowed: {SHAPES}")
    limits.check_size(shape, dtype.itemsize)
    reserve(limits.estimate_size(shape, dtype.itemsize))
    content = read_exactly(file, int(np.prod(shape)) * dtype.itemsize)
    return Source.of(content.view(dtype).reshape(shape, order="F" if by_columns else "C"))


def _read_head(content: BinaryIO) -> bytes:
    head = content.read(HEAD)
    content.seek(0)
    if not head:
        raise ImageError("the file is empty")
    return head


def read_pictures(file: BinaryIO, head: bytes, reserve: Reserve) -> Source:
    """Return the first frame of a file; if there are several, its volume has the others."""
    image, count = _load(file, head, reserve)
    if _is_deep_color(head):
        if count > 1:
            raise ImageError("an animated PNG of 16 bits a channel; allowed: 8 bits, or a single picture")
        return _read_deep_color(file, head, image)
    first, ground, notes = pillow_to_array(image)
    frames = [first]
    with suppress(EOFError):  # there are fewer than the file says
        for number in range(1, count):
            image.seek(number)
            frames.append(pillow_to_array(image)[0])
    if len(frames) == 1:
        key = image.info.get("transparency")
        if image.mode.startswith("I;16") and isinstance(key, int) and (first == key).any():
            pixels, display, blank, *_ = mark_blank(first, first == key)
            return Source(pixels, display, blank=blank, notes=notes)
        del image
        return Source.of(first, ground=255.0 if ground else None, notes=notes)
    if len({frame.ndim for frame in frames}) > 1:
        frames = [frame if frame.ndim == 3 else np.repeat(frame[:, :, None], 3, axis=2) for frame in frames]
    voxels, display, blank, *_ = to_native_dtype(np.stack(frames))
    return Volume(voxels, display, planes=False, blank=blank, notes=notes).get_slice(0)


def _load(file: BinaryIO, head: bytes, reserve: Reserve) -> tuple[Image.Image, int]:
    opener = next((opener for accepts, opener in FORMATS.values() if accepts(head)), None)
    if opener is None:
        kinds = f"{', '.join(FORMATS)}, DICOM, NIfTI, MetaImage, NRRD, NumPy .npy"
        raise ImageError(f"this is not an image that can be opened; allowed: {kinds}")
    scans = _count(file, SCAN) if opener is JpegImagePlugin.jpeg_factory else 1
    if opener is WebPImagePlugin.WebPImageFile:  # its canvas is allocated when it is opened
        reserve(_measure_webp(file, head))
    try:
        image: Image.Image = opener(file, "")
        shape = image.height, image.width
        if head[12:16] == b"IHDR" and head[24] in (2, 4) and isinstance(image.info.get("transparency"), int):
            image.info["transparency"] *= 255 // (2 ** head[24] - 1)  # Pillow stretches the samples, not this one
        wide = 16 if image.format == "WEBP" else 8 if _is_deep_color(head) else BYTES.get(image.mode, 4)
        size, count = limits.check_size(shape, wide), 1
        if image.format in ANIMATED and getattr(image, "is_animated", False):
            count = int(getattr(image, "n_frames", 1))
            size = max(size, limits.check_size(shape, 3, frames=count))
        if scans * image.width * image.height > MAX_SCANNED:
            raise ImageError(f"a JPEG of {image.width}x{image.height} pixels in {scans} scans takes too long")
        if image.format != "WEBP":
            reserve(size)
        image.load()
        if opener is BmpImagePlugin.BmpImageFile:
            _read_bmp_colors(file, head, image)
        elif (place := head.find(b"cICP")) > 0 and head[place + 4 : place + 6] != b"\x01\x0d":  # H.273: sRGB
            image.info[NAMED] = "cICP"
        return image, count
    except Image.DecompressionBombError:
        reason = f"more pixels than this kind of file may have; allowed: {2 * (Image.MAX_IMAGE_PIXELS or 0)}"
    except (OSError, SyntaxError) as error:  # Pillow's messages
        text = "".join(letter for letter in str(error) if letter.isprintable())[:100]
        reason = f"it is damaged or cut short ({text})"
    raise ImageError(reason)


def _read_bmp_colors(file: BinaryIO, head: bytes, image: Image.Image) -> None:
    """Add what a header of version 4 or 5 says of colors (wingdi.h, BITMAPV5HEADER) to the info of a picture."""
    size, kind = int.from_bytes(head[14:18], "little"), head[70:74][::-1]
    if size >= 124 and kind == b"MBED":
        start, count = (int.from_bytes(head[at : at + 4], "little") for at in (126, 130))
        file.seek(14 + start)
        image.info["icc_profile"] = file.read(min(count, 2**24)) or b"none"
    elif size >= 108 and (kind == b"LINK" or (kind == bytes(4) and any(head[74:122]))):
        image.info[NAMED] = "of a BMP header"


def _count(file: BinaryIO, mark: bytes) -> int:
    count, last = 0, b""
    while chunk := file.read(2**20):
        count += (last + chunk).count(mark)
        last = chunk[1 - len(mark) :]
    file.seek(0)
    return count


def _measure_webp(file: BinaryIO, head: bytes) -> int:
    """Bytes of the canvas and all frames of a WebP file, from the header of its first chunk (RFC 9649, section 2)."""
    kind, (width, height) = head[12:16], (int.from_bytes(head[at : at + 2], "little") % 2**14 for at in (26, 28))
    if kind == b"VP8X":
        width, height = (1 + int.from_bytes(head[at : at + 3], "little") for at in (24, 27))
    elif kind == b"VP8L":
        bits = int.from_bytes(head[21:25], "little")
        width, height = 1 + bits % 2**14, 1 + (bits >> 14) % 2**14
    shape, frames = (max(1, height), max(1, width)), max(1, _count(file, b"ANMF"))
    return max(limits.check_size(shape, 16), limits.check_size(shape, 3, frames=frames))


def _is_deep_color(head: bytes) -> bool:
    """Return whether a PNG has 16 bits a channel and several channels, of which Pillow keeps 8 bits."""
    return head[12:16] == b"IHDR" and head[24] == 16 and head[25] in CHANNELS


def _read_deep_color(file: BinaryIO, head: bytes, image: Image.Image) -> Source:
    """Return all bits of a PNG that Pillow has found to be whole: (h, w, 3), or (h, w) if it is gray."""
    import cv2

    file.seek(0)
    pixels: np.ndarray | None = cv2.imdecode(np.frombuffer(file.read(), np.uint8), cv2.IMREAD_UNCHANGED)
    shape = (0,) if pixels is None else pixels.shape
    channels = CHANNELS[head[25]] if shape[2:] == (4,) else [2, 1, 0] if head[25] == 2 else []
    if pixels is None or pixels.dtype != np.uint16 or shape[:2] != image.size[::-1] or not channels:
        raise ImageError("a PNG of 16 bits a channel that is not decoded as its header says")
    pixels, ground, notes = pixels[:, :, channels], None, name_space(image)
    if len(channels) != 3:
        pixels, ground, said = lay_on_ground(pixels)
        notes += said
    notes += to_srgb(pixels, image.info.get("icc_profile"))[1]
    upright = turn_upright(pixels, image.getexif().get(ORIENTATION, 1))
    return Source.of(upright, ground=65535.0 if ground else None, notes=notes)
