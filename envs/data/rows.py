"""Rows of a file, read by number: JSONL, JSON, CSV. Of JSONL only the places of its lines are in memory."""

import csv
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import BadRow, ConfigError

Row = Mapping[str, Any]
FIRST = 1000  # rows whose keys are the columns of a file that has no header
MAX_LINE = 2**26  # bytes of a line


class Rows(ABC):
    """A dataset as its tasks need it.

    name: in messages.
    columns: the names of its columns.
    folder: where image paths start; None: there is none.
    starts: the first row of each group of rows that is read at once, and the number of all rows; empty: any row is
        found at once.
    """

    name: str
    columns: tuple[str, ...]
    folder: Path | None
    starts: Sequence[int] = ()

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def read(self, number: int, columns: Collection[str]) -> Row:
        """Return these columns of a row, images undecoded. Raise `BadRow` if the row cannot be read."""

    def scan(self, columns: Collection[str]) -> Iterator[Row | BadRow]:
        """Yield these columns of every row in order; an error stands for a row that cannot be read."""
        for number in range(len(self)):
            try:
                yield self.read(number, columns)
            except BadRow as error:
                yield error

    def locate(self, number: int) -> int | str:
        """Return the place of a row in messages: its number, or text such as "line 7"."""
        return number

    def is_unique(self, column: str) -> bool:
        """Return whether it is known, without reading row by row, that no value of a column comes twice or is null."""
        return False

    def holds_paths(self, columns: Collection[str]) -> bool:
        """Return whether images in these columns are paths, so that it costs little to see if the files are there."""
        return True


class JsonLines(Rows):
    """A JSONL file. Only the places of its lines are in memory: 16 bytes a row."""

    def __init__(self, path: Path) -> None:
        self.name, self.folder, self._file = path.name, path.parent, path.open("rb")
        self._starts, self._lines = _index_lines(path)
        self.columns = _list_columns(self.scan(()))

    def __len__(self) -> int:
        return len(self._lines)

    def locate(self, number: int) -> str:
        return f"line {int(self._lines[number])}"

    def read(self, number: int, columns: Collection[str]) -> Row:
        line = self.read_line(number)
        if len(line) > MAX_LINE:
            raise BadRow(self.name, self.locate(number), "(the line)", None, f"at most {MAX_LINE:,} bytes")
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            given = line[:100].decode(errors="replace").strip()
            raise BadRow(self.name, self.locate(number), "(the line)", given, "one JSON object")
        return row

    def read_line(self, number: int) -> bytes:
        """Return the line of a row as it is in the file."""
        start, stop = int(self._starts[number]), int(self._starts[number + 1])
        return os.pread(self._file.fileno(), min(stop - start, 2 * MAX_LINE), start).partition(b"\n")[0] + b"\n"


def _list_columns(rows: Iterable[Row | BadRow]) -> tuple[str, ...]:
    """Return the keys of the first rows."""
    return tuple(dict.fromkeys(name for row in islice(rows, FIRST) if isinstance(row, Mapping) for name in row))


def _index_lines(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return where each line that is not blank begins, with the end of the file; and the lines' numbers from 1."""
    starts, numbers, place = [], [], 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.isspace():
                starts.append(place)
                numbers.append(number)
            place += len(line)
    return np.array([*starts, place], np.int64), np.array(numbers, np.int64)


class ListedRows(Rows):
    """Rows in memory: a JSON file with a list of objects, or a table of text."""

    def __init__(self, path: Path, rows: list[Any], columns: Iterable[str] = ()) -> None:
        self.name, self.folder, self._rows = path.name, path.parent, rows
        self.columns = tuple(columns) or _list_columns(rows)

    def read_line(self, number: int) -> bytes:
        """Return a row as a line of JSON."""
        return json.dumps(self._rows[number], ensure_ascii=False).encode(errors="surrogatepass") + b"\n"

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, number: int, columns: Collection[str]) -> Row:
        row = self._rows[number]
        if isinstance(row, BadRow):
            raise row
        if not isinstance(row, dict):
            raise BadRow(self.name, number, "(the row)", row, "an object")
        return row


def read_json(path: Path) -> ListedRows:
    """Read a JSON file that holds a list of objects."""
    try:
        rows = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"data.source: {path.name}: not JSON: {error!s:.200}", key="data.source") from error
    if not isinstance(rows, list):
        given = type(rows).__name__
        allowed = "a list of objects, or one object a line in a .jsonl file"
        raise ConfigError(f"data.source: {path.name}: holds a {given}; allowed: {allowed}", key="data.source")
    return ListedRows(path, rows)


_NUMBER = re.compile(r"-?(0|[1-9]\d{0,14})(\.\d+)?([eE][-+]?\d{1,3})?")


def read_csv(path: Path) -> ListedRows:
    """Read a CSV or TSV file with a header. A column of numbers holds numbers; "007" is text; an empty cell is null.

    Where the header holds more semicolons than commas, as many spreadsheets write it, they separate the cells.
    """
    rows: list[Any] = []
    csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE))  # a cell of 128 KiB would end the file
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            delimiter = "\t" if path.suffix.lower() == ".tsv" else max(",;", key=file.readline(MAX_LINE).count)
            file.seek(0)
            reader = csv.reader(file, delimiter=delimiter)
            header = next(reader, [])
            for cells in filter(None, reader):
                if len(cells) == len(header):
                    rows.append(dict(zip(header, (cell or None for cell in cells), strict=True)))
                else:
                    expected = f"{len(header)} cells, as the header has"
                    rows.append(BadRow(path.name, f"line {reader.line_num}", "(the line)", cells, expected))
    except (UnicodeDecodeError, csv.Error) as error:
        problem = f"data.source: {path.name}: cannot be read as CSV in UTF-8: {error!s:.200}"
        raise ConfigError(problem, key="data.source") from error
    if not header or len(set(header)) < len(header):
        problem = f"data.source: {path.name}: its header is empty or has two columns of one name"
        raise ConfigError(f"{problem}; allowed: a first line that names every column once", key="data.source")
    good = [row for row in rows if isinstance(row, dict)]
    for name in header:
        if all(row[name] is None or _NUMBER.fullmatch(row[name]) for row in good):
            for row in good:
                row[name] = None if row[name] is None else json.loads(row[name])
    return ListedRows(path, rows, header)


READERS: Mapping[str, Callable[[Path], Rows]] = {
    ".jsonl": JsonLines,
    ".ndjson": JsonLines,
    ".json": read_json,
    ".csv": read_csv,
    ".tsv": read_csv,
}
