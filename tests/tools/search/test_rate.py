"""The limit on requests: when they leave, and when they arrive at a server, from one process and from several."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain

import pytest

from tests.support.literature_server import make_source, refuse_429, serve_literature
from viewbox.network.errors import RequestError
from viewbox.network.limiter import MAX_PAUSE, Limiter
from viewbox.tools.search.records import ArticleQuery


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch):
    monkeypatch.delenv("NCBI_API_KEY", raising=False)


async def search_all(source, prefix, number):
    """How many searches found something, and how many failed."""
    asked = (source.search_articles(ArticleQuery(f"{prefix} {one}")) for one in range(number))
    found = await asyncio.gather(*asked, return_exceptions=True)
    return {
        "found": sum(isinstance(one, list) and bool(one) for one in found),
        "failed": [str(one) for one in found if isinstance(one, Exception)],
    }


def take_turns(limiter, count):
    """When `count` requests left."""

    async def take():
        times = []

        async def send():
            async with limiter.turn(60):
                times.append(time.time())

        await asyncio.gather(*(send() for _ in range(count)))
        return times

    return asyncio.run(take())


def test_requests_leave_an_interval_apart_whoever_sends_them(tmp_path):
    with ThreadPoolExecutor(3) as threads:
        limiters = [Limiter("server", 50, tmp_path) for _ in range(3)]  # as of three processes
        times = sorted(chain(*threads.map(take_turns, limiters, [20] * 3)))
    assert len(times) == 60
    assert times[-1] - times[0] >= 59 * 0.021 - 0.01
    for start in times:
        assert sum(start <= one < start + 0.5 for one in times) <= 26  # the event loop notes it a little later


def test_a_pause_holds_for_all_and_a_longer_one_than_there_is_time_is_an_error(tmp_path):
    limiter, other = Limiter("server", 1000, tmp_path), Limiter("server", 1000, tmp_path)
    limiter.pause(0.3)
    started = time.time()
    assert take_turns(other, 1)[0] - started >= 0.29
    limiter.pause(10 * MAX_PAUSE)
    assert MAX_PAUSE - 1 < other.try_turn() <= MAX_PAUSE
    with pytest.raises(RequestError, match="asked for a pause, which lasts for another 300 s"):
        take_turns(other, 1)
    assert Limiter("another", 1000, tmp_path).try_turn() == 0


@pytest.mark.parametrize("content", ["", "x", "nan", "inf", "-inf", "1e999", "9" * 90, "\0" * 200])
def test_a_file_that_holds_something_else_stops_nothing(tmp_path, content):
    limiter = Limiter("server", 10, tmp_path)
    limiter.path.write_text(content)
    assert limiter.try_turn() == 0
    assert 0 < limiter.try_turn() <= 0.105


def test_a_file_that_cannot_be_used_is_named(tmp_path):
    limiter = Limiter("server", 10, tmp_path)
    limiter.path.mkdir()
    with pytest.raises(RequestError, match=r"requests cannot be counted in .*requests-server\.txt"):
        limiter.check()


def test_requests_that_are_late_on_their_way_do_not_meet_those_sent_after_them(tmp_path):
    """Answers that take 0 to 0.3 s, so that arrivals are unknown to the client within that time; 5 a second."""
    with serve_literature(tmp_path) as (literature, setup):
        make = literature.answer

        def answer_late(body, number):
            time.sleep((number * 7 % 10) * 0.03)  # before the server notes the arrival
            return make(body, number)

        literature.server.answer = answer_late
        found = asyncio.run(search_all(make_source(replace(setup, eutils_rate=5)), "late", 8))
    assert found == {"found": 8, "failed": []}
    assert literature.find_densest(1.0) <= 5


def test_a_storm_of_429_ends_in_results(tmp_path):
    with serve_literature(tmp_path) as (literature, setup):
        literature.before = [refuse_429] * 60
        found = asyncio.run(search_all(make_source(setup), "storm", 30))
    assert found == {"found": 30, "failed": []}
    assert sum(literature.count().values()) == 60 + 60


def test_a_storm_of_429_without_end_ends_in_named_errors(tmp_path):
    with serve_literature(tmp_path) as (literature, setup):
        literature.esearch = refuse_429
        found = asyncio.run(search_all(make_source(replace(setup, retry_timeout=2.0)), "storm", 30))
    assert found["found"] == 0
    assert len(found["failed"]) == 30
    assert all("PubMed gave no answer" in one and "HTTP 429" in one for one in found["failed"])
    assert 30 < sum(literature.count().values()) <= 30 * 6
