"""The adviser's tools: a search, three more in other words, and what is known of repositories.

The model writes words and addresses only. What its user excluded, the formats of the user's files, how many tools a
search returns, and what is searched at all are `Hidden` arguments: the environment fills them in
(`hidden_arguments`), and no model sees or sets them. The quotas are `max_calls` of each tool, and `max_total_calls` of
the environment; the loop counts them in the episode's state.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from ...errors import ArgumentError, ToolError
from ...tools import Hidden, Tool
from ...tools.calling import ToolOutput
from ...tools.search.wording import join_items, make_line
from .catalogue import SoftwareTool
from .repositories import Repositories, read_repository
from .retrieval import Retriever

MAX_QUERY: Final = 500  # characters
MAX_TOTAL_CALLS: Final = 20  # of an episode, of all tools together
MAX_ITEM: Final = 620  # characters of the text about one tool
MAX_SHORT: Final = 300  # characters of the text about one tool with few facts
MAX_REPOSITORIES: Final = 12  # of a batch
MAX_ADDRESSES: Final = 100  # of a batch that are read
Kind = Literal["answered", "skipped", "failed"]  # skipped: nothing was asked, because of the address


@dataclass(frozen=True)
class SearchContext:
    """What the environment adds to a search."""

    retriever: Retriever
    top_k: int = 12
    exclude: tuple[str, ...] = ()  # names of tools that the user does not want
    formats: tuple[str, ...] = ()  # of the user's files, words of the vocabulary
    max_chars: int = 8000  # of the text; tools that do not fit are not found
    shown: tuple[str, ...] | None = None  # the facts beside the name, for small models; None: all, with a sentence
    numbered: bool = False  # whether lines with the facts `shown` begin with a number

    def find(self, words: str) -> list[str]:
        return self.retriever.search(words, top_k=self.top_k, exclude=self.exclude, formats=self.formats)

    def search(self, query: str) -> ToolOutput:
        """Return the text of a search, the names found as a fact for rewards. Raise `ArgumentError` for an empty
        query."""
        words = " ".join(query[: 4 * MAX_QUERY].split())[:MAX_QUERY]
        if not words:
            raise ArgumentError("query is empty; give words to search for")
        hits = self.find(words)
        tools = [self.retriever.by_name[name] for name in hits]
        if not tools:
            asked = make_line(words, 80)
            text = f"No tool found for {asked!r}: nothing in the catalogue is about that. Try other words."
            return ToolOutput(text, {"names": []}, tells_facts=False)
        items = [f"[{number}] {write_tool(tool)}" for number, tool in enumerate(tools, 1)]
        text, count = join_items("tool", items, self.max_chars)
        if self.shown is not None:
            lines = [write_short(tool, self.shown) for tool in tools[:count]]
            text = "\n".join(f"{number}. {line}" if self.numbered else line for number, line in enumerate(lines, 1))
        return ToolOutput(text, {"names": hits[:count]}, tells_facts=False)


def search_tools(
    query: Annotated[str, "the task, the kind of image, its dimensions and what else matters, in a few words"],
    context: Hidden[SearchContext],
) -> ToolOutput:
    """Search the catalogue of imaging software, by words and by meaning: numbered tools, the best first, with their
    facts. The formats of the user's files and the tools that the user excluded are taken into account."""
    return context.search(query)


def search_alternative(
    query: Annotated[str, "the task in other words, or a part of it"],
    context: Hidden[SearchContext],
) -> ToolOutput:
    """Search the catalogue again in other words, if the first search did not find what the user needs."""
    return context.search(query)


async def repo_info_batch(
    urls: Annotated[list[str], "addresses of GitHub repositories, all that are needed in one call"],
    repositories: Hidden[Repositories],
) -> ToolOutput:
    """Look up what was recorded of GitHub repositories: license, languages, last commit and what they need. Each is
    looked up once; an address elsewhere is skipped, and one that fails does not harm the others."""
    if not 0 < len(urls) <= MAX_ADDRESSES:
        raise ArgumentError(f"urls has {len(urls)} addresses; allowed: 1 to {MAX_ADDRESSES}")
    answers = await ask_all(urls, repositories)
    by_kind: dict[str, dict[str, str]] = {"answered": {}, "skipped": {}, "failed": {}}
    for answer in answers:
        by_kind[answer.kind][answer.name] = answer.text
    text = "\n".join(f"[{number}] {answer.write()}" for number, answer in enumerate(answers, 1))
    return ToolOutput(text, {**by_kind, "answered": list(by_kind["answered"])}, tells_facts=False)


