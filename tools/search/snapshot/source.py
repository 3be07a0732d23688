"""Answers searches from a snapshot. The same file and query give the same answer, in every thread and process.

Records are ranked for the groups of a query by BM25, exactly unless very many match. FTS5's `bm25` takes about a
microsecond for each record that matches, and 0.03 for each that holds one of its words. Therefore at most `MAX_RANKED`
matches are ranked. If a query has more, records with one of its rare words come first, ranked by all its words; then
those with all its frequent words, of which the newest are ranked; then those with all but the most frequent. A snapshot
with fewer records is always ranked exactly. Records with equal scores are ordered by id, the newest first.
"""

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from ....errors import ConfigError, ToolError, ToolFault
from ....utils import concurrency
from ....utils.terminal import describe_error
from ..records import SEARCH_TYPES, Article, ArticleQuery, FoundImage, ImageQuery
from . import schema
from .connection import READ_ERRORS, limit_steps, open_snapshot, refuse
from .kinds import write_kind_token
from .rows import BadRecord, check_picture, read_article, read_figure
from .schema import ARTICLE_WEIGHTS, FIGURE_WEIGHTS, MAX_NAME, MAX_SYNONYMS, TERM_RECORDS
from .words import Group, Synonyms, quote, read_query, stem_all

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


Q = TypeVar("Q")
R = TypeVar("R", Article, FoundImage)
T = TypeVar("T")

MAX_LIMIT = 100  # records of an answer
SPARE = 20  # more records are looked at than asked for: a bad row must not shorten the answer
SMALL = 50_000  # records; a snapshot with more is searched in threads, because a search may take milliseconds


@dataclass(frozen=True)
class SnapshotInfo:
    """What a snapshot says about itself: `meta`, how many records it holds, and the first and last year of articles."""

    meta: dict[str, str]
    articles: int
    figures: int
    years: tuple[int, int] | None


