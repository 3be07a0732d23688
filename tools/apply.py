"""Tools outside an episode: one call, or a chain of calls, on any image.

For notebooks, tests and the command line. The results are exactly what a model in an episode reads and sees.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ..images.coordinates import Coordinates
from ..images.files import open_image
from ..images.source import Source
from ..images.view import View
from ..records import ToolResult
from .calling import MAX_PIXELS, call_stateful

Openable = str | Path | Image.Image | np.ndarray | Source | View


def apply_tool(
    name: str,
    image: Openable,
    /,
    *,
    coordinates: Coordinates = "unit",
    max_pixels: int = MAX_PIXELS,
    **arguments: object,
) -> tuple[View, ToolResult]:
    """Call one stateful tool on an image; return the view after the call and the result.

    `image` is a path (any file that viewbox opens), a PIL image, an array, a `Source` or a `View`. `max_pixels` bounds
    the view unless `image` is a `View`. If the call fails, `result.error` says why. Raise `ImageError` if the image
    cannot be opened.

    >>> view, result = apply_tool("crop", Image.new("L", (100, 100)), box=[0.1, 0.1, 0.6, 0.6])
    >>> result.image.open().size, result.facts["area_percentage"]
    ((50, 50), 25.0)
    >>> result.text
    'cropped (original_size: [100, 100], new_size: [50, 50], area_percentage: 25.0, shows: [0.1, 0.1, 0.6, 0.6])'
    """
    return apply_tools(image, [(name, arguments)], coordinates=coordinates, max_pixels=max_pixels)[0]


def apply_tools(
    image: Openable,
    calls: Iterable[tuple[str, Mapping[str, Any]]],
    *,
    coordinates: Coordinates = "unit",
    max_pixels: int = MAX_PIXELS,
    hidden: Mapping[str, object] | None = None,
) -> list[tuple[View, ToolResult]]:
    """Call stateful tools in order, each on the view that the call before it left; stops after the first error.

    `hidden` are arguments that the environment would fill in.

    >>> steps = apply_tools(Image.new("L", (80, 40)), [("zoom", {"factor": 2}), ("crop", {"box": [0, 0, 1, 1]})])
    >>> [view.size for view, result in steps]
    [(160, 80), (40, 20)]
    """
    view = open_view(image, max_pixels)
    steps: list[tuple[View, ToolResult]] = []
    for name, arguments in calls:
        view, result = call_stateful(name, view, arguments, coordinates=coordinates, hidden=hidden)
        steps.append((view, result))
        if result.error is not None:
            break
    return steps


def open_view(image: Openable, max_pixels: int = MAX_PIXELS) -> View:
    """Return the overview of an image; a `View` is returned as it is."""
    if isinstance(image, View):
        return image
    source = open_image(image) if isinstance(image, str | Path) else Source.of(image)
    return View.of(source, max_pixels=max_pixels)
