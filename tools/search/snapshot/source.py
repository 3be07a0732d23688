"""Answers searches from a snapshot. The same file and query give the same answer, in every thread and process.

Records are ranked for the groups of a query by FTS5's BM25, which takes about a microsecond for each record that
matches. Records with equal scores are ordered by id, the newest first.
"""

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from ....errors import ToolError, ToolFault, show_json
from ....utils import concurrency
from ....utils.terminal import describe_error
from ..records import SEARCH_TYPES, Article, ArticleQuery, FoundImage, ImageQuery
from . import schema
from .connection import READ_ERRORS, limit_steps, open_snapshot
from .rows import BadRecord, check_picture, read_article, read_figure, write_kind_token
from .words import Group, get_synonyms, quote, read_query

R = TypeVar("R", Article, FoundImage)

MAX_LIMIT: Final = 100  # records of an answer
SPARE: Final = 20  # more records are looked at than asked for: a bad row must not shorten the answer
COLUMNS: Final[Mapping[str, tuple[Sequence[str], Mapping[str, float]]]] = {
    "article": (schema.ARTICLE_COLUMNS, schema.ARTICLE_WEIGHTS),
    "figure": (schema.FIGURE_COLUMNS, schema.FIGURE_WEIGHTS),
}  # of a kind, and the weights of those of its index
DIGITS: Final = 6  # of a score that count; the last ones differ between machines


@dataclass(frozen=True)
class SnapshotInfo:
    """What a snapshot says about itself: `meta`, and the first and last year of its articles."""

    meta: dict[str, str]
    years: tuple[int, int] | None


class SnapshotSource:
    """A `SearchSource` that answers from the file that `examples/snapshot.py` wrote.

    The file is opened for each search, which takes a millisecond: any thread and process may ask. One that was
    replaced or written since the first search answers no more: a run has one literature.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._first: tuple[int, ...] | None = None  # which file the first search found

    def prepare(self) -> None:
        """Open the file."""
        with self._connect():
            pass

    async def search_articles(self, query: ArticleQuery) -> Sequence[Article]:
        """Return the articles found, the best first; none for a query without a word and a search type."""
        return await concurrency.run_in_thread(self.find_articles, query)

    async def search_images(self, query: ImageQuery) -> Sequence[FoundImage]:
        """Return the figures found, the best first; none for a query without a word, modality and body part."""
        return await concurrency.run_in_thread(self.find_images, query)

    async def load_image(self, found: FoundImage) -> bytes:
        """Return the file of a figure: PNG or JPEG, undecoded; raise `ToolError` if the snapshot does not hold it."""
        return await concurrency.run_in_thread(self.read_picture, found.uid)

    def find_articles(self, query: ArticleQuery) -> list[Article]:
        """`search_articles`, at once."""
        if query.search_type not in SEARCH_TYPES:
            raise ToolError(f"search type = {show_json(query.search_type)}; allowed: {', '.join(SEARCH_TYPES)}")
        conditions = [] if query.search_type == "all" else [f'kinds : "{write_kind_token(query.search_type)}"']
        return self._find("article", query, conditions, read_article)

    def find_images(self, query: ImageQuery) -> list[FoundImage]:
        """`search_images`, at once."""
        conditions = [
            f"{column} : ({join_any([group])})"
            for column, words in (("modality", query.modality), ("body_part", query.body_part))
            for group in read_query(words, get_synonyms())
            if group.required
        ]
        return self._find("figure", query, conditions, read_figure)

    def _find(
        self, kind: str, query: ArticleQuery | ImageQuery, conditions: Sequence[str], read: Callable[[Sequence[Any]], R]
    ) -> list[R]:
        """Return the records of a kind that match a query and FTS5 conditions, the best first; bad rows are left out.

        Without any words, the newest records that meet the conditions match.
        """
        limit = max(0, min(query.limit, MAX_LIMIT))
        columns, weights = COLUMNS[kind]
        groups: list[Group] = read_query(query.words, get_synonyms())
        match = " AND ".join([*([f"({join_any(groups)})"] if groups else []), *conditions])
        index, statement = f"{kind}_index", f"SELECT {', '.join(columns)} FROM {kind}s WHERE id = ?"
        score = f"round(bm25({index}, {', '.join(map(str, weights.values()))}), {DIGITS}), " if groups else ""
        order = f"SELECT rowid FROM {index} WHERE {index} MATCH ? ORDER BY {score}rowid DESC LIMIT ?"
        found: list[R] = []
        with self._connect() as connection:
            for (number,) in connection.execute(order, (match, limit + SPARE)).fetchall() if match else ():
                row = _fetch(connection, statement, number)
                with suppress(BadRecord):
                    found += [] if row is None else [read(row)]
        return found[:limit]

    def read_picture(self, uid: str) -> bytes:
        """Return the file of the figure `uid`, undecoded."""
        with self._connect() as connection:
            statement = "SELECT content FROM pictures WHERE id = (SELECT id FROM figures WHERE uid = ?)"
            row = _fetch(connection, statement, uid)
        try:
            return check_picture(row[0] if row else None, schema.MAX_PICTURE)
        except BadRecord:
            raise ToolError(f"figure {show_json(uid)}: the snapshot holds no picture of it") from None

    def describe(self) -> SnapshotInfo:
        """Return what the snapshot says about itself."""
        with self._connect() as connection:
            pairs = connection.execute("SELECT key, value FROM meta ORDER BY key LIMIT 100").fetchall()
            first, last = connection.execute("SELECT min(year), max(year) FROM articles").fetchone()
        meta = {key: value for key, value in pairs if isinstance(key, str) and isinstance(value, str)}
        return SnapshotInfo(meta, (first, last) if isinstance(first, int) and isinstance(last, int) else None)

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        """Open the file.

        Raises:
            ConfigError: the file cannot be opened.
            ToolError: the search takes too many steps.
            ToolFault: SQLite cannot read what it needs, or the file was replaced.
        """
        try:
            with closing(open_snapshot(self.path)) as connection:
                status = self.path.stat()
                found = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
                self._first = self._first or found
                if found != self._first:
                    raise ToolFault("the search failed: its snapshot was replaced while it was in use")
                limit_steps(connection)
                yield connection
        except READ_ERRORS as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
                raise ToolError("the search takes too long; use fewer words") from None
            raise ToolFault(f"the search failed: the snapshot is damaged ({describe_error(error, 200)})") from None


def join_any(groups: Iterable[Group]) -> str:
    """Return an FTS5 expression that any of the groups matches.

    >>> join_any([Group((("ct",), ("computed", "tomography"))), Group((("lung",),))])
    '"ct" OR "computed tomography" OR "lung"'
    """
    return " OR ".join(quote(phrase) for group in groups for phrase in group.phrases)


def _fetch(connection: sqlite3.Connection, statement: str, key: object) -> tuple[Any, ...] | None:
    """Return one row; None if there is none, or it cannot be read."""
    try:
        row: tuple[Any, ...] | None = connection.execute(statement, (key,)).fetchone()
    except (*READ_ERRORS, OverflowError, UnicodeEncodeError):
        return None
    return row
