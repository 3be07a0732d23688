"""Searches PubMed with NCBI's E-utilities: ESearch finds PMIDs, EFetch tells what they are. `Service` asks any service.

Sources: "A General Introduction to the E-utilities" and "The E-utilities In-Depth" (Entrez Programming Utilities Help,
https://www.ncbi.nlm.nih.gov/books/NBK25497/ and NBK25499/). At most 3 requests a second, 10 with a key; every request
names its `tool` and, if known, an `email`.

A search type becomes part of the term by `FILTERS` (PubMed Help, https://pubmed.ncbi.nlm.nih.gov/help/, "Publication
types" and "Date of publication"; a type includes those below it in MeSH, so "review" finds systematic reviews).

ESearch answers in JSON: {"esearchresult": {"count", "idlist", …}}, or {"esearchresult": {"ERROR": …}} with status 200.
The elements of an answer of EFetch are those of NLM's DTD (https://dtd.nlm.nih.gov/ncbi/pubmed/out/pubmed_250101.dtd,
"PubMedArticle"; most are optional). The XML is a stranger's: it is read by defusedxml, which refuses entities, so that
a small text cannot grow, and nothing that it names is loaded.
"""

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final, TypeVar
from urllib.parse import urlencode
from xml.etree.ElementTree import Element, ParseError

import httpx
from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from ...errors import ToolFault
from ...network.connection import Connection
from ...network.errors import AddressError, RequestError, UnusableReplyError
from ...network.http import parse_body
from ...network.public import Limiter, PublicTransport, check_public_url
from .records import RECENT_YEARS, Article, ArticleQuery, SearchType

log = logging.getLogger("viewbox.envs")

HOST = "eutils.ncbi.nlm.nih.gov"
PATH = "/entrez/eutils/"
TOOL = "viewbox"
RATE, RATE_WITH_KEY = 3, 10  # requests a second
MAX_RESULTS = 200  # of a search
BATCH = 50  # records of a request
MAX_ATTEMPTS = 6
FIRST_PAUSE = 0.5  # seconds before the second attempt
TIMEOUT = 30.0  # seconds of an attempt
RETRY_TIMEOUT = 50.0  # seconds after the first failure within which there is another attempt
MAX_BYTES = 10 * 2**20  # of an answer
FILTERS: Final[Mapping[SearchType, str]] = {
    "review": "review[pt]",
    "trial": "clinical trial[pt]",
    "meta_analysis": "meta-analysis[pt]",
    "guideline": "(guideline[pt] OR practice guideline[pt])",
    "case_report": "case reports[pt]",
}

T = TypeVar("T")


def build_term(query: ArticleQuery, year: int) -> str:
    """Return what PubMed is asked for; `year` is the present one.
    Words with brackets that do not close would take the filter into them, so these are left out.

    >>> build_term(ArticleQuery("lung nodule", "recent"), 2026)
    '(lung nodule) AND 2022:3000[dp]'
    >>> build_term(ArticleQuery("nodule) OR (", "review"), 2026)
    '(nodule OR) AND review[pt]'
    """
    words = " ".join((query.words if _is_balanced(query.words) else re.sub('[()"]', " ", query.words)).split())
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


class Service:
    """One host, asked in its rate, again after a temporary failure, and never anywhere else. Of one event loop.
    A key is sent in a header; a subclass may raise in `read_refusal` what its service means."""

    def __init__(self, host: str, title: str, rate: int, advice: str = "", *, api_key: str | None = None) -> None:
        self.host, self.title, self.advice = host, title, advice
        self.limiter = Limiter(rate)
        self._connection = Connection(
            f"https://{host}",
            api_key=api_key,
            attempts=MAX_ATTEMPTS,
            first_pause=FIRST_PAUSE,
            max_body=MAX_BYTES,
            is_known=True,
            attempt_timeout=TIMEOUT,
            retry_timeout=RETRY_TIMEOUT,
            limiter=self.limiter,
            transport=PublicTransport(host),
            read_refusal=self.read_refusal,
        )

    def read_refusal(self, response: httpx.Response) -> None: ...

    async def ask(self, path: str, parameters: Mapping[str, str], read: Callable[[bytes], T]) -> T:
        """Return what `read` makes of the answer to a query; its `UnusableReplyError` is a temporary failure."""
        return await self.load(f"https://{self.host}{path}?{urlencode(parameters)}", read)

    async def load(self, url: str, read: Callable[[bytes], T]) -> T:
        """Return the same for a URL of this service as a stranger may have written it."""
        try:
            return await self._connection.request("GET", check_public_url(url, self.host), read)
        except (RequestError, AddressError) as error:
            advice = f" ({self.advice})" if error.status in (400, 401, 403) and self.advice else ""
            raise ToolFault(f"{self.title} gave no answer: {error}{advice}") from None


