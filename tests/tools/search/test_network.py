"""What is kept of answers (their age, their size, files that cannot be used), and the limit on requests."""

import asyncio
import sqlite3
import time
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.support.literature_server import make_source, refuse_429, serve_literature
from viewbox.network.answers import AnswerCache
from viewbox.network.errors import RequestError
from viewbox.network.public import MAX_PAUSE, Limiter
from viewbox.tools.search.records import ArticleQuery

FILE = "answers.sqlite"


class Clock:
    now = 1_000_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.mark.parametrize("in_folder", [True, False])
def test_an_answer_is_used_until_its_age_in_a_folder_by_other_processes_and_not_before(in_folder, tmp_path, clock):
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


def test_the_oldest_answers_go_if_there_are_too_many(tmp_path, clock):
    cache = AnswerCache(tmp_path / FILE, 10, max_bytes=1000, max_memory=0, clock=clock)
    for number in range(20):
        clock.now += 1
        cache.put(str(number), bytes(100))
    assert [number for number in range(20) if cache.get(str(number)) is not None] == list(range(10, 20))


def test_memory_is_bounded_and_too_large_an_answer_is_not_kept(clock):
    cache = AnswerCache(None, 10, max_memory=1000, clock=clock)
    cache.put("large", bytes(2000))
    for number in range(20):
        cache.put(str(number), bytes(100))
    assert cache.get("large") is None
    assert sum(cache.get(str(number)) is not None for number in range(20)) == 10


@pytest.mark.parametrize("content", [b"no database", b"SQLite format 3\0" + b"\xff" * 5000, None])
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
                times.append(time.monotonic())

        await asyncio.gather(*(send() for _ in range(count)))
        return times

    return asyncio.run(take())


def test_requests_leave_an_interval_apart():
    times = take_turns(Limiter(50), 30)
    assert all(later - earlier >= 0.02 for earlier, later in pairwise(times))


def test_a_pause_holds_for_all_and_a_longer_one_than_there_is_time_is_an_error():
    limiter = Limiter(1000)
    limiter.pause(0.3)
    started = time.monotonic()
    assert take_turns(limiter, 1)[0] - started >= 0.29
    limiter.pause(10 * MAX_PAUSE)
    with pytest.raises(RequestError, match=r"asked for a pause, which lasts for another (300|299) s"):
        take_turns(limiter, 1)


def test_requests_that_are_late_on_their_way_do_not_meet_those_sent_after_them(tmp_path):
    """Answers that take 0 to 0.3 s, so that arrivals are unknown to the client within that time; 5 a second."""
    with serve_literature(tmp_path) as (literature, setup):

        def answer_late(body, number):
            time.sleep((number * 7 % 10) * 0.03)  # before the server notes the arrival
            return literature.answer

        literature.server.answer = answer_late
        found = asyncio.run(search_all(make_source(replace(setup, rate=5)), "late", 8))
    assert found == {"found": 8, "failed": []}
    assert literature.find_densest(1.0) <= 5


def test_a_storm_of_429_ends_in_results_or_without_an_end_in_named_errors(tmp_path):
    with serve_literature(tmp_path) as (literature, setup):
        literature.before = [refuse_429] * 60
        assert asyncio.run(search_all(make_source(setup), "storm", 30)) == {"found": 30, "failed": []}
        assert sum(literature.count().values()) == 60 + 60
        literature.esearch = refuse_429
        found = asyncio.run(search_all(make_source(replace(setup, retry_timeout=2.0)), "more", 30))
        assert 30 < sum(literature.count().values()) - 120 <= 30 * 6
    assert found["found"] == 0
    assert len(found["failed"]) == 30
    assert all("PubMed gave no answer" in one and "HTTP 429" in one for one in found["failed"])
