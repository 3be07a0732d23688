"""The replies of a judge by the hash of the request: in memory, and on disk if a folder is given.

SQLite keeps the file consistent between threads and processes. If two writers use the same key, the first reply stays
and both get it, so all agree on the score. A file that cannot be used is logged once and then ignored.
"""

import logging
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from threading import Lock

from cachetools import LRUCache

from ...errors import ConfigError
from ...utils.files import expand_path
from ...utils.sanitize import replace_surrogates

log = logging.getLogger("viewbox.judge")

FILE = "judge.sqlite"
MAX_IN_MEMORY = 65_536  # replies; the least recently used are dropped first
_TIMEOUT = 30.0  # seconds for another process to finish writing
_TABLE = "CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, reply TEXT NOT NULL) WITHOUT ROWID"


def find_cache_folder(name: object) -> object:
    """Return the folder of a judge's replies: inside the user's cache folder if a config names it.

    Args:
        name: text is the name of a folder in there, because a config may be somebody else's. Anything else (a `Path`,
            which only a program can give, or None) is returned as it is.

    Raises:
        ConfigError: the name leads out of the user's cache folder.

    >>> find_cache_folder("reports").relative_to(find_cache_root()).as_posix()
    'reports'
    """
    if not isinstance(name, str):
        return name
    root = find_cache_root().resolve()
    try:
        folder = (root / expand_path(name)).resolve()
        inside = name.strip() and folder != root and folder.is_relative_to(root)
    except (OSError, ValueError, RuntimeError):  # a zero byte in it, a circle of links
        inside = False
    if not inside:
        raise ConfigError(
            f"cache = {name!r:.200}: replies are kept in your cache folder; allowed: the name of a folder in {root}",
            key="cache",
            given=name,
        )
    return folder


def find_cache_root() -> Path:
    """Return where all judges' replies are kept: `$XDG_CACHE_HOME/viewbox/judge`, else in the system's folder for
    caches."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(given):
        caches = Path(given)
    elif sys.platform == "darwin":
        caches = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        caches = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        caches = Path.home() / ".cache"
    return caches / "viewbox" / "judge"


class ReplyCache:
    """Replies by key, kept in `folder`/judge.sqlite, or (None) in memory only. Safe for threads and processes.

    >>> cache = ReplyCache()
    >>> cache.put("a", "first"), cache.put("a", "second"), cache.get("a"), cache.get("b")
    ('first', 'first', 'first', None)
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.path = None if folder is None else Path(folder) / FILE
        self._in_memory: LRUCache[str, str] = LRUCache(MAX_IN_MEMORY)
        self._lock = Lock()

    def get(self, key: str) -> str | None:
        """Return the reply stored under `key`, or None."""
        with self._lock:
            reply = self._in_memory.get(key)
        path = self.path
        if reply is None and path is not None and path.is_file():
            reply = self._access_disk(path, key, None)
        return None if reply is None else self._store_in_memory(key, reply)

    def put(self, key: str, reply: str) -> str:
        """Store `reply`; returns the stored reply, which is an earlier one if another writer was faster."""
        path = self.path
        kept = None if path is None else self._access_disk(path, key, reply)
        return self._store_in_memory(key, reply if kept is None else kept)

    def _store_in_memory(self, key: str, reply: str) -> str:
        with self._lock:
            return self._in_memory.setdefault(key, reply)

    def _access_disk(self, path: Path, key: str, reply: str | None) -> str | None:
        """Insert `reply` into the file if it is new; returns the reply in the file."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(path, timeout=_TIMEOUT)) as file, file:
                file.execute(_TABLE)
                if reply is not None:
                    file.execute("INSERT OR IGNORE INTO replies VALUES (?, ?)", (key, replace_surrogates(reply)))
                row = file.execute("SELECT reply FROM replies WHERE key = ?", (key,)).fetchone()
        except (sqlite3.Error, OSError) as error:
            log.warning("%s: the judge's replies are kept in memory only: %s", path, error)
            self.path = None
            return None
        return None if row is None else str(row[0])
