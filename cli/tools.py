"""`viewbox tools try`: a chain of calls written on one line of a shell, carried out on one image.

    viewbox tools try scan.dcm window_level preset=ct_bone zoom factor=2 center=0.5,0.3

A word without `=` is a tool, those after it are its arguments; what follows `=` is JSON, numbers with commas between
them, or text.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from PIL import Image

from viewbox.envs.tools.apply import MAX_PIXELS, Applied, chain, view_of
from viewbox.envs.tools.tool import TOOLS
from viewbox.errors import ConfigError, ImageError, describe_unknown
from viewbox.images.coordinates import Coordinates

Call = tuple[str, dict[str, Any]]


def parse(words: Iterable[str]) -> list[Call]:
    """The calls that the words spell; raises `ConfigError` for what is no tool, or an argument without one.

    >>> parse(["zoom", "factor=2", "crop", "box=0.1,0.1,0.5,0.5"])
    [('zoom', {'factor': 2}), ('crop', {'box': [0.1, 0.1, 0.5, 0.5]})]
    """
    calls: list[Call] = []
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            if name not in TOOLS:
                raise ConfigError(f"{describe_unknown('tool', name, TOOLS)}; an argument is written name=value")
            if not TOOLS[name].viewer:
                raise ConfigError(f"{name} does not work on a view: it is called in an episode only")
            calls.append((name, {}))
        elif not calls:
            raise ConfigError(f"{word}: an argument before any tool; allowed: TOOL name=value … TOOL name=value …")
        elif name in calls[-1][1]:
            raise ConfigError(f"{word}: {name} is given twice to {calls[-1][0]}")
        else:
            calls[-1][1][name] = _value(text, TOOLS[calls[-1][0]].parameters.get(name, {}))
    return calls


def _value(text: str, spec: Any) -> Any:
    if spec.get("type") == "string":
        return text
    try:
        return json.loads(f"[{text}]" if "," in text and not text.startswith("[") else text)
    except (ValueError, RecursionError):
        return text  # the tool says what it takes


def run(
    image: str, words: Iterable[str], *, out: str, coordinates: Coordinates = "unit", max_pixels: int = MAX_PIXELS
) -> list[Applied]:
    """Carries the calls out and writes the last picture that was shown to `out`; nothing is written where one failed.

    Raises `ImageError` for an image that cannot be opened or written.
    """
    calls = parse(words)
    start = view_of(image, max_pixels)
    steps = chain(start, calls, coordinates=coordinates)
    if not steps or steps[-1].error is None:
        shown = [step.image for step in steps if step.image is not None]
        save(shown[-1] if shown else start.render(), out)
    return steps


def save(picture: Image.Image, path: str) -> None:
    """Writes a picture in the format of its name; raises `ImageError` where that cannot be done."""
    try:
        picture.save(path, optimize=True)
    except (OSError, ValueError) as error:  # ValueError: Pillow knows no such extension
        known = Path(path).suffix.lower() in Image.registered_extensions()
        reason = str(error) if known else f"{error}; allowed: .png, .jpg, .tif, …"
        raise ImageError(f"{path}: cannot be written: {reason}") from error
