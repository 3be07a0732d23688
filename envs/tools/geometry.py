"""Tools that change where the viewer looks."""

from typing import Annotated

from viewbox.envs.image import View
from viewbox.envs.tools.registry import Box, Outcome, Point, Range, tool
from viewbox.errors import ToolError

SMALLEST_CROP = 10  # native pixels
SMALLEST_ZOOM = 1  # native pixels along the longer side: there is nothing to see beyond


def _size(view: View) -> list[int]:
    return list(view.size)


@tool
def zoom(view: View, factor: Annotated[float, Range(0.5, 4)] = 2.0, center: Point | None = None) -> Outcome:
    """Look closer (factor above 1) or from further away, about a point of the current view."""
    closer = view.zoom(factor, center or (0.5, 0.5))
    x1, y1, x2, y2 = closer.window
    longer = max((x2 - x1) * view.source.width, (y2 - y1) * view.source.height)
    if factor > 1 and longer < SMALLEST_ZOOM:
        raise ToolError("zoom: the view is as close as it gets: less than a pixel of the image would be shown")
    facts = {"factor": factor, "original_size": _size(view), "new_size": _size(closer)}
    return Outcome(closer, "zoomed", facts)


@tool
def crop(view: View, box: Box) -> Outcome:
    """Show only a box of the current view."""
    x1, y1, x2, y2 = box
    if x1 >= x2 or y1 >= y2:
        raise ToolError("crop: box needs x1 < x2 and y1 < y2")
    ox1, oy1, ox2, oy2 = view.to_original(box)
    width, height = (ox2 - ox1) * view.source.width, (oy2 - oy1) * view.source.height
    if min(width, height) < SMALLEST_CROP - 1e-6:  # 0.7 - 0.6 is a little less than 0.1
        raise ToolError(
            f"crop: box is {width:.0f}x{height:.0f} pixels; allowed: at least {SMALLEST_CROP}x{SMALLEST_CROP}"
        )
    part = view.crop(box)
    share = 100 * (x2 - x1) * (y2 - y1)
    facts = {"original_size": _size(view), "new_size": _size(part), "area_percentage": share}
    return Outcome(part, "cropped", facts)


@tool
def reset(view: View) -> Outcome:
    """Go back to the whole original image; drops every change."""
    whole = view.reset()
    return Outcome(whole, "back to the original", {"size": _size(whole)})