class PubMed(Service):
    """Searches PubMed, with a key of NCBI and an address that NCBI may write to, if there are any."""

    def __init__(self, api_key: str | None = None, email: str | None = None) -> None:
        advice = "is the key in NCBI_API_KEY valid?" if api_key else ""
        super().__init__(HOST, "PubMed", RATE_WITH_KEY if api_key else RATE, advice)
        names = {"tool": TOOL, "email": email, "api_key": api_key}
        self._always = {"db": "pubmed", **{name: value for name, value in names.items() if value}}

    async def search(self, query: ArticleQuery) -> list[Article]:
        """Return the articles, the best first; one whose record cannot be had is left out."""
        limit = max(0, min(query.limit, MAX_RESULTS))
        term = build_term(query, datetime.now(UTC).year)
        if not limit or not term.strip("() "):
            return []
        asked = {"term": term, "retmax": str(limit), "sort": "relevance", "retmode": "json"}
        ids = await self.ask(f"{PATH}esearch.fcgi", {**self._always, **asked}, lambda body: read_ids(body, limit))
        batches = [ids[start : start + BATCH] for start in range(0, len(ids), BATCH)]
        return [article for batch in batches for article in await self._load_articles(batch)]

    async def _load_articles(self, ids: list[str]) -> list[Article]:
        """Return the articles with these PMIDs, in their order; others that the server sends are dropped."""
        asked = {**self._always, "id": ",".join(ids), "retmode": "xml"}

        def read(content: bytes) -> list[Article]:
            records = read_articles(content)
            loaded = [records[pmid] for pmid in ids if pmid in records]
            if not loaded:
                raise UnusableReplyError("EFetch gave no record of what ESearch found")
            return loaded

        loaded = await self.ask(f"{PATH}efetch.fcgi", asked, read)
        if len(loaded) < len(ids):
            log.warning("PubMed named %d articles and gave records of %d", len(ids), len(loaded))
        return loaded


MAX_TEXT = 100_000  # characters of a field
MAX_LISTED = 200  # types or headings of an article
_MATH = "{http://www.w3.org/1998/Math/MathML}math"
_PMID = re.compile(r"[1-9][0-9]{0,9}")
_YEAR = re.compile(r"(?<![0-9])(1[5-9]|20)[0-9]{2}(?![0-9])")
_DOI = re.compile(r"10\.[0-9]{3,9}/[!-~]{1,190}")
BOOK = "PubmedBookArticle"
ABOUT: Final[Mapping[str, str]] = {"PubmedArticle": "MedlineCitation", BOOK: "BookDocument"}
DATES = (
    "Journal/JournalIssue/PubDate/Year", "Journal/JournalIssue/PubDate/MedlineDate", "ArticleDate/Year",
    "ContributionDate/Year", "Book/PubDate/Year", "Book/PubDate/MedlineDate",
)  # fmt: skip
_NO_LABELS = frozenset({"", "UNLABELLED", "UNASSIGNED"})


def read_ids(content: bytes, limit: int) -> list[str]:
    """Return the PMIDs of an answer of ESearch, the best first; what is no PMID is left out.

    >>> read_ids(b'{"esearchresult": {"count": "2", "idlist": ["7", "<x>", "8"]}}', 5)
    ['7', '8']
    """
    result = read_object(content, "ESearch").get("esearchresult")
    if not isinstance(result, Mapping):
        raise UnusableReplyError("the answer of ESearch has no esearchresult")
    if result.get("ERROR"):
        raise UnusableReplyError(f"ESearch failed: {str(result['ERROR'])[:200]}")
    ids = result.get("idlist")
    if not isinstance(ids, list):
        raise UnusableReplyError("the answer of ESearch has no idlist")
    return list(dict.fromkeys(pmid for identifier in ids if (pmid := read_pmid(identifier))))[:limit]


def read_object(content: bytes, what: str) -> Mapping[str, object]:
    """Return the object of JSON in an answer of a service; raise `UnusableReplyError` if it is none."""
    try:
        value = parse_body(content)
    except (ValueError, RecursionError):
        raise UnusableReplyError(f"the answer of {what} is not JSON") from None
    if not isinstance(value, Mapping):
        raise UnusableReplyError(f"the answer of {what} is not an object of JSON")
    if value.get("error"):
        raise UnusableReplyError(f"{what} failed: {value['error']!s:.200}")
    return value


