"""The slices of one DICOM series in a folder as a volume, sorted by their position in the patient.

A series is a selection: the files of the size, orientation and spacing that most of them share. Copies and files of
other kinds are left out and named.
"""

import hashlib
import io
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import ImageError
from .. import limits
from ..pixels import pick_blank
from ..source import Source
from . import dicom, stacks
from .dicom import build_slice
from .dicom_header import Header, NoPictureError, get_text, is_dicom, read_header
from .dicom_marks import list_words
from .dicom_values import DecodedFrames, join_slices
from .paths import WHOLE, Reserve, StackSelection, describe_failure, describe_location, open_descriptor, open_in_folder
from .stacks import Slice

MAX_NAMES = 100_000  # of the files in a folder
MAX_LISTED = 20  # series that a message lists
UNREAD = ("", "unread")  # in place of what names a series
SeriesKey = tuple[str, str]  # what names a series: its UID, which no message quotes, and its number, or ""


@dataclass(frozen=True, eq=False)
class SeriesFile(Slice):
    """One file of a series, not yet decoded."""

    file: str = ""  # its name
    instance: str = ""  # its SOPInstanceUID, which copies of it share
    header: Any = None  # how its pixels are stored: a `Header` without its elements
    series: SeriesKey = UNREAD


def read(folder: int, reserve: Reserve, selection: StackSelection = WHOLE) -> Source:
    """Return the middle slice, in the plane of the series, of the first time point; of many, no more are read than
    `limits.MAX_TIMES` allows. A file without a place in the patient is opened if it is alone. Raise `ImageError` if the
    files are not an even stack, or one for each of several time points."""
    files, notes = _find_files(folder, selection)
    if len(files) == 1 and not files[0].placed:
        with open_in_folder(folder, files[0].file) as content:
            return dicom.read(content or io.BytesIO(), reserve, notes=notes)
    try:
        times, affine = stacks.arrange(files)
    except ImageError as error:
        raise ImageError("; ".join([str(error), *notes])) from None
    return _decode_stack(folder, times, affine, [*notes, *stacks.describe_times(times)], reserve)


def list_files(folder: Path, selection: StackSelection = WHOLE) -> list[str]:
    """Return the names of the files that are opened; nothing else in the folder is read as a picture."""
    with open_descriptor(folder) as descriptor:
        return [file.file for file in _find_files(descriptor, selection)[0]]


def _find_files(folder: int, selection: StackSelection) -> tuple[list[SeriesFile], list[str]]:
    readable = [file for name in _list_names(folder) if (file := _read_file(folder, name)) is not None]
    series: dict[SeriesKey, list[SeriesFile]] = {}
    for file in readable:
        series.setdefault(file.series, []).append(file)
    notes = stacks.describe_left_out(stacks.group(series.pop(UNREAD, [])))
    files = _choose_series(series, selection.series, notes)
    single = _drop_copies(folder, files)
    if copies := len(files) - len(single):
        notes.append("1 copy of a file is left out" if copies == 1 else f"{copies} copies of files are left out")
    groups = stacks.group(single)
    chosen = stacks.choose(groups, selection.stack, "files")
    others = [[file for file in members if file not in set(chosen)] for members in groups]
    return chosen, [*notes, *stacks.describe_left_out([members for members in others if members])]


def _drop_copies(folder: int, files: Sequence[SeriesFile]) -> list[SeriesFile]:
    """Return the first of all files with the same UID, place and pixels: some programs give one UID to all slices."""
    by_name: dict[tuple[str, str], list[SeriesFile]] = {}
    for file in files:
        by_name.setdefault((file.instance or file.file, f"{file.place.tolist()} {file.times}"), []).append(file)
    single: list[SeriesFile] = []
    for alike in by_name.values():
        single += alike if len(alike) == 1 else {_hash_pixels(folder, file): file for file in alike[::-1]}.values()
    return sorted(single, key=lambda file: file.file)


def _hash_pixels(folder: int, file: SeriesFile) -> str:
    try:
        return hashlib.sha256(_decode(folder, file).pixels.tobytes()).hexdigest()
    except ImageError:
        return file.file


