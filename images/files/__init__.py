"""Opens images as sources: a file of any known format, a folder, bytes, or a data URL.

Files are recognized by their content, never by their name. Every file may be hostile: sizes are checked in the header
before anything is decoded (`limits`), a path must stay inside the task's folder (`paths`), and any exception of a
decoder becomes one `ImageError` that names the file and the reason. Of a DICOM file only pixels, spacing, display range
and unit are read, and no message quotes it.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, TypeVar

from PIL import Image

from viewbox.errors import ImageError
from viewbox.images.files import paths
from viewbox.images.source import Source

__all__ = ["ImageLocation", "open_image", "open_picture"]

ImageLocation = str | os.PathLike[str] | bytes  # a path, a data: URL, or the bytes of a file
HEAD = 1024  # bytes that suffice to recognize a format

Opened = TypeVar("Opened")


def open_image(where: ImageLocation, folder: str | os.PathLike[str] | None = None) -> Source:
    """Open an image file at its native depth.

    Reads PNG, JPEG, TIFF, BMP, WebP, GIF, DICOM, NIfTI (.nii, .nii.gz), NumPy (.npy), and a folder with the slices of
    one DICOM series. Animations, multi-page and multi-frame files open at their first frame, a NIfTI volume at its
    middle axial slice, and a series at the middle of its own plane; `source.volume` has the other slices. Transparent
    pictures are shown on black.

    Args:
        where: a path, a `data:` URL, or the bytes of a file.
        folder: if given, the path is relative to this folder and must lie inside it.

    Raises:
        ImageError: the file is missing, too large, damaged, of another format, or outside the folder.

    >>> from viewbox.images.ref import ImageRef
    >>> open_image(ImageRef.of(Image.new("L", (4, 2), 7)).to_data_url()).size
    (4, 2)
    >>> open_image(b"plain text")
    Traceback (most recent call last):
    viewbox.errors.ImageError: image (10 bytes): this is not an image that can be opened; allowed: PNG, JPEG, TIFF, \
BMP, WebP, GIF, DICOM, NIfTI, NumPy .npy
    """
    return _open_with(_read_source, where, folder)


def open_picture(where: ImageLocation, folder: str | os.PathLike[str] | None = None) -> Image.Image:
    """Open the first picture of a file as Pillow decodes it (mode, palette, alpha); deeper formats as displayed."""
    return _open_with(_read_picture, where, folder)


def _open_with(
    read: Callable[[BinaryIO | Path], Opened], where: ImageLocation, folder: str | os.PathLike[str] | None
) -> Opened:
    """Raises errors outside `except`, so that no error carries the decoder's own exception."""
    name = paths.describe_location(where)
    try:
        with paths.open_location(where, folder) as content:
            return read(content)
    except ImageError as error:
        reason = str(error)
    except MemoryError:
        reason = "there is not enough memory to open it"
    except Exception as error:  # decoders raise anything for a damaged file
        reason = f"it is damaged or cut short ({type(error).__name__})"
    raise ImageError(f"image {name}: {reason}", given=name)


def _read_source(content: BinaryIO | Path) -> Source:
    from viewbox.images.files import dicom, dicom_series, nifti, npy, pillow

    if isinstance(content, Path):
        return dicom_series.read(content)
    head = _read_head(content)
    if head.startswith(npy.MAGIC):
        return npy.read(content)
    if dicom.is_dicom(head):
        return dicom.read(content)
    zipped = head.startswith(b"\x1f\x8b")
    if zipped or nifti.is_nifti(head):
        return nifti.read(content, zipped=zipped)
    return pillow.read(content, head)


def _read_picture(content: BinaryIO | Path) -> Image.Image:
    from viewbox.images.files import pillow

    if not isinstance(content, Path):
        head = _read_head(content)
        if pillow.is_picture(head):
            return pillow.load_picture(content, head).copy()
    source = _read_source(content)
    return Image.fromarray(source.to_uint8(source.pixels))


def _read_head(content: BinaryIO) -> bytes:
    head = content.read(HEAD)
    content.seek(0)
    if not head:
        raise ImageError("the file is empty")
    return head
