"""Tools that show a second picture with the view: another image beside it, or a mask on it. The view stays as it is.

The second picture is linked: it shows the same part, turned and mirrored alike, in the same plane.
"""

import math
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import cv2
import numpy as np

from ...errors import ArgumentError, ImageError
from ...images.files import open_image as open_file
from ...images.masks import choose_inside
from ...images.ref import ImageRef
from ...images.resample import fit_size
from ...images.source import AXES, Source, Volume
from ...images.task_images import find_named, name_image
from ...images.view import WHOLE, Box, View
from ..arguments import Hidden, ImageName, Range, ViewFractions
from ..calling import ToolOutput
from ..tool import tool
from .analysis import Color
from .drawing import COLORS, draw_mask, find_mask_box

SEAM = 2  # pixels of white between two pictures
THIN = 1e-4  # share of a pixel that a thin structure covers at least
SHARED = 0.01  # share of a slice that two windows must have in common, and by which they may differ
TURNED = 5.0  # degrees between two slices, above which it is said
CLOSE = 1e-6  # of a voxel: what places lose to rounding
LAID = "; it lies voxel on voxel as both are stored, for it is not known where it lies in the patient"
SAME = 0.01  # largest difference of two spacings or aspects, as a share


@tool
def show_beside(
    view: View, image: ImageName, slice: int | None = None, images: Hidden[Sequence[Source]] = ()
) -> ToolOutput:
    """Show the current view on the left and the same part of another image on the right: linked, in the same plane,
    with the same zoom and orientation; single pictures by their proportions. The view itself does not change.

    slice: slice of the other image, from 0, if it is a volume; default: the one at the same place in the patient
    """
    number, name = find_named(image, len(images)), name_image(find_named(image, len(images)))
    source, window, shown = _find_part(view, images[number], slice, name)
    alike = (source.unit, source.pixels.dtype) == (view.source.unit, view.source.pixels.dtype)
    other = replace(view, source=source, window=window, operations=view.operations if alike else (), parent=None)
    left, right = _fit_beside(view, other)
    pictures = [left.to_picture(), right.to_picture()]
    if any(picture.ndim == 3 for picture in pictures):
        pictures = [p if p.ndim == 3 else cv2.cvtColor(p, cv2.COLOR_GRAY2RGB) for p in pictures]
    joined = np.concatenate(pictures, axis=1)
    joined[:, left.size[0] - SEAM // 2 : left.size[0] + SEAM // 2] = 255
    facts: dict[str, Any] = {"image": name}
    if source.volume is not None:
        facts |= {"plane": source.volume.plane, "slice": source.volume.index}
    text = f"left: the current view; right: {shown}"
    if view.operations and not alike:
        text += ", with its intensities unchanged"
    seam = left.size[0] / joined.shape[1]
    beside = (left, (0.0, 0.0, seam, 1.0)), (right, (seam, 0.0, 1.0, 1.0))
    size = [joined.shape[1], joined.shape[0]]
    return ToolOutput(text, {**facts, "size": size}, joined, of_view=False, beside=beside)


def _find_part(view: View, other: Source, index: int | None, name: str) -> tuple[Source, Box, str]:
    """Return the slice of another image that is beside the shown one, which window of it, and that part in words."""
    here, there, part = view.source.volume, other.volume, f"the same part of {name}"
    if other is view.source or other.is_same_stack(view.source):
        return _find_slice(view.source, other, index), view.window, part
    if here is None or there is None or not _share_frame(here, there):
        part = f"{name} at the same proportions; it is not known whether this is the same place"
        part += " in the patient" if here is not None and there is not None else ""
        return _find_slice(view.source, other, index), view.window, part
    at, (x1, y1, x2, y2) = _map_window(view.source, there, view.window)
    last = there.voxels.shape[AXES[here.plane]] - 1
    slice_ = _find_slice(view.source, other, min(last, max(0, round(at))) if index is None else index)
    window = max(x1, 0.0), max(y1, 0.0), min(x2, 1.0), min(y2, 1.0)
    if min(window[2] - window[0], window[3] - window[1]) <= SHARED:
        window, part = WHOLE, f"all of the slice of {name}, which does not hold this part"
    elif max(window[0] - x1, window[1] - y1, x2 - window[2], y2 - window[3]) > SHARED:
        part = f"as much of this part as {name} holds"
    if slice_.volume is not None and abs(at - slice_.volume.index) > 0.5 + CLOSE:
        thickness = (there.spacing or (math.nan,) * 3)[AXES[here.plane]]  # of a single slice
        away = abs(at - slice_.volume.index) * (there.get_slice_distance(here.plane) or thickness)
        part = f"a slice of {name} {away:.1f} mm away" + ("" if index is not None else ", the nearest one there is")
    if (angle := _measure_turn(view.source, slice_)) > TURNED:
        part += f"; its slices are turned by {angle:.0f} degrees, so both agree in the middle only"
    return slice_, window, part


def _find_slice(shown: Source, other: Source, index: int | None) -> Source:
    """Return a slice of another image in the plane of the shown one; by default at the same proportion."""
    if other.volume is None:
        if index is not None:
            raise ArgumentError("show_beside: slice: that image is a single picture; allowed: none")
        return other
    plane, place = other.volume.plane, 0.5
    if shown.volume is not None:
        plane = shown.volume.plane
        place = (shown.volume.index + 0.5) / shown.volume.count_slices(plane)
    try:
        count = other.volume.count_slices(plane)
        return other.volume.get_slice(min(count - 1, int(place * count)) if index is None else index, plane)
    except ImageError as error:
        raise ArgumentError(f"show_beside: {error}") from error


def _fit_beside(view: View, other: View) -> tuple[View, View]:
    """Both views, of one height, on grids that fit the budget together."""
    aspects = [width / height for width, height in (view.measure_window(), other.measure_window())]
    step, rows = view.multiple, view.size[1]
    width, height = fit_size(rows * sum(aspects), rows, view.max_pixels, step)
    if width < 2 * step:  # very tall pictures
        width, height = 2 * step, min(height, view.max_pixels // (2 * step) // step * step)
    if height < step:
        raise ArgumentError("show_beside: there is no room for two pictures in a view of this environment")
    first = min(max(step, round(width * aspects[0] / sum(aspects) / step) * step), width - step)
    sizes = (first, height), (width - first, height)
    left, right = (replace(shown, size=size, parent=None) for shown, size in zip((view, other), sizes, strict=True))
    return left, right


@tool
def overlay_mask(
    view: View,
    image: ImageName | None = None,
    color: Color = "red",
    opacity: Annotated[float, Range(0.1, 1)] = 0.4,
    images: Hidden[Sequence[Source]] = (),
    mask: Hidden[Any] = None,
) -> ToolOutput:
    """Show the current view with a mask (a segmentation) in color on it. The view itself does not change.

    image: name of the image that is the mask, such as "image_2"; default: the mask of this task, if it has one
    color: color of the mask
    opacity: 0.1 is faint, 1 hides what lies under it
    """
    try:
        mask_source = _open_mask(image, images, mask)
        aligned, doubt = _find_mask(view.source, mask_source)
        rule = choose_inside(mask_source)
    except ImageError as error:  # it may name the file, which the model must not learn
        reason = re.sub("^image (?:'.*?'|\".*?\"|[(].*?[)]): ", "", str(error))
        raise ArgumentError(f"overlay_mask: the mask cannot be shown: {reason}") from None
    inside = _sample_mask(view, rule.find(aligned))
    doubt = "; ".join([f"; inside: {rule.words}{doubt}", *mask_source.notes])
    picture = draw_mask(view.to_picture(), inside, COLORS[color], opacity)
    facts: dict[str, Any] = {"color": color, "share_of_view": float(inside.mean())}
    box = find_mask_box(inside)
    if box is None:
        return ToolOutput(f"nothing of the mask is in this view{doubt}", facts, picture)
    doubt += "; it covers all of this view" if inside.all() else ""
    return ToolOutput(f"mask shown{doubt}", {**facts, "box": ViewFractions(box)}, picture)


def _open_mask(name: str | None, images: Sequence[Source], mask: Any) -> Source:
    """Return the mask among the task's images, or the one that the environment gives: a path or an image in memory."""
    if name is not None:
        return images[find_named(name, len(images))]
    if mask is None:
        raise ArgumentError("overlay_mask: this task has no mask of its own; give the name of an image")
    if isinstance(mask, ImageRef):
        return Source.of(mask.open())
    return open_file(mask) if isinstance(mask, str | os.PathLike | bytes) else Source.of(mask)


def _find_mask(shown: Source, mask: Source) -> tuple[Source, str]:
    """Return the picture of the mask that lies on the shown one, and in words what is not known of its place.
    Raise `ArgumentError` if it is of another geometry."""
    volume, other = shown.volume, mask.volume
    if volume is None or other is None:
        doubt = ""
        if (stack := volume or other) is not None:
            if not stack.planes or stack.count_slices(stack.plane) > 1 or stack.plane != stack.stacked:
                what = "one of image and mask is a volume, the other a single picture"
                raise ArgumentError("; ".join([f"overlay_mask: {what}", *mask.notes]))
            mask, doubt = _turn_picture(mask, volume), LAID
        if abs(shown.width * mask.height / (shown.height * mask.width) - 1) > SAME:
            raise _refuse(mask.size, shown.size, "pixels")
        return mask, doubt
    if (count := other.count_times()) not in (1, volume.count_times()):
        raise ImageError(f"it has {count} stacks (channels, or times), the image {volume.count_times()}; choose one")
    other = other.at_time(volume.time if count > 1 else 0)
    if _share_frame(volume, other):
        return Source(_sample_on(shown, other), blank=other.blank), ""
    other = _turn_alike(other, volume)
    sides, others = volume.voxels.shape[2::-1], other.voxels.shape[2::-1]
    if sides != others:
        raise _refuse(others, sides, "voxels")
    if volume.spacing and other.spacing and not np.allclose(volume.spacing, other.spacing, rtol=SAME, atol=0):
        raise _refuse(other.spacing[::-1], volume.spacing[::-1], "mm")
    return other.get_slice(volume.index, volume.plane), "" if volume.affine is other.affine is None else LAID


def _refuse(given: Sequence[float], allowed: Sequence[float], unit: str) -> ArgumentError:
    sizes = ["x".join(f"{side:g}" for side in sides) for sides in (given, allowed)]
    return ArgumentError(f"overlay_mask: the mask is of {sizes[0]} {unit}, the image of {sizes[1]}: they do not match")


def _sample_mask(view: View, whole: np.ndarray) -> np.ndarray:
    """Return which pixels of the view are inside of a mask, `whole`; (height, width).
    Enlarged: those whose center is in a pixel of the mask. Reduced: those of which at least half is inside, or any part
    if the structure is too thin for that."""
    sampled = replace(view, source=Source(whole.astype(np.float32)), operations=(), parent=None)
    left, top, right, bottom = sampled.native
    if (right - left) * (bottom - top) <= view.size[0] * view.size[1]:
        (width, height), (rows, columns) = view.size, whole.shape
        u, v = (np.arange(width) + 0.5) / width, (np.arange(height)[:, None] + 0.5) / height
        a, b, c, d, e, f = view.matrix
        places = (d * u + e * v + f, rows), (a * u + b * v + c, columns)
        return np.asarray(whole[tuple(np.clip((part * side).astype(int), 0, side - 1) for part, side in places)])
    shares = sampled.sample_values()
    inside = shares >= 0.5
    return inside if inside.any() else shares > THIN


def _share_frame(first: Volume, second: Volume) -> bool:
    """Return whether both places in the patient are known and count from the same point, as far as the files say."""
    frames = {first.frame_of_reference, second.frame_of_reference} - {""}
    return first.affine is not None and second.affine is not None and len(frames) < 2


def _map_window(source: Source, other: Volume, window: Box) -> tuple[float, Box]:
    """Return where the middle of a slice lies among those of another volume along the same plane, not rounded, and
    where a window of it (fractions) lies in them: the upright box around its corners. Both may lie outside."""
    plane, (x1, y1, x2, y2) = _get_volume(source).plane, window
    middle, *corners = _map_points(source, other, [(0.5, 0.5), *((x, y) for x in (x1, x2) for y in (y1, y2))])
    columns, rows = np.delete((np.array(corners) + 0.5) / other.voxels.shape[2::-1], 2 - AXES[plane], axis=1).T
    if plane != "axial":  # slices are shown with the head up
        rows = 1 - rows
    box = float(columns.min()), float(rows.min()), float(columns.max()), float(rows.max())
    return float(middle[2 - AXES[plane]]), box


def _measure_turn(source: Source, other: Source) -> float:
    """Return the largest angle, in degrees, between the rows or the columns of slices of two volumes."""
    pairs = zip(*(_get_volume(item).get_directions()[:2] for item in (source, other)), strict=True)
    return math.degrees(max(math.acos(min(1.0, u @ v / np.linalg.norm(u) / np.linalg.norm(v))) for u, v in pairs))


def _turn_alike(volume: Volume, other: Volume) -> Volume:
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


def _turn_picture(mask: Source, volume: Volume | None) -> Source:
    """Return a picture turned as the only slice of a volume is shown, or the only slice of a mask as it is stored."""
    plain = Volume(np.arange(mask.width * mask.height).reshape(1, *mask.pixels.shape[:2]), mask.display)
    if volume is None:
        return _turn_alike(_get_volume(mask), plain).get_slice(0)
    order = _turn_alike(plain, volume).voxels.take(0, AXES[volume.plane])[:: 1 if volume.plane == "axial" else -1]
    return replace(mask, pixels=mask.pixels.reshape(-1, *mask.pixels.shape[2:])[order])


def _sample_on(source: Source, other: Volume) -> np.ndarray:
    """Return the value of the voxel of another volume in which each pixel of a slice has its center; 0 outside of it.
    The result has the shape of the slice, (height, width), and the type of the other volume."""
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
    return np.asarray(np.linalg.solve(other.affine[:3, :3], (places - other.affine[:3, 3]).T).T)


def _get_volume(source: Source) -> Volume:
    assert source.volume is not None
    return source.volume
