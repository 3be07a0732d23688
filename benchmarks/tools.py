"""Every visual tool beside gaze-vlm's tool of that name: the same picture, the same arguments, timed in turn.

    python benchmarks/tools.py [REPEATS [TOOL ...]]        (default: 9 and all; the last line is one JSON object)

(a) at equal output size: the view budget raised to the picture's 2048x2048; up to the pixels of the result in memory,
    so without encoding (and, for viewbox, without the hash that names them).
(b) as each is used: the default budget, and all that is done until there is a data URL: JPEG of the whole picture for
    gaze-vlm (kept between resets, as it does), a lossless PNG of the view for viewbox.

gaze-vlm 0.1.1 and what it lacks to be imported are installed into build/gaze by the first run, without touching the
environment. Each side is called as it calls itself: a tool by name from an event loop, in a worker thread, on an image
in memory; what a call changes is put back outside the clock. Everything runs on one thread.
"""

import asyncio
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import cv2
import numpy as np
from PIL import Image

from viewbox.envs import tools
from viewbox.images.view import View

SIDE = 2048
BUDGET = 512 * 512  # the default of an environment
BESIDE = Path(__file__).parents[1] / "build" / "gaze"
REQUIREMENTS = {  # what gaze-vlm needs to be imported, by module
    "gaze": "gaze-vlm==0.1.1",
    "beartype": "beartype>=0.22.9,<1",
    "defusedxml": "defusedxml>=0.7,<1",
    "loguru": "loguru>=0.7,<1",
    "minijinja": "minijinja>=2.20,<3",
    "aiohttp": "aiohttp>=3.13.4,<4",
    "openai": "openai>=2.40,<3",
}

Arguments = Mapping[str, Any]
Step = tuple[str, Arguments]
MIDDLE = [0.25, 0.25, 0.75, 0.75]
ENDS = {"point1": [0.1, 0.2], "point2": [0.8, 0.9]}


@dataclass(frozen=True)
class Row:
    """One line of the tables. `before` is what both sides do first, outside the clock.

    Where viewbox shows a window of the picture at the budget and gaze-vlm a larger picture (zoom), `crop` is cut out
    on gaze-vlm's side first in table (a), so that both make as many pixels of the same part.
    """

    tool: str
    arguments: Arguments = field(default_factory=dict)
    note: str = ""
    before: Step | None = None
    crop: tuple[float, ...] | None = None
    bar: float = 1.0  # how many times as fast table (a) has to be at least

    @property
    def name(self) -> str:
        return f"{self.tool} {self.note}".strip()


COPY = 1 / 1.5  # a plain copy of pixels cannot be made faster: at most 1.5 times as slow

ROWS = (
    Row("zoom", {"factor": 2.0}, crop=(0.25, 0.25, 0.75, 0.75)),
    Row("crop", {"box": MIDDLE}, bar=COPY),
    Row("rotate", {"clockwise": True}, bar=COPY),
    Row("flip_horizontal", bar=COPY),
    Row("flip_vertical", bar=COPY),
    Row("adjust_contrast", {"factor": 1.5}),
    Row("adjust_brightness", {"factor": 1.3}),
    Row("adjust_sharpness", {"factor": 2.0}),
    Row("threshold", {"lower": 40, "upper": 200}),
    Row("window_level", {"preset": "brain"}),
    Row("equalize_histogram"),
    Row("adaptive_equalize", {"clip_limit": 2.0, "tile_size": 8}, bar=4.0),
    Row("detect_edges", {"method": "sobel"}, "sobel", bar=4.0),
    Row("detect_edges", {"method": "laplacian"}, "laplacian"),
    Row("denoise", {"sigma": 2.0}),
    Row("morphological", {"operation": "erode"}, "erode", bar=4.0),
    Row("morphological", {"operation": "open", "iterations": 5}, "open x5", bar=4.0),
    Row("symmetry_diff"),
    Row("invert"),
    Row("get_intensity_stats"),
    Row("get_intensity_stats", {"box": MIDDLE}, "of a box"),
    Row("intensity_profile", ENDS),
    Row("measure", ENDS),
    Row("annotate_region", {"box": MIDDLE, "color": "red", "label": "here"}),
    Row("show_grid", {"divisions": 4}),
    Row("reset", before=("rotate", {"clockwise": True}), bar=COPY),
)
ONLY_OURS = frozenset({"undo", "open_image", "select_slice", "list_slices"})  # gaze-vlm has no such tool


