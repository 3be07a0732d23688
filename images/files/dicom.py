"""DICOM files as sources: a picture, frames in the order of the file, or frames as a volume in the patient.

Nothing that identifies the patient leaves the modules of DICOM (`dicom_header`).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, BinaryIO

import numpy as np

from ...errors import ImageError
from .. import limits
from ..source import Source, Volume, build_volume
from . import dicom_frames
from .dicom_display import choose_display
from .dicom_header import HEADER_ROOM, SEGMENTATIONS, Header, get_text, inflate, parse, read_header
from .dicom_values import DecodedFrames, decode_elements

MAX_CURVES = 2**18  # bytes of all gray curves of a volume


def read(file: BinaryIO, reserve: Callable[[int], None], stack: int | None = None, notes: Sequence[str] = ()) -> Source:
    """Return the picture of a file, the first of its frames, or the middle slice of the volume that they are.

    Args:
        file: open at its beginning.
        reserve: called once before pixels are decoded, with their bytes.
        stack: which of several groups of frames, or which segment of a segmentation, is opened.
        notes: what to say besides.
    """
    header = read_header(file, small_whole=True)
    segments = get_text(header.elements, "SOPClassUID") in SEGMENTATIONS
    frames = dicom_frames.list_frames(header) if header.frames > 1 or segments else []
    if stack is not None and not frames:
        raise ImageError("#stack=… chooses among stacks, but nothing in this file says where it lies")
    order = places = None
    try:
        if segments and frames:
            places, affine = dicom_frames.arrange_segments(frames)
        elif frames:
            order, affine = dicom_frames.arrange(frames, stack)
    except ImageError as error:
        if stack is not None:
            raise
        notes = (*notes, f"the frames are no even stack and keep the order of the file: {error}")
    count = 0 if places is None else int(places.max()) + 1
    reserve(max(header.size, limits.check_size(header.shape, 2, frames=count or 1)))
    decoded = decode(file, header)
    if places is not None:
        voxels = dicom_frames.merge_segments(decoded.pixels, frames, places, stack, header.elements)
        decoded = replace(decoded, pixels=voxels[None], measured=(float(voxels.min()), float(voxels.max())))
    elif order is not None:
        size = decoded.size._replace(spacing=frames[int(order[0, 0])].spacing)
        decoded = replace(_reorder(decoded, order), size=size)
    elif len({frame.spacing for frame in frames}) > 1:
        decoded = replace(decoded, size=decoded.size._replace(spacing=None))
    if places is None and order is None:
        return _build_frames(decoded, notes)
    return build_stack(decoded, affine, notes=notes)


def decode(file: BinaryIO, header: Header) -> DecodedFrames:
    """Decode the frames of a file, open at its beginning, whose header was read."""
    if header.whole:
        return decode_elements(header.elements)
    return decode_elements(parse(inflate(file, HEADER_ROOM + header.stored, whole=True) if header.deflated else file))


def _build_frames(decoded: DecodedFrames, notes: Sequence[str]) -> Source:
    """Return a picture, or the first of frames that have no place."""
    pixels, displays, fields = _finish(decoded, notes)
    spacing = decoded.size.spacing
    if len(pixels) == 1:
        return Source(pixels[0], spacing=spacing, **fields)
    steps = None if spacing is None else (0.0, spacing[1], spacing[0])
    return Volume(pixels, spacing=steps, planes=False, displays=displays, **fields).get_slice(0)


def build_stack(
    decoded: DecodedFrames, affine: np.ndarray, *, notes: Sequence[str] = (), unread_times: int = 0
) -> Source:
    """Return the middle slice, in its own plane, of the volume of slices that are decoded.

    Args:
        decoded: slices in order, (t, n, h, w).
        affine: (4, 4), from column, row and slice to millimeters in the patient.
        notes, unread_times: of `Volume`.
    """
    pixels, displays, fields = _finish(decoded, notes)
    fields |= {"frame_of_reference": decoded.reference, "unread_times": unread_times}
    volume = build_volume(pixels, affine, displays=displays, **fields)
    if decoded.size.spacing is None:  # the affine is of pixels of 1 mm
        volume = replace(volume, spacing=None, affine=None)
    return volume.get_middle_slice(volume.stacked)


def _finish(decoded: DecodedFrames, notes: Sequence[str]) -> tuple[np.ndarray, Any, dict[str, Any]]:
    """Return the pixels, how each slice is shown if they differ, and fields of `Source` and of `Volume`."""
    measured = decoded.measured
    if measured[0] > measured[1]:
        raise ImageError("every pixel is padding: nothing was measured")
    usual = decoded.usual or measured
    each = [choose_display(wish, measured, usual, inverted=decoded.inverted) for wish in decoded.wishes]
    display, curve = each[len(each) // 2]
    differ = len(set(each)) > 1 and sum(len(curve or b"") for _, curve in set(each)) <= MAX_CURVES
    fields = {"display": display, "curve": curve, "blank": decoded.blank, "unit": decoded.unit}
    fields |= {"aspect": decoded.size.aspect, "at_detector": decoded.size.at_detector}
    return decoded.pixels, tuple(each) if differ else None, {**fields, "notes": (*decoded.size.notes, *notes)}


def _reorder(decoded: DecodedFrames, order: np.ndarray) -> DecodedFrames:
    """Return frames in an order of their numbers, (t, n): as axes (t, n, h, w)."""
    pixels, wishes = decoded.pixels, decoded.wishes
    in_order = np.array_equal(order.ravel(), np.arange(len(pixels)))
    pixels = pixels.reshape(*order.shape, *pixels.shape[1:]) if in_order else pixels[order]
    return replace(decoded, pixels=pixels, wishes=[wishes[n] for n in order[0]] if len(wishes) > 1 else wishes)
