"""The limit on requests, measured where it counts: when they arrive at the server, in any window of its length.

500 searches of 3 requests would take 500 seconds at NCBI's true 3 a second. So the 500 have a rate of their own, 100 in
a second, and a shorter test has the true one. Both go through the same code, with real TLS, and the clock is the
server's; only the numbers differ.
"""

import asyncio
import json
import time

import pytest
from cryptography.hazmat.primitives import serialization

from tests.support import search_process
from tests.support.literature_server import make_source, refuse_429, serve_literature
from tests.support.tls_server import get_authority


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch):
    monkeypatch.delenv("NCBI_API_KEY", raising=False)


def start(tmp_path, literature, rate, prefix, number):
    authority = tmp_path / "authority.pem"
    authority.write_bytes(get_authority().certificate.public_bytes(serialization.Encoding.PEM))
    return search_process.start(port=literature.port, authority=str(authority), folder=str(tmp_path), rate=rate,
                                prefix=prefix, number=number)  # fmt: skip


def finish(process):
    out, _ = process.communicate(timeout=300)
    return json.loads(out)


@pytest.mark.slow
def test_500_searches_from_two_processes_never_exceed_the_limit_in_any_second(tmp_path):
    with serve_literature(tmp_path) as (literature, _):
        processes = [start(tmp_path, literature, [100, 1.0], prefix, 250) for prefix in ("first", "second")]
        found = [finish(process) for process in processes]
    assert found == [{"found": 250, "failed": []}] * 2
    assert literature.count() == {"esearch": 500, "esummary": 500, "efetch": 500}
    assert 50 < literature.find_densest(1.0) <= 100


@pytest.mark.slow
def test_500_searches_of_one_process_never_exceed_the_limit_and_identical_ones_go_out_once(tmp_path):
    with serve_literature(tmp_path) as (literature, _):
        process = start(tmp_path, literature, [100, 1.0], "one", 500)
        assert finish(process) == {"found": 500, "failed": []}
        assert 50 < literature.find_densest(1.0) <= 100
    terms = [query["term"] for query in literature.find_queries("esearch")]
    assert len(terms) == len(set(terms)) == 500


@pytest.mark.slow
def test_the_true_limit_of_three_a_second_holds_for_two_processes_together(tmp_path):
    with serve_literature(tmp_path) as (literature, _):
        processes = [start(tmp_path, literature, None, prefix, 3) for prefix in ("first", "second")]
        found = [finish(process) for process in processes]
    assert found == [{"found": 3, "failed": []}] * 2
    assert sum(literature.count().values()) == 18
    assert literature.find_densest(1.0) == 3


def test_requests_that_are_late_on_their_way_do_not_meet_those_sent_after_them(tmp_path):
    """Answers that take 0 to 0.3 s, so that arrivals are unknown to the client within that time; 5 in 0.2 s."""
    with serve_literature(tmp_path) as (literature, setup):
        source = make_source(_replace(setup, eutils_rate=(5, 0.2)))
        make = literature.answer

        def answer_late(body, number):
            time.sleep((number * 7 % 10) * 0.03)  # before the server notes the arrival
            return make(body, number)

        literature.server.answer = answer_late
        found = asyncio.run(search_process.search_all(source, "late", 20))
    assert found == {"found": 20, "failed": []}
    assert literature.find_densest(0.2) <= 5


def test_a_process_that_is_killed_keeps_its_places_for_a_while(tmp_path):
    with serve_literature(tmp_path) as (literature, setup):
        literature.delay = 5.0
        process = start(tmp_path, literature, [2, 0.1], "killed", 2)
        _wait_for(lambda: len(literature.arrivals) == 2)
        process.kill()
        process.communicate()
        literature.delay = 0.0
        source = make_source(_replace(setup, eutils_rate=(2, 0.1)))
        with pytest.raises(TimeoutError):
            asyncio.run(asyncio.wait_for(search_process.search_all(source, "next", 1), 0.5))
    assert len(literature.arrivals) == 2


def test_a_storm_of_429_ends_in_results(tmp_path):
    with serve_literature(tmp_path) as (literature, setup):
        literature.before = [refuse_429] * 60
        found = asyncio.run(search_process.search_all(make_source(setup), "storm", 30))
    assert found == {"found": 30, "failed": []}
    assert sum(literature.count().values()) == 90 + 60


def test_a_storm_of_429_without_end_ends_in_named_errors(tmp_path):
    with serve_literature(tmp_path) as (literature, setup):
        literature.esearch = refuse_429
        found = asyncio.run(search_process.search_all(make_source(_replace(setup, retry_timeout=2.0)), "storm", 30))
    assert found["found"] == 0
    assert len(found["failed"]) == 30
    assert all("PubMed gave no answer" in one and "HTTP 429" in one for one in found["failed"])
    assert 30 < sum(literature.count().values()) <= 30 * 8


def _replace(setup, **values):
    from dataclasses import replace

    return replace(setup, **values)


def _wait_for(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
