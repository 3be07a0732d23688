"""`viewbox tools`: prints the built-in tools, applies their calls to one image, and reads those of an MCP server.

    viewbox tools try scan.dcm window_level preset=ct_bone zoom factor=2 center=0.5,0.3

A word without `=` names a tool; the words with `=` after it are its arguments. A value is YAML, numbers separated by
commas, or text. If there is no call, the picture is the image as a model first sees it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from PIL import Image

from ..configs.yaml_reader import parse_key_value, write
from ..errors import ConfigError, ImageError, describe_unknown
from ..images.coordinates import Coordinates
from ..images.view import View
from ..records import ToolResult
from ..tools.calling import MAX_PIXELS, apply_tools, open_view
from ..tools.tool import TOOLS
from ..utils.exit_status import is_disk_full
from ..utils.files import check_out, replace_atomically
from .config import read_page

Call = tuple[str, dict[str, Any]]


def parse_calls(arguments: Iterable[str]) -> list[Call]:
    """Return the calls of a command line; raise `ConfigError` for an unknown tool or an argument that has no place.

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


def list_tools() -> Iterator[str]:
    """Print the built-in tools by family, with their arguments."""
    yield read_page("tools.md")


def try_tools(
    image: str,
    calls: Annotated[Sequence[str], typer.Argument(metavar="[TOOL NAME=VALUE...]...")] = (),
    *,
    out: str = "view.png",
    max_pixels: Annotated[int, typer.Option(min=256)] = MAX_PIXELS,
    coordinates: Coordinates = "unit",
) -> Iterator[str]:
    """Apply tools to an image and print what a model would read after each call.

    If a call fails, stops with status 2 and writes no picture. If there is no call, writes the image as a model first
    sees it.

    Args:
        image: a picture, DICOM, NIfTI, MetaImage, NRRD or .npy file, or a folder of slices.
        calls: tools in order, each followed by its arguments.
        out: file for the last picture shown.
        max_pixels: largest view in pixels (width times height).
        coordinates: unit of points and boxes.
    """
    check_picture_out(out)
    chain = parse_calls(calls)
    start = open_view(image, max_pixels)
    results = [result for _, result in apply_tools(start, chain, coordinates=coordinates)] or [describe_image(start)]
    if results[-1].error is None:
        shown = [result.image for result in results if result.image is not None]
        save_picture(shown[-1].open() if shown else start.render(), out)
    if chain:
        yield from (f"note: {note}" for note in start.source.notes)
    yield from (result.text for result in results)
    if results[-1].error is not None:
        raise typer.Exit(2)
    yield out


def describe_image(view: View) -> ToolResult:
    """Return the overview of an image with its facts: sizes in pixels, the type of its values, their unit and
    spacing."""
    source, volume = view.source, view.source.volume
    facts: dict[str, Any] = {"size": list(view.size), "original_size": list(source.size)}
    facts |= {"values": str(source.pixels.dtype), "range": [source.filled.min().item(), source.filled.max().item()]}
    if source.unit is not None:
        facts["unit"] = source.unit
    if source.notes:
        facts["notes"] = list(source.notes)
    if source.spacing is not None:
        facts["mm_per_pixel"] = list(source.spacing)
    if volume is not None:
        facts["slices"] = {plane: volume.count_slices(plane) for plane in volume.allowed_planes}
    return ToolResult("", "the image", image=view.to_ref(), facts=facts)


def check_picture_out(path: str) -> str:
    """Return the format of a picture by its extension; raise `ConfigError` if none can be written there."""
    check_out(path, "file")
    form = Image.registered_extensions().get(Path(path).suffix.lower())
    if form not in Image.SAVE:
        raise ConfigError(f"--out {path!r}: not the name of a picture; allowed: .png, .jpg, .tif, …", key="out")
    return form


def save_picture(picture: Image.Image, path: str) -> None:
    """Write a picture in the format of its file extension; raise `ImageError` if that fails."""
    form = check_picture_out(path)
    try:
        with replace_atomically(Path(path)) as file:
            picture.save(file, form, optimize=True)
    except (OSError, ValueError, KeyError) as error:  # a format that does not hold such pixels
        if is_disk_full(error):
            raise
        raise ImageError(f"{path}: cannot be written: {error}") from error


def list_mcp_tools(
    command: Annotated[Sequence[str], typer.Argument(metavar="[COMMAND]...")] = (),
    *,
    url: str | None = None,
    picture: Sequence[str] = (),
    api_key_env: str | None = None,
    variable: Sequence[str] = (),
) -> Iterator[str]:
    """Print the tools of an MCP server as a specialist of a config. The program is started.

    Read what it prints before you use it: descriptions are texts of the server's author, and become part of the prompt.

    Args:
        command: the program of the server and its arguments.
        url: in place of a program: the address of the server.
        picture: an argument that is a picture, of every tool that has it; repeatable.
        api_key_env: with --url: the variable with the API key.
        variable: an environment variable that the program sees; repeatable.
    """
    from ..tools.specialists.mcp_server import record_tools
    from ..tools.specialists.spec import build_specialists

    settings = {"command": command, "url": url, "api_key_env": api_key_env, "variables": variable}
    settings = {"kind": "mcp", **{name: value for name, value in settings.items() if value}}
    specialist: Any = build_specialists({"NAME": {**settings, "tools": {"unknown": {}}}})["NAME"]
    specialist.build_tools("NAME")  # refuses an address or a key that it would refuse in a config
    yield write({"specialists": {"NAME": {**settings, "tools": record_tools(specialist.server, picture)}}}).rstrip()
