"""`LiveSource` at a real server with TLS that speaks E-utilities and Open-i: what is asked, found, merged and kept.

Whatever a service answers instead of an answer, every search ends: in results, or in an error that says why.
"""

import asyncio
import logging
import sqlite3
import time
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

import pytest

from tests.support.literature_server import (
    make_book,
    make_ids,
    make_record,
    make_set,
    make_source,
    refuse_429,
    serve_literature,
)
from tests.support.servers import cut_body, drip_body, flood_body, hang_up, make_response, send_bytes
from tests.support.small_literature import make_png
from tests.support.tables import each
from viewbox.errors import ConfigError, ToolError, ToolFault
from viewbox.network.answers import AnswerCache
from viewbox.network.data_policy import guard_sending
from viewbox.network.errors import RequestError
from viewbox.network.public import MAX_PAUSE, Limiter
from viewbox.tools.search import eutils
from viewbox.tools.search.eutils import PubMed
from viewbox.tools.search.openi import OpenI
from viewbox.tools.search.records import SEARCH_TYPES, ArticleQuery, FoundImage, ImageQuery
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


@pytest.fixture
def hasty(served):
    """The same, given up after three seconds of attempts."""
    return served[0], replace(served[1], retry_timeout=3.0)


def find(source, words="sign", search_type="all", limit=5):
    return asyncio.run(source.search_articles(ArticleQuery(words, search_type, limit)))


def find_pmids(setup):
    return [one.pmid for one in find(make_source(setup))]


def test_a_search_asks_for_ids_and_then_for_records_and_preparing_asks_nothing(served):
    literature, setup = served
    source = make_source(setup)
    source.prepare()
    assert not literature.arrivals
    found = find(source, limit=2)
    assert [one.pmid for one in found] == ["31000001", "31000002"]
    assert found[0].abstract == "We saw it."
    assert literature.count() == {"esearch": 1, "efetch": 1}
    asked = {"db": "pubmed", "tool": "viewbox"}
    ids = {**asked, "term": "sign", "retmax": "2", "sort": "relevance", "retmode": "json"}
    assert literature.find_queries("esearch") == [ids]
    assert literature.find_queries("efetch") == [{**asked, "id": "31000001,31000002", "retmode": "xml"}]


@pytest.mark.slow
def test_every_search_type_asks_for_something_of_its_own_and_words_of_every_kind_arrive_as_they_are(served):
    literature, setup = served
    source = make_source(setup)
    for search_type in SEARCH_TYPES:
        find(source, "two words", search_type)
    terms = dict(zip(SEARCH_TYPES, (query["term"] for query in literature.find_queries("esearch")), strict=True))
    assert terms["all"] == "two words"
    assert terms["review"] == "(two words) AND review[pt]"
    assert terms["recent"] == f"(two words) AND {datetime.now(UTC).year - 4}:3000[dp]"
    assert len(set(terms.values())) == 7
    words = "Größe & 'x' \"a b\" 東京 🫁 #1 ?id=7 ; api_key=y + %41 [ti]"
    find(source, words)
    asked = literature.find_queries("esearch")[-1]
    assert asked["term"] == words
    assert "api_key" not in asked


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
        return await asyncio.gather(*(source.search_articles(ArticleQuery(one)) for one in ["sign", " sign\n"] * 50))

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
    assert find_pmids(setup) == ["31000001", "31000002"]
    literature.efetch = make_set(make_record("31000001"))
    assert find_pmids(setup) == ["31000001"]
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


# ---- a service that gives no answer
@pytest.mark.slow
def test_a_temporary_status_or_a_lost_connection_is_tried_again_and_every_other_status_is_final(hasty):
    literature, setup = hasty
    for answer in (*(make_response(status, "busy") for status in (408, 429, 500, 503)), hang_up, cut_body):
        literature.esearch, literature.efetch = [answer] * 2, [answer]
        literature.arrivals.clear()
        assert len(find(make_source(setup))) == 2
        assert literature.count()["esearch"] == 3
    for status in (400, 401, 404, 302):
        elsewhere = "https://eutils.ncbi.nlm.nih.gov/entrez/eutils/other.fcgi"
        literature.esearch = make_response(status, "no", Location=elsewhere)
        literature.arrivals.clear()
        with pytest.raises(ToolFault, match="PubMed gave no answer"):
            find(make_source(setup))
        assert literature.count() == {"esearch": 1}


