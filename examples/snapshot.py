"""Records what PubMed and Open-i answer in one file, with which a policy searches without a network.

    python examples/snapshot.py "pleural effusion" "lung nodule CT" --images 10 --out chest.snapshot
    python examples/snapshot.py --queries queries.txt --out chest.snapshot    # a query in each line
    python examples/snapshot.py --pubmedqa ori_pqal.json --out pubmedqa.snapshot   # 1,000 articles, without a network
    python examples/snapshot.py --show chest.snapshot pleural effusion        # what it holds, and what a model reads

A recording that is stopped continues when it is started again within a week: the folder FILE.part keeps what was
answered. If a query fails, no file is written and the status is 1, unless `--partial` is given. A record that cannot be
used is left out; then, too, the status is 1. `ori_pqal.json` is PubMedQA's own file of labeled questions
(https://github.com/pubmedqa/pubmedqa, MIT licence): each holds the abstract of the article that it is about.
NCBI_API_KEY and NCBI_EMAIL are used if they are set. Records of your own
go into a file with `SnapshotWriter`. The same records with the same words about them give the same file, in whatever
order they were added; it is whole or absent.
"""

import argparse
import asyncio
import datetime
import hashlib
import json
import os
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from viewbox.errors import ConfigError, ToolError, ToolFault
from viewbox.tools.search.live import FILE, LiveSource
from viewbox.tools.search.records import (
    RECENT_YEARS,
    SEARCH_TYPES,
    Article,
    ArticleQuery,
    FoundImage,
    ImageQuery,
    SearchSource,
    SearchType,
)
from viewbox.tools.search.snapshot import SnapshotSource, schema
from viewbox.tools.search.snapshot.schema import (
    BadRecord,
    check_picture,
    read_article,
    read_figure,
    write_kind_token,
)
from viewbox.tools.search.wording import write_articles, write_images
from viewbox.tools.specialists.remote import decode_picture
from viewbox.utils import concurrency
from viewbox.utils.exit_status import guard
from viewbox.utils.files import check_out, sync_to_disk
from viewbox.utils.sanitize import replace_surrogates
from viewbox.utils.terminal import describe_error, make_line

_PRAGMAS: Final = ("journal_mode=OFF", "synchronous=OFF", "locking_mode=EXCLUSIVE", "cache_size=-65536")
Row = tuple[Any, ...]
_REVIEWS = frozenset({"review", "systematic review", "scoping review"})
_META_ANALYSES = frozenset({"meta-analysis", "network meta-analysis"})
_TRIALS = frozenset(
    {
        "adaptive clinical trial",
        "clinical trial",
        "clinical trial, phase i",
        "clinical trial, phase ii",
        "clinical trial, phase iii",
        "clinical trial, phase iv",
        "controlled clinical trial",
        "equivalence trial",
        "pragmatic clinical trial",
        "randomized controlled trial",
    }
)  # "Clinical Trial" and what MeSH's tree of publication types has below it
_KINDS: dict[SearchType, frozenset[str]] = {
    "review": _REVIEWS,
    "trial": _TRIALS,
    "meta_analysis": _META_ANALYSES,
    "guideline": frozenset({"guideline", "practice guideline"}),
    "case_report": frozenset({"case reports", "case report"}),
}


def write_row(record: Article | FoundImage) -> tuple[Any, ...]:
    """Return the values of a record's columns in `schema`; raise `BadRecord` if a field cannot be read back."""
    is_article = isinstance(record, Article)
    row = tuple(
        _write(getattr(record, name)) for name in (schema.ARTICLE_COLUMNS if is_article else schema.FIGURE_COLUMNS)
    )
    (read_article if is_article else read_figure)(row)
    return row


def _write(value: Any) -> Any:
    """Return the value of a field as SQLite holds it."""
    if isinstance(value, tuple):
        return json.dumps([item[: schema.MAX_NAME] for item in value])
    if isinstance(value, str):
        return replace_surrogates(value[: schema.MAX_TEXT]).replace("\x00", " ")
    return int(value) if isinstance(value, bool) else value


