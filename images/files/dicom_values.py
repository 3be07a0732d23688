"""The pixels of a DICOM file as values in their unit, which of them were measured, and how large a pixel is."""

import hashlib
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...errors import ImageError
from ..pixels import DEPTHS, Native, Range, find_range, fit_integers, mark_blank, rescale, to_native_dtype, to_srgb
from ..source import Unit
from . import dicom_header
from .dicom_header import SEGMENTATIONS, Header, get_count, get_text, get_value, parse_numbers
from .dicom_marks import find_marks, list_regions, list_words

Display = tuple[Range, bytes | None]  # values shown as black and as white, and the gray levels between them
NEGATIVE = bytes(range(255, -1, -1))
LEVELS = 2048  # of a sigmoid, over `REACH` widths: less than half a gray level is lost
REACH = 4.0
STEP = 1e-3  # the width of a window of one value, which is a threshold
XRAY = "1.2.840.10008.5.1.4.1.1.12."  # begins the classes of angiography and fluoroscopy
CT = ("1.2.840.10008.5.1.4.1.1.2", "1.2.840.10008.5.1.4.1.1.2.1", "1.2.840.10008.5.1.4.1.1.2.2")
COLOR_SPACES = "its color space is not supported; allowed: MONOCHROME, RGB, YBR, PALETTE COLOR"
KINDS = ("RGB", "YBR", "MONOCHROME1", "MONOCHROME2", "PALETTE")  # beginnings of PhotometricInterpretation
JP2 = b"\0\0\0\x0cjP  "  # the first box of a JPEG 2000 file


@dataclass(frozen=True, eq=False)
class DecodedFrames:
    """All frames of a file."""

    pixels: np.ndarray  # (n, h, w) or (n, h, w, 3), in their units
    blank: float | None  # the value of those that were not measured; None if all were
    measured: Range  # the lowest and the highest value; the first is higher if nothing was measured
    wishes: list[Display | None]  # how each frame asks to be shown; one for all if they share it
    usual: Range | None  # shown if the file asks for none; None: from the lowest to the highest value
    inverted: bool  # whether low values are bright
    fields: dict[str, Any]  # of `Volume`: unit, spacing (x, y), at_detector, aspect, notes, sides, frame_of_reference


