"""Answers of servers that are kept: in memory, or in a file if one is named, up to an age and a size.

The file is SQLite's, so that processes can share it. A file that cannot be used costs the answers in it and nothing
else: further ones are kept in memory. (`diskcache` stores pickles, which run as code when they are read.)
"""

import logging
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from threading import Lock
from typing import TypeVar

from cachetools import TLRUCache

log = logging.getLogger("viewbox.network")

T = TypeVar("T")

MAX_BYTES = 512 * 2**20  # of the answers in the file
MAX_MEMORY = 64 * 2**20  # bytes
LARGEST = 10 * 2**20  # bytes of an answer; larger ones are not kept
TIMEOUT = 30.0  # seconds for another process to finish writing
_SCHEMA = """
CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, at REAL NOT NULL, size INTEGER NOT NULL, value BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS by_age ON answers (at, size);
"""


class AnswerCache:
    """Bytes by key, in a file (None: in memory) for some days; the first answer that any process keeps stays. Calls
    block for a moment; threads may share it. `clock` gives the seconds since 1970.

    >>> cache = AnswerCache(None, days=1)
    >>> cache.put("a", b"1"), cache.put("a", b"2"), cache.get("a"), cache.get("b")
    (b'1', b'1', b'1', None)
    """

    def __init__(
        self,
        path: Path | None,
        days: float,
        *,
        max_bytes: int = MAX_BYTES,
        max_memory: int = MAX_MEMORY,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path, self.seconds, self.max_bytes, self.clock = path, days * 86400, max_bytes, clock
        self._memory: TLRUCache[str, bytes] = TLRUCache(
            max_memory, lambda key, kept, now: now + self.seconds, timer=clock, getsizeof=len
        )
        self._lock = Lock()

    def get(self, key: str) -> bytes | None:
        """Return the answer; None if there is none that is young enough."""
        if self.path is not None:
            return self._run(lambda file: self._read(file, key))
        with self._lock:
            answer: bytes | None = self._memory.get(key)
            return answer

    def put(self, key: str, value: bytes) -> bytes:
        """Keep an answer, and return the one that is kept; the oldest go if there are too many."""
        if len(value) > LARGEST:
            return value
        answer = None if self.path is None else self._run(lambda file: self._write(file, key, value))
        if self.path is None:
            with self._lock, suppress(ValueError):  # larger than the whole memory
                answer = self._memory.setdefault(key, value)
        return value if answer is None else answer

    def drop(self, key: str) -> None:
        self._run(lambda file: (file.execute("DELETE FROM answers WHERE key = ?", (key,)), file.execute("COMMIT")))

    def _read(self, file: sqlite3.Connection, key: str) -> bytes | None:
        now = self.clock()
        row = file.execute(
            "SELECT value FROM answers WHERE key = ? AND at > ? AND at <= ?", (key, now - self.seconds, now + 60)
        ).fetchone()
        return None if row is None or not isinstance(row[0], bytes) else row[0]

    def _write(self, file: sqlite3.Connection, key: str, value: bytes) -> bytes | None:
        now = self.clock()
        with file:
            file.execute("DELETE FROM answers WHERE at <= ? OR at > ?", (now - self.seconds, now + 60))
            file.execute("INSERT OR IGNORE INTO answers VALUES (?, ?, ?, ?)", (key, now, len(value), value))
            stored = self._read(file, key)
            (total,) = file.execute("SELECT TOTAL(size) FROM answers").fetchone()
            while total > self.max_bytes:
                oldest = file.execute("SELECT rowid, size FROM answers ORDER BY at LIMIT 1").fetchone()
                file.execute("DELETE FROM answers WHERE rowid = ?", oldest[:1])
                total -= oldest[1]
        return stored

    def _run(self, use: Callable[[sqlite3.Connection], T]) -> T | None:
        """Return what `use` makes of the file, opened for this once: a connection is no good in another thread or a
        fork."""
        assert self.path is not None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, timeout=TIMEOUT)) as file:
                file.executescript(_SCHEMA)
                return use(file)
        except (sqlite3.Error, OSError, ValueError, TypeError) as error:
            log.warning("%s is not used, and answers are kept in memory only: %s", self.path, error)
            self.path = None
            return None
