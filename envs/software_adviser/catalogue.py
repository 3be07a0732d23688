"""Reads a catalogue of imaging software: the shipped one, or a user's own as JSONL or SQLite.

A row that cannot be used costs itself, and is named with its file, place and key.
"""

import json
import re
import sqlite3
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic import ValidationError

from ...errors import BadRow, ConfigError
from ..data.rows import JsonLines
from .software import SoftwareTool

SHIPPED: Final = Path(__file__).with_name("catalogue.jsonl")
JSON_SUFFIXES: Final = (".jsonl", ".ndjson")
SQLITE_SUFFIXES: Final = (".sqlite", ".sqlite3", ".db")
SUFFIXES: Final = JSON_SUFFIXES + SQLITE_SUFFIXES
LISTS: Final = ("tasks", "modalities", "dimensions", "formats", "interfaces", "sources")
MAX_KEY = 100  # characters of a key that a message repeats


@dataclass(frozen=True)
class Catalogue:
    """The tools of a file, in its order, and why other rows were left out.

    name: of the file.
    tools: at least one; names and repositories are unique.
    problems: one for each key that cannot be used, and for each duplicate.
    """

    name: str
    tools: tuple[SoftwareTool, ...]
    problems: tuple[BadRow, ...]


def read_catalogue(path: str | Path = SHIPPED) -> Catalogue:
    """Read a catalogue: a tool a line of a JSONL file, or a row of the table `tools` of a SQLite file.

    The keys of a line, and the columns of a table, are the fields of `SoftwareTool`. A column that is a list holds it
    as JSON.

    Raises:
        ConfigError: the file cannot be read, or no row of it can be used.

    >>> catalogue = read_catalogue()
    >>> len(catalogue.tools) >= 150, catalogue.problems
    (True, ())
    """
    tools, problems = [], []
    for _, entry in _iterate_tools(Path(path)):
        if isinstance(entry, SoftwareTool):
            tools.append(entry)
        else:
            problems.append(entry)
    if not tools:
        first = f"; the first problem: {problems[0]}" if problems else ""
        raise ConfigError(f"{Path(path).name}: holds no tool that can be used{first}", key="catalogue", given=path)
    return Catalogue(Path(path).name, tuple(tools), tuple(problems))


def check_catalogue(path: str | Path = SHIPPED) -> tuple[BadRow, ...]:
    """What is wrong in a catalogue, and where: rows that cannot be used, duplicates, and facts without a source.

    Raises:
        ConfigError: the file cannot be read at all.

    >>> check_catalogue()
    ()
    """
    problems = []
    for place, entry in _iterate_tools(Path(path)):
        if isinstance(entry, BadRow):
            problems.append(entry)
        elif unsourced := entry.list_unsourced():
            given, expected = ", ".join(unsourced), f"a source for every fact of {entry.name!r}"
            problems.append(BadRow(Path(path).name, place, "sources", f"lacking for {given}", expected))
    return tuple(problems)


def _iterate_tools(path: Path) -> Iterator[tuple[int | str, SoftwareTool | BadRow]]:
    """(place, tool or problem) of the rows in order; a row may have several problems."""
    seen: dict[tuple[str, str], int | str] = {}
    for place, row in _iterate_rows(path):
        if isinstance(row, BadRow):
            yield place, row
            continue
        try:
            tool = SoftwareTool.model_validate(dict(row))
        except ValidationError as error:
            yield from ((place, problem) for problem in _list_problems(path.name, place, error))
            continue
        keys = {("name", fold_name(tool.name)): tool.name, ("repository", fold_url(tool.repository)): tool.repository}
        twice = [(key, given) for key, given in keys.items() if key in seen]
        for key, given in twice:
            yield place, BadRow(path.name, place, key[0], given, f"a new one: {_describe_place(seen[key])} has it")
        if not twice:
            seen.update(dict.fromkeys(keys, place))
            yield place, tool


def _iterate_rows(path: Path) -> Iterator[tuple[int | str, Mapping[str, Any] | BadRow]]:
    kind = path.suffix.lower()
    if kind not in SUFFIXES:
        raise ConfigError(
            f"catalogue = {str(path)!r:.200}: a file of kind {kind[:20]!r}; allowed: {', '.join(SUFFIXES)}",
            key="catalogue",
            given=str(path),
            allowed=SUFFIXES,
        )
    try:
        yield from _iterate_json(path) if kind in JSON_SUFFIXES else _iterate_sqlite(path)
    except (OSError, ValueError, sqlite3.Error) as error:
        reason = getattr(error, "strerror", None) or f"{error!s:.200}"
        if kind in SQLITE_SUFFIXES:
            reason += "; allowed: a SQLite file with a table 'tools' that has a column for each key"
        raise ConfigError(f"catalogue = {str(path)!r:.200}: {reason}", key="catalogue", given=str(path)) from error


def _iterate_json(path: Path) -> Iterator[tuple[str, Mapping[str, Any] | BadRow]]:
    lines = JsonLines(path)
    for number, row in enumerate(lines.scan(())):
        yield lines.locate(number), row


def _iterate_sqlite(path: Path) -> Iterator[tuple[str, Mapping[str, Any] | BadRow]]:
    """The rows of the table `tools` in the order of their numbers; null values are left out, lists are read as JSON."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as file:
        cursor = file.execute("SELECT _rowid_, * FROM tools ORDER BY _rowid_")
        names = [column[0] for column in cursor.description[1:]]
        for number, *values in cursor:
            place, row = f"row {number}", dict(zip(names, values, strict=True))
            yield place, _read_lists(path.name, place, {key: one for key, one in row.items() if one is not None})


def _read_lists(name: str, place: str, row: Mapping[str, Any]) -> Mapping[str, Any] | BadRow:
    values = dict(row)
    for key in LISTS:
        try:
            if key in row:
                values[key] = json.loads(row[key])
        except (TypeError, ValueError, RecursionError):
            return BadRow(name, place, key, row[key], "a list as JSON")
    return values


def _list_problems(name: str, place: int | str, error: ValidationError) -> Iterator[BadRow]:
    for detail in error.errors():
        key = ".".join(str(part) for part in detail["loc"])[:MAX_KEY] or "(the row)"
        given = "not given" if detail["type"] == "missing" else detail["input"]
        if key == "(the row)" or isinstance(given, Mapping):
            given = "an object"
        yield BadRow(name, place, key, given, _describe_expected(detail))


def _describe_expected(detail: Mapping[str, Any]) -> str:
    if detail["type"] == "missing":
        return "a value"
    if detail["type"] == "extra_forbidden":
        return f"a key of: {', '.join(SoftwareTool.model_fields)}"
    cause = detail.get("ctx", {}).get("error")
    return str(cause or re.sub(r"^.{0,20} should (be|have) ", "", detail["msg"]))


def _describe_place(place: int | str) -> str:
    return f"row {place}" if isinstance(place, int) else place


def fold_name(name: str) -> str:
    """A name as duplicates are compared: width, case and spaces do not count.

    >>> fold_name("３D  Slicer") == fold_name("3d slicer")
    True
    """
    return " ".join(unicodedata.normalize("NFKC", name).casefold().split())


def fold_url(url: str) -> str:
    """The URL of a repository as duplicates are compared: case, `.git` and a last slash do not count.

    >>> fold_url("https://GitHub.com/Owner/Name.git/")
    'github.com/owner/name'
    """
    address = urlsplit(url.lower())
    return f"{address.hostname}{address.path}".rstrip("/").removesuffix(".git")
