"""What the elements of a DICOM file say of its pixels; `READ` lists all that are ever parsed.

Nothing here tells who the patient is. `SeriesInstanceUID` and the position only sort the slices of a series.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from viewbox.errors import ImageError

PIXELS = ("PixelData", "FloatPixelData", "DoubleFloatPixelData")
COLORS = ("Red", "Green", "Blue")
READ = (
    *("SOPClassUID", "Modality", "SeriesInstanceUID", "ImagePositionPatient", "ImageOrientationPatient"),
    *("Rows", "Columns", "NumberOfFrames", "SamplesPerPixel", "PhotometricInterpretation", "PlanarConfiguration"),
    *("BitsAllocated", "BitsStored", "HighBit", "PixelRepresentation", "ModalityLUTSequence"),
    *("RescaleIntercept", "RescaleSlope", "RescaleType", "WindowCenter", "WindowWidth", "VOILUTFunction"),
    *("PixelSpacing", "ImagerPixelSpacing", "NominalScannedPixelSpacing"),
    *("SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence"),
    *(f"{color}PaletteColorLookupTable{part}" for color in COLORS for part in ("Descriptor", "Data")),
    *(f"Segmented{color}PaletteColorLookupTableData" for color in COLORS),
    *(*PIXELS, "ExtendedOffsetTable", "ExtendedOffsetTableLengths"),
)
GROUPS = {  # where multi-frame files keep what others have at the top
    "PixelSpacing": "PixelMeasuresSequence",
    **dict.fromkeys(("RescaleIntercept", "RescaleSlope", "RescaleType"), "PixelValueTransformationSequence"),
    **dict.fromkeys(("WindowCenter", "WindowWidth", "VOILUTFunction"), "FrameVOILUTSequence"),
}
CT = ("1.2.840.10008.5.1.4.1.1.2", "1.2.840.10008.5.1.4.1.1.2.1", "1.2.840.10008.5.1.4.1.1.2.2")


def value_of(dataset: Any, keyword: str, frame: int = 0) -> Any:
    """An element of the file or, in a multi-frame file, of one frame; None where it is missing."""
    if dataset.get(keyword) is not None or keyword not in GROUPS:
        return dataset.get(keyword)
    for groups, number in (("PerFrameFunctionalGroupsSequence", frame), ("SharedFunctionalGroupsSequence", 0)):
        items = dataset.get(groups) or []
        group = items[number].get(GROUPS[keyword]) if number < len(items) else None
        if group and group[0].get(keyword) is not None:
            return group[0].get(keyword)
    return None


def numbers(value: Any) -> list[float]:
    """The numbers of an element; none where one of them is none, or not finite."""
    values = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    try:
        found = [float(part) for part in values]
    except (TypeError, ValueError):
        return []
    return found if np.isfinite(found).all() else []


def scale(dataset: Any, frame: int) -> tuple[float, float]:
    """(slope, intercept) of stored values to values in their unit; (1, 0) where the file has none."""
    slope, intercept = (value_of(dataset, f"Rescale{part}", frame) for part in ("Slope", "Intercept"))
    if slope is None or intercept is None:
        return 1.0, 0.0
    found = numbers([slope, intercept])
    if not found or found[0] == 0:
        raise ImageError("its rescale slope and intercept are no usable numbers")
    return found[0], found[1]


def unit(dataset: Any) -> Literal["HU"] | None:
    """ "HU" for computed tomography with a rescale that does not name another unit (PS3.3 C.8.2.1, C.8.15.3.10)."""
    tomography = dataset.get("Modality") == "CT" or dataset.get("SOPClassUID") in CT
    scaled = value_of(dataset, "RescaleSlope") is not None and value_of(dataset, "RescaleIntercept") is not None
    hounsfield = (value_of(dataset, "RescaleType") or "HU") == "HU"
    return "HU" if tomography and scaled and hounsfield and not dataset.get("ModalityLUTSequence") else None


def stored_range(dataset: Any) -> tuple[int, int]:
    """The lowest and the highest value that the stored bits can hold."""
    bits = int(dataset.get("BitsStored") or 16)
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if dataset.get("PixelRepresentation") else (0, 2**bits - 1)


def spacing(dataset: Any) -> tuple[float, float] | None:
    """(x, y) in mm; DICOM writes the distance of rows (y) first."""
    for keyword in ("PixelSpacing", "ImagerPixelSpacing", "NominalScannedPixelSpacing"):
        found = numbers(value_of(dataset, keyword))
        if len(found) == 2 and min(found) > 0:
            return found[1], found[0]
    return None


def window(dataset: Any) -> tuple[float, float] | None:
    """The values shown black and white by the first window of the file (PS3.3 C.11.2.1.2)."""
    centers, widths = (numbers(value_of(dataset, f"Window{part}")) for part in ("Center", "Width"))
    if not centers or not widths or widths[0] <= 0:
        return None
    center, width = centers[0], widths[0]
    if (value_of(dataset, "VOILUTFunction") or "LINEAR") == "LINEAR" and width > 1:
        return center - width / 2, center + width / 2 - 1
    return center - width / 2, center + width / 2


def shown_range(window: tuple[float, float] | None, values: np.ndarray) -> tuple[float, float]:
    """The window, where there is one that shows something of `values`; else all of them, and 8 bits as they are."""
    low, high = float(values.min()), float(values.max())
    if window is not None and window[0] < high and window[1] > low:
        return window
    return (0.0, 255.0) if values.dtype == np.uint8 else (low, high)
