"""Reads articles and figures from the rows of a snapshot.

A row may be a stranger's: what no record can be is refused, so that it costs that row.
"""

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from ....errors import ViewboxError, describe_value
from ...specialists.remote import JPEG, PNG
from ..records import Article, FoundImage, SearchType
from .schema import ARTICLE_COLUMNS, FIGURE_COLUMNS

RECENT_YEARS = 5  # "recent": of the year in which the snapshot was recorded and the four before it


class BadRecord(ViewboxError, ValueError):
    """A row that is no article or figure."""


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


def write_kind_token(kind: SearchType) -> str:
    """Return the word by which the index knows a search type: its first letter is in no word of a query.

    >>> write_kind_token("meta_analysis").isalnum()
    False
    """
    return f"\ue000{kind.replace('_', '')}"
