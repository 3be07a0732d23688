"""Scores given later, beside the stored ones: a file a column, a line an episode; `episodes.jsonl` is never touched.

    <episodes>/scores/<name>.jsonl
        {"viewbox": version, "written": time, "reward": …, "where": […]}
        {"line": 1, "crc": …, "task": "t1", "total": 0.5, "components": {"label": 1.0, "box": 0.0}}

The lines stand in the order of the episodes. `crc` (CRC-32 of the episode's line) tells a column whose episodes have
been rewritten since. A column is written to a draft and renamed when it is complete: a kill leaves no half of one.
"""

import json
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from viewbox.errors import ConfigError, StoreError, describe_unknown
from viewbox.files import replace_atomically
from viewbox.records import Scores

FOLDER = "scores"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


def checksum(line: bytes) -> int:
    """CRC-32 of an episode's line without what surrounds it."""
    return zlib.crc32(line.strip())


def names(folder: Path) -> list[str]:
    """The columns of a folder of episodes."""
    return sorted(path.stem for path in (folder / FOLDER).glob("*.jsonl"))


def path_of(folder: Path, name: str) -> Path:
    """The file of a column; raises `ConfigError` where `name` cannot be one."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} cannot name a column; allowed: letters, digits, '_', '-', '.' (not first)")
    return folder / FOLDER / f"{name}.jsonl"


class Writer:
    """A new column; it is in place when the block ends without an error, and not at all otherwise."""

    def __init__(self, folder: Path, name: str, about: Mapping[str, Any], *, replace: bool = False) -> None:
        self.path = path_of(folder, name)
        if self.path.exists() and not replace:
            raise ConfigError(
                f"{self.path}: there are scores of the name {name!r} already; give another --name, or --replace"
            )
        self._stack = ExitStack()
        try:
            self.path.parent.mkdir(exist_ok=True)
            self._file = self._stack.enter_context(replace_atomically(self.path))
        except OSError as error:
            raise StoreError(f"{self.path}: cannot be written ({error.strerror})") from error
        self._write(about)

    def add(self, line: int, crc: int, task: str, scores: Scores) -> None:
        """The scores of the episode in line `line`."""
        self._write(
            {"line": line, "crc": crc, "task": task, "total": scores.total, "components": dict(scores.components)}
        )

    def _write(self, data: Mapping[str, Any]) -> None:
        text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        self._file.write(text.encode("utf-8", "surrogatepass") + b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)


class Reader:
    """A column, read along with the episodes."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path = path_of(folder, name)
        if not self.path.is_file():
            raise StoreError(f"{folder}: {describe_unknown('scores', name, names(folder))}")
        self._lines = self._read()
        self._next = next(self._lines, None)

    def scores(self, line: int, crc: int) -> dict[str, Any] | None:
        """The scores of the episode in line `line`, later than the last one asked for; None where there are none."""
        while self._next is not None and self._next["line"] < line:
            self._next = next(self._lines, None)
        if self._next is None or self._next["line"] != line:
            return None
        if self._next["crc"] != crc:
            raise StoreError(f"{self.path}: the episode in line {line} has changed since; score the run again")
        return {"total": self._next["total"], "components": self._next["components"]}

    def _read(self) -> Iterator[dict[str, Any]]:
        with open(self.path, "rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    data = json.loads(line)
                    if number > 1:
                        yield {key: data[key] for key in ("line", "crc", "total", "components")}
                except (ValueError, LookupError, TypeError) as error:
                    raise StoreError(f"{self.path}, line {number}: not a line of scores ({error})") from error
