"""What tasks share that they should not: a picture or a patient on both sides of a cut, or one question with two right
answers.
"""

import os
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from ...errors import BadRow
from ...utils.values import fold_text, identify, normalize, normalize_label, read_number, to_text
from .columns import ColumnMap, ExpressionError, compile_path
from .fields import TaskField
from .images import IMAGE_FIELDS, get_location, list_images
from .rows import Row, Rows

MAX_EMBEDDED = 2500  # rows whose pictures are compared if they are in the rows themselves
_PERSON = re.compile(
    r"(patient|subject|participant|person|study|case|mrn|pid)([ _-]?((instance)?u?id|no|nr|number|name|key))?"
)
_COUNTED = ("kind", "category")  # fields that say how an answer is counted


class Shared(NamedTuple):
    """What rows on two sides of a cut should not share: in words, the columns that tell it, and what reads its keys."""

    what: str
    used: set[str]
    read: Callable[[Row], list[int]]


def list_shared(rows: Rows, columns: ColumnMap) -> dict[str, Shared]:
    """Return the patients and pictures of rows, by the column that keeps them together."""
    found = {name: _build_person(name) for name in rows.columns if _PERSON.fullmatch(name.lower())}
    used = columns.get_used(IMAGE_FIELDS)
    if used and can_compare(rows, columns):
        plain = (columns.plain.get(name) for name in IMAGE_FIELDS)
        column = next(filter(None, plain), min(used))
        found[column] = Shared("show a picture", used, partial(list_pictures, columns))
    return found


def _build_person(name: str) -> Shared:
    read = compile_path(name)
    return Shared(f"have a {name}", {name}, lambda row: [hash(key)] if (key := _fold(read(row))) else [])


def can_compare(rows: Rows, columns: ColumnMap) -> bool:
    """Return whether the pictures of all rows can be told apart without reading much."""
    return len(rows) <= MAX_EMBEDDED or rows.holds_paths(columns.get_used(IMAGE_FIELDS))


def list_pictures(columns: ColumnMap, row: Row) -> list[int]:
    """Return a number for each picture of a row: equal for the same path, or the same content in the row."""
    with suppress(ExpressionError):
        values = (image for name in IMAGE_FIELDS for image in list_images(columns.read(name, row)))
        places = (place for value in values if (place := get_location(value)) is not None)
        return [hash(place if isinstance(place, bytes) else os.path.normpath(place)) for place in places]
    return []


def _fold(value: object) -> str:
    return fold_text(identify(value))


def _normalize(value: object) -> object:
    """Return a right answer as rewards compare it; the order of labels and of boxes does not count."""
    if not isinstance(value, list | tuple):
        return normalize(value).text
    items = [_normalize(item) for item in value]
    is_box = bool(items) and all(isinstance(item, int | float) for item in value)
    return items if is_box else sorted(items, key=repr)


def _is_part(value: object) -> bool:
    """Return whether a right answer may be one of several: a label or boxes, and no number, yes or no."""
    return read_number(value) is None and normalize_label(to_text(value)) not in ("yes", "no", "maybe")


class Contradiction(NamedTuple):
    """Two tasks that ask the same of the same pictures, and have other right answers."""

    first: int
    second: int
    is_parted: bool  # labels or boxes, as of a table with a row for each


def find_contradictions(
    rows: Rows, columns: ColumnMap, fields: Mapping[str, TaskField], numbers: Collection[int]
) -> list[Contradiction]:
    """Return each task that contradicts an earlier one, with that one; none if the pictures cannot be compared."""
    if not can_compare(rows, columns):
        return []
    parts = {
        place: [name for name, field in fields.items() if field.place == place and name not in _COUNTED]
        for place in ("prompt", "reference")
    }
    found, chosen, seen = list[Contradiction](), set(numbers), dict[int, tuple[int, list[object]]]()
    last = max(chosen, default=-1)
    for number, row in enumerate(rows.scan(sorted(columns.get_used([*IMAGE_FIELDS, *fields])))):
        if number > last:
            break
        if number not in chosen or isinstance(row, BadRow) or not (pictures := list_pictures(columns, row)):
            continue
        with suppress(ExpressionError):
            prompt, gold = ([columns.read(name, row) for name in names] for names in parts.values())
            first, known = seen.setdefault(hash((*pictures, *map(repr, map(_normalize, prompt)))), (number, gold))
            if [*map(_normalize, known)] != [*map(_normalize, gold)]:
                found.append(Contradiction(first, number, all(map(_is_part, (*known, *gold)))))
    return found
