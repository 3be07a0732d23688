"""Rows as a Parquet file that `datasets` opens with its own features, images as images."""

import json
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from ...errors import ConfigError
from ...utils.files import open_regular
from ..store.layout import MAX_FILE

BATCH = 64  # rows that are in memory at once
MAX_GROUP = 2**30  # unpacked bytes of a row group that is read, in which a value that is repeated stands once
MAX_VALUES = 2**26  # of a row group
MAX_ROW = 2**28  # bytes of a row
BYTES_OF_VALUE = 64  # what a value takes beside its text
MAX_RATIO, FLOOR = 1000, 2**28  # bytes of all rows for each byte of the file, and what every file may have
_TEXT = {"dtype": "string", "_type": "Value"}
_NUMBER = {"dtype": "float64", "_type": "Value"}
_MESSAGES = {
    "_type": "List",
    "feature": {"role": _TEXT, "content": {"_type": "List", "feature": {"type": _TEXT, "text": _TEXT}}},
}
_IMAGES = {"_type": "List", "feature": {"_type": "Image"}}
FEATURES: dict[str, dict[str, Any]] = {
    "episodes": {
        **dict.fromkeys(("task", "environment"), _TEXT),
        "images": _IMAGES,
        "messages": _MESSAGES,
        **dict.fromkeys(("answer", "reference"), _TEXT),
        "reward": _NUMBER,
        **dict.fromkeys(("scores", "end_reason", "verdict", "looks", "record"), _TEXT),
    },
    "sft": {"messages": _MESSAGES, "images": _IMAGES},
}


def write_parquet(rows: Iterable[dict[str, Any]], kind: str, out: Path) -> None:
    """Write rows of a kind (`FEATURES`) into one file. Raise `ConfigError` without pyarrow."""
    pyarrow, parquet = _import_pyarrow()
    schema = pyarrow.schema([(name, _find_type(feature)) for name, feature in FEATURES[kind].items()])
    schema = schema.with_metadata({"huggingface": json.dumps({"info": {"features": FEATURES[kind]}})})
    rows = iter(rows)
    with parquet.ParquetWriter(out, schema, compression="zstd") as writer:
        while batch := list(islice(rows, BATCH)):
            writer.write_table(pyarrow.Table.from_pylist(batch, schema=schema))


def _import_pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ConfigError("Parquet needs pyarrow: pip install pyarrow") from error
    return pyarrow, parquet


def _find_type(feature: dict[str, Any]) -> Any:
    import pyarrow

    kind = feature.get("_type")
    if kind == "List":
        return pyarrow.list_(_find_type(feature["feature"]))
    if kind == "Image":
        return pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    if kind == "Value":
        return getattr(pyarrow, feature["dtype"])()
    return pyarrow.struct([(name, _find_type(inner)) for name, inner in feature.items()])


def list_rows(path: Path, needed: Collection[str] = ()) -> Iterator[dict[str, object]]:
    """Yield the rows of a Parquet file; raise `ConfigError` if it is none, or lacks a column that is needed."""
    pyarrow, parquet = _import_pyarrow()
    try:
        with open_regular(path, limit=MAX_FILE) as opened, parquet.ParquetFile(opened) as file:
            missing = set(needed) - set(file.schema_arrow.names)
            if missing:
                names = ", ".join(sorted(missing))
                raise ConfigError(f"{path}: has no column {names}; allowed: what viewbox export --to parquet writes")
            groups = [file.metadata.row_group(n) for n in range(file.num_row_groups)]
            largest = max((group.total_byte_size for group in groups), default=0)
            if largest > MAX_GROUP:
                raise ConfigError(f"{path}: a row group unpacks to {largest:,} bytes; allowed: {MAX_GROUP:,}")
            most = max((group.column(n).num_values for group in groups for n in range(group.num_columns)), default=0)
            if most > MAX_VALUES:
                raise ConfigError(f"{path}: a row group has {most:,} values; allowed: {MAX_VALUES:,}")
            yield from _list_bounded(path, _list_batches(opened, file.metadata))
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        problem = f"not a Parquet file that can be read ({error!s:.200}); allowed: one that pandas or DuckDB wrote"
        raise ConfigError(f"{path}: {problem}", key="file") from error


def _list_batches(opened: BinaryIO, metadata: Any) -> Iterator[Any]:
    """Yield the batches of each row group, none of two: every group has dictionaries, and encodings, of its own."""
    from pyarrow import parquet

    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        columns = [group.column(n) for n in range(group.num_columns)]
        texts = [one.path_in_schema for one in columns if one.physical_type == "BYTE_ARRAY" and not _is_plain(one)]
        opened.seek(0)
        with parquet.ParquetFile(opened, metadata=metadata, read_dictionary=texts) as file:
            yield from file.iter_batches(BATCH, row_groups=[number])


def _is_plain(column: Any) -> bool:
    """Return whether values are written out, as by DuckDB and Spark, and cannot be read as a dictionary."""
    return any(encoding.startswith("DELTA") for encoding in column.encodings)


def _list_bounded(path: Path, batches: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file whose texts are read as dictionaries: a value that is repeated a million times stands
    once."""
    left = max(FLOOR, MAX_RATIO * path.stat().st_size)
    for batch in batches:
        for number in range(batch.num_rows):
            row = batch.slice(number, 1)
            size = sum(_measure(column) for column in row.columns)
            left -= size
            if size > MAX_ROW or left < 0:
                allowed = f"{MAX_ROW:,} bytes a row, {MAX_RATIO} times the file"
                raise ConfigError(f"{path}: unpacks to too much; allowed: {allowed}")
            yield from row.to_pylist()


def _measure(array: Any) -> int:
    """Return the bytes of an array if every value is written out."""
    import pyarrow
    from pyarrow import compute

    if isinstance(array, pyarrow.DictionaryArray):
        sizes = compute.binary_length(array.dictionary).take(array.indices)
        return int(compute.sum(sizes).as_py() or 0) + BYTES_OF_VALUE * len(array)
    if isinstance(array, pyarrow.StructArray):
        return BYTES_OF_VALUE * len(array) + sum(_measure(field) for field in array.flatten())
    if isinstance(array, pyarrow.ListArray | pyarrow.LargeListArray | pyarrow.FixedSizeListArray):
        return BYTES_OF_VALUE * len(array) + _measure(array.flatten())
    return BYTES_OF_VALUE * len(array) + int(array.nbytes)
