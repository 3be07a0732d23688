"""Articles and figures as rows of a snapshot, and back.

A row may be a stranger's: `read_article` and `read_figure` refuse what no record can be, so that it costs that row.
Long text is cut, not refused.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from ....errors import ViewboxError, describe_value
from ....utils.sanitize import replace_surrogates
from ..records import Article, FoundImage
from .schema import MAX_LIST, MAX_NAME, MAX_SHORT, MAX_TEXT

_IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,199}")  # no mark of a chat template or boundary
_ADDRESS = re.compile(r"(?:https?://[^\s\x00-\x20<>\"\x7f]+)?")
PICTURE_FORMATS = {"PNG": b"\x89PNG\r\n\x1a\n", "JPEG": b"\xff\xd8\xff"}


class BadRecord(ViewboxError, ValueError):
    """A row that is no article or figure; `key` is its column."""

    def __init__(self, column: str, given: object, expected: str) -> None:
        super().__init__(f"{column} is {describe_value(given)}; expected: {expected}", key=column, given=given)


def write_article(article: Article) -> tuple[Any, ...]:
    """The values of `schema.ARTICLE_COLUMNS`.

    Raises:
        BadRecord: a field cannot be read back.
    """
    row = (
        *(article.pmid, article.title, article.journal, article.year, article.abstract, article.doi, article.url),
        *(_write_list(article.types), _write_list(article.mesh), int(article.retracted)),
    )
    read = read_article(row)
    return (
        *(read.pmid, read.title, read.journal, read.year, read.abstract, read.doi, read.url),
        *(_write_list(read.types), _write_list(read.mesh), int(read.retracted)),
    )


def write_figure(found: FoundImage) -> tuple[Any, ...]:
    """The values of `schema.FIGURE_COLUMNS`; the address of the picture is left out.

    Raises:
        BadRecord: a field cannot be read back.
    """
    row = (found.uid, found.caption, found.source, found.url, found.pmid, found.modality, found.body_part)
    read = read_figure(row)
    return (read.uid, read.caption, read.source, read.url, read.pmid, read.modality, read.body_part)


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
    if not isinstance(content, bytes) or not content.startswith(tuple(PICTURE_FORMATS.values())):
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
