"""DICOM files as sources: a picture, frames in the order of the file, or frames as a volume in the patient.

Nothing that identifies the patient leaves the modules of DICOM (`dicom_header`).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np

from ...errors import ImageError
from .. import limits
from ..source import Source, Volume, build_volume
from .dicom_display import choose_display
from .dicom_frames import list_frames, plan
from .dicom_header import HEADER_ROOM, SEGMENTATIONS, Header, get_text, inflate, parse, read_header
from .dicom_values import DecodedFrames, decode_elements
from .paths import Reserve

MAX_CURVES = 2**18  # bytes of all gray curves of a volume


def read(file: BinaryIO, reserve: Reserve, stack: int | None = None, notes: Sequence[str] = ()) -> Source:
    """Return the picture of a file, the first of its frames, or the middle slice of the volume that they are.

    `stack` says which of several groups of frames, or which segment of a segmentation, is opened.
    """
    header = read_header(file, small_whole=True)
    several = header.frames > 1 or get_text(header.elements, "SOPClassUID") in SEGMENTATIONS
    frames, found = list_frames(header) if several else [], None
    if stack is not None and not frames:
        raise ImageError("#stack=… chooses among stacks, but nothing in this file says where it lies")
    try:
        found = plan(header, frames, stack) if frames else None
    except ImageError as error:
        if stack is not None:
            raise
        notes = (*notes, f"the frames are no even stack and keep the order of the file: {error}")
    reserve(max(header.size, limits.check_size(header.shape, 1, frames=found[2] if found else 1)))
    decoded = decode(file, header)
    if found is not None:
        return build_stack(found[0](decoded), found[1], notes=notes)
    fields, displays = _list_fields(decoded, notes)
    if len({frame.spacing for frame in frames}) > 1:
        fields["spacing"] = None
    if len(decoded.pixels) == 1:
        del fields["frame_of_reference"]
        return Source(decoded.pixels[0], **fields)
    fields["spacing"] = fields["spacing"] and (0.0, *fields["spacing"][::-1])
    return Volume(decoded.pixels, planes=False, displays=displays, **fields).get_slice(0)


def decode(file: BinaryIO, header: Header) -> DecodedFrames:
    """Decode the frames of a file, open at its beginning, whose header was read."""
    if header.whole:
        return decode_elements(header.elements, header)
    room = HEADER_ROOM + header.stored
    return decode_elements(parse(inflate(file, room, whole=True) if header.deflated else file), header)


def build_stack(
    decoded: DecodedFrames, affine: np.ndarray, *, notes: Sequence[str] = (), unread_times: int = 0
) -> Source:
    """Return the middle slice, in its own plane, of the volume of slices that are decoded, in order, (t, n, h, w).

    The affine, (4, 4), is from column, row and slice to millimeters in the patient.
    """
    fields, displays = _list_fields(decoded, notes)
    known = fields.pop("spacing") is not None
    volume = build_volume(decoded.pixels, affine, displays=displays, unread_times=unread_times, **fields)
    volume = volume if known else replace(volume, spacing=None, affine=None)  # of pixels of 1 mm
    return volume.get_middle_slice(volume.stacked)


def _list_fields(decoded: DecodedFrames, notes: Sequence[str]) -> tuple[dict[str, Any], Any]:
    """Return fields of `Source` and of `Volume`, and how each slice is shown if they differ."""
    measured = decoded.measured
    if measured[0] > measured[1]:
        raise ImageError("every pixel is padding: nothing was measured")
    usual = decoded.usual or measured
    each = [choose_display(wish, measured, usual, inverted=decoded.inverted) for wish in decoded.wishes]
    differ = len(set(each)) > 1 and sum(len(curve or b"") for _, curve in set(each)) <= MAX_CURVES
    display, curve = each[len(each) // 2]
    shown = {"display": display, "curve": curve, "blank": decoded.blank}
    notes = (*decoded.fields.get("notes", ()), *notes)
    return {**decoded.fields, **shown, "notes": notes}, tuple(each) if differ else None