def decode_elements(dataset: Any, header: Header) -> DecodedFrames:
    """Decode the frames of a file that is parsed; its stored pixels are taken out of it."""
    frames, missing, bits, color = _decode_stored(dataset, header)
    if header.frames == 1:
        frames, missing = frames[None], None if missing is None else missing[None]
    reference = get_text(dataset, "FrameOfReferenceUID")
    fields, usual = get_pixel_size(dataset) | {"unit": get_unit(dataset)}, (0.0, 2.0**bits - 1)
    fields["frame_of_reference"] = reference and hashlib.sha256(reference.encode()).hexdigest()[:16]
    numbers = range(len(frames) if dicom_header.OF_FRAMES in dataset else 1)
    fields["sides"], outside, notes = find_marks(dataset, header.shape, numbers)
    fields["notes"] = (*fields.get("notes", ()), *notes)
    if outside is not None:
        missing = np.broadcast_to(outside, frames.shape[:3]) if missing is None else missing | outside
    if color:
        optics = (get_value(dataset, "OpticalPathSequence") or [{}])[0]  # of a slide
        profile = get_value(dataset, "ICCProfile") or optics.get("ICCProfile")
        frames, said = to_srgb(frames, getattr(profile, "value", profile))
        fields["notes"] = (*fields["notes"], *said)
        native = to_native_dtype(frames) if missing is None else mark(to_native_dtype(frames).pixels, missing)
        return DecodedFrames(native.pixels, native.blank, usual, [None], usual, False, fields)
    segments = get_text(dataset, "SOPClassUID") in SEGMENTATIONS
    if segments and get_text(dataset, "SegmentationType") == "FRACTIONAL":
        fields["full"] = float(get_count(dataset, "MaximumFractionalValue", 255)) or 255.0
    if missing is not None and (segments or frames.dtype.kind == "f"):  # what is in no segment is 0
        frames[missing], missing = 0 if segments else np.nan, None
    low, high = (usual[0] - 2.0 ** (bits - 1), usual[1] - 2.0 ** (bits - 1)) if frames.dtype.kind == "i" else usual
    if frames.dtype.kind == "f":
        low, high = -math.inf, math.inf
    scales = [_get_rescale(dataset, frame) for frame in numbers]
    table: Any = get_value(dataset, "ModalityLUTSequence")
    logarithmic = get_text(dataset, "PixelIntensityRelationship") in ("LOG", "DISP") and {*scales} != {(1.0, 0.0)}
    if (table or logarithmic) and get_text(dataset, "SOPClassUID").startswith(XRAY):
        fields["notes"] += ("values are as stored: the Modality LUT (or rescale) leads back to the X-ray beam",)
        table, scales = None, [(1.0, 0.0)]
    if _get_mapping(dataset) not in (None, scales[0]):
        note = "values are rescaled as usual: the mapping to real-world values that the file has, too, is not applied"
        fields["notes"] += (note,)
    ends = [end * slope + intercept for end in (low, high) for slope, intercept in scales]
    if table:
        table = read_table(dataset, table[0], (low, high))
        if table is None:
            raise ImageError("its ModalityLUTSequence has no table")
        places = np.clip(frames.astype(np.int32) - table.first, 0, len(table.entries) - 1)
        native, ends = to_native_dtype(table.entries[places]), [0.0, 65535.0]
    elif len(set(scales)) == 1:
        native = rescale(frames, *scales[0])
    else:
        each = [rescale(frame, *scale).pixels for frame, scale in zip(frames, scales, strict=True)]
        native = to_native_dtype(join_slices(each))
    pixels, measured, blank, *_ = native if missing is None else mark(native.pixels, missing)
    if pixels.dtype == np.uint8:
        measured = find_range(pixels, np.asarray(blank is None or pixels != blank))
    wishes = [get_display(dataset, frame, (min(ends), max(ends))) for frame in numbers]
    gray_levels = not segments and high <= 255 and {*ends} == {low, high}  # also masks: 1 is white
    inverted = get_text(dataset, "PhotometricInterpretation") == "MONOCHROME1"
    if not any(wishes) and not gray_levels and math.isfinite(min(ends)):
        fields["levels"] = (max(ends), min(ends)) if inverted else (min(ends), max(ends))
    shown = (low, high) if gray_levels else None
    return DecodedFrames(pixels, blank, measured, wishes, shown, inverted, fields)


def mark(pixels: np.ndarray, missing: np.ndarray) -> Native:
    """Return frames with one value where they are missing, bool (n, h, w); a slice of a series may be nothing else.
    Colors become 16 bits: 8 may have no value to spare."""
    if missing.all():
        return Native(np.zeros_like(pixels), (np.inf, -np.inf), 0.0)
    if pixels.ndim == 4:
        pixels, missing = pixels.astype(np.uint16), np.broadcast_to(missing[..., None], pixels.shape)
    return mark_blank(pixels, missing)


def _get_rescale(dataset: Any, frame: int) -> tuple[float, float]:
    """(slope, intercept) from stored values to values in their unit; one that is missing is 1 or 0."""
    dose = get_value(dataset, "DoseGridScaling")
    slope = get_value(dataset, "RescaleSlope", frame) if dose is None else dose
    intercept = get_value(dataset, "RescaleIntercept", frame)
    numbers = parse_numbers([1 if slope is None else slope, 0 if intercept is None else intercept])
    if not numbers or numbers[0] == 0:
        raise ImageError("its rescale slope and intercept are not usable numbers")
    return numbers[0], numbers[1]


def _get_mapping(dataset: Any) -> tuple[float, float] | None:
    """Return (slope, intercept) of the mapping to real-world values (PS3.3 C.7.6.16.2.11); None if there is none."""
    mapping = (get_value(dataset, "RealWorldValueMappingSequence") or [{}])[0]
    names = ("RealWorldValueSlope", "RealWorldValueIntercept")
    numbers = [parse_numbers(mapping.get(name, dicom_header.get_frame_value(dataset, name, 0))) for name in names]
    return (numbers[0][0], numbers[1][0]) if all(numbers) else None


