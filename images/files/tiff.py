"""TIFF: tifffile reads the structure and the pixels, Pillow the pages that tifffile does not decode by itself.

What a page declares (size, type, channels) is what it gives, or an error names it. Values stay as they are stored:
`WhiteIsZero` turns what is shown. No other file is opened, and no XML is read.
"""

import io
import math
import re
import struct
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any, BinaryIO

import numpy as np
from PIL import TiffImagePlugin

from ...errors import ImageError
from .. import limits
from ..pixels import ORIENTATION, lay_over, mark_blank, pillow_to_array, to_native_dtype, turn_upright
from ..source import Source, Volume
from .paths import read_exactly

SIGNATURES = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
CODECS = (1, 5, 8, 32946, 32773, 34925, 50000)  # none, LZW, Deflate (twice), PackBits, LZMA, Zstandard: of plain bytes
WHITE_IS_ZERO, BLACK_IS_ZERO, RGB = range(3)
PREVIEW = 1  # bit of NewSubfileType
PHOTOMETRIC, PLANES, NODATA = 262, 33629, 42113  # tags; PLANES has one entry for each frame of a MetaMorph stack
MAX_WIDTH = 2**16  # pixels: Pillow's buffer has some rows
MAX_NAMED = 5  # pages that a note names


def read(file: BinaryIO, reserve: Callable[[int], None]) -> Source:
    """Return the first page of a file that is no preview; if there are several like it, its volume has the others."""
    import tifffile

    for number in CODECS[1:]:
        tifffile.TIFF.DECOMPRESSORS._codecs[number] = partial(_decompress, number)
    tiff = tifffile.TiffFile(file, name="-", _multifile=False, is_lsm=False, is_scanimage=False, is_ndpi=False)
    pages, notes = _choose_pages(tiff)
    page, stacked = pages[0], _count_stacked(pages)
    shape, frames = (page.imagelength, page.imagewidth, page.samplesperpixel), len(pages) * stacked * page.imagedepth
    itemsize = page.dtype.itemsize if page.dtype is not None else 4
    limits.check_size(shape, itemsize, frames=frames)
    reserve(limits.estimate_size(shape, itemsize, frames=frames))
    parts = [_join_channels(page, values, notes) for values in _decode(file, pages, stacked)]
    stored = parts[0] if len(parts) == 1 else np.concatenate(parts)
    pixels, display, blank = to_native_dtype(stored)
    missing = _find_missing(page, stored)
    if missing is not None:
        pixels, display, blank = mark_blank(pixels, missing | ~np.isfinite(pixels))
    if _get_photometric(page) == WHITE_IS_ZERO:
        display = display[::-1]
    if len(pixels) == 1:
        return Source(pixels[0], display, blank=blank, notes=tuple(dict.fromkeys(notes)))
    return Volume(pixels, display, planes=False, blank=blank, notes=tuple(dict.fromkeys(notes))).get_slice(0)


def _choose_pages(tiff: Any) -> tuple[list[Any], list[str]]:
    """Return the first page that is no preview and those like it, and what is left out."""
    pages = list(islice(tiff.pages, limits.MAX_FRAMES + 1))
    if len(pages) > limits.MAX_FRAMES:
        raise ImageError(f"more than {limits.MAX_FRAMES} pages; allowed: {limits.MAX_FRAMES}")
    pages = [page for page in pages if page.tags]
    if not pages:
        raise ImageError("the TIFF file holds no page, or is cut short before the first one is described")
    whole = [page for page in pages if not page.subfiletype & PREVIEW] or pages
    kind = _get_kind(whole[0])
    chosen, others = ([page for page in whole if (_get_kind(page) == kind) is same] for same in (True, False))
    named = [f"page {page.index + 1} ({page.imagewidth}x{page.imagelength})" for page in others[:MAX_NAMED]]
    if len(others) > MAX_NAMED:
        named.append(f"{len(others) - MAX_NAMED} more")
    reason = f"another size or type than page {whole[0].index + 1}"
    notes = [f"{', '.join(named)} {'is' if len(others) == 1 else 'are'} left out: {reason}"] if others else []
    tiff.filehandle.seek(tiff.pages.next_page_offset)
    if any(tiff.filehandle.read(tiff.tiff.offsetsize)):
        notes.append(f"the list of pages is broken or cut short after page {len(pages)}")
    return chosen, notes


def _get_kind(page: Any) -> tuple[Any, ...]:
    return page.shaped, page.dtype, page.bitspersample, _get_photometric(page), page.extrasamples


def _get_photometric(page: Any) -> int:
    """Return what the values mean; if the file does not say it, three channels are RGB, and high values are light."""
    return int(page.photometric) if PHOTOMETRIC in page.tags else RGB if page.samplesperpixel >= 3 else BLACK_IS_ZERO


