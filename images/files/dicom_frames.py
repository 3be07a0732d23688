"""Frames of a DICOM file as a stack: by their functional groups (PS3.3 C.7.6.16), or by the offsets of a dose."""

from typing import Any

import numpy as np

from ...errors import ImageError
from . import stacks
from .dicom_header import OF_FRAMES, SEGMENTATIONS, SHARED, Header, get_frame_value, get_text, get_value, parse_numbers
from .dicom_values import get_pixel_size
from .stacks import Slice

PLACE = ("ImagePositionPatient", "ImageOrientationPatient")
MAX_SEGMENTS = 50  # that a message lists


def list_frames(header: Header) -> list[Slice]:
    """Return the frames of a file and where they lie; [] if it does not say that of any."""
    elements, count = header.elements, header.frames
    offsets = parse_numbers(elements.get("GridFrameOffsetVector"))
    if len(offsets) == count:  # C.8.8.3.2: along the normal, from the first frame
        first, spacing = get_place(elements), get_pixel_size(elements).spacing
        if first is None:
            return []
        shift = np.outer([1, 0, 0], np.cross(first[1], first[2]))
        places = [first + shift * (offset - offsets[0]) for offset in offsets]
        return [Slice(n, f"frame {n}", header.shape, "", place, spacing) for n, place in enumerate(places)]
    if OF_FRAMES not in elements and SHARED not in elements:
        return []
    frames = [_build_frame(header, number) for number in range(count)]
    return frames if any(frame.place is not None for frame in frames) else []


def get_place(elements: Any) -> np.ndarray | None:
    """Return the place of a file of one slice."""
    return stacks.build_place(*(parse_numbers(elements.get(name)) for name in PLACE))


def get_thickness(elements: Any, frame: int = 0) -> tuple[float, ...]:
    """Return the millimeters from slice to slice that a file states."""
    found = (parse_numbers(get_value(elements, name, frame)) for name in ("SpacingBetweenSlices", "SliceThickness"))
    return tuple(numbers[0] for numbers in found if len(numbers) == 1 and numbers[0] > 0)


def _build_frame(header: Header, number: int) -> Slice:
    def get(keyword: str) -> list[float]:
        return parse_numbers(get_frame_value(header.elements, keyword, number))

    place = stacks.build_place(*(get(name) for name in PLACE))
    times = {f"DimensionIndexValues {n}": int(index) for n, index in enumerate(get("DimensionIndexValues"), 1)}
    times = {**dict(zip(["TemporalPositionIndex"], map(int, get("TemporalPositionIndex")), strict=False)), **times}
    kind = "" if place is not None else "without a place in the patient"
    spacing, thickness = get_pixel_size(header.elements, number).spacing, get_thickness(header.elements, number)
    segment = int((get("ReferencedSegmentNumber") or [1])[0])
    return Slice(number, f"frame {number}", header.shape, kind, place, spacing, thickness, times, segment)


def arrange(frames: list[Slice], stack: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the order and the affine of all frames, or of group number `stack`; raise `ImageError` if they are no even
    stack."""
    groups = stacks.group(frames)
    if (stack is None and len(groups) > 1) or not 1 <= (stack or 1) <= len(groups):
        raise ImageError(f"they are of {len(groups)} kinds; {stacks.list_groups(groups, 'frames')}")
    chosen = groups[(stack or 1) - 1]
    if chosen[0].place is None:
        raise ImageError(f"they are {chosen[0].kind}")
    return stacks.arrange(chosen)


def arrange_segments(frames: list[Slice]) -> tuple[np.ndarray, np.ndarray]:
    """Return the place of each frame in the stack of a segmentation, and the affine of that stack."""
    if len(stacks.group(frames)) > 1:
        raise ImageError("they are of several orientations or spacings")
    return stacks.arrange_sparse(frames)


def merge_segments(
    pixels: np.ndarray, frames: list[Slice], places: np.ndarray, chosen: int | None, elements: Any
) -> np.ndarray:
    """Return the voxels of a segmentation, (n, h, w): the number of the segment in each, or how much of it is inside.

    Args:
        pixels: its frames: 0 and 1, numbers of segments, or fractions.
        frames: their segments.
        places: where each frame lies in the stack; places without a frame are 0.
        chosen: the number of the only segment that is wanted.
        elements: of the file.

    Raises:
        ImageError: segments overlap, or fractions of several are asked for.
    """
    fractions = get_text(elements, "SegmentationType") == "FRACTIONAL"
    labels = get_text(elements, "SOPClassUID") == SEGMENTATIONS[1]
    numbers = np.unique(pixels[pixels > 0]) if labels else np.unique([one.segment for one in frames])
    listed = "choose one segment as PATH#stack=NUMBER: " + ", ".join(str(number) for number in numbers[:MAX_SEGMENTS])
    if chosen is not None and chosen not in numbers:
        raise ImageError(f"there is no segment {chosen}; {listed}")
    if fractions and chosen is None and len(numbers) > 1:
        raise ImageError(f"it holds fractions of {len(numbers)} segments; {listed}")
    depth = np.uint8 if max(numbers, default=0) <= 255 else np.uint16
    whole = np.zeros((int(places.max()) + 1, *pixels.shape[1:]), pixels.dtype if fractions else depth)
    for frame, values, place in zip(frames, pixels, places, strict=True):
        if labels:
            values = values if chosen is None else np.where(values == chosen, values, 0)
        elif chosen not in (None, frame.segment):
            continue
        elif not fractions:
            values = (values > 0) * depth(frame.segment)
        before = whole[place]
        if ((before > 0) & (values > 0) & (before != values)).any():
            raise ImageError(f"segments overlap in slice {place}; {listed}")
        np.maximum(before, values, out=before, casting="unsafe")
    return whole
