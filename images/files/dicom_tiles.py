"""Slides: the frames of a DICOM file as the one picture whose tiles they are (PS3.3 C.7.6.17.3, C.8.12.14)."""

from dataclasses import replace
from math import ceil

import numpy as np

from ...errors import ImageError
from .dicom_header import TILE, Header, get_frame_value, parse_numbers
from .dicom_values import DecodedFrames, mark

LAYERS = (TILE[2], "OpticalPathIdentifier", "ReferencedSegmentNumber")  # what tiles at one place differ in
Tile = tuple[tuple[str, ...], int, int]  # its layer, row and column in the slide, from 0


def list_tiles(header: Header, matrix: tuple[int, int]) -> list[Tile]:
    """Return where each frame lies in a slide; raise `ImageError` if it is not known, or if two lie at one place.

    Frames that do not say it follow one another by rows, then by layers (TILED_FULL).
    """
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


def assemble(decoded: DecodedFrames, tiles: list[Tile], matrix: tuple[int, int], *, labels: bool) -> DecodedFrames:
    """Return a picture of the slide for each layer; what no tile shows was not measured, or is 0 in `labels`."""
    layers = list(dict.fromkeys(layer for layer, _, _ in tiles))
    whole = np.zeros((len(layers), *matrix, *decoded.pixels.shape[3:]), decoded.pixels.dtype)
    missing = np.ones(whole.shape[:3], bool)
    for pixels, (layer, row, column) in zip(decoded.pixels, tiles, strict=True):
        place = np.s_[layers.index(layer), row : row + len(pixels), column : column + pixels.shape[1]]
        part = whole[place]
        part[:] = pixels[: part.shape[0], : part.shape[1]]  # the last ones reach beyond the slide
        missing[place] = decoded.blank is not None and (part == decoded.blank).reshape(*part.shape[:2], -1).any(2)
    notes = [f"a slide of {matrix[1]}x{matrix[0]} pixels, of {len(tiles)} tiles"]
    if len(layers) > 1 and not labels:
        notes.append(f"its {len(layers)} layers (optical paths, focal planes) follow one another as frames")
    if missing.any() and not labels:
        notes.append(f"of the slide, {missing.mean():.1%} are in no tile: not measured")
    fields = {**decoded.fields, "notes": (*decoded.fields.get("notes", ()), *notes)}
    blank = None
    if missing.any() and not labels:
        whole, _, blank, *_ = mark(whole, missing)
    return replace(decoded, pixels=whole, blank=blank, wishes=decoded.wishes[:1], fields=fields)
