"""Declared coordinate conventions: how numbers in a prompt, a tool call or an answer become fractions.

Models differ in what they were trained to write: Qwen3-VL 0–1000, Qwen2.5-VL pixels of its input, others fractions.
An environment declares one convention; nothing guesses, but for "gaze", which is there to compare with GAZE's way of
reading numbers and for nothing else. Inside viewbox every point and box is a fraction of an image,
x to the right and y down, (0, 0) the outer corner of the first pixel and (1, 1) that of the last.
"""

from collections.abc import Sequence
from typing import Literal

from viewbox.errors import ToolError

Coordinates = Literal["unit", "per_mille", "pixel", "gaze"]


def needs_size(coordinates: Coordinates) -> bool:
    """Whether a number means something only beside the size of the image it is about."""
    return coordinates in ("pixel", "gaze")


def limits(coordinates: Coordinates, size: tuple[int, int]) -> tuple[float, float]:
    """The largest x and y that may be written about an image of `size` (width, height) pixels.

    >>> limits("per_mille", (640, 480)), limits("pixel", (640, 480))
    ((1000.0, 1000.0), (640.0, 480.0))
    """
    if coordinates == "unit":
        return 1.0, 1.0
    if coordinates == "per_mille":
        return 1000.0, 1000.0
    return float(size[0]), float(size[1])


def to_unit(values: Sequence[float], coordinates: Coordinates, size: tuple[int, int], what: str) -> tuple[float, ...]:
    """Alternating x and y in the declared convention as fractions; out of range raises `ToolError` in words.

    >>> to_unit([250, 1000], "per_mille", (64, 64), "center")
    (0.25, 1.0)
    >>> to_unit([3, 7], "unit", (64, 64), "center")
    Traceback (most recent call last):
    viewbox.errors.ToolError: center: x = 3 is out of range; allowed: 0 to 1 (fractions of the image)
    """
    if coordinates == "gaze":
        return _guessed(values, size, what)
    top = limits(coordinates, size)
    for i, value in enumerate(values):
        if not 0 <= value <= top[i % 2]:
            allowed = f"0 to {top[i % 2]:g} ({unit_name(coordinates)})"
            raise ToolError(f"{what}: {'xy'[i % 2]} = {value:g} is out of range; allowed: {allowed}")
    return tuple(value / top[i % 2] for i, value in enumerate(values))


def _guessed(values: Sequence[float], size: tuple[int, int], what: str) -> tuple[float, ...]:
    """By the largest of them: up to 1 fractions, below 2 fractions that overshot and are clamped, else pixels.

    >>> _guessed([0.5, 1.0], (64, 64), "p"), _guessed([0.5, 1.2], (64, 64), "p"), _guessed([16, 32], (64, 64), "p")
    ((0.5, 1.0), (0.5, 1.0), (0.25, 0.5))
    """
    largest = max(values)
    if 1 < largest < 2:
        return tuple(min(max(0.0, float(value)), 1.0) for value in values)
    return to_unit(values, "unit" if largest <= 1 else "pixel", size, what)


def from_unit(values: Sequence[float], coordinates: Coordinates, size: tuple[int, int]) -> tuple[float, ...]:
    """Fractions as numbers to write: three decimals for `unit`, whole numbers otherwise.

    >>> from_unit((0.25, 0.5), "pixel", (640, 480)), from_unit((1 / 3, 1.0), "unit", (640, 480))
    ((160, 240), (0.333, 1.0))
    """
    if coordinates in ("unit", "gaze"):
        return tuple(round(float(value), 3) for value in values)
    top = limits(coordinates, size)
    return tuple(round(float(value) * top[i % 2]) for i, value in enumerate(values))


def unit_name(coordinates: Coordinates) -> str:
    """The convention in words, as schemas and errors state it."""
    return {
        "unit": "fractions of the image",
        "per_mille": "thousandths of the image",
        "pixel": "pixels of the image",
        "gaze": "fractions of the image, or its pixels",
    }[coordinates]
