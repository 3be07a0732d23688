"""`kind: literature`: search in the literature, live or from a recorded snapshot.

    specialists:
      search: {kind: literature, snapshot: "package:literature"}

declares `search_web` (articles of PubMed) and `search_images` (figures of Open-i). Without `snapshot` both services are
asked. What the model reads has one form, whatever the source. Found pictures become images of the episode, which
`open_image` shows and `zoom` enlarges.
"""

import asyncio
import hashlib
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Annotated, ClassVar

import cv2
import numpy as np
from cachetools import LRUCache, cached
from pydantic import Field

from ...assets import resolve_snapshot_path
from ...configs.sections import FilePath
from ...errors import ArgumentError, ConfigError, ToolError, ToolFault
from ...images.source import Source
from ...images.view import View
from ...utils import concurrency
from ..arguments import Hidden, Range
from ..calling import ToolOutput
from ..specialists.remote import decode_picture
from ..specialists.spec import Specialist, register_specialist
from ..tool import Tool
from .records import ArticleQuery, FoundImage, ImageQuery, SearchSource, SearchType
from .wording import MAX_QUERY, write_articles, write_images

LIVE = "https://eutils.ncbi.nlm.nih.gov"
MAX_PIXELS = 2**20  # of a found picture that is kept
INVENTED = "package:literature"  # the shipped snapshot
MAX_ARTICLES, MAX_IMAGES = 10, 6  # results of a call
KEPT = 64  # decoded pictures of this process
_kept: LRUCache[bytes, Source] = LRUCache(KEPT)


@register_specialist("literature")
class LiteratureSpecialist(Specialist):
    """Search for articles (`NAME_web`) and their figures (`NAME_images`): live, or from a snapshot."""

    sends: ClassVar[str] = "queries"

    snapshot: FilePath | None = Field(
        default=None,
        min_length=1,
        description="a recorded snapshot (one file), or package:literature; without it, live",
    )
    live_in_training: Annotated[
        bool, Field(description="a policy may be trained with live search, whose answers change from day to day")
    ] = False
    item_chars: Annotated[int, Field(ge=120, description="characters of one result that the model reads")] = 500
    total_chars: Annotated[int, Field(ge=200, description="characters of all results of a call")] = 5_000
    cache: Annotated[FilePath | None, Field(min_length=1, description="a folder that keeps live answers")] = None

    @property
    def address(self) -> str | None:
        return LIVE if self.snapshot is None else None

    @property
    def why_not_in_training(self) -> str | None:
        if self.snapshot is not None or self.live_in_training:
            return None
        return (
            "live search changes from day to day and asks a public service for every episode; allowed in training: "
            "snapshot: FILE (examples/snapshot.py) or package:literature, or live_in_training: true"
        )

    @property
    def why_not_for_a_person(self) -> str | None:
        if self.snapshot != INVENTED:
            return None
        return (
            "its articles are invented; allowed for a question of your own: kind: literature without a snapshot, which "
            "searches live (`viewbox ask --live`), or the snapshot of your own FILE"
        )

    def build_tools(self, name: str) -> Sequence[Tool]:
        function = LiteratureTools(name, self)
        searches = {"web": function.search_web, "images": function.search_images}
        return [self._build_tool(search, f"{name}_{what}") for what, search in searches.items()]

    def _build_tool(self, function: object, name: str) -> Tool:
        tool = Tool.from_function(function, name, max_calls=self.max_calls)  # type: ignore[arg-type]
        words = tool.description if self.description is None else f"{self.description} {tool.description}"
        return Tool.from_function(function, name, words, self.max_calls)  # type: ignore[arg-type]

    def open_source(self) -> SearchSource:
        """Return the source that answers; all tools of a process with the same settings share one."""
        if self.snapshot is not None:
            return _open_source(resolve_snapshot_path(self.snapshot), None)
        return _open_source(None, self.cache)


@lru_cache(maxsize=8)
def _open_source(snapshot: str | None, cache: str | None) -> SearchSource:
    from .live import LiveSource
    from .snapshot import SnapshotSource

    return LiveSource(cache) if snapshot is None else SnapshotSource(Path(snapshot))


