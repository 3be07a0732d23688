"""The connections of a process to one snapshot, and what they share."""

import os
import sqlite3
from pathlib import Path

from viewbox.envs.tools.search.snapshot.connection import READ_ERRORS, open_snapshot, refuse
from viewbox.envs.tools.search.snapshot.ranking import Index
from viewbox.envs.tools.search.snapshot.schema import ARTICLE_WEIGHTS, FIGURE_WEIGHTS, MAX_NAME, MAX_SYNONYMS
from viewbox.envs.tools.search.snapshot.words import Synonyms
from viewbox.errors import ConfigError, ToolFault
from viewbox.terminal import describe_error

_abandoned: list["ConnectionPool"] = []  # of parents: closing a parent's connection in its child is not safe


class ConnectionPool:
    """Connections that wait for the next search, the two indexes, and the synonyms.

    Raises:
        ConfigError: see `connection.open_snapshot`.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.process = path, os.getpid()
        connection = open_snapshot(path)
        try:
            self.synonyms = _read_synonyms(connection)
            counts = [_find_last(connection, table) for table in ("articles", "figures")]
            self._file = _identify(path)
        except (*READ_ERRORS, OSError) as error:
            connection.close()
            raise refuse(path, f"it is damaged ({describe_error(error, 200)})") from None
        self.articles = Index("article_index", "article_terms", ARTICLE_WEIGHTS, counts[0])
        self.figures = Index("figure_index", "figure_terms", FIGURE_WEIGHTS, counts[1])
        self._idle = [connection]

    @property
    def is_own(self) -> bool:
        """Whether this process opened it; a forked child must not use the connections of its parent."""
        return self.process == os.getpid()

    def abandon(self) -> None:
        """Keep the connections open and never use them."""
        _abandoned.append(self)

    def take(self) -> sqlite3.Connection:
        """A connection that nobody else uses.

        Raises:
            ToolFault: there was none, and the file is not the one that was opened first.
        """
        try:
            return self._idle.pop()
        except IndexError:
            pass
        try:
            connection = open_snapshot(self.path)
            if _identify(self.path) == self._file:
                return connection
            connection.close()
        except (ConfigError, OSError):
            pass
        raise ToolFault("the search failed: its snapshot was replaced while it was in use")

    def give_back(self, connection: sqlite3.Connection) -> None:
        """The next `take` may have the connection."""
        self._idle.append(connection)


def _identify(path: Path) -> tuple[int, ...]:
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _find_last(connection: sqlite3.Connection, table: str) -> int:
    """The largest id, which is the number of records; counting them would read the whole table."""
    row = connection.execute(f"SELECT id FROM {table} ORDER BY id DESC LIMIT 1").fetchone()
    return int(row[0]) if row else 0


def _read_synonyms(connection: sqlite3.Connection) -> Synonyms:
    classes: dict[int, list[str]] = {}
    statement = "SELECT class, phrase FROM synonyms ORDER BY class, rowid LIMIT ?"
    for number, phrase in connection.execute(statement, (MAX_SYNONYMS,)):
        if isinstance(number, int) and isinstance(phrase, str) and len(phrase) <= MAX_NAME:
            classes.setdefault(number, []).append(phrase)
    return Synonyms.build(list(classes.values()))
