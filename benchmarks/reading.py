"""Times reading and re-scoring saved episodes, beside another checkout of viewbox on the same lines.

    python benchmarks/reading.py [--against FOLDER] [--episodes N] [--rounds N]        (default: 2000 7)

FOLDER holds the other checkout as `viewbox`, for example of `git worktree add FOLDER/viewbox COMMIT`. Each side is one
process, and they take turns, so that other load slows both. Five cases: episodes read, their turns not asked for; with
their tokens; with turns that are dropped at once, and kept; and scored again by a reward of two components. Processor
microseconds a line, the best of all rounds; the last line is one JSON object. The bars are 1.5 for turns and 1.3 for
scoring against 3c0fdf0, before the records were msgspec structs.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

CASES = ("no turns", "tokens", "turns dropped", "turns kept", "scored")


def write_runs(folder: Path, count: int) -> None:
    """Write a run with and one without tokens; lines hold nothing that an older reader finds unusual."""
    from msgspec.structs import replace
    from store import CONFIG, REWARD, make_episode, make_images

    from viewbox.rollouts.store.writer import EpisodeWriter

    (folder / "reward.yaml").write_text(REWARD)
    images = make_images()
    for name in ("plain", "tokens"):
        with EpisodeWriter(folder / name) as writer:
            for number in range(count):
                one = make_episode(number, images, name == "tokens")
                writer.append(replace(one, confidence=0.9, run_config=replace(CONFIG, temperature=1.0, seed=number)))


def read(folder: Path, *, tokens: bool = False, turns: bool = False, keep: bool = False) -> None:
    """Read every episode."""
    from viewbox.rollouts.store.reader import load

    kept = []
    for episode in load(folder, tokens=tokens):
        if turns:
            len(episode.turns)
        if keep:
            kept.append(episode)


def score(folder: Path, name: str) -> None:
    """Score every episode again, and write a column."""
    from viewbox.rollouts.scoring.rescore import score_run

    score_run(folder / "plain", reward=folder / "reward.yaml", name=name, replace=True)


def work(folder: Path, name: str) -> None:
    """Do the case of each line of the input, and print its processor seconds, those of other processes included."""
    ways: dict[str, Callable[[], None]] = {
        "no turns": lambda: read(folder / "plain"),
        "tokens": lambda: read(folder / "tokens", tokens=True),
        "turns dropped": lambda: read(folder / "plain", turns=True),
        "turns kept": lambda: read(folder / "plain", turns=True, keep=True),
        "scored": lambda: score(folder, name),
    }
    for line in sys.stdin:
        started = measure_seconds()
        ways[line.strip()]()
        print(measure_seconds() - started, flush=True)


def measure_seconds() -> float:
    """Processor seconds of this process and those that it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def start_side(name: str, package: Path, folder: Path) -> subprocess.Popen[str]:
    """Start the process of one side."""
    environment = {**os.environ, "PYTHONPATH": str(package), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--work", str(folder), name]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--against", type=Path, help="folder that holds another checkout, as viewbox")
    parser.add_argument("--episodes", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(Path(given.work[0]), given.work[1])
        return
    packages = {"here": Path(__file__).resolve().parents[2]}
    packages |= {"there": given.against} if given.against else {}
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        write_runs(Path(temporary), given.episodes)
        sides = {name: start_side(name, package, Path(temporary)) for name, package in packages.items()}
        for case in CASES:
            taken: dict[str, list[float]] = {name: [] for name in sides}
            for number in range(given.rounds + 1):
                for name, side in sorted(sides.items(), reverse=number % 2 == 1):
                    assert side.stdin
                    assert side.stdout
                    print(case, file=side.stdin, flush=True)
                    taken[name].append(float(side.stdout.readline()))
            best = {name: round(min(values[1:]) / given.episodes * 1e6, 1) for name, values in taken.items()}
            found[case] = best | ({"ratio": round(best["there"] / best["here"], 2)} if given.against else {})
            print(f"{case:14} {found[case]}")
        for side in sides.values():
            side.communicate()
    print(json.dumps({"episodes": given.episodes, "microseconds_a_line": found}))


if __name__ == "__main__":
    main()