class LiteratureTools:
    """The functions of both tools; `name` is the key in YAML."""

    def __init__(self, name: str, settings: LiteratureSpecialist) -> None:
        self.name, self.settings = name, settings

    @property
    def source(self) -> SearchSource:
        return self.settings.open_source()

    def prepare(self) -> None:
        """Check that the source can answer. Raise `ConfigError`; its key begins with `specialists.NAME`."""
        path = f"specialists.{self.name}"
        try:
            self.source.prepare()
        except ConfigError as error:
            key = f"{path}.snapshot" if self.settings.snapshot is not None else path
            raise ConfigError(f"{key}: {error}", key=key) from error

    async def search_web(
        self,
        query: Annotated[str, "words that title or abstract should hold"],
        search_type: Annotated[SearchType, "which articles count; recent: of the last years"] = "all",
        max_results: Annotated[int, Range(1, MAX_ARTICLES), "at most so many articles"] = 5,
    ) -> ToolOutput:
        """Search the medical literature (PubMed): numbered articles, the best first, each with PMID, year, journal,
        title and the part of its abstract that fits the query. Retracted articles are marked."""
        asked = ArticleQuery(_check_query(query), search_type, max_results)
        articles = list(await self.source.search_articles(asked))[:max_results]
        text, shown = write_articles(asked, articles, self.settings.item_chars, self.settings.total_chars)
        retracted = [article.pmid for article in shown if article.retracted]
        facts = {"pmids": [article.pmid for article in shown], "retracted": retracted}
        return ToolOutput(text, facts, tells_facts=False)

    async def search_images(
        self,
        query: Annotated[str, "words that caption or title should hold"],
        modality: Annotated[str, "such as x-ray, ct or mri; empty: any"] = "",
        body_part: Annotated[str, "such as chest or abdomen; empty: any"] = "",
        max_results: Annotated[int, Range(1, MAX_IMAGES), "at most so many figures"] = 4,
        found: Hidden[list[Source] | None] = None,
    ) -> ToolOutput:
        """Search figures of medical articles (Open-i): numbered captions with their source, and the pictures on one
        sheet."""
        asked = ImageQuery(_check_query(query), modality.strip()[:40], body_part.strip()[:40], max_results)
        figures = list(await self.source.search_images(asked))[:max_results]
        loaded = await asyncio.gather(*(self._load(figure) for figure in figures))
        problems = [item if isinstance(item, str) else None for item in loaded]
        most, total = self.settings.item_chars, self.settings.total_chars
        text, shown = write_images(asked, figures, problems, most, total)
        pictures = {number: item for number, item in enumerate(loaded[: len(shown)], 1) if isinstance(item, Source)}
        if found is not None:
            found += pictures.values()
        facts = {"pmids": [figure.pmid for figure in shown if figure.pmid], "figures": [figure.uid for figure in shown]}
        return ToolOutput(text, facts, _show(pictures), tells_facts=False)

    async def _load(self, figure: FoundImage) -> Source | str:
        """Return the picture of a figure, or why there is none."""
        try:
            content = await self.source.load_image(figure)
            return await concurrency.run_in_thread(_decode, content)
        except (ToolError, ToolFault) as error:
            return str(error)


def _show(pictures: Mapping[int, Source]) -> Source | np.ndarray | None:
    """Return what the model sees of found pictures, by their numbers: one alone as it is, several as a sheet."""
    if len(pictures) > 1:
        return draw_sheet(list(pictures.values()), list(pictures))
    return next(iter(pictures.values()), None)


def _check_query(query: str) -> str:
    words = " ".join(query[: 4 * MAX_QUERY].split())[:MAX_QUERY]
    if not words:
        raise ArgumentError("query is empty; give words to search for")
    return words


@cached(_kept, key=lambda content: hashlib.sha256(content).digest(), lock=Lock())
def _decode(content: bytes) -> Source:
    """Return the picture of a file, with at most `MAX_PIXELS` pixels; raise `ToolError`."""
    source = decode_picture(content, "the picture")
    if source.width * source.height <= MAX_PIXELS:
        return source
    return Source.of(View.of(source, max_pixels=MAX_PIXELS).to_uint8())


TILE, GAP = 256, 4  # pixels
PAPER, INK = 32, 255


def draw_sheet(sources: Sequence[Source], numbers: Sequence[int]) -> np.ndarray:
    """Return a sheet of the pictures, uint8 (height, width, 3), each with its number at the upper left.

    >>> draw_sheet([Source.of(np.zeros((30, 60), np.uint8))] * 3, [1, 2, 4]).shape
    (520, 520, 3)
    """
    columns = math.ceil(math.sqrt(len(sources)))
    rows = math.ceil(len(sources) / columns)
    step = TILE + GAP
    sheet = np.full((rows * step, columns * step, 3), PAPER, np.uint8)
    for place, (source, number) in enumerate(zip(sources, numbers, strict=True)):
        row, column = divmod(place, columns)
        top, left = row * step + GAP // 2, column * step + GAP // 2
        sheet[top : top + TILE, left : left + TILE] = _draw_tile(source, str(number))
    return sheet


def _draw_tile(source: Source, label: str) -> np.ndarray:
    tile = np.full((TILE, TILE, 3), PAPER, np.uint8)
    shown = source.render()
    scale = TILE / max(shown.shape[:2])
    size = [max(1, round(side * scale)) for side in shown.shape[1::-1]]
    small = cv2.resize(shown, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR)
    colored = cv2.cvtColor(small, cv2.COLOR_GRAY2RGB) if small.ndim == 2 else small
    top, left = (TILE - size[1]) // 2, (TILE - size[0]) // 2
    tile[top : top + size[1], left : left + size[0]] = colored
    tile[:30, : 14 + 16 * len(label)] = 0
    cv2.putText(tile, label, (6, 23), cv2.FONT_HERSHEY_SIMPLEX, 0.8, (INK, INK, INK), 2, cv2.LINE_AA)
    return tile
