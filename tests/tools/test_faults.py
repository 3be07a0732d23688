"""Tools that misbehave: what the model reads names the tool and what can be done, and no other call is harmed."""

import asyncio
import inspect
import json
import threading
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import torch
from PIL import Image

from viewbox.core import tool_calls
from viewbox.errors import ToolError, ToolFault, describe_value
from viewbox.images.view import View
from viewbox.records import Episode as Record
from viewbox.records import Task, ToolResult, Turn
from viewbox.tools import Picture, Tool, ToolOutput, ViewFractions, call_stateful, call_stateless, calling
from viewbox.utils import concurrency

VIEW = View.of(np.zeros((20, 40), np.uint8))


class Strange(BaseException):
    """Of nobody's hierarchy."""


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no words")


RAISED = [
    ValueError("/data/patient_17"), Unspeakable(), Strange(), SystemExit(3), StopIteration(), GeneratorExit(),
    asyncio.CancelledError(), MemoryError(), TimeoutError("the server did not answer"), RecursionError(),
]  # fmt: skip
KINDS = ["stateful", "thread", "coroutine"]


def tool_of(kind, body):
    """A tool called `probe` of one of the three kinds that does `body()`."""

    def stateful(view: View) -> ToolOutput:
        """Probes."""
        return body()

    def thread() -> str:
        """Probes."""
        return body()

    async def coroutine() -> str:
        """Probes."""
        return body()

    return Tool.from_function({"stateful": stateful, "thread": thread, "coroutine": coroutine}[kind], "probe")


async def run(made, limit=None, arguments=None, name="probe"):
    """One call as the loop makes it: tried once more if the tool raises."""

    async def once():
        if made.stateful:
            return (await concurrency.run_in_thread(call_stateful, made, VIEW, arguments or {}, timeout=limit))[1]
        return await call_stateless(made, arguments or {}, find_picture=lambda name: VIEW, timeout=limit)

    return await tool_calls._run_twice(name, once, [])


def result_of(kind, body, limit=None):
    return asyncio.run(asyncio.wait_for(run(tool_of(kind, body), limit), 60))


def count_tries(kind, *outcomes):
    """The result of a tool that raises or returns one outcome after the other (the last again), and its tries."""
    tries = []

    def body():
        outcome = outcomes[min(len(tries), len(outcomes) - 1)]
        tries.append(1)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    return result_of(kind, body), len(tries)


def try_all(*outcomes):
    """The results of the three kinds."""
    return [count_tries(kind, *outcomes)[0] for kind in KINDS]


def stored(result: ToolResult) -> str:
    """The line of an episode that holds the result, as a store writes it."""
    return Record(Task("t"), (Turn("tool_result", tool_results=(result,)),)).to_json()


# ---- tools that raise


def test_whatever_a_tool_raises_is_tried_once_more_and_kept_as_raised():
    for kind, error in product(KINDS, RAISED):
        name = type(error).__name__
        if kind == "coroutine" and isinstance(error, StopIteration):
            name = "RuntimeError"  # Python's own doing
        result, tries = count_tries(kind, error)
        assert result.raised == name  # its message may hold a path or a name: only the log has it
        assert result.error == f"probe failed ({result.raised})"
        ends_process = not isinstance(error, Exception) or (isinstance(error, StopIteration) and kind != "coroutine")
        assert tries == (1 if ends_process else 2)


def test_a_second_try_that_succeeds_is_a_success_that_says_it_raised_before():
    for result in try_all(ConnectionError("refused"), "seen"):
        assert (result.success, result.text, result.raised) == (True, "seen", "ConnectionError")


def test_a_tool_fault_is_not_tried_again_and_a_tool_error_is_told_as_it_is():
    for kind in KINDS:
        result, tries = count_tries(kind, ToolFault("probe: the scanner is off"))
        assert (result.raised, tries) == ("probe: the scanner is off", 1)
        result, tries = count_tries(kind, ToolError("probe: nothing is open; open an image first"))
        assert (result.error, tries) == ("probe: nothing is open; open an image first", 1)


def test_a_keyboard_interrupt_of_a_tools_own_thread_is_a_fault_like_any_other():
    def body():
        raise KeyboardInterrupt

    for kind in ("stateful", "thread"):
        assert result_of(kind, body).raised.startswith("KeyboardInterrupt")


def test_the_exceptions_words_are_logged_for_the_author(caplog):
    def body():
        raise ValueError("weights are missing")

    result_of("coroutine", body)
    assert "weights are missing" in caplog.text


# ---- tools that hang


@pytest.fixture
def gate():
    event = threading.Event()
    yield event
    event.set()


def test_a_coroutine_that_hangs_is_cancelled_after_the_limit():
    ended = []

    async def probe() -> str:
        """Hangs."""
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("tidied up")

    async def play():
        result = await run(Tool.from_function(probe), limit=0.05)
        return result, len(asyncio.all_tasks())

    result, tasks = asyncio.run(play())
    assert result.error == "probe took longer than 0.05 seconds and was stopped"
    assert ended == ["tidied up"]
    assert tasks == 1


def test_a_coroutine_that_takes_no_notice_of_its_cancellation_holds_nobody_up(monkeypatch):
    monkeypatch.setattr(calling, "GRACE", 0.05)
    release = []

    async def probe() -> str:
        """Hangs stubbornly."""
        while not release:
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue

    async def play():
        result = await run(Tool.from_function(probe), limit=0.05)
        release.append("now it may end")
        return result

    assert "took longer than 0.05 seconds" in asyncio.run(asyncio.wait_for(play(), 30)).error


