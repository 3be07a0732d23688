"""Compares a dataset with what its data block expects (`features`): missing and extra columns, types, and labels."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ...errors import BadRow, ConfigError
from .columns import check_column, compile_path
from .rows import Rows
from .settings import DataSettings

MAX_ROWS = 2000  # rows that are compared, the first ones
MAX_SHOWN = 5  # values that a finding names


@dataclass(frozen=True)
class DataReport:
    """How a dataset differs from what is expected.

    Args:
        rows: how many there are.
        compared: how many of them were read.
        columns: the columns there are.
        missing: expected columns that are not there, or that hold nothing in any row.
        extra: columns that are not expected; they do no harm.
        types: sentences about columns that hold values of other types.
        labels: sentences about labels that are not expected.
        absent: sentences about expected labels that do not occur; a part of a dataset may lack some.
    """

    rows: int
    compared: int
    columns: tuple[str, ...]
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    types: tuple[str, ...]
    labels: tuple[str, ...]
    absent: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether every expected column is there with values as expected."""
        return not (self.missing or self.types or self.labels)


def compare_rows(rows: Rows, data: DataSettings) -> DataReport:
    """Compares the first rows of a dataset with the `features` of its data block; without them it reads none."""
    if not data.features:
        return DataReport(len(rows), 0, rows.columns, (), (), (), (), ())
    there = {path: column for path in data.features if (column := _find_column(path, rows)) is not None}
    values: dict[str, list[Any]] = {path: [] for path in there}
    readers = {path: compile_path(path) for path in there}
    compared = 0
    for row in islice(rows.scan(sorted(set(there.values()))), MAX_ROWS):
        compared += 1
        if isinstance(row, BadRow):
            continue
        for path, read in readers.items():
            values[path].extend(_list_values(read(row), flat="*" in path))
    missing = [path for path in data.features if not values.get(path) and compared]
    types: list[str] = []
    labels: list[str] = []
    absent: list[str] = []
    for path, found in values.items():
        expected = data.features[path]
        if isinstance(expected, str):
            types.extend(_compare_types(path, expected, found))
            continue
        occurring = {str(value) for value in found}
        if strange := sorted(occurring - set(expected)):
            labels.append(f"{path}: holds {_shorten(strange)}; expected: {', '.join(expected)}")
        if found and (lacking := [label for label in expected if label not in occurring]):
            absent.append(f"{path}: {_shorten(lacking)}")
    extra = [column for column in rows.columns if column not in set(there.values())]
    return DataReport(
        len(rows),
        compared,
        rows.columns,
        *map(tuple, (missing, extra, types, labels, absent)),
    )


def _find_column(path: str, rows: Rows) -> str | None:
    """The column that a dotted path begins with; None if there is none."""
    try:
        return check_column(path, rows.columns, rows.name, "data.features")
    except ConfigError:
        return None


def _list_values(value: Any, *, flat: bool) -> Iterator[Any]:
    """A value, or the values of a list that a path with `*` leads to; nothing for null."""
    if value is None:
        return
    if flat and isinstance(value, list | tuple):
        for item in value:
            yield from _list_values(item, flat=True)
        return
    yield value


def _compare_types(path: str, expected: str, values: list[Any]) -> Iterator[str]:
    strange = [value for value in values if _name_type(value) != expected]
    if expected == "image":  # a path is one too
        strange = [value for value in strange if not isinstance(value, str)]
    if strange:
        kinds = ", ".join(sorted({_name_type(value) for value in strange}))
        count = f"{len(strange)} of {len(values)} values"
        yield f"{path}: holds {kinds} ({count}, such as {_shorten([strange[0]])}); expected: {expected}"


def _name_type(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, bytes):
        return "image"
    if isinstance(value, Mapping):
        return "image" if value.keys() == {"bytes", "path"} else "mapping"
    return "list" if isinstance(value, list | tuple) else type(value).__name__


def _shorten(values: list[Any]) -> str:
    shown = ", ".join(f"{value!r:.60}" for value in values[:MAX_SHOWN])
    more = f" and {len(values) - MAX_SHOWN} more" if len(values) > MAX_SHOWN else ""
    return f"{shown}{more}"
