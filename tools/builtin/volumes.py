"""Tools for stacks of slices: list the slices, or show another slice."""

from typing import Any

from ...errors import ArgumentError, ImageError
from ...images.source import AXES, Plane, Volume
from ...images.view import View
from ..calling import ToolOutput
from ..tool import tool


@tool
def select_slice(view: View, index: int, plane: Plane = "axial", time: int | None = None) -> ToolOutput:
    """Show another slice of the volume. It is shown whole: zoom and all other changes are dropped.

    index: number of the slice, from 0
    plane: plane of the slice
    time: number of the time point, from 0, if the volume has several; default: the one shown now
    """
    volume = _get_volume(view, "select_slice")
    try:
        source = volume.at_time(volume.time if time is None else time).get_slice(index, plane)
    except ImageError as error:
        raise ArgumentError(f"select_slice: {error}") from error
    other = view.show(source)
    facts: dict[str, Any] = {"index": index, "slices": volume.count_slices(plane), "size": list(other.size)}
    if volume.planes:
        facts = {"plane": plane, **facts}
    if volume.times is not None and source.volume is not None:
        facts |= {"time": source.volume.time, "time_points": volume.count_times()}
    return ToolOutput("slice shown; earlier changes are dropped", facts, view=other)


@tool
def list_slices(view: View) -> ToolOutput:
    """List the number of slices in each plane, their distance in millimeters, the number of time points if there are
    several, and which slice is shown."""
    volume = _get_volume(view, "list_slices")
    facts: dict[str, Any] = {}
    for plane in volume.allowed_planes:
        name = plane if volume.planes else "frames"
        facts[name] = volume.count_slices(plane)
        distance = volume.get_slice_distance(plane)
        if distance is not None:
            facts[f"{name}_mm_apart"] = distance
    sheared = [plane for plane in AXES if volume.planes and plane not in volume.allowed_planes]
    if sheared:
        reason = "they would be sheared, because the axes of the scan are not at right angles"
        facts["planes_not_shown"] = f"{', '.join(sheared)}: {reason}"
    if volume.notes:
        facts["notes"] = list(volume.notes)
    facts["shown"] = f"{volume.plane} {volume.index}" if volume.planes else f"frame {volume.index}"
    if volume.times is None:
        return ToolOutput("slices are numbered from 0", facts)
    facts["shown"] += f", time {volume.time}"
    facts["time_points"] = volume.count_times()
    if volume.unread_times:
        facts["time_points_not_read"] = volume.unread_times
    return ToolOutput("slices and time points are numbered from 0", facts)


def _get_volume(view: View, name: str) -> Volume:
    if view.source.volume is None:
        raise ArgumentError("; ".join([f"{name}: this image is a single picture, not a volume", *view.source.notes]))
    return view.source.volume
