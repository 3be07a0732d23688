"""Rows of Arrow tables: Arrow and Parquet files, and datasets of the library `datasets`. Images stay undecoded.

Parquet of some size is written once into an Arrow file by the library `datasets`, where any row is found at once. With
`streaming` it is read where it is, one row group at a time.
"""

import json
import os
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from cachetools import LRUCache

from ...errors import BadRow, ConfigError
from .rows import Row, Rows

IN_MEMORY = 2**28  # bytes of a Parquet file's columns up to which it is read into memory
KEPT_GROUPS = 2**28  # bytes of row groups that streaming keeps
BATCH = 1000  # rows that become Python objects together


class ArrowRows(Rows):
    """The rows of an Arrow table.

    Args:
        name: in messages.
        table: its columns; it may be mapped from a file larger than memory.
        folder: where image paths start.
        labels: the names of the classes that a column holds as numbers, by column.
    """

    def __init__(
        self, name: str, table: Any, folder: Path | None, labels: dict[str, Sequence[str]] | None = None
    ) -> None:
        self.name, self.folder, self._table, self._labels = name, folder, table, labels or {}
        self.columns: tuple[str, ...] = tuple(table.column_names)
        chunks: list[Any] = max((column.chunks for column in table.columns), key=len, default=[])
        self._starts = [0]
        for chunk in chunks:
            self._starts.append(self._starts[-1] + len(chunk))
        self._chunked = all(len(column.chunks) == len(chunks) for column in table.columns)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def read(self, number: int, columns: Collection[str]) -> Row:
        chunk, inside = 0, number
        if self._chunked:  # no search through the chunks for every column
            chunk = bisect_right(self._starts, number) - 1
            inside = number - self._starts[chunk]
        row = {}
        for name in columns:
            column = self._table.column(name)
            value = (column.chunk(chunk)[inside] if self._chunked else column[number]).as_py()
            row[name] = _name_label(self._labels, name, value)
        return row

    def scan(self, columns: Collection[str]) -> Iterator[Row]:
        if not columns:
            yield from ({} for _ in range(len(self)))
            return
        yield from _list_rows(self._table.select(list(columns)).to_batches(max_chunksize=BATCH), self._labels)

    def is_unique(self, column: str) -> bool:
        return _is_unique(self._table.column(column))

    def holds_paths(self, columns: Collection[str]) -> bool:
        return _are_texts(self._table.schema, columns)


def _list_rows(batches: Iterable[Any], labels: dict[str, Sequence[str]]) -> Iterator[Row]:
    for batch in batches:
        for row in batch.to_pylist():
            yield {name: _name_label(labels, name, value) for name, value in row.items()} if labels else row


def _name_label(labels: dict[str, Sequence[str]], column: str, value: Any) -> Any:
    names = labels.get(column)
    return value if names is None else _name_labels(value, names)


def _name_labels(value: Any, names: Sequence[str]) -> Any:
    if isinstance(value, list):
        return [_name_labels(item, names) for item in value]
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else value


class ParquetRows(Rows):
    """Parquet files read where they are: a row costs its row group, the last groups stay in memory.

    Args:
        name: in messages.
        files: open files, or paths; all with the same columns.
        folder: where image paths start.

    `starts` are the first rows of the row groups, and the number of all rows.
    """

    def __init__(self, name: str, files: Sequence[Any], folder: Path | None) -> None:
        from pyarrow import parquet

        self.name, self.folder = name, folder
        self._files = [parquet.ParquetFile(file, memory_map=isinstance(file, str | Path)) for file in files]
        self.columns: tuple[str, ...] = tuple(self._files[0].schema_arrow.names)
        self._groups = [(file, group) for file in self._files for group in range(file.num_row_groups)]
        self.starts = [0]
        for file, group in self._groups:
            self.starts.append(self.starts[-1] + file.metadata.row_group(group).num_rows)
        self._labels = _find_labels(self._files[0].schema_arrow)
        self._open: LRUCache[Any, ArrowRows] = LRUCache(KEPT_GROUPS, getsizeof=lambda rows: rows._table.nbytes)
        self._lock = Lock()  # episodes are opened in threads

    def __len__(self) -> int:
        return self.starts[-1]

    def read(self, number: int, columns: Collection[str]) -> Row:
        place = bisect_right(self.starts, number) - 1
        key = place, tuple(sorted(columns))
        with self._lock:
            group = self._open.get(key)
            if group is None:
                file, inside = self._groups[place]
                table = file.read_row_group(inside, columns=list(columns))
                group = ArrowRows(self.name, table, None, self._labels)
                if table.nbytes <= self._open.maxsize:
                    self._open[key] = group
        return group.read(number - self.starts[place], columns)

    def scan(self, columns: Collection[str]) -> Iterator[Row | BadRow]:
        if not columns:
            yield from ({} for _ in range(len(self)))
            return
        for file in self._files:
            yield from _list_rows(file.iter_batches(batch_size=BATCH, columns=list(columns)), self._labels)

    def is_unique(self, column: str) -> bool:
        from pyarrow import chunked_array

        tables = [file.read(columns=[column]) for file in self._files]
        return _is_unique(chunked_array([chunk for table in tables for chunk in table.column(column).chunks]))

    def holds_paths(self, columns: Collection[str]) -> bool:
        return _are_texts(self._files[0].schema_arrow, columns)


