"""`viewbox tools try`: tool calls written on one line of a shell, applied to one image.

    viewbox tools try scan.dcm window_level preset=ct_bone zoom factor=2 center=0.5,0.3

A word without `=` is a tool, the words after it are its arguments. A value is JSON, numbers with commas between them,
or text. Without a call, the image is shown as a model first sees it.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from PIL import Image

from viewbox.envs.tools.apply import apply_tools, open_view
from viewbox.envs.tools.calling import MAX_PIXELS
from viewbox.envs.tools.tool import TOOLS
from viewbox.errors import ConfigError, ImageError, describe_unknown
from viewbox.images.coordinates import Coordinates
from viewbox.images.view import View
from viewbox.records import ToolResult

Call = tuple[str, dict[str, Any]]


def parse_calls(arguments: Iterable[str]) -> list[Call]:
    """The calls that the command-line arguments spell; raises `ConfigError` for an unknown or misplaced one.

    >>> parse_calls(["zoom", "factor=2", "crop", "box=0.1,0.1,0.5,0.5"])
    [('zoom', {'factor': 2}), ('crop', {'box': [0.1, 0.1, 0.5, 0.5]})]
    """
    calls: list[Call] = []
    for argument in arguments:
        name, equals, text = argument.partition("=")
        if not equals:
            if name not in TOOLS:
                raise ConfigError(f"{describe_unknown('tool', name, TOOLS)}; an argument is written name=value")
            if not TOOLS[name].stateful:
                raise ConfigError(f"{name} does not work on a view: it can only be called in an episode")
            calls.append((name, {}))
        elif not calls:
            raise ConfigError(f"{argument}: an argument before any tool; allowed: TOOL name=value … TOOL name=value …")
        elif name in calls[-1][1]:
            raise ConfigError(f"{argument}: {name} is given twice to {calls[-1][0]}")
        else:
            calls[-1][1][name] = _parse_value(text, TOOLS[calls[-1][0]].parameters.get(name, {}))
    return calls


def _parse_value(text: str, spec: Mapping[str, Any]) -> Any:
    if spec.get("type") == "string":
        return text
    try:
        return json.loads(f"[{text}]" if "," in text and not text.startswith("[") else text)
    except (ValueError, RecursionError):
        return text  # the tool's own check says what it takes


def try_calls(
    image: str, arguments: Iterable[str], *, out: str, coordinates: Coordinates = "unit", max_pixels: int = MAX_PIXELS
) -> list[ToolResult]:
    """Applies the calls and writes the picture that was shown last to `out`; after an error nothing is written.

    Without any call, the result describes the image as it is first seen. Raises `ImageError` if the image cannot be
    opened or written.
    """
    calls = parse_calls(arguments)
    start = open_view(image, max_pixels)
    steps = apply_tools(start, calls, coordinates=coordinates)
    results = [result for _, result in steps] or [describe_image(start)]
    if results[-1].error is None:
        shown = [result.image for result in results if result.image is not None]
        save_picture(shown[-1].open() if shown else start.render(), out)
    return results


def describe_image(view: View) -> ToolResult:
    """The overview of an image with its facts: sizes in pixels, the type of its values, their unit and spacing."""
    source, volume = view.source, view.source.volume
    facts: dict[str, Any] = {"size": list(view.size), "original_size": list(source.size)}
    facts |= {"values": str(source.pixels.dtype), "range": [source.pixels.min().item(), source.pixels.max().item()]}
    if source.unit is not None:
        facts["unit"] = source.unit
    if source.spacing is not None:
        facts["mm_per_pixel"] = list(source.spacing)
    if volume is not None:
        facts["slices"] = {plane: volume.count_slices(plane) for plane in volume.allowed_planes}
    return ToolResult("", "the image", image=view.to_ref(), facts=facts)


def save_picture(picture: Image.Image, path: str) -> None:
    """Writes a picture in the format that its name says; raises `ImageError` if that fails."""
    try:
        picture.save(path, optimize=True)
    except (OSError, ValueError) as error:  # ValueError: Pillow does not know the extension
        known = Path(path).suffix.lower() in Image.registered_extensions()
        reason = str(error) if known else f"{error}; allowed: .png, .jpg, .tif, …"
        raise ImageError(f"{path}: cannot be written: {reason}") from error
