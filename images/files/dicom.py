"""DICOM files: pixels in their units, spacing and window. Nothing that says who the patient is leaves this module.

Only the elements in `READ` are parsed, so an identifier cannot reach a record or a message. What pydicom would warn of
quotes values and is silenced; what it raises is replaced by words of our own (see `viewbox.images.files`).
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
from viewbox.images.files import dicom_tags, limits
from viewbox.images.files.arrays import integers, linear, settled
from viewbox.images.source import Source
from viewbox.images.volume import Volume

DEFLATED = "1.2.840.10008.1.2.1.99"
# (implicit types, little endian) → the syntax of a file that does not name its own
NATIVE = {
    (True, True): "1.2.840.10008.1.2",
    (False, True): "1.2.840.10008.1.2.1",
    (False, False): "1.2.840.10008.1.2.2",
}
_silence = threading.Lock()


class NoPictureError(ImageError):
    """A DICOM file without an image: an index, a report, a treatment plan."""


@dataclass(frozen=True, eq=False)
class Decoded:
    """All frames of a file, (n, h, w) or (n, h, w, 3), in their units; `window` is the one the file asks for."""

    pixels: np.ndarray
    window: tuple[float, float] | None
    spacing: tuple[float, float] | None
    unit: Literal["HU"] | None

    @property
    def display(self) -> tuple[float, float]:
        return dicom_tags.shown_range(self.window, self.pixels)


def is_dicom(head: bytes) -> bool:
    """Whether a file begins as DICOM does, with its mark or, without, with an element of the groups 2 or 8.

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
    """The picture of a file, or the first of its frames with the others in its volume."""
    decoded = decode(file)
    if len(decoded.pixels) == 1:
        return Source(decoded.pixels[0], decoded.display, decoded.spacing, decoded.unit)
    spacing = None if decoded.spacing is None else (0.0, decoded.spacing[1], decoded.spacing[0])
    return Volume(decoded.pixels, decoded.display, spacing, decoded.unit, planes=False).slice(0)


def header_of(file: BinaryIO) -> Any:
    """What `READ` names but the pixels, as a pydicom dataset; raises `ImageError` where the file holds no picture."""
    import pydicom

    with silent():
        _check_deflated(file)
        file.seek(0)
        header = pydicom.dcmread(file, force=True, specific_tags=list(dicom_tags.READ), stop_before_pixels=True)
        file.seek(0)
        if "Rows" not in header or "Columns" not in header:
            raise NoPictureError("the DICOM file holds no picture")
        bits, samples = int(header.get("BitsAllocated", 16)), int(header.get("SamplesPerPixel", 1))
        limits.check(
            (int(header.Rows), int(header.Columns)),
            samples * max(1, bits // 8),
            frames=int(header.get("NumberOfFrames") or 1),
        )
    return header


def decode(file: BinaryIO, *, checked: bool = False) -> Decoded:
    """A file's frames; raises `ImageError` where it is too large, holds no picture, or no decoder reads it.

    `checked`: `header_of` has been asked already.
    """
    import pydicom

    if not checked:
        header_of(file)
    with silent():
        dataset = pydicom.dcmread(file, force=True, specific_tags=list(dicom_tags.READ))
        stored, color = _stored(dataset)
        frames = stored if int(dataset.get("NumberOfFrames") or 1) > 1 else stored[None]
        spacing = dicom_tags.spacing(dataset)
        if color:
            return Decoded(settled(frames)[0], (0.0, float(np.iinfo(frames.dtype).max)), spacing, None)
        return _gray(dataset, frames, spacing)


@contextmanager
def silent() -> Iterator[None]:
    """pydicom neither warns nor logs: its messages quote values."""
    log = logging.getLogger("pydicom")
    with _silence, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        level = log.level
        log.setLevel(logging.CRITICAL + 1)
        try:
            yield
        finally:
            log.setLevel(level)


def _check_deflated(file: BinaryIO) -> None:
    """Raises `ImageError` where a deflated file is larger than allowed: pydicom would inflate it whole."""
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


def _stored(dataset: Any) -> tuple[np.ndarray, bool]:
    """(stored values, whether they are RGB)."""
    from pydicom.pixels import apply_color_lut, get_decoder
    from pydicom.uid import UID, UID_dictionary

    if not any(name in dataset for name in dicom_tags.PIXELS):
        raise NoPictureError("the DICOM file holds no picture")
    syntax = UID(dataset.file_meta.get("TransferSyntaxUID") or NATIVE[dataset.original_encoding])
    name = syntax.name if syntax in UID_dictionary else "an unknown one"
    try:
        decoder = get_decoder(syntax)
        readable = decoder.is_available
    except NotImplementedError:
        readable = False
    if not readable:
        raise ImageError(f"no decoder for its transfer syntax ({name}) is installed")
    problem = ""
    try:
        stored, now = decoder.as_array(dataset, allow_excess_frames=False)  # type: ignore[arg-type]
    except Exception as error:  # the decoders of pydicom and its plugins raise anything
        problem = type(error).__name__
    if problem:
        raise ImageError(f"its pixels ({name}) cannot be decoded: damaged, cut short or of a rare kind ({problem})")
    kind = now["photometric_interpretation"]
    if kind == "PALETTE COLOR":
        colors = apply_color_lut(stored, dataset)[..., :3]
        return (colors if colors.dtype == np.uint8 else (colors >> 8).astype(np.uint8)), True
    if kind not in ("RGB", "MONOCHROME1", "MONOCHROME2"):
        raise ImageError("its colors are of a kind that is not read; allowed: MONOCHROME, RGB, YBR, PALETTE COLOR")
    return stored, kind == "RGB"


def _gray(dataset: Any, frames: np.ndarray, spacing: tuple[float, float] | None) -> Decoded:
    """Stored values → values in their unit, bright being bright."""
    from pydicom.pixels import apply_modality_lut

    scales = [dicom_tags.scale(dataset, frame) for frame in range(len(frames))]
    window, unit = dicom_tags.window(dataset), dicom_tags.unit(dataset)
    low, high = dicom_tags.stored_range(dataset)
    if window is None and high < 255 and scales[0] == (1, 0):  # masks: 1 is white
        window = (float(low), float(high))
    if dataset.get("ModalityLUTSequence"):
        values = settled(apply_modality_lut(frames, dataset))[0]
        total = float(values.min()) + float(values.max())
    elif len(set(scales)) == 1:
        values = linear(frames, *scales[0])
        total = (low + high) * scales[0][0] + 2 * scales[0][1]
    else:
        values = joined([linear(frame, *scale) for frame, scale in zip(frames, scales, strict=True)])
        total = float(values.min()) + float(values.max())
    if dataset.PhotometricInterpretation == "MONOCHROME1":
        values, unit = linear(values, -1, total), None
        window = window and (total - window[1], total - window[0])
    return Decoded(values, window, spacing, unit)


def joined(slices: list[np.ndarray]) -> np.ndarray:
    """Slices of one size as one array, of the depth that holds them all; empties the list as it goes."""
    depths = {part.dtype for part in slices}
    if len(depths) == 1:
        depth = depths.pop()
    elif all(part.dtype.kind in "iu" for part in slices):
        low, high = min(int(part.min()) for part in slices), max(int(part.max()) for part in slices)
        depth = integers(np.array([low, high]), low, high).dtype
    else:
        depth = np.dtype(np.float32)
    whole = np.empty((len(slices), *slices[0].shape), depth)
    for number in reversed(range(len(slices))):
        whole[number] = slices.pop()
    return whole