def _count_stacked(pages: list[Any]) -> int:
    """Return how many frames stand one behind the other where a file of ImageJ, tifffile or MetaMorph has one page."""
    page = pages[0]
    if len(pages) > 1 or not page.is_final:
        return 1
    shape = re.match(r'(?:{"shape": *\[|shape=\()([\d, ]+)', page.shaped_description or "")
    if shape is not None:
        return max(1, math.prod(map(int, re.findall(r"\d+", shape[1]))) // math.prod(page.shaped))
    count = re.search(r"^images=(\d{1,9})$", page.imagej_description or "", re.MULTILINE)
    return int(count[1]) if count is not None else page.tags[PLANES].count if PLANES in page.tags else 1


def _decode(file: BinaryIO, pages: list[Any], stacked: int) -> Iterator[np.ndarray]:
    """Yield the values of each page, (frames, height, width, channels), upright; `stacked` of them in one page."""
    image: Any = None
    for page in pages:
        if not _is_plain(page):
            image = image or _open_with_pillow(file, page)
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


def _is_plain(page: Any) -> bool:
    """Return whether tifffile decodes a page by itself."""
    if page.dtype is not None and page.dtype.kind == "c":
        raise ImageError(f"TIFF values of type {page.dtype.name}; allowed: integers and floats")
    whole = page.dtype is not None and page.bitspersample in (8, 16, 32, 64) and page.predictor in (1, 2)
    return whole and page.compression in CODECS and _get_photometric(page) in (WHITE_IS_ZERO, BLACK_IS_ZERO, RGB)


def _check_segments(page: Any) -> None:
    """Raise `ImageError` if the file does not hold each of the strips or tiles of a page."""
    count, end = math.prod(page.chunked), page.parent.filehandle.size
    there = sum(
        0 < place < place + size <= end for place, size in zip(page.dataoffsets, page.databytecounts, strict=False)
    )
    if there < count:
        raise ImageError(f"{count - there} of {count} strips or tiles of page {page.index + 1} are empty or cut short")


def _decompress(compression: int, content: bytes, out: int) -> bytes:
    """Return the `out` bytes of a strip or tile, which libtiff decodes as those of a gray page of 8 bits."""
    width = next(width for width in range(min(out, MAX_WIDTH), 0, -1) if out % width == 0)
    tags = {256: width, 257: out // width, 258: 8, 259: compression, 262: 1, 273: 122, 277: 1, 278: out // width}
    tags[279] = len(content)
    directory = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items()) + bytes(4)
    page = struct.pack("<2sHIH", b"II", 42, 8, len(tags)) + directory + content
    return TiffImagePlugin.TiffImageFile(io.BytesIO(page), "").tobytes()


def _open_with_pillow(file: BinaryIO, page: Any) -> TiffImagePlugin.TiffImageFile:
    file.seek(0)
    try:
        return TiffImagePlugin.TiffImageFile(file, "")
    except Exception:  # it knows the modes that it has, and raises anything for others
        pass
    raise _refuse(page)


def _decode_with_pillow(image: TiffImagePlugin.TiffImageFile, page: Any) -> np.ndarray:
    """Return the values of a page, if they are of the size and type that it declares."""
    try:
        image.seek(page.index)
    except Exception:
        raise _refuse(page) from None
    values = pillow_to_array(image)
    sides = page.imagelength, page.imagewidth
    sides = sides[::-1] if page.tags.valueof(ORIENTATION, default=1) in (5, 6, 7, 8) else sides
    declared = np.dtype(np.uint8) if page.dtype is None or page.dtype == np.bool_ else page.dtype
    if values.shape[:2] != sides or values.dtype != declared:
        raise _refuse(page)
    if _get_photometric(page) == WHITE_IS_ZERO and declared == np.uint8:
        values = 255 - values  # Pillow has turned them
    return values.reshape(1, *sides, -1)


def _refuse(page: Any) -> ImageError:
    kind, compression = (getattr(value, "name", value) for value in (page.photometric, page.compression))
    what = f"{page.bitspersample} bits a value, {kind}, {compression} compression"
    return ImageError(
        f"TIFF pixels of a kind that cannot be read ({what}); allowed: gray and RGB of 8 to 64 bits without loss, and "
        "what Pillow reads"
    )


def _join_channels(page: Any, values: np.ndarray, notes: list[str]) -> np.ndarray:
    """Return frames, gray (n, height, width) or RGB (n, height, width, 3), of values (n, height, width, channels)."""
    colors = 3 if _get_photometric(page) not in (WHITE_IS_ZERO, BLACK_IS_ZERO) and values.shape[3] >= 3 else 1
    extra, opacity = values.shape[3] - colors, [int(kind) for kind in page.extrasamples[:1]]
    if extra and opacity in ([1], [2]):
        values = np.stack([lay_over(frame[:, :, : colors + 1], associated=opacity == [1]) for frame in values])
        values, extra = values.reshape(*values.shape[:3], colors), extra - 1
    elif extra and colors == 1:
        notes.append(f"the {values.shape[3]} channels of a pixel follow one another as frames")
        return np.moveaxis(values, 3, 1).reshape(-1, *values.shape[1:3])
    if extra:
        notes.append(f"channels left out, whose meaning the file does not say: {extra}")
    return values[:, :, :, 0] if colors == 1 else values[:, :, :, :3]


def _find_missing(page: Any, stored: np.ndarray) -> np.ndarray | None:
    """Return which gray values the file calls no data, as GDAL writes it; None if there are none."""
    try:
        value = float(page.tags.valueof(NODATA).strip("\0 ").replace(",", "."))
    except (AttributeError, ValueError):  # there is no such text
        return None
    with np.errstate(all="ignore"):
        missing = stored == (stored.dtype.type(value) if stored.dtype.kind == "f" else value)
    return missing if stored.ndim == 3 and missing.any() else None
