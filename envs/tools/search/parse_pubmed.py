"""The answer of EFetch for PubMed in XML: a PubmedArticleSet of articles and chapters of books.

The elements are those of NLM's DTD (https://dtd.nlm.nih.gov/ncbi/pubmed/out/pubmed_250101.dtd, "PubMedArticle"; most
are optional). The XML is a stranger's: it is read by defusedxml, which refuses entities, so that a small text cannot
grow, and nothing that it names is loaded.
"""

from collections.abc import Iterable, Iterator
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from viewbox.envs.tools.search.parse_eutils import MAX_TEXT, build_url, read_doi, read_pmid, read_text, read_year
from viewbox.envs.tools.search.records import Article
from viewbox.network.errors import UnusableReplyError

MAX_LISTED = 200  # types or headings of an article
_MATH = "{http://www.w3.org/1998/Math/MathML}math"
_NO_LABELS = frozenset({"", "UNLABELLED", "UNASSIGNED"})


def read_articles(content: bytes) -> dict[str, Article]:
    """The articles by PMID; one without a PMID is left out.

    Raises:
        UnusableReplyError: it is not a PubmedArticleSet, such as an error document of EFetch.

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
        article = _read_article(record) if record.tag == "PubmedArticle" else None
        article = _read_chapter(record) if record.tag == "PubmedBookArticle" else article
        if article is not None:
            articles.setdefault(article.pmid, article)
    return articles


def _read_article(record: Element) -> Article | None:
    pmid = read_pmid(record.findtext("MedlineCitation/PMID"))
    citation = record.find("MedlineCitation")
    article = record.find("MedlineCitation/Article")
    if not pmid or citation is None:
        return None
    article = Element("Article") if article is None else article
    types = _list_texts(article.iterfind("PublicationTypeList/PublicationType"))
    corrections = {one.get("RefType") for one in citation.iterfind("CommentsCorrectionsList/CommentsCorrections")}
    dates = ("Journal/JournalIssue/PubDate/Year", "Journal/JournalIssue/PubDate/MedlineDate", "ArticleDate/Year")
    dois = [
        *(one.text for one in article.iterfind("ELocationID[@EIdType='doi']") if one.get("ValidYN", "Y") == "Y"),
        *(one.text for one in record.iterfind("PubmedData/ArticleIdList/ArticleId[@IdType='doi']")),
    ]
    return Article(
        pmid,
        title=_read(article.find("ArticleTitle")) or _read(article.find("VernacularTitle")),
        journal=_read(article.find("Journal/Title")) or _read(article.find("Journal/ISOAbbreviation")),
        year=_read_year(article, dates),
        abstract=_read_abstract(article),
        doi=next(filter(None, map(read_doi, dois)), ""),
        url=build_url(pmid),
        types=types,
        mesh=_list_texts(citation.iterfind("MeshHeadingList/MeshHeading/DescriptorName")),
        retracted="RetractionIn" in corrections or "retracted publication" in {name.casefold() for name in types},
    )


def _read_chapter(record: Element) -> Article | None:
    pmid = read_pmid(record.findtext("BookDocument/PMID"))
    chapter = record.find("BookDocument")
    if not pmid or chapter is None:
        return None
    dates = ("ContributionDate/Year", "Book/PubDate/Year", "Book/PubDate/MedlineDate")
    dois = [
        *record.iterfind("BookDocument/ArticleIdList/ArticleId[@IdType='doi']"),
        *record.iterfind("PubmedBookData/ArticleIdList/ArticleId[@IdType='doi']"),
    ]
    book = _read(chapter.find("Book/BookTitle"))
    return Article(
        pmid,
        title=_read(chapter.find("ArticleTitle")) or book,
        journal=book,
        year=_read_year(chapter, dates),
        abstract=_read_abstract(chapter),
        doi=next((doi for one in dois if (doi := read_doi(one.text))), ""),
        url=build_url(pmid),
        types=_list_texts(chapter.iterfind("PublicationType")),
    )


def _read_abstract(parent: Element) -> str:
    """The parts of an abstract, those of a structured one behind their labels."""
    parts = []
    for part in parent.iterfind("Abstract/AbstractText"):
        text, label = _read(part), read_text(part.get("Label"))
        if text:
            parts.append(text if label.upper() in _NO_LABELS else f"{label}: {text}")
    return " ".join(parts)[:MAX_TEXT]


def _read_year(parent: Element, paths: Iterable[str]) -> int | None:
    return next((year for path in paths if (year := read_year(parent.findtext(path))) is not None), None)


def _list_texts(elements: Iterator[Element]) -> tuple[str, ...]:
    texts = (text for element in elements if (text := _read(element)))
    return tuple(dict.fromkeys(text for text, _ in zip(texts, range(MAX_LISTED), strict=False)))


def _read(element: Element | None) -> str:
    """The text of an element with all inside it, in one line; formulas without the spaces between their parts."""
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
