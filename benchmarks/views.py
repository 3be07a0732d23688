"""Time and memory of chains of 30 tool calls on a 4096x4096 16-bit image, with views of at most 1024x1024.

    python benchmarks/views.py [CHAINS] [REPEATS]        (default: 6 5; a table, then one JSON object as the last line)

The calls of a chain are random, by its seed, from all tools that change the view. Bars: no call takes more than 150 ms
(median of the repeats, one thread); at most 100 MB of memory beyond the loaded image (peak of a new process for each
chain, read from /proc, so Linux only); statistics of the whole image within 400 ms.
"""

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import cv2
import numpy as np

from viewbox import tools
from viewbox.images.view import View

SIDE, BUDGET, LENGTH = 4096, 1024 * 1024, 30
CALL_MS, MEMORY_MB, STATISTICS_MS = 150, 100, 400

Step = tuple[str, Mapping[str, Any]]
Draw = Callable[[random.Random], Mapping[str, Any]]


def _draw_box(rng: random.Random) -> list[float]:
    width, height = rng.uniform(0.4, 0.9), rng.uniform(0.4, 0.9)
    x, y = rng.uniform(0, 1 - width), rng.uniform(0, 1 - height)
    return [x, y, x + width, y + height]


def _draw_threshold(rng: random.Random) -> Mapping[str, Any]:
    lower = rng.randint(0, 150)
    return {"lower": lower, "upper": rng.randint(lower + 50, 255)}


def _draw_morphology(rng: random.Random) -> Mapping[str, Any]:
    return {"operation": rng.choice(["erode", "dilate", "open", "close"]), "iterations": rng.randint(1, 5)}


DRAWS: Mapping[str, Draw] = {
    "zoom": lambda rng: {"factor": rng.uniform(0.5, 4), "center": [rng.random(), rng.random()]},
    "crop": lambda rng: {"box": _draw_box(rng)},
    "rotate": lambda rng: {"clockwise": rng.random() < 0.5},
    "flip_horizontal": lambda rng: {},
    "flip_vertical": lambda rng: {},
    "adjust_contrast": lambda rng: {"factor": rng.uniform(0.5, 3)},
    "adjust_brightness": lambda rng: {"factor": rng.uniform(0.5, 2)},
    "adjust_sharpness": lambda rng: {"factor": rng.uniform(0.1, 3)},
    "threshold": _draw_threshold,
    "window_level": lambda rng: {"center": rng.uniform(500, 30000), "width": rng.uniform(1000, 30000)},
    "equalize_histogram": lambda rng: {},
    "adaptive_equalize": lambda rng: {"clip_limit": rng.uniform(1, 4), "tile_size": rng.randint(2, 32)},
    "detect_edges": lambda rng: {"method": rng.choice(["sobel", "laplacian"])},
    "denoise": lambda rng: {"sigma": rng.uniform(0.5, 5)},
    "morphological": _draw_morphology,
    "symmetry_diff": lambda rng: {},
    "invert": lambda rng: {},
    "undo": lambda rng: {},
    "reset": lambda rng: {},
}


def make_image(side: int = SIDE, seed: int = 0) -> np.ndarray:
    """(side, side) uint16: smooth shapes and noise over about 12 bits, as in a radiograph."""
    rng = np.random.default_rng(seed)
    smooth = cv2.resize(rng.uniform(500, 30000, (12, 12)).astype(np.float32), (side, side))
    return np.clip(smooth + rng.normal(0, 300, (side, side)), 0, 65535).astype(np.uint16)


def draw_chain(view: View, seed: int, length: int = LENGTH) -> list[Step]:
    """`length` random calls that all succeed one after the other from `view`; a call that fails is drawn again."""
    rng = random.Random(seed)
    # every second chain never goes back, so that it collects many operations
    back = set() if seed % 2 else {"reset", "undo"}
    names = [name for name in DRAWS if name in tools.TOOLS and name not in back]
    steps: list[Step] = []
    for _ in range(20 * length):
        name = rng.choice(names)
        arguments = DRAWS[name](rng)
        after, result = tools.call_stateful(name, view, arguments)
        if result.error is None and after is not view:
            view = after
            steps.append((name, arguments))
        if len(steps) == length:
            return steps
    raise RuntimeError(f"chain {seed}: only {len(steps)} of {length} calls succeeded; the last error: {result.error}")


