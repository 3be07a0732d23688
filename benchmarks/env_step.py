"""Measures the environment itself: time per step, and memory with thousands of episodes in flight.

    python benchmarks/env_step.py [STEPS [EPISODES [IMAGES]]]    (default 1000 2000 200; the last line is a JSON object)

(a) One step, from a reply to the next message, without work on images: stateful and stateless tools that do nothing, a
    malformed reply, notes, an answer, and a mix of them. Bar: a median below 0.3 ms for each. Processor time (of the
    whole process with its threads) is printed beside it, because it does not depend on other load.
(b) EPISODES episodes of as many tasks over IMAGES distinct image files, all in flight at once through `play_many`, each
    after a zoom, a search, a malformed reply and notes. Bar: memory grows by at most 50 KB per episode beyond the
    distinct pixels (of images and shown views, each counted once). Two new processes measure it: one reads resident
    memory (RSS), the other Python's allocations (tracemalloc).
"""

import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from PIL import Image
from pydantic import BaseModel

from viewbox.core.base import BaseMultiTurnEnv
from viewbox.images.ref import ImageRef
from viewbox.images.view import View
from viewbox.records import Episode, Message, Task
from viewbox.rewards import ExactMatchReward
from viewbox.rollouts.play import play_many
from viewbox.tools import ToolOutput

BAR = 0.3  # ms, the median of every kind of step
MAX_KB_PER_EPISODE = 50
SIDE = 512


def tick(view: View) -> ToolOutput:
    """Does nothing."""
    return ToolOutput("ticked", {"n": 1})


async def search(query: str) -> str:
    """Find nothing, on the event loop."""
    return f"1. nothing is known of {query}"


def look_up(query: str) -> str:
    """Find nothing, in a thread."""
    return f"1. nothing is known of {query}"


class Finding(BaseModel):
    label: str
    bbox: tuple[float, float, float, float] | None = None


class Bench(BaseMultiTurnEnv):
    name = "bench"
    answer: ClassVar = Finding
    boxes = ("bbox",)
    tools = ("zoom", "crop", "adjust_contrast", "reset", tick, search, look_up)
    max_turns = 10

    def default_reward(self) -> ExactMatchReward:
        return ExactMatchReward("label")


def write_call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


ANSWER = json.dumps({"label": "left", "bbox": [0.1, 0.1, 0.4, 0.5], "continue": False})
NOTES = json.dumps({"label": "left", "continue": True})
SEARCH = write_call("search", query="a left nodule")
STEPS = {
    "stateful tool": write_call("tick"),
    "stateless tool, async": SEARCH,
    "stateless tool, in a thread": write_call("look_up", query="a left nodule"),
    "nudge": "I think that it is on the left.",
    "nudge: schema": '{"label": 3}',
    "notes": NOTES,
    "answer": "It is on the left.\n" + ANSWER,
}


# ---------------------------------------------------------------------- (a) time
def time_steps(steps: int) -> dict[str, dict[str, float]]:
    """Milliseconds per step by kind: median, 95th percentile, and processor time; each step begins a new episode."""
    env, task = Bench(), _build_tasks([ImageRef.of(np.zeros((SIDE, SIDE), np.uint8))], 1)[0]
    kinds: dict[str, Sequence[str]] = {name: [reply] for name, reply in STEPS.items()}
    kinds["mixed"] = list(STEPS.values())
    found = {name: _summarize(asyncio.run(_time_replies(env, task, replies, steps))) for name, replies in kinds.items()}
    found["(reset)"] = _summarize(_time_function(lambda: env.reset(task, seed=0), steps))
    found["(play_many, a step)"] = _summarize(asyncio.run(_time_driver(env, task, steps)))
    return found


async def _time_replies(env: BaseMultiTurnEnv, task: Task, replies: Sequence[str], steps: int) -> list[np.ndarray]:
    seconds = []
    for number in range(-50, steps):  # the first few warm up
        state = env.reset(task, seed=number)
        start = _read_clocks()
        await env.step(state, replies[number % len(replies)])
        if number >= 0:
            seconds.append(_read_clocks() - start)
    return seconds


def _time_function(function: Callable[[], Any], count: int) -> list[np.ndarray]:
    seconds = []
    for _ in range(count):
        start = _read_clocks()
        function()
        seconds.append(_read_clocks() - start)
    return seconds


def _read_clocks() -> np.ndarray:
    """Wall and processor seconds."""
    return np.array([time.perf_counter(), time.process_time()])


