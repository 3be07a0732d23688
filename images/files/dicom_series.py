"""The slices of one DICOM series in a folder as a volume, sorted by their position in the patient.

A series is a selection: the files of the size, orientation and spacing that most of them share. Copies and files of
other kinds are left out and named.
"""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...errors import ImageError
from .. import limits
from ..pixels import pick_blank
from ..source import Source
from . import dicom, stacks
from .dicom_frames import get_place, get_thickness
from .dicom_header import Header, NoPictureError, get_text, is_dicom, parse_numbers, read_header
from .dicom_values import DecodedFrames, get_pixel_size, is_localizer, join_slices
from .paths import WHOLE, Selection, describe_location, open_in_folder
from .stacks import Slice

MAX_NAMES = 100_000  # of the files in a folder
MAX_LISTED = 20  # series that a message lists
TIMES = ("TemporalPositionIdentifier", "AcquisitionNumber")  # elements that number the time points of a series
GONE = "a file of the series has gone while it was read"


class SeriesKey(NamedTuple):
    """What names a series. No message quotes the UID."""

    uid: str
    number: str


@dataclass(frozen=True, eq=False)
class SeriesFile:
    """One file of a series, not yet decoded.

    Args:
        name: of the file.
        instance: its SOPInstanceUID, which copies of it share.
        header: how its pixels are stored, without its elements.
        slice: where it lies, or why it is no part of a stack.
    """

    name: str
    instance: str
    header: Header
    slice: Slice


def read(folder: Path | int, reserve: Callable[[int], None], selection: Selection = WHOLE) -> Source:
    """Return the middle slice, in the plane of the series, of the first time point.

    Raise `ImageError` if the files are not an even stack, or one for each of several time points. Of many time points,
    no more are read than `limits.MAX_TIMES` allows. A file without a place in the patient is opened if it is alone.

    Args:
        folder: its path or its descriptor.
        reserve: called once before pixels are decoded, with their bytes.
        selection: which series, and which stack of it, if the folder holds several.
    """
    files, notes = _find_files(folder, selection)
    slices, problem = [replace(file.slice, number=n) for n, file in enumerate(files)], ""
    if slices[0].place is None:
        if len(files) > 1:
            raise ImageError(f"{len(files)} files are no stack: {stacks.describe(slices[0])}; open one by its own path")
        with open_in_folder(folder, files[0].name) as content:
            if content is None:
                raise ImageError(GONE)
            return dicom.read(content, reserve, notes=notes)
    try:
        order, affine = stacks.arrange(slices)
    except ImageError as error:
        problem = "; ".join([str(error), *notes])
    if problem:
        raise ImageError(problem)
    return _decode_stack(folder, [[files[number] for number in time] for time in order], affine, notes, reserve)


def list_files(folder: Path, selection: Selection = WHOLE) -> list[str]:
    """Return the names of the files that are opened; nothing else in the folder is read as a picture.

    Raises:
        ImageError: the folder holds no such series or stack, or several.
    """
    return [file.name for file in _find_files(folder, selection)[0]]


def _find_files(folder: Path | int, selection: Selection) -> tuple[list[SeriesFile], list[str]]:
    """Return the files that are meant, and notes on what is left out."""
    series: dict[SeriesKey, list[SeriesFile]] = {}
    unread: list[Slice] = []
    for name in _list_names(folder):
        found = _read_file(folder, name)
        if isinstance(found, Slice):
            unread.append(found)
        elif found is not None:
            series.setdefault(found[0], []).append(found[1])
    left_out = stacks.describe_left_out(stacks.group(unread))
    files = _choose_series(series, selection.series, left_out)
    single = _drop_copies(folder, files)
    copies = len(files) - len(single)
    copied = [f"{copies} copies of files are left out".replace("1 copies of files are", "1 copy of a file is")][:copies]
    slices = [replace(file.slice, number=number) for number, file in enumerate(single)]
    chosen, others = stacks.choose(stacks.group(slices), selection.stack)
    return [single[one.number] for one in chosen], [*copied, *others, *left_out]


def _drop_copies(folder: Path | int, files: Sequence[SeriesFile]) -> list[SeriesFile]:
    """Return the first of all files with the same UID, place and pixels: some programs give one UID to all slices."""
    by_name: dict[tuple[str, str], list[SeriesFile]] = {}
    for file in files:
        place = "" if file.slice.place is None else f"{file.slice.place.tolist()} {file.slice.times}"
        by_name.setdefault((file.instance or file.name, place), []).append(file)
    single: list[SeriesFile] = []
    for alike in by_name.values():
        single += alike if len(alike) == 1 else {_hash_pixels(folder, file): file for file in alike[::-1]}.values()
    return sorted(single, key=lambda file: file.name)


