"""Answers that are kept: their age, their size, and files that cannot be used."""

import sqlite3

import pytest

from viewbox.network.answers import AnswerCache

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
