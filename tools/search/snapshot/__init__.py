"""A recorded snapshot of the literature: one SQLite file that answers every search without a network.

`examples/snapshot.py` makes the file, `SnapshotSource` answers from it. `schema.py` is its layout,
`words.py` and `source.py` turn words into an FTS5 query. The same file gives the same answers in every process, because
nothing but the file and the query counts.
"""

from .source import SnapshotSource

__all__ = ["SnapshotSource"]
