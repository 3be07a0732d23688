"""DICOM files: pixels in their units, spacing and window. Nothing that identifies the patient leaves this module.

Only the elements in `dicom_tags.READ` are parsed, so that no identifier can reach a record or a message. pydicom's
warnings quote values and are silenced; its errors are replaced by our own sentences (see `viewbox.images.files`).
"""

import logging
import threading
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal

import numpy as np

from viewbox.errors import ImageError
from viewbox.images import limits
from viewbox.images.files import dicom_tags
from viewbox.images.pixels import fit_integers, rescale, to_native_dtype
from viewbox.images.source import Source, Volume

DEFLATED = "1.2.840.10008.1.2.1.99"
# (implicit types, little endian) → the transfer syntax of a file that does not name its own
NATIVE = {
    (True, True): "1.2.840.10008.1.2",
    (False, True): "1.2.840.10008.1.2.1",
    (False, False): "1.2.840.10008.1.2.2",
}
PLUGINS = {  # transfer syntaxes that pydicom decodes with another package (pydicom, guides/plugin_table)
    "JPEG 2000": "pylibjpeg and pylibjpeg-openjpeg",
    "High-Throughput JPEG 2000": "pylibjpeg and pylibjpeg-openjpeg",
    "JPEG-LS": "pyjpegls",
    "JPEG": "pylibjpeg and pylibjpeg-libjpeg",
}
_LOCK = threading.Lock()  # pydicom has one log level for the whole process


class NoPictureError(ImageError):
    """A DICOM file without an image: an index, a report, a treatment plan."""


@dataclass(frozen=True, eq=False)
class DecodedFrames:
    """All frames of a file.

    Args:
        pixels: (n, h, w) or (n, h, w, 3), in their units.
        window: the values shown as black and as white, if the file asks for them.
        spacing: millimeters per pixel along x and y, if known.
        unit: "HU" for Hounsfield units.
    """

    pixels: np.ndarray
    window: tuple[float, float] | None
    spacing: tuple[float, float] | None
    unit: Literal["HU"] | None

    @property
    def display(self) -> tuple[float, float]:
        """The values shown as black and as white."""
        return dicom_tags.choose_display(self.window, self.pixels)


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


def read(file: BinaryIO) -> Source:
    """The first frame of a file; its volume has the other frames."""
    decoded = decode(file)
    if len(decoded.pixels) == 1:
        return Source(decoded.pixels[0], decoded.display, decoded.spacing, decoded.unit)
    spacing = None if decoded.spacing is None else (0.0, decoded.spacing[1], decoded.spacing[0])
    return Volume(decoded.pixels, decoded.display, spacing, decoded.unit, planes=False).get_slice(0)


