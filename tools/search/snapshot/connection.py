"""Opens a snapshot for reading, as a file that a stranger may have made.

SQLite's own advice for such files (sqlite.org/security.html, "Untrusted SQLite Database Files") is followed: nothing of
the schema is trusted, and only objects that `schema.py` names may exist, so there is no trigger, view or generated
column. Rows are limited in bytes, and a statement in steps.
"""

import re
import sqlite3
from pathlib import Path
from typing import Final
from urllib.parse import quote

from ....errors import ConfigError
from ....utils.terminal import describe_error
from .schema import APPLICATION_ID, FORMAT_VERSION, MAX_ROW, SCHEMA, SHADOWS

MAX_STEPS: Final = 400_000_000  # of SQLite's virtual machine, for a search: seconds
NO_SNAPSHOT: Final = "it is not a snapshot; allowed: a file that examples/snapshot.py wrote"
_STEPS_TO_OPEN: Final = 5_000_000  # reading the schema is one of the things that take steps
_STEPS_AT_ONCE: Final = 100_000
# What reading a damaged file raises; Python decodes SQLite's messages strictly, and they may quote the file.
READ_ERRORS: Final = (sqlite3.Error, UnicodeDecodeError, MemoryError)
_PRAGMAS: Final = ("trusted_schema=OFF", "query_only=ON", "cell_size_check=ON", "mmap_size=0", "temp_store=MEMORY")


def open_snapshot(path: Path) -> sqlite3.Connection:
    """Return a connection to a snapshot that can only read it.

    Raises:
        ConfigError: the file is missing, not a snapshot, of another version, or damaged, or this SQLite has no FTS5.
    """
    try:
        if not path.exists():
            raise refuse(path, "there is no such file")
        if not path.is_file():
            raise refuse(path, "it is not a regular file")
        address = f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"
        connection = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)
    except (sqlite3.Error, OSError, ValueError) as error:
        raise refuse(path, f"it cannot be opened ({describe_error(error, 200)})") from None
    try:
        limit_steps(connection, _STEPS_TO_OPEN)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_ROW)
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
        connection.text_factory = _decode
        _check_version(connection, path)
        _check_schema(connection, path)
        for index in ("article_index", "figure_index"):
            connection.execute(f"SELECT rowid FROM {index} LIMIT 1").fetchall()
    except READ_ERRORS as error:
        connection.close()
        if "no such module" in str(error):
            raise refuse(path, "the SQLite of this Python has no FTS5, with which a snapshot is searched") from None
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB:
            raise refuse(path, NO_SNAPSHOT) from None
        raise refuse(path, f"it is damaged ({describe_error(error, 200)})") from None
    except BaseException:
        connection.close()
        raise
    return connection


def refuse(path: Path, reason: str) -> ConfigError:
    """Return the error for a snapshot that cannot be used."""
    return ConfigError(f"snapshot {path}: {reason}", key="snapshot")


def _check_version(connection: sqlite3.Connection, path: Path) -> None:
    (application,), (version,) = (
        connection.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
    )
    if application != APPLICATION_ID:
        raise refuse(path, NO_SNAPSHOT)
    if version != FORMAT_VERSION:
        raise refuse(path, f"it is of format {version}; this viewbox reads format {FORMAT_VERSION}: build it again")


def limit_steps(connection: sqlite3.Connection, steps: int = MAX_STEPS) -> None:
    """Interrupt what runs on a connection after so many steps in all, with `sqlite3.OperationalError`."""
    left = steps

    def count() -> bool:
        nonlocal left
        left -= _STEPS_AT_ONCE
        return left <= 0

    connection.set_progress_handler(count, _STEPS_AT_ONCE)


def _decode(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def _check_schema(connection: sqlite3.Connection, path: Path) -> None:
    """Raise `ConfigError` unless the schema is exactly that of `schema.py`."""
    expected = {**SCHEMA, **SHADOWS}
    found: dict[str, str] = {}
    for name, sql in connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL LIMIT 1000"):
        if not isinstance(name, str) or name not in expected or name in found:
            raise refuse(path, f"it is not a snapshot: its schema holds {str(name)[:80]!r}")
        found[name] = sql if isinstance(sql, str) else ""
    for name, sql in expected.items():
        if name not in found:
            raise refuse(path, f"it is not a snapshot: its schema has no {name!r}")
        if _squeeze(found[name]) != _squeeze(sql):
            raise refuse(path, f"it is not a snapshot: its schema has another {name!r}")


def _squeeze(sql: str) -> str:
    return re.sub(r"\s+", " ", sql).strip()
