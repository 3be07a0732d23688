"""What tasks share that they should not: a picture or a patient on both sides of a cut, or one question with two right
answers.
"""

import logging
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from ...errors import BadRow, ConfigError
from ...utils.values import fold_text, identify, normalize, normalize_label, read_number, to_text
from .columns import ColumnMap, ExpressionError, compile_path
from .fields import TaskField
from .images import IMAGE_FIELDS, get_location, list_images
from .rows import Row, Rows

MAX_EMBEDDED = 2500  # rows whose pictures are compared if they are in the rows themselves
MAX_CONTRADICTING = 0.1  # share of tasks whose labels or boxes contradict an earlier one
_PERSON = re.compile(
    r"(patient|subject|participant|person|study|case|mrn|pid)([ _-]?((instance)?u?id|no|nr|number|name|key))?"
)
_COUNTED = ("kind", "category")  # fields that say how an answer is counted
log = logging.getLogger("viewbox.envs")


@dataclass
class Shared:
    """What rows on two sides of a cut should not share: the column that tells it, in words, and its keys by side."""

    column: str
    what: str
    used: set[str]
    read: Callable[[Row], list[int]]
    trained: set[int] = field(default_factory=set)
    measured: list[list[int]] = field(default_factory=list)  # of each row that is held out


def list_shared(rows: Rows, columns: ColumnMap) -> Iterator[Shared]:
    """Yield the patients and pictures that rows have."""
    for name in filter(lambda name: _PERSON.fullmatch(name.lower()), rows.columns):
        yield Shared(name, f"have a {name}", {name}, partial(_list_persons, name))
    used = columns.get_used(IMAGE_FIELDS)
    if used and can_compare(rows, columns):
        column = next((columns.plain[name] for name in IMAGE_FIELDS if name in columns.plain), min(used))
        yield Shared(column, "show a picture", used, partial(list_pictures, columns))


def _list_persons(name: str, row: Row) -> list[int]:
    return [hash(key)] if (key := _fold(compile_path(name)(row))) else []


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


def check_contradictions(
    rows: Rows, columns: ColumnMap, fields: Mapping[str, TaskField], numbers: Collection[int]
) -> None:
    """Warn of tasks that ask the same of the same pictures, and have other right answers. Raise `ConfigError` if more
    than a few have labels or boxes, as of a table with a row for each."""
    if not can_compare(rows, columns):
        return
    parts = [
        [name for name, field in fields.items() if field.place == place and name not in _COUNTED]
        for place in ("prompt", "reference")
    ]
    pairs, parted = list[tuple[int, int]](), 0
    chosen, seen = set(numbers), dict[int, tuple[int, list[object]]]()
    last = max(chosen, default=-1)
    for number, row in enumerate(rows.scan(sorted(columns.get_used([*IMAGE_FIELDS, *fields])))):
        if number > last:
            break
        if number not in chosen or isinstance(row, BadRow) or not (pictures := list_pictures(columns, row)):
            continue
        with suppress(ExpressionError):
            prompt, gold = ([columns.read(name, row) for name in names] for names in parts)
            first, known = seen.setdefault(hash((*pictures, *map(_fold, prompt))), (number, gold))
            if first != number and [*map(_normalize, known)] != [*map(_normalize, gold)]:
                pairs.append((first, number))
                parted += all(map(_is_part, (*known, *gold)))
    if not pairs:
        return
    text = (
        f"{rows.name}: {len({one for pair in pairs for one in pair})} of {len(chosen)} tasks ask the same of the same "
        f"picture as another, and have other right answers, such as {' and '.join(map(rows.locate, pairs[0]))}; "
        "data.group: COLUMN makes rows with one value in it one task: that of the picture joins their boxes and lists, "
        "and that of the ids keeps them apart"
    )
    if parted > MAX_CONTRADICTING * len(chosen):
        raise ConfigError(f"data: {text}", key="data.group")
    log.warning("%s", text)
