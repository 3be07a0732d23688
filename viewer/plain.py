"""Any value of an episode as plain JSON: finite numbers, text that a file can hold, bounded depth."""

import math
from collections.abc import Mapping
from typing import Any

from ..utils.frozen import PlainRecord
from ..utils.sanitize import replace_surrogates

MAX_DEPTH = 70  # a stored episode is nested 64 deep at most
MAX_DIGITS = 1024  # bits of an integer


def to_plain(value: object, depth: int = 0) -> Any:
    """Return the value in JSON's types: what JSON cannot hold becomes text. Never raises.

    >>> to_plain({"p": float("nan"), 3: (1, 2.5), "when": {4}})
    {'p': 'nan', '3': [1, 2.5], 'when': [4]}
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return replace_surrogates(str(value))
    if isinstance(value, int):
        return int(value) if value.bit_length() <= MAX_DIGITS else f"a number of {value.bit_length()} bits"
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if depth > MAX_DEPTH:
        return "…"
    if isinstance(value, PlainRecord):
        return {name: to_plain(getattr(value, name), depth + 1) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {to_text(key): to_plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item, depth + 1) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((to_plain(item, depth + 1) for item in value), key=str)
    return to_text(value)


def to_text(value: object) -> str:
    """Return the text of an object, which may have none."""
    try:
        return replace_surrogates(str(value))
    except Exception:  # an author's object may raise anything
        return f"(a {type(value).__name__})"
