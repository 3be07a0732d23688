"""Makes a snapshot from articles and figures, or from the answers of a source; the file is whole or absent.

The same records with the same words about them give the same file, in whatever order they were added.
"""

import asyncio
import datetime
import hashlib
import os
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from ....errors import ConfigError, ToolError, ToolFault
from ....utils import concurrency
from ....utils.files import check_out, sync_to_disk
from ....utils.terminal import make_line
from ...specialists.remote import decode_picture
from ..records import Article, ArticleQuery, FoundImage, ImageQuery, SearchSource, SearchType
from . import schema
from .rows import BadRecord, check_picture, list_kinds, read_article, write_kind_token, write_row

_PRAGMAS: Final = ("journal_mode=OFF", "synchronous=OFF", "locking_mode=EXCLUSIVE", "cache_size=-65536")
Row = tuple[Any, ...]


class SnapshotWriter:
    """Collects records, the pictures in a hidden folder beside the file; `finish` makes the file of them.

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
        self, path: str | os.PathLike[str], *, note: str, license: str, made_by: str = "", recorded: str | None = None
    ) -> None:
        self.path = check_out(Path(path), "file")
        recorded = _check_date(recorded or datetime.date.today().isoformat())
        self.meta = {"format": str(schema.FORMAT_VERSION), "note": note, "license": license, "made_by": made_by}
        self.meta["recorded"] = recorded
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._folder = tempfile.TemporaryDirectory(prefix=".snapshot-", dir=self.path.parent)
        self._articles: dict[str, Row] = {}  # by PMID
        self._figures: dict[str, Row] = {}  # by uid

    def add_article(self, article: Article) -> None:
        """Add an article, in the place of an earlier one with its PMID; raise `BadRecord` if it cannot be stored."""
        row = write_row(article)
        self._articles[row[0]] = row

    def add_image(self, found: FoundImage, content: bytes) -> None:
        """Add a figure with its file, in the place of an earlier one with its `uid`.

        `content` is a PNG or JPEG of at most 10 MiB; it is not decoded.
        """
        row = write_row(found)
        self._find_picture(row[0]).write_bytes(check_picture(content, schema.MAX_PICTURE))
        self._figures[row[0]] = row

    def _find_picture(self, uid: str) -> Path:
        return Path(self._folder.name, hashlib.sha256(uid.encode()).hexdigest())

    def has_image(self, uid: str) -> bool:
        """Return whether the figure was added before."""
        return uid in self._figures

    def count(self) -> tuple[int, int]:
        """Return the numbers of articles and figures that were added."""
        return len(self._articles), len(self._figures)

    def close(self) -> None:
        """Remove what `finish` has not made a file of."""
        self._folder.cleanup()

    def finish(self) -> None:
        """Write the snapshot."""
        whole = Path(self._folder.name, "snapshot")
        try:
            with closing(sqlite3.connect(whole, isolation_level=None)) as file:
                self._write(file)
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

    def _write(self, file: sqlite3.Connection) -> None:
        for pragma in (*_PRAGMAS, f"application_id={schema.APPLICATION_ID}", f"user_version={schema.FORMAT_VERSION}"):
            file.execute(f"PRAGMA {pragma}")
        file.execute("BEGIN")
        for sql in schema.SCHEMA.values():
            file.execute(sql)
        articles = sorted(self._articles.values(), key=_compare_articles)
        figures = sorted(self._figures.values(), key=_compare_figures)
        _insert(file, "articles", ("id", *schema.ARTICLE_COLUMNS), [(n, *row) for n, row in enumerate(articles, 1)])
        _insert(file, "figures", ("id", *schema.FIGURE_COLUMNS), [(n, *row) for n, row in enumerate(figures, 1)])
        for number, row in enumerate(figures, 1):
            file.execute("INSERT INTO pictures VALUES (?, ?)", (number, self._find_picture(row[0]).read_bytes()))
        counts = {"articles": str(len(articles)), "figures": str(len(figures))}
        _insert(file, "meta", ("key", "value"), sorted((self.meta | counts).items()))
        _index_articles(file, articles, int(self.meta["recorded"][:4]))
        _index_figures(file)
        file.execute("COMMIT")


def _compare_articles(row: Row) -> Row:
    """Return the newer an article, the larger."""
    pmid, year = row[0], row[3]
    return year is not None, year or 0, len(pmid), pmid


def _compare_figures(row: Row) -> Row:
    uid, pmid = row[0], row[4]
    return len(pmid), pmid, len(uid), uid


def _insert(file: sqlite3.Connection, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
    marks = ", ".join("?" * len(columns))
    file.executemany(f"INSERT INTO {table}({', '.join(columns)}) VALUES ({marks})", rows)


def _index_articles(file: sqlite3.Connection, rows: Sequence[Row], recorded_year: int) -> None:
    indexed = []
    for number, article in enumerate(map(read_article, rows), 1):
        kinds = " ".join(map(write_kind_token, list_kinds(article, recorded_year)))
        indexed.append((number, article.title, "\n".join(article.mesh), article.abstract, kinds))
    _insert(file, "article_index", ("rowid", *schema.ARTICLE_WEIGHTS), indexed)
    file.execute("INSERT INTO article_index(article_index) VALUES ('optimize')")


def _index_figures(file: sqlite3.Connection) -> None:
    """Where modality or body part is not known, as with most figures of Open-i, caption and source may name it."""
    words = "caption || char(10) || source"
    values = [f"CASE {name} WHEN '' THEN {words} ELSE {name} END" for name in ("modality", "body_part")]
    file.execute(
        "INSERT INTO figure_index(rowid, caption, source, modality, body_part)"
        f" SELECT id, caption, source, {', '.join(values)} FROM figures ORDER BY id"
    )
    file.execute("INSERT INTO figure_index(figure_index) VALUES ('optimize')")


def _check_date(text: str) -> str:
    try:
        return datetime.date.fromisoformat(text).isoformat()
    except ValueError:
        raise ConfigError(f"recorded = {text!r:.80}; allowed: a date as YYYY-MM-DD", key="recorded") from None


# ---------------------------------------------------------------------- the answers of a source
_AT_ONCE = 4  # pictures that are loaded at the same time


@dataclass
class Recorded:
    """What became of the queries."""

    done: int = 0
    failed: dict[str, str] = field(default_factory=dict)  # query → why the source could not answer
    left_out: dict[str, str] = field(default_factory=dict)  # an article or figure → why it is not in the snapshot


async def record_answers(
    queries: Sequence[str],
    source: SearchSource,
    writer: SnapshotWriter,
    *,
    articles: int,
    images: int,
    search_types: Sequence[SearchType] = ("all",),
    modalities: Sequence[str] = (),
    report: Callable[[Recorded], None] = lambda found: None,
) -> Recorded:
    """Ask a source and add what it finds: at most so many articles of a query and search type, and figures of a query.

    Each figure must be decodable. Those of each of the modalities are asked for besides those of any: the modality of a
    figure that Open-i finds is known only if it was asked for. `report` is called after each query.
    """
    found = Recorded()
    for words in dict.fromkeys(queries):
        try:
            for kind in search_types if articles else ():
                await _record_articles(ArticleQuery(words, kind, articles), source, writer, found)
            for modality in (*modalities, "") if images else ():
                await _record_images(ImageQuery(words, modality, limit=images), source, writer, found)
            found.done += 1
        except (ToolError, ToolFault) as error:
            found.failed[words] = make_line(error, 300)
        report(found)
    return found


async def _record_articles(query: ArticleQuery, source: SearchSource, writer: SnapshotWriter, found: Recorded) -> None:
    for article in (await source.search_articles(query))[: query.limit]:
        try:
            writer.add_article(article)
        except BadRecord as error:
            found.left_out[f"article {make_line(article.pmid, 40)}"] = make_line(error, 300)


async def _record_images(query: ImageQuery, source: SearchSource, writer: SnapshotWriter, found: Recorded) -> None:
    permits = asyncio.Semaphore(_AT_ONCE)

    async def add(image: FoundImage) -> None:
        async with permits:
            try:
                content = await source.load_image(image)
                await concurrency.run_in_thread(decode_picture, content, "the picture")
                writer.add_image(image, content)
            except (ToolError, ToolFault, BadRecord) as error:
                found.left_out[f"figure {make_line(image.uid, 80)}"] = make_line(error, 300)

    images = [one for one in (await source.search_images(query))[: query.limit] if not writer.has_image(one.uid)]
    await asyncio.gather(*map(add, images))
