"""The viewer's tools, one family a file; importing this package registers them all."""

from typing import Any

from viewbox.envs.coordinates import Coordinates
from viewbox.envs.image import View
from viewbox.envs.tools import geometry, intensity
from viewbox.envs.tools.registry import TOOLS, Box, Outcome, Point, Range, Tool, call, get, tool
from viewbox.envs.types import ToolResult

__all__ = ["TOOLS", "Box", "Outcome", "Point", "Range", "Tool", "apply", "call", "geometry", "get", "intensity", "tool"]


def apply(name: str, image: Any, *, coordinates: Coordinates = "unit", **arguments: Any) -> ToolResult:
    """One tool on one image (PIL, uint8 array, or a `View`): `.image`, `.text`, `.facts`, `.error`.

    >>> from PIL import Image
    >>> result = apply("crop", Image.new("L", (100, 100)), box=[0.1, 0.1, 0.6, 0.6])
    >>> result.image.width, result.facts["area_percentage"]
    (50, 25.0)
    """
    view = image if isinstance(image, View) else View.of(image)
    return call(name, view, arguments, coordinates=coordinates)[1]
