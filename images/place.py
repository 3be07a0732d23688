"""Where slices of different volumes lie in the patient: which slice is nearest, which part is shared, what lies on it.

All places go through millimeters in the patient (`Volume.affine`). Volumes whose affine is not known have no place, and
those of different frames of reference cannot be compared.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .source import AXES, Plane, Source, Volume

CLOSE = 1e-6  # of a voxel: what places lose to rounding


def share_frame(first: Volume, second: Volume) -> bool:
    """Return whether both places in the patient are known and count from the same point, as far as the files say."""
    frames = {first.frame_of_reference, second.frame_of_reference} - {""}
    return first.affine is not None and second.affine is not None and len(frames) < 2


def find_index(source: Source, other: Volume) -> float:
    """Return where the middle of a slice lies among the slices of another volume along the same plane, not rounded.

    Below -0.5, or at its number of slices less 0.5 and above, the other volume does not reach that place.
    """
    plane, _ = _get_plane(source)
    middle = _map_points(source, other, [(0.5, 0.5)])[0]
    return float(middle[2 - AXES[plane]])


def map_window(source: Source, other: Source, window: Sequence[float]) -> tuple[float, float, float, float]:
    """Return where a window of a slice (fractions) lies in a slice of another volume in the same plane: the upright box
    around its corners, in fractions, which may lie outside."""
    plane, volume = _get_plane(other)
    x1, y1, x2, y2 = window
    corners = _map_points(source, volume, [(x, y) for x in (x1, x2) for y in (y1, y2)])
    across, down = [axis for axis in range(3) if axis != 2 - AXES[plane]]
    columns, rows = corners[:, across] + 0.5, corners[:, down] + 0.5
    if plane != "axial":  # slices are shown with the head up
        rows = other.height - rows
    columns, rows = columns / other.width, rows / other.height
    return float(columns.min()), float(rows.min()), float(columns.max()), float(rows.max())


def measure_turn(source: Source, other: Source) -> float:
    """Return the largest angle, in degrees, between the rows or the columns of slices of two volumes."""
    pairs = zip(*(_get_plane(one)[1].get_directions()[:2] for one in (source, other)), strict=True)
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
    origin, right, down = _map_points(source, other, _list_pixel_centers(source))
    right, down = right - origin, down - origin
    inside = np.ones((source.height, source.width), bool)
    places = []
    for axis in range(3):
        row = origin[axis] + right[axis] * np.arange(source.width)
        place = np.floor(row[None] + (down[axis] * np.arange(source.height))[:, None] + 0.5 + CLOSE).astype(np.intp)
        inside &= (place >= 0) & (place < other.voxels.shape[2 - axis])
        places.append(place)
    sampled = np.zeros(inside.shape, other.voxels.dtype)
    x, y, z = (place[inside] for place in places)
    sampled[inside] = other.voxels[z, y, x]
    return sampled


def _list_pixel_centers(source: Source) -> list[tuple[float, float]]:
    """Return the centers of the first pixel, of that to its right, and of that below it, in fractions."""
    x, y = 0.5 / source.width, 0.5 / source.height
    return [(x, y), (3 * x, y), (x, 3 * y)]


def _map_points(source: Source, other: Volume, points: Sequence[tuple[float, float]]) -> np.ndarray:
    """Return points of a slice (fractions) as indices (x, y, z) of another volume: (n, 3), not rounded."""
    _, volume = _get_plane(source)
    assert other.affine is not None
    right, down, first = volume.get_directions()
    pixels = np.array(points) * source.size - 0.5
    places = first + pixels[:, :1] * right + pixels[:, 1:] * down
    mapped: np.ndarray = np.linalg.solve(other.affine[:3, :3], (places - other.affine[:3, 3]).T).T
    return mapped


def _get_plane(source: Source) -> tuple[Plane, Volume]:
    assert source.volume is not None
    return source.volume.plane, source.volume
