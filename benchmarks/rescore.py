"""Times scoring 10,000 saved episodes again: by a function, as a command, and `json.loads` of the same lines.

    python benchmarks/rescore.py [EPISODES] [ROUNDS]        (default: 10000 3)

The episodes are real ones of `digits` with up to four looks, about 3 kB a line. Their token files are deleted first,
because scoring must not read them. The three take turns, so that other load slows all of them; processor seconds depend
less on it. The last line is one JSON object. Bar: `score` takes at most 12 times the processor time of `json.loads`,
each in its best round.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from viewbox.envs.digits import Digits, viewer
from viewbox.records import Episode, EpisodeTokens, RunConfig
from viewbox.rollouts.scoring.rescore import score_run
from viewbox.rollouts.store.layout import LINES, TOKENS
from viewbox.rollouts.store.writer import EpisodeWriter

DISTINCT = 50  # distinct episodes; the others are copies
GROUP = 8  # episodes per task
BAR = 12.0  # processor seconds of `score`, as a multiple of those of `json.loads`


def play_episode(env: Digits, number: int) -> Episode:
    """Return an episode with `number` % 5 looks before the answer; every third answer is wrong."""
    task = env.tasks[number]
    looks = [viewer.write_gold_look(env, task), viewer.write_zoom(env, 2, 0.5, 0.5)] * 2
    replies = iter([*looks[: number % 5], viewer.write_answer(env, task, None if number % 3 else "two")])
    return env.play(task, lambda messages: next(replies))


def build_run(folder: Path, count: int) -> None:
    """Write `count` episodes into `folder`, without their token files."""
    env = Digits(max_turns=6)
    played = [play_episode(env, number) for number in range(DISTINCT)]
    config = RunConfig("Qwen/Qwen3-VL-4B-Instruct", max_turns=6, versions={"viewbox": "0.1.0", "torch": "2.9.0"})
    tokens = EpisodeTokens(tuple(range(400)), tuple(range(200)), (1,) * 200, (-0.5,) * 200)
    with EpisodeWriter(folder) as writer:
        for number in range(count):
            one = played[number % DISTINCT]
            task = replace(one.task, id=f"digits-train-{number // GROUP}")
            writer.append(replace(one, task=task, run_config=replace(config, seed=number), tokens=tokens))
    for file in (folder / TOKENS).iterdir():
        file.unlink()


def parse_lines(folder: Path) -> None:
    """Read every line as plain JSON: the lower bound."""
    with open(folder / LINES, "rb") as file:
        for line in file:
            json.loads(line)


def run_command(folder: Path) -> None:
    """Run `viewbox score`; the start of the interpreter counts."""
    arguments = [sys.executable, "-m", "viewbox", "score", str(folder), "--name", "own", "--replace"]
    arguments += ["--format", "json"]
    subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL, cwd=folder)


def main() -> None:
    count, rounds = ([int(given) for given in sys.argv[1:]] + [10_000, 3][len(sys.argv) - 1 :])[:2]
    ways: dict[str, Callable[[Path], object]] = {
        "json.loads": parse_lines,
        "score": lambda folder: score_run(folder, name="own", replace=True),
        "command": run_command,
    }
    wall: dict[str, list[float]] = {name: [] for name in ways}
    processor: dict[str, list[float]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        build_run(folder, count)
        size = os.path.getsize(folder / LINES)
        for _ in range(rounds):
            for name, way in ways.items():
                started, busy = time.perf_counter(), sum(os.times()[:4])
                way(folder)
                wall[name].append(round(time.perf_counter() - started, 3))
                processor[name].append(round(sum(os.times()[:4]) - busy, 3))
    ratio = round(min(processor["score"]) / min(processor["json.loads"]), 2)
    found = {"wall_seconds": wall, "processor_seconds": processor, "ratio": ratio, "bar": BAR, "met": ratio <= BAR}
    print(json.dumps({"episodes": count, "bytes_per_line": size // count, **found}))


if __name__ == "__main__":
    main()
