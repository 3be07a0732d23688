"""Declared coordinate conventions: how numbers in a prompt, a tool call or an answer become fractions.

Models differ in what they were trained to write: Qwen3-VL 0–1000, Qwen2.5-VL pixels of its input, others fractions.
An environment declares one convention and nothing is guessed. Inside viewbox every point and box is in fractions of an
image, x to the right and y down; (0, 0) is the outer corner of the first pixel and (1, 1) that of the last.
"""

from collections.abc import Sequence
from typing import Literal

from ..errors import ArgumentError, show_json

Coordinates = Literal["unit", "per_mille", "pixel"]


def needs_size(coordinates: Coordinates) -> bool:
    """Return whether a number has a meaning only together with the size of its image."""
    return coordinates == "pixel"


def get_limits(coordinates: Coordinates, size: tuple[int, int]) -> tuple[float, float]:
    """Return the largest x and y that may be written for an image of `size` (width, height) pixels.

    >>> get_limits("per_mille", (640, 480)), get_limits("pixel", (640, 480))
    ((1000.0, 1000.0), (640.0, 480.0))
    """
    side = {"unit": 1.0, "per_mille": 1000.0}.get(coordinates)
    return (float(size[0]), float(size[1])) if side is None else (side, side)


def to_unit(values: Sequence[float], coordinates: Coordinates, size: tuple[int, int], what: str) -> tuple[float, ...]:
    """Convert alternating x and y in the declared convention to fractions of the image.
    `what` names the value in the message of the `ArgumentError` that is raised for numbers out of range.

    >>> to_unit([250, 1000], "per_mille", (64, 64), "center")
    (0.25, 1.0)
    >>> to_unit([3, 7], "unit", (64, 64), "center")
    Traceback (most recent call last):
    viewbox.errors.ArgumentError: center: x = 3 is out of range; allowed: 0 to 1 (fractions of the image)
    """
    top = get_limits(coordinates, size)
    for i, value in enumerate(values):
        if not 0 <= value <= top[i % 2]:
            allowed = f"0 to {top[i % 2]:g} ({describe_unit(coordinates)})"
            raise ArgumentError(f"{what}: {'xy'[i % 2]} = {show_json(value, 24)} is out of range; allowed: {allowed}")
    return tuple(value / top[i % 2] for i, value in enumerate(values))


def refuse_fractions(
    values: Sequence[float], coordinates: Coordinates, size: tuple[int, int], what: str, shown: Sequence[float] = ()
) -> None:
    """Raise `ArgumentError` if x and y are fractions where others are asked; `shown` is the value if it holds more.
    Of boxes within 0 to 1 only the first pixel, [0, 0, 1, 1], can be meant, and of points only its corners."""
    is_meant = all(value in (0, 1) for value in values) and (coordinates == "pixel" or len(values) == 2)
    if coordinates != "unit" and min(values) >= 0 and 0 < max(values) <= 1 and not is_meant:
        width, height = get_limits(coordinates, size)
        allowed = f"{describe_unit(coordinates)} (x: 0 to {width:g}, y: 0 to {height:g})"
        raise ArgumentError(f"{what} = {show_json(shown or values)}: x and y are fractions; write {allowed}")


def from_unit(values: Sequence[float], coordinates: Coordinates, size: tuple[int, int]) -> tuple[float, ...]:
    """Convert fractions to numbers to write: three decimals for `unit`, whole numbers otherwise.

    >>> from_unit((0.25, 0.5), "pixel", (640, 480)), from_unit((1 / 3, 1.0), "unit", (640, 480))
    ((160, 240), (0.333, 1.0))
    """
    if coordinates == "unit":
        return tuple(round(float(value), 3) for value in values)
    top = get_limits(coordinates, size)
    return tuple(round(float(value) * top[i % 2]) for i, value in enumerate(values))


def describe_unit(coordinates: Coordinates) -> str:
    """Return the unit of a convention, as schemas and errors describe it."""
    return {"unit": "fractions", "per_mille": "thousandths", "pixel": "pixels"}[coordinates] + " of the image"