def get_unit(dataset: Any) -> Unit | None:
    """Return "HU" for a CT image with a rescale that names no other unit, "Gy" for a dose that says so. Of a localizer,
    Hounsfield units are not required (DICOM PS3.3 C.8.2.1, C.8.15.3.10, C.8.8.3)."""
    if get_value(dataset, "DoseGridScaling") is not None:
        return "Gy" if get_text(dataset, "DoseUnits") == "GY" else None
    sort = get_text(dataset, "SOPClassUID")
    tomography = sort in CT if sort else get_text(dataset, "Modality") == "CT"
    scaled = any(get_value(dataset, f"Rescale{end}") is not None for end in ("Slope", "Intercept"))
    usual = "" if "LOCALIZER" in list_words(dataset, "ImageType") else "HU"
    hounsfield = (get_text(dataset, "RescaleType") or usual) == "HU"
    return "HU" if tomography and scaled and hounsfield and not get_value(dataset, "ModalityLUTSequence") else None


def get_pixel_size(dataset: Any, frame: int = 0) -> dict[str, Any]:
    """Return how large a pixel is in the patient, or at the detector: fields of `Source`. DICOM PS3.3 10.7.1:
    PixelSpacing that equals ImagerPixelSpacing is not corrected, unless a calibration is named."""
    ratio = parse_numbers(get_value(dataset, "PixelAspectRatio"))  # vertical, horizontal
    shape = {"spacing": None, "aspect": ratio[0] / ratio[1] if len(ratio) == 2 and min(ratio) > 0 else 1.0}
    if regions := list_regions(dataset):
        scales = [region[4:] for region in regions if region[4] > 0]
        note = f"millimeters are known in ultrasound regions with lengths as axes: {len(scales)} of {len(regions)}"
        aspect = {"aspect": scales[0][1] / scales[0][0]} if len({*scales}) == 1 else {}
        return {**shape, **aspect, "regions": regions, "notes": (note,)}
    corrected, imager, scanned = (_get_spacing(get_value(dataset, keyword, frame)) for keyword in dicom_header.SPACINGS)
    uncorrected = corrected is not None and imager is not None and np.allclose(corrected, imager, rtol=1e-3)
    if corrected is not None and (not uncorrected or get_value(dataset, "PixelSpacingCalibrationType")):
        return {"spacing": corrected}
    spacing = corrected or imager or scanned
    if spacing is None:
        return shape
    factor, detector, patient = (
        (*parse_numbers(get_value(dataset, keyword)), 0.0)[0] for keyword in dicom_header.MAGNIFICATION
    )
    factor = factor if factor > 0 else detector / patient if patient > 0 else 0.0
    if factor <= 0:
        return {"spacing": spacing, "at_detector": True}
    note = f"the pixel size is that at the detector, divided by the magnification of {factor:.4g} that the file states"
    return {"spacing": (spacing[0] / factor, spacing[1] / factor), "notes": (note,)}


def _get_spacing(value: Any) -> tuple[float, float] | None:
    """Millimeters per pixel along x and y; DICOM writes the distance of rows (y) first."""
    numbers = parse_numbers(value)
    return (numbers[1], numbers[0]) if len(numbers) == 2 and min(numbers) > 0 else None