def _is_unique(column: Any) -> bool:
    from pyarrow import ArrowNotImplementedError, compute

    try:
        return bool(column.null_count == 0 and compute.count_distinct(column).as_py() == len(column))
    except ArrowNotImplementedError:  # a column of lists
        return False


def _are_texts(schema: Any, columns: Collection[str]) -> bool:
    """Whether columns hold text, or lists of it."""
    from pyarrow import types

    kinds = (schema.field(name).type for name in columns)
    flat = (kind.value_type if types.is_list(kind) else kind for kind in kinds)
    return all(types.is_string(kind) or types.is_large_string(kind) for kind in flat)


def open_parquet(paths: Sequence[Path], name: str, *, streaming: bool) -> ArrowRows | ParquetRows:
    """Parquet files with the same columns as one dataset.

    Raises:
        ConfigError: a file that is damaged, or has other columns than the first.
    """
    from pyarrow import ArrowInvalid, parquet

    try:
        schemas = [parquet.read_schema(path) for path in paths]
        for path, schema in zip(paths, schemas, strict=True):
            if schema.names != schemas[0].names:
                allowed = f"those of {paths[0].name} ({', '.join(schemas[0].names):.200})"
                given = f"{', '.join(schema.names):.200}"
                problem = f"data.source: {path.name}: has the columns {given}"
                raise ConfigError(f"{problem}; allowed: {allowed}", key="data.source")
        if streaming:
            return ParquetRows(name, paths, paths[0].parent)
        table = _load_parquet(paths)
    except (ArrowInvalid, OSError) as error:  # an OSError is also a type that is nested too deep
        problem = f"data.source: {name}: not a Parquet file that can be read: {error!s:.200}"
        raise ConfigError(problem, key="data.source") from error
    return ArrowRows(name, table, paths[0].parent, _find_labels(schemas[0]))


def _load_parquet(paths: Sequence[Path]) -> Any:
    """The table of Parquet files, in memory if they are small, else mapped from what `datasets` writes into a cache."""
    from pyarrow import concat_tables, parquet

    files = [parquet.ParquetFile(path) for path in paths]
    groups = [file.metadata.row_group(group) for file in files for group in range(file.num_row_groups)]
    if sum(group.total_byte_size for group in groups) <= IN_MEMORY:
        return concat_tables([file.read() for file in files], promote_options="permissive")
    from datasets import Dataset

    dataset = Dataset.from_parquet([str(path) for path in paths], cache_dir=str(make_cache_folder()))
    return dataset.with_format("arrow").data.table


def make_cache_folder() -> Path:
    """The folder for Arrow files made of Parquet files, readable by this user only."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "viewbox" / "arrow"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def open_arrow(path: Path, name: str) -> ArrowRows:
    """An Arrow file of either form, mapped into memory."""
    from pyarrow import ArrowInvalid, ipc, memory_map

    for open_form in (ipc.open_file, ipc.open_stream):
        try:
            table = open_form(memory_map(str(path))).read_all()
        except ArrowInvalid:
            continue
        return ArrowRows(name, table, path.parent, _find_labels(table.schema))
    raise ConfigError(f"data.source: {name}: not an Arrow file that can be read", key="data.source")


def _find_labels(schema: Any) -> dict[str, Sequence[str]]:
    """The class names that the library `datasets` wrote into a schema, by column."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, ValueError, TypeError):
        return {}
    found = {name: _find_names(feature) for name, feature in features.items()}
    return {name: names for name, names in found.items() if names}


def _find_names(feature: Any) -> Sequence[str]:
    """The names of a class label, or of a list of them."""
    if not isinstance(feature, dict):
        return ()
    if feature.get("_type") == "ClassLabel":
        names = feature.get("names") or ()
        return [str(name) for name in (names.values() if isinstance(names, dict) else names)]
    return _find_names(feature.get("feature")) if feature.get("_type") in ("Sequence", "List", "LargeList") else ()
