"""The layout of a snapshot: its tables, its format version, the limits of what a row may hold, and how it is read.

A row may be a stranger's: what no record can be is refused, so that it costs that row.

Articles and figures are numbered by year, so that a larger id is newer. The two FTS5 indexes hold no text of their own
(`content=''`).
"""

import json
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ....errors import ViewboxError, describe_value
from ...specialists.remote import JPEG, PNG
from ..records import Article, FoundImage, SearchType

APPLICATION_ID: Final = 0x56425331  # "VBS1", at byte 68 of the file
FORMAT_VERSION: Final = 1  # `user_version`, at byte 60 of the file

MAX_NAME, MAX_TEXT = 200, 100_000  # characters that are written: of a type or heading; of any other text
MAX_PICTURE: Final = 10 * 2**20  # bytes of a figure's file
MAX_ROW: Final = 2**24  # bytes of a row or value that SQLite reads

TOKENIZER: Final = "porter unicode61 remove_diacritics 2"  # stemming in English; letters without accents

ARTICLE_COLUMNS: Final = ("pmid", "title", "journal", "year", "abstract", "doi", "url", "types", "mesh", "retracted")
FIGURE_COLUMNS: Final = ("uid", "caption", "source", "url", "pmid", "modality", "body_part")

# The columns of each index with their BM25 weights. `kinds` only filters: its weight is 0.
ARTICLE_WEIGHTS: Final = {"title": 4.0, "mesh": 2.0, "abstract": 1.0, "kinds": 0.0}
FIGURE_WEIGHTS: Final = {"caption": 2.0, "source": 1.0, "modality": 1.0, "body_part": 1.0}

_ARTICLE_FIELDS = (
    "pmid TEXT NOT NULL, title TEXT NOT NULL, journal TEXT NOT NULL, year INTEGER, abstract TEXT NOT NULL,"
    " doi TEXT NOT NULL, url TEXT NOT NULL, types TEXT NOT NULL, mesh TEXT NOT NULL, retracted INTEGER NOT NULL"
)
_FIGURE_FIELDS = (
    "uid TEXT NOT NULL, caption TEXT NOT NULL, source TEXT NOT NULL, url TEXT NOT NULL, pmid TEXT NOT NULL,"
    " modality TEXT NOT NULL, body_part TEXT NOT NULL"
)


def _write_index(name: str, columns: dict[str, float]) -> str:
    return f"CREATE VIRTUAL TABLE {name} USING fts5({', '.join(columns)}, content='', tokenize='{TOKENIZER}')"


# Every table and index of a snapshot; a file with any other object in its schema is not opened.
SCHEMA: Final = {
    "meta": "CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "articles": f"CREATE TABLE articles(id INTEGER PRIMARY KEY, {_ARTICLE_FIELDS})",
    "figures": f"CREATE TABLE figures(id INTEGER PRIMARY KEY, {_FIGURE_FIELDS})",
    "pictures": "CREATE TABLE pictures(id INTEGER PRIMARY KEY, content BLOB NOT NULL)",
    "articles_pmid": "CREATE UNIQUE INDEX articles_pmid ON articles(pmid)",
    "figures_uid": "CREATE UNIQUE INDEX figures_uid ON figures(uid)",
    "article_index": _write_index("article_index", ARTICLE_WEIGHTS),
    "figure_index": _write_index("figure_index", FIGURE_WEIGHTS),
}
# The tables that FTS5 makes for each index, with their SQL.
_SHADOWS = {
    "data": "(id INTEGER PRIMARY KEY, block BLOB)",
    "idx": "(segid, term, pgno, PRIMARY KEY(segid, term)) WITHOUT ROWID",
    "docsize": "(id INTEGER PRIMARY KEY, sz BLOB)",
    "config": "(k PRIMARY KEY, v) WITHOUT ROWID",
}
SHADOWS: Final = {
    f"{index}_{name}": f"CREATE TABLE '{index}_{name}'{columns}"
    for index in ("article_index", "figure_index")
    for name, columns in _SHADOWS.items()
}


class BadRecord(ViewboxError, ValueError):
    """A row that is no article or figure."""


def read_article(row: Sequence[Any]) -> Article:
    """Return the article of a row of `schema.ARTICLE_COLUMNS`.

    >>> read_article(("1", "A title", "", 2020, "", "", "", '["Review"]', "[]", 0)).types
    ('Review',)
    >>> read_article(("1", b"A title", "", 2020, "", "", "", "[]", "[]", 0))
    Traceback (most recent call last):
    viewbox.tools.search.snapshot.schema.BadRecord: Expected `str`, got `bytes` - at `$.title`
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
    """Return the bytes of a PNG or JPEG; they are not decoded. Raise `BadRecord` if it is no such file, or larger than
    `limit` bytes."""
    if not isinstance(content, bytes) or not content.startswith((PNG, JPEG)):
        raise BadRecord(f"content is {describe_value(content)}; expected: the bytes of a PNG or JPEG")
    if len(content) > limit:
        raise BadRecord(f"content is {describe_value(content)}; expected: at most {limit:,} bytes")
    return content


def write_kind_token(kind: SearchType) -> str:
    """Return the word by which the index knows a search type: its first letter is in no word of a query.

    >>> write_kind_token("meta_analysis").isalnum()
    False
    """
    return f"\ue000{kind.replace('_', '')}"
