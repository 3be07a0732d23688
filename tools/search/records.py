"""Queries and what they find: the same records from the live services and from a snapshot."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol, get_args

from msgspec import Meta

SearchType = Literal["all", "review", "trial", "meta_analysis", "guideline", "case_report", "recent"]
SEARCH_TYPES: tuple[SearchType, ...] = get_args(SearchType)
RECENT_YEARS = 5  # "recent": of the year of the search, or in which the snapshot was recorded, and the four before it
# What a field must be where a record is read: no mark of a chat template or boundary in what names a record.
Identifier = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._:-]{0,199}\Z")]
Address = Annotated[str, Meta(pattern=r"\A(?:https?://[^\s\x00-\x20<>\"\x7f]+)?\Z", max_length=4_000)]
Names = Annotated[tuple[str, ...], Meta(max_length=500)]


@dataclass(frozen=True)
class ArticleQuery:
    """A search for articles, in words as the model wrote them."""

    words: str
    search_type: SearchType = "all"
    limit: int = 5


@dataclass(frozen=True)
class ImageQuery:
    """A search for figures of articles; `modality` and `body_part` are empty if any will do."""

    words: str
    modality: str = ""
    body_part: str = ""
    limit: int = 4


@dataclass(frozen=True)
class Article:
    """An article of PubMed. Fields that its record lacks are empty."""

    pmid: Identifier
    title: str = ""
    journal: str = ""
    year: Annotated[int, Meta(ge=1000, le=9999)] | None = None
    abstract: str = ""
    doi: str = ""
    url: Address = ""
    types: Names = ()  # of publication, such as "Review"
    mesh: Names = ()  # headings
    retracted: bool = False  # whether the record says so


@dataclass(frozen=True)
class FoundImage:
    """A figure of an article."""

    uid: Identifier  # unique in its source
    caption: str = ""
    source: str = ""  # the article, in words: title, journal, year
    url: Address = ""  # of the article
    image_url: str = ""  # of the picture; empty in a snapshot, which holds its bytes
    pmid: str = ""
    modality: str = ""
    body_part: str = ""


class SearchSource(Protocol):
    """Answers queries: live, or from a snapshot. Raises `ToolError`, in words for the model, if it cannot."""

    async def search_articles(self, query: ArticleQuery) -> Sequence[Article]:
        """Return the articles found, the best first."""
        ...

    async def search_images(self, query: ImageQuery) -> Sequence[FoundImage]:
        """Return the figures found, the best first."""
        ...

    async def load_image(self, found: FoundImage) -> bytes:
        """Return the file of a figure: PNG or JPEG, undecoded."""
        ...

    def prepare(self) -> None:
        """Check before the first call that the source can answer: the file is there, or the address allowed."""
        ...
