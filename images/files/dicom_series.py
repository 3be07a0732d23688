"""A folder with the slices of one DICOM series as a volume, sorted by their position in the patient."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from viewbox.errors import ImageError
from viewbox.images import limits
from viewbox.images.files import dicom, dicom_tags
from viewbox.images.source import Source, Volume, reorient

MAX_ANGLE = 1e-3  # largest difference between the direction cosines of slices
MAX_UNEVENNESS = 0.1  # largest deviation from the median distance of slices, as a share of it
SAME = {  # noun → the element that all slices must share
    "series": "SeriesInstanceUID",
    "heights": "Rows",
    "widths": "Columns",
    "photometric interpretations": "PhotometricInterpretation",
    "pixel spacings": "PixelSpacing",
}


@dataclass(frozen=True)
class SeriesSlice:
    """One file of a series, not yet decoded.

    Args:
        path: the file.
        header: its pydicom dataset without the pixels.
        position: of its first pixel, in mm in the patient (x to the left, y to the back, z to the head).
        directions: unit vectors along its rows and along its columns, (2, 3).
    """

    path: Path
    header: Any
    position: np.ndarray
    directions: np.ndarray


def read(folder: Path) -> Source:
    """The middle slice, in the plane of the series; raises `ImageError` if the files are not an even stack."""
    slices = [item for path in sorted(folder.iterdir()) if (item := _read_slice(path)) is not None]
    if not slices:
        raise ImageError("the folder holds no DICOM slices")
    limits.check_size((int(slices[0].header.Rows), int(slices[0].header.Columns)), 2, frames=len(slices))
    rows, columns = slices[0].directions
    normal = np.cross(rows, columns)
    for noun, keyword in SAME.items():
        _check_equal(noun, {str(item.header.get(keyword)) for item in slices})
    if any(np.abs(item.directions - slices[0].directions).max() > MAX_ANGLE for item in slices):
        raise ImageError("the slices have several orientations; allowed: one")
    slices.sort(key=lambda item: float(item.position @ normal))
    distance = _measure_distance([float(item.position @ normal) for item in slices])
    decoded = [_decode(item.path) for item in slices]
    window, spacing = decoded[len(decoded) // 2].window, decoded[0].spacing
    unit = decoded[0].unit
    _check_equal("units", {str(item.unit) for item in decoded})
    voxels = dicom.join_slices([decoded.pop(0).pixels[0] for _ in slices])
    display = dicom_tags.choose_display(window, voxels)
    x, y = spacing or (0.0, 0.0)
    voxels, steps, plane = reorient(voxels, np.array([normal, columns, rows]), (distance, y, x))
    known = spacing is not None and distance > 0
    return Volume(voxels, display, steps if known else None, unit).get_middle_slice(plane)


def _read_slice(path: Path) -> SeriesSlice | None:
    """The slice in a file; None if it is not a DICOM file or holds no picture. Links are not followed."""
    if path.is_symlink() or not path.is_file():
        return None
    with open(path, "rb") as file:
        if not dicom.is_dicom(file.read(132)):
            return None
        file.seek(0)
        try:
            header = dicom.read_header(file)
        except dicom.NoPictureError:
            return None
    if int(header.get("NumberOfFrames") or 1) > 1 or int(header.get("SamplesPerPixel", 1)) > 1:
        raise ImageError("a file of the series holds several frames or colors; allowed: one gray slice per file")
    position, directions = (
        dicom_tags.parse_numbers(header.get(f"Image{part}Patient")) for part in ("Position", "Orientation")
    )
    if len(position) != 3 or len(directions) != 6:
        raise ImageError("a slice has no position and orientation: the slices cannot be sorted")
    cosines = np.array(directions).reshape(2, 3)
    if np.abs(cosines @ cosines.T - np.eye(2)).max() > 1e-2:
        raise ImageError("the orientation of a slice is not two directions at right angles")
    return SeriesSlice(path, header, np.array(position), cosines)


def _decode(path: Path) -> dicom.DecodedFrames:
    with open(path, "rb") as file:
        return dicom.decode(file, checked=True)


def _check_equal(noun: str, values: set[str]) -> None:
    if len(values) > 1:
        raise ImageError(f"the slices have {len(values)} {noun}; allowed: one")


def _measure_distance(places: list[float]) -> float:
    """The distance of neighboring slices in mm; 0 for a single slice."""
    if len(places) == 1:
        return 0.0
    gaps = np.diff(places)
    usual = float(np.median(gaps))
    if gaps.min() <= 1e-4:
        raise ImageError("two slices lie at the same place: these are several stacks")
    if np.abs(gaps - usual).max() > MAX_UNEVENNESS * usual:
        raise ImageError(f"slices lie {gaps.min():.2f} to {gaps.max():.2f} mm apart: at least one is missing")
    return usual
