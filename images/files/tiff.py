"""TIFF: tifffile reads the structure and the pixels, Pillow the pages that tifffile does not decode by itself.

What a page declares (size, type, channels) is what it gives, or an error names it. Values stay as they are stored:
`WhiteIsZero` turns what is shown. No other file is opened, and no XML is read.
"""

import io
import math
import re
import struct
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any, BinaryIO

import numpy as np
from PIL import Image, TiffImagePlugin

from ...errors import ImageError
from .. import limits
from ..pixels import ORIENTATION, lay_on_ground, mark_blank, pillow_to_array, rescale, to_srgb, turn_upright
from ..source import Source, Volume
from .paths import Reserve, read_exactly

PRIVATE_NAMES = ("TIFF.DECOMPRESSORS._codecs",)  # of tifffile: decoders by their number
CODECS = (1, 5, 8, 32946, 32773, 34925, 50000)  # none, LZW, Deflate (twice), PackBits, LZMA, Zstandard: of plain bytes
UNPREDICTED = (1, 32773)  # none and PackBits, which do not know of the tag Predictor (TIFF 6.0, section 14)
WHITE_IS_ZERO, BLACK_IS_ZERO, RGB = range(3)
PREVIEW_OR_MASK = 1 | 4  # bits of NewSubfileType
PHOTOMETRIC, PROFILE, NODATA = 262, 34675, 42113  # tags
GRAY_BITS = (2, 4)  # of a sample, as which Pillow has 8; 1 bit is black and white
AXES = {"channels": "channels", "slices": "slices", "frames": "times", "C": "channels", "Z": "slices", "T": "times"}
MAX_WIDTH = 2**16  # pixels: Pillow's buffer has some rows


def read(file: BinaryIO, reserve: Reserve) -> Source:
    """Return the first page of a file that is no preview; if there are several like it, its volume has the others."""
    import tifffile

    codecs: Any = tifffile.TIFF.DECOMPRESSORS
    codecs._codecs |= {number: partial(_decompress, number) for number in CODECS[1:]}
    tiff = tifffile.TiffFile(file, name="-", _multifile=False, is_lsm=False, is_scanimage=False, is_ndpi=False)
    pages, notes = _choose_pages(tiff)
    page, stacked = pages[0], _count_stacked(pages)
    shape, frames = (page.imagelength, page.imagewidth, page.samplesperpixel), len(pages) * stacked * page.imagedepth
    itemsize = page.dtype.itemsize if page.dtype is not None else 4
    limits.check_size(shape, itemsize, frames=frames)
    reserve(limits.estimate_size(shape, itemsize, frames=frames))
    notes += _describe_axes(page, frames)
    decoded = zip(_decode(file, pages, stacked), pages, strict=True)
    parts, grounds = zip(*[_join_channels(page, values, notes) for values, page in decoded], strict=True)
    stored = parts[0] if len(parts) == 1 else np.concatenate(parts)
    missing = _find_missing(page, stored)
    if missing is not None and stored.dtype.kind == "f" and not missing.all():
        stored = np.where(missing, np.nan, stored)  # float32 may not have the number
    pixels, display, blank, *_ = rescale(stored, *_get_calibration(page, notes))
    if missing is not None:
        pixels, display, blank, *_ = mark_blank(pixels, missing | ~np.isfinite(pixels))
    if page.bitspersample in GRAY_BITS and pixels.ndim == 3:
        display = (0.0, 2.0**page.bitspersample - 1)
    if page.photometric == WHITE_IS_ZERO:
        display = display[::-1]
    elif stored.ndim == 4:  # colors keep their hue
        display = min(0.0, display[0]), display[1]
    fields: dict[str, Any] = {"blank": blank, "notes": tuple(dict.fromkeys(notes))}
    if len(pixels) == 1:
        full = float(np.iinfo(stored.dtype).max) if stored.dtype.kind == "u" else 1.0
        return Source(pixels[0], display, ground=full if any(grounds) else None, **fields)
    return Volume(pixels, display, planes=False, **fields).get_slice(0)


