"""Rows of Arrow tables: Arrow and Parquet files, and datasets of the library `datasets`. Images stay undecoded.

Parquet of some size is written once into an Arrow file by the library `datasets`, where any row is found at once. With
`streaming` it is read where it is, one row group at a time.
"""

import json
import math
import re
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, time, timedelta
from decimal import Decimal
from itertools import accumulate
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from cachetools import LRUCache

from ...errors import BadRow, ConfigError, describe_value
from ...utils.files import MAX_DECODED, get_cache_folder
from .rows import Row, Rows

KEY = "data.source"
IN_MEMORY = 2**28  # bytes of a Parquet file's columns up to which it is read into memory
KEPT_GROUPS = 2**28  # bytes of row groups that streaming keeps
_SAME = r"^\s|\s$|\s\s|[^ -~]|\.0$|\de[+-]"  # of texts that may be other spellings of one name
_OTHER = re.compile("double|float|decimal|date|time|duration|null")  # types whose values are not used as they are
_REAL = re.compile(r"\b(?:half)?float\b|\bdouble\b")
_NARROW = {"float": np.float32, "halffloat": np.float16}  # 0.1 of these is 0.1, not 0.10000000149011612
BATCH = 1000  # rows that become Python objects together


class TableRows(Rows):
    """Rows with a schema of Arrow for each file, with its first row. What the library `datasets` wrote into one names
    the classes of that file's columns of numbers."""

    def __init__(self, name: str, schemas: Sequence[tuple[int, Any]], folder: Path | None) -> None:
        self.name, self.folder, self._schema = name, folder, schemas[0][1]
        self.columns: tuple[str, ...] = tuple(self._schema.names)
        self._firsts = [first for first, _ in schemas]
        self._labels = [_find_labels(schema) for _, schema in schemas]
        self._special = {column.name for _, schema in schemas for column in schema if _OTHER.search(str(column.type))}
        self._special.update(*self._labels)
        reals: dict[str, set[str]] = {name: set() for name in self._special}
        for column in (column for _, schema in schemas for column in schema if column.name in reals):
            reals[column.name].update(_REAL.findall(str(column.type)))
        self._narrow = {name: _NARROW.get("".join(kinds)) for name, kinds in reals.items()}

    @abstractmethod
    def _slice(self, number: int, columns: list[str]) -> Any: ...

    @abstractmethod
    def _list_batches(self, columns: list[str]) -> Iterable[Any]: ...

    def read(self, number: int, columns: Collection[str]) -> Row:
        [row] = self._list_rows(self._slice(number, list(columns)), number) if columns else [{}]
        if isinstance(row, BadRow):
            raise row
        return row

    def scan(self, columns: Collection[str]) -> Iterator[Row | BadRow]:
        if not columns:
            yield from ({} for _ in range(len(self)))
            return
        number = 0
        for batch in self._list_batches(list(columns)):
            yield from self._list_rows(batch, number)
            number += batch.num_rows

    def _list_rows(self, table: Any, first: int) -> Iterable[Row | BadRow]:
        rows: list[dict[str, Any]] = table.to_pylist()
        special = [name for name in table.column_names if name in self._special]
        return (self._read_row(row, special, number) for number, row in enumerate(rows, first)) if special else rows

    def _read_row(self, row: dict[str, Any], special: list[str], number: int) -> Row | BadRow:
        labels = self._labels[bisect_right(self._firsts, number) - 1]
        for name in special:
            try:
                row[name] = _read_value(row[name], labels.get(name), self._narrow[name])
            except IndexError:
                expected = f"the number of a class, or -1 for none: {describe_value(labels[name])}"
                return BadRow(self.name, self.locate(number), name, row[name], expected)
        return row

    def is_unique(self, column: str) -> bool:
        from pyarrow import chunked_array, compute, types

        chunks = [] if column in self._special else [batch.column(0) for batch in self._list_batches([column])]
        if len({chunk.type for chunk in chunks}) != 1:
            return False
        values, is_text = chunked_array(chunks), types.is_string(chunks[0].type)
        if values.null_count or not (is_text or types.is_integer(values.type)):
            return False
        if is_text and compute.any(compute.match_substring_regex(values, _SAME)).as_py():
            return False
        return bool(compute.count_distinct(values).as_py() == len(values))

    def holds_paths(self, columns: Collection[str]) -> bool:
        """Return whether columns hold text, or lists of it."""
        from pyarrow import types

        kinds = (self._schema.field(name).type for name in columns)
        nested = (types.is_list, types.is_large_list, types.is_dictionary)
        flat = (kind.value_type if any(test(kind) for test in nested) else kind for kind in kinds)
        return all(types.is_string(kind) or types.is_large_string(kind) for kind in flat)


