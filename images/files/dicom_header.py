"""DICOM files before their pixels: the few elements that are read, and what guards against hostile files.

Only the elements in `READ` are parsed, no further than they need, so that no identifier can reach a record or a
message: UIDs only tell series, copies and frames of reference apart, and no message quotes them; `SeriesNumber`, a
small number, names a series to choose, and a few others number time points and segments. pydicom's errors are replaced
by our own sentences (see `viewbox.images.files`), and its warnings, which quote values, are silenced.
"""

import io
import itertools
import logging
import math
import os
import warnings
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, BinaryIO

from ...errors import ImageError
from .. import limits
from .paths import Inflater

PIXELS = ("PixelData", "FloatPixelData", "DoubleFloatPixelData")
COLORS = ("Red", "Green", "Blue")
SPACINGS = ("PixelSpacing", "ImagerPixelSpacing", "NominalScannedPixelSpacing")
MAGNIFICATION = ("EstimatedRadiographicMagnificationFactor", "DistanceSourceToDetector", "DistanceSourceToPatient")
TILE = (*(f"{suffix}PositionInTotalImagePixelMatrix" for suffix in ("Row", "Column")), "ZOffsetInSlideCoordinateSystem")
EDGES = tuple(f"Shutter{edge}Edge" for edge in ("LeftVertical", "RightVertical", "UpperHorizontal", "LowerHorizontal"))
SHUTTER = (*EDGES, "CenterOfCircularShutter", "RadiusOfCircularShutter", "VerticesOfThePolygonalShutter")
SHUTTER += ("ShutterShape", "ShutterOverlayGroup")
THICKNESS = ("SpacingBetweenSlices", "SliceThickness")  # millimeters from slice to slice
GROUPS = {  # the sequence in which a multi-frame file keeps an element that others have at the top level
    "ImagePositionPatient": "PlanePositionSequence",
    "ImageOrientationPatient": "PlaneOrientationSequence",
    **dict.fromkeys(("PixelSpacing", *THICKNESS), "PixelMeasuresSequence"),
    **dict.fromkeys(("RescaleIntercept", "RescaleSlope", "RescaleType"), "PixelValueTransformationSequence"),
    **dict.fromkeys(("WindowCenter", "WindowWidth", "VOILUTFunction", "VOILUTSequence"), "FrameVOILUTSequence"),
    **dict.fromkeys(("TemporalPositionIndex", "DimensionIndexValues"), "FrameContentSequence"),
    **dict.fromkeys(("RealWorldValueSlope", "RealWorldValueIntercept"), "RealWorldValueMappingSequence"),
    "ReferencedSegmentNumber": "SegmentIdentificationSequence",
    **dict.fromkeys(TILE, "PlanePositionSlideSequence"),
    **dict.fromkeys(SHUTTER, "FrameDisplayShutterSequence"),
    "OpticalPathIdentifier": "OpticalPathIdentificationSequence",
    "EffectiveEchoTime": "MREchoSequence",
    "DiffusionBValue": "MRDiffusionSequence",
    "NominalCardiacTriggerDelayTime": "CardiacSynchronizationSequence",
    "InversionTimes": "MRModifierSequence",
    **dict.fromkeys(("FlipAngle", "RepetitionTime"), "MRTimingAndRelatedParametersSequence"),
    "ComplexImageComponent": "MRImageFrameTypeSequence",
}
TIMES = (  # what may tell slices at one place apart, the most telling first
    *("TemporalPositionIdentifier", "TemporalPositionIndex", "EchoTime", "EffectiveEchoTime", "DiffusionBValue"),
    *("TriggerTime", "NominalCardiacTriggerDelayTime", "FrameReferenceTime", "InversionTime", "InversionTimes"),
    *("FlipAngle", "RepetitionTime", "ComplexImageComponent", "ImageType", "AcquisitionNumber", "DimensionIndexValues"),
    "InstanceNumber",
)
OVERLAYS = range(0x60000010, 0x60200010, 0x20000)  # the rows of overlay planes, whose groups repeat
READ: tuple[str | int, ...] = (
    *("SOPClassUID", "SOPInstanceUID", "Modality", "ImageType", "SeriesInstanceUID", "SeriesNumber"),
    *("FrameOfReferenceUID", "GridFrameOffsetVector", "PatientOrientation", "AnatomicalOrientationType"),
    *("TotalPixelMatrixRows", "TotalPixelMatrixColumns", "SequenceOfUltrasoundRegions", "PixelIntensityRelationship"),
    *("Rows", "Columns", "NumberOfFrames", "SamplesPerPixel", "PhotometricInterpretation", "PlanarConfiguration"),
    *("BitsAllocated", "BitsStored", "HighBit", "PixelRepresentation", "ModalityLUTSequence", "SegmentationType"),
    *(f"{name.removesuffix('Data')}Padding{suffix}" for name in PIXELS for suffix in ("Value", "RangeLimit")),
    *(*GROUPS, *TIMES, "SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence"),
    *("DoseGridScaling", "DoseUnits", "RealWorldValueMappingSequence"),
    *("MaximumFractionalValue", "ICCProfile", "OpticalPathSequence"),
    *(*SPACINGS, *MAGNIFICATION, "PixelSpacingCalibrationType", "PixelAspectRatio"),
    *(f"{color}PaletteColorLookupTable{suffix}" for color in COLORS for suffix in ("Descriptor", "Data")),
    *(f"Segmented{color}PaletteColorLookupTableData" for color in COLORS),
    *(*PIXELS, "ExtendedOffsetTable", "ExtendedOffsetTableLengths"),
    *(tag + suffix for tag in OVERLAYS for suffix in (0, 1, 0x2FF0)),  # rows, columns and bits
)
OF_FRAMES, SHARED = 0x52009230, 0x52009229  # Per-frame and Shared Functional Groups Sequence; by tag to be quick
SEGMENTATIONS = ("1.2.840.10008.5.1.4.1.1.66.4", "1.2.840.10008.5.1.4.1.1.66.7")


