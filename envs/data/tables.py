"""Rows of Arrow tables: Arrow and Parquet files, and datasets of the library `datasets`. Images stay undecoded.

Parquet of some size is written once into an Arrow file by the library `datasets`, where any row is found at once. With
`streaming` it is read where it is, one row group at a time.
"""

import json
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from cachetools import LRUCache

from ...errors import BadRow, ConfigError
from ...utils.files import get_cache_folder
from .rows import Row, Rows

KEY = "data.source"
IN_MEMORY = 2**28  # bytes of a Parquet file's columns up to which it is read into memory
KEPT_GROUPS = 2**28  # bytes of row groups that streaming keeps
BATCH = 1000  # rows that become Python objects together


class TableRows(Rows):
    """Rows with a schema of Arrow.

    Args:
        name: in messages.
        schema: of all rows. What the library `datasets` wrote into it names the classes of a column of numbers.
        folder: where image paths start.
    """

    def __init__(self, name: str, schema: Any, folder: Path | None) -> None:
        self.name, self.folder, self._schema = name, folder, schema
        self.columns: tuple[str, ...] = tuple(schema.names)
        self._labels = _find_labels(schema)

    @abstractmethod
    def _slice(self, number: int, columns: list[str]) -> Any:
        """Return these columns of a row, as a table."""

    @abstractmethod
    def _list_batches(self, columns: list[str]) -> Iterable[Any]:
        """Return these columns of all rows, in batches."""

    def read(self, number: int, columns: Collection[str]) -> Row:
        return next(self._list_rows(self._slice(number, list(columns)))) if columns else {}

    def scan(self, columns: Collection[str]) -> Iterator[Row | BadRow]:
        if not columns:
            yield from ({} for _ in range(len(self)))
            return
        for batch in self._list_batches(list(columns)):
            yield from self._list_rows(batch)

    def _list_rows(self, table: Any) -> Iterator[Row]:
        for row in table.to_pylist():
            yield {name: _name_labels(value, self._labels.get(name, ())) for name, value in row.items()}

    def is_unique(self, column: str) -> bool:
        from pyarrow import ArrowNotImplementedError, Table, compute

        values = Table.from_batches(self._list_batches([column]), self._schema.empty_table().select([column]).schema)
        try:
            return bool(values[0].null_count == 0 and compute.count_distinct(values[0]).as_py() == len(values))
        except ArrowNotImplementedError:  # a column of lists
            return False

    def holds_paths(self, columns: Collection[str]) -> bool:
        """Return whether columns hold text, or lists of it."""
        from pyarrow import types

        kinds = (self._schema.field(name).type for name in columns)
        flat = (kind.value_type if types.is_list(kind) else kind for kind in kinds)
        return all(types.is_string(kind) or types.is_large_string(kind) for kind in flat)


class ArrowRows(TableRows):
    """The rows of an Arrow table, which may be mapped from a file larger than memory."""

    def __init__(self, name: str, table: Any, folder: Path | None) -> None:
        super().__init__(name, table.schema, folder)
        self._table = table

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def _slice(self, number: int, columns: list[str]) -> Any:
        return self._table.select(columns).slice(number, 1)

    def _list_batches(self, columns: list[str]) -> Iterable[Any]:
        batches: Iterable[Any] = self._table.select(columns).to_batches(max_chunksize=BATCH)
        return batches


class ParquetRows(TableRows):
    """Parquet files read where they are: a row costs its row group, the last groups stay in memory.

    Args:
        name: in messages.
        files: open files, or paths; all with the same columns.
        folder: where image paths start.
    """

    def __init__(self, name: str, files: Sequence[Any], folder: Path | None) -> None:
        from pyarrow import parquet

        self._files = [parquet.ParquetFile(file, memory_map=isinstance(file, str | Path)) for file in files]
        super().__init__(name, self._files[0].schema_arrow, folder)
        self._groups = [(file, group) for file in self._files for group in range(file.num_row_groups)]
        self.starts = [0]
        for file, group in self._groups:
            self.starts.append(self.starts[-1] + file.metadata.row_group(group).num_rows)
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
                group = file.read_row_group(inside, columns=columns)
                if group.nbytes <= self._open.maxsize:
                    self._open[key] = group
        return group.slice(number - self.starts[place], 1)

    def _list_batches(self, columns: list[str]) -> Iterable[Any]:
        for file in self._files:
            yield from file.iter_batches(batch_size=BATCH, columns=columns)


def open_parquet(paths: Sequence[Path], name: str, *, streaming: bool) -> TableRows:
    """Open Parquet files with the same columns as one dataset.

    Raises:
        ConfigError: a file that is damaged, or has other columns than the first.
    """
    from pyarrow import ArrowInvalid, concat_tables, parquet

    try:
        schemas = [parquet.read_schema(path) for path in paths]
        for path, schema in zip(paths, schemas, strict=True):
            if schema.names != schemas[0].names:
                problem = f"{KEY}: {path.name}: has the columns {', '.join(schema.names):.200}"
                allowed = f"those of {paths[0].name} ({', '.join(schemas[0].names):.200})"
                raise ConfigError(f"{problem}; allowed: {allowed}", key=KEY)
        rows = ParquetRows(name, paths, paths[0].parent)
        if streaming:
            return rows
        if sum(file.metadata.row_group(group).total_byte_size for file, group in rows._groups) <= IN_MEMORY:
            table = concat_tables([file.read() for file in rows._files], promote_options="permissive")
        else:
            from datasets import Dataset

            files = [str(path) for path in paths]
            table = Dataset.from_parquet(files, cache_dir=str(make_cache_folder())).data.table
    except (ArrowInvalid, OSError) as error:  # an OSError is also a type that is nested too deep
        problem = f"{KEY}: {name}: not a Parquet file that can be read: {error!s:.200}"
        raise ConfigError(problem, key=KEY) from error
    return ArrowRows(name, table, paths[0].parent)


def make_cache_folder() -> Path:
    """Make the folder for Arrow files made of Parquet files, readable by this user only."""
    folder = get_cache_folder() / "arrow"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def open_arrow(paths: Sequence[Path], name: str) -> ArrowRows:
    """Open Arrow files of either form, mapped into memory, as one dataset."""
    from pyarrow import concat_tables

    return ArrowRows(name, concat_tables([_map_arrow(path) for path in paths]), paths[0].parent)


def _map_arrow(path: Path) -> Any:
    from pyarrow import ArrowInvalid, ipc, memory_map

    for open_form in (ipc.open_file, ipc.open_stream):
        try:
            return open_form(memory_map(str(path))).read_all()
        except ArrowInvalid:
            continue
    raise ConfigError(f"{KEY}: {path.name}: not an Arrow file that can be read", key=KEY)


def _find_labels(schema: Any) -> dict[str, Sequence[str]]:
    """Return the class names that the library `datasets` wrote into a schema, by column."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, ValueError, TypeError):
        return {}
    return {name: names for name, feature in features.items() if (names := _find_names(feature))}


def _find_names(feature: Any) -> Sequence[str]:
    """Return the names of a class label, or of a list of them."""
    if not isinstance(feature, dict):
        return ()
    if feature.get("_type") == "ClassLabel":
        names = feature.get("names") or ()
        return [str(name) for name in (names.values() if isinstance(names, dict) else names)]
    return _find_names(feature.get("feature")) if feature.get("_type") in ("Sequence", "List", "LargeList") else ()


def _name_labels(value: Any, names: Sequence[str]) -> Any:
    if isinstance(value, list) and names:
        return [_name_labels(item, names) for item in value]
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else value
