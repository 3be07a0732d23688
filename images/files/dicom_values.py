"""The pixels of a DICOM file as values in their unit, which of them were measured, and how large a pixel is."""

import hashlib
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...errors import ImageError
from ..pixels import Native, Range, fit_integers, mark_blank, rescale, to_native_dtype
from ..source import Unit
from .dicom_display import Display, get_display, read_table
from .dicom_header import (
    OF_FRAMES,
    PIXELS,
    SEGMENTATIONS,
    NoPictureError,
    count_frames,
    get_count,
    get_text,
    get_value,
    parse_numbers,
)

CT = ("1.2.840.10008.5.1.4.1.1.2", "1.2.840.10008.5.1.4.1.1.2.1", "1.2.840.10008.5.1.4.1.1.2.2")
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
RLE = "1.2.840.10008.1.2.5"
JPEG_LS = tuple(f"1.2.840.10008.1.2.4.{part}" for part in (80, 81))
JPEG_2000 = tuple(f"1.2.840.10008.1.2.4.{part}" for part in (90, 91, 92, 93, 201, 202, 203))
JP2 = b"\0\0\0\x0cjP  "  # the first box of a JPEG 2000 file


@dataclass(frozen=True, eq=False)
class DecodedFrames:
    """All frames of a file.

    Args:
        pixels: (n, h, w) or (n, h, w, 3), in their units.
        blank: the value of those that were not measured; None if all were.
        measured: the lowest and the highest value; the first is higher if nothing was measured.
        wishes: how each frame asks to be shown; one for all if they share it.
        usual: the range that is shown if the file asks for none; None: from the lowest to the highest value.
        inverted: whether low values are bright.
        unit: of the values.
        size: of a pixel of the first frame.
        reference: what places in the patient count from, as a hash of the UID that is not kept.
    """

    pixels: np.ndarray
    blank: float | None
    measured: Range
    wishes: list[Display | None]
    usual: Range | None
    inverted: bool
    unit: Unit | None
    size: "PixelSize"
    reference: str


class PixelSize(NamedTuple):
    """The size of a pixel, in the names of `Source`."""

    spacing: tuple[float, float] | None
    at_detector: bool = False
    aspect: float = 1.0
    notes: tuple[str, ...] = ()


def decode_elements(dataset: Any) -> DecodedFrames:
    """Decode the frames of a file that is parsed; its stored pixels are taken out of it.

    Raises:
        ImageError: an element is missing or wrong, the file holds no picture, or no installed decoder reads it.
    """
    frames, missing, colors = _decode_stored(dataset)
    if count_frames(dataset) == 1:
        frames, missing = frames[None], None if missing is None else missing[None]
    reference = get_text(dataset, "FrameOfReferenceUID")
    common = get_pixel_size(dataset), hashlib.sha256(reference.encode()).hexdigest()[:16] if reference else ""
    if colors is not None:
        return DecodedFrames(to_native_dtype(frames).pixels, None, colors, [None], colors, False, None, *common)
    segments = get_text(dataset, "SOPClassUID") in SEGMENTATIONS
    if missing is not None and (segments or frames.dtype.kind == "f"):  # what is in no segment is 0
        frames[missing], missing = 0 if segments else np.nan, None
    low, high = _get_stored_range(dataset, frames.dtype)
    numbers = range(len(frames) if OF_FRAMES in dataset else 1)
    if dataset.get("ModalityLUTSequence"):
        table = read_table(dataset, dataset.ModalityLUTSequence[0], (low, high))
        if table is None:
            raise ImageError("its ModalityLUTSequence has no table")
        places = np.clip(frames.astype(np.int32) - table.first, 0, len(table.entries) - 1)
        native, scales, possible = to_native_dtype(table.entries[places]), set(), (0.0, 65535.0)
    else:
        each = [_get_rescale(dataset, frame) for frame in numbers]
        scales = set(each)
        ends = [end * slope + intercept for end in (low, high) for slope, intercept in scales]
        possible = min(ends), max(ends)
        if len(scales) == 1:
            native = rescale(frames, *each[0])
        else:
            scaled = (rescale(frame, *scale).pixels for frame, scale in zip(frames, each, strict=True))
            native = to_native_dtype(join_slices(list(scaled)))
    pixels, measured, blank = native if missing is None else _mark(native.pixels, missing)
    if pixels.dtype == np.uint8:
        seen = pixels if blank is None else pixels[pixels != blank]
        measured = float(seen.min(initial=255)), float(seen.max(initial=0))
    usual = None
    if scales == {(1.0, 0.0)} and not segments:
        few = high < 255  # masks: 1 is white
        usual = (low, high) if few else (0.0, 255.0) if pixels.dtype == np.uint8 else None
    wishes = [get_display(dataset, frame, possible) for frame in numbers]
    inverted = get_text(dataset, "PhotometricInterpretation") == "MONOCHROME1"
    return DecodedFrames(pixels, blank, measured, wishes, usual, inverted, get_unit(dataset), *common)