def list_kinds(article: Article, recorded_year: int) -> list[SearchType]:
    """Return the search types, other than "all", that find an article.

    The year in which the snapshot was recorded counts, not the clock, or the answers would change with it.
    """
    types = {name.casefold() for name in article.types}
    kinds = [kind for kind, names in _KINDS.items() if types & names]
    if article.year is not None and article.year > recorded_year - RECENT_YEARS:
        kinds.append("recent")
    return kinds


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


def add_pubmedqa(path: Path, writer: SnapshotWriter) -> dict[str, str]:
    """Add the articles of PubMedQA's file, an object of its records by PMID; a question is its article's title.

    Returns:
        Why each record that cannot be used is left out. Of two with one PMID the first stays.

    Raises:
        ConfigError: the file is another one.
    """
    try:
        records = [(str(pmid), record) for pmid, record in json.loads(path.read_text("utf-8"), object_pairs_hook=list)]
    except (OSError, ValueError, TypeError) as error:
        problem = f"--pubmedqa {path}: {describe_error(error, 200)}; allowed: ori_pqal.json of PubMedQA"
        raise ConfigError(problem, key="pubmedqa") from error
    left_out, known = dict[str, str](), set[str]()
    for pmid, record in records:
        try:
            if pmid in known:
                raise ValueError("an earlier record has its PMID")
            writer.add_article(read_pubmedqa(pmid, dict(record)))
            known.add(pmid)
        except KeyError as error:
            left_out[f"article {pmid}"] = f"it has no {error.args[0]}"
        except (BadRecord, ValueError, TypeError) as error:
            left_out[f"article {pmid}"] = make_line(error, 300)
    return left_out


def read_pubmedqa(pmid: str, record: dict[str, Any]) -> Article:
    """Return the article of a record of PubMedQA. Raise `KeyError`, `ValueError` or `TypeError` if it is none."""
    if record["final_decision"] not in ("yes", "no", "maybe"):
        raise ValueError(f"final_decision = {record['final_decision']!r:.80}; allowed: yes, no, maybe")
    for name in ("LABELS", "CONTEXTS", "MESHES"):
        if not (isinstance(record[name], list) and all(isinstance(text, str) for text in record[name])):
            raise ValueError(f"{name} = {record[name]!r:.80}; allowed: a list of texts")
    if len(record["LABELS"]) != len(record["CONTEXTS"]):
        raise ValueError(f"{len(record['LABELS'])} LABELS of {len(record['CONTEXTS'])} CONTEXTS; allowed: one of each")
    parts = zip([*record["LABELS"], "CONCLUSION"], [*record["CONTEXTS"], record["LONG_ANSWER"]], strict=True)
    abstract = " ".join(f"{label}: {text}" for label, text in parts)
    url, year = f"https://pubmed.ncbi.nlm.nih.gov/{pmid}", int(record["YEAR"]) if record["YEAR"] else None
    return Article(pmid, record["QUESTION"], "", year, abstract, url=url, mesh=tuple(record["MESHES"]))


