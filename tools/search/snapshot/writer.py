"""Makes a snapshot from articles and figures, in bounded memory; the file is whole or absent.

The same records with the same words about them give the same file, in whatever order they were added.
"""

import datetime
import os
import sqlite3
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from ....errors import ConfigError
from ....utils.files import sync_to_disk
from ..records import Article, FoundImage
from . import schema
from .rows import check_picture, list_kinds, read_article, write_article, write_figure, write_kind_token

_AT_ONCE: Final = 1_000  # articles that are indexed at a time
_PRAGMAS: Final = ("journal_mode=OFF", "synchronous=OFF", "locking_mode=EXCLUSIVE", "cache_size=-65536")
_NEWER_LATER: Final = {
    "articles": "year IS NOT NULL, year, length(pmid), pmid",
    "figures": "length(pmid), pmid, length(uid), uid",
}
# Where records wait until all are there and can be numbered; the latest record of an identifier counts.
_DRAFT: Final = (
    schema.SCHEMA["articles"].replace("articles(", "draft.articles(").replace("pmid TEXT", "pmid TEXT UNIQUE", 1),
    schema.SCHEMA["figures"].replace("figures(", "draft.figures(").replace("uid TEXT", "uid TEXT UNIQUE", 1),
    "CREATE TABLE draft.pictures(uid TEXT PRIMARY KEY, content BLOB NOT NULL)",
)


class SnapshotWriter:
    """Collects records in a hidden folder beside the file; `finish` makes the file of them.

    As a context manager, it finishes at the end of the block, unless there was an error.

    Args:
        path: of the snapshot; an older one is replaced when the new one is whole.
        note: what the records are, for people: "recorded from PubMed", or "written for tests; not real articles".
        license: under which the texts and pictures may be used.
        made_by: the command or script.
        recorded: the date as YYYY-MM-DD; default: today. What counts as recent depends on its year.

    Raises:
        ConfigError: the date is none, or nothing can be written there.

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
    ) -> None:
        self.path = Path(path)
        recorded = _check_date(recorded or datetime.date.today().isoformat())
        self.meta = {"format": str(schema.FORMAT_VERSION), "note": note, "license": license, "made_by": made_by}
        self.meta["recorded"] = recorded
        try:
            self._folder = tempfile.TemporaryDirectory(prefix=f".{self.path.name}-", dir=self.path.parent)
        except OSError as error:
            raise ConfigError(f"snapshot {path}: {error.strerror}", key="out", given=str(path)) from None
        self._file = sqlite3.connect(Path(self._folder.name, "snapshot"), isolation_level=None, check_same_thread=False)
        for pragma in (*_PRAGMAS, f"application_id={schema.APPLICATION_ID}", f"user_version={schema.FORMAT_VERSION}"):
            self._file.execute(f"PRAGMA {pragma}")
        self._file.execute("ATTACH ? AS draft", (str(Path(self._folder.name, "draft")),))
        self._file.execute("PRAGMA draft.journal_mode=OFF")
        self._file.execute("BEGIN")
        for sql in _DRAFT:
            self._file.execute(sql)

    def add_article(self, article: Article) -> None:
        """Add an article, in the place of an earlier one with its PMID; raises `BadRecord` if it cannot be stored."""
        self._insert("articles", schema.ARTICLE_COLUMNS, write_article(article))

    def add_image(self, found: FoundImage, content: bytes) -> None:
        """Add a figure with its file, in the place of an earlier one with its `uid`.

        Args:
            found: the figure.
            content: a PNG or JPEG of at most 10 MiB; it is not decoded.

        Raises:
            BadRecord: a field or the file cannot be stored.
        """
        row = write_figure(found)
        self._insert("pictures", ("uid", "content"), (row[0], check_picture(content, schema.MAX_PICTURE)))
        self._insert("figures", schema.FIGURE_COLUMNS, row)

    def has_image(self, uid: str) -> bool:
        """Whether the figure was added before."""
        return bool(self._file.execute("SELECT 1 FROM draft.figures WHERE uid = ?", (uid,)).fetchone())

    def count(self) -> tuple[int, int]:
        """The articles and figures that were added."""
        return self._count("draft.articles"), self._count("draft.figures")

    def close(self) -> None:
        """Remove what `finish` has not made a file of."""
        self._file.close()
        self._folder.cleanup()

    def finish(self) -> None:
        """Write the snapshot."""
        try:
            for sql in schema.SCHEMA.values():
                self._file.execute(sql)
            self._copy_records()
            _index_articles(self._file, int(self.meta["recorded"][:4]))
            _index_figures(self._file)
            self._file.execute("COMMIT")
            self._file.close()
            whole = Path(self._folder.name, "snapshot")
            sync_to_disk(whole)
            os.replace(whole, self.path)
            sync_to_disk(self.path.parent)
        finally:
            self.close()

    def __enter__(self) -> "SnapshotWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.finish()
        else:
            self.close()

    def _insert(self, table: str, columns: Iterable[str], row: tuple[Any, ...]) -> None:
        marks = ", ".join("?" * len(row))
        self._file.execute(f"INSERT OR REPLACE INTO draft.{table}({', '.join(columns)}) VALUES ({marks})", row)

    def _count(self, table: str) -> int:
        (found,) = self._file.execute(f"SELECT count(*) FROM {table}").fetchone()
        return int(found)

    def _copy_records(self) -> None:
        for table, columns in (("articles", schema.ARTICLE_COLUMNS), ("figures", schema.FIGURE_COLUMNS)):
            names = ", ".join(columns)
            self._file.execute(
                f"INSERT INTO main.{table}({names}) SELECT {names} FROM draft.{table} ORDER BY {_NEWER_LATER[table]}"
            )
            self.meta[table] = str(self._count(f"main.{table}"))
        self._file.execute(
            "INSERT INTO main.pictures SELECT main.figures.id, content FROM main.figures"
            " JOIN draft.pictures ON draft.pictures.uid = main.figures.uid ORDER BY main.figures.id"
        )
        self._file.executemany("INSERT INTO meta VALUES (?, ?)", sorted(self.meta.items()))


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
    connection.execute("INSERT INTO article_index(article_index) VALUES ('optimize')")


def _index_figures(connection: sqlite3.Connection) -> None:
    """Where modality or body part is not known, as with most figures of Open-i, caption and source may name it."""
    words = "caption || char(10) || source"
    values = [f"CASE {name} WHEN '' THEN {words} ELSE {name} END" for name in ("modality", "body_part")]
    connection.execute(
        "INSERT INTO figure_index(rowid, caption, source, modality, body_part)"
        f" SELECT id, caption, source, {', '.join(values)} FROM main.figures ORDER BY id"
    )
    connection.execute("INSERT INTO figure_index(figure_index) VALUES ('optimize')")


def _check_date(text: str) -> str:
    try:
        return datetime.date.fromisoformat(text).isoformat()
    except ValueError:
        raise ConfigError(
            f"recorded = {text!r:.80}; allowed: a date as YYYY-MM-DD", key="recorded", given=text
        ) from None