def _mark(pixels: np.ndarray, missing: np.ndarray) -> Native:
    """Return pixels with one value where they are missing: a slice of a series may be nothing but padding."""
    return Native(np.zeros_like(pixels), (np.inf, -np.inf), 0.0) if missing.all() else mark_blank(pixels, missing)


def _get_stored_range(dataset: Any, dtype: np.dtype[Any]) -> Range:
    """Return the lowest and the highest value that the stored bits can hold."""
    if dtype.kind == "f":
        return -math.inf, math.inf
    bits = get_count(dataset, "BitsStored", get_count(dataset, "BitsAllocated"))
    return (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1) if dtype.kind == "i" else (0.0, 2.0**bits - 1)


def _get_rescale(dataset: Any, frame: int) -> tuple[float, float]:
    """(slope, intercept) from stored values to values in their unit; one that is missing is 1 or 0."""
    dose = dataset.get("DoseGridScaling")
    slope = get_value(dataset, "RescaleSlope", frame) if dose is None else dose
    intercept = get_value(dataset, "RescaleIntercept", frame)
    numbers = parse_numbers([1 if slope is None else slope, 0 if intercept is None else intercept])
    if not numbers or numbers[0] == 0:
        raise ImageError("its rescale slope and intercept are not usable numbers")
    return numbers[0], numbers[1]


def get_unit(dataset: Any) -> Unit | None:
    """Return "HU" for a CT image with a rescale that names no other unit, "Gy" for a dose that says so.

    Of a localizer, Hounsfield units are not required (DICOM PS3.3 C.8.2.1, C.8.15.3.10, C.8.8.3).
    """
    if dataset.get("DoseGridScaling") is not None:
        return "Gy" if get_text(dataset, "DoseUnits") == "GY" else None
    sort = get_text(dataset, "SOPClassUID")
    tomography = sort in CT if sort else get_text(dataset, "Modality") == "CT"
    scaled = any(get_value(dataset, f"Rescale{part}") is not None for part in ("Slope", "Intercept"))
    hounsfield = (get_text(dataset, "RescaleType") or ("" if is_localizer(dataset) else "HU")) == "HU"
    return "HU" if tomography and scaled and hounsfield and not dataset.get("ModalityLUTSequence") else None


def is_localizer(dataset: Any) -> bool:
    """Return whether a file says that it is a view for planning (DICOM PS3.3 C.8.2.1.1.1)."""
    return "LOCALIZER" in str(dataset.get("ImageType") or "")


