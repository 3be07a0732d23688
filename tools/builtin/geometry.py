"""Tools that change which part of the image is shown, and its orientation."""

from collections.abc import Sequence
from typing import Annotated

from ...errors import ArgumentError
from ...images.source import Source
from ...images.task_images import find_named, name_image
from ...images.view import WHOLE, View
from ..arguments import Box, Hidden, ImageName, Point, Range
from ..calling import ToolOutput
from ..tool import tool

SMALLEST_CROP = 10  # native pixels, drawn to scale
SMALLEST_ZOOM = 1  # native pixels along the longer side; a closer view would show nothing new


@tool
def zoom(view: View, factor: Annotated[float, Range(0.5, 4)] = 2.0, center: Point | None = (0.5, 0.5)) -> ToolOutput:
    """Zoom in or out around a point of the current view.

    factor: how many times larger; below 1 zooms out
    center: the point that becomes the middle; default: the middle of the view
    """
    closer = view.zoom(factor, center or (0.5, 0.5))
    x1, y1, x2, y2 = closer.window
    if factor > 1 and max((x2 - x1) * view.source.width, (y2 - y1) * view.source.height) < SMALLEST_ZOOM:
        raise ArgumentError("zoom: maximum zoom reached: the view would show less than one pixel of the image")
    facts = {"factor": factor, "original_size": list(view.size), "new_size": list(closer.size)}
    return ToolOutput("zoomed", facts, view=closer)


@tool
def crop(view: View, box: Box) -> ToolOutput:
    """Show only the part of the current view inside a box.

    box: the part to show
    """
    x1, y1, x2, y2 = box
    if x1 >= x2 or y1 >= y2:
        raise ArgumentError("crop: box needs x1 < x2 and y1 < y2")
    ox1, oy1, ox2, oy2 = view.box_to_original(box)
    width, height = (ox2 - ox1) * view.source.extent[0], (oy2 - oy1) * view.source.extent[1]
    if min(width, height) < SMALLEST_CROP - 1e-6:  # 0.7 - 0.6 is a little less than 0.1
        allowed = f"at least {SMALLEST_CROP}x{SMALLEST_CROP}"
        raise ArgumentError(f"crop: box is {width:.0f}x{height:.0f} pixels; allowed: {allowed}")
    cropped = view.crop(box)
    share = 100 * (x2 - x1) * (y2 - y1)
    facts = {"original_size": list(view.size), "new_size": list(cropped.size), "area_percentage": share}
    return ToolOutput("cropped", facts, view=cropped)


@tool
def rotate(view: View, clockwise: bool = True) -> ToolOutput:
    """Rotate the view by 90 degrees.

    clockwise: true turns it to the right, false to the left
    """
    turned = view.rotate(clockwise)
    facts = {"clockwise": clockwise, "original_size": list(view.size), "new_size": list(turned.size)}
    return ToolOutput("rotated", facts, view=turned)


@tool
def flip_horizontal(view: View) -> ToolOutput:
    """Mirror the view: swap left and right."""
    after = view.flip_horizontal()
    facts = {"size": list(after.size), "laterality": _compare_to_original(after, 0)}
    return ToolOutput(f"mirrored left to right. {_describe_mirroring(after)}", facts, view=after)


@tool
def flip_vertical(view: View) -> ToolOutput:
    """Mirror the view: swap top and bottom."""
    after = view.flip_vertical()
    facts = {"size": list(after.size), "orientation": _compare_to_original(after, 1)}
    return ToolOutput(f"mirrored top to bottom. {_describe_mirroring(after)}", facts, view=after)


def _compare_to_original(view: View, axis: int) -> str:
    """Return whether left and right (axis 0) or top and bottom (1) are swapped; of a turned view, if it is mirrored."""
    swapped = view.is_mirror_image if view.turned else view.mirrored[axis]
    return "reversed" if swapped else "as in the original"


def _describe_mirroring(view: View) -> str:
    if view.is_mirror_image:
        return "Careful: this is a mirror image of the original. Left and right are swapped."
    return "This is no longer a mirror image of the original."


@tool
def undo(view: View) -> ToolOutput:
    """Undo the last change of the view."""
    if view.parent is None:
        raise ArgumentError("undo: there is nothing to undo; this is the first view")
    before = view.undo()
    other = "" if before.source is view.source else " (another image)"
    return ToolOutput(f"one step back: {_describe_view(before)}{other}", {"size": list(before.size)}, view=before)


def _describe_view(view: View) -> str:
    changes = ["the whole image" if view.window == WHOLE else "a part of the image"]
    if view.turned or view.mirrored == (True, True):
        changes.append("turned")
    if view.is_mirror_image:
        changes.append("mirrored")
    if view.operations:
        changes.append("intensities changed")
    return ", ".join(changes)


@tool
def open_image(view: View, image: ImageName, images: Hidden[Sequence[Source]] = ()) -> ToolOutput:
    """Show another image of this task. Other tools then work on it."""
    if not images:
        raise ArgumentError("open_image: this task has no other image")
    number = find_named(image, len(images))
    opened = view.show(images[number])
    facts = {"image": name_image(number), "images": len(images), "size": list(opened.size)}
    return ToolOutput("opened", facts, view=opened)


@tool
def reset(view: View) -> ToolOutput:
    """Go back to the whole original image; drops every change."""
    whole = view.reset()
    return ToolOutput("back to the original", {"size": list(whole.size)}, view=whole)
