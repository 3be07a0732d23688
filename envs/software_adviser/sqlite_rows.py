"""Rows of the table `tools` of a SQLite file that a stranger may have made.

The file is opened read-only. Only that table is read, by one statement that holds no text of the file. Views, triggers,
virtual tables, generated columns that call functions, and attached files are refused by SQLite itself.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from viewbox.errors import BadRow, ConfigError

TABLE: Final = "tools"
LISTS: Final = ("tasks", "modalities", "dimensions", "formats", "interfaces", "sources")
MAX_FILE: Final = 2**28  # bytes
MAX_VALUE: Final = 2**20  # bytes of one row
MAX_COLUMNS: Final = 64
MAGIC: Final = b"SQLite format 3\0"


def iterate_sqlite(path: Path, limit: int) -> Iterator[tuple[int | str, Mapping[str, Any] | BadRow]]:
    """(place, row) of the table `tools`, in the order of their numbers; null values are left out.

    Args:
        path: the file.
        limit: rows; one more is read, so that a reader sees that there are more.

    Raises:
        ConfigError: it is not a SQLite file, or it has no ordinary table `tools`.
    """
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise _refuse(path, "this is not a SQLite 3 file")
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as file:
            _restrict(file)
            yield from _iterate_table(file, path, limit)
    except (sqlite3.Error, sqlite3.Warning, UnicodeError) as error:
        raise _refuse(path, f"{error!s:.200}") from error


def _restrict(file: sqlite3.Connection) -> None:
    """Allow nothing but reading ordinary tables, and no row larger than `MAX_VALUE`."""
    file.execute("PRAGMA trusted_schema = OFF")
    file.execute("PRAGMA cell_size_check = ON")
    file.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE)
    file.setlimit(sqlite3.SQLITE_LIMIT_COLUMN, MAX_COLUMNS)
    file.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    file.text_factory = bytes  # text that is not UTF-8 costs its row, not the file
    file.set_authorizer(_authorize)


def _authorize(action: int, first: str | None, second: str | None, database: str | None, inner: str | None) -> int:
    if action == sqlite3.SQLITE_SELECT:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_READ and inner is None and first in (TABLE, "sqlite_master"):
        return sqlite3.SQLITE_OK  # `inner` is the view or trigger that reads
    return sqlite3.SQLITE_DENY


def _iterate_table(
    file: sqlite3.Connection, path: Path, limit: int
) -> Iterator[tuple[int | str, Mapping[str, Any] | BadRow]]:
    found = file.execute("SELECT type, rootpage FROM sqlite_master WHERE name = ?", (TABLE,)).fetchone()
    if found is None or found[0] != b"table" or not found[1]:  # a virtual table has no page of its own
        kind = "missing" if found is None else f"a {'virtual ' * (not found[1])}{found[0].decode(errors='replace')}"
        raise _refuse(path, f"{TABLE!r} is {kind:.40}; allowed: an ordinary table {TABLE!r} with a column for each key")
    numbers = [row[0] for row in file.execute("SELECT _rowid_ FROM tools ORDER BY _rowid_ LIMIT ?", (limit + 1,))]
    for number in numbers:
        place = f"row {number}"
        try:
            cursor = file.execute("SELECT * FROM tools WHERE _rowid_ = ?", (number,))
            values = cursor.fetchone()
            names = [column[0] for column in cursor.description]
        except (sqlite3.DataError, OverflowError) as error:
            yield place, BadRow(path.name, place, "(the row)", f"{error!s:.80}", f"at most {MAX_VALUE:,} bytes")
            continue
        try:
            yield place, dict(_iterate_values(names, values))
        except _BadValue as error:
            yield place, BadRow(path.name, place, error.column, error.given, error.expected)


class _BadValue(Exception):
    def __init__(self, column: str, given: object, expected: str) -> None:
        super().__init__(column)
        self.column, self.given, self.expected = column, given, expected


def _iterate_values(names: list[str], values: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    """(column, value) of the values that are not null; lists are read as JSON."""
    for name, value in zip(names, values, strict=True):
        if value is None:
            continue
        if isinstance(value, bytes):
            try:
                value = value.decode()
            except UnicodeDecodeError:
                raise _BadValue(name[:80], value, "text in UTF-8") from None
        if name in LISTS:
            try:
                value = json.loads(value)
            except (TypeError, ValueError, RecursionError):
                raise _BadValue(name, value, "a list as JSON") from None
        yield name, value


def _refuse(path: Path, reason: str) -> ConfigError:
    return ConfigError(f"catalogue = {str(path)!r:.200}: {reason}", key="catalogue", given=str(path))
