"""A server on 127.0.0.1 that speaks E-utilities and Open-i, with answers of their real shape.

Shapes: ESearch and EFetch as in "The E-utilities In-Depth: Parameters, Syntax and More" (Entrez Programming
Utilities Help, https://www.ncbi.nlm.nih.gov/books/NBK25499/) with `retmode=json` and `retmode=xml`; records by NLM's
DTD (https://dtd.nlm.nih.gov/ncbi/pubmed/out/pubmed_250101.dtd); the message of status 429 as NCBI's gateway sends it;
Open-i by https://openi.nlm.nih.gov/services and https://openi.nlm.nih.gov/v2/api-docs. The records are invented.
"""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock
from urllib.parse import parse_qs, urlsplit

from tests.support.servers import make_response, send_bytes
from tests.support.small_literature import make_png
from tests.support.tls_server import StandIn, serve_tls
from viewbox.network.public import Limiter
from viewbox.tools.search import eutils, openi
from viewbox.tools.search.live import LiveSource

DOCTYPE = (
    '<?xml version="1.0" ?>\n<!DOCTYPE PubmedArticleSet PUBLIC "-//NLM//DTD PubMedArticle, 1st January 2025//EN" '
    '"https://dtd.nlm.nih.gov/ncbi/pubmed/out/pubmed_250101.dtd">\n'
)


def make_record(pmid, title="A sign of the chest", abstract="<AbstractText>We saw it.</AbstractText>", **parts):
    """A PubmedArticle; `parts` replace the XML of `date`, `types`, `corrections`, `mesh`, `ids` and `location`."""
    parts = {
        "date": "<Year>2021</Year><Month>Mar</Month>",
        "types": '<PublicationType UI="D016428">Journal Article</PublicationType>',
        "corrections": "",
        "mesh": '<MeshHeading><DescriptorName UI="D013902" MajorTopicYN="N">Radiography, Thoracic</DescriptorName>'
        '<QualifierName UI="Q000379" MajorTopicYN="Y">methods</QualifierName></MeshHeading>',
        "ids": f'<ArticleId IdType="pubmed">{pmid}</ArticleId><ArticleId IdType="pmc">PMC9</ArticleId>',
        "location": f'<ELocationID EIdType="doi" ValidYN="Y">10.1000/{pmid}</ELocationID>',
    } | parts
    return f"""<PubmedArticle>
  <MedlineCitation Status="MEDLINE" Owner="NLM" IndexingMethod="Automated">
    <PMID Version="1">{pmid}</PMID>
    <DateRevised><Year>2023</Year><Month>08</Month><Day>17</Day></DateRevised>
    <Article PubModel="Print-Electronic">
      <Journal><ISSN IssnType="Electronic">0000-0000</ISSN>
        <JournalIssue CitedMedium="Internet"><Volume>9</Volume><PubDate>{parts["date"]}</PubDate></JournalIssue>
        <Title>Journal of drawn chests</Title><ISOAbbreviation>J Drawn Chests</ISOAbbreviation></Journal>
      <ArticleTitle>{title}</ArticleTitle>
      <Pagination><MedlinePgn>10-19</MedlinePgn></Pagination>{parts["location"]}
      <Abstract>{abstract}<CopyrightInformation>© 2021 Nobody.</CopyrightInformation></Abstract>
      <AuthorList CompleteYN="Y"><Author ValidYN="Y"><LastName>Doe</LastName></Author></AuthorList>
      <Language>eng</Language><PublicationTypeList>{parts["types"]}</PublicationTypeList>
      <ArticleDate DateType="Electronic"><Year>2020</Year><Month>12</Month><Day>31</Day></ArticleDate>
    </Article>
    <MedlineJournalInfo><Country>Nowhere</Country><MedlineTA>J Drawn Chests</MedlineTA></MedlineJournalInfo>
    <CommentsCorrectionsList><CommentsCorrections RefType="Cites"><RefSource>Else. 2001</RefSource>
      <PMID Version="1">17907247</PMID></CommentsCorrections>{parts["corrections"]}</CommentsCorrectionsList>
    <MeshHeadingList>{parts["mesh"]}</MeshHeadingList>
  </MedlineCitation>
  <PubmedData>
    <History><PubMedPubDate PubStatus="pubmed"><Year>2021</Year><Month>1</Month><Day>2</Day></PubMedPubDate></History>
    <PublicationStatus>ppublish</PublicationStatus><ArticleIdList>{parts["ids"]}</ArticleIdList>
    <ReferenceList><Reference><Citation>Else. 2001</Citation><ArticleIdList>
      <ArticleId IdType="doi">10.1000/of-another-article</ArticleId></ArticleIdList></Reference></ReferenceList>
  </PubmedData>
</PubmedArticle>"""


def make_book(pmid, title="A chapter", **parts):
    """A PubmedBookArticle, as of StatPearls."""
    date = parts.get("date", "<ContributionDate><Year>2024</Year><Month>1</Month></ContributionDate>")
    return f"""<PubmedBookArticle><BookDocument><PMID Version="1">{pmid}</PMID>
  <ArticleIdList><ArticleId IdType="bookaccession">NBK1</ArticleId></ArticleIdList>
  <Book><Publisher><PublisherName>P</PublisherName></Publisher><BookTitle book="pearls">A book of pearls</BookTitle>
    <PubDate><Year>2019</Year></PubDate></Book>
  <ArticleTitle book="pearls" part="p1">{title}</ArticleTitle><Language>eng</Language>
  <PublicationType UI="D000072643">Study Guide</PublicationType>
  <Abstract><AbstractText>The text of a chapter.</AbstractText></Abstract>{date}</BookDocument>
  <PubmedBookData><PublicationStatus>ppublish</PublicationStatus><ArticleIdList>
    <ArticleId IdType="pubmed">{pmid}</ArticleId></ArticleIdList></PubmedBookData></PubmedBookArticle>"""