def get_value(dataset: Any, keyword: str, frame: int = 0) -> Any:
    """Return an element of one frame, or of the file; None if it is missing."""
    value = get_frame_value(dataset, keyword, frame) if keyword in GROUPS else None
    tag = _list_tags()[keyword]  # by its keyword, pydicom looks three times as long
    return dataset[tag].value if value is None and tag in dataset else value


def get_frame_value(dataset: Any, keyword: str, frame: int) -> Any:
    """Return an element of `GROUPS` that a multi-frame file has for one frame, or for all of them; None if neither."""
    for groups, number in (("PerFrameFunctionalGroupsSequence", frame), ("SharedFunctionalGroupsSequence", 0)):
        tag = _list_tags()[groups]
        if tag not in dataset:
            continue
        items = dataset[tag].value or ()
        group = items[number].get(GROUPS[keyword]) if number < len(items) else None
        if group and group[0].get(keyword) is not None:
            return group[0].get(keyword)
    return None


def get_count(dataset: Any, keyword: str, default: int | None = None) -> int:
    """Return an element that is one whole number, or what it is if it is missing; raise `ImageError` for any other."""
    value = get_value(dataset, keyword)
    if value is None or value == "":
        if default is None:
            raise ImageError(f"the element {keyword} is missing")
        return default
    if len(numbers := parse_numbers(value)) != 1 or numbers[0] % 1:
        raise ImageError(f"the element {keyword} is not one whole number")
    return int(numbers[0])


def get_text(dataset: Any, keyword: str) -> str:
    """Return an element that is one word; "" if it is missing."""
    return str(get_value(dataset, keyword) or "").strip()


def list_values(value: Any) -> list[Any]:
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str | bytes) else [value]


def parse_numbers(value: Any) -> list[float]:
    """Return the element as floats; [] if any value is missing or not finite."""
    try:
        numbers = [float(item) for item in list_values(value)]
    except (TypeError, ValueError):
        return []
    return numbers if all(map(math.isfinite, numbers)) else []


DEFLATED = "1.2.840.10008.1.2.1.99"
PIXEL_TAGS = frozenset((0x7FE00010, 0x7FE00009, 0x7FE00008))
MAX_ELEMENTS = 20_000  # at the top level of a file; the largest of real ones have some hundred
SMALL_FILE = 2**22  # bytes
HEADER_ROOM = 2**23  # bytes of a deflated file that are not pixels
INFLATED = bytes(128) + b"DICM\x02\0\x10\0UI\x14\0" + b"1.2.840.10008.1.2.1\0"  # the beginning of a file


class NoPictureError(ImageError):
    """A DICOM file without an image: an index, a report, a treatment plan."""


