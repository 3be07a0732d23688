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


def test_an_answer_is_kept_in_the_folder_for_other_processes(tmp_path):
    AnswerCache(tmp_path / "new" / FILE, 1).put("a", b"1")
    assert AnswerCache(tmp_path / "new" / FILE, 1).get("a") == b"1"


@pytest.mark.parametrize("in_folder", [True, False])
def test_an_answer_is_used_until_its_age(in_folder, tmp_path, clock):
    cache = AnswerCache(tmp_path / FILE if in_folder else None, 10, clock=clock)
    cache.put("a", b"1")
    clock.now += 9.9 * 86400
    assert cache.get("a") == b"1"
    clock.now += 0.2 * 86400
    assert cache.get("a") is None


def test_an_answer_from_the_future_is_not_used(tmp_path, clock):
    AnswerCache(tmp_path / FILE, 10, clock=clock).put("a", b"1")
    clock.now -= 86400
    assert AnswerCache(tmp_path / FILE, 10, clock=clock).get("a") is None


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


@pytest.mark.parametrize("content", [b"no database", b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_file_costs_the_answers_in_it_and_nothing_else(content, tmp_path):
    (tmp_path / FILE).write_bytes(content)
    cache = AnswerCache(tmp_path / FILE, 1)
    assert cache.get("a") is None
    cache.put("a", b"1")
    assert cache.get("a") == b"1"


def test_a_table_of_another_form_costs_the_same(tmp_path):
    with sqlite3.connect(tmp_path / FILE) as file:
        file.execute("CREATE TABLE answers (key, at, size, value)")
        file.execute("INSERT INTO answers VALUES ('a', 'soon', 'x', 7)")
    cache = AnswerCache(tmp_path / FILE, 1)
    assert cache.get("a") is None


def test_a_folder_that_cannot_be_made_costs_the_same(tmp_path):
    (tmp_path / "file").write_text("")
    cache = AnswerCache(tmp_path / "file" / "folder" / FILE, 1)
    cache.put("a", b"1")
    assert cache.get("a") == b"1"
