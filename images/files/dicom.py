"""DICOM files as sources: a picture, frames in the order of the file, or frames as a volume in the patient.

Frames are placed by their functional groups (PS3.3 C.7.6.16), or by the offsets of a dose. Nothing that identifies the
patient leaves the modules of DICOM (`dicom_header`).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, BinaryIO

import numpy as np

from ...errors import ImageError
from .. import limits
from ..source import Source, Volume, build_volume
from . import stacks
from .dicom_header import (
    HEADER_ROOM,
    OF_FRAMES,
    SEGMENTATIONS,
    SHARED,
    Header,
    get_frame_value,
    get_text,
    get_value,
    inflate,
    parse,
    parse_numbers,
    read_header,
)
from .dicom_values import DecodedFrames, choose_display, decode_elements, get_pixel_size
from .paths import Reserve
from .stacks import Slice

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


# ---------------------------------------------------------------------- frames as a stack
PLACE = ("ImagePositionPatient", "ImageOrientationPatient")
NO_PLACE = "without a place in the patient"


def get_place(elements: Any) -> np.ndarray:
    """Return the place of a file of one slice."""
    return stacks.build_place(*(parse_numbers(elements.get(name)) for name in PLACE))


def get_thickness(elements: Any, frame: int = 0) -> tuple[float, ...]:
    """Return the millimeters from slice to slice that a file states."""
    found = (parse_numbers(get_value(elements, name, frame)) for name in ("SpacingBetweenSlices", "SliceThickness"))
    return tuple(numbers[0] for numbers in found if len(numbers) == 1 and numbers[0] > 0)


def list_frames(header: Header) -> list[Slice]:
    """Return the frames of a file and where they lie; [] if it does not say that of any."""
    elements, numbers = header.elements, range(header.frames)
    offsets = parse_numbers(elements.get("GridFrameOffsetVector"))
    if len(offsets) == header.frames:  # C.8.8.3.2: along the normal, from the first frame
        first = get_place(elements)
        shift = np.outer([1, 0, 0], np.cross(first[1], first[2]))
        places = [stacks.NOWHERE if first is stacks.NOWHERE else first + shift * (n - offsets[0]) for n in offsets]
        spacing = get_pixel_size(elements)["spacing"]
        frames = [Slice(f"frame {n}", header.shape, places[n], spacing=spacing, number=n) for n in numbers]
    elif OF_FRAMES in elements or SHARED in elements:
        frames = [_build_frame(header, number) for number in numbers]
    else:
        return []
    return frames if any(frame.placed for frame in frames) else []


def _build_frame(header: Header, number: int) -> Slice:
    names = (*PLACE, "TemporalPositionIndex", "DimensionIndexValues", "ReferencedSegmentNumber")
    position, directions, *times, segment = (
        parse_numbers(get_frame_value(header.elements, name, number)) for name in names
    )
    place = stacks.build_place(position, directions)
    named = {
        f"{name} {n}": int(time) for name, many in zip(names[2:4], times, strict=True) for n, time in enumerate(many)
    }
    facts = get_pixel_size(header.elements, number)["spacing"], get_thickness(header.elements, number), named, number
    kind = "" if place is not stacks.NOWHERE else NO_PLACE
    return Slice(f"frame {number}", header.shape, place, kind, *facts, int((segment or [1])[0]))


def plan(
    header: Header, frames: list[Slice], stack: int | None
) -> tuple[Callable[[DecodedFrames], DecodedFrames], np.ndarray, int]:
    """Return what puts decoded frames in order, where their stack lies, and how many slices it has."""
    groups = stacks.group(frames)
    if get_text(header.elements, "SOPClassUID") in SEGMENTATIONS:
        places, affine = stacks.arrange_sparse(stacks.choose(groups, None, "frames", all_of_them=True))
        return partial(_merge_segments, header.elements, frames, places, stack), affine, int(places.max()) + 1
    times, affine = stacks.arrange(stacks.choose(groups, stack, "frames", all_of_them=True))
    order = np.array([[frame.number for frame in time] for time in times])
    return partial(_reorder, order, times[0][0].spacing), affine, order.size


def _reorder(order: np.ndarray, spacing: tuple[float, float] | None, decoded: DecodedFrames) -> DecodedFrames:
    """Return frames in an order of their numbers, (t, n): as axes (t, n, h, w)."""
    pixels, wishes = decoded.pixels, decoded.wishes
    in_order = np.array_equal(order.ravel(), np.arange(len(pixels)))
    pixels = pixels.reshape(*order.shape, *pixels.shape[1:]) if in_order else pixels[order]
    wishes = [wishes[number] for number in order[0]] if len(wishes) > 1 else wishes
    return replace(decoded, pixels=pixels, wishes=wishes, fields={**decoded.fields, "spacing": spacing})


def _merge_segments(
    elements: Any, frames: list[Slice], places: np.ndarray, chosen: int | None, decoded: DecodedFrames
) -> DecodedFrames:
    """Return the voxels of a segmentation, (1, n, h, w): the number of the segment in each, or how much of it is in it.

    Places without a frame are 0. Of frames, `places` are where they lie in the stack. Raise `ImageError` if segments
    overlap, or if there are fractions of several; `chosen` is the only one that is wanted.
    """
    sort, pixels = get_text(elements, "SegmentationType"), decoded.pixels
    fractions = sort == "FRACTIONAL"
    labels = sort == "LABELMAP" or get_text(elements, "SOPClassUID") == SEGMENTATIONS[1]
    numbers = np.unique(pixels[pixels > 0]) if labels else np.unique([frame.segment for frame in frames])
    listed = "choose one segment as PATH#stack=NUMBER: " + ", ".join(map(str, numbers))
    if chosen is not None and chosen not in numbers:
        raise ImageError(f"there is no segment {chosen}; {listed}")
    if fractions and chosen is None and len(numbers) > 1:
        raise ImageError(f"it holds fractions of {len(numbers)} segments; {listed}")
    depth = pixels.dtype if fractions else np.min_scalar_type(max(numbers, default=0))
    whole = np.zeros((1, int(places.max()) + 1, *pixels.shape[1:]), depth)
    for frame, values, place in zip(frames, pixels, places, strict=True):
        number = values if labels or fractions else frame.segment
        wanted = (values > 0) & (chosen is None or (values if labels else frame.segment) == chosen)
        before = whole[0, place]
        if (wanted & (before > 0) & (before != number)).any():
            raise ImageError(f"segments overlap in slice {place}; {listed}")
        np.copyto(before, number, where=wanted, casting="unsafe")
    return replace(decoded, pixels=whole, measured=(float(whole.min()), float(whole.max())))
