"""What a tool returns (`ToolOutput`), and how it becomes a `ToolResult` that can be stored and shown.

An author's tool may return anything. What a program would choke on later (a NaN in an episode's JSON, a gigabyte of
values, an image without pixels) is corrected or refused here, so that it harms only that call.
"""

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from PIL import Image

from ..errors import ImageError, ToolFault, describe_value
from ..images.coordinates import Coordinates, from_unit
from ..images.ref import ImageRef
from ..images.source import Source
from ..images.view import View
from ..utils.frozen import to_plain
from .arguments import ViewFractions

if TYPE_CHECKING:
    from .tool import Tool

MAX_VALUES: Final = 100_000  # numbers and strings in the facts of one call
MAX_CHARACTERS: Final = 65_536  # of one string
MAX_DEPTH: Final = 8
MAX_BITS: Final = 1024  # of an integer


@dataclass(frozen=True)
class ToolOutput:
    """What a tool returns.

    text: what the tool did or found, in words.
    facts: numbers and strings by name. Points and boxes are `ViewFractions`: of the current view for a stateful tool,
        of the first picture of the call for a stateless one.
    image: a picture to show, never a path. It does not change the view.
    of_view: whether `image` shows what the view shows, pixel for pixel, such as the view with an outline on it.
    beside: if `image` shows several views side by side: each with its box of the image, in fractions.
    tells_facts: whether the model reads the facts behind the text; if not, they are for rewards only.
    view: the new view; only a stateful tool returns one, and it is then shown in place of `image`.
    """

    text: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    image: Image.Image | np.ndarray | Source | View | None = None
    view: View | None = None
    of_view: bool = True
    beside: Sequence[tuple[View, Sequence[float]]] = ()
    tells_facts: bool = True


def read_output(tool: "Tool", returned: object) -> ToolOutput:
    """Return what a tool's function returned, as a `ToolOutput`; raise `ToolFault` for any other type.

    A string becomes the text, a mapping the facts.
    """
    if inspect.iscoroutine(returned):
        returned.close()  # otherwise Python warns that it was never awaited
    if isinstance(returned, str):
        return ToolOutput(returned)
    if isinstance(returned, Mapping):
        return ToolOutput(facts=returned)
    if isinstance(returned, ToolOutput):
        may_change_view = returned.view is None or (tool.stateful and isinstance(returned.view, View))
        if may_change_view and isinstance(returned.text, str) and isinstance(returned.facts, Mapping):
            return returned
    kind = "ToolOutput(text, facts, image, view)" if tool.stateful else "ToolOutput(text, facts, image)"
    raise ToolFault(f"{tool.name} returned {describe_value(returned)}; allowed: a string, a mapping of facts, {kind}")


def to_plain_facts(facts: Mapping[str, object], coordinates: Coordinates, size: tuple[int, int]) -> dict[str, object]:
    """Facts in JSON's own types, with points and boxes (`ViewFractions`) in the environment's coordinates.

    >>> facts = {"p": np.float32(0.5), "worst": float("nan"), "at": [ViewFractions((0.5, 0.25))]}
    >>> to_plain_facts(facts, "pixel", (64, 64))
    {'p': 0.5, 'worst': 'nan', 'at': ((32, 16),)}
    """
    return _FactReader(coordinates, size).read_mapping(facts, 0)


class _FactReader:
    """Turns the facts of one call into JSON's types, up to a number of values and a depth."""

    def __init__(self, coordinates: Coordinates, size: tuple[int, int]) -> None:
        self.coordinates, self.size = coordinates, size
        self.values_left = MAX_VALUES

    def read_mapping(self, facts: Mapping[Any, Any], depth: int) -> dict[str, object]:
        pairs = islice(facts.items(), self.values_left + 1)
        return {to_storable_text(str(key)[:MAX_CHARACTERS]): self.read_value(value, depth + 1) for key, value in pairs}

    def read_value(self, value: object, depth: int) -> object:
        self.values_left -= 1
        if self.values_left < 0 or depth > MAX_DEPTH:
            return "…"
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return to_storable_text(value[:MAX_CHARACTERS])
        if isinstance(value, int):
            return value if value.bit_length() <= MAX_BITS else f"a number of {value.bit_length()} bits"
        if isinstance(value, float):
            return value if math.isfinite(value) else str(value)
        if isinstance(value, ViewFractions):
            return from_unit(value, self.coordinates, self.size)
        return self._read_other(value, depth)

    def _read_other(self, value: Any, depth: int) -> Any:
        if hasattr(value, "tolist") and math.prod(value.shape) > self.values_left:
            return f"array of shape {tuple(value.shape)}"
        if (plain := to_plain(value)) is not value:
            return self.read_value(plain, depth)
        if isinstance(value, Mapping):
            return self.read_mapping(value, depth)
        if isinstance(value, list | tuple):
            return tuple(self.read_value(item, depth + 1) for item in islice(value, self.values_left + 1))
        if isinstance(value, set | frozenset):  # in an order that is the same in every process
            return tuple(
                sorted((self.read_value(item, depth + 1) for item in islice(value, self.values_left + 1)), key=str)
            )
        return to_storable_text(str(value)[:MAX_CHARACTERS])


def to_storable_text(text: str) -> str:
    """Return the text, with a question mark for each half of a surrogate pair, which no file can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def render_image(image: object, name: str, max_pixels: int | None = None, multiple: int = 1) -> ImageRef:
    """Return the image that the tool `name` returned, in mode L or RGB; raise `ToolFault` if it cannot be shown.

    `image` is a Pillow image, an array as `Source` takes it, a `Source` or a `View`. A path is refused: the text of a
    tool must not choose which files are opened. `max_pixels` and `multiple` bound the size as they do for a view.
    """
    try:
        if isinstance(image, View):
            drawn = image.to_ref()
            if drawn.width * drawn.height == 0:
                raise ImageError(f"{drawn.width}x{drawn.height} pixels")
            if max_pixels is None or drawn.width * drawn.height <= max_pixels:
                return drawn
            image = drawn.open()
        if not isinstance(image, Image.Image | np.ndarray | Source):
            raise ImageError(f"{type(image).__name__} is not an image")
        if not isinstance(image, Source) and _is_ready_to_show(image, max_pixels, multiple):
            return ImageRef.of(image)
        source = Source.of(image)
        if max_pixels is None:
            return ImageRef.of(source.render())
        return View.of(source, max_pixels=max_pixels, multiple=multiple).to_ref()
    except ImageError as error:
        raise ToolFault(f"{name} returned an image that cannot be shown ({error})") from error


def _is_ready_to_show(image: "Image.Image | np.ndarray", max_pixels: int | None, multiple: int) -> bool:
    """Return whether an image already has a depth and a size in which it can be shown."""
    if isinstance(image, Image.Image):
        width, height, plain = *image.size, image.mode in ("L", "RGB")
    else:
        plain = image.dtype == np.uint8 and (image.ndim == 2 or (image.ndim == 3 and image.shape[2] == 3))
        height, width = image.shape[:2] if plain else (0, 0)
    fits = max_pixels is None or width * height <= max_pixels
    return plain and width > 0 < height and fits and width % multiple == 0 == height % multiple
