"""Rows of a CSV or TSV file. Its cells are text; each becomes a number, a boolean or null when its row is read."""

import csv
import json
import re
from array import array
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import BadRow, ConfigError
from ...utils.values import is_canonical
from .rows import MAX_LINE, Row, Rows, write_line
from .settings import CellForm

SETTING = "data.cells.decimal"
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
_SAID = re.compile(r"\"?sep=([,;\t])\"?[,;]*\s*", re.IGNORECASE)  # the first line of some spreadsheets
_BETWEEN = "\x1f"  # cells of a row in memory: a text takes less than a list
_DECIMAL = re.compile(r"(?:^|(?<=\x1f)) *(-?\d+)([.,])(\d+) *(?=\x1f|$)", re.ASCII)
_GROUP = re.compile(r"-?[1-9]\d{0,2}", re.ASCII)  # before three digits: thousands, perhaps
_COMMA_NUMBER = re.compile(r"-?(\d+,\d+|\d{1,3}(\.\d{3})+(,\d+)?)", re.ASCII)


class CellRow(dict[str, Any]):
    """The values of cells by column; `written` holds them as they are written."""

    cells: Sequence[str]
    places: Mapping[str, int]

    @property
    def written(self) -> dict[str, str]:
        return {name: self.cells[self.places[name]].strip() for name in self}


class TextTable(Rows):
    """A CSV or TSV file with a header, in memory as text. Spaces around a cell are no part of it.

    Blank rows are no data, nor are columns that have neither a name nor a value, nor row numbers without a name.
    """

    def __init__(self, path: Path, form: CellForm) -> None:
        self.name, self.folder, self._path = path.name, path.parent, path
        self._rows, self._lines, self._blank = list[str | BadRow](), array("q"), 0
        csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE))  # a cell of 128 KiB would end the file
        header = self._read_file()
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
        text, places, row = self._rows[number], self._places, CellRow()
        if isinstance(text, BadRow):
            raise text
        row.cells, row.places = text.split(_BETWEEN), places
        if len(row.cells) != self._width:
            raise BadRow(self.name, self.locate(number), "(the line)", text, "cells without the sign \\x1f")
        for name in columns:
            row[name] = self._read_cell(row.cells[places[name]].strip())
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
        """Read the cells and the line of every row that is not blank; return the header. Raise `ConfigError`."""
        reader, before = None, 0
        try:
            with self._path.open(encoding="utf-8-sig", newline="") as file:
                first = file.readline(MAX_LINE)
                if said := _SAID.fullmatch(first):
                    before, self._separator = 1, said[1]
                else:
                    is_tsv = self._path.suffix.lower() == ".tsv"
                    self._separator = "\t" if is_tsv else max(SEPARATORS, key=first.count)
                    file.seek(0)
                reader = csv.reader(file, delimiter=self._separator, strict=True)
                header = [name.strip() for name in next(filter(any, reader), [])]
                self._add_rows(reader, header, before)
                return header
        except csv.Error as error:
            problem = f"line {before + (reader.line_num if reader else 1)}: {error!s:.200}"
            way_out = "every quote is closed, and a quote inside a quoted cell is written twice"
        except UnicodeError:
            content = self._path.read_bytes()
            place = _find_wrong_byte(content)
            line = content.count(b"\n", 0, place) + 1
            problem = f"line {line} holds the byte 0x{content[place]:02x}"
            way_out = "UTF-8: save it as 'CSV UTF-8', or `iconv -f WINDOWS-1252 -t UTF-8`"
        raise self._refuse(f"cannot be read as CSV in UTF-8: {problem}; allowed: {way_out}")

    def _add_rows(self, reader: Any, header: list[str], before: int) -> None:
        """Add the rows that are not blank. `before`: lines of the file that the reader has not seen."""
        end, width = reader.line_num, len(header)
        self._width = width
        for cells in reader:
            start, end = end + 1, reader.line_num
            if len(cells) == width and cells[0].strip():
                self._rows.append(_BETWEEN.join(cells))
            elif "".join(cells).strip():
                self._rows.append(self._fit(cells, header, (before + start, before + end)))
            else:
                self._blank += 1
                continue
            self._lines.append(before + start)

    def _fit(self, cells: list[str], header: list[str], lines: tuple[int, int]) -> str | BadRow:
        """Return as many cells as the header has: empty ones may lack, or be too many, where nothing has a name."""
        width, named = len(header), max((place for place, name in enumerate(header, 1) if name), default=0)
        if len(cells) >= named and not "".join(cells[width:]).strip():
            return _BETWEEN.join(cells[:width] + [""] * (width - len(cells)))
        place = f"line {lines[0]}" if lines[0] == lines[1] else f"lines {lines[0]} to {lines[1]}"
        return BadRow(self.name, place, "(the line)", cells, f"{named} cells, as the header has")

    def _check_nameless(self, header: list[str]) -> list[str]:
        """Return what is left out because it has no name. Raise `ConfigError` if it is more than row numbers."""
        left_out, empty = [], 0
        for place in (place for place, name in enumerate(header) if not name):
            pairs = zip(self._rows, self._lines, strict=True)
            cells = [(row.split(_BETWEEN)[place].strip(), line) for row, line in pairs if isinstance(row, str)]
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
        for whole, sign, rest in (one for row in self._rows if isinstance(row, str) for one in _DECIMAL.findall(row)):
            is_sure = len(rest) != 3 or not _GROUP.fullmatch(whole)
            if sign not in found or (is_sure and not found[sign][0]):
                found[sign] = is_sure, f"{whole}{sign}{rest}"
        is_comma, is_point = (found[sign][0] if sign in found else None for sign in ",.")
        if is_point and not is_comma:
            return "."
        if is_point is None and (is_comma or is_comma is None):
            return ","
        given = " and ".join(repr(cell) for _, cell in found.values())
        problem = f"cells such as {given} leave open which sign stands before decimals"
        raise self._refuse(f"{problem}; allowed: {SETTING}: ',' or '.'")

    def _refuse(self, problem: str) -> ConfigError:
        return ConfigError(f"data.source: {self.name}: {problem}", key="data.source")


def _find_wrong_byte(content: bytes) -> int:
    """Return the place of the first byte that is not UTF-8."""
    try:
        content.decode()
    except UnicodeDecodeError as error:
        return error.start
    return 0