def get_pixel_size(dataset: Any, frame: int = 0) -> PixelSize:
    """Return how large a pixel is in the patient, or at the detector if the file does not say more.

    DICOM PS3.3 10.7.1: PixelSpacing that equals ImagerPixelSpacing is not corrected, unless a calibration is named.
    """
    calibrated, imager, scanned = (
        _get_spacing(get_value(dataset, keyword, frame))
        for keyword in ("PixelSpacing", "ImagerPixelSpacing", "NominalScannedPixelSpacing")
    )
    if calibrated is not None and (
        imager is None or not np.allclose(calibrated, imager, rtol=1e-3) or dataset.get("PixelSpacingCalibrationType")
    ):
        return PixelSize(calibrated)
    spacing = calibrated or imager or scanned
    if spacing is None:
        ratio = parse_numbers(dataset.get("PixelAspectRatio"))  # vertical, horizontal
        return PixelSize(None, aspect=ratio[0] / ratio[1] if len(ratio) == 2 and min(ratio) > 0 else 1.0)
    factor, detector, patient = (
        (*parse_numbers(dataset.get(keyword)), 0.0)[0]
        for keyword in (
            "EstimatedRadiographicMagnificationFactor",
            "DistanceSourceToDetector",
            "DistanceSourceToPatient",
        )
    )
    factor = factor if factor > 0 else detector / patient if patient > 0 else 0.0
    if factor <= 0:
        return PixelSize(spacing, at_detector=True)
    note = f"the pixel size is that at the detector, divided by the magnification of {factor:.4g} that the file states"
    return PixelSize((spacing[0] / factor, spacing[1] / factor), notes=(note,))


def _get_spacing(value: Any) -> tuple[float, float] | None:
    """Millimeters per pixel along x and y; DICOM writes the distance of rows (y) first."""
    numbers = parse_numbers(value)
    return (numbers[1], numbers[0]) if len(numbers) == 2 and min(numbers) > 0 else None


def _decode_stored(dataset: Any) -> tuple[np.ndarray, np.ndarray | None, Range | None]:
    """Return the stored values, which of them are padding, and the range of colors; None for gray."""
    from pydicom.pixels import apply_color_lut, get_decoder
    from pydicom.uid import UID, UID_dictionary

    name = next((name for name in PIXELS if name in dataset), None)
    if name is None:
        raise NoPictureError("the DICOM file holds no picture")
    syntax = UID(dataset.file_meta.get("TransferSyntaxUID") or NATIVE[dataset.original_encoding])
    known = syntax.name if syntax in UID_dictionary else "unknown"
    try:
        decoder = get_decoder(syntax)
        readable = decoder.is_available
    except NotImplementedError:
        readable = False
    if not readable:
        raise ImageError(f"no decoder for its transfer syntax ({known}) is installed{_suggest_plugin(known)}")
    layout = _get_layout(dataset, name, encapsulated=syntax.is_encapsulated)
    if syntax in JPEG_2000:
        _check_boxes(dataset.get("PixelData") or b"")
    gray, problem = layout["samples_per_pixel"] == 1, ""
    try:
        options: Any = {**layout, "allow_excess_frames": False, "correct_unused_bits": not gray}
        stored, meta = decoder.as_array(dataset, **options)
    except Exception as error:  # the decoders of pydicom and its plugins raise anything
        problem = type(error).__name__
    if problem:
        better = "" if "pylibjpeg" in decoder.available_plugins else _suggest_plugin(known)
        raise ImageError(
            f"its pixels ({known}) cannot be decoded: damaged, cut short or of an unsupported kind ({problem})"
            + (f"{better}, which reads more kinds" if better else "")
        )
    dataset.pop(name)  # they may be large
    kind, bits, missing = meta["photometric_interpretation"], layout["bits_stored"], None
    if kind == "RGB":
        return stored, None, (0.0, 2.0**bits - 1)
    if not gray:
        raise ImageError("its color space is not supported; allowed: MONOCHROME, RGB, YBR, PALETTE COLOR")
    missing = _find_padding(dataset, name, stored)
    if bits < layout["bits_allocated"] and name == "PixelData" and syntax not in (*JPEG_2000, *JPEG_LS):
        high = get_count(dataset, "HighBit", 0) if syntax == RLE or not syntax.is_encapsulated else 0
        _drop_unused_bits(stored, bits, high)
        again = _find_padding(dataset, name, stored)
        missing = again if missing is None else missing if again is None else missing | again
    if kind == "PALETTE COLOR" and get_text(dataset, "SOPClassUID") not in SEGMENTATIONS:
        colors = apply_color_lut(stored, dataset)[..., :3]
        return (colors if colors.dtype == np.uint8 else (colors >> 8).astype(np.uint8)), None, (0.0, 255.0)
    return stored, missing, None


