"""`LiveSource` at a real server with TLS that speaks E-utilities and Open-i: what is asked, found, merged and kept."""

import asyncio
import logging
from datetime import UTC, datetime

import pytest

from tests.support.literature_server import (
    make_book,
    make_ids,
    make_record,
    make_set,
    make_source,
    serve_literature,
)
from tests.support.small_literature import ToolsOf, make_png
from viewbox.errors import ConfigError, ToolError, ToolFault
from viewbox.network.data_policy import guard_sending
from viewbox.tools.search.eutils import PubMed
from viewbox.tools.search.openi import OpenI
from viewbox.tools.search.records import SEARCH_TYPES, ArticleQuery, FoundImage, ImageQuery
from viewbox.tools.search.tools import LiteratureSpecialist
from viewbox.utils import secrets

KEY = "0123456789abcdef0123456789abcdef0123"


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch):
    monkeypatch.delenv("NCBI_API_KEY", raising=False)
    monkeypatch.delenv("NCBI_EMAIL", raising=False)


@pytest.fixture
def served(tmp_path):
    with serve_literature(tmp_path) as (literature, setup):
        yield literature, setup


def find(source, words="sign", search_type="all", limit=5):
    return asyncio.run(source.search_articles(ArticleQuery(words, search_type, limit)))


def test_a_search_asks_for_ids_and_then_for_records_and_preparing_asks_nothing(served):
    literature, setup = served
    source = make_source(setup)
    source.prepare()
    assert not literature.arrivals
    found = find(source, limit=2)
    assert [one.pmid for one in found] == ["31000001", "31000002"]
    assert found[0].abstract == "We saw it."
    assert literature.count() == {"esearch": 1, "efetch": 1}
    (asked,) = literature.find_queries("esearch")
    assert asked == {
        "db": "pubmed", "tool": "viewbox", "term": "sign", "retmax": "2", "sort": "relevance", "retmode": "json",
    }  # fmt: skip
    (asked,) = literature.find_queries("efetch")
    assert asked == {"db": "pubmed", "tool": "viewbox", "id": "31000001,31000002", "retmode": "xml"}


def test_every_search_type_asks_for_something_of_its_own(served):
    literature, setup = served
    source = make_source(setup)
    for search_type in SEARCH_TYPES:
        find(source, "two words", search_type)
    terms = dict(zip(SEARCH_TYPES, (query["term"] for query in literature.find_queries("esearch")), strict=True))
    assert terms["all"] == "two words"
    assert terms["review"] == "(two words) AND review[pt]"
    assert terms["recent"] == f"(two words) AND {datetime.now(UTC).year - 4}:3000[dp]"
    assert len(set(terms.values())) == 7


def test_key_email_and_tool_are_sent_and_never_written(served, monkeypatch, caplog, capsys):
    monkeypatch.setenv("NCBI_API_KEY", KEY)
    monkeypatch.setenv("NCBI_EMAIL", "someone@hospital.example")
    caplog.set_level(logging.DEBUG)
    literature, setup = served
    literature.efetch = lambda handler: handler.send_error(400, f"API key {KEY} invalid for someone@hospital.example")
    with pytest.raises(ToolFault) as error:
        find(make_source(setup))
    for _, _, query in literature.arrivals:
        assert (query["api_key"], query["email"], query["tool"]) == (KEY, "someone@hospital.example", "viewbox")
    written = caplog.text + str(error.value) + "".join(capsys.readouterr()) + repr(make_source(setup))
    assert "is the key in NCBI_API_KEY valid?" in written
    assert KEY not in written
    assert "hospital.example" not in written
    assert "***" in secrets.mask_text(f"key {KEY}")