# ---------------------------------------------------------------------- the command
def main(arguments: Sequence[str] | None = None, open_source: Callable[[Path], SearchSource] | None = None) -> int:
    """Record, or show; return the status: 1 if a query failed or a record was left out, 2 if nothing was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="QUERY", help="what to search for, each in quotes")
    parser.add_argument("--queries", type=Path, help="a text file with a query in each line")
    parser.add_argument("--pubmedqa", type=Path, help="ori_pqal.json: its articles, and no search")
    parser.add_argument("--out", help="the file; an older one is replaced when the new one is whole")
    parser.add_argument("--show", metavar="FILE", help="a snapshot, or package:literature, to look at instead")
    parser.add_argument("--articles", type=int, default=20, help="articles of a query and search type at most")
    parser.add_argument("--images", type=int, default=4, help="figures of a query and modality at most")
    parser.add_argument("--search-type", action="append", choices=SEARCH_TYPES, help="which articles; may be repeated")
    parser.add_argument("--modality", action="append", default=[], help="also figures of this modality: ct, mri, …")
    parser.add_argument("--note", default="recorded from PubMed and Open-i")
    parser.add_argument("--license", default="abstracts and figures belong to their publishers; see each article")
    parser.add_argument("--partial", action="store_true", help="write the file even if queries failed")
    given = parser.parse_args(arguments)
    if given.show:
        return _show(given.show, " ".join(given.words))
    if given.pubmedqa and given.out:
        note, terms = f"the articles of PubMedQA ({given.pubmedqa.name})", given.license
        with SnapshotWriter(given.out, note=note, license=terms, made_by="examples/snapshot.py") as writer:
            left_out = add_pubmedqa(given.pubmedqa, writer)
        for name, reason in left_out.items():
            print(f"left out: {make_line(name, 80)}: {reason}", file=sys.stderr)
        print(f"{make_line(given.out)}: {writer.count()[0]:,} articles")
        return int(bool(left_out))
    try:
        lines = given.queries.read_text("utf-8-sig").splitlines() if given.queries else []
    except (OSError, UnicodeDecodeError) as error:
        parser.error(f"--queries {given.queries}: {getattr(error, 'strerror', None) or 'it is not UTF-8'}")
    asked = [*given.words, *(" ".join(line.split()) for line in lines if line.strip() and not line.startswith("#"))]
    if not asked or not given.out:
        parser.error("give a query or --queries FILE, and --out FILE")
    answers = check_out(f"{check_out(given.out, 'file')}.part", "folder")
    source = (open_source or (lambda folder: LiveSource(cache_dir=folder)))(answers)
    source.prepare()
    writer = SnapshotWriter(given.out, note=given.note, license=given.license, made_by="examples/snapshot.py")
    try:
        types = [kind for kind in SEARCH_TYPES if kind in (given.search_type or ["all"])]
        limits: Any = {"articles": given.articles, "images": given.images, "modalities": given.modality}
        total = len(dict.fromkeys(asked))
        found = asyncio.run(
            record_answers(
                asked, source, writer, search_types=types, **limits,
                report=lambda found: print(f"{found.done} of {total} queries", file=sys.stderr),
            )
        )  # fmt: skip
        for kind, problems in (("failed", found.failed), ("left out", found.left_out)):
            for name, reason in problems.items():
                print(f"{kind}: {make_line(name, 80)}: {reason}", file=sys.stderr)
        counts = writer.count()
        if (found.failed and not given.partial) or counts == (0, 0):
            reason = f"{len(found.failed)} queries failed" if found.failed else "nothing was found"
            print(f"not written: {reason}; {make_line(answers)} keeps what was answered", file=sys.stderr)
            return 1 if found.failed else 2
        writer.finish()
        with suppress(OSError):  # nothing was kept, or there are other files
            (answers / FILE).unlink(missing_ok=True)
            answers.rmdir()
    finally:
        writer.close()
    print(f"{make_line(given.out)}: {counts[0]:,} articles, {counts[1]:,} figures")
    return int(bool(found.left_out))


def _show(name: str, words: str) -> int:
    from viewbox.assets import resolve_snapshot_path

    source = SnapshotSource(resolve_snapshot_path(name))
    source.prepare()
    for key, value in source.describe().items():
        print(f"{make_line(key, 30):<10} {make_line(value, 300)}")
    if words:
        articles, figures = ArticleQuery(words), ImageQuery(words)
        print(write_articles(articles, source.find_articles(articles))[0])
        found = source.find_images(figures)
        print(write_images(figures, found, [None] * len(found))[0])
    return 0


if __name__ == "__main__":
    sys.exit(guard(main))
