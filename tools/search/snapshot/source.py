"""Answers searches from a snapshot. The same file and query give the same answer, in every thread and process.

The file is opened as one that a stranger may have made, by SQLite's own advice (sqlite.org/security.html, "Untrusted
SQLite Database Files"): nothing of the schema is trusted, and only objects that `schema.py` names may exist, so there
is no trigger, view or generated column. Rows are limited in bytes, and a statement in steps.

Records are ranked for the groups of a query by FTS5's BM25, which takes about a microsecond for each record that
matches. Records with equal scores are ordered by id, the newest first.
"""

import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote as quote_url

from ....errors import ConfigError, ToolError, ToolFault, show_json
from ....utils import concurrency
from ....utils.terminal import describe_error
from ..records import SEARCH_TYPES, Article, ArticleQuery, FoundImage, ImageQuery
from . import schema
from .schema import BadRecord, check_picture, read_article, read_figure, write_kind_token
from .words import SynonymGroup, get_synonyms, quote, read_query

R = TypeVar("R", Article, FoundImage)

MAX_LIMIT: Final = 100  # records of an answer
SPARE: Final = 20  # more records are looked at than asked for: a bad row must not shorten the answer
COLUMNS: Final[Mapping[str, tuple[Sequence[str], Mapping[str, float]]]] = {
    "article": (schema.ARTICLE_COLUMNS, schema.ARTICLE_WEIGHTS),
    "figure": (schema.FIGURE_COLUMNS, schema.FIGURE_WEIGHTS),
}  # of a kind, and the weights of those of its index
DIGITS: Final = 6  # of a score that count; the last ones differ between machines


class SnapshotSource:
    """A `SearchSource` that answers from the file that `examples/snapshot.py` wrote.
    The file is opened for each search, which takes a millisecond: any thread and process may ask. One that was replaced
    or written since the first search answers no more: a run has one literature."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._first: tuple[int, ...] | None = None  # which file the first search found

    def prepare(self) -> None:
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
        Without any words, the newest records that meet the conditions match."""
        limit = max(0, min(query.limit, MAX_LIMIT))
        columns, weights = COLUMNS[kind]
        groups: list[SynonymGroup] = read_query(query.words, get_synonyms())
        match = " AND ".join([*([f"({join_any(groups)})"] if groups else []), *conditions])
        index, statement = f"{kind}_index", f"SELECT {', '.join(columns)} FROM {kind}s WHERE id = ?"
        score = f"round(bm25({index}, {', '.join(map(str, weights.values()))}), {DIGITS}), " if groups else ""
        order = f"SELECT rowid FROM {index} WHERE {index} MATCH ? ORDER BY {score}rowid DESC LIMIT ?"
        results: list[R] = []
        with self._connect() as connection:
            for (number,) in connection.execute(order, (match, limit + SPARE)).fetchall() if match else ():
                row = _fetch(connection, statement, number)
                with suppress(BadRecord):
                    results += [] if row is None else [read(row)]
        return results[:limit]

    def read_picture(self, uid: str) -> bytes:
        """Return the file of the figure `uid`, undecoded."""
        with self._connect() as connection:
            statement = "SELECT content FROM pictures WHERE id = (SELECT id FROM figures WHERE uid = ?)"
            row = _fetch(connection, statement, uid)
        try:
            return check_picture(row[0] if row else None, schema.MAX_PICTURE)
        except BadRecord:
            raise ToolError(f"figure {show_json(uid)}: the snapshot holds no picture of it") from None

    def describe(self) -> dict[str, str]:
        """Return what the snapshot says about itself."""
        with self._connect() as connection:
            pairs = connection.execute("SELECT key, value FROM meta ORDER BY key LIMIT 100").fetchall()
        return {key: value for key, value in pairs if isinstance(key, str) and isinstance(value, str)}

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        """Open the file. Raise `ConfigError` if it cannot be opened, `ToolError` if the search takes too many steps,
        and `ToolFault` if SQLite cannot read what it needs, or the file was replaced."""
        try:
            with closing(open_snapshot(self.path)) as connection:
                status = self.path.stat()
                identity = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
                self._first = self._first or identity
                if identity != self._first:
                    raise ToolFault("the search failed: its snapshot was replaced while it was in use")
                limit_steps(connection)
                yield connection
        except READ_ERRORS as error:
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
                raise ToolError("the search takes too long; use fewer words") from None
            raise ToolFault(f"the search failed: the snapshot is damaged ({describe_error(error, 200)})") from None


def join_any(groups: Iterable[SynonymGroup]) -> str:
    """Return an FTS5 expression that any of the groups matches.

    >>> join_any([SynonymGroup((("ct",), ("computed", "tomography"))), SynonymGroup((("lung",),))])
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


MAX_STEPS: Final = 400_000_000  # of SQLite's virtual machine, for a search: seconds
NO_SNAPSHOT: Final = "it is not a snapshot; allowed: a file that examples/snapshot.py wrote"
_STEPS_TO_OPEN: Final = 5_000_000  # reading the schema is one of the things that take steps
_STEPS_AT_ONCE: Final = 100_000
# What reading a damaged file raises; Python decodes SQLite's messages strictly, and they may quote the file.
READ_ERRORS: Final = (sqlite3.Error, UnicodeDecodeError, MemoryError)
_PRAGMAS: Final = ("trusted_schema=OFF", "query_only=ON", "cell_size_check=ON", "mmap_size=0", "temp_store=MEMORY")


def open_snapshot(path: Path) -> sqlite3.Connection:
    """Return a connection to a snapshot that can only read it. Raise `ConfigError` if the file is missing, not a
    snapshot, of another version, or damaged, or this SQLite has no FTS5."""
    try:
        if not path.exists():
            raise refuse(path, "there is no such file")
        if not path.is_file():
            raise refuse(path, "it is not a regular file")
        address = f"file:{quote_url(str(path.absolute()))}?mode=ro&immutable=1"
        connection = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)
    except (sqlite3.Error, OSError, ValueError) as error:
        raise refuse(path, f"it cannot be opened ({describe_error(error, 200)})") from None
    try:
        limit_steps(connection, _STEPS_TO_OPEN)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, schema.MAX_ROW)
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
    return ConfigError(f"snapshot {path}: {reason}", key="snapshot")


def _check_version(connection: sqlite3.Connection, path: Path) -> None:
    names = ("application_id", "user_version")
    (application,), (version,) = (connection.execute(f"PRAGMA {name}").fetchone() for name in names)
    if application != schema.APPLICATION_ID:
        raise refuse(path, NO_SNAPSHOT)
    if version != schema.FORMAT_VERSION:
        problem = f"it is of format {version}; this viewbox reads format {schema.FORMAT_VERSION}: build it again"
        raise refuse(path, problem)


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
    expected = {**schema.SCHEMA, **schema.SHADOWS}
    tables: dict[str, str] = {}
    for name, sql in connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL LIMIT 1000"):
        if not isinstance(name, str) or name not in expected or name in tables:
            raise refuse(path, f"it is not a snapshot: its schema holds {str(name)[:80]!r}")
        tables[name] = sql if isinstance(sql, str) else ""
    for name, sql in expected.items():
        if name not in tables:
            raise refuse(path, f"it is not a snapshot: its schema has no {name!r}")
        if _squeeze(tables[name]) != _squeeze(sql):
            raise refuse(path, f"it is not a snapshot: its schema has another {name!r}")


def _squeeze(sql: str) -> str:
    return re.sub(r"\s+", " ", sql).strip()
