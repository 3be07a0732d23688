"""Images as sources: whatever file, folder, bytes, data URL, Pillow image or array they come from.

Files are known by their content, never by their name. Every one is hostile until shown otherwise: sizes are checked in
the header before anything is decoded (`limits`), a path must stay inside the task's folder (`places`), and whatever a
decoder raises becomes one `ImageError` that names the file and the reason. Of a DICOM file only pixels, spacing,
display and unit are kept, and no message quotes it.
"""

import os
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from PIL import Image

from viewbox.errors import ImageError
from viewbox.images.files import paths
from viewbox.images.files.arrays import of_array, read_npy
from viewbox.images.source import Source

__all__ = ["Where", "open_image", "open_picture", "source_of"]

Where = str | os.PathLike[str] | bytes
HEAD = 1024  # bytes that tell the kinds of file apart


def open_image(where: Where, folder: str | os.PathLike[str] | None = None) -> Source:
    """The image at `where`: a path, a `data:` URL, or the bytes of a file; with `folder`, the path must lie inside it.

    Opens PNG, JPEG, TIFF, BMP, WebP, GIF, DICOM, NIfTI (.nii, .nii.gz), NumPy (.npy), and a folder with the slices of
    one DICOM series. Animations, pages and DICOM frames open at the first of them, a NIfTI volume at its middle axial
    slice and a series at the middle of its own plane; `source.volume` has the others. Transparent pictures stand on
    black, as at a light box. Raises `ImageError` in words for everything else.

    >>> from viewbox.images.ref import ImageRef
    >>> open_image(ImageRef.of(Image.new("L", (4, 2), 7)).data_url()).size
    (4, 2)
    >>> open_image(b"plain text")
    Traceback (most recent call last):
    viewbox.errors.ImageError: image (10 bytes): this is no image that can be opened; allowed: PNG, JPEG, TIFF, BMP, \
WebP, GIF, DICOM, NIfTI, NumPy .npy
    """
    return _opened(where, folder, _source)


def open_picture(where: Where, folder: str | os.PathLike[str] | None = None) -> Image.Image:
    """The first picture at `where` as Pillow has it (mode, palette, alpha); of deeper formats, what is shown first."""
    return _opened(where, folder, _picture)


def source_of(image: Image.Image | np.ndarray | Where, **about: Any) -> Source:
    """The source of pixels in memory or of a file; raises `ImageError` for what cannot be shown."""
    from viewbox.images.files.pillow import of_picture

    if isinstance(image, np.ndarray):
        return of_array(image, **about)
    if isinstance(image, Image.Image):
        return of_picture(image, **about)
    if isinstance(image, str | os.PathLike | bytes):
        return Source.of(open_image(image), **about)
    raise ImageError(f"{type(image).__name__} is no image; allowed: a path, bytes, a Pillow image, a NumPy array")


def _opened(where: Where, folder: str | os.PathLike[str] | None, read: Any) -> Any:
    """What `read` makes of the file. Errors are raised outside `except`: none carries the decoder's own along."""
    name = paths.name_of(where)
    try:
        with paths.opened(where, folder) as content:
            return read(content)
    except ImageError as error:
        reason = str(error)
    except MemoryError:
        reason = "there is not enough memory to open it"
    except Exception as error:  # decoders raise anything for a damaged file
        reason = f"it is damaged or cut short ({type(error).__name__})"
    raise ImageError(f"image {name}: {reason}")


def _source(content: BinaryIO | Path) -> Source:
    from viewbox.images.files import dicom, dicom_series, nifti, pillow

    if isinstance(content, Path):
        return dicom_series.read(content)
    head = _head(content)
    if head.startswith(b"\x93NUMPY"):
        return read_npy(content)
    if dicom.is_dicom(head):
        return dicom.read(content)
    if head.startswith(b"\x1f\x8b") or nifti.is_nifti(head):
        return nifti.read(content, zipped=head.startswith(b"\x1f\x8b"))
    return pillow.read(content, head)


def _picture(content: BinaryIO | Path) -> Image.Image:
    from viewbox.images.files import pillow

    if not isinstance(content, Path):
        head = _head(content)
        if pillow.is_picture(head):
            return pillow.load(content, head).copy()
    source = _source(content)
    return Image.fromarray(source.to_uint8(source.pixels))


def _head(content: BinaryIO) -> bytes:
    head = content.read(HEAD)
    content.seek(0)
    if not head:
        raise ImageError("the file is empty")
    return head
