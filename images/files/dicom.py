"""DICOM files: pixels in their units, spacing and window. Nothing that identifies the patient leaves this module.

Only the elements in `READ` are parsed, no further than they need, so that no identifier can reach a record or a
message: `SeriesInstanceUID` and the position only sort the slices of a series, and no message quotes them;
`SeriesNumber`, a small number, names a series to choose, and two others number time points. pydicom's errors are
replaced by our own sentences (see `viewbox.images.files`), and its warnings, which quote values, are silenced.
"""

import io
import itertools
import logging
import os
import warnings
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, BinaryIO, Literal

import numpy as np

from ...errors import ImageError
from .. import limits
from ..pixels import fit_integers, rescale, to_native_dtype
from ..source import Source, Volume

PIXELS = ("PixelData", "FloatPixelData", "DoubleFloatPixelData")
COLORS = ("Red", "Green", "Blue")
READ = (
    *(
        "SOPClassUID",
        "Modality",
        "SeriesInstanceUID",
        "SeriesNumber",
        "ImagePositionPatient",
        "ImageOrientationPatient",
        "TemporalPositionIdentifier",
        "AcquisitionNumber",
    ),
    *("Rows", "Columns", "NumberOfFrames", "SamplesPerPixel", "PhotometricInterpretation", "PlanarConfiguration"),
    *("BitsAllocated", "BitsStored", "HighBit", "PixelRepresentation", "ModalityLUTSequence"),
    *("RescaleIntercept", "RescaleSlope", "RescaleType", "WindowCenter", "WindowWidth", "VOILUTFunction"),
    *("PixelSpacing", "ImagerPixelSpacing", "NominalScannedPixelSpacing"),
    *("SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence"),
    *(f"{color}PaletteColorLookupTable{part}" for color in COLORS for part in ("Descriptor", "Data")),
    *(f"Segmented{color}PaletteColorLookupTableData" for color in COLORS),
    *(*PIXELS, "ExtendedOffsetTable", "ExtendedOffsetTableLengths"),
)
GROUPS = {  # the sequence in which a multi-frame file keeps an element that others have at the top level
    "PixelSpacing": "PixelMeasuresSequence",
    **dict.fromkeys(("RescaleIntercept", "RescaleSlope", "RescaleType"), "PixelValueTransformationSequence"),
    **dict.fromkeys(("WindowCenter", "WindowWidth", "VOILUTFunction"), "FrameVOILUTSequence"),
}
CT = ("1.2.840.10008.5.1.4.1.1.2", "1.2.840.10008.5.1.4.1.1.2.1", "1.2.840.10008.5.1.4.1.1.2.2")


def get_value(dataset: Any, keyword: str, frame: int = 0) -> object:
    """Return an element of the file or, in a multi-frame file, of one frame; None if it is missing."""
    if dataset.get(keyword) is not None or keyword not in GROUPS:
        return dataset.get(keyword)
    for groups, number in (("PerFrameFunctionalGroupsSequence", frame), ("SharedFunctionalGroupsSequence", 0)):
        items = dataset.get(groups) or []
        group = items[number].get(GROUPS[keyword]) if number < len(items) else None
        if group and group[0].get(keyword) is not None:
            return group[0].get(keyword)
    return None


def parse_numbers(value: Any) -> list[float]:
    """Return the element as floats; [] if any value is missing or not finite."""
    values = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    try:
        numbers = [float(part) for part in values]
    except (TypeError, ValueError):
        return []
    return numbers if np.isfinite(numbers).all() else []


def get_rescale(dataset: object, frame: int) -> tuple[float, float]:
    """(slope, intercept) from stored values to values in their unit; (1, 0) if the file has none."""
    slope, intercept = (get_value(dataset, f"Rescale{part}", frame) for part in ("Slope", "Intercept"))
    if slope is None or intercept is None:
        return 1.0, 0.0
    numbers = parse_numbers([slope, intercept])
    if not numbers or numbers[0] == 0:
        raise ImageError("its rescale slope and intercept are not usable numbers")
    return numbers[0], numbers[1]


def get_unit(dataset: Any) -> Literal["HU"] | None:
    """ "HU" for computed tomography whose rescale names no other unit (DICOM PS3.3 C.8.2.1, C.8.15.3.10)."""
    tomography = dataset.get("Modality") == "CT" or dataset.get("SOPClassUID") in CT
    scaled = get_value(dataset, "RescaleSlope") is not None and get_value(dataset, "RescaleIntercept") is not None
    hounsfield = (get_value(dataset, "RescaleType") or "HU") == "HU"
    return "HU" if tomography and scaled and hounsfield and not dataset.get("ModalityLUTSequence") else None


def get_stored_range(dataset: Any) -> tuple[int, int]:
    """Return the lowest and the highest value that the stored bits can hold."""
    bits = int(dataset.get("BitsStored") or 16)
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if dataset.get("PixelRepresentation") else (0, 2**bits - 1)


def get_spacing(dataset: Any) -> tuple[float, float] | None:
    """Millimeters per pixel along x and y; DICOM writes the distance of rows (y) first."""
    for keyword in ("PixelSpacing", "ImagerPixelSpacing", "NominalScannedPixelSpacing"):
        numbers = parse_numbers(get_value(dataset, keyword))
        if len(numbers) == 2 and min(numbers) > 0:
            return numbers[1], numbers[0]
    return None


