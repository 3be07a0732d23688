"""Parquet files of a kilobyte that unpack to gigabytes: a value that is repeated is written once."""

import json
import resource

import pytest

from viewbox.errors import ConfigError
from viewbox.rollouts.exchange.importing import import_file

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

LARGE = 20 * 2**20
RECORD = json.dumps({"task": {"id": "a"}})


def repeat(value, count):
    return pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array([value]))


def list_structs(count=200, rows=1, **values):
    """`count` equal structs in the first row, none in the others."""
    structs = pa.StructArray.from_arrays([repeat(value, count) for value in values.values()], list(values))
    return pa.ListArray.from_arrays(pa.array([0] + [count] * rows, pa.int32()), structs)


BOMBS = {
    "a text in every row": lambda: {"record": repeat("x" * LARGE, 200), "images": list_structs(1, rows=200, bytes=b"")},
    "images of one row": lambda: {"record": [RECORD], "images": list_structs(bytes=b"x" * LARGE)},
    "empty images of one row": lambda: {"record": [RECORD], "images": list_structs(10**7, bytes=b"")},
    "messages of one row": lambda: {
        "record": [RECORD], "images": list_structs(1, bytes=b""),
        "messages": list_structs(role="user", content="x" * LARGE)},
}  # fmt: skip


@pytest.mark.parametrize("make", BOMBS.values(), ids=BOMBS)
def test_what_unpacks_to_too_much_is_refused_and_leaves_nothing(tmp_path, make):
    file = tmp_path / "bomb.parquet"
    settings = {"compression": "zstd", "dictionary_pagesize_limit": 2**30, "store_schema": False}
    parquet.write_table(pa.table(make()), file, **settings)
    assert file.stat().st_size < 200_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ConfigError, match="unpacks to too much"):
        import_file(file, "parquet", tmp_path / "out")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**20  # KB
    assert [path.name for path in tmp_path.iterdir()] == ["bomb.parquet"]


def test_more_values_than_fit_into_memory_are_refused_unread(tmp_path):
    file = tmp_path / "bomb.parquet"
    nulls = pa.ListArray.from_arrays(pa.array([0, 2**26 + 1], pa.int32()), pa.nulls(2**26 + 1, pa.int8()))
    parquet.write_table(pa.table({"record": [RECORD], "images": nulls}), file)
    assert file.stat().st_size < 200_000
    with pytest.raises(ConfigError, match="values; allowed"):
        import_file(file, "parquet", tmp_path / "out")


def test_a_prompt_that_a_whole_group_shares_is_read(tmp_path):
    file = tmp_path / "rows.parquet"
    records = [json.dumps({"task": {"id": f"{n}"}}) for n in range(4000)]
    table = {"prompt": repeat("q" * 5000, 4000), "record": records, "images": pa.nulls(4000, pa.list_(pa.binary()))}
    parquet.write_table(pa.table(table), file, compression="zstd")
    assert import_file(file, "parquet", tmp_path / "out").kept == 4000
