"""Where slices of different volumes lie in the patient: which slice is nearest, which part is shared, what lies on it.

All places go through millimeters in the patient (`Volume.affine`). Volumes whose affine is not known have no place, and
those of different frames of reference cannot be compared.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .source import AXES, Source, Volume

CLOSE = 1e-6  # of a voxel: what places lose to rounding


def share_frame(first: Volume, second: Volume) -> bool:
    """Return whether both places in the patient are known and count from the same point, as far as the files say."""
    frames = {first.frame_of_reference, second.frame_of_reference} - {""}
    return first.affine is not None and second.affine is not None and len(frames) < 2


def find_index(source: Source, other: Volume) -> float:
    """Return where the middle of a slice lies among the slices of another volume along the same plane, not rounded.

    Below -0.5, or at its number of slices less 0.5 and above, the other volume does not reach that place.
    """
    return float(_map_points(source, other, [(0.5, 0.5)])[0][2 - AXES[_get_volume(source).plane]])


def map_window(source: Source, other: Source, window: Sequence[float]) -> tuple[float, float, float, float]:
    """Return where a window of a slice (fractions) lies in a slice of another volume in the same plane: the upright box
    around its corners, in fractions, which may lie outside."""
    volume, (x1, y1, x2, y2) = _get_volume(other), window
    corners = _map_points(source, volume, [(x, y) for x in (x1, x2) for y in (y1, y2)])
    columns, rows = ((np.delete(corners, 2 - AXES[volume.plane], axis=1) + 0.5) / other.size).T
    if volume.plane != "axial":  # slices are shown with the head up
        rows = 1 - rows
    return float(columns.min()), float(rows.min()), float(columns.max()), float(rows.max())


def measure_turn(source: Source, other: Source) -> float:
    """Return the largest angle, in degrees, between the rows or the columns of slices of two volumes."""
    pairs = zip(*(_get_volume(one).get_directions()[:2] for one in (source, other)), strict=True)
    return math.degrees(max(math.acos(min(1.0, u @ v / np.linalg.norm(u) / np.linalg.norm(v))) for u, v in pairs))


def turn_alike(volume: Volume, other: Volume) -> Volume:
    """Return a volume turned so that its file's array lies on that of another volume, whatever both say of places."""
    if volume.stored_axes == other.stored_axes or not volume.planes or not other.planes:
        return volume
    sides = [[axis for axis, _ in volume.stored_axes].index(axis) for axis, _ in other.stored_axes]
    voxels = volume.voxels.transpose([2 - side for side in reversed(sides)])
    for side, (_, backwards) in enumerate(other.stored_axes):
        if volume.stored_axes[sides[side]][1] != backwards:
            voxels = np.flip(voxels, 2 - side)
    spacing: Any = volume.spacing and tuple(volume.spacing[2 - side] for side in reversed(sides))
    return replace(volume, voxels=voxels, spacing=spacing, affine=None, stored_axes=other.stored_axes, times=None)


def sample_on(source: Source, other: Volume) -> np.ndarray:
    """Return the value of the voxel of another volume in which each pixel of a slice has its center; 0 outside of it.

    The result has the shape of the slice, (height, width), and the type of the other volume.
    """
    x, y = 0.5 / source.width, 0.5 / source.height  # the first pixel, that to its right, and that below it
    origin, right, down = _map_points(source, other, [(x, y), (3 * x, y), (x, 3 * y)])
    right, down = right - origin, down - origin
    inside = np.ones((source.height, source.width), bool)
    places = []
    for axis in range(3):
        row = origin[axis] + right[axis] * np.arange(source.width)
        place = np.floor(row[None] + (down[axis] * np.arange(source.height))[:, None] + 0.5 + CLOSE).astype(np.intp)
        inside &= (place >= 0) & (place < other.voxels.shape[2 - axis])
        places.append(place)
    sampled = np.zeros(inside.shape, other.voxels.dtype)
    sampled[inside] = other.voxels[tuple(place[inside] for place in reversed(places))]
    return sampled


def _map_points(source: Source, other: Volume, points: Sequence[tuple[float, float]]) -> np.ndarray:
    """Return points of a slice (fractions) as indices (x, y, z) of another volume: (n, 3), not rounded."""
    assert other.affine is not None
    right, down, first = _get_volume(source).get_directions()
    pixels = np.array(points) * source.size - 0.5
    places = first + pixels[:, :1] * right + pixels[:, 1:] * down
    mapped: np.ndarray = np.linalg.solve(other.affine[:3, :3], (places - other.affine[:3, 3]).T).T
    return mapped


def _get_volume(source: Source) -> Volume:
    assert source.volume is not None
    return source.volume
