"""What a judge has said, by the hash of everything it was asked: in memory, and on disk where a folder is given.

SQLite keeps the file whole between threads and processes. Of two that write one key the first wins and both read that,
so all agree on the number. A file that cannot be used is said once and done without.
"""

import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from threading import Lock

from cachetools import LRUCache

log = logging.getLogger("viewbox.judge")

FILE = "judge.sqlite"
IN_MEMORY = 65_536  # replies; the least recently used go first
_PATIENCE = 30.0  # seconds for another process to finish writing
_TABLE = "CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, reply TEXT NOT NULL) WITHOUT ROWID"


class ReplyCache:
    """Replies by key, kept in `folder`/judge.sqlite, or (None) in memory only. Safe for threads and processes.

    >>> cache = ReplyCache()
    >>> cache.put("a", "first"), cache.put("a", "second"), cache.get("a"), cache.get("b")
    ('first', 'first', 'first', None)
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.path = None if folder is None else Path(folder) / FILE
        self._near: LRUCache[str, str] = LRUCache(IN_MEMORY)
        self._lock = Lock()

    def get(self, key: str) -> str | None:
        """The reply kept under `key`."""
        with self._lock:
            found = self._near.get(key)
        path = self.path
        if found is None and path is not None and path.is_file():
            found = self._on_disk(path, key, None)
        return None if found is None else self._remember(key, found)

    def put(self, key: str, reply: str) -> str:
        """Keeps `reply`; returns what is kept, which is another where somebody was faster."""
        path = self.path
        kept = None if path is None else self._on_disk(path, key, reply)
        return self._remember(key, reply if kept is None else kept)

    def _remember(self, key: str, reply: str) -> str:
        with self._lock:
            return self._near.setdefault(key, reply)

    def _on_disk(self, path: Path, key: str, reply: str | None) -> str | None:
        """The reply in the file, after `reply` was offered to it."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(path, timeout=_PATIENCE)) as file, file:
                file.execute(_TABLE)
                if reply is not None:
                    file.execute("INSERT OR IGNORE INTO replies VALUES (?, ?)", (key, reply))
                row = file.execute("SELECT reply FROM replies WHERE key = ?", (key,)).fetchone()
        except (sqlite3.Error, OSError) as error:
            log.warning("%s: the judge's replies are kept in memory only: %s", path, error)
            self.path = None
            return None
        return None if row is None else str(row[0])
