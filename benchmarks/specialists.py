"""Measures specialist tools: batching of concurrent episodes, and the cost of a kept result.

    python benchmarks/specialists.py [MODEL [ROUNDS [SIDE]]]

MODEL is a classifier's folder or `package:NAME` (default: a tiny ViT with random weights), ROUNDS calls are made by
each of 16 episodes (default 20), on pictures of SIDE x SIDE pixels, none of them twice (default 224). The last line is
a JSON object.

(a) 16 episodes call at the same time, against the same calls one by one (a batch of 1, nothing is waited for). Bar: at
    least 4 times the calls a second, and probabilities that are equal to 1e-5.
(b) A call whose result is kept. Bar: a median below 1 ms, the hash of the picture included.
"""

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from typing import Any

from tests.support.served_models import forget_servers

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from viewbox.images.view import View
from viewbox.tools.specialists import build_specialists
from viewbox.tools.specialists.serving import ModelRequest, ModelServer

EPISODES = 16
SPEEDUP, TOLERANCE, HIT_MS = 4.0, 1e-5, 1.0  # the bars
SHARES = 3  # times that each side is measured, in turn


def build_tiny_vit(folder: str) -> str:
    """Return a ViT of 32 x 32 pixels with random weights, 14 labels, saved in a folder."""
    import torch
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    torch.manual_seed(0)
    names = {number: f"finding_{number}" for number in range(14)}
    config = ViTConfig(
        image_size=32,
        patch_size=8,
        hidden_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=128,
        id2label=names,
        label2id={name: number for number, name in names.items()},
        problem_type="multi_label_classification",
    )
    ViTForImageClassification(config).save_pretrained(folder)
    ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    return folder


def make_tool(model: str, **settings: Any) -> Any:
    """Return the function of a new classification tool; its model is loaded."""
    forget_servers()
    spec = {"kind": "classification", "model": model, "device": "cpu", "top_k": None, **settings}
    (tool,) = build_specialists({"classify": spec})["classify"].build_tools("classify")
    tool.function.prepare()
    return tool.function


def draw_views(rounds: int, side: int) -> list[list[View]]:
    """Return a view for each round and episode, all different."""
    rng = np.random.default_rng(0)
    shape = (rounds, EPISODES, side, side)
    return [[View.of(pixels) for pixels in row] for row in rng.integers(0, 256, shape, np.uint8)]


async def ask_together(function: Any, views: list[list[View]]) -> list[Any]:
    """Return every episode calls, reads its result, and calls again."""

    async def play(episode: int) -> list[Any]:
        return [await function.ask(row[episode]) for row in views]

    columns = await asyncio.gather(*(play(episode) for episode in range(EPISODES)))
    return [columns[episode][place] for place in range(len(views)) for episode in range(EPISODES)]


async def ask_one_by_one(function: Any, views: list[list[View]]) -> list[Any]:
    return [await function.ask(view) for row in views for view in row]


async def time_hits(server: ModelServer, views: list[list[View]]) -> list[float]:
    """Milliseconds of calls whose results are kept: the view's reference with its hash, and the look-up."""
    times = []
    for row in views:
        for view in row:
            start = time.perf_counter()
            await server.ask(ModelRequest(view.to_ref()))
            times.append(1000 * (time.perf_counter() - start))
    return times


def time_plain(server: ModelServer, views: list[list[View]]) -> float:
    """Call a second of the model alone, one picture after another, in this thread."""
    pictures = [view.to_ref() for row in views for view in row]
    start = time.perf_counter()
    for picture in pictures:
        server.runner.run([ModelRequest(picture)])
    return len(pictures) / (time.perf_counter() - start)


def flatten(result: Any) -> list[float]:
    return [p for head in sorted(result) for _, p in sorted(result[head].items())]


def main(model: str | None = None, rounds: int = 20, side: int = 224) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        model = model or build_tiny_vit(folder)
        views = draw_views(rounds, side)
        calls, rates = rounds * EPISODES, {"together": [], "one_by_one": []}
        difference, batches = 0.0, []
        for _ in range(SHARES):
            found = {}
            for name, ask, settings in (
                ("one_by_one", ask_one_by_one, {"max_batch": 1, "wait": 0.0}),
                ("together", ask_together, {"max_batch": EPISODES}),
            ):
                function = make_tool(model, **settings)
                asyncio.run(ask(function, draw_views(1, side + 1)))  # the first batch is slower
                start = time.perf_counter()
                found[name] = asyncio.run(ask(function, views))
                rates[name].append(calls / (time.perf_counter() - start))
            batches = function.server.batches
            pairs = zip(found["one_by_one"], found["together"], strict=True)
            difference = max(difference, *(float(np.abs(np.subtract(flatten(a), flatten(b))).max()) for a, b in pairs))
        hits = asyncio.run(time_hits(function.server, views))
        alone = time_plain(function.server, draw_views(rounds, side))
    speedup = statistics.median(rates["together"]) / statistics.median(rates["one_by_one"])
    report = {
        "calls": calls,
        "calls_per_second": {name: round(statistics.median(values), 1) for name, values in rates.items()},
        "model_alone": round(alone, 1),
        "speedup": round(speedup, 2),
        "mean_batch": round(statistics.mean(batches), 1),
        "largest_difference": difference,
        "hit_ms": round(statistics.median(hits), 3),
        "bars": {
            "speedup": speedup >= SPEEDUP,
            "difference": difference <= TOLERANCE,
            "hit": statistics.median(hits) < HIT_MS,
        },
    }
    print(f"the model alone: {report['model_alone']} calls/s")
    print(f"one by one: {report['calls_per_second']['one_by_one']} calls/s")
    print(
        f"{EPISODES} episodes: {report['calls_per_second']['together']} calls/s, {report['mean_batch']} calls a batch"
    )
    print(f"speed-up {report['speedup']} (bar {SPEEDUP}), largest difference {difference:.1e} (bar {TOLERANCE})")
    print(f"a kept result: {report['hit_ms']} ms (bar {HIT_MS})")
    print(json.dumps(report))
    return report


if __name__ == "__main__":
    given = sys.argv[1:]
    main(*(given[:1] or [None]), *map(int, given[1:]))
