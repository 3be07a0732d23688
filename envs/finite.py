"""Finds a number that no JSON file can hold, before it is recorded: NaN, an infinity, or more than a float can hold."""

import cmath
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

import numpy as np
from pydantic import BaseModel

_PLAIN = (str, bool, bytes, type(None))
_MAX = 2**1023


def find_non_finite(value: Any) -> str | None:
    """The path of the first number that is not finite, at any depth; None if all are finite.

    A number of more than 308 digits counts as infinite. Also looked into: sets, tuples, dataclasses, models, arrays.

    >>> find_non_finite({"label": "x", "boxes": [{"score": float("nan")}]})
    'boxes.0.score'
    """
    try:
        if _is_plain_and_finite(value):
            return None
    except RecursionError:  # a container may hold itself
        pass
    pending: list[tuple[str, Any]] = [("", value)]
    seen: set[int] = set()
    while pending:
        path, item = pending.pop()
        if isinstance(item, _PLAIN):
            continue
        if isinstance(item, Enum):
            item = item.value
        if not _is_number(item):
            if id(item) not in seen:
                seen.add(id(item))
                pending += [(f"{path}.{key}".removeprefix("."), inner) for key, inner in reversed(_list_parts(item))]
        elif not _is_finite(item):
            return path
    return None


def _is_plain_and_finite(value: Any) -> bool:
    """Whether a value of JSON's own types is finite; most answers are, and this is the fastest way to know."""
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind is float:
        return math.isfinite(value)
    if kind is int:
        return bool(-_MAX < value < _MAX)
    if kind is dict:
        return all(map(_is_plain_and_finite, value.values())) and all(type(key) is str for key in value)
    return kind is list and all(map(_is_plain_and_finite, value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | complex | Decimal | np.generic | np.ndarray)


def _is_finite(value: Any) -> bool:
    try:
        if isinstance(value, int | float):
            return math.isfinite(value)
        if isinstance(value, Decimal):
            return value.is_finite() and math.isfinite(float(value))
        if isinstance(value, complex):
            return cmath.isfinite(value)
        if value.dtype.kind in "fc":
            return bool(np.isfinite(value).all())
        return value.dtype.kind != "O" or find_non_finite(value.tolist()) is None
    except OverflowError:
        return False


def _list_parts(value: Any) -> list[tuple[str, Any]]:
    """What a container holds, by key or place; the keys themselves are looked at, too."""
    if isinstance(value, Mapping):
        parts = [(str(key)[:80], part) for key, item in value.items() for part in (key, item)]
    elif isinstance(value, list | tuple | set | frozenset):
        parts = [(str(place), item) for place, item in enumerate(value)]
    elif isinstance(value, BaseModel):
        parts = [*value]
    elif is_dataclass(value) and not isinstance(value, type):
        parts = [(field.name, getattr(value, field.name, None)) for field in fields(value)]
    else:
        parts = []
    return parts