def _decode_stack(
    folder: int, times: list[list[SeriesFile]], affine: np.ndarray, notes: list[str], reserve: Reserve
) -> Source:
    """Return the middle slice of the first of the stacks, each of which is sorted by position."""
    count = len(times[0])
    limits.check_size(times[0][0].shape, 2, frames=count)
    once = sum(file.header.size for file in times[0])
    count_read = min(len(times), max(1, limits.MAX_TIMES // once))
    reserve(min(limits.MAX_BYTES, count_read * once))
    decoded = [_decode(folder, file) for time in times[:count_read] for file in time]
    units, usual = {item.fields["unit"] for item in decoded}, {item.usual for item in decoded}
    if len(units) > 1:
        raise ImageError(f"the slices have {len(units)} units; allowed: one")
    blanks, ends = [item.blank for item in decoded], np.array([item.measured for item in decoded])
    measured = float(ends[:, 0].min()), float(ends[:, 1].max())
    notes = [*dict.fromkeys(note for item in decoded[1:] for note in item.fields.get("notes", ())), *notes]
    wishes, first = [item.wishes[0] for item in decoded[:count]], replace(decoded[0], pixels=np.empty(0))
    joined = join_slices([decoded.pop(0).pixels[0] for _ in range(count_read * count)])
    blank = None
    if any(item is not None for item in blanks):
        depth, blank = pick_blank(joined.dtype, *measured)
        joined = joined.astype(depth, copy=False)
        for values, slice_blank in zip(joined, blanks, strict=True):
            values[values == slice_blank] = blank
    joined = joined.reshape(count_read, count, *joined.shape[1:])
    whole = replace(first, pixels=joined, blank=blank, measured=measured, wishes=wishes)
    whole = replace(whole, usual=usual.pop() if len(usual) == 1 else None)
    return dicom.build_stack(whole, affine, notes=notes, unread=len(times) - count_read)


def _choose_series(groups: dict[SeriesKey, list[SeriesFile]], series: str | None, notes: list[str]) -> list[SeriesFile]:
    if not groups:
        raise ImageError("; ".join(["the folder holds no DICOM slices", *notes]))
    fitting = [key for key in groups if series is None or series in key]
    if len(fitting) == 1:
        return groups[fitting[0]]
    ordered = sorted(groups.items(), key=lambda item: (len(item[0][1]), item[0][1]))[:MAX_LISTED]
    listed = ", ".join(f"{number or 'without a number'} ({len(files)} slices)" for (_, number), files in ordered)
    more = ", …" if len(groups) > MAX_LISTED else ""
    if fitting and series is not None:
        raise ImageError(f"{len(fitting)} series of the folder have that number; choose by SeriesInstanceUID")
    what = f"the folder holds {len(groups)} series" if series is None else "the folder does not hold that series"
    raise ImageError(f"{what}; choose one as PATH#series=NUMBER (or its SeriesInstanceUID): {listed}{more}")


def _list_names(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        names = [entry.name for entry in islice(entries, MAX_NAMES + 1)]
    if len(names) > MAX_NAMES:
        raise ImageError(f"the folder holds more than {MAX_NAMES} files")
    return sorted(names)


def _read_file(folder: int, name: str) -> SeriesFile | None:
    """Return a file, or why it cannot be read; None if it is not DICOM."""
    if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        return SeriesFile(name, (0, 0), stacks.NOWHERE, f"the folder {describe_location(name)}, not looked into")
    with open_in_folder(folder, name) as file:
        if file is None or not is_dicom(file.read(132)):
            return None
        file.seek(0)
        try:
            return _build_file(name, read_header(file))
        except NoPictureError:
            problem = "no picture"
        except Exception as error:  # pydicom raises anything for a damaged file
            problem = f"cannot be read ({describe_failure(error)})"
    return SeriesFile(name, (0, 0), stacks.NOWHERE, problem)


def _build_file(name: str, header: Header) -> SeriesFile:
    elements, number = header.elements, get_text(header.elements, "SeriesNumber")
    key = get_text(elements, "SeriesInstanceUID"), number if number.isdecimal() else ""
    slice_, photometric = build_slice(header, describe_location(name)), get_text(elements, "PhotometricInterpretation")
    if header.frames > 1:
        slice_ = replace(slice_, kind=f"{header.frames} frames", place=stacks.NOWHERE)
    elif not slice_.kind:
        localizer = "LOCALIZER" in list_words(elements, "ImageType")
        slice_ = replace(slice_, kind="localizer" if localizer else photometric.removesuffix("MONOCHROME2"))
    instance, bare = get_text(elements, "SOPInstanceUID"), replace(header, elements=None)
    return SeriesFile(**vars(slice_), file=name, instance=instance, header=bare, series=key)


def _decode(folder: int, file: SeriesFile) -> DecodedFrames:
    with open_in_folder(folder, file.file) as content:
        try:
            decoded = dicom.decode(content or io.BytesIO(), file.header)
        except Exception as error:
            raise ImageError(f"file {file.name}: {describe_failure(error)}") from None
    if decoded.pixels.shape[:3] != (1, *file.shape):
        raise ImageError(f"file {file.name} has changed while it was read")
    return decoded
