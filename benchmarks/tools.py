"""Times every visual tool beside gaze-vlm's tool of the same name, on the same image with the same arguments.

    python benchmarks/tools.py [REPEATS [TOOL ...]]        (default: 9 and all; the last line is one JSON object)

(a) With equal output size: views may have the image's 2048x2048 pixels. The clock stops when the pixels of the result
    are in memory, before they are encoded (and, for viewbox, hashed).
(b) As each is used: views of the default size, encoded as a data URL. gaze-vlm encodes the whole image as JPEG (and
    caches it between resets), viewbox encodes the view as lossless PNG.

The first run installs gaze-vlm 0.1.1 and its missing dependencies into build/gaze; the Python environment does not
change. Both sides run a tool by name from an event loop, in a worker thread, on an image in memory. The state is
restored outside the clock. All computation uses one thread. `below_bar` in the last line names the rows of table (a)
whose ratio misses its bar.
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

from viewbox import tools
from viewbox.images.view import View

SIDE = 2048
BUDGET = 512 * 512  # the default of an environment
GAZE_FOLDER = Path(__file__).parents[1] / "build" / "gaze"
REQUIREMENTS = {  # packages that gaze-vlm imports, by module
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
    """One line of the tables. Both sides run `before` first, outside the clock.

    To zoom, viewbox shows a window of the picture at the budget, but gaze-vlm enlarges the picture. In table (a),
    gaze-vlm's picture is first cut to `crop`, so that both sides compute as many pixels of the same part.
    """

    tool: str
    arguments: Arguments = field(default_factory=dict)
    note: str = ""
    before: Step | None = None
    crop: tuple[float, ...] | None = None
    bar: float = 1.0  # smallest ratio in table (a) that passes

    @property
    def name(self) -> str:
        return f"{self.tool} {self.note}".strip()


COPY = 1 / 1.5  # the tool only copies pixels, which cannot be faster: at most 1.5 times as slow

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
# gaze-vlm has no such tools
ONLY_OURS = frozenset({"overlay_mask", "show_beside", "undo", "open_image", "select_slice", "list_slices"})


def make_image(side: int = SIDE, seed: int = 0) -> Image.Image:
    """RGB: smooth shapes, texture that weakens toward fine detail as in photographs, and a sensor's noise."""
    rng = np.random.default_rng(seed)

    def spread(cells: int, deep: int) -> np.ndarray:
        coarse = rng.normal(0, 1, (cells, cells, deep)).astype(np.float32)
        return cv2.resize(coarse, (side, side), interpolation=cv2.INTER_CUBIC).reshape(side, side, deep)

    light = 120 + 45 * spread(4, 3)
    for octave in range(2, 10):
        light += 30 * 0.7 ** (octave - 2) * spread(min(side, 4 * 2**octave // 2), 1)
    light += rng.normal(0, 4, (side, side, 1)) + rng.normal(0, 2, (side, side, 3))
    return Image.fromarray(np.clip(np.rint(light), 0, 255).astype(np.uint8))


class ViewboxSide:
    """viewbox, with an overview of the image that was already shown, as in an episode."""

    def __init__(self, image: Image.Image, max_pixels: int, encoded: bool) -> None:
        self.overview = View.of(image, max_pixels=max_pixels)
        self.encoded = encoded
        self.view = self.overview

    def prepare(self, row: Row) -> None:
        self.view = self.overview = replace(self.overview)  # drops the caches of the last call
        self.view.get_values()  # a view that was shown caches them
        if row.before is not None:
            self.view, _ = tools.call_stateful(row.before[0], self.view, row.before[1])
        self.view.get_values()  # a view that was shown caches them

    async def run(self, row: Row) -> None:
        await asyncio.to_thread(self._run_encoded if self.encoded else self._run_unencoded, row)

    def _run_unencoded(self, row: Row) -> None:
        """What `tools.call_stateful` does up to the pixels, before they are hashed and encoded."""
        tool = tools.get_tool(row.tool)
        outcome = tool.function(self.view, **tool.check_arguments(row.arguments, "unit", self.view.size))
        if outcome.view is not None:
            outcome.view.to_uint8()

    def _run_encoded(self, row: Row) -> None:
        _, result = tools.call_stateful(row.tool, self.view, row.arguments)
        assert result.error is None, result.error
        assert result.text
        result.to_data_url()


class GazeSide:
    """gaze-vlm: its registry of visual tools with the image; table (a) runs without its encoder."""

    def __init__(self, image: Image.Image, encoded: bool) -> None:
        from gaze.tools import visual
        from gaze.tools.registry import EncodedImage, ToolRegistry, encode_image

        nothing = EncodedImage("none", "image/jpeg")
        visual.encode_image = encode_image if encoded else lambda image: nothing
        self.encoded = encoded
        self.registry = ToolRegistry(tools=visual.create_visual_tools())
        self.images = self.registry.get_image_manager()
        self.images.set_preloaded_image(image, GAZE_FOLDER / "picture.png")
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


def install_gaze() -> None:
    """Install gaze-vlm into build/gaze; packages of the Python environment take precedence."""
    sys.path.append(str(GAZE_FOLDER))
    missing = [wanted for module, wanted in REQUIREMENTS.items() if importlib.util.find_spec(module) is None]
    if missing:
        print(f"installing {', '.join(missing)} into {GAZE_FOLDER}", flush=True)
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--target",
            str(GAZE_FOLDER),
            *missing,
        ]
        subprocess.run(command, check=True)
        importlib.invalidate_caches()
    from loguru import logger

    logger.remove()


def time_call(side: "ViewboxSide | GazeSide", row: Row, runner: asyncio.Runner) -> float:
    """Milliseconds of one call."""
    side.prepare(row)

    async def call() -> float:
        started = time.perf_counter()
        await side.run(row)
        return time.perf_counter() - started

    return 1000 * runner.run(call())


def measure_table(image: Image.Image, rows: list[Row], encoded: bool, repeats: int) -> list[dict[str, Any]]:
    """Return the rows of one table: medians of alternating calls; the first call of each side does not count."""
    ours, gaze = ViewboxSide(image, BUDGET if encoded else SIDE * SIDE, encoded), GazeSide(image, encoded)
    found = []
    with asyncio.Runner() as runner:
        for row in rows:
            turns = [(time_call(gaze, row, runner), time_call(ours, row, runner)) for _ in range(repeats + 1)][1:]
            theirs_ms, ours_ms = (statistics.median(column) for column in zip(*turns, strict=True))
            found.append({"name": row.name, "gaze_ms": theirs_ms, "ours_ms": ours_ms, "ratio": theirs_ms / ours_ms})
    return found


def print_table(title: str, found: list[dict[str, Any]], missed: Callable[[dict[str, Any]], bool]) -> None:
    print(f"\n{title}\n{'tool':<28}{'gaze ms':>10}{'ours ms':>10}{'ratio':>9}")
    for item in found:
        mark = "   below its bar" if missed(item) else ""
        print(f"{item['name']:<28}{item['gaze_ms']:>10.2f}{item['ours_ms']:>10.2f}{item['ratio']:>8.1f}x{mark}")
    print(f"{'median':<48}{statistics.median(item['ratio'] for item in found):>8.1f}x", flush=True)


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    install_gaze()
    cv2.setNumThreads(1)
    image = make_image()
    wanted = [row for row in ROWS if row.tool in (sys.argv[2:] or tools.TOOLS)]
    rows = [row for row in wanted if row.tool in tools.TOOLS]
    bars = {row.name: row.bar for row in ROWS}
    equal = measure_table(image, rows, encoded=False, repeats=repeats)
    print_table(
        f"(a) equal output size, {SIDE}x{SIDE}, without encoding",
        equal,
        lambda item: item["ratio"] < bars[item["name"]],
    )
    used = measure_table(image, rows, encoded=True, repeats=repeats)
    print_table("(b) as each is used, encoded", used, lambda item: False)
    skipped = sorted({row.tool for row in ROWS} - set(tools.TOOLS))
    if skipped:
        print(f"not registered, skipped: {', '.join(skipped)}")
    medians = {"equal": equal, "used": used}
    print(
        json.dumps(
            {
                "repeats": repeats,
                "median_ratio": {
                    name: statistics.median(item["ratio"] for item in found) for name, found in medians.items()
                },
                "below_bar": [item["name"] for item in equal if item["ratio"] < bars[item["name"]]],
                "skipped": skipped,
                "equal": equal,
                "used": used,
            }
        )
    )


if __name__ == "__main__":
    main()
