"""Records the answers of a source, live as a rule, into a snapshot that is being made."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ....errors import ToolError, ToolFault
from ....utils import concurrency
from ....utils.terminal import make_line
from ...specialists.remote import decode_picture
from ..records import ArticleQuery, FoundImage, ImageQuery, SearchSource, SearchType
from .rows import BadRecord
from .writer import SnapshotWriter

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
