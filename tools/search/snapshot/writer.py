"""Makes a snapshot from articles and figures, in bounded memory; the file is whole or absent.

The same records with the same words about them give the same file, in whatever order they were added.

Records are kept on disk beside the snapshot as `FILE.part`, so that a stopped recording continues.
"""

import datetime
import os
import sqlite3
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from ....errors import ConfigError
from ....utils.files import sync_to_disk
from ..records import Article, FoundImage
from . import schema
from .kinds import list_kinds, write_kind_token
from .rows import check_picture, read_article, write_article, write_figure
from .synonyms import read_shipped_synonyms

_AT_ONCE: Final = 1_000  # articles that are indexed at a time
_PRAGMAS: Final = ("journal_mode=OFF", "synchronous=OFF", "locking_mode=EXCLUSIVE", "cache_size=-65536")
_NEWER_LATER: Final = {
    "articles": "year IS NOT NULL, year, length(pmid), pmid",
    "figures": "length(pmid), pmid, length(uid), uid",
}


class SnapshotWriter:
    """Collects records in a draft beside the file; `finish` makes the file of them.

    As a context manager, it finishes at the end of the block; after an error the draft is kept, and a new writer for
    the same file continues it.

    Args:
        path: of the snapshot; an older one is replaced when the new one is whole.
        note: what the records are, for people: "recorded from PubMed", or "written for tests; not real articles".
        license: under which the texts and pictures may be used.
        made_by: the command or script.
        recorded: the date as YYYY-MM-DD; default: today. What counts as recent depends on its year.
        synonyms: classes of phrases that mean the same; default: the table that is shipped.

    Raises:
        ConfigError: the date is none, or the draft cannot be used (see `Draft`).

    >>> import tempfile
    >>> from viewbox.tools.search.records import ArticleQuery
    >>> from viewbox.tools.search.snapshot import SnapshotSource
    >>> path = Path(tempfile.mkdtemp(), "small.sqlite")
    >>> with SnapshotWriter(path, note="written for this example", license="CC0-1.0") as writer:
    ...     writer.add_article(Article("1", "Nodules on computed tomography"))
    ...     writer.add_article(Article("2", "Fractures of the wrist"))
    >>> [article.pmid for article in SnapshotSource(path).find_articles(ArticleQuery("a nodule in CT"))]
    ['1']
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        note: str,
        license: str,
        made_by: str = "",
        recorded: str | None = None,
        synonyms: Sequence[Sequence[str]] | None = None,
    ) -> None:
        self.path = Path(path)
        self.recorded = _check_date(recorded or datetime.date.today().isoformat())
        self.meta = {"format": str(schema.FORMAT_VERSION), "note": note, "license": license, "made_by": made_by}
        self.synonyms = read_shipped_synonyms() if synonyms is None else synonyms
        self.draft = Draft(self.path.with_name(f"{self.path.name}.part"))

    def add_article(self, article: Article) -> None:
        """Add an article, in the place of an earlier one with its PMID; raises `BadRecord` if it cannot be stored."""
        self.draft.add_article(article)

    def add_image(self, found: FoundImage, content: bytes) -> None:
        """Add a figure with its file, in the place of an earlier one with its `uid`.

        Args:
            found: the figure.
            content: a PNG or JPEG of at most 10 MiB; it is not decoded.

        Raises:
            BadRecord: a field or the file cannot be stored.
        """
        self.draft.add_image(found, content)

    def has_image(self, uid: str) -> bool:
        """Whether the figure was added before."""
        return self.draft.has_image(uid)

    def is_recorded(self, key: str) -> bool:
        """Whether `mark_recorded` was called for the key, by this writer or by a stopped one before it."""
        return self.draft.is_done(key)

    def mark_recorded(self, key: str) -> None:
        """Remember the key, and keep what was added so far, also if this process is killed."""
        self.draft.mark_done(key)

    def count(self) -> tuple[int, int]:
        """The articles and figures that were added."""
        return self.draft.count()

    def close(self) -> None:
        """Keep the draft, if `finish` has not removed it, for another writer."""
        self.draft.close()

    def finish(self) -> None:
        """Write the snapshot and remove the draft."""
        self.draft.commit()
        self.draft.close()
        temporary = self.path.with_name(f"{uuid.uuid4().hex}.tmp")
        try:
            self._write(temporary)
            sync_to_disk(temporary)
            os.replace(temporary, self.path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_to_disk(self.path.parent)
        self.draft.path.unlink()

    def __enter__(self) -> "SnapshotWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.finish()
        else:
            self.close()

    def _write(self, path: Path) -> None:
        connection = sqlite3.connect(path, isolation_level=None)
        try:
            for pragma in (*_PRAGMAS, f"application_id={schema.APPLICATION_ID}"):
                connection.execute(f"PRAGMA {pragma}")
            connection.execute(f"PRAGMA user_version={schema.FORMAT_VERSION}")
            connection.execute("ATTACH ? AS draft", (str(self.draft.path),))
            connection.execute("BEGIN")
            for sql in schema.SCHEMA.values():
                connection.execute(sql)
            self._copy_records(connection)
            self._write_words(connection)
            _index_articles(connection, int(self.recorded[:4]))
            _index_figures(connection)
            connection.execute("COMMIT")
        finally:
            connection.close()

    def _copy_records(self, connection: sqlite3.Connection) -> None:
        for table, columns in (("articles", schema.ARTICLE_COLUMNS), ("figures", schema.FIGURE_COLUMNS)):
            names = ", ".join(columns)
            connection.execute(
                f"INSERT INTO main.{table}({names}) SELECT {names} FROM draft.{table} ORDER BY {_NEWER_LATER[table]}"
            )
        connection.execute(
            "INSERT INTO main.pictures SELECT main.figures.id, content FROM main.figures"
            " JOIN draft.pictures ON draft.pictures.uid = main.figures.uid ORDER BY main.figures.id"
        )

    def _write_words(self, connection: sqlite3.Connection) -> None:
        meta = {**self.meta, "recorded": self.recorded}
        for table in ("articles", "figures"):
            meta[table] = str(connection.execute(f"SELECT count(*) FROM main.{table}").fetchone()[0])
        connection.executemany("INSERT INTO meta VALUES (?, ?)", sorted(meta.items()))
        pairs = [(number, phrase) for number, phrases in enumerate(self.synonyms) for phrase in phrases]
        connection.executemany("INSERT INTO synonyms VALUES (?, ?)", pairs)


def _index_articles(connection: sqlite3.Connection, recorded_year: int) -> None:
    columns = ", ".join(schema.ARTICLE_COLUMNS)
    statement = f"SELECT {columns} FROM main.articles WHERE id > ? ORDER BY id LIMIT {_AT_ONCE}"
    last = 0
    while rows := connection.execute(statement, (last,)).fetchall():
        indexed = []
        for number, article in enumerate(map(read_article, rows), last + 1):
            kinds = " ".join(map(write_kind_token, list_kinds(article, recorded_year)))
            indexed.append((number, article.title, "\n".join(article.mesh), article.abstract, kinds))
        connection.executemany(
            "INSERT INTO article_index(rowid, title, mesh, abstract, kinds) VALUES (?, ?, ?, ?, ?)", indexed
        )
        last += len(rows)
    _complete_index(connection, "article_index", "article_terms")


def _index_figures(connection: sqlite3.Connection) -> None:
    """Where modality or body part is not known, as with most figures of Open-i, caption and source may name it."""
    words = "caption || char(10) || source"
    values = [f"CASE {name} WHEN '' THEN {words} ELSE {name} END" for name in ("modality", "body_part")]
    connection.execute(
        "INSERT INTO figure_index(rowid, caption, source, modality, body_part)"
        f" SELECT id, caption, source, {', '.join(values)} FROM main.figures ORDER BY id"
    )
    _complete_index(connection, "figure_index", "figure_terms")


def _complete_index(connection: sqlite3.Connection, index: str, terms: str) -> None:
    """Merge the parts of an index, and count its frequent words."""
    connection.execute(f"INSERT INTO {index}({index}) VALUES ('optimize')")
    connection.execute(f"CREATE VIRTUAL TABLE temp.{index}_words USING fts5vocab(main, {index}, row)")
    statement = f"INSERT INTO {terms} SELECT term, doc FROM temp.{index}_words WHERE doc > ?"
    connection.execute(statement, (schema.TERM_RECORDS,))
    connection.execute(f"DROP TABLE temp.{index}_words")


def _check_date(text: str) -> str:
    try:
        return datetime.date.fromisoformat(text).isoformat()
    except ValueError:
        raise ConfigError(
            f"recorded = {text!r:.80}; allowed: a date as YYYY-MM-DD", key="recorded", given=text
        ) from None


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