def _get_layout(dataset: Any, name: str, *, encapsulated: bool) -> dict[str, Any]:
    """Return how pixels are stored, in pydicom's names; raise `ImageError` for an element that is missing or wrong."""
    allocated, samples = get_count(dataset, "BitsAllocated"), get_count(dataset, "SamplesPerPixel", 1)
    bits, photometric = get_count(dataset, "BitsStored", allocated), get_text(dataset, "PhotometricInterpretation")
    if allocated not in (1, 8, 16, 32, 64) or not 1 <= bits <= allocated:
        raise ImageError(f"BitsStored {bits} of BitsAllocated {allocated}; allowed: up to 1, 8, 16, 32 or 64")
    if not photometric:
        raise ImageError("the element PhotometricInterpretation is missing")
    color = photometric.startswith(("RGB", "YBR"))
    if samples != (3 if color else 1) or not (color or photometric.startswith(("MONOCHROME", "PALETTE COLOR"))):
        raise ImageError(
            f"SamplesPerPixel {samples} and its PhotometricInterpretation are no color space that is supported; "
            "allowed: 1 of MONOCHROME and PALETTE COLOR, 3 of RGB and YBR"
        )
    layout = {"bits_allocated": allocated, "bits_stored": bits, "samples_per_pixel": samples}
    layout |= {"photometric_interpretation": photometric}
    if name == "PixelData":
        layout["pixel_representation"] = get_count(dataset, "PixelRepresentation")
    if color:
        layout["planar_configuration"] = get_count(dataset, "PlanarConfiguration", 0 if encapsulated else None)
    values = math.prod(get_count(dataset, keyword) for keyword in ("Rows", "Columns")) * samples
    values *= count_frames(dataset)
    needed = math.ceil(values * allocated / (12 if photometric == "YBR_FULL_422" else 8))
    if not encapsulated and (there := len(dataset.get(name) or b"")) < needed:
        raise ImageError(f"it is cut short: {there} of {needed} bytes of pixels")
    return layout


def _find_padding(dataset: Any, name: str, stored: np.ndarray) -> np.ndarray | None:
    """Return which values the file calls padding; None if there are none (DICOM PS3.3 C.7.5.1.1.2).

    Padding may be written with the wrong sign, as if the bits were of the other type.
    """
    kind = name.removesuffix("Data")
    value, limit = (
        _to_type((*parse_numbers(dataset.get(f"{kind}Padding{part}")), np.nan)[0], stored.dtype)
        for part in ("Value", "RangeLimit")
    )
    if value is None:
        return None
    low, high = (value, value) if limit is None else sorted((value, limit))
    missing = stored == low if low == high else (stored >= low) & (stored <= high)
    return missing if missing.any() else None


def _to_type(number: float, dtype: np.dtype[Any]) -> Any:
    """Return a number as one of a type, by its bits if it is an integer; None if it is none, or has too many."""
    bits = 8 * dtype.itemsize
    if dtype.kind == "f":
        return None if np.isnan(number) else dtype.type(number)
    if not -(2 ** (bits - 1)) <= number < 2**bits:
        return None
    return (int(number) + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1) if dtype.kind == "i" else int(number) % 2**bits


def _drop_unused_bits(stored: np.ndarray, bits: int, high: int) -> None:
    """Keep the bits that hold a value, the highest of which is number `high`, if there can be that many below it."""
    size = 8 * stored.dtype.itemsize
    high = high if bits - 1 <= high < size else bits - 1
    np.left_shift(stored, size - 1 - high, out=stored)
    np.right_shift(stored, size - bits, out=stored)


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
