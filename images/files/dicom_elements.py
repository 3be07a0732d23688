"""The elements of a DICOM file: recognized, read up to its pixels or whole, inflated no further than they need.

Only those in `dicom_tags.READ` are parsed. pydicom's warnings quote values and are silenced, in the process that reads.
"""

import io
import itertools
import logging
import os
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, BinaryIO

from ...errors import ImageError
from .. import limits
from . import dicom_tags

DEFLATED = "1.2.840.10008.1.2.1.99"
PIXEL_TAGS = (0x7FE00010, 0x7FE00009, 0x7FE00008)
MAX_ELEMENTS = 20_000  # at the top level of a file; the largest of real ones have some hundred
TOO_MANY = f"it has more than {MAX_ELEMENTS} DICOM elements"
SMALL_FILE = 2**22  # bytes
HEADER_ROOM = 2**23  # bytes of a deflated file that are not pixels
INFLATED = bytes(128) + b"DICM\x02\0\x10\0UI\x14\0" + b"1.2.840.10008.1.2.1\0"  # the beginning of a file


class NoPictureError(ImageError):
    """A DICOM file without an image: an index, a report, a treatment plan."""


def is_dicom(head: bytes) -> bool:
    """Whether a file begins like DICOM: with the DICM mark or, if that is missing, with an element of group 2 or 8.

    >>> is_dicom(bytes(128) + b"DICM"), is_dicom(bytes(200))
    (True, False)
    """
    if head[128:132] == b"DICM":
        return True
    typed = head[4:6].isalpha() and head[4:6].isupper()
    if head[:2] in (b"\x02\0", b"\x08\0") and head[3:4] == b"\0":
        return typed or (head[5:8] == b"\0\0\0" and head[4] % 2 == 0)
    return head[:2] in (b"\0\x02", b"\0\x08") and head[2:3] == b"\0" and typed


@dataclass(frozen=True)
class Header:
    """What a file says before its pixels.

    Args:
        elements: those in `READ`, as a pydicom dataset.
        frames, samples: how many frames there are, and values per pixel.
        stored: bytes of the pixels as they are stored, decoded.
        size: bytes of the pixels in their units, at most.
        deflated: whether all elements are compressed.
        whole: whether `elements` has the pixels too.
    """

    elements: Any
    frames: int
    samples: int
    stored: int
    size: int
    deflated: bool
    whole: bool


def read_header(file: BinaryIO, *, small_whole: bool = False) -> Header:
    """The elements before the pixels; raises `NoPictureError` if there are none, and `ImageError` for a size.

    Args:
        file: open for reading.
        small_whole: read also the pixels if the file is small: to parse it once takes half the time.
    """
    deflated = is_deflated(file)
    whole = small_whole and not deflated and file.seek(0, os.SEEK_END) <= SMALL_FILE
    file.seek(0)
    elements = parse(inflate(file, HEADER_ROOM, whole=False) if deflated else file, stop_before_pixels=not whole)
    file.seek(0)
    if "Rows" not in elements or "Columns" not in elements:
        raise NoPictureError("the DICOM file holds no picture")
    shape, frames = (int(elements.Rows), int(elements.Columns)), int(elements.get("NumberOfFrames") or 1)
    itemsize, samples = max(1, int(elements.get("BitsAllocated", 16)) // 8), int(elements.get("SamplesPerPixel", 1))
    stored = limits.check_size(shape, samples * itemsize, frames=frames)
    size = limits.estimate_size((*shape, samples), itemsize, frames=frames)
    return Header(elements, frames, samples, stored, size, deflated, whole)


def parse(file: BinaryIO, *, stop_before_pixels: bool = False) -> Any:
    """The elements in `READ` as a pydicom dataset; raises `ImageError` if the file has too many of any kind."""
    from pydicom.filereader import read_partial
    from pydicom.tag import Tag

    _silence_pydicom()
    count = itertools.count(1)

    def stop(tag: Any, vr: str | None, length: int) -> bool:
        if next(count) > MAX_ELEMENTS:
            raise ImageError(TOO_MANY)
        return stop_before_pixels and tag in PIXEL_TAGS

    tags: Any = [Tag(keyword) for keyword in dicom_tags.READ]
    return read_partial(file, stop, force=True, specific_tags=tags)


@cache
def _silence_pydicom() -> None:
    """Keep pydicom from warning and logging: its messages quote values. A worker never needs them."""
    logging.getLogger("pydicom").setLevel(logging.CRITICAL + 1)
    warnings.filterwarnings("ignore", module="pydicom")


def is_deflated(file: BinaryIO) -> bool:
    """Whether the elements of a file are compressed; the file is then at the first of them, else at its beginning."""
    from pydicom.filereader import read_dataset
    from pydicom.tag import Tag

    _silence_pydicom()
    file.seek(128)
    meta: Any = {}
    if file.read(4) == b"DICM":
        meta = read_dataset(file, False, True, stop_when=_stop_after_meta(), specific_tags=[Tag(0x00020010)])
        if meta.get("TransferSyntaxUID") == DEFLATED:
            return True
        _check_group(file.read(2))
    file.seek(0)
    return False


def _check_group(start: bytes) -> None:
    """Raises `ImageError` if the elements begin with those of group 0: pydicom would read them all, however many."""
    if start == b"\0\0":
        raise ImageError("it is damaged or cut short (its first element is of group 0)")


def _stop_after_meta() -> Callable[[Any, str | None, int], bool]:
    """Tells pydicom where the elements of group 2 end."""
    count = itertools.count(1)

    def stop(tag: Any, vr: str | None, length: int) -> bool:
        if next(count) > MAX_ELEMENTS:
            raise ImageError(TOO_MANY)
        return bool(tag.group != 2)

    return stop


def inflate(file: BinaryIO, room: int, *, whole: bool) -> BinaryIO:
    """The first `room` bytes of the elements of a deflated file, as a file that is not deflated.

    Raises `ImageError` if `whole` is asked for and there are more: pydicom would inflate all of it.
    """
    is_deflated(file)
    inflater, plain = zlib.decompressobj(-zlib.MAX_WBITS), bytearray()
    while len(plain) < room and not inflater.eof and (packed := inflater.unconsumed_tail or file.read(2**20)):
        plain += inflater.decompress(packed, min(2**20, room - len(plain)))
    if whole and len(plain) == room and inflater.decompress(inflater.unconsumed_tail or file.read(2**20), 1):
        raise ImageError(f"it inflates to more than the {room / 2**20:.1f} MiB that its header and pixels need")
    _check_group(bytes(plain[:2]))
    return io.BytesIO(INFLATED + plain)
