"""Time and memory of chains of 30 tool calls on a 4096x4096 16-bit image, with views of at most 1024x1024.

    python benchmarks/views.py [CHAINS] [REPEATS]        (default: 6 5; a table, then one JSON object as the last line)

The calls of a chain are drawn by seed from all tools that change the view. Bars: no call over 150 ms (median of the
repeats, one thread); at most 100 MB of memory beyond the loaded image (peak of a fresh process for each chain, from
/proc, so Linux only); statistics of the whole image within 400 ms.
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

from viewbox.envs import tools
from viewbox.images.view import View

SIDE, BUDGET, LENGTH = 4096, 1024 * 1024, 30
CALL_MS, MEMORY_MB, STATISTICS_MS = 150, 100, 400

Step = tuple[str, Mapping[str, Any]]
Draw = Callable[[random.Random], Mapping[str, Any]]


def _box(draw: random.Random) -> list[float]:
    width, height = draw.uniform(0.4, 0.9), draw.uniform(0.4, 0.9)
    x, y = draw.uniform(0, 1 - width), draw.uniform(0, 1 - height)
    return [x, y, x + width, y + height]


def _threshold(draw: random.Random) -> Mapping[str, Any]:
    lower = draw.randint(0, 150)
    return {"lower": lower, "upper": draw.randint(lower + 50, 255)}


def _morphology(draw: random.Random) -> Mapping[str, Any]:
    return {"operation": draw.choice(["erode", "dilate", "open", "close"]), "iterations": draw.randint(1, 5)}


DRAWS: Mapping[str, Draw] = {
    "zoom": lambda draw: {"factor": draw.uniform(0.5, 4), "center": [draw.random(), draw.random()]},
    "crop": lambda draw: {"box": _box(draw)},
    "rotate": lambda draw: {"clockwise": draw.random() < 0.5},
    "flip_horizontal": lambda draw: {},
    "flip_vertical": lambda draw: {},
    "adjust_contrast": lambda draw: {"factor": draw.uniform(0.5, 3)},
    "adjust_brightness": lambda draw: {"factor": draw.uniform(0.5, 2)},
    "adjust_sharpness": lambda draw: {"factor": draw.uniform(0.1, 3)},
    "threshold": _threshold,
    "window_level": lambda draw: {"center": draw.uniform(500, 30000), "width": draw.uniform(1000, 30000)},
    "equalize_histogram": lambda draw: {},
    "adaptive_equalize": lambda draw: {"clip_limit": draw.uniform(1, 4), "tile_size": draw.randint(2, 32)},
    "detect_edges": lambda draw: {"method": draw.choice(["sobel", "laplacian"])},
    "denoise": lambda draw: {"sigma": draw.uniform(0.5, 5)},
    "morphological": _morphology,
    "symmetry_diff": lambda draw: {},
    "invert": lambda draw: {},
    "undo": lambda draw: {},
    "reset": lambda draw: {},
}


def picture(side: int = SIDE, seed: int = 0) -> np.ndarray:
    """uint16 (side, side): smooth shapes and noise over some 12 bits, as a radiograph has."""
    draw = np.random.default_rng(seed)
    smooth = cv2.resize(draw.uniform(500, 30000, (12, 12)).astype(np.float32), (side, side))
    return np.clip(smooth + draw.normal(0, 300, (side, side)), 0, 65535).astype(np.uint16)


def chain(view: View, seed: int, length: int = LENGTH) -> list[Step]:
    """`length` calls that all succeed in order, beginning at `view`; a call that fails is drawn again."""
    draw = random.Random(seed)
    back = set() if seed % 2 else {"reset", "undo"}  # every second chain never goes back, to collect many operations
    names = [name for name in DRAWS if name in tools.TOOLS and name not in back]
    steps: list[Step] = []
    for _ in range(20 * length):
        name = draw.choice(names)
        arguments = DRAWS[name](draw)
        after, result = tools.call_stateful(name, view, arguments)
        if result.error is None and after is not view:
            view = after
            steps.append((name, arguments))
        if len(steps) == length:
            return steps
    raise RuntimeError(f"chain {seed}: only {len(steps)} of {length} calls succeeded; the last error: {result.error}")


def play(view: View, steps: list[Step]) -> list[float]:
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
    cv2.GaussianBlur(np.zeros((64, 64), np.uint16), (0, 0), 1)  # one-time setup of OpenCV does not count
    pixels = np.load(file)
    before = read_memory("VmRSS")
    view = View.of(pixels, max_pixels=BUDGET)
    view.render()
    play(view, steps)
    return read_memory("VmHWM") - before


def peak(file: Path, steps: list[Step]) -> float:
    """Runs `measure_peak` in its own process."""
    command = [sys.executable, __file__, "--remember", str(file), json.dumps(steps)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def time_chain(view: View, steps: list[Step], repeats: int) -> list[float]:
    """Milliseconds of each call: medians over `repeats` plays of the chain."""
    return [statistics.median(column) for column in zip(*(play(view, steps) for _ in range(repeats)), strict=True)]


def main() -> None:
    if sys.argv[1:2] == ["--remember"]:
        print(measure_peak(sys.argv[2], json.loads(sys.argv[3])))
        return
    chains, repeats = ([int(given) for given in sys.argv[1:]] + [6, 5][len(sys.argv) - 1 :])[:2]
    cv2.setNumThreads(1)
    pixels = picture()
    view = View.of(pixels, max_pixels=BUDGET)
    view.render()
    calls: list[dict[str, Any]] = []
    extra = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "image.npy"
        np.save(file, pixels)
        for seed in range(chains):
            steps = chain(view, seed)
            spent = time_chain(view, steps, repeats)
            extra.append(peak(file, steps))
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
        exact = statistics.median(play(view, [("get_intensity_stats", {})])[0] for _ in range(repeats))
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
