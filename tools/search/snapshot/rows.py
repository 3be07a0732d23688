"""Articles and figures as rows of a snapshot, and back; and which search types find an article.

A row may be a stranger's: what no record can be is refused, so that it costs that row. Long text is cut when it is
written.
"""

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from ....errors import ViewboxError, describe_value
from ....utils.sanitize import replace_surrogates
from ...specialists.remote import JPEG, PNG
from ..records import Article, FoundImage, SearchType
from .schema import ARTICLE_COLUMNS, FIGURE_COLUMNS, MAX_NAME, MAX_TEXT

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
    """A row that is no article or figure."""


def write_row(record: Article | FoundImage) -> tuple[Any, ...]:
    """Return the values of a record's columns in `schema`; raise `BadRecord` if a field cannot be read back."""
    is_article = isinstance(record, Article)
    row = tuple(_write(getattr(record, name)) for name in (ARTICLE_COLUMNS if is_article else FIGURE_COLUMNS))
    (read_article if is_article else read_figure)(row)
    return row


def read_article(row: Sequence[Any]) -> Article:
    """Return the article of a row of `schema.ARTICLE_COLUMNS`.

    >>> read_article(("1", "A title", "", 2020, "", "", "", '["Review"]', "[]", 0)).types
    ('Review',)
    >>> read_article(("1", b"A title", "", 2020, "", "", "", "[]", "[]", 0))
    Traceback (most recent call last):
    viewbox.tools.search.snapshot.rows.BadRecord: Expected `str`, got `bytes` - at `$.title`
    """
    fields = dict(zip(ARTICLE_COLUMNS, row, strict=True))
    try:
        for name in ("types", "mesh"):
            fields[name] = json.loads(fields[name]) if isinstance(fields[name], str) else None
        fields["retracted"] = {0: False, 1: True}.get(fields["retracted"])
        return msgspec.convert(fields, Article)
    except (ValueError, RecursionError) as error:
        raise BadRecord(str(error)) from None


def read_figure(row: Sequence[object]) -> FoundImage:
    """Return the figure of a row of `schema.FIGURE_COLUMNS`; raise `BadRecord` as for an article."""
    try:
        return msgspec.convert(dict(zip(FIGURE_COLUMNS, row, strict=True)), FoundImage)
    except ValueError as error:
        raise BadRecord(str(error)) from None


def check_picture(content: object, limit: int) -> bytes:
    """Return the bytes of a PNG or JPEG; they are not decoded.

    Raises:
        BadRecord: it is no such file, or larger than `limit` bytes.
    """
    if not isinstance(content, bytes) or not content.startswith((PNG, JPEG)):
        raise BadRecord(f"content is {describe_value(content)}; expected: the bytes of a PNG or JPEG")
    if len(content) > limit:
        raise BadRecord(f"content is {describe_value(content)}; expected: at most {limit:,} bytes")
    return content


def _write(value: Any) -> Any:
    """Return the value of a field as SQLite holds it."""
    if isinstance(value, tuple):
        return json.dumps([item[:MAX_NAME] for item in value])
    if isinstance(value, str):
        return replace_surrogates(value[:MAX_TEXT]).replace("\x00", " ")
    return int(value) if isinstance(value, bool) else value


def list_kinds(article: Article, recorded_year: int) -> list[SearchType]:
    """Return the search types, other than "all", that find an article.

    The year in which the snapshot was recorded counts, not the clock, or the answers would change with it.

    >>> list_kinds(Article("1", types=("Journal Article", "Review"), year=2023), 2025)
    ['review', 'recent']
    """
    types = {name.casefold() for name in article.types}
    kinds = [kind for kind, names in _KINDS.items() if types & names]
    if article.year is not None and article.year > recorded_year - RECENT_YEARS:
        kinds.append("recent")
    return kinds


def write_kind_token(kind: SearchType) -> str:
    """Return the word by which the index knows a search type: its first letter is in no word of a query.

    >>> write_kind_token("meta_analysis").isalnum()
    False
    """
    return f"\ue000{kind.replace('_', '')}"
