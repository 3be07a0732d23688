"""What a service may answer instead of an answer: every search ends, in results or in an error that says why."""

import asyncio
import time
from dataclasses import replace

import pytest

from tests.support.literature_server import DOCTYPE, make_record, make_set, make_source, serve_literature
from tests.support.servers import cut_body, drip_body, flood_body, hang_up, make_response, send_bytes
from viewbox.errors import ToolFault
from viewbox.tools.search import eutils
from viewbox.tools.search.records import ArticleQuery, ImageQuery


@pytest.fixture
def served(tmp_path, monkeypatch):
    monkeypatch.delenv("NCBI_API_KEY", raising=False)
    with serve_literature(tmp_path) as (literature, setup):
        yield literature, replace(setup, retry_timeout=3.0)


def find(setup, words="sign"):
    return asyncio.run(make_source(setup).search_articles(ArticleQuery(words)))


@pytest.mark.parametrize(
    "answer", [*(make_response(status, "busy") for status in (408, 429, 500, 503)), hang_up, cut_body]
)
def test_a_temporary_status_or_a_lost_connection_is_tried_again(answer, served):
    literature, setup = served
    literature.esearch = [answer] * 2
    literature.efetch = [answer]
    assert len(find(setup)) == 2
    assert literature.count()["esearch"] == 3


@pytest.mark.parametrize("status", [400, 401, 404, 302])
def test_every_other_status_is_final(status, served):
    literature, setup = served
    literature.esearch = make_response(
        status, "no", Location="https://eutils.ncbi.nlm.nih.gov/entrez/eutils/other.fcgi"
    )
    with pytest.raises(ToolFault, match="PubMed gave no answer"):
        find(setup)
    assert literature.count() == {"esearch": 1}


def test_the_pause_that_the_server_asks_for_is_kept_by_every_search(served):
    literature, setup = served
    literature.esearch = [make_response(429, "slow down", Retry_After=2)]

    async def search():
        source = make_source(setup)
        first = asyncio.create_task(source.search_articles(ArticleQuery("first")))
        while not literature.count():
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)  # the answer has come, on a busy machine as well
        return await asyncio.gather(first, source.search_articles(ArticleQuery("second")))

    first, second = asyncio.run(search())
    assert len(first) == len(second) == 2
    refused, *later = [arrived for arrived, _, _ in literature.arrivals]
    assert min(later) >= refused + 1.99


def test_a_longer_pause_than_there_is_time_is_said_at_once_and_sends_nothing_more(served):
    literature, setup = served
    literature.esearch = make_response(503, "maintenance", Retry_After=120)
    start = time.monotonic()
    source = make_source(setup)
    with pytest.raises(ToolFault, match="HTTP 503"):
        asyncio.run(source.search_articles(ArticleQuery("sign")))
    with pytest.raises(ToolFault, match=r"asked for a pause, which lasts for another 1[12][0-9] s"):
        asyncio.run(source.search_articles(ArticleQuery("other words")))
    assert time.monotonic() - start < 60
    assert literature.count() == {"esearch": 1}


def test_a_search_that_failed_at_the_server_is_tried_again(served):
    literature, setup = served
    failed = b'{"esearchresult": {"ERROR": "Search Backend failed: no connection"}}'
    literature.esearch = [failed] * 2
    assert len(find(setup)) == 2
    literature.esearch = failed
    with pytest.raises(ToolFault, match=r"Search Backend failed.*after 6 attempts"):
        find(setup, "other")


DAMAGED = {
    "html": b"<!DOCTYPE html><html><body>Down for maintenance</body></html>",
    "text": b"Down for maintenance",
    "empty": b"",
    "half": make_set(make_record("31000001"))[:-30],
    "error": b"<eFetchResult><ERROR>Unable to obtain query #1</ERROR></eFetchResult>",
    "bomb": DOCTYPE.replace('pubmed_250101.dtd">', 'pubmed_250101.dtd" [<!ENTITY a "aaa">]>').encode()
    + b"<PubmedArticleSet>&a;</PubmedArticleSet>",
    "json": b'{"result": []}',
    "binary": bytes(range(256)),
    "utf-16": "<PubmedArticleSet/>".encode("utf-16"),
}


def test_records_and_json_of_another_form_end_in_a_named_error(served):
    literature, setup = served
    for content in DAMAGED.values():
        literature.efetch = content
        with pytest.raises(ToolFault, match="PubMed gave no answer") as error:
            find(setup)
        assert len(str(error.value)) < 600
    for body in [b"[]", b"null", b"{}", b'{"esearchresult": 7}', b"[" * 50_000, DAMAGED["html"], b'{"list": 3}']:
        literature.esearch = literature.openi = body
        with pytest.raises(ToolFault, match="PubMed gave no answer"):
            find(setup)
        with pytest.raises(ToolFault, match="Open-i gave no answer"):
            asyncio.run(make_source(setup).search_images(ImageQuery("sign")))


def test_a_hundred_megabytes_end_at_the_limit_and_compressed_answers_are_refused(served):
    literature, setup = served
    literature.efetch = lambda handler: flood_body(handler, 100 * 2**20)
    with pytest.raises(ToolFault, match="larger than 10485760 bytes"):
        find(setup)
    assert literature.server.flooded < 20 * 2**20
    literature.efetch = send_bytes(200, b"\x1f\x8b" * 100, Content_Encoding="gzip")
    with pytest.raises(ToolFault, match="compressed"):
        find(setup)


def test_a_server_that_drips_costs_the_time_of_its_attempts(served, monkeypatch):
    monkeypatch.setattr(eutils, "TIMEOUT", 0.3)
    literature, setup = served
    literature.efetch = drip_body
    start = time.monotonic()
    with pytest.raises(ToolFault, match=r"no whole reply within 0\.3 s"):
        find(replace(setup, retry_timeout=1.0))
    assert time.monotonic() - start < 60


def test_words_of_every_kind_reach_the_server_as_they_are(served):
    literature, setup = served
    words = "Größe & 'x' \"a b\" 東京 🫁 #1 ?id=7 ; api_key=y + %41 [ti]"
    find(setup, words)
    (asked,) = literature.find_queries("esearch")
    assert asked["term"] == words
    assert "api_key" not in asked
