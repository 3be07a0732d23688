"""Checks every row and picture of a snapshot."""

import datetime
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ....errors import ToolError
from ....utils.terminal import describe_error, make_line
from ...specialists.remote import decode_picture
from . import schema
from .connection import READ_ERRORS, open_snapshot
from .rows import BadRecord, check_picture, read_article, read_figure

MAX_PROBLEMS = 20  # of a part that are told


@dataclass
class Part:
    """A part of a snapshot: how many rows it has, how many are bad, and the first problems."""

    name: str
    rows: int = 0
    bad: int = 0
    problems: list[str] = field(default_factory=list)

    def add_problem(self, text: object) -> None:
        """Count a bad row, or a fault of the part."""
        self.bad += 1
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(make_line(text, 300))


def check_snapshot(path: Path, report: Callable[[int], None] = lambda rows: None) -> list[Part]:
    """Read every row, decode every picture, and compare what the file says about itself.

    `report` is called with the number of rows of a part that are read so far, now and then.
    """

    def check_picture_row(row: Sequence[object] | None) -> None:
        decode_picture(check_picture(row[0] if row else None, schema.MAX_PICTURE), "it")

    with closing(open_snapshot(path)) as connection:
        connection.set_progress_handler(None, 0)  # a whole file takes as many steps as it takes
        pages = _check_pages(connection)
        parts = [
            _check_rows(connection, "articles", "articles", schema.ARTICLE_COLUMNS, read_article, report),
            _check_rows(connection, "figures", "figures", schema.FIGURE_COLUMNS, read_figure, report),
            _check_rows(connection, "pictures", "figures", ("content",), check_picture_row, report),
        ]
        indexes = [_check_index(connection, "article_index", "articles")]
        indexes.append(_check_index(connection, "figure_index", "figures"))
        return [_check_meta(connection, parts[:2]), pages, *parts, *indexes]


def _check_meta(connection: sqlite3.Connection, parts: Sequence[Part]) -> Part:
    part = Part("about")
    with _read_part(part):
        meta = dict(connection.execute("SELECT key, value FROM meta LIMIT 100").fetchall())
        part.rows = len(meta)
        for key in ("note", "license"):
            if not isinstance(meta.get(key), str) or not meta[key].strip():
                part.add_problem(f"{key}: missing; expected: words about the records")
        try:
            datetime.date.fromisoformat(meta.get("recorded", ""))
        except (ValueError, TypeError):
            part.add_problem(f"recorded: {str(meta.get('recorded'))!r:.60}; expected: a date as YYYY-MM-DD")
        for found in parts:
            if meta.get(found.name) != str(found.rows):
                part.add_problem(f"{found.name}: {str(meta.get(found.name))!r:.60}; the file holds {found.rows:,}")
    return part


def _check_pages(connection: sqlite3.Connection) -> Part:
    """SQLite's own check of its pages; the schema is known to be harmless."""
    part = Part("pages")
    with _read_part(part):
        for (line,) in connection.execute(f"PRAGMA quick_check({MAX_PROBLEMS})"):
            if line != "ok":
                part.add_problem(line)
        (part.rows,) = connection.execute("PRAGMA page_count").fetchone()
    return part


def _check_rows(
    connection: sqlite3.Connection,
    table: str,
    ids: str,
    columns: Sequence[str],
    read: Callable[[Any], object],
    report: Callable[[int], None],
) -> Part:
    """Return the rows of a table that the ids of another, or of itself, name."""
    part = Part(table)
    statement = f"SELECT {', '.join(columns)} FROM {table} WHERE id = ?"
    with _read_part(part):
        for (number,) in connection.execute(f"SELECT id FROM {ids} ORDER BY id"):
            part.rows += 1
            try:
                read(connection.execute(statement, (number,)).fetchone())
            except (*READ_ERRORS, BadRecord, ToolError, TypeError) as error:
                part.add_problem(f"id {number}: {describe_error(error, 250)}")
            if table == "pictures" or part.rows % 1000 == 0:
                report(part.rows)
    return part


def _check_index(connection: sqlite3.Connection, index: str, table: str) -> Part:
    """Return whether the index holds the rows of its table, and no others."""
    part = Part(index)
    with _read_part(part):
        (part.rows,) = connection.execute(f"SELECT count(*) FROM {index}_docsize").fetchone()
        for one, other in ((f"{index}_docsize", table), (table, f"{index}_docsize")):
            missing = connection.execute(f"SELECT id FROM {one} EXCEPT SELECT id FROM {other} LIMIT 1").fetchone()
            if missing is not None:
                part.add_problem(f"{one} has id {missing[0]}, which {other} lacks")
    return part


@contextmanager
def _read_part(part: Part) -> Iterator[None]:
    """Turn what SQLite cannot read in the block into a problem of the part."""
    try:
        yield
    except READ_ERRORS as error:
        part.add_problem(f"cannot be read: {describe_error(error, 250)}")
