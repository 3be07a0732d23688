"""One model a process: batches of concurrent calls, kept results, and faults that cost only their own call."""

import asyncio
import threading

import numpy as np
import pytest

from tests.support.served_models import forget_servers
from tests.support.tables import each
from viewbox.errors import ConfigError, ToolError, ToolFault
from viewbox.images.ref import ImageRef
from viewbox.tools.specialists.serving import ModelRequest, ModelServer, OutOfMemory, ServingSettings, get_server


def picture(value):
    return ImageRef.of(np.full((4, 4), value, np.uint8))


class Mean:
    """The mean of a picture. `trouble` maps a gray value to a function that is called for it."""

    def __init__(self, most=99, trouble=()):
        self.most, self.trouble, self.ran, self.threads = most, dict(trouble), [], set()

    def run(self, requests):
        means = [int(np.asarray(request.picture.open()).mean()) for request in requests]
        self.ran.append(means)
        self.threads.add(threading.current_thread().ident)
        if len(means) > self.most:
            raise OutOfMemory
        return [self.trouble[mean]() if mean in self.trouble else mean for mean in means]


class Movable(Mean):
    def __init__(self):
        super().__init__()
        self.moves = []

    def release(self):
        self.moves.append("release")

    def wake(self):
        self.moves.append("wake")


def ask_all(server, values, arguments=()):
    """The results of requests at the same time, errors as text."""

    async def ask():
        asked = [server.ask(ModelRequest(picture(value), arguments)) for value in values]
        return await asyncio.gather(*asked, return_exceptions=True)

    return [str(one) if isinstance(one, ToolError | ToolFault) else one for one in asyncio.run(ask())]


def fail():
    raise RuntimeError("secret path")


def leave():
    raise SystemExit(1)


def refuse():
    return ToolFault("gave numbers that are not finite")


FAILED = "failed on this picture (RuntimeError)"
NO_MEMORY = "has no memory left for this picture"


@each("most, runner, asked, right, sizes", [  # most calls in a batch, what the runner does, and sizes of its batches
    (8, {}, range(16), [*range(16)], [8, 8]), (1, {}, [5], [5], [1]),
    (5, {"trouble": {3: fail}}, range(5), [0, 1, 2, FAILED, 4], [5, 1, 1, 1, 1, 1]),
    (1, {"trouble": {3: fail}}, [3, 4], [FAILED, 4], [1, 1, 1]),
    (3, {"trouble": {3: refuse}}, [2, 3, 4], [2, str(refuse()), 4], [3]),  # a result that is an error
    (12, {"most": 3}, range(12), [*range(12)], [12, 6, 3, 3, 3, 3]),  # no memory for more
    (2, {"most": 0}, range(2), [NO_MEMORY] * 2, [2, 1, 1]),
    (1, {"trouble": {1: leave}}, [1, 2], ["failed on this picture (ForeignError)", 2], [1, 1, 1]),
])  # fmt: skip
def test_concurrent_calls_are_batches_and_a_fault_costs_its_call(most, runner, asked, right, sizes):
    model = Mean(**runner)
    server = ModelServer(lambda: model, ServingSettings(max_batch=most, wait=30.0))
    assert ask_all(server, asked) == right
    assert sorted(map(len, model.ran)) == sorted(sizes)
    assert len(model.threads) == 1
    assert server.batch_size == (3 if runner.get("most") else 1 if "most" in runner else most)
    server.apply(ServingSettings(wait=0.01))  # what failed is asked alone
    assert ask_all(server, asked) == right