class ArrowRows(TableRows):
    """The rows of an Arrow table, which may be mapped from a file larger than memory."""

    def __init__(
        self, name: str, table: Any, folder: Path | None, schemas: Sequence[tuple[int, Any]] | None = None
    ) -> None:
        super().__init__(name, schemas or [(0, table.schema)], folder)
        self._table = table

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def _slice(self, number: int, columns: list[str]) -> Any:
        return self._table.select(columns).slice(number, 1)

    def _list_batches(self, columns: list[str]) -> Iterable[Any]:
        batches: Iterable[Any] = self._table.select(columns).to_batches(max_chunksize=BATCH)
        return batches


class ParquetRows(TableRows):
    """Parquet files read where they are: a row costs its row group, the last groups stay in memory."""

    def __init__(self, name: str, files: Sequence[Any], folder: Path | None) -> None:
        self._files = [_ParquetFile(file, name) for file in files]
        firsts = accumulate((sum(file.group_rows) for file in self._files), initial=0)
        self.schemas = list(zip(firsts, (file.schema for file in self._files), strict=False))
        super().__init__(name, self.schemas, folder)
        self._groups = [(file, group) for file in self._files for group in range(len(file.group_rows))]
        self.starts = list(accumulate((file.group_rows[group] for file, group in self._groups), initial=0))
        self._open: LRUCache[Any, Any] = LRUCache(KEPT_GROUPS, getsizeof=lambda table: table.nbytes)
        self._lock = Lock()  # episodes are opened in threads

    def __len__(self) -> int:
        return self.starts[-1]

    def _slice(self, number: int, columns: list[str]) -> Any:
        place = bisect_right(self.starts, number) - 1
        key = place, *sorted(columns)
        with self._lock:
            group = self._open.get(key)
            if group is None:
                file, inside = self._groups[place]
                group = file.read(columns, [inside])
                if group.nbytes <= self._open.maxsize:
                    self._open[key] = group
        return group.slice(number - self.starts[place], 1)

    def _list_batches(self, columns: list[str]) -> Iterable[Any]:
        return (batch for file in self._files for batch in file.iter_batches(columns))

    def read_all(self) -> Any:
        """Return the table of all files, or None if it is larger than what is read into memory."""
        from pyarrow import concat_tables

        if sum(file.unpacked for file in self._files) > IN_MEMORY:
            return None
        return concat_tables([file.read() for file in self._files], promote_options="permissive")