def test_a_tool_whose_picture_takes_too_long_to_open_is_given_up(gate):
    async def probe(image: Picture) -> str:
        """Probes."""

    def slow(name):
        gate.wait()

    with pytest.raises(ToolFault, match=r"took longer than 0\.05 seconds"):
        asyncio.run(call_stateless(Tool.from_function(probe), {"image": "image_1"}, find_picture=slow, timeout=0.05))


# ---- tools that say or show what cannot be used


def test_what_is_neither_words_nor_facts_is_an_error():
    for returned in (None, 3, b"bytes", ["a", "b"], View, ToolOutput(text=3), ToolOutput(facts=[1])):
        for result in try_all(returned):
            assert result.raised.startswith(f"probe returned {describe_value(returned)}; allowed: ")


def test_a_coroutine_that_a_plain_function_returns_is_closed_and_an_error():
    async def later():
        return "never"

    coroutine = later()
    assert "returned <coroutine" in result_of("thread", lambda: coroutine).raised
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED


def test_tools_of_every_kind_return_text_facts_or_both():
    for returned in ("words", {"count": 2}, ToolOutput("words", {"count": 2})):
        results = try_all(returned)
        assert len({(result.description, result.facts) for result in results}) == 1
        assert all(result.success for result in results)


def test_only_a_stateful_tool_returns_a_view():
    for kind, view in (("stateful", "no view"), ("thread", VIEW), ("coroutine", VIEW)):
        assert "probe returned ToolOutput(" in count_tries(kind, ToolOutput("new", view=view))[0].error
    assert count_tries("stateful", ToolOutput("new", view=VIEW))[0].success


BROKEN = {
    "no pixels": np.zeros((0, 0), np.uint8),
    "no rows": np.zeros((0, 5, 3), np.uint8),
    "all NaN": np.full((4, 4), np.nan),
    "objects": np.array([[object(), None]]),
    "letters": np.array([["a", "b"]]),
    "complex": np.zeros((4, 4), complex),
    "four axes": np.zeros((2, 4, 4, 3), np.uint8),
    "one axis": np.zeros(16, np.uint8),
    "five channels": np.zeros((4, 4, 5), np.uint8),
    "empty Pillow": Image.new("L", (0, 0)),
    "number": 7,
    "dict": {"pixels": []},
    "bytes": b"\x89PNG",
    "path": "/etc/hostname",
}


def test_a_picture_that_cannot_be_shown_is_an_error_that_says_why():
    for image in BROKEN.values():
        for result in try_all(ToolOutput("drawn", image=image)):
            assert result.raised.startswith("probe returned an image that cannot be shown (")
            assert result.image is None


def test_a_path_is_never_opened_for_a_tool(tmp_path):
    Image.new("L", (4, 4)).save(tmp_path / "a.png")
    assert "str is not an image" in result_of("thread", lambda: ToolOutput(image=str(tmp_path / "a.png"))).error


def test_a_picture_of_another_depth_is_shown_all_the_same():
    for result in try_all(ToolOutput("drawn", image=np.array([[0.0, np.nan], [0.5, 1.0]]))):
        assert np.asarray(result.image.open()).shape == (2, 2)


def test_an_operation_that_breaks_the_view_is_a_fault():
    def probe(view: View) -> ToolOutput:
        """Breaks the view."""
        return ToolOutput("broken", view=view.apply(lambda pixels, before: np.zeros((0, 0), np.uint8)))

    with pytest.raises(ToolFault, match="probe returned an image that cannot be shown"):
        call_stateful(Tool.from_function(probe), VIEW, {})


# ---- tools that say too much, or what no file can hold


@pytest.mark.slow
def test_millions_of_facts_are_bounded():
    assert len(result_of("thread", lambda: {str(i): i for i in range(3_000_000)}).facts) < 200_000
    many = {"numbers": list(range(3_000_000)), "pixels": np.zeros(3_000_000), "words": "x" * 10_000_000}
    assert len(stored(result_of("thread", lambda: many))) < 2_000_000


def test_facts_without_end_end():
    endless = {"self": None}
    endless["self"] = endless
    wide = [0]
    for _ in range(60):
        wide = [wide, wide]  # 2 to the power of 60 values, held in 60 lists
    assert result_of("thread", lambda: {"loop": endless, "wide": wide}).success


ODD = {
    "numpy number": (np.float32(0.25), 0.25),
    "numpy bool": (np.True_, True),
    "long number": (np.longdouble(0.25), 0.25),
    "tensor": (torch.tensor(0.25, dtype=torch.bfloat16), 0.25),
    "tensor of two": (torch.tensor([0.25, 0.5], requires_grad=True), (0.25, 0.5)),
    "large tensor": (torch.empty(100_001), "array of shape (100001,)"),
    "Fraction": (Fraction(1, 4), 0.25),
    "array": (np.array([[1, 2]]), ((1, 2),)),
    "not a number": (float("nan"), "nan"),
    "infinity": (np.float64("inf"), "inf"),
    "set": ({"b", "a", "c"}, ("a", "b", "c")),
    "box": ([ViewFractions((0, 0, 0.5, 1))], ((0.0, 0.0, 0.5, 1.0),)),
    "huge number": (10**5000, "a number of 16610 bits"),
    "surrogate": ("a\ud800b", "a?b"),
    "object": (complex(1, 2), "(1+2j)"),
    "keys": ({1: "x"}, {"1": "x"}),
}


def test_facts_are_kept_as_json_can_hold_them():
    for given, kept in ODD.values():
        for result in try_all(ToolOutput("read", {"fact": given})):
            assert result.facts["fact"] == kept
            again = Record.from_json(stored(result)).turns[0].tool_results[0]
            assert again.facts == result.facts
            json.loads(stored(result).encode())


# ---- the others