def test_a_batch_does_not_wait_for_calls_that_do_not_come_loops_share_a_model_and_it_is_loaded_once():
    assert ask_all(ModelServer(Mean), [5]) == [5]
    loaded = []
    server = ModelServer(lambda: loaded.append(1) or Mean(), ServingSettings(max_batch=4, wait=30.0))
    assert ask_all(server, range(4)) == [0, 1, 2, 3]
    server.prepare()
    assert loaded == [1]
    server = ModelServer(Mean, ServingSettings(max_batch=4, wait=30.0))
    found = {}
    threads = [threading.Thread(target=lambda n=n: found.update({n: ask_all(server, [n])})) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == {number: [number] for number in range(4)}
    assert server.batches == [4]


def test_a_result_is_kept_by_pixels_and_arguments_equal_requests_are_run_once_and_bytes_are_bounded():
    runner = Mean()
    server = ModelServer(lambda: runner)
    assert [ask_all(server, [7], (top,)) for top in (1, 1, 2, 1)] == [[7]] * 4
    assert runner.ran == [[7], [7]]
    equal = Mean()
    server = ModelServer(lambda: equal, ServingSettings(max_batch=2, wait=30.0))
    assert ask_all(server, [3, 3, 3, 4, 3]) == [3, 3, 3, 4, 3]
    assert [*map(sorted, equal.ran)] == [[3, 4]]
    large = Mean(trouble={value: lambda: np.zeros(1000, np.uint8) for value in range(6)})
    large.trouble[9] = lambda: np.zeros(9000, np.uint8)
    server = ModelServer(lambda: large, ServingSettings(cache_bytes=3_000))
    for value in (0, 1, 0, 2, 0, 1, 9, 9):
        ask_all(server, [value])
    assert large.ran == [[0], [1], [2], [1], [9], [9]]  # what is used stays


def test_a_runner_that_returns_another_number_of_results():
    for results in [lambda n: [0] * (n - 1), lambda n: [0] * (n + 1), lambda n: None]:

        class Odd:
            def run(self, requests, results=results):
                return results(len(requests))

        server = ModelServer(Odd, ServingSettings(max_batch=2, wait=30.0))
        assert all(result.startswith("failed on this picture") for result in ask_all(server, range(2)))


@pytest.mark.slow
def test_a_hang_costs_its_call_and_the_others_go_on_in_another_thread():
    release = threading.Event()
    runner = Mean(trouble={3: release.wait})
    server = ModelServer(lambda: runner, ServingSettings(max_batch=4, wait=30.0, timeout=1.0))
    try:
        results = ask_all(server, [1, 2, 3, 4])
        assert results[:2] + results[3:] == [1, 2, 4]
        assert results[2].startswith("gave no result in time")
        before = len(runner.ran)
        assert ask_all(server, [3]) == [results[2]]  # kept: no further thread hangs on it
        assert len(runner.ran) == before
    finally:
        release.set()


@pytest.fixture
def slow():
    """A runner, an event that is set when it sees a picture of 1, and the one for which it waits then."""
    runner, entered, release = Movable(), threading.Event(), threading.Event()

    def block():
        entered.set()
        release.wait(60)
        return 1

    runner.trouble[1] = block
    yield runner, entered, release
    release.set()


def test_a_call_that_is_cancelled_leaves_the_others_and_is_not_run(slow):
    runner, entered, release = slow
    server = ModelServer(lambda: runner, ServingSettings(max_batch=1, timeout=60.0))

    async def play():
        server.prepare()
        first = asyncio.create_task(server.ask(ModelRequest(picture(1))))
        await asyncio.to_thread(entered.wait, 60)
        second, third = (asyncio.create_task(server.ask(ModelRequest(picture(value)))) for value in (2, 3))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait({second})
        release.set()
        return await first, await third, second.cancelled()

    assert asyncio.run(play()) == (1, 3, True)
    assert runner.ran == [[1], [3]]


def test_a_model_that_cannot_be_loaded_is_an_error_at_start_up_and_of_each_call_and_kept_errors_hold_no_traceback():
    tries = []

    def load():
        tries.append(1)
        raise ConfigError("model = 'gone': no such folder", key="model")

    server = ModelServer(load)
    with pytest.raises(ConfigError, match="no such folder"):
        server.prepare()
    assert all(text.startswith("is not available") and "gone" not in text for text in ask_all(server, [1, 2]))
    assert len(tries) == 1
    with pytest.raises(ConfigError):
        server.prepare()  # who asks again may have put the file there
    assert len(tries) == 2
    server, errors = ModelServer(lambda: Mean(trouble={3: lambda: ToolError("no")})), []
    for _ in range(3):
        with pytest.raises(ToolError) as caught:
            asyncio.run(server.ask(ModelRequest(picture(3))))
        errors.append(caught.value)
    assert len({id(error) for error in errors}) == 3


def test_the_same_model_is_served_once_and_the_smaller_settings_hold():
    forget_servers()
    first = get_server(("m", "cpu"), Mean, ServingSettings(max_batch=8, timeout=5.0))
    second = get_server(("m", "cpu"), Mean, ServingSettings(max_batch=4, timeout=9.0))
    other = get_server(("m", "cuda"), Mean, ServingSettings())
    forget_servers()
    assert first is second is not other
    assert (first.batch_size, first.settings.timeout) == (4, 5.0)


def test_with_offload_the_weights_leave_the_device_until_the_next_call_unless_one_specialist_wants_them():
    runner = Movable()
    server = ModelServer(lambda: runner, ServingSettings(offload=True))
    assert ask_all(server, [1]) == [1]
    server.release()
    server.release()
    assert runner.moves == ["release"]
    assert ask_all(server, [1]) == [1]  # kept: no need of the device
    assert runner.moves == ["release"]
    assert ask_all(server, [2]) == [2]
    server.release()
    server.prepare()
    server.prepare()
    assert runner.moves == ["release", "wake", "release", "wake"]
    wanted = Movable()
    server = ModelServer(lambda: wanted, ServingSettings(offload=True))
    server.apply(ServingSettings(offload=False))
    server.prepare()
    server.release()
    assert wanted.moves == []


def test_resting_waits_for_the_batch_that_runs(slow):
    runner, entered, release = slow
    server = ModelServer(lambda: runner, ServingSettings(offload=True, timeout=60.0))
    found = []
    asking = threading.Thread(target=lambda: found.extend(ask_all(server, [1])))
    asking.start()
    assert entered.wait(60)
    resting = threading.Thread(target=server.release)
    resting.start()
    assert runner.moves == []
    release.set()
    asking.join(60)
    resting.join(60)
    assert (found, runner.moves) == ([1], ["release"])