def time_calls(view: View, steps: list[Step]) -> list[float]:
    """Milliseconds of each call."""
    spent = []
    for name, arguments in steps:
        started = time.perf_counter()
        view, result = tools.call_stateful(name, view, arguments)
        spent.append(1000 * (time.perf_counter() - started))
        assert result.error is None, result.error
    return spent


def read_memory(key: str) -> float:
    """MB of this process: `VmRSS` is the current value, `VmHWM` the peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:")) / 1024


def measure_peak(file: str, steps: list[Step]) -> float:
    """Peak MB of a chain beyond the loaded image; call it in a fresh process."""
    cv2.setNumThreads(1)
    cv2.GaussianBlur(np.zeros((64, 64), np.uint16), (0, 0), 1)  # the setup of OpenCV does not count
    pixels = np.load(file)
    before = read_memory("VmRSS")
    view = View.of(pixels, max_pixels=BUDGET)
    view.render()
    time_calls(view, steps)
    return read_memory("VmHWM") - before


def measure_peak_in_process(file: Path, steps: list[Step]) -> float:
    """`measure_peak` in a new process."""
    command = [sys.executable, __file__, "--measure-peak", str(file), json.dumps(steps)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def time_chain(view: View, steps: list[Step], repeats: int) -> list[float]:
    """Milliseconds of each call: medians over `repeats` plays of the chain."""
    return [
        statistics.median(column) for column in zip(*(time_calls(view, steps) for _ in range(repeats)), strict=True)
    ]


def main() -> None:
    if sys.argv[1:2] == ["--measure-peak"]:
        print(measure_peak(sys.argv[2], json.loads(sys.argv[3])))
        return
    chains, repeats = ([int(given) for given in sys.argv[1:]] + [6, 5][len(sys.argv) - 1 :])[:2]
    cv2.setNumThreads(1)
    pixels = make_image()
    view = View.of(pixels, max_pixels=BUDGET)
    view.render()
    calls: list[dict[str, Any]] = []
    extra = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "image.npy"
        np.save(file, pixels)
        for seed in range(chains):
            steps = draw_chain(view, seed)
            spent = time_chain(view, steps, repeats)
            extra.append(measure_peak_in_process(file, steps))
            calls += [
                {"chain": seed, "call": i, "tool": name, "ms": ms}
                for i, ((name, _), ms) in enumerate(zip(steps, spent, strict=True), 1)
            ]
            slowest = max(range(LENGTH), key=spent.__getitem__)
            print(
                f"chain {seed}: median call {statistics.median(spent):6.1f} ms, slowest {spent[slowest]:6.1f} ms "
                f"({steps[slowest][0]}, call {slowest + 1}), {extra[-1]:6.1f} MB beyond the image",
                flush=True,
            )
    exact = None
    if "get_intensity_stats" in tools.TOOLS:
        exact = statistics.median(time_calls(view, [("get_intensity_stats", {})])[0] for _ in range(repeats))
    by_tool = {name: [call["ms"] for call in calls if call["tool"] == name] for name in DRAWS}
    print(f"\n{'tool':<22}{'calls':>6}{'median ms':>11}{'slowest ms':>12}")
    for name, spent in by_tool.items():
        if spent:
            print(f"{name:<22}{len(spent):>6}{statistics.median(spent):>11.1f}{max(spent):>12.1f}")
    worst = max(calls, key=lambda call: call["ms"])
    print(f"\nslowest call {worst['ms']:.1f} ms ({worst['tool']}; bar {CALL_MS})")
    print(f"peak beyond the image {max(extra):.1f} MB (bar {MEMORY_MB})")
    print(f"whole-image statistics {'not registered' if exact is None else f'{exact:.1f} ms'} (bar {STATISTICS_MS})")
    print(json.dumps({"slowest": worst, "extra_mb": extra, "statistics_ms": exact, "calls": calls}))


if __name__ == "__main__":
    main()
