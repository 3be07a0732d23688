"""A source of literature in memory, for tests of the tools: what shares a word with the query, in the order given."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import cv2
import numpy as np

from viewbox.errors import ToolError
from viewbox.tools import Tool
from viewbox.tools.search.records import Article, ArticleQuery, FoundImage, ImageQuery
from viewbox.tools.search.tools import LiteratureSpecialist, LiteratureTools


def make_png(width: int, height: int, seed: int = 0) -> bytes:
    """A gray PNG of noise."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width), np.uint8)
    return cv2.imencode(".png", pixels)[1].tobytes()


@dataclass
class SmallLiterature:
    """Articles, and figures with their pictures by uid."""

    articles: Sequence[Article] = ()
    figures: Sequence[FoundImage] = ()
    pictures: dict[str, bytes] = field(default_factory=dict)
    asked: list[object] = field(default_factory=list)

    def prepare(self) -> None: ...

    async def search_articles(self, query: ArticleQuery) -> Sequence[Article]:
        self.asked.append(query)
        return [one for one in self.articles if shares_word(query.words, f"{one.title} {one.abstract}")]

    async def search_images(self, query: ImageQuery) -> Sequence[FoundImage]:
        self.asked.append(query)
        return [one for one in self.figures if shares_word(query.words, one.caption)]

    async def load_image(self, found: FoundImage) -> bytes:
        if found.uid not in self.pictures:
            raise ToolError("the picture is gone")
        return self.pictures[found.uid]


def shares_word(query: str, text: str) -> bool:
    return not set(query.casefold().split()).isdisjoint(text.casefold().split())


class ToolsOf(LiteratureTools):
    """The functions of both tools, answered by a source."""

    source: Any = None

    def __init__(self, source: Any, settings: LiteratureSpecialist) -> None:
        super().__init__("search", settings)
        self.source = source


def make_tools(source: SmallLiterature, **settings: object) -> list[Tool]:
    """`search_web` and `search_images` on a source."""
    functions = ToolsOf(source, LiteratureSpecialist(snapshot="none", **settings))
    return [Tool.from_function(functions.search_web), Tool.from_function(functions.search_images)]
