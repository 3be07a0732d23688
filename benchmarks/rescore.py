"""Times scoring 10,000 saved episodes again, in this process and as a command, beside `json.loads` of the same lines.

    python benchmarks/rescore.py [EPISODES] [ROUNDS]        (default: 10000 3)

The episodes are real ones of `digits` with up to four looks, some 3 kB a line, with token files that must not be read:
they are deleted first. The three take turns, so that a busy machine slows all of them; processor seconds are reported
too, because they depend less on other load. The last line is one JSON object; the bar is 3 s for the command.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from viewbox.envs.digits import Digits, viewer
from viewbox.records import Episode, EpisodeTokens, RunConfig
from viewbox.rollouts.scoring.rescore import score_run
from viewbox.rollouts.store.reader import LINES, TOKENS
from viewbox.rollouts.store.writer import EpisodeWriter

PLAYED, GROUP = 50, 8  # distinct episodes (the others are copies); episodes per task


def play(env: Digits, number: int) -> Episode:
    """An episode with `number` % 5 looks before the answer; every third answer is wrong."""
    task = env.tasks[number]
    looks = [viewer.write_gold_look(env, task), viewer.write_zoom(env, 2, 0.5, 0.5)] * 2
    said = iter([*looks[: number % 5], viewer.write_answer(env, task, None if number % 3 else "two")])
    return env.play(task, lambda messages: next(said))


def build(folder: Path, count: int) -> None:
    """`count` episodes in `folder`, without their token files."""
    env = Digits(max_turns=6)
    played = [play(env, number) for number in range(PLAYED)]
    config = RunConfig("Qwen/Qwen3-VL-4B-Instruct", max_turns=6, versions={"viewbox": "0.1.0", "torch": "2.9.0"})
    tokens = EpisodeTokens(tuple(range(400)), tuple(range(200)), (1,) * 200, (-0.5,) * 200)
    with EpisodeWriter(folder) as writer:
        for number in range(count):
            one = played[number % PLAYED]
            task = replace(one.task, id=f"digits-train-{number // GROUP}")
            writer.append(replace(one, task=task, run_config=replace(config, seed=number), tokens=tokens))
    for file in (folder / TOKENS).iterdir():
        file.unlink()


def parse(folder: Path) -> None:
    """The floor: every line as plain JSON."""
    with open(folder / LINES, "rb") as file:
        for line in file:
            json.loads(line)


def command(folder: Path) -> None:
    """`viewbox score`, the start of the interpreter included."""
    arguments = [sys.executable, "-m", "viewbox.cli", "score", str(folder), "--replace", "--json"]
    subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL, cwd=folder)


def main() -> None:
    count, rounds = ([int(given) for given in sys.argv[1:]] + [10_000, 3][len(sys.argv) - 1 :])[:2]
    ways: dict[str, Callable[[Path], object]] = {
        "json.loads": parse,
        "score": lambda folder: score_run(folder, replace=True),
        "command": command,
    }
    wall: dict[str, list[float]] = {name: [] for name in ways}
    processor: dict[str, list[float]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        build(folder, count)
        size = os.path.getsize(folder / LINES)
        for _ in range(rounds):
            for name, way in ways.items():
                started, busy = time.perf_counter(), sum(os.times()[:4])
                way(folder)
                wall[name].append(round(time.perf_counter() - started, 3))
                processor[name].append(round(sum(os.times()[:4]) - busy, 3))
    print(json.dumps({"episodes": count, "bytes_a_line": size // count, "wall": wall, "processor": processor}))


if __name__ == "__main__":
    main()