def picture(side: int = SIDE, seed: int = 0) -> Image.Image:
    """RGB: smooth shapes, texture that weakens toward fine detail as in photographs, and a sensor's noise."""
    draw = np.random.default_rng(seed)

    def spread(cells: int, deep: int) -> np.ndarray:
        coarse = draw.normal(0, 1, (cells, cells, deep)).astype(np.float32)
        return cv2.resize(coarse, (side, side), interpolation=cv2.INTER_CUBIC).reshape(side, side, deep)

    light = 120 + 45 * spread(4, 3)
    for octave in range(2, 10):
        light += 30 * 0.7 ** (octave - 2) * spread(min(side, 4 * 2**octave // 2), 1)
    light += draw.normal(0, 4, (side, side, 1)) + draw.normal(0, 2, (side, side, 3))
    return Image.fromarray(np.clip(np.rint(light), 0, 255).astype(np.uint8))


class Ours:
    """viewbox: an overview of the picture that has been shown, as when a model calls."""

    def __init__(self, image: Image.Image, max_pixels: int, encoded: bool) -> None:
        self.overview = View.of(image, max_pixels=max_pixels)
        self.encoded = encoded
        self.view = self.overview

    def prepare(self, row: Row) -> None:
        self.view = self.overview = replace(self.overview)  # nothing is kept from the last call
        self.view.get_values()  # what a view that has been shown keeps
        if row.before is not None:
            self.view, _ = tools.call_stateful(row.before[0], self.view, row.before[1])
        self.view.get_values()  # what a view that has been shown keeps

    async def run(self, row: Row) -> None:
        await asyncio.to_thread(self._encoded if self.encoded else self._plain, row)

    def _plain(self, row: Row) -> None:
        """What `tools.call` does up to the pixels, before they are named and encoded."""
        tool = tools.get_tool(row.tool)
        outcome = tool.function(self.view, **tool.check_arguments(row.arguments, "unit", self.view.size))
        if outcome.view is not None:
            outcome.view.to_uint8()

    def _encoded(self, row: Row) -> None:
        _, result = tools.call_stateful(row.tool, self.view, row.arguments)
        assert result.error is None, result.error
        assert result.text
        result.to_data_url()


class Gaze:
    """gaze-vlm: its registry with its visual tools, holding the picture; without its encoder for table (a)."""

    def __init__(self, image: Image.Image, encoded: bool) -> None:
        from gaze.tools import visual
        from gaze.tools.registry import EncodedImage, ToolRegistry, encode_image

        nothing = EncodedImage("none", "image/jpeg")
        visual.encode_image = encode_image if encoded else lambda image: nothing
        self.encoded = encoded
        self.registry = ToolRegistry(tools=visual.create_visual_tools())
        self.images = self.registry.get_image_manager()
        self.images.set_preloaded_image(image, BESIDE / "picture.png")
        self.images.original_encoding = visual.encode_image(image)  # reset reuses it

    def prepare(self, row: Row) -> None:
        self.images.reset_to_original()
        if row.before is not None:
            asyncio.run(self.registry.execute(row.before[0], **row.before[1]))
        if row.crop is not None and not self.encoded:
            left, top, right, bottom = (round(value * SIDE) for value in row.crop)
            self.images.transform_image(lambda image: image.crop((left, top, right, bottom)))

    async def run(self, row: Row) -> None:
        result = await self.registry.execute(row.tool, **row.arguments)
        result.get_image_data_url()


def install() -> None:
    """gaze-vlm beside this environment, whose own packages are found first."""
    sys.path.append(str(BESIDE))
    missing = [wanted for module, wanted in REQUIREMENTS.items() if importlib.util.find_spec(module) is None]
    if missing:
        print(f"installing {', '.join(missing)} into {BESIDE}", flush=True)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(BESIDE), *missing]
        subprocess.run(command, check=True)
        importlib.invalidate_caches()
    from loguru import logger

    logger.remove()


def timed(side: "Ours | Gaze", row: Row, runner: asyncio.Runner) -> float:
    """Milliseconds of one call."""
    side.prepare(row)

    async def call() -> float:
        started = time.perf_counter()
        await side.run(row)
        return time.perf_counter() - started

    return 1000 * runner.run(call())


def table(image: Image.Image, rows: list[Row], encoded: bool, repeats: int) -> list[dict[str, Any]]:
    """The rows of one table: medians of calls that take turns, the first of each uncounted."""
    ours, gaze = Ours(image, BUDGET if encoded else SIDE * SIDE, encoded), Gaze(image, encoded)
    found = []
    with asyncio.Runner() as runner:
        for row in rows:
            turns = [(timed(gaze, row, runner), timed(ours, row, runner)) for _ in range(repeats + 1)][1:]
            theirs_ms, ours_ms = (statistics.median(column) for column in zip(*turns, strict=True))
            found.append({"name": row.name, "gaze_ms": theirs_ms, "ours_ms": ours_ms, "ratio": theirs_ms / ours_ms})
    return found


def show(title: str, found: list[dict[str, Any]], missed: Callable[[dict[str, Any]], bool]) -> None:
    print(f"\n{title}\n{'tool':<28}{'gaze ms':>10}{'ours ms':>10}{'ratio':>9}")
    for one in found:
        mark = "   below its bar" if missed(one) else ""
        print(f"{one['name']:<28}{one['gaze_ms']:>10.2f}{one['ours_ms']:>10.2f}{one['ratio']:>8.1f}x{mark}")
    print(f"{'median':<48}{statistics.median(one['ratio'] for one in found):>8.1f}x", flush=True)


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    install()
    cv2.setNumThreads(1)
    image = picture()
    wanted = [row for row in ROWS if row.tool in (sys.argv[2:] or tools.TOOLS)]
    rows = [row for row in wanted if row.tool in tools.TOOLS]
    bars = {row.name: row.bar for row in ROWS}
    equal = table(image, rows, encoded=False, repeats=repeats)
    show(f"(a) equal output size, {SIDE}x{SIDE}, without encoding", equal, lambda one: one["ratio"] < bars[one["name"]])
    used = table(image, rows, encoded=True, repeats=repeats)
    show("(b) as each is used, encoded", used, lambda one: False)
    skipped = sorted({row.tool for row in ROWS} - set(tools.TOOLS))
    if skipped:
        print(f"not registered, skipped: {', '.join(skipped)}")
    medians = {"equal": equal, "used": used}
    print(
        json.dumps(
            {
                "repeats": repeats,
                "median_ratio": {
                    name: statistics.median(one["ratio"] for one in found) for name, found in medians.items()
                },
                "below_bar": [one["name"] for one in equal if one["ratio"] < bars[one["name"]]],
                "skipped": skipped,
                "equal": equal,
                "used": used,
            }
        )
    )


if __name__ == "__main__":
    main()
