"""Rows of a CSV or TSV file. Its cells are text; each becomes a number, a boolean or null when its row is read."""

import csv
import json
import re
from array import array
from collections.abc import Collection
from pathlib import Path
from typing import Any, TextIO

from ...errors import BadRow, ConfigError
from ...utils.values import is_canonical
from .rows import MAX_LINE, Row, Rows
from .settings import CellForm

SETTING = "data.cells.decimal"
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
_SAID = re.compile(r"\"?sep=([,;\t])\"?[,;]*\s*", re.IGNORECASE)  # the first line of some spreadsheets
_BETWEEN = "\x1f"  # cells of a row in memory: a text takes less than a list
_DECIMAL = re.compile(r"(?:^|(?<=\x1f)) *(-?\d+)([.,])(\d+) *(?=\x1f|$)", re.ASCII)
_LIKELY = {",": re.compile(r"\d,\d").search, ".": re.compile(r"\d\.\d").search}
_GROUP = re.compile(r"-?[1-9]\d{0,2}", re.ASCII)  # before three digits: thousands, perhaps
_COMMA_NUMBER = re.compile(r"[-+]?(\d+,\d+|\d{1,3}(\.\d{3})+(,\d+)?)", re.ASCII)


class CellRow(dict[str, Any]):
    __slots__ = ("written",)
    written: dict[str, str]  # the cells themselves


