"""What the elements of a DICOM file say about its pixels; `READ` lists all elements that are ever parsed.

None of them identifies the patient. `SeriesInstanceUID` and the position only sort the slices of a series, and no
message quotes them; `SeriesNumber`, a small number, names a series to choose, and two others number time points.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from ...errors import ImageError

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


def get_value(dataset: Any, keyword: str, frame: int = 0) -> Any:
    """An element of the file or, in a multi-frame file, of one frame; None if it is missing."""
    if dataset.get(keyword) is not None or keyword not in GROUPS:
        return dataset.get(keyword)
    for groups, number in (("PerFrameFunctionalGroupsSequence", frame), ("SharedFunctionalGroupsSequence", 0)):
        items = dataset.get(groups) or []
        group = items[number].get(GROUPS[keyword]) if number < len(items) else None
        if group and group[0].get(keyword) is not None:
            return group[0].get(keyword)
    return None


def parse_numbers(value: Any) -> list[float]:
    """The element as floats; [] if any value is missing or not finite."""
    values = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    try:
        numbers = [float(part) for part in values]
    except (TypeError, ValueError):
        return []
    return numbers if np.isfinite(numbers).all() else []


def get_rescale(dataset: Any, frame: int) -> tuple[float, float]:
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
    """The lowest and the highest value that the stored bits can hold."""
    bits = int(dataset.get("BitsStored") or 16)
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if dataset.get("PixelRepresentation") else (0, 2**bits - 1)


def get_spacing(dataset: Any) -> tuple[float, float] | None:
    """Millimeters per pixel along x and y; DICOM writes the distance of rows (y) first."""
    for keyword in ("PixelSpacing", "ImagerPixelSpacing", "NominalScannedPixelSpacing"):
        numbers = parse_numbers(get_value(dataset, keyword))
        if len(numbers) == 2 and min(numbers) > 0:
            return numbers[1], numbers[0]
    return None


def get_window(dataset: Any) -> tuple[float, float] | None:
    """The values shown as black and as white by the first window of the file (DICOM PS3.3 C.11.2.1.2)."""
    centers, widths = (parse_numbers(get_value(dataset, f"Window{part}")) for part in ("Center", "Width"))
    if not centers or not widths or widths[0] <= 0:
        return None
    center, width = centers[0], widths[0]
    if (get_value(dataset, "VOILUTFunction") or "LINEAR") == "LINEAR" and width > 1:
        return center - width / 2, center + width / 2 - 1
    return center - width / 2, center + width / 2


def choose_display(window: tuple[float, float] | None, values: np.ndarray) -> tuple[float, float]:
    """The window, if it shows any of `values`; else the range of all values, or 0 to 255 for 8 bits."""
    low, high = float(values.min()), float(values.max())
    if window is not None and window[0] < high and window[1] > low:
        return window
    return (0.0, 255.0) if values.dtype == np.uint8 else (low, high)