def get_window(dataset: object) -> tuple[float, float] | None:
    """Return the values shown as black and as white by the first window of the file (DICOM PS3.3 C.11.2.1.2)."""
    centers, widths = (parse_numbers(get_value(dataset, f"Window{part}")) for part in ("Center", "Width"))
    if not centers or not widths or widths[0] <= 0:
        return None
    center, width = centers[0], widths[0]
    if (get_value(dataset, "VOILUTFunction") or "LINEAR") == "LINEAR" and width > 1:
        return center - width / 2, center + width / 2 - 1
    return center - width / 2, center + width / 2


def choose_display(window: tuple[float, float] | None, values: np.ndarray) -> tuple[float, float]:
    """Return the window, if it shows any of `values`; else the range of all values, or 0 to 255 for 8 bits."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    if window is not None and window[0] < high and window[1] > low:
        return window
    return (0.0, 255.0) if values.dtype == np.uint8 else (low, high)


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
    """Return whether a file begins like DICOM: with the DICM mark or, if that is missing, with an element of group 2 or
    8.

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
    """Return the elements before the pixels; raise `NoPictureError` if there are none, and `ImageError` for a size.

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
    """Return the elements in `READ` as a pydicom dataset; raise `ImageError` if the file has too many of any kind."""
    from pydicom.filereader import read_partial
    from pydicom.tag import Tag

    _silence_pydicom()
    count = itertools.count(1)

    def stop(tag: object, vr: str | None, length: int) -> bool:
        if next(count) > MAX_ELEMENTS:
            raise ImageError(TOO_MANY)
        return stop_before_pixels and tag in PIXEL_TAGS

    tags: Any = [Tag(keyword) for keyword in READ]
    return read_partial(file, stop, force=True, specific_tags=tags)


@cache
def _silence_pydicom() -> None:
    """Keep pydicom from warning and logging: its messages quote values. A worker never needs them."""
    logging.getLogger("pydicom").setLevel(logging.CRITICAL + 1)
    warnings.filterwarnings("ignore", module="pydicom")


def is_deflated(file: BinaryIO) -> bool:
    """Return whether the elements of a file are compressed; the file is then at the first of them, else at its
    beginning."""
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
    """Raise `ImageError` if the elements begin with those of group 0: pydicom would read them all, however many."""
    if start == b"\0\0":
        raise ImageError("it is damaged or cut short (its first element is of group 0)")


def _stop_after_meta() -> Callable[[Any, str | None, int], bool]:
    """Tell pydicom where the elements of group 2 end."""
    count = itertools.count(1)

    def stop(tag: Any, vr: str | None, length: int) -> bool:
        if next(count) > MAX_ELEMENTS:
            raise ImageError(TOO_MANY)
        return bool(tag.group != 2)

    return stop


def inflate(file: BinaryIO, room: int, *, whole: bool) -> BinaryIO:
    """Return the first `room` bytes of the elements of a deflated file, as a file that is not deflated.

    Raise `ImageError` if `whole` is asked for and there are more: pydicom would inflate all of it.
    """
    is_deflated(file)
    inflater, plain = zlib.decompressobj(-zlib.MAX_WBITS), bytearray()
    while len(plain) < room and not inflater.eof and (packed := inflater.unconsumed_tail or file.read(2**20)):
        plain += inflater.decompress(packed, min(2**20, room - len(plain)))
    if whole and len(plain) == room and inflater.decompress(inflater.unconsumed_tail or file.read(2**20), 1):
        raise ImageError(f"it inflates to more than the {room / 2**20:.1f} MiB that its header and pixels need")
    _check_group(bytes(plain[:2]))
    return io.BytesIO(INFLATED + plain)


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
        return choose_display(self.window, self.pixels)


def read(file: BinaryIO, reserve: Callable[[int], None]) -> Source:
    """Return the first frame of a file; its volume has the other frames."""
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
    spacing = get_spacing(dataset)
    if color:
        return DecodedFrames(to_native_dtype(frames).pixels, (0.0, float(np.iinfo(frames.dtype).max)), spacing, None)
    return _decode_gray(dataset, frames, spacing)


def _decode_stored(dataset: Any) -> tuple[np.ndarray, bool]:
    """Return the stored values, and whether they are RGB."""
    from pydicom.pixels import apply_color_lut, get_decoder
    from pydicom.uid import UID, UID_dictionary

    if not any(name in dataset for name in PIXELS):
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
    """Raise `ImageError` for JPEG 2000 boxes without a length: pydicom 3.0 would look at the same one for ever."""
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
    """Return the package that decodes a transfer syntax, as the end of an error message."""
    package = next((package for start, package in PLUGINS.items() if syntax.startswith(start)), None)
    return f"; install {package}" if package else ""


def _decode_gray(dataset: Any, frames: np.ndarray, spacing: tuple[float, float] | None) -> DecodedFrames:
    """Convert stored values to values in their unit; a higher value is brighter."""
    from pydicom.pixels import apply_modality_lut

    scales = [get_rescale(dataset, frame) for frame in range(len(frames))]
    window, unit = get_window(dataset), get_unit(dataset)
    low, high = get_stored_range(dataset)
    if window is None and high < 255 and scales[0] == (1, 0):  # masks: 1 is white
        window = (float(low), float(high))
    if dataset.get("ModalityLUTSequence"):
        values = to_native_dtype(apply_modality_lut(frames, dataset)).pixels
        total = float(values.min()) + float(values.max())
    elif len(set(scales)) == 1:
        values = rescale(frames, *scales[0]).pixels
        total = (low + high) * scales[0][0] + 2 * scales[0][1]
    else:
        values = join_slices([rescale(frame, *scale).pixels for frame, scale in zip(frames, scales, strict=True)])
        total = float(values.min()) + float(values.max())
    if dataset.PhotometricInterpretation == "MONOCHROME1":
        values, unit = rescale(values, -1, total).pixels, None
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
