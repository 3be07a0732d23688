"""Articles and figures as rows of a snapshot, and back; and which search types find an article.

A row may be a stranger's: `read_article` and `read_figure` refuse what no record can be, so that it costs that row.
Long text is cut, not refused.
"""

import json
import operator
import re
from collections.abc import Sequence
from typing import Any

from ....errors import ViewboxError, describe_value
from ....utils.sanitize import replace_surrogates
from ...specialists.remote import JPEG, PNG
from ..records import Article, FoundImage, SearchType
from .schema import FIGURE_COLUMNS, MAX_LIST, MAX_NAME, MAX_SHORT, MAX_TEXT

_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,199}")  # no mark of a chat template or boundary
_ADDRESS = re.compile(r"(?:https?://[^\s\x00-\x20<>\"\x7f]+)?")
RECENT_YEARS = 5  # "recent": of the year in which the snapshot was recorded and the four before it

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


class BadRecord(ViewboxError, ValueError):
    """A row that is no article or figure; `key` is its column."""

    def __init__(self, column: str, given: object, expected: str) -> None:
        super().__init__(f"{column} is {describe_value(given)}; expected: {expected}", key=column, given=given)


def write_article(article: Article) -> tuple[Any, ...]:
    """The values of `schema.ARTICLE_COLUMNS`.

    Raises:
        BadRecord: a field cannot be read back.
    """
    return _list_values(read_article(_list_values(article)))


def _list_values(article: Article) -> tuple[Any, ...]:
    return (
        *(article.pmid, article.title, article.journal, article.year, article.abstract, article.doi, article.url),
        *(_write_list(article.types), _write_list(article.mesh), int(article.retracted)),
    )


def write_figure(found: FoundImage) -> tuple[Any, ...]:
    """The values of `schema.FIGURE_COLUMNS`; the address of the picture is left out.

    Raises:
        BadRecord: a field cannot be read back.
    """
    values = operator.attrgetter(*FIGURE_COLUMNS)
    row: tuple[Any, ...] = values(read_figure(values(found)))
    return row


def read_article(row: Sequence[Any]) -> Article:
    """The article of a row of `schema.ARTICLE_COLUMNS`.

    Raises:
        BadRecord: a value is of another type, or no value of its column.

    >>> read_article(("1", "A title", "", 2020, "", "", "", '["Review"]', "[]", 0)).types
    ('Review',)
    >>> read_article(("1", b"A title", "", 2020, "", "", "", "[]", "[]", 0))
    Traceback (most recent call last):
    viewbox.tools.search.snapshot.rows.BadRecord: title is 7 bytes; expected: text
    """
    pmid, title, journal, year, abstract, doi, url, types, mesh, retracted = row
    if year is not None and not (type(year) is int and 1000 <= year <= 9999):
        raise BadRecord("year", year, "a year of four digits, or null")
    if retracted not in (0, 1):
        raise BadRecord("retracted", retracted, "0 or 1")
    return Article(
        _read_identifier("pmid", pmid),
        _read_text("title", title, MAX_SHORT),
        _read_text("journal", journal, MAX_SHORT),
        year,
        _read_text("abstract", abstract, MAX_TEXT),
        _read_text("doi", doi, MAX_NAME),
        _read_address(url),
        _read_list("types", types),
        _read_list("mesh", mesh),
        bool(retracted),
    )


def read_figure(row: Sequence[Any]) -> FoundImage:
    """The figure of a row of `schema.FIGURE_COLUMNS`.

    Raises:
        BadRecord: a value is of another type, or no value of its column.
    """
    uid, caption, source, url, pmid, modality, body_part = row
    return FoundImage(
        uid=_read_identifier("uid", uid),
        caption=_read_text("caption", caption, MAX_TEXT),
        source=_read_text("source", source, MAX_SHORT),
        url=_read_address(url),
        pmid=_read_text("pmid", pmid, MAX_NAME),
        modality=_read_text("modality", modality, MAX_NAME),
        body_part=_read_text("body_part", body_part, MAX_NAME),
    )


def check_picture(content: Any, limit: int) -> bytes:
    """The bytes of a PNG or JPEG; they are not decoded.

    Raises:
        BadRecord: it is no such file, or larger than `limit` bytes.
    """
    if not isinstance(content, bytes) or not content.startswith((PNG, JPEG)):
        raise BadRecord("content", content, "the bytes of a PNG or JPEG")
    if len(content) > limit:
        raise BadRecord("content", content, f"at most {limit:,} bytes")
    return content


def _write_list(items: Sequence[str]) -> str:
    return json.dumps([item[:MAX_NAME] for item in items])


def _read_identifier(column: str, value: Any) -> str:
    if not isinstance(value, str) or not _IDENTIFIER.fullmatch(value):
        raise BadRecord(column, value, "1 to 200 letters, digits and . _ : -")
    return value


def _read_text(column: str, value: Any, limit: int) -> str:
    if not isinstance(value, str):
        raise BadRecord(column, value, "text")
    return replace_surrogates(value[:limit]).replace("\x00", " ")


def _read_address(value: Any) -> str:
    if not isinstance(value, str) or len(value) > MAX_SHORT or not _ADDRESS.fullmatch(value):
        raise BadRecord("url", value, "an http(s) address, or empty")
    return value


def _read_list(column: str, value: Any) -> tuple[str, ...]:
    try:
        items = json.loads(value) if isinstance(value, str) and len(value) <= MAX_TEXT else None
    except (ValueError, RecursionError):
        items = None
    if not isinstance(items, list) or len(items) > MAX_LIST or not all(isinstance(item, str) for item in items):
        raise BadRecord(column, value, f"a JSON list of at most {MAX_LIST} texts")
    return tuple(_read_text(column, item, MAX_NAME) for item in items)


def list_kinds(article: Article, recorded_year: int) -> list[SearchType]:
    """The search types, other than "all", that find an article.

    Args:
        article: of a snapshot.
        recorded_year: of the snapshot: the clock does not count, or the answers would change with it.

    >>> list_kinds(Article("1", types=("Journal Article", "Review"), year=2023), 2025)
    ['review', 'recent']
    """
    types = {name.casefold() for name in article.types}
    kinds = [kind for kind, names in _KINDS.items() if types & names]
    if article.year is not None and article.year > recorded_year - RECENT_YEARS:
        kinds.append("recent")
    return kinds


def write_kind_token(kind: SearchType) -> str:
    """The word by which the index knows a search type: its first letter is in no word of a query.

    >>> write_kind_token("meta_analysis").isalnum()
    False
    """
    return f"\ue000{kind.replace('_', '')}"
