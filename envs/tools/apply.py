"""Tools outside an episode: one call, or a chain of them, on whatever holds an image.

For notebooks, tests and the command line; what is read and seen is what a model in an episode reads and sees.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from viewbox.envs.tools.tool import call
from viewbox.images.coordinates import Coordinates, from_unit
from viewbox.images.source import Source
from viewbox.images.view import View
from viewbox.records import ToolResult

Openable = str | Path | Image.Image | np.ndarray | Source | View
MAX_PIXELS = 512 * 512


@dataclass(frozen=True)
class Applied:
    """What a call gave: the view after it (the one before, where it failed), and what the model sees and reads."""

    view: View
    image: Image.Image | None  # None: there is nothing to see, as after an error
    text: str
    facts: Mapping[str, Any]
    error: str | None


def apply(
    name: str,
    image: Openable,
    /,
    *,
    coordinates: Coordinates = "unit",
    max_pixels: int = MAX_PIXELS,
    hidden: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> Applied:
    """One tool on one image: a path (any file that viewbox opens), a PIL image, an array, a `Source` or a `View`.

    `max_pixels` is the budget of a view of anything but a `View`; `hidden` are arguments the environment gives. What is
    wrong with the call is in `.error`, in words; raises `ImageError` for an image that cannot be opened.

    >>> result = apply("crop", Image.new("L", (100, 100)), box=[0.1, 0.1, 0.6, 0.6])
    >>> result.image.size, result.facts["area_percentage"]
    ((50, 50), 25.0)
    >>> result.text
    'cropped (original_size: [100, 100], new_size: [50, 50], area_percentage: 25.0, shows: [0.1, 0.1, 0.6, 0.6])'
    """
    return _step(name, view_of(image, max_pixels), arguments, coordinates, hidden)


def _step(
    name: str,
    view: View,
    arguments: Mapping[str, Any],
    coordinates: Coordinates,
    hidden: Mapping[str, Any] | None = None,
) -> Applied:
    after, result = call(name, view, arguments, coordinates=coordinates, hidden=hidden)
    picture = None if result.image is None else result.image.open()
    return Applied(after, picture, located(result, after, coordinates).text, result.facts, result.error)


def chain(
    image: Openable,
    calls: Iterable[tuple[str, Mapping[str, Any]]],
    *,
    coordinates: Coordinates = "unit",
    max_pixels: int = MAX_PIXELS,
    hidden: Mapping[str, Any] | None = None,
) -> list[Applied]:
    """Calls one after the other, each on the view that the one before left; the first that fails is the last.

    >>> steps = chain(Image.new("L", (80, 40)), [("zoom", {"factor": 2}), ("crop", {"box": [0, 0, 1, 1]})])
    >>> [step.view.size for step in steps]
    [(80, 40), (40, 20)]
    """
    view = view_of(image, max_pixels)
    steps: list[Applied] = []
    for name, arguments in calls:
        steps.append(_step(name, view, arguments, coordinates, hidden))
        if steps[-1].error is not None:
            break
        view = steps[-1].view
    return steps


def view_of(image: Openable, max_pixels: int = MAX_PIXELS) -> View:
    """The overview of an image however it is given; a `View` as it is."""
    return image if isinstance(image, View) else View.of(Source.of(image), max_pixels=max_pixels)


def located(result: ToolResult, view: View, coordinates: Coordinates, number: int | None = None) -> ToolResult:
    """A result that also says which box of the open image its picture shows and, where views are numbered, its number.

    A picture that is not of the view (a sheet of many slices) has no such box: it stays as it is.
    """
    if result.image is None or (result.image.width, result.image.height) != view.size:
        return result
    shows = from_unit(view.window, coordinates, view.reset().size)
    facts = {**result.facts, "shows": shows} | ({} if number is None else {"view": number})
    return replace(result, facts=facts)
