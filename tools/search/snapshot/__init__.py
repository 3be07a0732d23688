"""A recorded snapshot of the literature: one SQLite file that answers every search without a network.

`SnapshotWriter` makes the file and `SnapshotSource` answers from it. `schema.py` is the file's layout, `connection.py`
opens a file that a stranger may have made, `words.py` and `source.py` turn words into an FTS5 query, `rows.py` checks
each row. The same file gives the same answers in every process, because nothing but the file and the query counts.
"""

from .source import SnapshotSource
from .writer import SnapshotWriter

__all__ = ["SnapshotSource", "SnapshotWriter"]
