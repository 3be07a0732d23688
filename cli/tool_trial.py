"""`viewbox tools try`: applies the tool calls of a command line to one image.

    viewbox tools try scan.dcm window_level preset=ct_bone zoom factor=2 center=0.5,0.3

A word without `=` names a tool; the words with `=` after it are its arguments. A value is YAML, numbers separated by
commas, or text. If there is no call, the picture is the image as a model first sees it.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from PIL import Image

from ..configs.yaml_reader import parse_key_value
from ..errors import ConfigError, ImageError, describe_unknown
from ..images.coordinates import Coordinates
from ..images.view import View
from ..records import ToolResult
from ..tools.apply import apply_tools, open_view
from ..tools.calling import MAX_PIXELS
from ..tools.tool import TOOLS

Call = tuple[str, dict[str, Any]]


def parse_calls(arguments: Iterable[str]) -> list[Call]:
    """The calls of a command line; raises `ConfigError` for an unknown tool or an argument that has no place.

    >>> parse_calls(["zoom", "factor=2", "crop", "box=0.1,0.1,0.5,0.5"])
    [('zoom', {'factor': 2}), ('crop', {'box': [0.1, 0.1, 0.5, 0.5]})]
    """
    calls: list[Call] = []
    for argument in arguments:
        if "=" not in argument:
            if argument not in TOOLS:
                raise ConfigError(f"{describe_unknown('tool', argument, TOOLS)}; write an argument as name=value")
            if not TOOLS[argument].stateful:
                raise ConfigError(f"{argument} is a stateless tool: it can only be called in an episode")
            calls.append((argument, {}))
        elif not calls:
            raise ConfigError(f"{argument}: an argument before any tool; allowed: TOOL name=value … TOOL name=value …")
        else:
            tool, values = calls[-1]
            name, value = _parse_argument(argument, TOOLS[tool].parameters)
            if name in values:
                raise ConfigError(f"{argument}: {name} is given twice to {tool}")
            values[name] = value
    return calls


def _parse_argument(argument: str, parameters: Mapping[str, Mapping[str, Any]]) -> tuple[str, Any]:
    name, _, text = argument.partition("=")
    if not text or parameters.get(name, {}).get("type") == "string":
        return name, text
    is_bare_list = "," in text and text[0] not in "[{"
    return parse_key_value(f"{name}=[{text}]" if is_bare_list else argument, repr(argument))


def try_calls(
    image: str, arguments: Iterable[str], *, out: str, coordinates: Coordinates = "unit", max_pixels: int = MAX_PIXELS
) -> list[ToolResult]:
    """Applies the calls and writes the last picture to `out`; after an error nothing is written.

    If there is no call, the one result describes the image. Raises `ImageError` if the image cannot be opened or the
    picture cannot be written.
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
    """Writes a picture in the format of its file extension; raises `ImageError` if that fails."""
    try:
        picture.save(path, optimize=True)
    except (OSError, ValueError) as error:  # ValueError: an unknown extension
        known = Path(path).suffix.lower() in Image.registered_extensions()
        reason = str(error) if known else f"{error}; allowed: .png, .jpg, .tif, …"
        raise ImageError(f"{path}: cannot be written: {reason}") from error