def _decode_stored(dataset: Any, header: Header) -> tuple[np.ndarray, np.ndarray | None, int, bool]:
    """Return the stored values, which of them are padding, how many bits they have, and whether they are RGB."""
    from pydicom import uid
    from pydicom.pixels import apply_color_lut, get_decoder

    name = next((name for name in dicom_header.PIXELS if name in dataset), None)
    if name is None:
        raise dicom_header.NoPictureError("the DICOM file holds no picture")
    implicit, little = dataset.original_encoding
    plain = uid.ExplicitVRLittleEndian if little else uid.ExplicitVRBigEndian
    syntax = uid.UID(dataset.file_meta.get("TransferSyntaxUID") or (uid.ImplicitVRLittleEndian if implicit else plain))
    known = syntax.name if syntax in uid.UID_dictionary else "unknown"
    try:
        decoder: Any = get_decoder(syntax)
    except NotImplementedError:
        decoder = None
    if decoder is None or not decoder.is_available:
        raise ImageError(f"no decoder for its transfer syntax ({known}) is installed{_suggest_plugin(decoder)}")
    layout = _get_layout(dataset, header, name, encapsulated=syntax.is_encapsulated)
    if syntax in uid.JPEG2000TransferSyntaxes:
        _check_boxes(dataset.get("PixelData") or b"")
    gray, bits = header.samples == 1, layout["bits_stored"]
    try:
        options: Any = {**layout, "allow_excess_frames": False, "correct_unused_bits": not gray}
        stored, meta = decoder.as_array(dataset, **options)
    except Exception as error:  # the decoders of pydicom and its plugins raise anything
        problem = f"damaged, cut short or of an unsupported kind ({type(error).__name__})"
        more = ", which reads more kinds" if (better := _suggest_plugin(decoder)) else ""
        raise ImageError(f"its pixels ({known}) cannot be decoded: {problem}{better}{more}") from None
    dataset.pop(name)  # they may be large
    kind = meta["photometric_interpretation"]
    if not gray:
        if kind != "RGB":
            raise ImageError(COLOR_SPACES)
        return stored, None, bits, True
    missing = _find_padding(dataset, name, stored)
    lossless = (*uid.JPEG2000TransferSyntaxes, *uid.JPEGLSTransferSyntaxes)  # their decoders know the bits
    if bits < layout["bits_allocated"] and name == "PixelData" and syntax not in lossless:
        high = get_count(dataset, "HighBit", 0) if syntax == uid.RLELossless or not syntax.is_encapsulated else 0
        size, high = 8 * stored.dtype.itemsize, max(high, bits - 1)
        np.left_shift(stored, max(0, size - 1 - high), out=stored)
        np.right_shift(stored, size - bits, out=stored)
        again = _find_padding(dataset, name, stored)  # it may be written with the unused bits or without
        missing = again if missing is None else missing if again is None else missing | again
    if kind == "PALETTE COLOR" and get_text(dataset, "SOPClassUID") not in SEGMENTATIONS:
        entry = parse_numbers(dataset.get("RedPaletteColorLookupTableDescriptor"))[2:]
        if entry not in ([8.0], [16.0]):
            raise ImageError("RedPaletteColorLookupTableDescriptor does not end with 8 or 16 bits an entry")
        colors = apply_color_lut(stored, dataset)[..., :3]
        wide = colors.dtype != np.uint8 and entry == [16.0]  # 8 bits may be kept in 16 (C.7.6.3.1.6, note)
        return (colors >> 8 if wide else colors).astype(np.uint8), None, 8, True
    return stored, missing, bits, False


def _get_layout(dataset: Any, header: Header, name: str, *, encapsulated: bool) -> dict[str, Any]:
    """Return how pixels are stored, in pydicom's names; raise `ImageError` for an element that is missing or wrong."""
    allocated, photometric = get_count(dataset, "BitsAllocated"), get_text(dataset, "PhotometricInterpretation")
    bits, color = get_count(dataset, "BitsStored", allocated), photometric.startswith(("RGB", "YBR"))
    if allocated not in (1, 8, 16, 32, 64) or not 1 <= bits <= allocated:
        raise ImageError(f"BitsStored {bits} of BitsAllocated {allocated}; allowed: up to 1, 8, 16, 32 or 64")
    if not photometric:
        raise ImageError("the element PhotometricInterpretation is missing")
    if header.samples != (3 if color else 1) or not photometric.startswith(KINDS):
        raise ImageError(COLOR_SPACES)
    layout: dict[str, Any] = {"bits_allocated": allocated, "bits_stored": bits, "samples_per_pixel": header.samples}
    layout["photometric_interpretation"] = photometric
    if name == "PixelData":
        layout["pixel_representation"] = get_count(dataset, "PixelRepresentation")
    if color:
        layout["planar_configuration"] = get_count(dataset, "PlanarConfiguration", 0 if encapsulated else None)
    needed = math.ceil(header.stored / (8 if allocated == 1 else 1.5 if photometric == "YBR_FULL_422" else 1))
    if not encapsulated and (there := len(dataset.get(name) or b"")) < needed:
        raise ImageError(f"it is cut short: {there} of {needed} bytes of pixels")
    return layout


def _find_padding(dataset: Any, name: str, stored: np.ndarray) -> np.ndarray | None:
    """Return which values the file calls padding; None if there are none (DICOM PS3.3 C.7.5.1.1.2)."""
    keywords = (f"{name.removesuffix('Data')}Padding{end}" for end in ("Value", "RangeLimit"))
    paddings = (parse_numbers(get_value(dataset, keyword)) for keyword in keywords)
    value, limit = (_to_type(numbers[0], stored.dtype) if numbers else None for numbers in paddings)
    if value is None:
        return None
    low, high = (value, value) if limit is None else sorted((value, limit))
    missing = stored == low if low == high else (stored >= low) & (stored <= high)
    return missing if missing.any() else None


