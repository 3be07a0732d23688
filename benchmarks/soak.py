"""Plays thousands of short episodes in one process, most of them with a fault: does memory grow? Is anything left over?

    python benchmarks/soak.py [EPISODES]        (default 20000; one thread; the last line is one JSON object)

A model of 63,000 random parameters plays in rounds. Scripted calls among its replies run tools that show an image,
raise, or hang (in a thread or in the event loop). In one round of four most episodes time out; in another the reader
stops half way. There are 500 images, and the vision cache is so small that it is always full. Resident memory is
compared with that after the first 1,000 episodes, each time after free memory was returned to the system (glibc's
`malloc_trim`); otherwise it would only show earlier peaks. `untrimmed_mb` is the memory before the return. At the end
no slot, task or conversation may be left, and all threads must be idle.
"""

import asyncio
import ctypes
import gc
import json
import logging
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from pydantic import BaseModel

from viewbox.core.base import BaseMultiTurnEnv
from viewbox.engines.generator import Conversation
from viewbox.engines.hf import Settings, tiny_model
from viewbox.engines.hf.chat_tokens import ChatTokens
from viewbox.engines.hf.engine import HFGenerator
from viewbox.engines.hf.vision_cache import VisionCache
from viewbox.engines.scripted import ScriptedGenerator
from viewbox.images.view import View
from viewbox.records import Episode, Task
from viewbox.rewards import ExactMatchReward
from viewbox.rollouts.play import play_many
from viewbox.tools import ToolOutput
from viewbox.utils import concurrency
from viewbox.utils.frozen import thaw

BAR = 0.02  # how much resident memory may grow after the first SAMPLE episodes
SAMPLE = 1000  # episodes between two readings
ROUND, GROUP = 250, 2  # episodes of a call of `play_many`, and of a task
SLOTS = 64
PICTURES, SIDE, PATCH = 500, 32, 8
TOOL_TIMEOUT = 0.05  # seconds
HANG_SECONDS = 0.5  # how long a thread of a hanging tool lives
EPISODE_TIMEOUT = 0.4  # seconds, in the rounds in which that is too short for most episodes
MAX_FEATURE_BYTES = 2**17  # of the vision cache; the features of all images need more


def show(view: View) -> ToolOutput:
    """Show another picture."""
    return ToolOutput("looked", image=255 - view.source.pixels[::2])


def fail(view: View) -> ToolOutput:
    """Raises"""
    raise KeyError("no such row")


def hang_in_thread(view: View) -> ToolOutput:
    """Hangs in a thread."""
    time.sleep(HANG_SECONDS)
    return ToolOutput("too late")


async def hang_in_loop(query: str) -> str:
    """Hangs in the event loop."""
    await asyncio.sleep(3600)
    return "never"


def write_call(name: str) -> str:
    arguments = '{"query": "x"}' if name == "hang_in_loop" else "{}"
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


SCRIPTS: tuple[list[str | None], ...] = (  # replies; None and those after the last one: the model's own
    [],
    [write_call("show")],
    [None, write_call("fail")],
    [],
    [write_call("fail"), write_call("show")],
    [None, write_call("show")],
    [],
    [write_call("hang_in_loop")],
    [None, write_call("show"), write_call("fail")],
    [None, write_call("hang_in_thread")],
)


class Answer(BaseModel):
    word: str


class Soak(BaseMultiTurnEnv):
    """A small image, and tools that work or fail."""

    name = "soak"
    answer = Answer
    tools = (show, fail, hang_in_thread, hang_in_loop)
    tool_timeout = TOOL_TIMEOUT
    max_turns = 3
    max_pixels = SIDE * SIDE
    boundary = False

    @cached_property
    def tasks(self) -> list[Task]:
        return [
            Task(f"soak-{i}", (), {"question": "What is it?"}, {"word": "circle"}, {"seed": i}) for i in range(PICTURES)
        ]

    def images(self, task: Task) -> list[np.ndarray]:
        return [np.random.default_rng(task.metadata["seed"]).integers(0, 255, (SIDE, SIDE), dtype=np.uint8)]

    def default_reward(self) -> ExactMatchReward:
        return ExactMatchReward("word")


def get_scripted_reply(conversation: Conversation) -> str | None:
    plan = SCRIPTS[conversation.index % len(SCRIPTS)]
    said = sum(message.role == "assistant" for message in conversation.messages)
    return plan[said] if said < len(plan) else None