def _choose_pages(tiff: Any) -> tuple[list[Any], list[str]]:
    """Return the first page that is no preview and those like it, and what is left out."""
    by_place: dict[int, Any] = {}
    for page in islice(tiff.pages, limits.MAX_FRAMES + 1):
        if page.offset in by_place:  # the list leads back to itself
            break
        by_place[page.offset] = page
    if len(by_place) > limits.MAX_FRAMES:
        raise ImageError(f"more than {limits.MAX_FRAMES} pages; allowed: {limits.MAX_FRAMES}")
    pages = [page for page in by_place.values() if page.tags]
    for page in pages:
        if PHOTOMETRIC not in page.tags:
            page.photometric = RGB if page.samplesperpixel >= 3 else BLACK_IS_ZERO
        if page.compression in UNPREDICTED:
            page.predictor = 1
    whole = [page for page in pages if not page.subfiletype & PREVIEW_OR_MASK] or pages
    kinds = [
        (page.shaped, page.dtype, page.bitspersample, page.photometric, page.extrasamples, _is_turned(page))
        for page in whole
    ]
    if not kinds:
        raise ImageError("the TIFF file holds no page, or is cut short before the first one is described")
    others = [page for page, kind in zip(whole, kinds, strict=True) if kind != kinds[0]]
    named = ", ".join(f"page {page.index + 1} ({page.imagewidth}x{page.imagelength})" for page in others[:5])
    named += f" and {len(others) - 5} more" if len(others) > 5 else ""
    notes = [f"left out, because of another size or type: {named}"] if others else []
    tiff.filehandle.seek(tiff.pages.next_page_offset)
    if any(tiff.filehandle.read(tiff.tiff.offsetsize)):
        notes.append(f"the list of pages is broken or cut short after page {len(pages)}")
    return [page for page, kind in zip(whole, kinds, strict=True) if kind == kinds[0]], notes


def _is_turned(page: Any) -> bool:
    """Return whether the rows of a page are shown as columns."""
    return bool(page.tags.valueof(ORIENTATION, default=1) in (5, 6, 7, 8))


