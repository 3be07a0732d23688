"""DICOM files as sources: a picture, a slide of tiles, frames in the order of the file, or as a volume in the patient.

Frames are placed by their functional groups (PS3.3 C.7.6.16), or by the offsets of a dose. Nothing that identifies the
patient leaves the modules of DICOM (`dicom_header`).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import ceil
from typing import Any, BinaryIO

import numpy as np

from ...errors import ImageError
from .. import limits
from ..source import Source, Volume, build_volume
from . import dicom_header, stacks
from .dicom_header import SEGMENTATIONS, TILE, Header, get_frame_value, get_text, get_value, parse_numbers
from .dicom_marks import list_words
from .dicom_values import DecodedFrames, choose_display, decode_elements, get_pixel_size, mark
from .paths import Reserve
from .stacks import Slice

MAX_CURVES = 2**18  # bytes of all gray curves of a volume


def read(file: BinaryIO, reserve: Reserve, stack: int | None = None, notes: Sequence[str] = ()) -> Source:
    """Return the picture of a file, the first of its frames, or the middle slice of the volume that they are. `stack`
    says which of several groups of frames, or which segment of a segmentation, is opened."""
    header = dicom_header.read_header(file, small_whole=True)
    frames, planned = [] if header.matrix else list_frames(header), None
    if stack is not None and not frames and get_text(header.elements, "SOPClassUID") not in SEGMENTATIONS:
        raise ImageError("#stack=… chooses among stacks, but nothing in this file says where it lies")
    try:
        planned = plan(header, frames, stack) if frames else None
    except ImageError as error:
        if stack is not None:
            raise
        notes = (*notes, f"the frames are no even stack and keep the order of the file: {error}")
    if header.matrix:
        return _build_picture(_read_slide(file, header, stack, reserve), notes)
    reserve(max(header.size, limits.check_size(header.shape, 1, frames=planned[2] if planned else 1)))
    decoded = decode(file, header)
    if planned is not None:
        return build_stack(planned[0](decoded), planned[1], notes=(*notes, *planned[3]))
    if len({frame.spacing for frame in frames}) > 1:
        decoded.fields["spacing"] = None
    return _build_picture(decoded, notes)


def _build_picture(decoded: DecodedFrames, notes: Sequence[str]) -> Source:
    fields, displays = _list_fields(decoded, notes)
    if len(decoded.pixels) == 1:
        del fields["frame_of_reference"]
        return Source(decoded.pixels[0], **fields)
    fields["spacing"] = fields["spacing"] and (0.0, *fields["spacing"][::-1])
    return Volume(decoded.pixels, planes=False, displays=displays, **fields).get_slice(0)


def decode(file: BinaryIO, header: Header) -> DecodedFrames:
    """Decode the frames of a file, open at its beginning, whose header was read."""
    if header.whole:
        return decode_elements(header.elements, header)
    room = dicom_header.HEADER_ROOM + header.stored
    return decode_elements(
        dicom_header.parse(dicom_header.inflate(file, room, whole=True) if header.deflated else file), header
    )


def build_stack(decoded: DecodedFrames, affine: np.ndarray, *, notes: Sequence[str] = (), unread: int = 0) -> Source:
    """Return the middle slice, in its own plane, of the volume of slices that are decoded, in order, (t, n, h, w). The
    affine, (4, 4), is from column, row and slice to millimeters in the patient."""
    fields, displays = _list_fields(decoded, notes)
    known, _ = fields.pop("spacing") is not None, fields.pop("sides")  # its affine names the sides
    volume = build_volume(decoded.pixels, affine, displays=displays, unread_times=unread, **fields)
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


WORDS = {"ComplexImageComponent": 0, "ImageType": 2}  # of `TIMES`, those of words, and the first that counts


def build_slice(header: Header, name: str, frame: int = 0) -> Slice:
    """Return where a frame of a file lies, and what tells it from others; color and mosaics lie nowhere."""
    elements = header.elements
    segments = get_text(elements, "SOPClassUID") in SEGMENTATIONS
    color = header.samples > 1 or (get_text(elements, "PhotometricInterpretation") == "PALETTE COLOR" and not segments)
    names = ("ImagePositionPatient", "ImageOrientationPatient", "ReferencedSegmentNumber", *dicom_header.THICKNESS)
    position, directions, segment, *thickness = (parse_numbers(get_value(elements, name, frame)) for name in names)
    place = stacks.build_place(position, directions)
    mosaic, nowhere = "MOSAIC" in list_words(elements, "ImageType"), place is stacks.NOWHERE
    kind = "in color" if color else "a mosaic" if mosaic else "without a place in the patient" if nowhere else ""
    times: dict[str, float | str] = {}
    for key in dicom_header.TIMES:
        numbers = parse_numbers(value := get_value(elements, key, frame))
        times |= {key if len(numbers) == 1 else f"{key} {n}": number for n, number in enumerate(numbers)}
        if value and key in WORDS:
            times[key] = " ".join(list_words(elements, key, frame)[WORDS[key] :])
    stated = tuple(numbers[0] for numbers in thickness if len(numbers) == 1 and numbers[0] > 0)
    facts = get_pixel_size(elements, frame)["spacing"], stated, times, frame, int((segment or [1])[0])
    return Slice(name, header.shape, stacks.NOWHERE if kind else place, kind, *facts)


def list_frames(header: Header) -> list[Slice]:
    """Return the frames of a file and where they lie; [] if it does not say that of any."""
    offsets = parse_numbers(header.elements.get("GridFrameOffsetVector"))
    of_dose = len(offsets) == header.frames  # C.8.8.3.2: along the normal, from the first frame
    if header.frames > 1 and not of_dose and not {dicom_header.OF_FRAMES, dicom_header.SHARED} & header.elements.keys():
        return []
    frames = [build_slice(header, f"frame {number}", number) for number in range(header.frames)]
    if of_dose and frames[0].placed:
        steps = [np.outer([1, 0, 0], frames[0].normal) * (offset - offsets[0]) for offset in offsets]
        frames = [replace(frame, place=frame.place + step) for frame, step in zip(frames, steps, strict=True)]
    return frames if any(frame.placed for frame in frames) else []


def plan(
    header: Header, frames: list[Slice], stack: int | None
) -> tuple[Callable[[DecodedFrames], DecodedFrames], np.ndarray, int, list[str]]:
    """Return what puts decoded frames in order, where their stack lies, how many slices it has, and notes."""
    groups = stacks.group(frames)
    if get_text(header.elements, "SOPClassUID") in SEGMENTATIONS:
        places, affine = stacks.arrange_sparse(stacks.choose(groups, None, "frames", all_of_them=True))
        return partial(_merge_segments, header.elements, frames, places, stack), affine, int(places.max()) + 1, []
    times, affine = stacks.arrange(stacks.choose(groups, stack, "frames", all_of_them=True))
    order = np.array([[frame.number for frame in time] for time in times])
    return partial(_reorder, order, times[0][0].spacing), affine, order.size, stacks.describe_times(times)


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
    """Return the voxels of a segmentation, (1, n, h, w): the number of the segment in each, or how much of it is in it;
    0 where no frame lies (`places` in the stack). Raise `ImageError` if segments overlap, or if there are fractions of
    several; `chosen` is the only one that is wanted."""
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


LAYERS = (TILE[2], "OpticalPathIdentifier", "ReferencedSegmentNumber")  # what tiles at one place differ in
Tile = tuple[tuple[str, ...], int, int]  # its layer, row and column in the slide, from 0


def _list_tiles(header: Header, matrix: tuple[int, int]) -> list[Tile]:
    """Return where each frame lies in a slide: by rows, then by layers, if they do not say it (TILED_FULL). Raise
    `ImageError` if it is not known, or if two lie at one place."""
    (height, width), (rows, columns), tiles = matrix, header.shape, list[Tile]()
    across = ceil(width / columns)
    whole = across * ceil(height / rows)
    for frame in range(header.frames):
        values = [get_frame_value(header.elements, name, frame) for name in (*TILE[:2], *LAYERS)]
        row, column = (int((*parse_numbers(value), 0)[0]) - 1 for value in values[:2])
        if values[0] is None:
            layer, place = divmod(frame, whole)
            row, column, values[2:] = place // across * rows, place % across * columns, [layer + 1]
        tiles.append((tuple(map(str, values[2:])), row, column))
    what = f"{header.frames} tiles of {columns}x{rows} pixels for a slide of {width}x{height}"
    if get_frame_value(header.elements, TILE[0], 0) is None and header.frames % whole:
        raise ImageError(f"{what}: they do not say where they lie, and {whole} would fill it")
    if len(set(tiles)) < header.frames or not all(0 <= y < height and 0 <= x < width for _, y, x in tiles):
        raise ImageError(f"{what}: two of them lie at one place, or one outside")
    return tiles


def _read_slide(file: BinaryIO, header: Header, stack: int | None, reserve: Reserve) -> DecodedFrames:
    """Return a picture for each layer of a slide, or the one of the segments that its tiles are. What no tile shows was
    not measured; of segments it is 0."""
    matrix, segments = header.matrix or header.shape, get_text(header.elements, "SOPClassUID") in SEGMENTATIONS
    tiles = _list_tiles(header, matrix)
    layers = list(dict.fromkeys(layer for layer, _, _ in tiles))
    pixel = header.stored // (header.frames * header.shape[0] * header.shape[1])
    reserve(max(header.size, limits.check_size(matrix, pixel, frames=len(layers))))
    decoded = decode(file, header)
    whole = np.zeros((len(layers), *matrix, *decoded.pixels.shape[3:]), decoded.pixels.dtype)
    missing, blank = np.ones(whole.shape[:3], bool), None
    for pixels, (layer, row, column) in zip(decoded.pixels, tiles, strict=True):
        place = np.s_[layers.index(layer), row : row + len(pixels), column : column + pixels.shape[1]]
        tile = whole[place]
        tile[:] = pixels[: tile.shape[0], : tile.shape[1]]  # the last ones reach beyond the slide
        missing[place] = decoded.blank is not None and (tile == decoded.blank).reshape(*tile.shape[:2], -1).any(2)
    notes = [f"a slide of {matrix[1]}x{matrix[0]} pixels, of {len(tiles)} tiles"]
    if len(layers) > 1 and not segments:
        notes.append(f"its {len(layers)} layers (optical paths, focal planes) follow one another as frames")
    if missing.any() and not segments:
        notes.append(f"of the slide, {missing.mean():.1%} are in no tile: not measured")
        whole, _, blank, *_ = mark(whole, missing)
    fields = {**decoded.fields, "notes": (*decoded.fields.get("notes", ()), *notes)}
    decoded = replace(decoded, pixels=whole, blank=blank, wishes=decoded.wishes[:1], fields=fields)
    if not segments:
        return decoded
    numbers = [int(layer[-1]) if layer[-1].isdecimal() else 1 for layer in layers]
    frames = [Slice("", matrix, stacks.NOWHERE, segment=number) for number in numbers]
    merged = _merge_segments(header.elements, frames, np.zeros(len(layers), int), stack, decoded)
    return replace(merged, pixels=merged.pixels[0])