def _to_type(number: float, dtype: np.dtype[Any]) -> Any:
    """Return a number as one of a type, an integer by its bits: its sign may be wrong; None if it has too many."""
    if dtype.kind == "f":
        return dtype.type(number)
    return np.array(int(number)).astype(dtype) if abs(number) < 2 ** (8 * dtype.itemsize) else None


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


def _suggest_plugin(decoder: Any) -> str:
    if decoder is None or {"pydicom", "pylibjpeg"} & set(decoder.available_plugins) or not decoder.missing_dependencies:
        return ""
    return f"; install {decoder.missing_dependencies[-1].partition(' requires ')[2]}"


def join_slices(slices: list[np.ndarray]) -> np.ndarray:
    whole = np.stack(slices)
    return whole if whole.dtype.name in DEPTHS else fit_integers(whole, int(whole.min()), int(whole.max()))


# pydicom's `apply_voi_lut` is not used: it needs the whole picture where a curve will do, and of its tables with
# entries of 8 bits it reads the first 256 only (3.0.2).
class LookupTable(NamedTuple):
    """A lookup table: the first value that it maps, what it maps them to (uint16), and the highest that this can be."""

    first: int
    entries: np.ndarray
    highest: int


def get_display(dataset: Any, frame: int, possible: Range) -> Display | None:
    """Return how a frame asks to be shown: by the first lookup table, or the first window of two numbers. `possible`
    are the lowest and the highest value that its pixels can have."""
    for item in get_value(dataset, "VOILUTSequence", frame) or ():
        table = read_table(dataset, item, possible)
        if table is not None and len(table.entries) > 1:
            curve = np.rint(table.entries * (255 / table.highest)).clip(0, 255).astype(np.uint8).tobytes()
            return (float(table.first), float(table.first + len(curve) - 1)), curve
    function = str(get_value(dataset, "VOILUTFunction", frame) or "LINEAR").strip()
    windows = (dicom_header.list_values(get_value(dataset, f"Window{end}", frame)) for end in ("Center", "Width"))
    for center, width in filter(None, map(parse_numbers, zip(*windows, strict=False))):
        if width <= 0:
            continue
        if function == "SIGMOID":  # C.11.2.1.3.1
            places = np.linspace(-REACH / 2, REACH / 2, LEVELS)
            curve = np.rint(255 / (1 + np.exp(-4 * places))).astype(np.uint8).tobytes()
            return (center - REACH / 2 * width, center + REACH / 2 * width), curve
        if function == "LINEAR" and width >= 1:  # C.11.2.1.2.1
            center, width = center - 0.5, max(width - 1, STEP)
        return (center - width / 2, center + width / 2), None
    return None


def read_table(dataset: Any, item: Any, possible: Range) -> LookupTable | None:
    """Return a lookup table of a file; None if it has no entries. The first value may be written with the wrong sign;
    it counts so that the table maps values that pixels can have."""
    numbers, data = parse_numbers(item.get("LUTDescriptor")), item.get("LUTData")
    if len(numbers) != 3 or data is None:
        return None
    count, first, bits = int(numbers[0]) % 65536 or 65536, int(numbers[1]), int(numbers[2])
    if isinstance(data, bytes):
        order = "<" if dataset.original_encoding[1] is not False else ">"
        data = np.frombuffer(data[: 2 * count], f"{order}u2") if len(data) >= 2 * count else np.frombuffer(data, "u1")
    entries = np.atleast_1d(np.asarray(data)).astype(np.uint16)[:count]
    starts = (first, first - 65536, first + 65536)
    fitting = (start for start in starts if start <= possible[1] and start + count > possible[0])
    return LookupTable(next(fitting, first), entries, 2 ** min(max(bits, 8), 16) - 1) if len(entries) else None


def choose_display(wish: Display | None, measured: Range, usual: Range, *, inverted: bool) -> Display:
    """Return how values are shown: as the file asks, if that tells any that were measured apart, or the usual range;
    inverted, the lowest value is white (MONOCHROME1)."""
    fits = wish is not None and wish[0][0] < measured[1] and wish[0][1] > measured[0]
    (black, white), curve = wish if wish is not None and fits else (usual, None)
    if not inverted:
        return (black, white), curve
    return (white, black), None if curve is None else curve[::-1].translate(NEGATIVE)