def test_a_longer_pause_than_there_is_time_is_said_at_once_and_sends_nothing_more(hasty):
    literature, setup = hasty
    literature.esearch = make_response(503, "maintenance", Retry_After=120)
    start, source = time.monotonic(), make_source(setup)
    for words, said in (("sign", "HTTP 503"), ("other", r"asked for a pause, which lasts for another 1[12][0-9] s")):
        with pytest.raises(ToolFault, match=said):
            find(source, words)
    assert time.monotonic() - start < 60
    assert literature.count() == {"esearch": 1}


@pytest.mark.slow
def test_a_search_that_failed_at_the_server_is_tried_again(hasty):
    literature, setup = hasty
    failed = b'{"esearchresult": {"ERROR": "Search Backend failed: no connection"}}'
    literature.esearch = [failed] * 2
    assert len(find(make_source(setup))) == 2
    literature.esearch = failed
    with pytest.raises(ToolFault, match=r"Search Backend failed.*after 6 attempts"):
        find(make_source(setup), "other")


@pytest.mark.slow
def test_records_and_json_of_another_form_end_in_a_named_error(hasty):
    literature, setup = hasty
    page = b"<!DOCTYPE html><html><body>Down for maintenance</body></html>"
    for content in (page, bytes(range(256)), "<PubmedArticleSet/>".encode("utf-16")):
        literature.efetch = content
        with pytest.raises(ToolFault, match="PubMed gave no answer") as error:
            find(make_source(setup))
        assert len(str(error.value)) < 600
    for body in (page, b"[" * 50_000, b'{"esearchresult": 7, "list": 3}'):
        literature.esearch = literature.openi = body
        with pytest.raises(ToolFault, match="PubMed gave no answer"):
            find(make_source(setup))
        with pytest.raises(ToolFault, match="Open-i gave no answer"):
            asyncio.run(make_source(setup).search_images(ImageQuery("sign")))


@pytest.mark.slow
def test_megabytes_end_at_the_limit_compressed_answers_are_refused_and_drips_cost_their_time(hasty, monkeypatch):
    literature, setup = hasty
    for answer, said in (
        (lambda handler: flood_body(handler, 100 * 2**20), "larger than 10485760 bytes"),
        (send_bytes(200, b"\x1f\x8b" * 100, Content_Encoding="gzip"), "compressed"),
    ):
        literature.efetch = answer
        with pytest.raises(ToolFault, match=said):
            find(make_source(setup))
    assert not literature.server.drained
    monkeypatch.setattr(eutils, "TIMEOUT", 0.3)
    literature.efetch = drip_body
    start = time.monotonic()
    with pytest.raises(ToolFault, match=r"no whole reply within 0\.3 s"):
        find(make_source(replace(setup, retry_timeout=1.0)))
    assert time.monotonic() - start < 60


# ---- the limit on requests
async def search_all(source, prefix, number):
    """How many searches found something, and how many failed."""
    asked = (source.search_articles(ArticleQuery(f"{prefix} {one}")) for one in range(number))
    found = await asyncio.gather(*asked, return_exceptions=True)
    return {
        "found": sum(isinstance(one, list) and bool(one) for one in found),
        "failed": [str(one) for one in found if isinstance(one, Exception)],
    }


@pytest.mark.slow
def test_requests_that_are_late_on_their_way_do_not_meet_those_sent_after_them(served):
    """Answers that take 0 to 0.3 s, so that arrivals are unknown to the client within that time; 5 a second."""
    literature, setup = served

    def answer_late(body, number):
        time.sleep((number * 7 % 10) * 0.03)  # before the server notes the arrival
        return literature.answer

    literature.server.answer = answer_late
    found = asyncio.run(search_all(make_source(replace(setup, rate=5)), "late", 8))
    assert found == {"found": 8, "failed": []}
    assert literature.find_densest(1.0) <= 5


