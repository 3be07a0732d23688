"""Rows of a file, read by number: JSONL, JSON, CSV. Opening one builds an index; a row is parsed when it is read."""

import csv
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import BadRow, ConfigError

Row = Mapping[str, Any]
FIRST = 1000  # rows whose keys are the columns of a file that has no header
MAX_LINE = 2**26  # bytes of a line
PART = 2**24  # bytes read at a time


class Rows(ABC):
    """A dataset as its tasks need it.

    name: in messages.
    columns: the names of its columns.
    folder: where image paths start; None: there is none.
    """

    name: str
    columns: tuple[str, ...]
    folder: Path | None

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def read(self, number: int, columns: Collection[str]) -> Row:
        """These columns of a row, images undecoded. Raises `BadRow` if the row cannot be read."""

    def scan(self, columns: Collection[str]) -> Iterator[Row | BadRow]:
        """These columns of every row in order; an error stands for a row that cannot be read."""
        for number in range(len(self)):
            try:
                yield self.read(number, columns)
            except BadRow as error:
                yield error

    def locate(self, number: int) -> int | str:
        """The place of a row in messages: its number, or text such as "line 7"."""
        return number

    def is_unique(self, column: str) -> bool:
        """Whether it is known, without reading row by row, that no value of a column comes twice or is null."""
        return False

    def holds_paths(self, columns: Collection[str]) -> bool:
        """Whether images in these columns are paths, so that it costs little to see if the files are there."""
        return True


class JsonLines(Rows):
    """A JSONL file. Only the places of its lines are in memory: 8 bytes a row."""

    def __init__(self, path: Path) -> None:
        self.name, self.folder, self._path = path.name, path.parent, path
        self._file = path.open("rb")
        self._starts, self._lines = _index_lines(path)
        self.columns = tuple(dict.fromkeys(name for row in self._read_first() for name in row))

    def _read_first(self) -> Iterator[Row]:
        for number in range(min(FIRST, len(self))):
            try:
                yield self.read(number, ())
            except BadRow:
                continue

    def __len__(self) -> int:
        return len(self._starts) - 1

    def locate(self, number: int) -> str:
        return f"line {int(self._lines[number])}"

    def read(self, number: int, columns: Collection[str]) -> Row:
        start, stop = int(self._starts[number]), int(self._starts[number + 1])
        if stop - start > MAX_LINE:
            raise BadRow(self.name, self.locate(number), "(the line)", None, f"at most {MAX_LINE:,} bytes")
        return self._parse(number, os.pread(self._file.fileno(), stop - start, start))

    def read_line(self, number: int) -> bytes:
        """The line of a row as it is in the file."""
        start, stop = int(self._starts[number]), int(self._starts[number + 1])
        return os.pread(self._file.fileno(), stop - start, start).partition(b"\n")[0] + b"\n"

    def _parse(self, number: int, line: bytes) -> Row:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            given = line[:100].decode(errors="replace").strip()
            raise BadRow(self.name, self.locate(number), "(the line)", given, "one JSON object")
        return row


def _index_lines(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """The byte at which each line that is not blank begins, with the end of the file; and the lines' numbers from 1."""
    ends, place = [], 0
    with path.open("rb") as file:
        while part := file.read(PART):
            ends.append(np.flatnonzero(np.frombuffer(part, np.uint8) == 10) + place + 1)
            place += len(part)
    starts = np.concatenate([[0], *ends, [place]]).astype(np.int64)
    lengths = np.diff(starts)
    filled = lengths > 0
    for number in np.flatnonzero(filled & (lengths < 16)):  # a short line may be blank
        with path.open("rb") as file:
            file.seek(int(starts[number]))
            filled[number] = bool(file.read(int(lengths[number])).strip())
    numbers = np.flatnonzero(filled)
    # the row of a line ends where the next row begins: blank lines between them do no harm
    return np.concatenate([starts[numbers], [place]]), (numbers + 1).astype(np.int64)


class ListedRows(Rows):
    """Rows in memory: a JSON file with a list of objects, or a table of text."""

    def __init__(self, name: str, folder: Path | None, rows: list[Any], columns: Iterable[str] | None = None) -> None:
        self.name, self.folder, self._rows = name, folder, rows
        own = (key for row in rows[:FIRST] if isinstance(row, dict) for key in row)
        self.columns = tuple(dict.fromkeys(own if columns is None else columns))

    def read_line(self, number: int) -> bytes:
        """A row as a line of JSON."""
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
    """A JSON file that holds a list of objects."""
    try:
        rows = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"data.source: {path.name}: not JSON: {error!s:.200}", key="data.source") from error
    if not isinstance(rows, list):
        given = type(rows).__name__
        allowed = "a list of objects, or one object a line in a .jsonl file"
        raise ConfigError(f"data.source: {path.name}: holds a {given}; allowed: {allowed}", key="data.source")
    return ListedRows(path.name, path.parent, rows)


_NUMBER = re.compile(r"-?(0|[1-9]\d{0,14})(\.\d+)?([eE][-+]?\d{1,3})?")


def read_csv(path: Path) -> ListedRows:
    """A CSV or TSV file with a header. A column of numbers holds numbers; "007" is text; an empty cell is null.

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
            _check_header(path, header)
            for cells in reader:
                if not cells:
                    continue
                if len(cells) != len(header):
                    expected = f"{len(header)} cells, as the header has"
                    rows.append(BadRow(path.name, f"line {reader.line_num}", "(the line)", cells, expected))
                else:
                    rows.append(dict(zip(header, (cell or None for cell in cells), strict=True)))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(
            f"data.source: {path.name}: cannot be read as CSV in UTF-8: {error!s:.200}", key="data.source"
        ) from error
    good = [row for row in rows if isinstance(row, dict)]
    for name in header:
        if all(row[name] is None or _NUMBER.fullmatch(row[name]) for row in good):
            for row in good:
                row[name] = None if row[name] is None else json.loads(row[name])
    return ListedRows(path.name, path.parent, rows, header)


def _check_header(path: Path, header: list[str]) -> None:
    problem = "is empty" if not header else "has two columns of one name" if len(set(header)) < len(header) else ""
    if problem:
        allowed = "a first line that names every column once"
        raise ConfigError(f"data.source: {path.name}: its header {problem}; allowed: {allowed}", key="data.source")
