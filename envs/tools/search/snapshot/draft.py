"""The records of a snapshot that is being made, kept on disk so that a stopped recording continues.

The draft stands beside the snapshot as `FILE.part`. Only one process may have it open.
"""

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from viewbox.envs.tools.search.records import Article, FoundImage
from viewbox.envs.tools.search.snapshot import schema
from viewbox.envs.tools.search.snapshot.rows import check_picture, write_article, write_figure
from viewbox.errors import ConfigError

_DRAFT_ID: Final = 0x56425344  # "VBSD"
_TABLES: Final = (
    schema.SCHEMA["articles"].replace("pmid TEXT NOT NULL", "pmid TEXT NOT NULL UNIQUE"),
    schema.SCHEMA["figures"].replace("uid TEXT NOT NULL", "uid TEXT NOT NULL UNIQUE"),
    "CREATE TABLE pictures(uid TEXT PRIMARY KEY, content BLOB NOT NULL)",
    "CREATE TABLE done(query TEXT PRIMARY KEY) WITHOUT ROWID",
)
_UNCOMMITTED: Final = 2_000  # records that a killed process loses at most


class Draft:
    """Articles, figures and the queries that are answered; the latest record of an identifier counts.

    Raises:
        ConfigError: the file is no draft of this version, another process has it open, or it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.closed = path, False
        try:
            self.connection = sqlite3.connect(path, isolation_level=None, timeout=0.1, check_same_thread=False)
            try:
                self._prepare()
            except BaseException:
                self.connection.close()
                raise
        except sqlite3.Error as error:
            reason = "another process is making this snapshot" if "locked" in str(error) else str(error)
            raise ConfigError(f"snapshot draft {path}: {reason}", key="out", given=str(path)) from None
        self._uncommitted = 0

    def add_article(self, article: Article) -> None:
        """Raises `BadRecord` if a field cannot be stored."""
        self._insert("articles", schema.ARTICLE_COLUMNS, write_article(article))

    def add_image(self, found: FoundImage, content: bytes) -> None:
        """Raises `BadRecord` if a field cannot be stored, or the picture is no PNG or JPEG, or too large."""
        row = write_figure(found)
        self._insert("pictures", ("uid", "content"), (row[0], check_picture(content, schema.MAX_PICTURE)))
        self._insert("figures", schema.FIGURE_COLUMNS, row)

    def has_image(self, uid: str) -> bool:
        return bool(self.connection.execute("SELECT 1 FROM figures WHERE uid = ?", (uid,)).fetchone())

    def is_done(self, query: str) -> bool:
        """Whether the answers to a query are all in the draft."""
        return bool(self.connection.execute("SELECT 1 FROM done WHERE query = ?", (query,)).fetchone())

    def mark_done(self, query: str) -> None:
        """Keep what was added so far, also if the process is killed, and that the query is answered."""
        self.connection.execute("INSERT OR IGNORE INTO done VALUES (?)", (query,))
        self.commit()

    def count(self) -> tuple[int, int]:
        """(articles, figures)"""
        (articles,) = self.connection.execute("SELECT count(*) FROM articles").fetchone()
        (figures,) = self.connection.execute("SELECT count(*) FROM figures").fetchone()
        return articles, figures

    def commit(self) -> None:
        self.connection.execute("COMMIT")
        self.connection.execute("BEGIN EXCLUSIVE")
        self._uncommitted = 0

    def close(self) -> None:
        """Keep the draft for another time; closing twice does nothing."""
        if not self.closed:
            self.closed = True
            self.connection.execute("COMMIT")
            self.connection.close()

    def _prepare(self) -> None:
        self.connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        self.connection.execute("PRAGMA cache_size=-32768")
        self.connection.execute("BEGIN EXCLUSIVE")
        (known,) = self.connection.execute("PRAGMA application_id").fetchone()
        (version,) = self.connection.execute("PRAGMA user_version").fetchone()
        (objects,) = self.connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if objects and (known, version) != (_DRAFT_ID, schema.FORMAT_VERSION):
            text = f"{self.path} is not a draft of a snapshot of format {schema.FORMAT_VERSION}; remove or rename it"
            raise ConfigError(text, key="out", given=str(self.path))
        if not objects:
            self.connection.execute(f"PRAGMA application_id={_DRAFT_ID}")
            self.connection.execute(f"PRAGMA user_version={schema.FORMAT_VERSION}")
            for sql in _TABLES:
                self.connection.execute(sql)

    def _insert(self, table: str, columns: Iterable[str], row: tuple[Any, ...]) -> None:
        marks = ", ".join("?" * len(row))
        self.connection.execute(f"INSERT OR REPLACE INTO {table}({', '.join(columns)}) VALUES ({marks})", row)
        self._uncommitted += 1
        if self._uncommitted >= _UNCOMMITTED:
            self.commit()
