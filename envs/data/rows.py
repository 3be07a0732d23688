"""Rows of a file, read by number: JSONL and JSON. Of JSONL only the places of its lines are in memory."""

import json
import os
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ...errors import BadRow, ConfigError

Row = Mapping[str, Any]
FIRST = 1000  # rows whose keys are the columns of a file that has no header, unless others are asked for
MAX_LINE = 2**26  # bytes of a line


class Rows(ABC):
    """A dataset as its tasks need it.
    name: in messages.
    columns: the names of its columns; of JSONL, those of the first rows.
    folder: where image paths start; None: there is none.
    starts: the first row of each group of rows that is read at once, and the number of all rows; empty: any row is
        found at once.
    notes: how the source was read, and what in it is no data."""

    name: str
    columns: tuple[str, ...]
    folder: Path | None
    starts: Sequence[int] = ()
    notes: tuple[str, ...] = ()

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

    def locate(self, number: int) -> str:
        """Return the place of a row in messages, such as "line 7"."""
        return f"row {number}"

    def list_columns(self) -> tuple[str, ...]:
        """Return the names of all columns, also of those that begin late."""
        return self.columns

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
        self.columns, self._knows_all = _list_keys(islice(self.scan(()), FIRST)), len(self) <= FIRST
        first = next(iter(self.scan(())), None)
        if isinstance(first, BadRow) and not self.columns:
            raise ConfigError(f"data.source: {first}; a list of objects stands in a .json file", key="data.source")

    def __len__(self) -> int:
        return len(self._lines)

    def locate(self, number: int) -> str:
        return f"line {int(self._lines[number])}"

    def list_columns(self) -> tuple[str, ...]:
        if not self._knows_all:
            self.columns, self._knows_all = _list_keys(self.scan(())), True
        return self.columns

    def read(self, number: int, columns: Collection[str]) -> Row:
        line = self.read_line(number)
        if len(line) > MAX_LINE:
            raise BadRow(self.name, self.locate(number), "(the line)", None, f"at most {MAX_LINE:,} bytes")
        try:
            row = parse_json(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            beginning = line[:100].decode(errors="replace").strip()
            raise BadRow(self.name, self.locate(number), "(the line)", beginning, "one JSON object")
        return row

    def read_line(self, number: int) -> bytes:
        start, stop = int(self._starts[number]), int(self._starts[number + 1])
        return os.pread(self._file.fileno(), min(stop - start, 2 * MAX_LINE), start).partition(b"\n")[0] + b"\n"


_decode = msgspec.json.Decoder().decode  # twice as fast as `json`, and stricter


def parse_json(text: bytes) -> Any:
    """Return the value of a JSON text, in which NaN is null. Raise `ValueError`."""
    try:
        return _decode(text)
    except (ValueError, RecursionError):
        return json.loads(text, parse_constant=lambda name: None if name == "NaN" else float(name))


def _list_keys(rows: Iterable[object]) -> tuple[str, ...]:
    keys = dict.fromkeys(tuple(row) for row in rows if isinstance(row, dict))  # most rows have the same
    return tuple(dict.fromkeys(name for names in keys for name in names))


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
    """Rows in memory: a JSON file with a list of objects."""

    def __init__(self, path: Path) -> None:
        self.name, self.folder = path.name, path.parent
        try:
            rows = parse_json(path.read_bytes())
            problem = "" if isinstance(rows, list) else f"holds a {type(rows).__name__}"
        except (ValueError, RecursionError) as error:
            problem = f"not JSON: {error!s:.200}"
        if problem:
            allowed = "a list of objects, or one object a line in a .jsonl file"
            raise ConfigError(f"data.source: {path.name}: {problem}; allowed: {allowed}", key="data.source")
        self._rows, self.columns = rows, _list_keys(rows)

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, number: int, columns: Collection[str]) -> Row:
        row: object = self._rows[number]
        if not isinstance(row, dict):
            raise BadRow(self.name, self.locate(number), "(the row)", row, "an object")
        return row


class JoinedRows(Rows):
    """The rows of several files of text, one file after the other."""

    def __init__(self, name: str, parts: Sequence[Rows]) -> None:
        self.name, self.folder, self._parts = name, parts[0].folder, parts
        self.columns = tuple(dict.fromkeys(column for part in parts for column in part.columns))
        self.notes = tuple(f"{part.name}: {note}" for part in parts for note in part.notes)
        self._ends = list(accumulate(map(len, parts)))

    def __len__(self) -> int:
        return self._ends[-1]

    def _find(self, number: int) -> tuple[Rows, int]:
        place = bisect_right(self._ends, number)
        return self._parts[place], number - (self._ends[place] - len(self._parts[place]))

    def locate(self, number: int) -> str:
        part, inside = self._find(number)
        return f"{part.name}, {part.locate(inside)}"

    def list_columns(self) -> tuple[str, ...]:
        self.columns = tuple(dict.fromkeys(column for part in self._parts for column in part.list_columns()))
        return self.columns

    def read(self, number: int, columns: Collection[str]) -> Row:
        part, inside = self._find(number)
        return part.read(inside, columns)

    def scan(self, columns: Collection[str]) -> Iterator[Row | BadRow]:
        for part in self._parts:
            yield from part.scan(columns)