def _count_stacked(pages: list[Any]) -> int:
    """Return how many frames stand one behind the other in the only page of a file of ImageJ or tifffile."""
    page = pages[0]
    if len(pages) > 1 or not page.is_final:
        return 1
    shape = re.match(r'(?:{"shape": *\[|shape=\()([\d, ]+)', page.shaped_description or "")
    if shape is not None:
        return max(1, math.prod(map(int, re.findall(r"\d+", shape[1]))) // int(math.prod(page.shaped)))
    count = re.search(r"^images=(\d{1,9})$", page.imagej_description or "", re.MULTILINE)
    return 1 if count is None else int(count[1])


def _describe_axes(page: Any, count: int) -> list[str]:
    """Return a note on what frames are, if a stack of ImageJ, OME or tifffile has channels, or slices and times."""
    sizes = dict(re.findall(r"^(channels|slices|frames)=(\d+)$", page.imagej_description or "", re.MULTILINE))
    if order := re.search(r'DimensionOrder="XY([CZT]{3})"', page.description):
        stated = dict(re.findall(r'\bSize([CZT])="(\d+)"', page.description))
        sizes = {axis: stated.get(axis, 1) for axis in order[1]}
    if shaped := re.match(r'{"shape": *\[([\d, ]+)\], *"axes": *"([A-Z]+)"', page.shaped_description or ""):
        sizes = dict([*zip(shaped[2], shaped[1].split(","), strict=False)][::-1])
    several = {AXES[axis]: int(size) for axis, size in sizes.items() if axis in AXES and int(size) > 1}
    if page.samplesperpixel > 1 or (len(several) < 2 and "channels" not in several):
        return []
    told, first = ", ".join(f"{size} {name}" for name, size in several.items()), next(iter(several))
    lost = f"; the file holds {count} of them" if count != math.prod(several.values()) else ""
    return [f"the frames are {told}: numbered one after the other, {first} fastest{lost}"]


def _get_calibration(page: Any, notes: list[str]) -> tuple[float, float]:
    """Return the slope and the intercept of ImageJ, which stores signed values as unsigned ones less -32768."""
    text = page.imagej_description or ""
    matches = {
        name: re.search(rf"^{name}=(-?\d+(?:\.\d+)?(?:E-?\d+)?)$", text, re.MULTILINE) for name in ("cf", "c1", "c0")
    }
    function, slope, intercept = (float(match[1]) if match else None for match in matches.values())
    if function:
        notes.append("the calibration function of ImageJ is not applied: values are as they are stored")
    known = not function and slope and intercept is not None
    return (slope or 1.0, intercept or 0.0) if known else (1.0, 0.0)


def _decode(file: BinaryIO, pages: list[Any], stacked: int) -> Iterator[np.ndarray]:
    """Yield the values of each page, (frames, height, width, channels), upright; `stacked` of them in one page."""
    image: Any = None
    for page in pages:
        plain = page.bitspersample in (8, 16, 32, 64) and page.predictor in (1, 2) and page.compression in CODECS
        if not plain or page.photometric not in (WHITE_IS_ZERO, BLACK_IS_ZERO, RGB) or page.dtype is None:
            image = _seek_with_pillow(file, page, image)
            yield _decode_with_pillow(image, page)
            file.seek(0, io.SEEK_END)  # libtiff has moved the descriptor: what is buffered does not count
            continue
        if page.is_final:
            file.seek(page.dataoffsets[0])
            content = read_exactly(file, stacked * page.nbytes)
            values = content.view(page.dtype.newbyteorder(page.parent.byteorder)).reshape(stacked, *page.shaped)
        else:
            _check_segments(page)
            values = page.asarray(squeeze=False, maxworkers=1)[None]
        values = np.moveaxis(values, 1, -2).reshape(-1, page.imagelength, page.imagewidth, page.samplesperpixel)
        turned = turn_upright(np.moveaxis(values, 0, -1), int(page.tags.valueof(ORIENTATION, default=1)))
        yield np.moveaxis(turned, -1, 0)


def _check_segments(page: Any) -> None:
    """Raise `ImageError` if the file does not hold each of the strips or tiles of a page."""
    count, end = math.prod(page.chunked), page.parent.filehandle.size
    places = zip(page.dataoffsets, page.databytecounts, strict=False)
    gone = count - sum(0 < place < place + size <= end for place, size in places)
    if gone > 0:
        raise ImageError(f"{gone} of {count} strips or tiles of page {page.index + 1} are empty or cut short")


def _decompress(compression: int, content: bytes, out: int) -> bytes:
    """Return the `out` bytes of a strip or tile, which libtiff decodes as those of a gray page of 8 bits."""
    width = next(width for width in range(min(out, MAX_WIDTH), 0, -1) if out % width == 0)
    tags = {256: width, 257: out // width, 258: 8, 259: compression, 262: 1, 273: 122, 277: 1, 278: out // width}
    tags[279] = len(content)
    directory = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items()) + bytes(4)
    page = struct.pack("<2sHIH", b"II", 42, 8, len(tags)) + directory + content
    return TiffImagePlugin.TiffImageFile(io.BytesIO(page), "").tobytes()


def _seek_with_pillow(file: BinaryIO, page: Any, image: Any) -> Any:
    try:
        if image is None:
            file.seek(0)
            image = TiffImagePlugin.TiffImageFile(file, "")
        image.seek(page.index)
    except Exception:  # Pillow knows the modes that it has, and raises anything for others
        raise _refuse(page) from None
    return image


def _decode_with_pillow(image: Image.Image, page: Any) -> np.ndarray:
    """Return the values of a page, if they are of the size and type that it declares."""
    image.info.pop("icc_profile", None)  # see `_join_channels`
    values, sides = pillow_to_array(image)[0], (page.imagelength, page.imagewidth)
    declared = page.dtype if page.dtype is not None and page.bitspersample >= 8 else np.uint8
    if values.shape[:2] != (sides[::-1] if _is_turned(page) else sides) or values.dtype != declared:
        raise _refuse(page)
    if page.photometric == WHITE_IS_ZERO and values.dtype.kind == "u":
        values = np.iinfo(values.dtype).max - values  # Pillow has turned 8 bits, `pillow_to_array` 16
    if page.bitspersample in GRAY_BITS and values.ndim == 2:
        values = values // (255 // (2**page.bitspersample - 1))  # Pillow has stretched them
    return values.reshape(1, *values.shape[:2], -1)


def _refuse(page: Any) -> ImageError:
    kind, compression = (getattr(value, "name", value) for value in (page.photometric, page.compression))
    what = f"{page.dtype} of {page.bitspersample} bits, {kind}, {compression} compression"
    return ImageError(f"TIFF pixels that cannot be read ({what}); allowed: gray or RGB, integers or floats, no loss")


def _join_channels(page: Any, values: np.ndarray, notes: list[str]) -> tuple[np.ndarray, bool]:
    """Return frames, gray (n, height, width) or RGB (n, height, width, 3), of values (n, height, width, channels), and
    whether one was laid on white."""
    white = False
    colors = 3 if page.photometric >= RGB and values.shape[3] >= 3 else 1
    extra, kinds = values.shape[3] - colors, page.extrasamples
    unnamed = not kinds and colors + extra == 4 and values.dtype.str[1:] in ("u1", "u2")  # OpenCV does not name opacity
    if extra and (unnamed or kinds[:1] in ((1,), (2,))):
        laid = [lay_on_ground(frame[:, :, : colors + 1], associated=kinds[:1] == (1,)) for frame in values]
        notes += [note for _, _, said in laid for note in said]
        white = any(ground for _, ground, _ in laid)
        values, extra = np.stack([frame for frame, _, _ in laid]).reshape(*values.shape[:3], colors), extra - 1
    elif extra and colors == 1:
        notes.append(f"the {values.shape[3]} channels of a pixel follow one another as frames")
        return np.moveaxis(values, 3, 1).reshape(-1, *values.shape[1:3]), white
    if extra:
        notes.append(f"channels left out, whose meaning the file does not say: {extra}")
    values, said = to_srgb(values[:, :, :, 0] if colors == 1 else values[:, :, :, :3], page.tags.valueof(PROFILE))
    notes += said
    return values, white


def _find_missing(page: Any, stored: np.ndarray) -> np.ndarray | None:
    """Return which gray values the file calls no data, as GDAL writes it; None if there are none."""
    try:
        value = float(page.tags.valueof(NODATA).strip("\0 "))
    except (AttributeError, ValueError):  # there is no such text
        return None
    with np.errstate(all="ignore"):
        missing = stored == (stored.dtype.type(value) if stored.dtype.kind == "f" else value)
    return missing if stored.ndim == 3 and missing.any() else None