class SnapshotSource:
    """A `SearchSource` that answers from the file that `viewbox snapshot build` wrote.

    Nothing is opened before the first search or `prepare()`. Connections are kept for the next search of any thread; a
    forked process opens its own.

    Args:
        path: of the file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._pool: ConnectionPool | None = None

    def __reduce__(self) -> "tuple[type[SnapshotSource], tuple[Path]]":
        return SnapshotSource, (self.path,)

    def prepare(self) -> None:
        """Open the file.

        Raises:
            ConfigError: it is missing, not a snapshot, of another version, or damaged, or this SQLite has no FTS5.
        """
        with self._connect():
            pass

    async def search_articles(self, query: ArticleQuery) -> Sequence[Article]:
        """The articles found, the best first; none for a query without a word and a search type."""
        return await self._run(self.find_articles, query)

    async def search_images(self, query: ImageQuery) -> Sequence[FoundImage]:
        """The figures found, the best first; none for a query without a word, modality and body part."""
        return await self._run(self.find_images, query)

    async def load_image(self, found: FoundImage) -> bytes:
        """The file of a figure: PNG or JPEG, undecoded; raises `ToolError` if the snapshot does not hold it."""
        return await self._run(self.read_picture, found.uid)

    def find_articles(self, query: ArticleQuery) -> list[Article]:
        """`search_articles`, at once."""
        if query.search_type not in SEARCH_TYPES:
            raise ToolError(f"search type = {query.search_type!r:.80}; allowed: {', '.join(SEARCH_TYPES)}")
        with self._connect() as (connection, pool):
            groups = read_query(query.words, pool.synonyms)
            condition = ""
            if query.search_type != "all":
                condition = f'kinds : "{write_kind_token(query.search_type)}"'
            limit = _clamp(query.limit)
            ids = pool.articles.rank(connection, groups, condition, limit + SPARE)
            columns = ", ".join(schema.ARTICLE_COLUMNS)
            return _read_good(connection, f"SELECT {columns} FROM articles WHERE id = ?", ids, read_article, limit)

    def find_images(self, query: ImageQuery) -> list[FoundImage]:
        """`search_images`, at once."""
        with self._connect() as (connection, pool):
            conditions = [
                f"{column} : ({join_any([group])})"
                for column, words in (("modality", query.modality), ("body_part", query.body_part))
                for group in read_query(words, pool.synonyms)
                if group.required
            ]
            groups, limit = read_query(query.words, pool.synonyms), _clamp(query.limit)
            ids = pool.figures.rank(connection, groups, " AND ".join(conditions), limit + SPARE)
            columns = ", ".join(schema.FIGURE_COLUMNS)
            return _read_good(connection, f"SELECT {columns} FROM figures WHERE id = ?", ids, read_figure, limit)

    def read_picture(self, uid: str) -> bytes:
        """The file of the figure `uid`, undecoded.

        Raises:
            ToolError: the snapshot does not hold it.
        """
        with self._connect() as (connection, _):
            statement = "SELECT content FROM pictures WHERE id = (SELECT id FROM figures WHERE uid = ?)"
            row = _fetch(connection, statement, uid)
        try:
            return check_picture(row[0] if row else None, schema.MAX_PICTURE)
        except BadRecord:
            raise ToolError(f"figure {uid!r:.80}: the snapshot holds no picture of it") from None

    def get_article(self, pmid: str) -> Article | None:
        """The article with this PMID; None if the snapshot has none, or its row is bad."""
        with self._connect() as (connection, _):
            columns = ", ".join(schema.ARTICLE_COLUMNS)
            statement = f"SELECT {columns} FROM articles WHERE pmid = ?"
            return next(iter(_read_good(connection, statement, [pmid], read_article, 1)), None)

    def describe(self) -> SnapshotInfo:
        """What the snapshot says about itself."""
        with self._connect() as (connection, pool):
            pairs = connection.execute("SELECT key, value FROM meta ORDER BY key LIMIT 100").fetchall()
            statement = "SELECT year FROM articles WHERE year IS NOT NULL ORDER BY id"
            ends = [connection.execute(f"{statement}{order} LIMIT 1").fetchone() for order in ("", " DESC")]
        meta = {key: value for key, value in pairs if isinstance(key, str) and isinstance(value, str)}
        years = [row[0] for row in ends if row and isinstance(row[0], int)]
        both = (years[0], years[1]) if len(years) == 2 else None
        return SnapshotInfo(meta, pool.articles.records, pool.figures.records, both)

    async def _run(self, function: Callable[[Q], T], query: Q) -> T:
        """In this thread if the file is small: a search then takes less than changing threads may."""
        pool = self._pool
        if pool is not None and pool.is_own and max(pool.articles.records, pool.figures.records) <= SMALL:
            return function(query)
        return await concurrency.run_in_thread(function, query)

    @contextmanager
    def _connect(self) -> Iterator[tuple[sqlite3.Connection, ConnectionPool]]:
        """A connection that nobody else uses, and its pool.

        Raises:
            ConfigError: the file cannot be opened.
            ToolError: the search takes too many steps.
            ToolFault: SQLite cannot read what it needs.
        """
        pool = self._pool
        if pool is None or not pool.is_own:
            if pool is not None:
                pool.abandon()
            pool = self._pool = ConnectionPool(self.path)
        connection = pool.take()
        try:
            limit_steps(connection)
            yield connection, pool
        except READ_ERRORS as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
                raise ToolError("the search takes too long; use fewer words") from None
            raise ToolFault(f"the search failed: the snapshot is damaged ({describe_error(error, 200)})") from None
        finally:
            pool.give_back(connection)


def _clamp(limit: int) -> int:
    return max(0, min(limit, MAX_LIMIT))


def _fetch(connection: sqlite3.Connection, statement: str, key: object) -> tuple[Any, ...] | None:
    """One row; None if there is none, or it cannot be read."""
    try:
        row: tuple[Any, ...] | None = connection.execute(statement, (key,)).fetchone()
    except (*READ_ERRORS, OverflowError, UnicodeEncodeError):
        return None
    return row


def _read_good(
    connection: sqlite3.Connection,
    statement: str,
    keys: Sequence[int | str],
    read: Callable[[Sequence[Any]], R],
    limit: int,
) -> list[R]:
    """The records of the first `limit` good rows."""
    found: list[R] = []
    for key in keys:
        if len(found) >= limit:
            break
        row = _fetch(connection, statement, key)
        if row is not None:
            with suppress(BadRecord):
                found.append(read(row))
    return found


MAX_RANKED: Final = 8_000  # records of a query that are ranked
FREQUENT: Final = 100_000  # records: a more frequent group does not count beside rarer ones
DIGITS: Final = 6  # of a score that count; the last ones differ between machines


@dataclass(frozen=True)
class Index:
    """An FTS5 index, the table of its frequent words, the weights of its columns, and how many records it has."""

    name: str
    terms: str
    weights: Mapping[str, float]
    records: int

    def rank(self, connection: sqlite3.Connection, groups: Sequence[Group], condition: str, limit: int) -> list[int]:
        """The ids of the best records, the best first.

        Args:
            connection: to the snapshot.
            groups: of the query; without any, every record that meets the condition matches.
            condition: an FTS5 expression that records must match; may be empty.
            limit: ids at most.
        """
        if not groups:
            return self._find_newest(connection, condition, limit) if condition else []
        if self.records <= MAX_RANKED:
            return [number for number, _ in self._find_best(connection, join_any(groups), condition, limit)]
        counted = [(self._count(connection, group), group) for group in groups]
        if sum(count for count, _ in counted) <= MAX_RANKED:
            return [number for number, _ in self._find_best(connection, join_any(groups), condition, limit)]
        counted = [pair for pair in counted if pair[0] <= FREQUENT] or [min(counted, key=lambda pair: pair[0])]
        counted.sort(key=lambda pair: pair[0])  # stable: equal counts stay in the order of the query
        return self._search_levels(connection, counted, condition, limit)

    def _search_levels(
        self, connection: sqlite3.Connection, counted: Sequence[tuple[int, Group]], condition: str, limit: int
    ) -> list[int]:
        """Search as this module's description says; `counted` holds (records, group), the rarest first."""
        rare, total = 0, 0
        while rare < len(counted) and total + counted[rare][0] <= MAX_RANKED:
            total += counted[rare][0]
            rare += 1
        groups = [group for _, group in counted]
        frequent = groups[rare:]
        best: dict[int, float] = {}
        if rare:
            some, others = join_any(groups[:rare]), join_any(frequent)
            for expression in (some, f"({some}) AND ({others})") if others else (some,):
                best |= dict(self._find_best(connection, expression, condition, limit + len(best)))
        found = sorted(best, key=lambda number: (best[number], -number))
        required = [group for group in frequent if group.required] or frequent
        for last in range(len(required), 0, -1):
            if len(found) >= limit:
                break
            expression = " AND ".join(f"({join_any([group])})" for group in required[:last])
            newest = self._find_cut(connection, combine(expression, condition))
            more = self._find_best(connection, expression, condition, limit, newest)
            found += [number for number, _ in more if number not in found]
        return found[:limit]

    def _find_best(
        self, connection: sqlite3.Connection, expression: str, condition: str, limit: int, first: int = 0
    ) -> list[tuple[int, float]]:
        """(id, score) of the best records that match, of those whose id is at least `first`; a low score is good."""
        weights = ", ".join(map(str, self.weights.values()))
        rows = connection.execute(
            f"SELECT rowid, round(bm25({self.name}, {weights}), {DIGITS}) AS score FROM {self.name}"
            f" WHERE {self.name} MATCH ? AND rowid >= ? ORDER BY score, rowid DESC LIMIT ?",
            (combine(expression, condition), first, limit),
        )
        return [(number, score if isinstance(score, float) else 0.0) for number, score in rows]  # damage: no score

    def _find_cut(self, connection: sqlite3.Connection, match: str) -> int:
        """The id from which on at most `MAX_RANKED` records match."""
        statement = f"SELECT rowid FROM {self.name} WHERE {self.name} MATCH ? ORDER BY rowid DESC LIMIT 1 OFFSET ?"
        row = connection.execute(statement, (match, MAX_RANKED - 1)).fetchone()
        return row[0] if row else 0

    def _find_newest(self, connection: sqlite3.Connection, condition: str, limit: int) -> list[int]:
        statement = f"SELECT rowid FROM {self.name} WHERE {self.name} MATCH ? ORDER BY rowid DESC LIMIT ?"
        return [number for (number,) in connection.execute(statement, (condition, limit))]

    def _count(self, connection: sqlite3.Connection, group: Group) -> int:
        """About how many records hold a phrase of the group."""
        return sum(
            min((self._count_stem(connection, stem) for stem in stem_all(phrase)), default=0)
            for phrase in group.phrases
        )

    def _count_stem(self, connection: sqlite3.Connection, stem: str) -> int:
        row = connection.execute(f"SELECT records FROM {self.terms} WHERE word = ?", (stem,)).fetchone()
        return row[0] if row and isinstance(row[0], int) and row[0] >= 0 else TERM_RECORDS


def join_any(groups: Iterable[Group]) -> str:
    """An FTS5 expression that any of the groups matches.

    >>> join_any([Group((("ct",), ("computed", "tomography"))), Group((("lung",),))])
    '"ct" OR "computed tomography" OR "lung"'
    """
    return " OR ".join(quote(phrase) for group in groups for phrase in group.phrases)


def combine(expression: str, condition: str) -> str:
    """Both FTS5 expressions at once."""
    return f"({expression}) AND {condition}" if condition else expression