_CALLS = ((search_tools, 1), (search_alternative, 3), (repo_info_batch, 4))  # at most in an episode
ADVISER_TOOLS: Final = tuple(Tool.from_function(function, max_calls=count) for function, count in _CALLS)
ASK_GITHUB: Final = Tool.from_function(
    repo_info_batch,
    description="Ask GitHub what repositories are today: license, language, stars, topics, last push and last release. "
    "Each is asked about once; an address elsewhere is skipped, and one that fails does not harm the others.",
    max_calls=4,
)


def write_short(tool: SoftwareTool, shown: Sequence[str]) -> str:
    """Return a line of JSON with the name and some facts, in the form in which an answer repeats the name.

    >>> tool = SoftwareTool(
    ...     name="A", repository="https://github.com/o/a", tasks=("denoising",), modalities=("CT",), features="F.",
    ...     dimensions=("2D", "3D"))
    >>> write_short(tool, ("dimensions", "license"))
    '{"name": "A", "dimensions": "2D, 3D", "license": "unknown"}'
    """
    facts = {name: getattr(tool, name) for name in shown}
    told = {name: ", ".join(fact) if isinstance(fact, tuple) else fact for name, fact in facts.items()}
    known = {name: text or "unknown" for name, text in told.items()}
    return make_line(json.dumps({"name": tool.name, **known}), MAX_SHORT)


def write_tool(tool: SoftwareTool) -> str:
    """Return the facts of a tool in a line. A user's catalogue is a stranger's text: it is made safe."""
    facts = [
        f"tasks: {', '.join(tool.tasks)}",
        f"modalities: {', '.join(tool.modalities)}",
        f"dimensions: {', '.join(tool.dimensions)}",
        f"formats: {', '.join(tool.formats) or 'unknown'}",
        f"made for: {', '.join((*tool.list_structures(), *tool.variants)) or 'unknown'}",
        f"license: {tool.license or 'unknown'}",
        f"GPU: {tool.gpu}",
        f"interfaces: {', '.join(tool.interfaces) or 'unknown'}",
        tool.repository,
        f"demo: {tool.demo or 'none'}",
    ]
    features = make_line(tool.features, 200)
    return make_line(f"{tool.name}: {features} {'; '.join(facts)}", MAX_ITEM)


@dataclass(frozen=True)
class RepositoryAnswer:
    """What is said of one address."""

    name: str  # "owner/name", or the address as it was given if it names no repository
    kind: Kind
    text: str  # date, source and summary, or why there is none

    def write(self) -> str:
        return f"{self.name} {self.text}" if self.kind == "answered" else f"{self.name}: {self.kind} ({self.text})"


async def ask_all(addresses: Sequence[str], repositories: Repositories) -> list[RepositoryAnswer]:
    """Return one answer for each repository, and for each address that names none; repeated ones are looked up once,
    and all at the same time."""
    problems: dict[str, str] = {}
    for address in addresses:
        name, problem = read_repository(address)
        name = name or make_line(address, 100) or "(empty)"
        if list(problems.values()).count("") >= MAX_REPOSITORIES:
            problem = problem or f"TOO_MANY_URLS: at most {MAX_REPOSITORIES} a call"
        problems.setdefault(name, problem)

    async def answer(name: str, problem: str) -> RepositoryAnswer:
        if problem:
            return RepositoryAnswer(name, "skipped", problem)
        try:
            return RepositoryAnswer(name, "answered", await repositories.summarize(name))
        except ToolError as error:
            return RepositoryAnswer(name, "failed", str(error))

    return list(await asyncio.gather(*(answer(name, problem) for name, problem in problems.items())))