def test_a_key_makes_the_rate_ten_and_a_variable_that_holds_something_else_is_refused_without_showing_it(monkeypatch):
    limiters = [one.limiter for one in (PubMed(), PubMed(KEY), OpenI())]
    assert all(0.9 * most < 1 / one.interval < most for one, most in zip(limiters, (3, 10, 3), strict=True))
    for name, value in (("NCBI_EMAIL", "no address"), ("NCBI_EMAIL", "a@b\nc"), ("NCBI_API_KEY", "ä b")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            with pytest.raises(ConfigError) as error:
                make_source(None)
        assert value not in str(error.value)


def test_identical_searches_in_progress_go_out_once_and_later_ones_not_at_all(served):
    literature, setup = served
    literature.delay = 0.1
    source = make_source(setup)

    async def search_all():
        words = ["sign", " sign\n"] * 50
        return await asyncio.gather(*(source.search_articles(ArticleQuery(one)) for one in words))

    found = asyncio.run(search_all())
    assert all(one == found[0] for one in found)
    assert find(source) == found[0]
    assert literature.count() == {"esearch": 1, "efetch": 1}


def test_a_search_that_nobody_waits_for_asks_no_more(served):
    literature, setup = served
    literature.delay = 0.3
    source = make_source(setup)

    async def search():
        asked = asyncio.create_task(source.search_articles(ArticleQuery("sign")))
        while not literature.count():
            await asyncio.sleep(0.01)
        asked.cancel()
        await asyncio.sleep(0.6)
        assert asked.cancelled()

    asyncio.run(search())
    assert literature.count() == {"esearch": 1}


def test_answers_are_kept_in_the_folder_for_the_next_process_and_errors_are_not(served, tmp_path, monkeypatch):
    literature, setup = served
    literature.esearch = [lambda handler: handler.send_error(400)]
    source = make_source(setup, cache_dir=tmp_path / "kept")
    with pytest.raises(ToolFault):
        find(source)
    found = find(source)
    assert len(found) == 2
    assert find(make_source(setup, cache_dir=tmp_path / "kept")) == found
    assert literature.count()["esearch"] == 2
    monkeypatch.setattr("viewbox.tools.search.live.CACHE_DAYS", 1e-9)
    find(make_source(setup, cache_dir=tmp_path / "kept"))
    assert literature.count()["esearch"] == 3


def test_records_come_in_the_order_of_the_search_others_are_dropped_and_none_are_an_empty_list(served):
    literature, setup = served
    literature.efetch = make_set(make_record("99"), make_book("31000002"), make_record("31000001"))
    assert [one.pmid for one in find(make_source(setup))] == ["31000001", "31000002"]
    literature.efetch = make_set(make_record("31000001"))
    assert [one.pmid for one in find(make_source(setup))] == ["31000001"]
    before, literature.esearch = literature.count(), make_ids()
    assert [find(make_source(setup), words) for words in ("sign", "   ", "()")] == [[], [], []]
    assert literature.count() == {**before, "esearch": before["esearch"] + 1}


def test_more_records_than_a_request_may_name_are_asked_for_in_batches(tmp_path):
    ids = [str(31000000 + number) for number in range(120)]
    with serve_literature(tmp_path, *ids) as (literature, setup):
        found = find(make_source(setup), limit=120)
    assert [one.pmid for one in found] == ids
    assert literature.count() == {"esearch": 1, "efetch": 3}


def test_figures_are_found_and_their_pictures_loaded_once(served):
    literature, setup = served
    source = make_source(setup)

    async def search():
        found = await source.search_images(ImageQuery("nodule", "X-ray", "chest", 2))
        return found, await asyncio.gather(*(source.load_image(found[0]) for _ in range(3)))

    found, contents = asyncio.run(search())
    assert [one.uid for one in found] == ["PMC1_F1", "PMC2_F1"]
    assert set(contents) == {make_png(30, 20)}
    assert literature.find_queries("openi") == [{"query": "nodule chest", "m": "1", "n": "2", "it": "x"}]
    assert literature.count() == {"openi": 1, "picture": 1}


def test_pictures_come_from_open_i_only_and_what_is_no_picture_is_refused(served):
    literature, setup = served
    for url in [
        "", "https://evil.example/a.png", "http://openi.nlm.nih.gov/a.png", "https://127.0.0.1/a.png",
        "file:///etc/passwd", "https://openi.nlm.nih.gov@evil.example/a.png",
        "https://openi.nlm.nih.gov:8443/a.png", "//evil.example/a.png",
    ]:  # fmt: skip
        with pytest.raises(ToolFault if url else ToolError):
            asyncio.run(make_source(setup).load_image(FoundImage("f", image_url=url)))
        assert not literature.arrivals
    literature.picture = b"<svg xmlns='http://www.w3.org/2000/svg'/>"
    with pytest.raises(ToolFault, match="neither PNG nor JPEG"):
        asyncio.run(make_source(setup).load_image(FoundImage("f", image_url="https://openi.nlm.nih.gov/imgs/a.png")))


def test_restricted_data_send_no_search_even_if_its_answer_is_kept(served):
    literature, setup = served
    source = make_source(setup)
    find(source)

    def refuse(to):
        raise ConfigError(f"not to {to}")

    with guard_sending(refuse):
        for search in (source.search_articles(ArticleQuery("sign")), source.search_images(ImageQuery("sign"))):
            with pytest.raises(ConfigError):
                asyncio.run(search)
        with pytest.raises(ConfigError):
            source.prepare()
    assert literature.count()["esearch"] == 1


def test_the_tools_answer_from_the_live_services(served):
    literature, setup = served
    retracted = make_record("31000002", types="<PublicationType>Retracted Publication</PublicationType>")
    literature.efetch = make_set(make_record("31000001"), retracted)
    tools = ToolsOf(make_source(setup), LiteratureSpecialist())
    articles = asyncio.run(tools.search_web("sign"))
    assert articles.facts == {"pmids": ["31000001", "31000002"], "retracted": ["31000002"]}
    assert "[2] PMID 31000002, 2021, Journal of drawn chests, RETRACTED" in articles.text
    figures = asyncio.run(tools.search_images("sign", max_results=2))
    assert figures.facts["figures"] == ["PMC1_F1", "PMC2_F1"]
    assert "not shown" not in figures.text
    assert figures.image is not None