def make_set(*records):
    """An answer of EFetch."""
    return f"{DOCTYPE}<PubmedArticleSet>{''.join(records)}</PubmedArticleSet>".encode()


def make_ids(*ids):
    """An answer of ESearch."""
    found = {"count": str(len(ids)), "retmax": str(len(ids)), "retstart": "0", "idlist": list(ids)}
    found |= {"translationset": [], "querytranslation": "sign[All Fields]"}
    return json.dumps({"header": {"type": "esearch", "version": "0.3"}, "esearchresult": found}).encode()


def make_figure(number, **values):
    """A figure of Open-i."""
    return {
        "uid": f"PMC{number}", "pmcid": f"PMC{number}", "pmid": str(number), "docSource": "PMC", "licenseType": "by",
        "articleType": "ra", "pmc_url": f"http://www.ncbi.nlm.nih.gov/pmc/articles/PMC{number}",
        "title": "A sign of the chest.", "journal_title": "Journal of drawn chests", "journal_abbr": "J Drawn Chests",
        "journal_date": {"day": "05", "month": "02", "year": "2016"}, "authors": "Doe J",
        "MeSH": {"major": [], "minor": []}, "Problems": "sign",
        "image": {"id": "F1", "caption": f"Film {number} of a <b>chest</b> &amp; heart."},
        "imgThumb": f"/imgs/100/1/{number}/PMC{number}_1.png", "imgLarge": f"/imgs/512/1/{number}/PMC{number}_1.png",
        **values,
    }  # fmt: skip


def make_figures(*figures):
    """An answer of Open-i."""
    return json.dumps({"total": len(figures), "list": list(figures), "min": 1, "max": len(figures)}).encode()


class LiteratureServer:
    """What is asked, when, and what is answered.

    `ids` has the PMIDs for every term. Each of `esearch`, `efetch`, `openi` and `picture` may be bytes, a
    function of the handler, or a list of these, one for each request; None is a good answer. `before` are functions of
    the handler that answer the first requests, whatever they ask.
    """

    def __init__(self, *ids):
        self.ids = ids or ("31000001", "31000002")
        self.esearch = self.efetch = self.openi = self.picture = None
        self.before, self.delay = [], 0.0
        self.arrivals, self.lock = [], threading.Lock()  # (seconds, what, values of the query)

    def answer(self, handler):
        arrived = time.monotonic()
        url = urlsplit(handler.path)
        what = {"/api/search": "openi"}.get(url.path, "picture" if url.path.startswith("/imgs/") else url.path)
        what = what.removeprefix("/entrez/eutils/").removesuffix(".fcgi")
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        with self.lock:
            self.arrivals.append((arrived, what, query))
            first = self.before.pop(0) if self.before else None
            planned = getattr(self, what, None)
            if isinstance(planned, list):
                planned = planned.pop(0) if planned else None
        time.sleep(self.delay)
        found = first or planned
        if found is None:
            found = getattr(self, f"_make_{what}")(query)
        (found if callable(found) else send_bytes(200, found))(handler)

    def _make_esearch(self, query):
        return make_ids(*self.ids[: int(query["retmax"])])

    def _make_efetch(self, query):
        return make_set(*map(make_record, query["id"].split(",")))

    def _make_openi(self, query):
        return make_figures(*(make_figure(number) for number in range(1, int(query["n"]) + 1)))

    def _make_picture(self, query):
        return make_png(30, 20)

    def count(self):
        """Requests by kind."""
        return Counter(what for _, what, _ in self.arrivals)

    def find_queries(self, what):
        return [query for _, kind, query in self.arrivals if kind == what]

    def find_densest(self, window, what=("esearch", "efetch")):
        """The most requests that arrived within any window of so many seconds."""
        times = sorted(arrived for arrived, kind, _ in self.arrivals if kind in what)
        counts = (sum(start <= one <= start + window for one in times[place:]) for place, start in enumerate(times))
        return max(counts, default=0)


refuse_429 = make_response(
    429, {"error": "API rate limit exceeded", "api-key": "127.0.0.1", "count": "4", "limit": "3"}
)


@dataclass(frozen=True)
class Setup:
    """What tests change: what connects to a host, requests a second, and the seconds of pauses and attempts."""

    transport: Callable[[str], Any]
    rate: int
    first_pause: float = 0.5
    retry_timeout: float = 50.0


class Local:
    """Before a `LiveAnswers`: its clients are made under a setup."""

    def __init__(self, setup, **settings):
        super().__init__(**settings)
        self.setup = setup

    def _get_clients(self):
        with mock.patch.multiple(
            eutils,
            PublicTransport=self.setup.transport,
            Limiter=lambda rate: Limiter(self.setup.rate),
            FIRST_PAUSE=self.setup.first_pause,
            RETRY_TIMEOUT=self.setup.retry_timeout,
        ):
            return super()._get_clients()


class LocalSource(Local, LiveSource):
    """A `LiveSource` whose clients are made under a setup."""


make_source = LocalSource


@contextmanager
def serve_literature(folder, *ids):
    """Runs a server for both hosts; gives it with the settings under which a `LiveSource` reaches it."""
    literature = LiteratureServer(*ids)
    with serve_tls(folder, lambda body, number: literature.answer, eutils.HOST, openi.HOST) as server:
        literature.server, literature.port = server, server.server_port
        servers = {eutils.HOST: server, openi.HOST: server}
        yield literature, Setup(lambda host: StandIn(host, servers), 10_000, first_pause=0.02)
