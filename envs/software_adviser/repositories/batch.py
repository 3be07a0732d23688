"""Summaries of many repositories at once: each address stands alone, whatever happens to the others."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from viewbox.envs.software_adviser.repositories.addresses import AddressError, read_repository
from viewbox.envs.software_adviser.repositories.sources import SummarySource
from viewbox.envs.tools.search.wording import make_line
from viewbox.errors import ToolError

log = logging.getLogger("viewbox.envs")

MAX_REPOSITORIES = 12  # of a batch
MAX_ADDRESSES = 100  # of a batch that are read
TOO_MANY_URLS = "TOO_MANY_URLS"
UNKNOWN = "nothing is known of it"
MAX_LINE = 640  # characters of the text about one repository


@dataclass(frozen=True)
class Answer:
    """What is said of one address.

    name: "owner/name", or the address as it was given if it names no repository.
    text: the summary; empty if there is none.
    origin: of the summary.
    problem: why there is none; empty if there is one.
    skipped: whether nothing was asked, because of the address.
    """

    name: str
    text: str = ""
    origin: str = ""
    problem: str = ""
    skipped: bool = False

    def write(self) -> str:
        """The answer as a line of the tool's text."""
        if self.skipped:
            return f"{self.name}: skipped ({self.problem})"
        return f"{self.name}: failed ({self.problem})" if self.problem else f"{self.name} ({self.origin}): {self.text}"


async def ask_all(addresses: Sequence[str], sources: Sequence[SummarySource]) -> list[Answer]:
    """One answer for each repository, and for each address that names none; repeated ones are asked once.

    Args:
        addresses: as a model wrote them.
        sources: asked in order for each repository, until one knows it.
    """
    answers: dict[str, Answer] = {}
    asked: list[str] = []
    for address in addresses[:MAX_ADDRESSES]:
        try:
            name = read_repository(address)
            problem = f"{TOO_MANY_URLS}: at most {MAX_REPOSITORIES} a call" if len(asked) >= MAX_REPOSITORIES else ""
        except AddressError as error:
            name, problem = make_line(address, 100) or "(empty)", error.reason
        if name not in answers:
            answers[name] = Answer(name, problem=problem, skipped=True)
            asked += [] if problem else [name]
    found = await asyncio.gather(*(_ask(name, sources) for name in asked))
    answers.update(zip(asked, found, strict=True))
    return list(answers.values())


async def _ask(name: str, sources: Sequence[SummarySource]) -> Answer:
    problem = UNKNOWN
    for source in sources:
        try:
            summary = await source.summarize(name)
        except Exception as error:  # of a source: it costs this repository this source, and nothing else
            if not isinstance(error, ToolError):
                log.error("%s failed", type(source).__name__, exc_info=error)
            problem = str(error) if isinstance(error, ToolError) else type(error).__name__
            continue
        if summary is not None:
            return Answer(name, make_line(summary.text, MAX_LINE), summary.origin)
    return Answer(name, problem=make_line(problem, 100))
