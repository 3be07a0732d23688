"""DICOM files: pixels in their units, spacing and window. Nothing that identifies the patient leaves this module.

Only the elements in `dicom_tags.READ` are parsed (`dicom_elements`), so that no identifier can reach a record or a
message. pydicom's errors are replaced by our own sentences (see `viewbox.images.files`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal

import numpy as np

from ...errors import ImageError
from ..pixels import fit_integers, rescale, to_native_dtype
from ..source import Source, Volume
from . import dicom_tags
from .dicom_elements import HEADER_ROOM, NoPictureError, inflate, parse, read_header

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
JPEG_2000 = tuple(f"1.2.840.10008.1.2.4.{part}" for part in (90, 91, 92, 93, 201, 202, 203))
JP2 = b"\0\0\0\x0cjP  "  # the first box of a JPEG 2000 file


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


def read(file: BinaryIO, reserve: Callable[[int], None]) -> Source:
    """The first frame of a file; its volume has the other frames."""
    header = read_header(file, small_whole=True)
    reserve(header.size)
    if header.whole:
        decoded = decode_elements(header.elements)
    else:
        decoded = decode(file, header.stored, deflated=header.deflated)
    if len(decoded.pixels) == 1:
        return Source(decoded.pixels[0], decoded.display, decoded.spacing, decoded.unit)
    spacing = None if decoded.spacing is None else (0.0, decoded.spacing[1], decoded.spacing[0])
    return Volume(decoded.pixels, decoded.display, spacing, decoded.unit, planes=False).get_slice(0)


def decode(file: BinaryIO, stored_bytes: int, *, deflated: bool) -> DecodedFrames:
    """Decode the frames of a file.

    Args:
        file: open at its beginning; `read_header` has accepted it.
        stored_bytes, deflated: of its header.

    Raises:
        ImageError: it is damaged, holds no picture, or no installed decoder reads it.
    """
    return decode_elements(parse(inflate(file, HEADER_ROOM + stored_bytes, whole=True) if deflated else file))


def decode_elements(dataset: Any) -> DecodedFrames:
    """Decode the frames of a file that is parsed."""
    stored, color = _decode_stored(dataset)
    frames = stored if int(dataset.get("NumberOfFrames") or 1) > 1 else stored[None]
    spacing = dicom_tags.get_spacing(dataset)
    if color:
        return DecodedFrames(to_native_dtype(frames)[0], (0.0, float(np.iinfo(frames.dtype).max)), spacing, None)
    return _decode_gray(dataset, frames, spacing)


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
    if syntax in JPEG_2000:
        _check_boxes(dataset.get("PixelData") or b"")
    problem = ""
    try:
        stored, meta = decoder.as_array(dataset, allow_excess_frames=False)  # type: ignore[arg-type]  # its **options are annotated wrongly
    except Exception as error:  # the decoders of pydicom and its plugins raise anything
        problem = type(error).__name__
    if problem:
        better = "" if "pylibjpeg" in decoder.available_plugins else _suggest_plugin(name)
        raise ImageError(
            f"its pixels ({name}) cannot be decoded: damaged, cut short or of an unsupported kind ({problem})"
            + (f"{better}, which reads more kinds" if better else "")
        )
    kind = meta["photometric_interpretation"]
    if kind == "PALETTE COLOR":
        colors = apply_color_lut(stored, dataset)[..., :3]
        return (colors if colors.dtype == np.uint8 else (colors >> 8).astype(np.uint8)), True
    if kind not in ("RGB", "MONOCHROME1", "MONOCHROME2"):
        raise ImageError("its color space is not supported; allowed: MONOCHROME, RGB, YBR, PALETTE COLOR")
    return stored, kind == "RGB"


def _check_boxes(content: bytes) -> None:
    """Raises `ImageError` for JPEG 2000 boxes without a length: pydicom 3.0 would look at the same one for ever."""
    start = content.find(JP2)
    while start >= 0:
        box = start + 12
        while box + 8 <= len(content) and content[box + 4 : box + 8] != b"jp2c":
            length = int.from_bytes(content[box : box + 4], "big")
            if length < 8:
                raise ImageError(f"its pixels are damaged: a JPEG 2000 box of {length} bytes")
            box += length
        start = content.find(JP2, box)


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
