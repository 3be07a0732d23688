"""A folder with the slices of one DICOM series as a volume, sorted by where they lie in the patient."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from viewbox.errors import ImageError
from viewbox.images.files import dicom, dicom_tags, limits
from viewbox.images.source import Source
from viewbox.images.volume import Volume, upright

ANGLE = 1e-3  # how much the direction cosines of slices may differ
UNEVEN = 0.1  # of their usual distance, by which the distance of two slices may differ from it
SAME = {
    "series": "SeriesInstanceUID",
    "heights": "Rows",
    "widths": "Columns",
    "photometric interpretations": "PhotometricInterpretation",
    "pixel spacings": "PixelSpacing",
}


@dataclass(frozen=True)
class Slice:
    """A file and its place: the position of its first pixel and the directions of its rows and columns, in mm."""

    path: Path
    header: Any
    position: np.ndarray
    directions: np.ndarray


def read(folder: Path) -> Source:
    """The middle slice, in the plane of the series; raises `ImageError` where the files are not one even stack."""
    slices = [found for path in sorted(folder.iterdir()) if (found := _slice(path)) is not None]
    if not slices:
        raise ImageError("the folder holds no DICOM slices")
    limits.check((int(slices[0].header.Rows), int(slices[0].header.Columns)), 2, frames=len(slices))
    rows, columns = slices[0].directions
    normal = np.cross(rows, columns)
    for what, keyword in SAME.items():
        _one(what, {str(item.header.get(keyword)) for item in slices})
    if any(np.abs(item.directions - slices[0].directions).max() > ANGLE for item in slices):
        raise ImageError("the slices have several orientations; allowed: one")
    slices.sort(key=lambda item: float(item.position @ normal))
    distance = _distance([float(item.position @ normal) for item in slices])
    decoded = [_decoded(item.path) for item in slices]
    window, spacing = decoded[len(decoded) // 2].window, decoded[0].spacing
    unit = decoded[0].unit
    _one("units", {str(item.unit) for item in decoded})
    voxels = dicom.joined([decoded.pop(0).pixels[0] for _ in slices])
    display = dicom_tags.shown_range(window, voxels)
    x, y = spacing or (0.0, 0.0)
    voxels, steps, plane = upright(voxels, np.array([normal, columns, rows]), (distance, y, x))
    known = spacing is not None and distance > 0
    return Volume(voxels, display, steps if known else None, unit).middle(plane)


def _slice(path: Path) -> Slice | None:
    """The slice in a file; None where it is no DICOM file or holds no picture. Links are not followed."""
    if path.is_symlink() or not path.is_file():
        return None
    with open(path, "rb") as file:
        if not dicom.is_dicom(file.read(132)):
            return None
        file.seek(0)
        try:
            header = dicom.header_of(file)
        except dicom.NoPictureError:  # an index, a report, a plan
            return None
    if int(header.get("NumberOfFrames") or 1) > 1 or int(header.get("SamplesPerPixel", 1)) > 1:
        raise ImageError("a series of several frames or colors in a file; allowed: one gray slice in each")
    position, directions = (
        dicom_tags.numbers(header.get(f"Image{part}Patient")) for part in ("Position", "Orientation")
    )
    if len(position) != 3 or len(directions) != 6:
        raise ImageError("a slice does not say where it lies (position and orientation): it cannot be sorted")
    cosines = np.array(directions).reshape(2, 3)
    if np.abs(cosines @ cosines.T - np.eye(2)).max() > 1e-2:
        raise ImageError("the orientation of a slice is not two directions at right angles")
    return Slice(path, header, np.array(position), cosines)


def _decoded(path: Path) -> dicom.Decoded:
    with open(path, "rb") as file:
        return dicom.decode(file, checked=True)


def _one(what: str, found: set[str]) -> None:
    if len(found) > 1:
        raise ImageError(f"the slices have {len(found)} {what}; allowed: one")


def _distance(places: list[float]) -> float:
    """The distance of neighboring slices in mm, 0 where there is only one."""
    if len(places) == 1:
        return 0.0
    gaps = np.diff(places)
    usual = float(np.median(gaps))
    if gaps.min() <= 1e-4:
        raise ImageError("two slices lie at one place: these are several stacks")
    if np.abs(gaps - usual).max() > UNEVEN * usual:
        raise ImageError(f"slices lie {gaps.min():.2f} to {gaps.max():.2f} mm apart: one is missing, or more")
    return usual
