"""Times what a tool call costs beside the tool: going into a thread and back, and cleaning the tool's text.

    python benchmarks/tool_calls.py

The last line is one JSON object: microseconds per call and per text. `to_thread` is the standard library's function,
for comparison.
"""

import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable

import numpy as np

from viewbox.images.view import View
from viewbox.tools import Picture, Tool, call_stateless
from viewbox.utils import concurrency
from viewbox.utils.sanitize import clean, make_boundary_code, wrap_in_boundary

CALLS, ROUNDS = 2000, 7


def say_nothing(image: Picture) -> str:
    """Says a word."""
    return "nothing"


async def say_nothing_async(image: Picture) -> str:
    """Says a word."""
    return "nothing"


async def time_sequential(call: Callable[[], Awaitable[object]]) -> float:
    """Microseconds per call: the median of `ROUNDS` rounds."""
    found = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(CALLS):
            await call()
        found.append((time.perf_counter() - start) / CALLS * 1e6)
    return statistics.median(found)


async def time_concurrent(call: Callable[[], Awaitable[object]]) -> float:
    """Microseconds per call if all run at the same time."""
    start = time.perf_counter()
    await asyncio.gather(*[call() for _ in range(CALLS)])
    return (time.perf_counter() - start) / CALLS * 1e6


async def time_calls() -> dict[str, float]:
    view = View.of(np.zeros((64, 64), np.uint8))
    plain, awaited = Tool.from_function(say_nothing), Tool.from_function(say_nothing_async)
    named = {"image": "image_1"}
    return {
        "run_us": await time_sequential(lambda: concurrency.run_in_thread(int, timeout=60)),
        "to_thread_us": await time_sequential(lambda: asyncio.to_thread(int)),
        "run_at_once_us": await time_concurrent(lambda: concurrency.run_in_thread(int, timeout=60)),
        "answer_us": await time_sequential(
            lambda: call_stateless(plain, named, find_picture=lambda name: view, timeout=60)
        ),
        "answer_async_us": await time_sequential(
            lambda: call_stateless(awaited, named, find_picture=lambda name: view, timeout=60)
        ),
    }


def time_texts() -> dict[str, float]:
    given = {
        "line_us": "zoomed (factor: 2.0, shows: [0.25, 0.25, 0.75, 0.75])",
        "page_us": "No focal consolidation; heart size normal. " * 180,
        "chinese_page_us": "未见明显实变影" * 1100,
        "hundred_mb_us": "x" * 100_000_000,
        "hundred_mb_unseen_us": "\u200b" * 100_000_000,
        "hundred_mb_marks_us": "<a" * 50_000_000,
    }
    found = {}
    for name, text in given.items():
        took = []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            wrap_in_boundary(clean(text, 8000), make_boundary_code(0, 1, 0))
            took.append((time.perf_counter() - start) * 1e6)
        found[name] = statistics.median(took)
    return found


if __name__ == "__main__":
    measured = asyncio.run(time_calls()) | time_texts()
    for name, value in measured.items():
        print(f"{name:24} {value:10.1f}")
    print(json.dumps({"benchmark": "tool_calls", **{name: round(value, 1) for name, value in measured.items()}}))
