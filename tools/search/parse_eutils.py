"""The answers of ESearch and ESummary in JSON (`retmode=json`), version 0.3 and 2.0.

Their form is that of "The E-utilities In-Depth" (Entrez Programming Utilities Help, NBK25499): ESearch answers
{"esearchresult": {"count", "idlist", …}}, or {"esearchresult": {"ERROR": …}} with status 200; ESummary answers
{"result": {"uids": […], ID: {…}}}, where an ID without a record has {"error": …}.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...network.body import parse_body
from ...network.errors import UnusableReplyError
from .records import Article

MAX_TEXT = 100_000  # characters of a field
_PMID = re.compile(r"[1-9][0-9]{0,9}")
_YEAR = re.compile(r"(?<![0-9])(1[5-9]|20)[0-9]{2}(?![0-9])")
_DOI = re.compile(r"10\.[0-9]{3,9}/[!-~]{1,190}")


def read_ids(content: bytes, limit: int) -> list[str]:
    """The PMIDs of an answer of ESearch, the best first; what is no PMID is left out.

    Raises:
        UnusableReplyError: it says that the search failed, or is something else.

    >>> read_ids(b'{"esearchresult": {"count": "2", "idlist": ["7", "<x>", "8"]}}', 5)
    ['7', '8']
    """
    found = _read_object(content, "ESearch").get("esearchresult")
    if not isinstance(found, Mapping):
        raise UnusableReplyError("the answer of ESearch has no esearchresult")
    if found.get("ERROR"):
        raise UnusableReplyError(f"ESearch failed: {str(found['ERROR'])[:200]}")
    ids = found.get("idlist")
    if not isinstance(ids, list):
        raise UnusableReplyError("the answer of ESearch has no idlist")
    return list(dict.fromkeys(pmid for one in ids if (pmid := read_pmid(one))))[:limit]


def read_summaries(content: bytes) -> dict[str, Article]:
    """The articles of an answer of ESummary by PMID, without abstracts; a bad one is left out.

    Raises:
        UnusableReplyError: it is something else.
    """
    found = _read_object(content, "ESummary").get("result")
    if not isinstance(found, Mapping):
        raise UnusableReplyError("the answer of ESummary has no result")
    articles = (_read_summary(value) for key, value in found.items() if key != "uids" and isinstance(value, Mapping))
    return {article.pmid: article for article in articles if article is not None}


def _read_summary(value: Mapping[str, Any]) -> Article | None:
    pmid = read_pmid(value.get("uid"))
    if not pmid or value.get("error"):
        return None
    types = tuple(_read_texts(value.get("pubtype")))
    dates = (value.get("pubdate"), value.get("sortpubdate"), value.get("epubdate"))
    journals = (value.get("fulljournalname"), value.get("source"), value.get("booktitle"))
    links = [link for link in _read_list(value.get("articleids")) if isinstance(link, Mapping)]
    return Article(
        pmid,
        title=read_text(value.get("title")),
        journal=next(filter(None, map(read_text, journals)), ""),
        year=next((year for date in dates if (year := read_year(date)) is not None), None),
        doi=next((doi for link in links if link.get("idtype") == "doi" and (doi := read_doi(link.get("value")))), ""),
        url=build_url(pmid),
        types=types,
        retracted="retracted publication" in {name.casefold() for name in types},
    )


def fill_gaps(article: Article, summary: Article | None) -> Article:
    """The article with what its record lacks from its summary.

    >>> fill_gaps(Article("7", "A sign"), Article("7", "A", "J", 2020)).journal
    'J'
    """
    if summary is None:
        return article
    names = ("title", "journal", "year", "abstract", "doi", "url", "types", "mesh")
    values = {name: getattr(article, name) or getattr(summary, name) for name in names}
    return Article(article.pmid, **values, retracted=article.retracted or summary.retracted)


def _read_object(content: bytes, what: str) -> Mapping[str, Any]:
    try:
        value = parse_body(content)
    except (ValueError, RecursionError):
        raise UnusableReplyError(f"the answer of {what} is not JSON") from None
    if not isinstance(value, Mapping):
        raise UnusableReplyError(f"the answer of {what} is not an object of JSON")
    if isinstance(value.get("error"), str):
        raise UnusableReplyError(f"{what} failed: {value['error'][:200]}")
    return value


# ---------------------------------------------------------------------- fields
def read_text(value: object) -> str:
    """A text in one line; empty if it is none."""
    return " ".join(value[: 2 * MAX_TEXT].split())[:MAX_TEXT] if isinstance(value, str) else ""


def read_pmid(value: object) -> str:
    """A PMID; empty if it is none.

    >>> read_pmid(" 123 "), read_pmid(123), read_pmid("12a"), read_pmid("0"), read_pmid(True)
    ('123', '123', '', '', '')
    """
    text = str(value).strip() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    return text if _PMID.fullmatch(text) else ""


def read_year(value: object) -> int | None:
    """The first year in a date as PubMed writes them.

    >>> read_year("1998 Dec-1999 Jan"), read_year("Winter 2024"), read_year("n.d.")
    (1998, 2024, None)
    """
    found = _YEAR.search(value[:200]) if isinstance(value, str) else None
    return int(found[0]) if found else None


def read_doi(value: object) -> str:
    """A DOI (ISO 26324); empty if it is none."""
    text = value.strip() if isinstance(value, str) else ""
    return text if _DOI.fullmatch(text) else ""


def build_url(pmid: str) -> str:
    """The page of an article."""
    return f"https://pubmed.ncbi.nlm.nih.gov/{pmid}/"


def _read_list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _read_texts(value: object) -> list[str]:
    return [text for one in _read_list(value) if (text := read_text(one))]