@pytest.mark.slow
def test_a_storm_of_429_ends_in_results_or_without_an_end_in_named_errors(served):
    literature, setup = served
    literature.before = [refuse_429] * 60
    assert asyncio.run(search_all(make_source(setup), "storm", 30)) == {"found": 30, "failed": []}
    assert sum(literature.count().values()) == 60 + 60
    literature.esearch = refuse_429
    found = asyncio.run(search_all(make_source(replace(setup, retry_timeout=2.0)), "more", 30))
    assert 30 < sum(literature.count().values()) - 120 <= 30 * 6
    assert found["found"] == 0
    assert len(found["failed"]) == 30
    assert all("PubMed gave no answer" in one and "HTTP 429" in one for one in found["failed"])


# ---- what is kept of answers, and the limit on requests
FILE = "answers.sqlite"


class Clock:
    now = 1_000_000_000.0

    def __call__(self):
        return self.now


@each("in_folder", [True, False])
def test_an_answer_is_used_until_its_age_in_a_folder_by_other_processes_and_not_before(in_folder, tmp_path):
    clock = Clock()

    def open_cache():
        return AnswerCache(tmp_path / "new" / FILE if in_folder else None, 10, clock=clock)

    cache = open_cache()
    cache.put("a", b"1")
    clock.now += 9.9 * 86400
    assert cache.get("a") == b"1"
    assert open_cache().get("a") == (b"1" if in_folder else None)
    clock.now += 0.2 * 86400
    assert cache.get("a") is None
    clock.now -= 11 * 86400  # an answer from the future
    assert open_cache().get("a") is None


def test_the_oldest_answers_go_if_there_are_too_many_memory_is_bounded_and_too_large_a_one_is_not_kept(tmp_path):
    clock = Clock()
    cache = AnswerCache(tmp_path / FILE, 10, max_bytes=1000, max_memory=0, clock=clock)
    for number in range(20):
        clock.now += 1
        cache.put(str(number), bytes(100))
    assert [number for number in range(20) if cache.get(str(number)) is not None] == list(range(10, 20))
    cache = AnswerCache(None, 10, max_memory=1000, clock=clock)
    cache.put("large", bytes(2000))
    for number in range(20):
        cache.put(str(number), bytes(100))
    assert cache.get("large") is None
    assert sum(cache.get(str(number)) is not None for number in range(20)) == 10


@each("content", [b"no database", b"SQLite format 3\0" + b"\xff" * 5000, None])
def test_a_damaged_file_a_table_of_another_form_or_no_folder_costs_the_answers_and_nothing_else(content, tmp_path):
    with sqlite3.connect(tmp_path / "other") as file:
        file.execute("CREATE TABLE answers (key, at, size, value)")
        file.execute("INSERT INTO answers VALUES ('a', 'soon', 'x', 7)")
    assert AnswerCache(tmp_path / "other", 1).get("a") is None
    (tmp_path / FILE).write_bytes(content or b"")
    cache = AnswerCache(tmp_path / FILE if content else tmp_path / FILE / "folder" / FILE, 1)
    assert cache.get("a") is None
    cache.put("a", b"1")
    assert cache.get("a") == b"1"


def take_turns(limiter, count):
    """When `count` requests left."""

    async def take():
        times = []

        async def send():
            async with limiter.turn(60):
                times.append(time.monotonic())

        await asyncio.gather(*(send() for _ in range(count)))
        return times

    return asyncio.run(take())


@pytest.mark.slow
def test_requests_leave_an_interval_apart_a_pause_holds_for_all_and_one_longer_than_there_is_time_is_an_error():
    assert all(later - earlier >= 0.02 for earlier, later in pairwise(take_turns(Limiter(50), 30)))
    limiter = Limiter(1000)
    limiter.pause(0.3)
    started = time.monotonic()
    assert take_turns(limiter, 1)[0] - started >= 0.29
    limiter.pause(10 * MAX_PAUSE)
    with pytest.raises(RequestError, match=r"asked for a pause, which lasts for another (300|299) s"):
        take_turns(limiter, 1)
