"""JSON as the standard says, with caps on what one reply may hold: the standard library's decoder does the reading.

It also refuses what Python's decoder lets pass: NaN, infinities, a key given twice.
"""

import json
import math
from threading import local
from typing import Any, NamedTuple

MAX_DEPTH = 64  # objects and lists inside each other
MAX_VALUES = 3_000  # in one object, at any depth: what a schema still checks within some 30 ms
MAX_DIGITS = 308  # of an integer: what still fits a float


class Decoded(NamedTuple):
    """What stands at a place: `value` is None where it is not JSON; `complaint` says why it cannot be used."""

    value: Any
    end: int
    complaint: str | None


class StrictDecoder:
    """Reads one JSON value at a position; never raises.

    >>> StrictDecoder().decode('so: {"a": 1} yes', 4)
    Decoded(value={'a': 1}, end=12, complaint=None)
    >>> StrictDecoder().decode('{"a": NaN}', 0).complaint
    'NaN is not a JSON number'
    """

    def __init__(self) -> None:
        self._complaints: list[str] = []
        self._decoder = json.JSONDecoder(
            object_pairs_hook=self._object,
            parse_constant=lambda name: self._complaints.append(f"{name} is not a JSON number"),
            parse_int=self._int,
            parse_float=self._float,
        )

    def decode(self, text: str, begin: int) -> Decoded:
        """The value at `begin`, where it ends, and what is wrong with it."""
        self._complaints.clear()
        try:
            value, end = self._decoder.raw_decode(text, begin)
        except json.JSONDecodeError as error:
            return Decoded(None, begin, f"{error.msg} at character {error.pos}")
        except RecursionError:
            return Decoded(None, begin, f"nested more than {MAX_DEPTH} deep")
        excess = _excess(value) if isinstance(value, dict | list) else None
        return Decoded(value, end, self._complaints[0] if self._complaints else excess)

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) != len(pairs) and not self._complaints:
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            self._complaints.append(given_twice(twice))
        return value

    def _int(self, digits: str) -> int:
        value, complaint = integer(digits)
        if complaint is not None:
            self._complaints.append(complaint)
        return value

    def _float(self, digits: str) -> float:
        value, complaint = real(digits)
        if complaint is not None:
            self._complaints.append(complaint)
        return value


class _Kept(local):
    """Making a decoder takes as long as reading a short reply: each thread keeps one."""

    def __init__(self) -> None:
        self.decoder = StrictDecoder()


_KEPT = _Kept()


def decoder() -> StrictDecoder:
    """This thread's decoder."""
    return _KEPT.decoder


def integer(digits: str) -> tuple[int, str | None]:
    """The integer, or 0 and why it cannot be used."""
    if len(digits) <= MAX_DIGITS:
        return int(digits), None
    return 0, f"a number of {len(digits)} digits is too large"


def real(digits: str) -> tuple[float, str | None]:
    """The finite number, or 0.0 and why it cannot be used."""
    value = float(digits)
    return (value, None) if math.isfinite(value) else (0.0, f"the number {digits[:32]} is too large")


def given_twice(key: str) -> str:
    """The complaint about a key that an object has twice."""
    return f"the key {key[:64]!r} is given twice"


def _excess(value: Any) -> str | None:
    """What is too much about `value`: its nesting, or how many values it holds."""
    layer, held, levels = [value], 1, 0
    while layer:
        if levels > MAX_DEPTH:
            return f"nested more than {MAX_DEPTH} deep"
        inner = [item for outer in layer for item in (outer.values() if isinstance(outer, dict) else outer)]
        held += len(inner)
        if held > MAX_VALUES:
            return f"holds more than {MAX_VALUES} values"
        layer = [item for item in inner if isinstance(item, dict | list)]
        levels += 1
    return None
