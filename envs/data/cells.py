"""Rows of a CSV or TSV file. Its cells are text; each becomes a number, a boolean or null when its row is read."""

import csv
import json
import re
from collections.abc import Collection
from itertools import islice
from pathlib import Path
from typing import Any

from ...errors import BadRow, ConfigError
from ...utils.values import is_canonical
from .rows import MAX_LINE, Row, Rows, write_line
from .settings import CellForm

SETTING = "data.cells.decimal"
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
_SAID = re.compile(r"\"?sep=([,;\t])\"?[,;]*\s*", re.IGNORECASE)  # the first line of some spreadsheets
_DECIMAL = re.compile(r"(-?\d+)([.,])(\d+)", re.ASCII)
_GROUP = re.compile(r"-?[1-9]\d{0,2}", re.ASCII)  # before three digits: thousands, perhaps
_COMMA_NUMBER = re.compile(r"-?(\d+,\d+|\d{1,3}(\.\d{3})+(,\d+)?)", re.ASCII)


class CellRow(dict[str, Any]):
    """The values of cells by column, and how they are written."""

    written: dict[str, str]


class TextTable(Rows):
    """A CSV or TSV file with a header, in memory as text. Spaces around a cell are no part of it.

    Blank rows are no data, nor are columns that have neither a name nor a value, nor row numbers without a name.
    """

    def __init__(self, path: Path, form: CellForm) -> None:
        self.name, self.folder, self._path = path.name, path.parent, path
        self._rows, self._lines, self._blank = list[Any](), list[int](), 0
        csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE))  # a cell of 128 KiB would end the file
        try:
            header = self._read_file()
        except (UnicodeError, csv.Error) as error:
            raise self._refuse(f"cannot be read as CSV in UTF-8: {_explain(path, error)}") from error
        self._places = {name: place for place, name in enumerate(header) if name}
        self.columns = tuple(self._places)
        twice = [name for name in self.columns if header.count(name) > 1]
        if not self.columns or twice:
            problem = f"its header is empty or has two columns of one name{f' ({twice[0]!r:.80})' if twice else ''}"
            raise self._refuse(f"{problem}; allowed: a first line that names every column once")
        nameless = self._check_nameless(header)
        self._decimal = form.decimal or self._find_decimal()
        self._texts = {"": None, "true": True, "false": False}
        for texts, value in ((form.true, True), (form.false, False), (form.null, None)):
            self._texts |= {text.strip().casefold(): value for text in texts}
        self._longest = max(map(len, self._texts))
        how = f"{SEPARATORS[self._separator]} separate the cells, decimal {self._decimal!r} ({SETTING} sets it)"
        blank = [f"{self._blank} blank rows are left out"] if self._blank else []
        self.notes = (how, *blank, *nameless)

    def __len__(self) -> int:
        return len(self._rows)

    def locate(self, number: int) -> str:
        return f"line {self._lines[number]}"

    def read(self, number: int, columns: Collection[str]) -> Row:
        cells = self._rows[number]
        if isinstance(cells, BadRow):
            raise cells
        written = {name: cells[self._places[name]].strip() for name in columns}
        row = CellRow((name, self._read_cell(text)) for name, text in written.items())
        row.written = written
        return row

    def read_line(self, number: int) -> bytes:
        """Return a row as a line of JSON."""
        return write_line(self.read(number, self.columns))

    def _read_cell(self, text: str) -> Any:
        """Return a number if the cell would be written so again, a boolean or null if it is a text for one."""
        if len(text) <= self._longest and (word := text.casefold()) in self._texts:
            return self._texts[word]
        if self._decimal == ",":
            if _COMMA_NUMBER.fullmatch(text):
                text = text.replace(".", "").replace(",", ".")
            elif "." in text:
                return text
        return json.loads(text) if is_canonical(text) else text

    # ------------------------------------------------------------------ the file
    def _read_file(self) -> list[str]:
        """Read the cells and the line of every row that is not blank; return the header."""
        with self._path.open(encoding="utf-8-sig", newline="") as file:
            first, before = file.readline(MAX_LINE), 0
            if said := _SAID.fullmatch(first):
                before, self._separator = 1, said[1]
            else:
                is_tsv = self._path.suffix.lower() == ".tsv"
                self._separator = "\t" if is_tsv else max(SEPARATORS, key=first.count)
                file.seek(0)
            reader = csv.reader(file, delimiter=self._separator)
            header = [name.strip() for name in next(filter(any, reader), [])]
            start = end = reader.line_num
            width = len(header)
            for cells in reader:
                start, end = end + 1, reader.line_num
                if len(cells) != width or not cells[0].strip():
                    if not "".join(cells).strip():
                        self._blank += 1
                        continue
                    cells = self._fit(cells, header, (before + start, before + end))
                self._rows.append(cells)
                self._lines.append(before + start)
        if end > start:
            self._check_closed(before + start)
        return header

    def _fit(self, cells: list[str], header: list[str], lines: tuple[int, int]) -> list[str] | BadRow:
        """Return as many cells as the header has: empty ones may lack, or be too many, where nothing has a name."""
        width, named = len(header), max((place for place, name in enumerate(header, 1) if name), default=0)
        if len(cells) >= named and not "".join(cells[width:]).strip():
            return cells[:width] + [""] * (width - len(cells))
        place = f"line {lines[0]}" if lines[0] == lines[1] else f"lines {lines[0]} to {lines[1]}"
        return BadRow(self.name, place, "(the line)", cells, f"{named} cells, as the header has")

    def _check_closed(self, line: int) -> None:
        """Raise `ConfigError` if the last row, which begins in this line, ends inside a quote."""
        with self._path.open(encoding="utf-8-sig", newline="") as file:
            try:
                list(csv.reader(islice(file, line - 1, None), delimiter=self._separator, strict=True))
            except csv.Error as error:
                if "unexpected end" in str(error):
                    raise self._refuse(f"a quote that opens in line {line} or below is never closed") from error

    def _check_nameless(self, header: list[str]) -> list[str]:
        """Return what is left out because it has no name. Raise `ConfigError` if it is more than row numbers."""
        left_out, empty = [], 0
        for place in (place for place, name in enumerate(header) if not name):
            pairs = zip(self._rows, self._lines, strict=True)
            cells = [(cells[place].strip(), line) for cells, line in pairs if isinstance(cells, list)]
            filled = [(cell, line) for cell, line in cells if cell]
            if not filled:
                empty += 1
            elif place == 0 and len({cell for cell, _ in cells if cell.isdecimal()}) == len(cells):
                left_out.append("the first column is left out: row numbers without a name")
            else:
                cell, line = filled[0]
                problem = f"line {line} holds {cell!r:.80} in column {place + 1}, which has no name"
                raise self._refuse(f"{problem}; allowed: a name for it in the header")
        return [*left_out, *([f"{empty} columns are left out: they have no name and no value"] if empty else [])]

    def _find_decimal(self) -> str:
        """Return the sign of decimals: a comma where semicolons separate the cells, unless cells are like 1.5.

        Raise `ConfigError` if the cells do not tell: 1.234 and 1,234 may be thousands.
        """
        if self._separator != ";":
            return "."
        found: dict[str, tuple[bool, str]] = {}
        for cell in (cell for cells in self._rows if isinstance(cells, list) for cell in cells):
            if number := _DECIMAL.fullmatch(cell.strip()) if "," in cell or "." in cell else None:
                is_sure = len(number[3]) != 3 or not _GROUP.fullmatch(number[1])
                found[number[2]] = max(found.get(number[2], (False, "")), (is_sure, cell.strip()))
        is_comma, is_point = (found[sign][0] if sign in found else None for sign in ",.")
        if is_point and not is_comma:
            return "."
        if is_point is None and (is_comma or is_comma is None):
            return ","
        given = " and ".join(repr(cell) for _, cell in found.values())
        raise self._refuse(f"cells such as {given}, and a comma may be decimal or not; allowed: {SETTING}: ',' or '.'")

    def _refuse(self, problem: str) -> ConfigError:
        return ConfigError(f"data.source: {self.name}: {problem}", key="data.source")


def _explain(path: Path, error: Exception) -> str:
    """Say where a file is not UTF-8, and what to do."""
    content = path.read_bytes()
    try:
        content.decode()
    except UnicodeDecodeError as found:
        line = content.count(b"\n", 0, found.start) + 1
        way_out = "save it as 'CSV UTF-8', or `iconv -f WINDOWS-1252 -t UTF-8`"
        return f"line {line} holds the byte 0x{content[found.start]:02x}; allowed: {way_out}"
    return f"{error!s:.200}"
