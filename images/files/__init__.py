"""Opens images as sources: a file of any known format, a folder, bytes, or a data URL.

Files are recognized by their content, never by their name. Every file may be hostile: a path must stay inside the
task's folder (`paths`), sizes are checked in the header before anything is decoded (`limits`), and decoders run in
other processes (`pool`), which end with an `ImageError` for the file if they take too much time or memory. Of a DICOM
file only pixels, spacing, display range and unit are read, and no message quotes it.
"""

from PIL import Image

from ...errors import ImageError
from ..source import Source
from . import paths, pool
from .paths import Folder, ImageLocation

__all__ = ["ImageLocation", "open_image", "open_picture", "recognize"]


def open_image(where: ImageLocation, folder: Folder | None = None) -> Source:
    """Open an image file at its native depth.

    Reads PNG, JPEG, TIFF, BMP, WebP, GIF, DICOM, NIfTI (.nii, .nii.gz), MetaImage (.mha, .mhd), NRRD (.nrrd, .nhdr),
    NumPy (.npy), and a folder with the slices of a DICOM series; `folder#series=3` chooses one of several series by its
    SeriesNumber or SeriesInstanceUID, and `#stack=2` one of several groups of slices, or a segment.
    Animations, multi-page and multi-frame files open at their first frame, a volume of NIfTI, MetaImage or NRRD at its
    middle axial slice, and a series at the middle of its own plane, all at the first time point; `source.volume` has
    the other slices and times. Transparent pictures are shown on white, or on black if all that is seen in them is
    light.

    Args:
        where: a path (of a folder also with `#series=…`), a `data:` URL, or the bytes of a file.
        folder: if given, the path is relative to this folder and must lie inside it.

    Raises:
        ImageError: the file is missing, too large, damaged, of another format, or outside the folder.

    >>> from viewbox.images.ref import ImageRef
    >>> open_image(ImageRef.of(Image.new("L", (4, 2), 7)).to_data_url()).size
    (4, 2)
    >>> open_image(b"plain text")
    Traceback (most recent call last):
    viewbox.errors.ImageError: image (10 bytes): this is not an image that can be opened; allowed: PNG, JPEG, TIFF, \
BMP, WebP, GIF, DICOM, NIfTI, MetaImage, NRRD, NumPy .npy
    """
    source = _open_with("source", where, folder)
    assert isinstance(source, Source)
    return source


def recognize(where: ImageLocation) -> str:
    """Return the name of the format of a file, such as "NIfTI"; empty if it is none that can be opened."""
    from . import dicom_header, formats, volume_files

    place, _ = paths.split_selection(where)
    with paths.open_location(place, None) as (content, header):
        if isinstance(content, int):
            return "DICOM" if header is None else "MetaImage" if header.endswith(".mhd") else "NRRD"
        head = content[: formats.HEAD] if isinstance(content, bytes) else content.read(formats.HEAD)
    if dicom_header.is_dicom(head):
        return "DICOM"
    if head.startswith(b"\x1f\x8b") or volume_files.get_header_size(head) is not None:
        return "NIfTI"
    if volume_files.is_headed(head):
        return "NRRD" if head.startswith(b"NRRD") else "MetaImage"
    return next((name for name, (fits, _) in formats.FORMATS.items() if fits(head)), "")


def open_picture(where: ImageLocation, folder: Folder | None = None) -> Image.Image:
    """Open the first picture of a file as Pillow decodes it (mode, palette, alpha), or as shown if it has no mode."""
    opened = _open_with("picture", where, folder)
    return Image.fromarray(opened.render()) if isinstance(opened, Source) else opened


def _open_with(what: pool.What, where: ImageLocation, folder: Folder | None) -> Source | Image.Image:
    """Raise errors outside `except`, so that no error carries the decoder's own exception."""
    place, selection = paths.split_selection(where, folder)
    name = paths.describe_location(place)
    try:
        with paths.open_location(place, folder) as (content, header):
            return pool.decode(what, content, selection._replace(header=header))
    except ImageError as error:
        reason = str(error)
    except MemoryError:
        reason = "there is not enough memory to open it"
    raise ImageError(f"image {name}: {reason}")
