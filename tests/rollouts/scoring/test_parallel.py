"""A function over many things at once: the order of the things, and no more threads or memory than asked for."""

import threading
import time

import pytest

from viewbox.utils.concurrency import AHEAD, map_in_order


def test_results_come_in_the_order_of_the_items_and_that_many_run_at_once():
    def slower_at_first(number):
        time.sleep(0.02 if number < 4 else 0)
        return number

    for threads in (1, 2, 8):
        assert list(map_in_order(slower_at_first, range(40), threads=threads)) == list(range(40))
    together = threading.Barrier(5, timeout=20)
    assert list(map_in_order(lambda number: together.wait() >= 0, range(10), threads=5)) == [True] * 10


def test_items_are_read_only_as_far_ahead_as_needed():
    read = []
    results = map_in_order(str, (read.append(number) or number for number in range(1000)), threads=4)
    next(results)
    assert len(read) <= AHEAD * 4
    results.close()


def test_the_first_exception_in_order_is_raised_also_of_the_items_and_earlier_results_come_before_it():
    def fails(number):
        if number in (3, 5):
            raise ValueError(number)
        return number

    found = []
    with pytest.raises(ValueError, match="3"):
        found.extend(map_in_order(fails, range(10), threads=4))
    results = map_in_order(fails, range(10), threads=4)
    assert [next(results) for _ in range(3)] == [0, 1, 2]

    def items():
        yield 1
        raise OSError("the file is gone")

    with pytest.raises(OSError, match="the file is gone"):
        list(map_in_order(str, items(), threads=4))


def test_threads_end_with_the_work():
    before = threading.active_count()
    list(map_in_order(str, range(10), threads=4))
    until = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < until:
        time.sleep(0.01)
    assert threading.active_count() <= before