def _hash_pixels(folder: Path | int, file: SeriesFile) -> str:
    try:
        return hashlib.sha256(np.ascontiguousarray(_decode(folder, file).pixels)).hexdigest()
    except ImageError:
        return file.name


def _decode_stack(
    folder: Path | int,
    times: list[list[SeriesFile]],
    affine: np.ndarray,
    notes: list[str],
    reserve: Callable[[int], None],
) -> Source:
    """Return the middle slice of the first of the stacks, each of which is sorted by position."""
    count = len(times[0])
    limits.check_size(times[0][0].slice.shape, 2, frames=count)
    once = sum(file.header.size for file in times[0])
    some = min(len(times), max(1, limits.MAX_TIMES // once))
    reserve(min(limits.MAX_BYTES, some * once))
    decoded = [_decode(folder, file) for time in times[:some] for file in time]
    units = {one.unit for one in decoded}
    if len(units) > 1:
        raise ImageError(f"the slices have {len(units)} units; allowed: one")
    usual = {one.usual for one in decoded}
    whole = replace(decoded[0], usual=usual.pop() if len(usual) == 1 else None, pixels=np.empty(0))
    whole = replace(whole, wishes=[one.wishes[0] for one in decoded[:count]])
    blanks, measured = [one.blank for one in decoded], np.array([one.measured for one in decoded])
    whole = replace(whole, measured=(float(measured[:, 0].min()), float(measured[:, 1].max())))
    joined = join_slices([decoded.pop(0).pixels[0] for _ in range(some * count)])
    if any(blank is not None for blank in blanks):
        depth, common = pick_blank(joined.dtype, *whole.measured)
        joined, whole = joined.astype(depth, copy=False), replace(whole, blank=common)
        for values, blank in zip(joined, blanks, strict=True):
            values[values == blank] = common
    whole = replace(whole, pixels=joined.reshape(some, count, *joined.shape[1:]))
    return dicom.build_stack(whole, affine, notes=notes, unread_times=len(times) - some)


def _choose_series(
    groups: Mapping[SeriesKey, list[SeriesFile]], series: str | None, notes: Sequence[str]
) -> list[SeriesFile]:
    """Return the files of the series that is asked for, or of the only one."""
    if not groups:
        raise ImageError("; ".join(["the folder holds no DICOM slices", *notes]))
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


def _read_file(folder: Path | int, name: str) -> tuple[SeriesKey, SeriesFile] | Slice | None:
    """Return a file and what names its series, or why it cannot be read; None if it is not DICOM."""
    with open_in_folder(folder, name) as file:
        if file is None or not is_dicom(file.read(132)):
            return None
        file.seek(0)
        try:
            return _build_file(name, read_header(file))
        except MemoryError:
            raise
        except NoPictureError:
            problem = "no picture"
        except Exception as error:  # pydicom raises anything for a damaged file
            problem = f"cannot be read ({error if isinstance(error, ImageError) else 'damaged or cut short'})"
    return Slice(0, name, (0, 0), problem)


def _build_file(name: str, header: Header) -> tuple[SeriesKey, SeriesFile]:
    elements, number = header.elements, get_text(header.elements, "SeriesNumber")
    key = SeriesKey(get_text(elements, "SeriesInstanceUID"), number if number.isdecimal() else "")
    photometric, place = get_text(elements, "PhotometricInterpretation"), get_place(elements)
    if header.frames > 1:
        kind, place = f"{header.frames} frames", None
    elif header.samples > 1 or photometric == "PALETTE COLOR":
        kind, place = "in color", None
    elif place is None:
        kind = "without a place in the patient"
    else:
        kind = "localizer" if is_localizer(elements) else "" if photometric == "MONOCHROME2" else "MONOCHROME1"
    numbers = {name: (*map(int, parse_numbers(elements.get(name))), None)[0] for name in TIMES}
    facts = get_pixel_size(elements).spacing, get_thickness(elements), numbers
    lies = Slice(0, describe_location(name), header.shape, kind, place, *facts)
    return key, SeriesFile(name, get_text(elements, "SOPInstanceUID"), replace(header, elements=None), lies)


def _decode(folder: Path | int, file: SeriesFile) -> DecodedFrames:
    problem = ""
    with open_in_folder(folder, file.name) as content:
        if content is None:
            raise ImageError(GONE)
        try:
            decoded = dicom.decode(content, file.header)
        except ImageError as error:
            problem = f"file {describe_location(file.name)}: {error}"
    if problem:
        raise ImageError(problem)
    if decoded.pixels.shape[:3] != (1, *file.header.shape):
        raise ImageError("a file of the series has changed while it was read")
    return decoded
