"""What tasks share that they should not: a picture or a patient on both sides of a cut, or one question with two right
answers.
"""

import hashlib
import os
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from ...errors import BadRow
from ...utils.values import fold_text, identify
from .columns import ColumnMap, ExpressionError, compile_path
from .fields import TaskField
from .images import IMAGE_FIELDS, get_location, list_images
from .rows import Row, Rows

MAX_EMBEDDED = 5000  # rows whose pictures are compared if they are in the rows themselves
_PERSON = re.compile(r"(patient|subject|participant|person|study|case|mrn|pid)s?([ _-]?(u?id|no|nr|number|name|key))?")
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
    places = []
    with suppress(ExpressionError):
        values = (image for name in IMAGE_FIELDS for image in list_images(columns.read(name, row)))
        places = [place for value in values if (place := get_location(value)) is not None]
    return [hash(hashlib.sha256(one).digest() if isinstance(one, bytes) else os.path.normpath(one)) for one in places]


def _fold(value: object) -> str:
    return fold_text(identify(value))


def find_contradictions(
    rows: Rows, columns: ColumnMap, fields: Mapping[str, TaskField], numbers: Collection[int]
) -> dict[int, int]:
    """Return the tasks whose pictures and prompt are those of an earlier one with another right answer, each with that
    one; none if the pictures cannot be compared."""
    found: dict[int, int] = {}
    if not can_compare(rows, columns):
        return found
    fields = {name: field for name, field in fields.items() if name not in _COUNTED}
    chosen, seen = set(numbers), dict[int, tuple[int, list[str]]]()
    for number, row in enumerate(rows.scan(sorted(columns.get_used([*IMAGE_FIELDS, *fields])))):
        if number not in chosen or isinstance(row, BadRow):
            continue
        pictures = list_pictures(columns, row)
        with suppress(ExpressionError):
            prompt, gold = (
                [_fold(columns.read(name, row)) for name, field in fields.items() if field.place == place]
                for place in ("prompt", "reference")
            )
            first, known = seen.setdefault(hash((*pictures, *prompt)), (number, gold))
            if pictures and known != gold:
                found[number] = first
    return found
