"""Searches PubMed with NCBI's E-utilities: ESearch finds PMIDs, ESummary and EFetch tell what they are.

Sources: "A General Introduction to the E-utilities" and "The E-utilities In-Depth" (Entrez Programming Utilities Help,
https://www.ncbi.nlm.nih.gov/books/NBK25497/ and NBK25499/). At most 3 requests a second, 10 with a key; every request
names its `tool` and, if known, an `email`.

How a search type becomes part of the term (PubMed Help, https://pubmed.ncbi.nlm.nih.gov/help/, "Publication types" and
"Date of publication"; a type includes those below it in MeSH, so "review" finds systematic reviews):

| search type | added to the words |
|---|---|
| all | nothing |
| review | review[pt] |
| trial | clinical trial[pt] |
| meta_analysis | meta-analysis[pt] |
| guideline | guideline[pt] or practice guideline[pt] |
| case_report | case reports[pt] |
| recent | published in this year or the four before it |
"""

import asyncio
import logging
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from viewbox.envs.tools.search.parse_eutils import fill_gaps, read_ids, read_summaries
from viewbox.envs.tools.search.parse_pubmed import read_articles
from viewbox.envs.tools.search.records import Article, ArticleQuery, SearchType
from viewbox.envs.tools.search.service import Service
from viewbox.envs.tools.search.snapshot.kinds import RECENT_YEARS
from viewbox.errors import ToolFault

log = logging.getLogger("viewbox.envs")

HOST = "eutils.ncbi.nlm.nih.gov"
PATH = "/entrez/eutils/"
TOOL = "viewbox"
RATE, RATE_WITH_KEY = 3, 10  # requests a second
MAX_RESULTS = 200  # of a search
BATCH = 50  # records of a request
FILTERS: Final[Mapping[SearchType, str]] = {
    "review": "review[pt]",
    "trial": "clinical trial[pt]",
    "meta_analysis": "meta-analysis[pt]",
    "guideline": "(guideline[pt] OR practice guideline[pt])",
    "case_report": "case reports[pt]",
}


def build_term(query: ArticleQuery, year: int) -> str:
    """What PubMed is asked for; `year` is the present one.

    Words with brackets that do not close would take the filter into them, so these are left out.

    >>> build_term(ArticleQuery("lung nodule", "recent"), 2026)
    '(lung nodule) AND 2022:3000[dp]'
    >>> build_term(ArticleQuery("nodule) OR (", "review"), 2026)
    '(nodule OR) AND review[pt]'
    """
    words = " ".join((query.words if _is_balanced(query.words) else _drop_brackets(query.words)).split())
    if query.search_type == "recent":
        return f"({words}) AND {year - RECENT_YEARS + 1}:3000[dp]"
    added = FILTERS.get(query.search_type)
    return f"({words}) AND {added}" if added else words


def _is_balanced(words: str) -> bool:
    depth = 0
    for letter in words:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth < 0:
            return False
    return depth == 0 and words.count('"') % 2 == 0


def _drop_brackets(words: str) -> str:
    return re.sub('[()"]', " ", words)


class EutilsClient:
    """Searches PubMed.

    Args:
        service: the host of the E-utilities, with the limiter for this key.
        api_key: of NCBI; None: without.
        email: where NCBI may write to; None: not told.
    """

    def __init__(self, service: Service, api_key: str | None = None, email: str | None = None) -> None:
        self.service = service
        names = {"tool": TOOL, "email": email, "api_key": api_key}
        self._always = {"db": "pubmed", **{name: value for name, value in names.items() if value}}

    async def search(self, query: ArticleQuery) -> list[Article]:
        """The articles, the best first; one whose record cannot be had is left out.

        Raises:
            ToolError: PubMed gives no answer.
        """
        limit = max(0, min(query.limit, MAX_RESULTS))
        term = build_term(query, datetime.now(UTC).year)
        if not limit or not term.strip("() "):
            return []
        asked = {"term": term, "retmax": str(limit), "sort": "relevance", "retmode": "json"}
        ids = await self.service.ask(
            f"{PATH}esearch.fcgi", {**self._always, **asked}, lambda body: read_ids(body, limit)
        )
        batches = [ids[start : start + BATCH] for start in range(0, len(ids), BATCH)]
        return [article for batch in batches for article in await self._load(batch)]

    async def _load(self, ids: list[str]) -> list[Article]:
        """The articles with these PMIDs, in their order; others that the server sends are dropped."""
        asked = {**self._always, "id": ",".join(ids)}
        summaries, records = await asyncio.gather(
            self.service.ask(f"{PATH}esummary.fcgi", {**asked, "retmode": "json"}, read_summaries),
            self.service.ask(f"{PATH}efetch.fcgi", {**asked, "retmode": "xml"}, read_articles),
            return_exceptions=True,
        )
        if isinstance(records, BaseException):
            raise records
        if isinstance(summaries, ToolFault):  # they only fill gaps
            summaries = {}
        if isinstance(summaries, BaseException):
            raise summaries
        known = [(records.get(pmid) or summaries.get(pmid), summaries.get(pmid)) for pmid in ids]
        found = [fill_gaps(article, summary) for article, summary in known if article is not None]
        if len(found) < len(ids):
            log.warning("PubMed named %d articles and gave records of %d", len(ids), len(found))
        return found