def read_header(file: BinaryIO) -> Any:
    """The elements in `READ` without the pixels, as a pydicom dataset; raises `NoPictureError` if there are none."""
    import pydicom

    with silence_pydicom():
        _check_deflated(file)
        file.seek(0)
        header = pydicom.dcmread(file, force=True, specific_tags=list(dicom_tags.READ), stop_before_pixels=True)
        file.seek(0)
        if "Rows" not in header or "Columns" not in header:
            raise NoPictureError("the DICOM file holds no picture")
        bits, samples = int(header.get("BitsAllocated", 16)), int(header.get("SamplesPerPixel", 1))
        limits.check_size(
            (int(header.Rows), int(header.Columns)),
            samples * max(1, bits // 8),
            frames=int(header.get("NumberOfFrames") or 1),
        )
    return header


def decode(file: BinaryIO, *, checked: bool = False) -> DecodedFrames:
    """Decode the frames of a file.

    Args:
        file: open for reading, at its beginning.
        checked: whether `read_header` has already accepted it.

    Raises:
        ImageError: the file is too large or damaged, holds no picture, or no installed decoder reads it.
    """
    import pydicom

    if not checked:
        read_header(file)
    with silence_pydicom():
        dataset = pydicom.dcmread(file, force=True, specific_tags=list(dicom_tags.READ))
        stored, color = _decode_stored(dataset)
        frames = stored if int(dataset.get("NumberOfFrames") or 1) > 1 else stored[None]
        spacing = dicom_tags.get_spacing(dataset)
        if color:
            return DecodedFrames(to_native_dtype(frames)[0], (0.0, float(np.iinfo(frames.dtype).max)), spacing, None)
        return _decode_gray(dataset, frames, spacing)


@contextmanager
def silence_pydicom() -> Iterator[None]:
    """Keep pydicom from warning and logging: its messages quote values."""
    log = logging.getLogger("pydicom")
    with _LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        level = log.level
        log.setLevel(logging.CRITICAL + 1)
        try:
            yield
        finally:
            log.setLevel(level)


def _check_deflated(file: BinaryIO) -> None:
    """Raises `ImageError` if a deflated file is larger than allowed: pydicom would inflate all of it."""
    from pydicom.filereader import read_dataset
    from pydicom.tag import Tag

    file.seek(128)
    if file.read(4) != b"DICM":
        return
    meta = read_dataset(file, False, True, stop_when=lambda tag, *_: tag.group != 2, specific_tags=[Tag(0x00020010)])
    if meta.get("TransferSyntaxUID") != DEFLATED:
        return
    inflater, total = zlib.decompressobj(-zlib.MAX_WBITS), 0
    while not inflater.eof and (packed := inflater.unconsumed_tail or file.read(2**20)):
        total += len(inflater.decompress(packed, 2**20))
        if total > limits.MAX_BYTES:
            raise ImageError(f"it inflates to more than {limits.MAX_BYTES / 2**30:.1f} GiB")


def _decode_stored(dataset: Any) -> tuple[np.ndarray, bool]:
    """The stored values, and whether they are RGB."""
    from pydicom.pixels import apply_color_lut, get_decoder
    from pydicom.uid import UID, UID_dictionary

    if not any(name in dataset for name in dicom_tags.PIXELS):
        raise NoPictureError("the DICOM file holds no picture")
    syntax = UID(dataset.file_meta.get("TransferSyntaxUID") or NATIVE[dataset.original_encoding])
    name = syntax.name if syntax in UID_dictionary else "unknown"
    try:
        decoder = get_decoder(syntax)
        readable = decoder.is_available
    except NotImplementedError:
        readable = False
    if not readable:
        raise ImageError(f"no decoder for its transfer syntax ({name}) is installed{_suggest_plugin(name)}")
    problem = ""
    try:
        stored, meta = decoder.as_array(dataset, allow_excess_frames=False)  # type: ignore[arg-type]  # its **options are annotated wrongly
    except Exception as error:  # the decoders of pydicom and its plugins raise anything
        problem = type(error).__name__
    if problem:
        raise ImageError(
            f"its pixels ({name}) cannot be decoded: damaged, cut short or of an unsupported kind ({problem})"
        )
    kind = meta["photometric_interpretation"]
    if kind == "PALETTE COLOR":
        colors = apply_color_lut(stored, dataset)[..., :3]
        return (colors if colors.dtype == np.uint8 else (colors >> 8).astype(np.uint8)), True
    if kind not in ("RGB", "MONOCHROME1", "MONOCHROME2"):
        raise ImageError("its color space is not supported; allowed: MONOCHROME, RGB, YBR, PALETTE COLOR")
    return stored, kind == "RGB"


def _suggest_plugin(syntax: str) -> str:
    """The package that decodes a transfer syntax, as the end of an error message."""
    package = next((package for start, package in PLUGINS.items() if syntax.startswith(start)), None)
    return f"; install {package}" if package else ""


def _decode_gray(dataset: Any, frames: np.ndarray, spacing: tuple[float, float] | None) -> DecodedFrames:
    """Convert stored values to values in their unit; a higher value is brighter."""
    from pydicom.pixels import apply_modality_lut

    scales = [dicom_tags.get_rescale(dataset, frame) for frame in range(len(frames))]
    window, unit = dicom_tags.get_window(dataset), dicom_tags.get_unit(dataset)
    low, high = dicom_tags.get_stored_range(dataset)
    if window is None and high < 255 and scales[0] == (1, 0):  # masks: 1 is white
        window = (float(low), float(high))
    if dataset.get("ModalityLUTSequence"):
        values = to_native_dtype(apply_modality_lut(frames, dataset))[0]
        total = float(values.min()) + float(values.max())
    elif len(set(scales)) == 1:
        values = rescale(frames, *scales[0])
        total = (low + high) * scales[0][0] + 2 * scales[0][1]
    else:
        values = join_slices([rescale(frame, *scale) for frame, scale in zip(frames, scales, strict=True)])
        total = float(values.min()) + float(values.max())
    if dataset.PhotometricInterpretation == "MONOCHROME1":
        values, unit = rescale(values, -1, total), None
        window = window and (total - window[1], total - window[0])
    return DecodedFrames(values, window, spacing, unit)


def join_slices(slices: list[np.ndarray]) -> np.ndarray:
    """Join slices of one size in one array, of a depth that holds them all; empties the list to save memory."""
    depths = {part.dtype for part in slices}
    if len(depths) == 1:
        depth = depths.pop()
    elif all(part.dtype.kind in "iu" for part in slices):
        low, high = min(int(part.min()) for part in slices), max(int(part.max()) for part in slices)
        depth = fit_integers(np.array([low, high]), low, high).dtype
    else:
        depth = np.dtype(np.float32)
    whole = np.empty((len(slices), *slices[0].shape), depth)
    for number in reversed(range(len(slices))):
        whole[number] = slices.pop()
    return whole