class _ParquetFile:
    """A Parquet file, read in batches that are small also of long columns. What cannot be read, or takes much more
    memory than the size of the file, raises `ConfigError`."""

    def __init__(self, file: Any, name: str) -> None:
        from pyarrow import parquet

        is_path = isinstance(file, Path)
        self.name = file.name if is_path else name
        with _blame_file(self.name):
            self._budget = MAX_DECODED + int((file.stat().st_size if is_path else getattr(file, "size", 0)) or 0)
            self._file = parquet.ParquetFile(file, memory_map=is_path)
            self.schema = self._file.schema_arrow
            groups = [self._file.metadata.row_group(number) for number in range(self._file.num_row_groups)]
            columns = [group.column(number) for group in groups for number in range(group.num_columns)]
            largest = max((column.total_uncompressed_size for column in columns), default=1)
        self.group_rows = [group.num_rows for group in groups]
        self.unpacked = sum(group.total_byte_size for group in groups)
        self._batch = max(1, min(BATCH, MAX_DECODED // max(1, largest)))

    def iter_batches(self, columns: list[str] | None, groups: list[int] | None = None) -> Iterator[Any]:
        with _blame_file(self.name):
            yield from self._file.iter_batches(batch_size=self._batch, row_groups=groups, columns=columns)

    def read(self, columns: list[str] | None = None, groups: list[int] | None = None) -> Any:
        from pyarrow import Table

        batches, left = [], self._budget
        for batch in self.iter_batches(columns, groups):
            batches.append(batch)
            left -= batch.nbytes
            if left < 0:
                raise _refuse_size(self.name)
        return Table.from_batches(batches, schema=batches[0].schema if batches else self.schema)


def _refuse_size(name: str) -> ConfigError:
    problem = f"{KEY}: {name}: takes {MAX_DECODED:,} bytes more memory than its size when it is unpacked"
    return ConfigError(f"{problem}; allowed: smaller row groups and values", key=KEY)


@contextmanager
def _blame_file(name: str) -> Iterator[None]:
    from pyarrow import ArrowInvalid

    try:
        yield
    except (ArrowInvalid, OSError, MemoryError) as error:  # an OSError is also a type that is nested too deep
        raise ConfigError(f"{KEY}: {name}: not a Parquet file that can be read: {error!s:.200}", key=KEY) from error


def open_parquet(paths: Sequence[Path], name: str, *, streaming: bool) -> TableRows:
    """Open Parquet files as one dataset. Raise `ConfigError` for one that is damaged, or has other columns than the
    first."""
    rows = ParquetRows(name, paths, paths[0].parent)
    _check_schemas(paths, [schema for _, schema in rows.schemas])
    if streaming:
        return rows
    with _blame_file(name):
        table = rows.read_all()
        if table is None:
            from datasets import Dataset

            cache = get_cache_folder() / "arrow"
            cache.mkdir(parents=True, exist_ok=True, mode=0o700)  # readable by this user only
            table = Dataset.from_parquet([str(path) for path in paths], cache_dir=str(cache)).data.table
    return ArrowRows(name, table, paths[0].parent, rows.schemas)


def check_columns(files: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Raise `ConfigError` if files, each with its columns, have not the same, in any order."""
    first, known = files[0]
    for name, columns in files:
        if len(set(columns)) < len(columns):
            twice = next(column for column in columns if columns.count(column) > 1)
            raise ConfigError(f"{KEY}: {name}: has two columns of one name ({twice!r:.80})", key=KEY)
        if sorted(columns) != sorted(known):
            problem = f"{KEY}: {name}: has the columns {', '.join(columns):.200}"
            raise ConfigError(f"{problem}; allowed: those of {first} ({', '.join(known):.200})", key=KEY)


def _check_schemas(paths: Sequence[Path], schemas: Sequence[Any]) -> None:
    from pyarrow import ArrowException, types, unify_schemas

    check_columns([(path.name, schema.names) for path, schema in zip(paths, schemas, strict=True)])
    for path, schema in zip(paths, schemas, strict=True):
        first, labels = _find_labels(schemas[0]), _find_labels(schema)
        other = {name for name in first.keys() ^ labels.keys() if not types.is_null(schema.field(name).type)}
        try:
            unify_schemas([schemas[0], schema], promote_options="permissive")
        except ArrowException as error:
            other.update(re.findall(r"Field (\w+)", str(error)) or ["a column"])
        if other:
            problem = f"{KEY}: {path.name} and {paths[0].name} hold values of other types in {', '.join(sorted(other))}"
            raise ConfigError(f"{problem:.300}; allowed: the same types, and class names in every file", key=KEY)


def open_arrow(paths: Sequence[Path], name: str) -> ArrowRows:
    """Open Arrow files of either form, mapped into memory, as one dataset."""
    from pyarrow import concat_tables

    tables = [_map_arrow(path) for path in paths]
    _check_schemas(paths, [table.schema for table in tables])
    schemas = list(zip(accumulate(map(len, tables), initial=0), (table.schema for table in tables), strict=False))
    return ArrowRows(name, concat_tables(tables, promote_options="permissive"), paths[0].parent, schemas)


def _map_arrow(path: Path) -> Any:
    from pyarrow import ArrowInvalid, Table, ipc, memory_map, total_allocated_bytes

    most = total_allocated_bytes() + MAX_DECODED  # what is mapped is not allocated
    for open_form in (ipc.open_file, ipc.open_stream):
        try:
            reader, batches = open_form(memory_map(str(path))), list[Any]()
            numbers = range(reader.num_record_batches) if open_form is ipc.open_file else None
            for batch in reader if numbers is None else map(reader.get_batch, numbers):
                batches.append(batch)
                if total_allocated_bytes() > most:
                    raise _refuse_size(path.name)
            return Table.from_batches(batches, schema=reader.schema)
        except (ArrowInvalid, OSError, MemoryError):
            continue
    raise ConfigError(f"{KEY}: {path.name}: not an Arrow file that can be read", key=KEY)


def _find_labels(schema: Any) -> dict[str, Any]:
    """Return the class names that the library `datasets` wrote into a schema, by column (and, inside it, by key)."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return _find_names({name: features[name] for name in schema.names if name in features}) or {}
    except (KeyError, ValueError, TypeError, RecursionError):
        return {}


def _find_names(feature: Any) -> Any:
    """Return the names of a class label, or of a list of them, or those of an object by key; None: there are none."""
    if isinstance(feature, list):
        return _find_names(feature[0]) if feature else None
    kind = feature.get("_type") if isinstance(feature, dict) else ""
    if kind == "ClassLabel":
        names = feature.get("names") or ()
        return [str(name) for name in (names.values() if isinstance(names, dict) else names)]
    if isinstance(kind, str):
        return _find_names(feature["feature"]) if kind in ("Sequence", "List", "LargeList") else None
    return {name: names for name, inner in feature.items() if (names := _find_names(inner))} or None


def _read_value(value: Any, names: Any, narrow: Any) -> Any:
    """Return a value with class names for numbers, null for NaN and for the class -1, dates as text, and for a number
    of the type `narrow` the shortest that it stands for. Raise `IndexError` for the number of no class."""
    if isinstance(value, float):
        return None if math.isnan(value) else value if narrow is None else float(str(narrow(value)))
    if isinstance(value, list):
        return [_read_value(item, names, narrow) for item in value]
    if isinstance(value, dict):
        inner = names if isinstance(names, dict) else {}
        return {key: _read_value(item, inner.get(key), narrow) for key, item in value.items()}
    if isinstance(value, int) and isinstance(names, list):
        if value < -1:
            raise IndexError
        return None if value == -1 else names[value]
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, date | time):
        return value.isoformat()
    return str(value) if isinstance(value, timedelta) else value
