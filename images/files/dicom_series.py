"""The slices of one DICOM series in a folder as a volume, sorted by their position in the patient."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...errors import ImageError
from .. import limits
from ..source import Source, build_volume
from . import dicom
from .paths import open_in_folder

MAX_ANGLE = 1e-3  # largest difference between the direction cosines of slices
MAX_UNEVENNESS = 0.1  # largest deviation from the median distance of slices, as a share of it
MAX_NAMES = 100_000  # of the files in a folder
MAX_LISTED = 20  # series that a message lists
SAME = {  # noun → the element that all slices must share
    "heights": "Rows",
    "widths": "Columns",
    "photometric interpretations": "PhotometricInterpretation",
    "pixel spacings": "PixelSpacing",
}

TIMES = ("TemporalPositionIdentifier", "AcquisitionNumber")  # elements that number the time points of a series
SAME_PLACE = 1e-4  # mm up to which two slices lie at the same place


@dataclass(frozen=True)
class SeriesSlice:
    """One file of a series, not yet decoded.

    Args:
        name: of the file.
        stored, size, deflated: of its `dicom.Header`.
        shape: (rows, columns).
        shared: the elements that all slices must share, by their noun in `SAME`.
        position: of its first pixel, in mm in the patient (x to the left, y to the back, z to the head).
        directions: unit vectors along its rows and along its columns, (2, 3).
        times: the number of its time point by each element of `TIMES`; None if it has none.
    """

    name: str
    stored: int
    size: int
    deflated: bool
    shape: tuple[int, int]
    shared: tuple[str, ...]
    position: np.ndarray
    directions: np.ndarray
    times: tuple[int | None, ...]


class SeriesKey(NamedTuple):
    """What names a series. No message quotes the UID."""

    uid: str
    number: str


def read(folder: Path | int, reserve: Callable[[int], None], series: str | None = None) -> Source:
    """Return the middle slice, in the plane of the series, of the first time point.

    Raise `ImageError` if the files are not an even stack, or one for each of several time points. Of many time points,
    no more are read than `limits.MAX_TIMES` allows.

    Args:
        folder: its path or its descriptor.
        reserve: called once before pixels are decoded, with their bytes.
        series: the SeriesNumber or the SeriesInstanceUID, if the folder holds several.
    """
    slices = _find_slices(folder, series)
    rows, columns = slices[0].directions
    normal = np.cross(rows, columns)
    for number, noun in enumerate(SAME):
        _check_equal(noun, {item.shared[number] for item in slices})
    if any(np.abs(item.directions - slices[0].directions).max() > MAX_ANGLE for item in slices):
        raise ImageError("the slices have several orientations; allowed: one")
    stacks = _split_times(sorted(slices, key=lambda item: float(item.position @ normal)), normal)
    return _decode_stacks(folder, stacks, reserve)


def list_files(folder: Path, series: str | None = None) -> list[str]:
    """Return the names of the files that hold the slices of a series; nothing else in the folder is read as a picture.

    Raises:
        ImageError: the folder holds no such series, or several.
    """
    return [item.name for item in _find_slices(folder, series)]


def _find_slices(folder: Path | int, series: str | None) -> list[SeriesSlice]:
    groups: dict[SeriesKey, list[SeriesSlice | ImageError]] = {}
    for name in _list_names(folder):
        found = _read_slice(folder, name)
        if found is not None:
            groups.setdefault(found[0], []).append(found[1])
    slices = []
    for item in _choose_series(groups, series):
        if isinstance(item, ImageError):
            raise item
        slices.append(item)
    return slices


def _decode_stacks(folder: Path | int, stacks: list[list[SeriesSlice]], reserve: Callable[[int], None]) -> Source:
    """Return the middle slice of the first of the stacks, each of which is sorted by position."""
    count = len(stacks[0])
    rows, columns = stacks[0][0].directions
    normal = np.cross(rows, columns)
    limits.check_size(stacks[0][0].shape, 2, frames=count)
    distance = _measure_distance([float(item.position @ normal) for item in stacks[0]])
    once = sum(item.size for item in stacks[0])
    times = min(len(stacks), max(1, limits.MAX_TIMES // once))
    reserve(min(limits.MAX_BYTES, times * once))
    decoded = [_decode(folder, item) for stack in stacks[:times] for item in stack]
    window, spacing = decoded[count // 2].window, decoded[0].spacing
    unit = decoded[0].unit
    _check_equal("units", {str(item.unit) for item in decoded})
    joined = dicom.join_slices([decoded.pop(0).pixels[0] for _ in range(times * count)])
    display = dicom.choose_display(window, joined)
    x, y = spacing or (0.0, 0.0)
    affine = np.eye(4)
    affine[:3, :3] = np.array([rows * (x or 1.0), columns * (y or 1.0), normal * (distance or 1.0)]).T
    affine[:3, 3] = stacks[0][0].position
    values = joined.reshape(times, count, *joined.shape[1:])
    volume = build_volume(values, affine, display, unit=unit, unread_times=len(stacks) - times)
    return volume.get_middle_slice(volume.stacked)


def _split_times(slices: list[SeriesSlice], normal: np.ndarray) -> list[list[SeriesSlice]]:
    """Return the slices of each time point; one stack if no two lie at the same place.

    Time points are told apart by the first element of `TIMES` that has as many values as there are slices at a place,
    and each of them once at every place.

    Args:
        slices: sorted by their place.
        normal: the direction in which the places grow.
    """
    places = [float(item.position @ normal) for item in slices]
    starts = [0, *(number for number in range(1, len(places)) if places[number] - places[number - 1] > SAME_PLACE)]
    if len(starts) == len(slices):
        return [slices]
    groups = [slices[start:stop] for start, stop in zip(starts, [*starts[1:], len(slices)], strict=True)]
    for number in range(len(TIMES)):
        by_time = [{item.times[number]: item for item in group} for group in groups]
        times = [time for time in by_time[0] if time is not None]
        if all(len(one) == len(group) and one.keys() == set(times) for one, group in zip(by_time, groups, strict=True)):
            return [[one[time] for one in by_time] for time in sorted(times)]
    most = max(map(len, groups))
    told = f"time points must have a {' or '.join(TIMES)} each, and the same number of slices"
    raise ImageError(f"up to {most} slices lie at the same place: these are several stacks; {told}")


def _choose_series(
    groups: Mapping[SeriesKey, list[SeriesSlice | ImageError]], series: str | None
) -> list[SeriesSlice | ImageError]:
    """Return the slices of the series that is asked for, or of the only one."""
    if not groups:
        raise ImageError("the folder holds no DICOM slices")
    fitting = [key for key in groups if series is None or series in (key.uid, key.number)]
    if len(fitting) == 1:
        return groups[fitting[0]]
    ordered = sorted(groups, key=lambda key: (len(key.number), key.number))[:MAX_LISTED]
    listed = ", ".join(f"{key.number or 'without a number'} ({len(groups[key])} slices)" for key in ordered)
    more = ", …" if len(groups) > MAX_LISTED else ""
    if fitting and series is not None:
        raise ImageError(f"{len(fitting)} series of the folder have that number; choose by SeriesInstanceUID")
    what = f"the folder holds {len(groups)} series" if series is None else "the folder does not hold that series"
    raise ImageError(f"{what}; choose one as PATH#series=NUMBER (or its SeriesInstanceUID): {listed}{more}")


def _list_names(folder: Path | int) -> list[str]:
    with os.scandir(folder) as entries:
        names = [entry.name for entry in islice(entries, MAX_NAMES + 1)]
    if len(names) > MAX_NAMES:
        raise ImageError(f"the folder holds more than {MAX_NAMES} files")
    return sorted(names)


def _read_slice(folder: Path | int, name: str) -> tuple[SeriesKey, SeriesSlice | ImageError] | None:
    """Return the slice in a file, or why it cannot be one, and its series; None if it is not DICOM or holds no
    picture."""
    with open_in_folder(folder, name) as file:
        if file is None or not dicom.is_dicom(file.read(132)):
            return None
        file.seek(0)
        try:
            header = dicom.read_header(file)
        except dicom.NoPictureError:
            return None
    number = str(header.elements.get("SeriesNumber") if header.elements.get("SeriesNumber") is not None else "")
    key = SeriesKey(str(header.elements.get("SeriesInstanceUID")), number if number.isdecimal() else "")
    try:
        return key, _build_slice(name, header)
    except ImageError as error:  # it matters only if its series is chosen
        return key, ImageError(str(error))


def _build_slice(name: str, header: dicom.Header) -> SeriesSlice:
    if header.frames > 1 or header.samples > 1:
        raise ImageError("a file of the series holds several frames or colors; allowed: one gray slice per file")
    elements = header.elements
    position, directions = (
        dicom.parse_numbers(elements.get(f"Image{part}Patient")) for part in ("Position", "Orientation")
    )
    if len(position) != 3 or len(directions) != 6:
        raise ImageError("a slice has no position and orientation: the slices cannot be sorted")
    cosines = np.array(directions).reshape(2, 3)
    if np.abs(cosines @ cosines.T - np.eye(2)).max() > 1e-2:
        raise ImageError("the orientation of a slice is not two directions at right angles")
    shape, shared = (int(elements.Rows), int(elements.Columns)), tuple(str(elements.get(key)) for key in SAME.values())
    place, sizes = np.array(position), (header.stored, header.size, header.deflated)
    times = tuple(_read_number(elements.get(key)) for key in TIMES)
    return SeriesSlice(name, *sizes, shape, shared, place, cosines, times)


def _read_number(value: Any) -> int | None:
    numbers = dicom.parse_numbers(value)
    return int(numbers[0]) if len(numbers) == 1 else None


def _decode(folder: Path | int, item: SeriesSlice) -> dicom.DecodedFrames:
    with open_in_folder(folder, item.name) as file:
        if file is None:
            raise ImageError("a file of the series has gone while it was read")
        decoded = dicom.decode(file, item.stored, deflated=item.deflated)
    if decoded.pixels.shape[:3] != (1, *item.shape):
        raise ImageError("a file of the series has changed while it was read")
    return decoded


def _check_equal(noun: str, values: set[str]) -> None:
    if len(values) > 1:
        raise ImageError(f"the slices have {len(values)} {noun}; allowed: one")


def _measure_distance(places: list[float]) -> float:
    """Return the distance of neighboring slices in mm; 0 for a single slice."""
    if len(places) == 1:
        return 0.0
    gaps = np.diff(places)
    usual = float(np.median(gaps))
    if np.abs(gaps - usual).max() > MAX_UNEVENNESS * usual:
        raise ImageError(f"slices lie {gaps.min():.2f} to {gaps.max():.2f} mm apart: at least one is missing")
    return usual
