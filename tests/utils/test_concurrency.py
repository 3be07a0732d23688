"""Blocking work beside the event loop: results, time limits, cancellation, and what a hung thread does not hold up."""

import asyncio
import contextvars
import os
import threading
import time

import pytest

from tests.support.clean_python import run_python
from viewbox.utils import concurrency


@pytest.fixture
def gate():
    """What a hung call waits for; it is opened when the test is over, so that no thread is left behind."""
    event = threading.Event()
    yield event
    event.set()


def test_what_would_end_an_event_loop_is_wrapped_and_any_other_error_is_raised():
    def leave(kind):
        raise kind("enough")

    for kind in (SystemExit, KeyboardInterrupt, StopIteration, GeneratorExit, asyncio.CancelledError):
        with pytest.raises(concurrency.ForeignError, match=f"{kind.__name__}: enough") as caught:
            asyncio.run(concurrency.run_in_thread(leave, kind))
        assert isinstance(caught.value.__cause__, kind)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(concurrency.run_in_thread(divmod, 1, 0))


def test_a_call_that_takes_too_long_is_a_timeout_at_once_and_one_of_the_functions_own_is_not_taken_for_it(gate):
    async def play():
        with pytest.raises(TimeoutError, match=r"no result after 0\.05 s"):
            await concurrency.run_in_thread(gate.wait, timeout=0.05)

    asyncio.run(asyncio.wait_for(play(), 30))  # the gate never opens: only a limit that works gets past it

    def slow_network():
        raise TimeoutError("the server did not answer")

    with pytest.raises(TimeoutError) as caught:
        asyncio.run(concurrency.run_in_thread(slow_network, timeout=60))
    assert not isinstance(caught.value, concurrency.CallTimeout)


def test_many_hung_calls_do_not_block_another(gate, monkeypatch):
    monkeypatch.setattr(concurrency, "LONG_CALL", 0.05)

    async def play():
        hung = [asyncio.create_task(concurrency.run_in_thread(gate.wait)) for _ in range(3 * concurrency.MAX_RUNNING)]
        await asyncio.sleep(0)
        assert await concurrency.run_in_thread(int, "7") == 7
        for task in hung:
            task.cancel()
        await asyncio.gather(*hung, return_exceptions=True)

    asyncio.run(asyncio.wait_for(play(), 60))


def test_only_so_many_calls_start_out_together():
    lock, now, most = threading.Lock(), 0, 0

    def work():
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.002)
        with lock:
            now -= 1

    async def play():
        await asyncio.gather(*[concurrency.run_in_thread(work) for _ in range(10 * concurrency.MAX_RUNNING)])

    asyncio.run(play())
    assert 1 < most <= concurrency.MAX_RUNNING


def test_a_cancelled_wait_is_over_although_the_thread_goes_on(gate):
    started = threading.Event()

    def hang():
        started.set()
        gate.wait()

    async def play():
        before = asyncio.all_tasks()
        task = asyncio.create_task(concurrency.run_in_thread(hang))
        while not started.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == before

    asyncio.run(asyncio.wait_for(play(), 30))


def test_a_call_cancelled_before_it_found_a_place_gives_none_away(gate, monkeypatch):
    monkeypatch.setattr(concurrency, "MAX_RUNNING", 1)
    monkeypatch.setattr(concurrency, "LONG_CALL", 3600)

    async def play():
        first = asyncio.create_task(concurrency.run_in_thread(gate.wait))
        await asyncio.sleep(0)
        second = asyncio.create_task(concurrency.run_in_thread(int, "2"))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        gate.set()
        await first
        assert await concurrency.run_in_thread(int, "3") == 3

    asyncio.run(asyncio.wait_for(play(), 30))


def test_threads_are_used_again_with_the_context_variables_of_the_task():
    async def play():
        return {await concurrency.run_in_thread(threading.get_ident) for _ in range(200)}

    assert len(asyncio.run(play())) <= 2  # the next call may come before the last thread has said it is idle
    name = contextvars.ContextVar("name", default="nobody")

    async def play():
        name.set("somebody")
        return await concurrency.run_in_thread(name.get)

    assert asyncio.run(play()) == "somebody"


def test_an_idle_thread_holds_on_to_nothing():
    import gc
    import weakref

    class Large:
        pass

    async def play():
        large = Large()
        await concurrency.run_in_thread(id, large)
        return weakref.ref(large)

    kept = asyncio.run(play())
    for _ in range(200):  # the thread clears up after it has given the result
        gc.collect()
        if kept() is None:
            break
        time.sleep(0.005)
    assert kept() is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_process_makes_its_own_threads_and_a_hung_one_does_not_keep_the_interpreter_alive():
    code = """
import asyncio, os, threading
from viewbox.utils import concurrency
asyncio.run(concurrency.run_in_thread(int, "1"))  # leaves an idle thread that a child does not have
child = os.fork()
if child == 0:
    os._exit(asyncio.run(asyncio.wait_for(concurrency.run_in_thread(int, "5"), 20)))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
try:
    asyncio.run(concurrency.run_in_thread(threading.Event().wait, timeout=0.05))
except TimeoutError:
    print("over")
"""
    assert run_python("-c", code) == "5\nover\n"