def build_engine(env: Soak) -> HFGenerator:
    """Return the engine over a model whose replies are a few random tokens."""
    schemas = [json.dumps(thaw(schema)) for schema in env.tool_schemas]
    tokenizer = tiny_model.build_tokenizer(
        [env.build_system_prompt(env.tasks[0]), *schemas, *map(write_call, env.tools)] * 20, 896
    )
    processor = tiny_model.build_processor(tokenizer, patch=PATCH, max_pixels=SIDE * SIDE)
    model = tiny_model.build_model(
        tokenizer, hidden=32, layers=2, vision_hidden=16, vision_layers=2, positions=16
    ).eval()
    tokens = ChatTokens(processor, model.config)
    features = VisionCache(model, tokens.architecture, max_bytes=MAX_FEATURE_BYTES)
    settings = Settings(slots=SLOTS, tool_wait_timeout=0.02, max_reply_tokens=6, max_completion_tokens=400)
    return HFGenerator(model, tokens, settings, vision_cache=features)


async def play_rounds(env: Soak, engine: HFGenerator, count: int, ends: Counter[str]) -> AsyncIterator[Episode]:
    """Yield `count` episodes from several calls of `play_many`; `ends` also counts readers that stopped early."""
    player = ScriptedGenerator(
        engine.tokens, get_scripted_reply, engine, max_completion_tokens=engine.max_completion_tokens
    )
    number = 0
    while count > 0:
        size = min(ROUND, count)
        tasks = [env.tasks[(number * ROUND // GROUP + i) % PICTURES] for i in range(-(-size // GROUP))]
        wanted = -(-size // 2) if number % 4 == 2 else size  # the reader stops half way
        limit = EPISODE_TIMEOUT if number % 4 == 3 else None
        settings: dict[str, Any] = {"group": GROUP, "concurrency": SLOTS, "timeout": limit, "seed": number}
        async with aclosing(play_many(env, tasks, player, **settings)) as played:
            for _ in range(wanted):
                yield await anext(played)
        ends["readers stopped early"] += wanted < size
        count, number = count - wanted, number + 1


def return_free_memory() -> None:
    """Return free memory to the system if the C library is glibc."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def read_resident_memory() -> int:
    """Resident memory of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def play_soak(count: int) -> dict[str, Any]:
    """Play and return the measurements."""
    env = Soak()
    engine = build_engine(env)
    ends: Counter[str] = Counter()
    memory: list[int] = []
    untrimmed: list[int] = []
    started, done = time.perf_counter(), 0
    async for episode in play_rounds(env, engine, count, ends):
        done += 1
        ends[episode.end_reason] += 1
        if done % SAMPLE == 0 or done == count:
            gc.collect()
            untrimmed.append(read_resident_memory())
            return_free_memory()
            memory.append(read_resident_memory())
            line = (
                done,
                memory[-1] / 2**20,
                threading.active_count(),
                engine.cache.num_used,
                time.perf_counter() - started,
            )
            print("{:7d} episodes  {:8.1f} MB  {:3d} threads  {:3d} slots held  {:6.0f} s".format(*line), flush=True)
    await asyncio.sleep(2 * HANG_SECONDS)  # the threads that hang, and the engine, end by themselves
    left = {
        "slots": engine.cache.num_used,
        "conversations": len(engine.sequences),
        "tasks": len(asyncio.all_tasks()) - 1,
        "threads": max(0, sum(thread.name == "viewbox" for thread in threading.enumerate()) - concurrency.MAX_RUNNING),
    }
    growth = memory[-1] / memory[0] - 1
    return {
        "episodes": done,
        "ends": dict(ends),
        "seconds": time.perf_counter() - started,
        "resident_mb": [round(one / 2**20, 1) for one in memory],
        "growth": growth,
        "untrimmed_mb": [round(one / 2**20, 1) for one in untrimmed],
        "untrimmed_growth": untrimmed[-1] / untrimmed[0] - 1,
        "bar": BAR,
        "left": left,
        "images_through_the_tower": engine.vision_cache.num_encoded,
        "passed": growth <= BAR and not any(left.values()),
    }


def main() -> None:
    torch.set_num_threads(1)
    logging.disable(logging.ERROR)  # the faults are intended
    print(json.dumps(asyncio.run(play_soak(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000))))


if __name__ == "__main__":
    main()
