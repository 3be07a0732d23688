"""Times the store: writing, reading, and scoring saved episodes again, with their peak memory.

    python benchmarks/store.py [--quick]

10,000 and 100,000 episodes (`--quick`: 2,000) of 5 replies and 6 images over 5,000 distinct ones, with and without
token arrays of 600 tokens. Each measurement is a process of its own: its wall and processor seconds are those of the
work, without the start of the interpreter, and its peak memory is that of the largest process. The last line is one
JSON object.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from viewbox.images.ref import ImageRef
from viewbox.records import Episode, EpisodeTokens, RunConfig, Scores, Task, ToolCall, ToolResult, Turn
from viewbox.rollouts.scoring.rescore import score_run
from viewbox.rollouts.store.layout import LINES
from viewbox.rollouts.store.reader import load
from viewbox.rollouts.store.writer import EpisodeWriter

COUNTS, QUICK = (10_000, 100_000), (2_000,)
DISTINCT = 5_000  # images
GROUP = 8  # episodes of a task
REPLIES = 5
PROMPT, COMPLETION = 400, 200  # tokens
BAR_SPEED, BAR_MEMORY = 15_000, 400  # episodes a second, read and scored; MB
CONFIG = RunConfig("Qwen/Qwen3-VL-4B-Instruct", max_turns=6, versions={"viewbox": "0.1.0", "torch": "2.9.0"})
TOKENS = EpisodeTokens(
    tuple(range(150_000, 150_000 + PROMPT)),
    tuple(range(COMPLETION)),
    (1, 0) * (COMPLETION // 2),
    tuple(-0.37 * (n % 7) for n in range(COMPLETION)),
)
REWARD = """
type: combined
components:
  label: {type: exact_match, field: label, weight: 0.2}
  box: {type: iou, field: bbox, weight: 0.8}
"""


def make_images() -> list[ImageRef]:
    """`DISTINCT` pictures of 16 x 16."""
    pixels = np.zeros((16, 16), np.uint8)
    refs = []
    for number in range(DISTINCT):
        pixels[0, :2] = number // 256, number % 256
        refs.append(ImageRef.of(pixels))
    return refs


def make_episode(number: int, images: list[ImageRef], with_tokens: bool) -> Episode:
    """Two images of a task, four looks with a picture each, and an answer: five replies."""
    task, sample = divmod(number, GROUP)
    own = tuple(images[(2 * task + n) % DISTINCT] for n in range(2))
    seen = tuple(images[(REPLIES * number + n) % DISTINCT] for n in range(REPLIES - 1))
    turns = [Turn("user", "Which digit is in the box? Look closely before you answer, and give the box.", images=own)]
    for step, ref in enumerate(seen):
        call = ToolCall(f"call_{step}", "zoom", {"bbox": [0.1 * step, 0.2, 0.6, 0.7], "image": step % 2})
        text = f"I cannot tell from here, the {step}th stroke is thin. Let me look at the upper left part again."
        facts = {"factor": 2.0, "size": [16, 16]}
        result = ToolResult("zoom", "zoomed in", image=ref, facts=facts, call_id=call.id, arguments=call.arguments)
        turns += [Turn("assistant", text, (call,)), Turn("tool_result", tool_results=(result,))]
    box = (0.2, 0.3, 0.2 + (sample + 1) / 16, 0.6)
    turns.append(Turn("assistant", json.dumps({"label": "seven", "bbox": box, "confidence": 0.9})))
    return Episode(
        Task(f"t{task}", own, {"question": "which digit?"}, {"label": "seven", "bbox": (0.2, 0.3, 0.7, 0.6)}),
        tuple(turns),
        {"label": "seven" if sample % 3 else "two", "bbox": box},
        terminated=True,
        scores=Scores(0.5, {"label": 1.0, "box": 0.375}),
        run_config=replace(CONFIG, seed=number),
        total_tokens=PROMPT + COMPLETION,
        environment="digits",
        system_prompt="You look at pictures of digits. " * 20,
        info={"index": task, "sample": sample, "step": number // 100, "malformed": 0},
        tokens=replace(TOKENS, images=(*own, *seen), prompt_images=2) if with_tokens else None,
    )


def write(folder: Path, count: int, with_tokens: bool) -> None:
    """Append `count` episodes to a new folder."""
    images = make_images()
    with EpisodeWriter(folder) as writer:
        for number in range(count):
            writer.append(make_episode(number, images, with_tokens))


def read(folder: Path, tokens: bool) -> None:
    """Read every episode."""
    for _ in load(folder, tokens=tokens):
        pass


def score(folder: Path) -> None:
    """Score every episode again, and write the scores as a column."""
    score_run(folder, reward=folder.parent / "reward.yaml", name="again", replace=True)


def measure(work: str, folder: Path, count: int, with_tokens: bool) -> dict[str, float]:
    """Run one piece of work in this process; seconds, episodes a second, and MB."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    started, busy = time.perf_counter(), sum(os.times()[:4])
    if work == "write":
        write(folder, count, with_tokens)
    elif work == "read":
        read(folder, with_tokens)
    else:
        score(folder)
    wall, cpu = time.perf_counter() - started, sum(os.times()[:4]) - busy
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    peak = max(one.ru_maxrss for one in usage) / 1024
    return {"wall": round(wall, 2), "cpu": round(cpu, 2), "per_second": round(count / wall), "peak_mb": round(peak)}


def run_measurement(work: str, folder: Path, count: int, with_tokens: bool) -> dict[str, float]:
    """`measure` in a process of its own."""
    arguments = [sys.executable, __file__, "--work", work, str(folder), str(count), str(int(with_tokens))]
    done = subprocess.run(arguments, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="2,000 episodes only")
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work, folder, count, with_tokens = given.work
        print(json.dumps(measure(work, Path(folder), int(count), with_tokens == "1")))
        return
    found = []
    with tempfile.TemporaryDirectory() as temporary:
        (Path(temporary) / "reward.yaml").write_text(REWARD)
        for count in QUICK if given.quick else COUNTS:
            for with_tokens in (False, True):
                folder = Path(temporary) / f"{count}-{with_tokens}"
                case: dict[str, object] = {"episodes": count, "tokens": with_tokens}
                for work in ("write", "read", "score"):
                    case[work] = run_measurement(work, folder, count, with_tokens)
                    print(f"{count:>7,} episodes {'with' if with_tokens else 'without'} tokens, {work}: {case[work]}")
                case["bytes_per_line"] = os.path.getsize(folder / LINES) // count
                found.append(case)
    print(json.dumps({"cores": os.cpu_count(), "bar": {"per_second": BAR_SPEED, "mb": BAR_MEMORY}, "cases": found}))


if __name__ == "__main__":
    main()
