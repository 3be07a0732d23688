"""JSON as the standard defines it, with limits on what one reply may hold.

The standard library's decoder does the reading. This module also refuses what that decoder accepts against the
standard: NaN, infinities and duplicate keys.
"""

import json
import math
from threading import local
from typing import Any, NamedTuple

from ...errors import show_json
from ...utils.sanitize import map_texts, replace_surrogates

MAX_DEPTH = 64  # objects and lists inside each other
MAX_VALUES = 3_000  # in one object, at any depth: a schema checks so many in about 30 ms
MAX_DIGITS = 308  # of an integer: a float can still hold it


class StrictJson(NamedTuple):
    """The value at a position: `value` is None if there is no JSON; `complaint` says why it cannot be used; it ends, or
    cannot be read further, at `end`."""

    value: Any
    end: int
    complaint: str | None


class _Decoder(local):
    """The decoder of a thread: making one takes as long as reading a short reply. It notes what it lets pass."""

    def __init__(self) -> None:
        self.complaints: list[str] = []
        self.decoder = json.JSONDecoder(
            object_pairs_hook=self._build_object,
            parse_constant=lambda name: self.complaints.append(f"{name} is not a JSON number"),
            parse_int=lambda digits: self._note(*parse_integer(digits)),
            parse_float=lambda digits: self._note(*parse_float(digits)),
        )

    def _build_object(self, pairs: list[tuple[str, Any]]) -> Any:
        try:
            return build_object(pairs)
        except ValueError as error:
            return self._note(dict(pairs), str(error))

    def _note(self, value: object, complaint: str | None) -> object:
        if complaint is not None:
            self.complaints.append(complaint)
        return value


_THREAD = _Decoder()


def decode_json(text: str, begin: int = 0) -> StrictJson:
    """Return the JSON value at `begin` of `text`, where it ends, and what is wrong with it; never raises.

    >>> decode_json('so: {"a": 1} yes', 4)
    StrictJson(value={'a': 1}, end=12, complaint=None)
    >>> decode_json('{"a": NaN}').complaint
    'NaN is not a JSON number'
    """
    _THREAD.complaints.clear()
    try:
        value, end = _THREAD.decoder.raw_decode(text, begin)
    except json.JSONDecodeError as error:
        return StrictJson(None, error.pos, f"{error.msg} at character {error.pos}")
    except RecursionError:
        return StrictJson(None, len(text), f"nested more than {MAX_DEPTH} deep")
    excess = _describe_excess(value) if isinstance(value, dict | list) else None
    complaint = _THREAD.complaints[0] if _THREAD.complaints else excess
    if complaint is None and text.find("\\u", begin, end) >= 0:  # an escape may be half of a surrogate pair
        value = map_texts(value, replace_surrogates)
    return StrictJson(value, end, complaint)


def parse_integer(digits: str) -> tuple[int, str | None]:
    """Return the integer, or 0 and why it cannot be used."""
    if len(digits) <= MAX_DIGITS:
        return int(digits), None
    return 0, f"a number of {len(digits)} digits is too large"


def parse_float(digits: str) -> tuple[float, str | None]:
    """Return the finite number, or 0.0 and why it cannot be used."""
    value = float(digits)
    return (value, None) if math.isfinite(value) else (0.0, f"the number {digits[:32]} is too large")


def build_object(pairs: list[tuple[str, Any]]) -> dict[str, object]:
    """Return a JSON object from its pairs, as an `object_pairs_hook`; raise `ValueError` if a key is given twice.

    >>> json.loads('{"a": 1, "a": 2}', object_pairs_hook=build_object)
    Traceback (most recent call last):
    ValueError: the key "a" is given twice
    """
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(describe_duplicate(twice))
    return value


def describe_duplicate(key: str) -> str:
    """Return the complaint about a key that an object has twice."""
    return f"the key {show_json(key[:64])} is given twice"


def _describe_excess(value: Any) -> str | None:
    """Return what exceeds a limit in `value`: its nesting, or the number of its values."""
    layer, count, depth = [value], 1, 0
    while layer:
        if depth > MAX_DEPTH:
            return f"nested more than {MAX_DEPTH} deep"
        inner = [item for outer in layer for item in (outer.values() if isinstance(outer, dict) else outer)]
        count += len(inner)
        if count > MAX_VALUES:
            return f"holds more than {MAX_VALUES} values"
        layer = [item for item in inner if isinstance(item, dict | list)]
        depth += 1
    return None