def is_dicom(head: bytes) -> bool:
    """Return whether a file begins like DICOM: with the DICM mark, or with an element of group 2 or 8.

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
    """What a file says before its pixels."""

    elements: Any  # those in `READ`, as a pydicom dataset
    shape: tuple[int, int]  # (rows, columns)
    frames: int
    samples: int  # values per pixel
    matrix: tuple[int, int] | None  # (rows, columns) of the slide whose tiles the frames are
    stored: int  # bytes of the pixels as they are stored, decoded
    size: int  # bytes of the pixels in their units, at most
    deflated: bool  # whether all elements are compressed
    whole: bool  # whether `elements` has the pixels too


def read_header(file: BinaryIO, *, small_whole: bool = False) -> Header:
    """Return the elements before the pixels; raise `NoPictureError` if there are none, and `ImageError` for a size.
    With `small_whole`, the pixels of a small file are read, too: to parse it once takes half the time."""
    deflated = is_deflated(file)
    whole = small_whole and not deflated and file.seek(0, os.SEEK_END) <= SMALL_FILE
    file.seek(0)
    elements = parse(inflate(file, HEADER_ROOM, whole=False) if deflated else file, stop_before_pixels=not whole)
    file.seek(0)
    if "Rows" not in elements or "Columns" not in elements:
        raise NoPictureError("the DICOM file holds no picture")
    shape = get_count(elements, "Rows"), get_count(elements, "Columns")
    frames = get_count(elements, "NumberOfFrames", 1) or 1
    itemsize, samples = max(1, get_count(elements, "BitsAllocated") // 8), get_count(elements, "SamplesPerPixel", 1)
    sides = tuple(get_count(elements, f"TotalPixelMatrix{side}", 0) for side in ("Rows", "Columns"))
    matrix = (sides[0], sides[1]) if min(sides) > 0 and (frames > 1 or sides != shape) else None
    try:
        stored = limits.check_size(shape, samples * itemsize, frames=frames)
        limits.check_size(matrix or shape, samples * itemsize)
    except ImageError as error:
        slide = f"a slide of {sides[1]}x{sides[0]} pixels in {frames} tiles; open a smaller level of it: "
        raise ImageError(f"{slide if matrix else ''}{error}") from None
    size = limits.estimate_size((*shape, samples), itemsize, frames=frames)
    return Header(elements, shape, frames, samples, matrix, stored, size, deflated, whole)


def parse(file: BinaryIO, *, stop_before_pixels: bool = False) -> Any:
    """Return the elements in `READ` as a pydicom dataset; raise `ImageError` if the file has too many of any kind."""
    from pydicom.filereader import read_partial

    _silence_pydicom()
    stop = _stop_at((PIXEL_TAGS if stop_before_pixels else frozenset[int]()).__contains__)
    return read_partial(file, stop, force=True, specific_tags=[*_list_tags().values()])


def _stop_at(ends: Callable[[Any], bool]) -> Callable[[Any, str | None, int], bool]:
    """Return what tells pydicom to stop before an element; it raises `ImageError` after too many of them."""
    count = itertools.count(1)

    def stop(tag: Any, vr: str | None, length: int) -> bool:
        if next(count) > MAX_ELEMENTS:
            raise ImageError(f"it has more than {MAX_ELEMENTS} DICOM elements")
        return ends(tag)

    return stop


@cache
def _list_tags() -> Any:
    from pydicom.tag import Tag

    return {keyword: Tag(keyword) for keyword in READ}


@cache
def _silence_pydicom() -> None:
    """Keep pydicom from warning and logging: its messages quote values. A worker never needs them."""
    logging.getLogger("pydicom").setLevel(logging.CRITICAL + 1)
    warnings.filterwarnings("ignore", module="pydicom")


def is_deflated(file: BinaryIO) -> bool:
    """Return whether the elements of a file are compressed; it is then at the first of them, else at its beginning."""
    from pydicom.filereader import read_dataset
    from pydicom.tag import Tag

    _silence_pydicom()
    file.seek(128)
    meta: Any = {}
    if file.read(4) == b"DICM":
        stop = _stop_at(lambda tag: bool(tag.group != 2))
        meta = read_dataset(file, False, True, stop_when=stop, specific_tags=[Tag(0x00020010)])
        if meta.get("TransferSyntaxUID") == DEFLATED:
            return True
        _check_group(file.read(2))
    file.seek(0)
    return False


def _check_group(start: bytes) -> None:
    """Raise `ImageError` if the elements begin with those of group 0: pydicom would read them all, however many."""
    if start == b"\0\0":
        raise ImageError("it is damaged or cut short (its first element is of group 0)")


def inflate(file: BinaryIO, room: int, *, whole: bool) -> BinaryIO:
    """Return the first `room` bytes of the elements of a deflated file, as a file that is not deflated. Raise
    `ImageError` if `whole` is asked for and there are more: pydicom would inflate all of it."""
    is_deflated(file)
    inflater, plain = Inflater(file, -zlib.MAX_WBITS), bytearray()
    while len(plain) < room and (chunk := inflater.read(min(2**20, room - len(plain)))):
        plain += chunk
    if whole and len(plain) == room and inflater.read(1):
        raise ImageError(f"it inflates to more than the {room / 2**20:.1f} MiB that its header and pixels need")
    _check_group(bytes(plain[:2]))
    return io.BytesIO(INFLATED + plain)
