"""Reads a file of any known format, recognized by its content. Runs in a worker (`viewbox.images.files.worker`)."""

import io
from contextlib import suppress
from typing import BinaryIO

import numpy as np
from PIL import Image

from ...errors import ImageError
from .. import limits
from ..pixels import SHAPES
from ..source import Source
from . import pillow
from .dicom_header import is_dicom
from .paths import WHOLE, Reserve, Selection, open_in_folder, read_exactly

MAGIC = b"\x93NUMPY"  # of a .npy file
HEAD = 1024  # bytes that suffice to recognize a format

Content = BinaryIO | int  # an open file, or the descriptor of a folder


def read_source(content: Content, reserve: Reserve, selection: Selection = WHOLE) -> Source:
    """Return the source in a file, or in a folder: slices of a DICOM series, or the header that `selection` names."""
    from . import dicom_series

    if not isinstance(content, int):
        return _read_file(content, reserve, selection)
    if selection.header is None:
        return dicom_series.read(content, reserve, selection)
    with open_in_folder(content, selection.header) as file:
        return _read_file(file or io.BytesIO(), reserve, selection, content)


def _read_file(content: BinaryIO, reserve: Reserve, selection: Selection, folder: int | None = None) -> Source:
    from . import dicom, headed, nifti, tiff

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
    if zipped or nifti.get_header_size(head) is not None:
        return nifti.read(content, reserve, zipped=zipped)
    if head[:4] in pillow.TIFFS:
        return tiff.read(content, reserve)
    if headed.is_headed(head):
        return headed.read(content, reserve, folder)
    return pillow.read(content, head, reserve)


def read_picture(content: Content, reserve: Reserve, selection: Selection = WHOLE) -> Image.Image | Source:
    """Return the first picture of a file as Pillow decodes it; the source of a deeper format."""
    if not isinstance(content, int):
        head = _read_head(content)
        if pillow.is_picture(head) and not is_dicom(head):
            with suppress(*((ImageError,) if head[:4] in pillow.TIFFS else ())):  # a kind that Pillow does not have
                return pillow.load_picture(content, head, reserve)
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
