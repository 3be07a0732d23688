"""`viewbox snapshot`: records the literature into one file, and shows and checks such a file."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..utils.files import check_out
from ..utils.terminal import make_line
from .commands import Status, Table

if TYPE_CHECKING:
    from ..tools.search.records import SearchSource, SearchType
    from ..tools.search.snapshot import SnapshotSource
    from ..tools.search.snapshot.writer import Recorded

_MAX_QUERIES = 2**24  # bytes of a file of queries
_SHOWN = 20  # records of each kind that are told as left out


def build(
    queries: Annotated[Sequence[str], typer.Argument()] = (),
    *,
    out: Annotated[str, typer.Option("--out")],
    file: Annotated[str | None, typer.Option("--queries")] = None,
    articles: Annotated[int, typer.Option(min=0, max=100)] = 20,
    images: Annotated[int, typer.Option(min=0, max=30)] = 4,
    search_type: Sequence[str] = (),
    modality: Sequence[str] = (),
    note: str = "recorded from PubMed and Open-i",
    license: str = "abstracts and figures belong to their publishers; see each article",
    partial: bool = False,
) -> None:
    """Ask the live services and record what they answer. A stopped recording continues when it is started again.

    What was answered so far is kept in the folder FILE.part. If a query fails, no file is written and the status is 1:
    start the same command again, or add `--partial`. A record that cannot be used is left out; then, too, the status is
    1. NCBI_API_KEY and NCBI_EMAIL are used if they are set.

    Args:
        queries: what to search for, each in quotes.
        out: the file; an older one is replaced when the new one is whole.
        file: a text file with a query in each line; # begins a comment.
        articles: articles of a query and search type at most.
        images: figures of a query and modality at most.
        search_type: which articles: all, review, trial, …; may be repeated. Default: all.
        modality: also ask for figures of this modality: ct, mri, …; may be repeated.
        note: what the file says about its records.
        license: under which terms its texts and pictures may be used.
        partial: write the file even if queries failed.
    """
    from ..errors import ConfigError
    from ..tools.search.live import FILE
    from ..tools.search.snapshot import SnapshotWriter
    from ..tools.search.snapshot.writer import record_answers

    asked = [*queries, *(_read_queries(file) if file else ())]
    types = _check_types(search_type or ["all"])
    if not asked:
        raise ConfigError("no query; allowed: words in quotes, or --queries FILE with a query in each line")
    answers = check_out(f"{check_out(out, 'file')}.part", "folder")
    source = open_live_source(answers)
    source.prepare()
    status, total = Status(), len(dict.fromkeys(asked))
    writer = SnapshotWriter(out, note=note, license=license, made_by="viewbox snapshot build")
    try:
        found = asyncio.run(
            record_answers(
                asked,
                source,
                writer,
                articles=articles,
                images=images,
                search_types=types,
                modalities=modality,
                report=lambda found: status.show(_describe_progress(found, total, writer.count())),
            )
        )
        counts = writer.count()
        status.end()
        _tell_problems(found)
        if (found.failed and not partial) or counts == (0, 0):
            reason = f"{len(found.failed)} queries failed" if found.failed else "nothing was found"
            typer.echo(f"not written: {reason}; {make_line(answers)} keeps what was answered", err=True)
            raise typer.Exit(1 if found.failed else 2)
        writer.finish()
        with suppress(OSError):  # nothing was kept, or there are other files
            (answers / FILE).unlink(missing_ok=True)
            answers.rmdir()
    finally:
        writer.close()
    typer.echo(f"{make_line(out)}: {counts[0]:,} articles, {counts[1]:,} figures")
    if found.left_out:
        raise typer.Exit(1)


def show(
    file: str,
    words: Annotated[Sequence[str], typer.Argument()] = (),
    *,
    search_type: str = "all",
    limit: Annotated[int, typer.Option(min=1, max=100)] = 5,
) -> Iterator[str]:
    """Print what a snapshot holds; with words, what a model reads when it searches for them.

    Args:
        file: a snapshot, or package:literature, which is shipped.
        words: words to search for.
        search_type: which articles: all, review, trial or another type.
        limit: articles and figures at most.
    """
    from ..tools.search.records import ArticleQuery, ImageQuery
    from ..tools.search.snapshot.schema import META_KEYS
    from ..tools.search.wording import write_articles, write_images

    source = _open(file)
    if not words:
        about = source.describe()
        for key in filter(about.meta.get, (*META_KEYS, *sorted(about.meta.keys() - set(META_KEYS)))):
            yield f"{make_line(key, 30):<10} {make_line(about.meta[key], 300)}"
        yield f"{'years':<10} {'unknown' if about.years is None else '{}-{}'.format(*about.years)}"
        yield f"{'size':<10} {source.path.stat().st_size:,} bytes"
        return
    (kind,) = _check_types([search_type])
    asked = ArticleQuery(" ".join(words), kind, limit)
    yield write_articles(asked, source.find_articles(asked))[0]
    wanted = ImageQuery(asked.words, limit=limit)
    figures = source.find_images(wanted)
    yield "\n" + write_images(wanted, figures, [None] * len(figures))[0]


def check(file: str) -> Iterator[str | Table]:
    """Read every row of a snapshot and decode every picture; its file is not trusted.

    It ends with status 1 if anything is wrong: a search leaves bad rows out.

    Args:
        file: a snapshot, or package:literature, which is shipped.
    """
    from ..tools.search.snapshot.checking import check_snapshot

    status = Status()
    parts = check_snapshot(_open(file).path, lambda rows: status.show(f"{rows:,} rows"))
    status.end()
    yield Table("", ("part", "rows", "bad"), [(part.name, f"{part.rows:,}", f"{part.bad:,}") for part in parts])
    yield from (f"{part.name}: {problem}" for part in parts for problem in part.problems)
    if any(part.bad for part in parts):
        raise typer.Exit(1)


def open_live_source(answers: Path) -> "SearchSource":
    """Return the services themselves; what they answered is kept in a folder."""
    from ..tools.search.live import LiveSource

    return LiveSource(cache_dir=answers)


def _open(file: str) -> "SnapshotSource":
    from ..assets import resolve_snapshot_path
    from ..tools.search.snapshot import SnapshotSource

    source = SnapshotSource(resolve_snapshot_path(file))
    source.prepare()
    return source


def _read_queries(path: str) -> list[str]:
    from ..errors import ConfigError
    from ..utils.files import read_regular

    try:
        text = read_regular(path, limit=_MAX_QUERIES).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(f"--queries {path}: {reason}", key="--queries") from None
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def _check_types(names: Sequence[str]) -> "list[SearchType]":
    from ..errors import ConfigError, describe_unknown
    from ..tools.search.records import SEARCH_TYPES

    for name in names:
        if name not in SEARCH_TYPES:
            raise ConfigError(describe_unknown("search type", name, SEARCH_TYPES), key="--search-type")
    return [kind for kind in SEARCH_TYPES if kind in names]


def _describe_progress(found: "Recorded", total: int, counts: tuple[int, int]) -> str:
    failed = f", {len(found.failed)} failed" if found.failed else ""
    return f"{found.done}/{total} queries{failed}, {counts[0]:,} articles, {counts[1]:,} figures"


def _tell_problems(found: "Recorded") -> None:
    for kind, problems in (("failed", found.failed), ("left out", found.left_out)):
        for name, reason in list(problems.items())[:_SHOWN]:
            typer.echo(f"{kind}: {make_line(name, 80)}: {reason}", err=True)
        if len(problems) > _SHOWN:
            typer.echo(f"{kind}: {len(problems) - _SHOWN:,} more", err=True)