def read_articles(content: bytes) -> dict[str, Article]:
    """Return the articles by PMID; one without a PMID is left out.

    >>> record = b'<PMID>7</PMID><Article><ArticleTitle>A <i>sign</i></ArticleTitle></Article>'
    >>> record = b'<PubmedArticle><MedlineCitation>' + record + b'</MedlineCitation></PubmedArticle>'
    >>> read_articles(b'<PubmedArticleSet>' + record + b'</PubmedArticleSet>')["7"].title
    'A sign'
    """
    try:
        root = fromstring(content)
    except DefusedXmlException as error:
        raise UnusableReplyError(f"the XML of EFetch is refused: it has {type(error).__name__}") from None
    except (ParseError, ValueError, LookupError) as error:  # a wrong encoding is a LookupError
        raise UnusableReplyError(f"the answer of EFetch is not XML ({str(error)[:100]})") from None
    if root.tag != "PubmedArticleSet":
        reason = read_text(root.findtext("ERROR") or root.findtext("Error") or root.text)[:200]
        raise UnusableReplyError(f"EFetch failed: {str(root.tag)[:40]} {reason}".strip())
    articles: dict[str, Article] = {}
    for record in root:
        path = ABOUT.get(record.tag)
        about = None if path is None else record.find(path)
        article = None if about is None else _read_record(record, about)
        if article is not None:
            articles.setdefault(article.pmid, article)
    return articles


def _read_record(record: Element, about: Element) -> Article | None:
    """Return an article of a journal or a chapter of a book, whose elements lie elsewhere; None without a PMID."""
    pmid = read_pmid(about.findtext("PMID"))
    if not pmid:
        return None
    article = about if record.tag == BOOK else about.find("Article")
    article = Element("Article") if article is None else article
    types = _list_texts(article.iterfind("PublicationTypeList/PublicationType"))
    types += _list_texts(article.iterfind("PublicationType"))
    corrections = {one.get("RefType") for one in about.iterfind("CommentsCorrectionsList/CommentsCorrections")}
    dois = [
        *(one.text for one in article.iterfind("ELocationID[@EIdType='doi']") if one.get("ValidYN", "Y") == "Y"),
        *(one.text for one in record.iterfind("*/ArticleIdList/ArticleId[@IdType='doi']")),
    ]
    return Article(
        pmid,
        title=_read_first(article, "ArticleTitle", "VernacularTitle", "Book/BookTitle"),
        journal=_read_first(article, "Journal/Title", "Journal/ISOAbbreviation", "Book/BookTitle"),
        year=next((year for path in DATES if (year := read_year(article.findtext(path))) is not None), None),
        abstract=_read_abstract(article),
        doi=next(filter(None, map(read_doi, dois)), ""),
        url=build_url(pmid),
        types=types,
        mesh=_list_texts(about.iterfind("MeshHeadingList/MeshHeading/DescriptorName")),
        retracted="RetractionIn" in corrections or "retracted publication" in {name.casefold() for name in types},
    )


def _read_abstract(parent: Element) -> str:
    """Return the parts of an abstract, those of a structured one behind their labels."""
    parts = []
    for element in parent.iterfind("Abstract/AbstractText"):
        text, label = _read(element), read_text(element.get("Label"))
        if text:
            parts.append(text if label.upper() in _NO_LABELS else f"{label}: {text}")
    return " ".join(parts)[:MAX_TEXT]


def _read_first(parent: Element, *paths: str) -> str:
    return next((text for path in paths if (text := _read(parent.find(path)))), "")


def _list_texts(elements: Iterator[Element]) -> tuple[str, ...]:
    texts = (text for element in elements if (text := _read(element)))
    return tuple(dict.fromkeys(text for text, _ in zip(texts, range(MAX_LISTED), strict=False)))


def _read(element: Element | None) -> str:
    """Return the text of an element with all inside it, in one line; formulas without the spaces between their
    parts."""
    if element is None:
        return ""
    inner: set[int] = set()  # formulas in formulas
    for math in list(element.iter(_MATH)):
        if id(math) in inner:
            continue
        inner.update(map(id, math.iter(_MATH)))
        text, tail = "".join("".join(math.itertext()).split()), math.tail
        math.clear()
        math.text, math.tail = text, tail
    return read_text("".join(element.itertext()))


def read_text(value: object) -> str:
    """Return a text in one line; empty if it is none."""
    return " ".join(value[: 2 * MAX_TEXT].split())[:MAX_TEXT] if isinstance(value, str) else ""


def read_pmid(value: object) -> str:
    """Return a PMID; empty if it is none.

    >>> read_pmid(" 123 "), read_pmid(123), read_pmid("12a"), read_pmid("0"), read_pmid(True)
    ('123', '123', '', '', '')
    """
    text = str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    return text if _PMID.fullmatch(text) else ""


def read_year(value: object) -> int | None:
    """Return the first year in a date as PubMed writes them.

    >>> read_year("1998 Dec-1999 Jan"), read_year("Winter 2024"), read_year("n.d.")
    (1998, 2024, None)
    """
    match = _YEAR.search(value[:200]) if isinstance(value, str) else None
    return int(match[0]) if match else None


def read_doi(value: object) -> str:
    """Return a DOI (ISO 26324); empty if it is none."""
    text = value.strip() if isinstance(value, str) else ""
    return text if _DOI.fullmatch(text) else ""


def build_url(pmid: str) -> str:
    return f"https://pubmed.ncbi.nlm.nih.gov/{pmid}/"