async def _time_driver(env: BaseMultiTurnEnv, task: Task, steps: int) -> list[np.ndarray]:
    """Seconds per step of whole episodes, played, scored and recorded; one number for every 64 episodes."""
    replies = [STEPS["stateful tool"], SEARCH, NOTES, ANSWER]
    seconds = []
    for _ in range(max(3, steps // 256)):
        start = _read_clocks()
        ended = [episode async for episode in play_many(env, [task] * 64, Script(replies))]
        seconds.append((_read_clocks() - start) / len(ended) / len(replies))
    return seconds


def _summarize(seconds: Sequence[np.ndarray]) -> dict[str, float]:
    wall, processor = 1000 * np.array(seconds).T
    found = {"median_ms": np.median(wall), "p95_ms": np.quantile(wall, 0.95), "processor_ms": np.median(processor)}
    return {name: round(float(value), 4) for name, value in found.items()}


class Script:
    """A policy with a fixed list of replies. If it has a gate, it waits there before the last reply."""

    def __init__(self, replies: Sequence[str], gate: "Gate | None" = None) -> None:
        self.replies, self.gate = replies, gate

    async def __call__(self, messages: Sequence[Message]) -> str:
        said = sum(message.role == "assistant" for message in messages)
        if self.gate is not None and said == len(self.replies) - 1:
            await self.gate.wait(messages)
        return self.replies[said]


# ---------------------------------------------------------------------- (b) memory
class Gate:
    """Every episode waits here until all have arrived. Counts the pixels that they hold."""

    def __init__(self, count: int) -> None:
        self.missing, self.open, self.full = count, asyncio.Event(), asyncio.Event()
        self.pixels: dict[str, int] = {}  # bytes of each distinct picture, by hash

    async def wait(self, messages: Sequence[Message]) -> None:
        for image in (image for message in messages for image in message.images):
            self.pixels[image.hash] = image.width * image.height * (3 if image.mode == "RGB" else 1)
        self.missing -= 1
        if not self.missing:
            self.full.set()
        await self.open.wait()


HELD = [write_call("zoom", factor=2.0, center=[0.4, 0.6]), SEARCH, STEPS["nudge"], NOTES, ANSWER]


def _build_tasks(pictures: Sequence[ImageRef], count: int) -> list[Task]:
    """`count` tasks, each with its own question, over the pictures in turn."""
    reference = {"label": "left"}
    return [
        Task(f"task-{i}", (pictures[i % len(pictures)],), {"question": f"What do you see? ({i})"}, reference)
        for i in range(count)
    ]


def _save_images(folder: Path, count: int, seed: int) -> list[ImageRef]:
    """Distinct pictures as files, smooth enough that the files are small."""
    drawn = np.random.default_rng(seed)
    refs = []
    for number in range(count):
        small = Image.fromarray(drawn.integers(0, 256, (16, 16), dtype=np.uint8))
        picture = small.resize((SIDE, SIDE), Image.Resampling.BICUBIC)
        path = folder / f"{seed}-{number}.png"
        picture.save(path)
        refs.append(ImageRef(ImageRef.of(picture).hash, SIDE, SIDE, "L", str(path)))
    return refs


def measure_held(how: str, episodes: int, images: int) -> dict[str, float]:
    """Bytes that `episodes` in flight hold in this process; `how` is "rss" or "tracemalloc"."""
    with tempfile.TemporaryDirectory() as folder:
        warm = _build_tasks(_save_images(Path(folder), 2, seed=1), 64)
        tasks = _build_tasks(_save_images(Path(folder), images, seed=0), episodes)
        return asyncio.run(_measure_held(how, warm, tasks))


async def _measure_held(how: str, warm: list[Task], tasks: list[Task]) -> dict[str, float]:
    await _play_all(Bench(), warm, Script(HELD))
    env, gate = Bench(), Gate(len(tasks))
    measure = _read_rss if how == "rss" else _read_traced
    if how == "tracemalloc":
        tracemalloc.start()
    before = measure()
    start = time.perf_counter()
    playing = asyncio.create_task(_play_all(env, tasks, Script(HELD, gate)))
    full = asyncio.create_task(gate.full.wait())
    await asyncio.wait({playing, full}, return_when=asyncio.FIRST_COMPLETED)
    grown, seconds = measure() - before, time.perf_counter() - start
    gate.open.set()
    ended = await playing
    tracemalloc.stop()
    assert [episode.end_reason for episode in ended] == ["answered"] * len(tasks)
    assert all(episode.scores is not None and episode.scores.total == 1.0 for episode in ended)
    return {"grown": grown, "pixels": sum(gate.pixels.values()), "pictures": len(gate.pixels), "seconds": seconds}


async def _play_all(env: BaseMultiTurnEnv, tasks: list[Task], policy: Script) -> list[Episode]:
    return [episode async for episode in play_many(env, tasks, policy, concurrency=len(tasks))]


def _read_rss() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _read_traced() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def measure_memory(episodes: int, images: int) -> dict[str, float]:
    """Both measures, each from its own process; a megabyte is 10^6 bytes."""
    found = {}
    for how in ("rss", "tracemalloc"):
        command = [sys.executable, __file__, "--held", how, str(episodes), str(images)]
        said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=tempfile.gettempdir())
        one = json.loads(said.stdout.splitlines()[-1])
        found[f"{how}_mb"] = round(one["grown"] / 1e6, 1)
        found[f"{how}_kb_per_episode"] = round((one["grown"] - one["pixels"]) / 1e3 / episodes, 1)
        found |= {"distinct_pictures": one["pictures"], "distinct_pixels_mb": round(one["pixels"] / 1e6, 1)}
        found[f"{how}_seconds"] = round(one["seconds"], 1)
    return found


def main(steps: int = 1000, episodes: int = 2000, images: int = 200) -> None:
    print(f"(a) milliseconds per step, {steps} steps of each kind")
    step = time_steps(steps)
    for name, row in step.items():
        print(f"    {name:24}" + "".join(f"  {key[:-3]} {value:7.3f}" for key, value in row.items()))
    print(f"(b) {episodes} episodes in flight over {images} distinct pictures of {SIDE} x {SIDE}")
    memory = measure_memory(episodes, images)
    for how in ("rss", "tracemalloc"):
        print(
            f"    {how:12} grew {memory[f'{how}_mb']:.1f} MB; {memory['distinct_pixels_mb']:.1f} MB of pixels: "
            f"{memory[f'{how}_kb_per_episode']:.1f} KB per episode (bar: {MAX_KB_PER_EPISODE})"
        )
    slowest = max(row["median_ms"] for name, row in step.items() if not name.startswith("("))
    most = max(memory[f"{how}_kb_per_episode"] for how in ("rss", "tracemalloc"))
    passed = slowest < BAR and most <= MAX_KB_PER_EPISODE
    print(json.dumps({"step": step, "slowest_median_ms": slowest, "memory": memory, "passed": passed}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--held"]:
        print(json.dumps(measure_held(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
    else:
        main(*map(int, sys.argv[1:]))
