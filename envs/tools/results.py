"""What a tool returned, as a record can hold it: facts that JSON can say, text that UTF-8 can, pictures one can show.

An author's tool may return anything. What a program would choke on later (a NaN in an episode's JSON, a gigabyte of
values, a picture of no pixels) is put right here or refused in words, where only that call is harmed.
"""

import math
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

import numpy as np
from PIL import Image

from viewbox.envs.tools.arguments import Stated
from viewbox.errors import ImageError, ToolError
from viewbox.images.coordinates import Coordinates, from_unit
from viewbox.images.ref import ImageRef
from viewbox.images.source import Source
from viewbox.images.view import View
from viewbox.records import ToolResult

MOST_VALUES: Final = 100_000  # numbers and words in the facts of one call
LONGEST: Final = 65_536  # characters of one of them
DEEPEST: Final = 8
LARGEST_BITS: Final = 1024  # of a whole number
GO_ON: Final = "call it otherwise or go on without"  # how an error ends that is not the model's


def stated_facts(facts: Mapping[str, Any], coordinates: Coordinates, size: tuple[int, int]) -> dict[str, Any]:
    """Facts with points and boxes (`Stated`) in the environment's coordinates, and nothing but JSON's own types.

    >>> stated_facts({"p": np.float32(0.5), "worst": float("nan"), "at": [Stated((0.5, 0.25))]}, "pixel", (64, 64))
    {'p': 0.5, 'worst': 'nan', 'at': ((32, 16),)}
    """
    return _Plain(coordinates, size).mapping(facts, 0)


class _Plain:
    """One call's facts as JSON can hold them: so many values, so deep, and no more."""

    def __init__(self, coordinates: Coordinates, size: tuple[int, int]) -> None:
        self.coordinates, self.size = coordinates, size
        self.rest = MOST_VALUES

    def mapping(self, facts: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        pairs = islice(facts.items(), self.rest + 1)
        return {storable(str(key)[:LONGEST]): self.value(value, depth + 1) for key, value in pairs}

    def value(self, value: Any, depth: int) -> Any:
        self.rest -= 1
        if self.rest < 0 or depth > DEEPEST:
            return "…"
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return storable(value[:LONGEST])
        if isinstance(value, int):
            return value if value.bit_length() <= LARGEST_BITS else f"a number of {value.bit_length()} bits"
        if isinstance(value, float):
            return value if math.isfinite(value) else str(value)
        if isinstance(value, Stated):
            return from_unit(value, self.coordinates, self.size)
        return self._other(value, depth)

    def _other(self, value: Any, depth: int) -> Any:
        if isinstance(value, np.ndarray):
            return f"array of shape {value.shape}" if value.size > self.rest else self.value(value.tolist(), depth)
        if isinstance(value, np.generic):
            return self.value(value.item(), depth + 1)
        if isinstance(value, Mapping):
            return self.mapping(value, depth)
        if isinstance(value, list | tuple):
            return tuple(self.value(item, depth + 1) for item in islice(value, self.rest + 1))
        if isinstance(value, set | frozenset):  # in an order that is the same in every process
            return tuple(sorted((self.value(item, depth + 1) for item in islice(value, self.rest + 1)), key=str))
        return storable(str(value)[:LONGEST])


def storable(text: str) -> str:
    """The text, with a question mark for every half of a surrogate pair: those no file can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def shown_picture(image: Any, name: str, max_pixels: int | None = None, multiple: int = 1) -> ImageRef:
    """The picture a tool gave, mode L or RGB, at most `max_pixels` large; raises `ToolError` where it cannot be shown.

    Allowed are a Pillow image, an array as `Source` takes it, a `Source`, a `View`. A path is not: a tool's words do
    not choose the files that are opened.
    """
    try:
        if isinstance(image, View):
            drawn = image.picture()
            if drawn.width * drawn.height == 0:
                raise ImageError(f"{drawn.width}x{drawn.height} pixels")
            if max_pixels is None or drawn.width * drawn.height <= max_pixels:
                return drawn
            image = drawn.open()
        if not isinstance(image, Image.Image | np.ndarray | Source):
            raise ImageError(f"{type(image).__name__} is no image")
        if not isinstance(image, Source) and _as_it_is(image, max_pixels, multiple):
            return ImageRef.of(image)
        source = Source.of(image)
        if max_pixels is None:
            return ImageRef.of(source.to_uint8(source.pixels))
        return View.of(source, max_pixels=max_pixels, multiple=multiple).picture()
    except ImageError as error:
        raise ToolError(f"{name} gave a picture that cannot be shown ({error}); {GO_ON}") from error


def _as_it_is(image: Image.Image | np.ndarray, max_pixels: int | None, multiple: int) -> bool:
    """Whether a picture needs neither another depth nor another size."""
    if isinstance(image, Image.Image):
        width, height, plain = *image.size, image.mode in ("L", "RGB")
    else:
        plain = image.dtype == np.uint8 and (image.ndim == 2 or (image.ndim == 3 and image.shape[2] == 3))
        height, width = image.shape[:2] if plain else (0, 0)
    fits = max_pixels is None or width * height <= max_pixels
    return plain and width > 0 < height and fits and width % multiple == 0 == height % multiple


def too_long(name: str, limit: float | None) -> ToolResult:
    """What the model is told of a call that ran longer than `limit` seconds."""
    return ToolResult(name, error=f"{name} took longer than {limit or 0:g} seconds and was given up; {GO_ON}")
