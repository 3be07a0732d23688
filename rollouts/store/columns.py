"""Columns of scores added after play: one file per column, one line per episode. `episodes.jsonl` is never changed.

    <episodes>/scores/<name>.jsonl
        {"viewbox": version, "written": time, "reward": …, "where": […]}
        {"line": 1, "crc": …, "task": "t1", "total": 0.5, "components": {"label": 1.0, "box": 0.0}}

Lines are in the order of the episodes. `crc` is the CRC-32 of the episode's line: it detects episodes that were
rewritten after they were scored. A column is renamed into place when complete, so a kill leaves no partial column.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from ...errors import ConfigError, StoreError, describe_unknown
from ...records import Scores
from ...utils.files import check_inside, check_writable, open_regular, replace_atomically
from ...utils.frozen import FrozenDict, Record
from ...utils.secrets import mask_settings
from .lines import MAX_LINE, check_scores, encode_line, read_lines

FOLDER = "scores"
MAX_FILE = 2**40  # bytes of a column, which is read a line at a time
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


class ColumnLine(Record, frozen=True):
    """The scores of an episode: the number and the CRC-32 of its line, its total, components and turns."""

    line: int
    crc: int
    total: float | None
    components: Mapping[str, float | None] = FrozenDict()
    turns: tuple[float, ...] = ()


def list_columns(folder: Path) -> list[str]:
    return sorted(path.stem for path in (folder / FOLDER).glob("*.jsonl") if _NAME.fullmatch(path.stem))


def build_column_path(folder: Path, name: str) -> Path:
    """Return the file of a column; raise `ConfigError` if `name` is not a valid column name."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} cannot name a column; allowed: letters, digits, '_', '-', '.' (not first)")
    return folder / FOLDER / f"{name}.jsonl"


class ScoreColumnWriter(AbstractContextManager["ScoreColumnWriter"]):
    """A new column. It appears when the `with` block ends without an error, and never otherwise."""

    def __init__(self, folder: Path, name: str, about: Mapping[str, Any], *, replace: bool = False) -> None:
        self.path = build_column_path(folder, name)
        try:
            check_writable(self.path.parent, folder)  # not elsewhere through a link in somebody's run
            check_writable(self.path, folder)
        except OSError as error:
            raise StoreError(f"{error.filename}: scores are not written here ({error.strerror})") from error
        if self.path.exists() and not replace:
            raise ConfigError(f"{self.path}: scores named {name!r} exist already; give another --name, or --replace")
        self._stack = ExitStack()
        try:
            self.path.parent.mkdir(exist_ok=True)
            self._file = self._stack.enter_context(replace_atomically(self.path))
        except OSError as error:
            raise StoreError(f"{self.path}: cannot be written ({error.strerror})") from error
        self._write(mask_settings(about))

    def add(self, line: int, crc: int, task: str, scores: Scores) -> None:
        """Append the scores of the episode in line `line`."""
        row = {"line": line, "crc": crc, "task": task, "total": scores.total, "components": dict(scores.components)}
        self._write({**row, "turns": scores.turns} if scores.turns else row)

    def _write(self, data: Mapping[str, Any]) -> None:
        text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=str)
        self._file.write(encode_line(text))

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)


def open_column(folder: Path, name: str) -> BinaryIO:
    """Return the lines of a column; raise `StoreError` if there is none, or it cannot be read."""
    path = build_column_path(folder, name)
    try:
        check_inside(path, folder)
        if not path.exists():
            raise StoreError(f"{folder}: {describe_unknown('scores', name, list_columns(folder))}")
        return open_regular(path, limit=MAX_FILE, inside=folder)
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror})") from error


class ScoreColumn:
    """The scores in a column, by the line of their episode."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = build_column_path(folder, name)
        with open_column(folder, name) as file:
            self._lines = {stored.line: stored for stored in self._read(file)}

    def find(self, line: int, crc: int) -> Scores | None:
        """Return the scores of the episode in a line; raise `StoreError` if that is another one by now."""
        stored = self._lines.get(line)
        if stored is None:
            return None
        if stored.crc != crc:
            problem = f"the episode in line {line} changed after it was scored; score the run again"
            raise StoreError(f"{self.path}: {problem}")
        return Scores(stored.total, stored.components, turns=stored.turns)

    def _read(self, file: BinaryIO) -> Iterator[ColumnLine]:
        for number, line in enumerate(read_lines(file), 1):
            try:
                if line is None:
                    raise ValueError(f"longer than {MAX_LINE:,} bytes")
                if number == 1:
                    msgspec.json.decode(line, type=dict[str, msgspec.Raw])
                    continue
                stored = _LINE.decode(line)
                check_scores(Scores(stored.total, stored.components, turns=stored.turns))
                yield stored
            except (ValueError, RecursionError) as error:
                raise StoreError(f"{self.path}, line {number}: not a line of scores ({error})") from error


_LINE = msgspec.json.Decoder(ColumnLine)