class TextTable(Rows):
    """A CSV or TSV file with a header, in memory as text. Blank rows are no data, nor are spaces around a cell, columns
    that have neither a name nor a value, and row numbers without a name."""

    def __init__(self, path: Path, form: CellForm) -> None:
        self.name, self.folder = path.name, path.parent
        self._rows, self._lines, self._blank = list[str | BadRow](), array("q"), 0
        csv.field_size_limit(max(csv.field_size_limit(), MAX_LINE))  # a cell of 128 KiB would end the file
        try:
            with path.open(encoding="utf-8-sig", newline="") as file:
                self._header = self._read_file(file, is_tsv=path.suffix.lower() == ".tsv")
        except (UnicodeError, csv.Error) as error:
            last = self._lines[-1] if self._lines else isinstance(error, csv.Error)
            where = f"below line {int(last)}" if last else "in its first lines"
            problem = f"cannot be read as CSV in UTF-8 {where}: {error!s:.200}"
            with path.open("rb") as start:
                wide = "UTF-16" if b"\0" in start.read(64) else "WINDOWS-1252"
            encoding = f"UTF-8 (a program's 'CSV UTF-8', or `iconv -f {wide} -t UTF-8`)"
            allowed = f"{encoding}; every quote closed and, inside a quoted cell, written twice"
            raise self._refuse(f"{problem}; allowed: {allowed}") from error
        self._width = len(self._header)
        self._places = {name: place for place, name in enumerate(self._header) if name}
        self.columns = tuple(self._places)
        twice = [name for name in self.columns if self._header.count(name) > 1]
        if not self.columns or twice:
            problem = f"its header is empty or has two columns of one name{f' ({twice[0]!r:.80})' if twice else ''}"
            raise self._refuse(f"{problem}; allowed: a first line that names every column once")
        nameless = self._check_nameless()
        self._decimal = form.decimal or self._find_decimal()
        self._texts = {"": None, "true": True, "false": False}
        for texts, value in ((form.true, True), (form.false, False), (form.null, None)):
            self._texts |= {text.strip().casefold(): value for text in texts}
        self._longest = max(map(len, self._texts))
        how = f"{SEPARATORS[self._separator]} separate the cells, decimal {self._decimal!r} ({SETTING} sets it)"
        blank = f"left out: {self._blank} blank rows" if self._blank else ""
        self.notes = tuple(filter(None, (how, blank, nameless)))

    def __len__(self) -> int:
        return len(self._rows)

    def locate(self, number: int) -> str:
        return f"line {self._lines[number]}"

    def read(self, number: int, columns: Collection[str]) -> Row:
        text = self._rows[number]
        if isinstance(text, BadRow):
            raise text
        cells = text.split(_BETWEEN)
        if len(cells) != self._width:
            raise BadRow(self.name, self.locate(number), "(the line)", text, "cells without the sign \\x1f")
        row = CellRow()
        row.written = written = {}
        for name in columns:
            written[name] = cell = cells[self._places[name]].strip()
            row[name] = self._read_cell(cell)
        return row

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

    def _read_file(self, file: TextIO, *, is_tsv: bool) -> list[str]:
        first, before = file.readline(MAX_LINE), 0
        if said := _SAID.fullmatch(first):
            before, self._separator = 1, said[1]
        else:
            self._separator = "\t" if is_tsv else max(SEPARATORS, key=first.count)
            file.seek(0)
        reader = csv.reader(file, delimiter=self._separator, strict=True)
        header = [name.strip() for name in next(filter(any, reader), [])]
        if "\0" in "".join(header):
            raise csv.Error("line contains NUL, as in UTF-16")
        width, named = len(header), max((place for place, name in enumerate(header, 1) if name), default=0)
        end = reader.line_num
        for cells in reader:
            line, end = before + end + 1, reader.line_num
            if len(cells) != width or not cells[0].strip():
                if not "".join(cells).strip():
                    self._blank += 1
                    continue
                if len(cells) < named or "".join(cells[width:]).strip():
                    expected = f"{named} cells, as the header has"
                    self._rows.append(BadRow(self.name, f"line {line}", "(the line)", cells, expected))
                    self._lines.append(line)
                    continue
                cells = cells[:width] + [""] * (width - len(cells))  # empty ones where nothing has a name
            self._rows.append(_BETWEEN.join(cells))
            self._lines.append(line)
        return header

    def _check_nameless(self) -> str:
        """Return what is left out because it has no name. Raise `ConfigError` if it is more than row numbers."""
        nameless = [place for place, name in enumerate(self._header) if not name]
        for place in nameless:
            pairs = [(row, line) for row, line in zip(self._rows, self._lines, strict=True) if isinstance(row, str)]
            cells = {row.split(_BETWEEN)[place].strip(): line for row, line in reversed(pairs)}
            cells.pop("", None)
            is_number = place == 0 and len(cells) == len(pairs) and all(cell.isdecimal() for cell in cells)
            if cells and not is_number:
                cell, line = list(cells.items())[-1]
                problem = f"line {line} holds {cell!r:.80} in column {place + 1}, which has no name"
                raise self._refuse(f"{problem}; allowed: a name for it in the header")
        return f"left out: {len(nameless)} columns without a name (empty, or row numbers)" if nameless else ""

    def _find_decimal(self) -> str:
        """Return the sign of decimals: a comma where semicolons separate the cells, unless cells are like 1.5. Raise
        `ConfigError` if the cells do not tell: 1.234 and 1,234 may be thousands."""
        if self._separator != ";":
            return "."
        examples: dict[tuple[str, bool], str] = {}
        for row in self._rows:  # until both signs are found for sure
            if isinstance(row, BadRow):
                continue
            if any((sign, True) not in examples and likely(row) for sign, likely in _LIKELY.items()):
                for start, sign, end in _DECIMAL.findall(row):
                    examples[sign, len(end) != 3 or not _GROUP.fullmatch(start)] = start + sign + end
        signs, sure = {sign for sign, _ in examples}, {sign for sign, is_sure in examples if is_sure}
        if sure == {"."} or not examples or signs == sure == {","}:
            return "." if "." in sure else ","
        problem = f"cells such as {' and '.join(examples.values())} leave open which sign stands before decimals"
        raise self._refuse(f"{problem}; allowed: {SETTING}: ',' or '.'")

    def _refuse(self, problem: str) -> ConfigError:
        return ConfigError(f"data.source: {self.name}: {problem}", key="data.source")
