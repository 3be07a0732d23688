"""Times a GRPO step of the quickstart against the same step at an earlier commit, in turns.

    python benchmarks/grpo_step.py [--before COMMIT] [--steps 12] [--rounds 2]      (the last line is one JSON object)

Every run is its own process: the first `--steps` steps of `configs/quickstart.yaml`, without held-out episodes.
The default commit comes before continuous batching: it generates in waves, and its loss computes the prompt, the images
and all padding again for every episode of a group. `ratio` in the last line is the time before over the time now.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
BEFORE = "c804c42"
PARTS = {"generation": "time/generation", "scoring": "time/scoring", "loss forward": "time/loss_forward"}


def extract_commit(commit: str, folder: Path) -> Path:
    """Return the package as it was at a commit, in a folder for the path."""
    target = folder / "before" / "viewbox"
    target.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", commit], cwd=REPOSITORY, check=True, capture_output=True)
    subprocess.run(["tar", "-x", "-C", str(target)], input=archive.stdout, check=True)
    return target.parent


def run(path: Path, steps: int, folder: Path) -> dict[str, float]:
    """Mean seconds of a step and of its parts, without the first step; `path` holds the package."""
    settings = [f"train.max_steps={steps}", "log.eval_tasks=0", f"log.dir={folder}", "train.save_strategy='no'"]
    command = [sys.executable, "-m", "viewbox.train", "quickstart", *settings]
    given = os.environ | {"PYTHONPATH": str(path)}
    subprocess.run(command, check=True, cwd=folder, env=given, stdout=subprocess.DEVNULL)
    (lines,) = folder.glob("*/metrics.jsonl")
    found = [json.loads(line) for line in lines.read_text().splitlines()]
    found = [line for line in found if "step_time" in line][1:]
    mean = {name: statistics.mean(line[key] for line in found) for name, key in PARTS.items()}
    mean["step"] = statistics.mean(line["step_time"] for line in found)
    mean["backward"] = mean["step"] - sum(mean[name] for name in PARTS)
    return mean


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", default=BEFORE, help="the commit to compare with")
    parser.add_argument("--steps", type=int, default=12, help="steps of every run; the first does not count")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each side, in turns")
    given = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {"before": [], "now": []}
    with tempfile.TemporaryDirectory() as folder:
        now = Path(folder) / "now"
        now.mkdir()
        (now / "viewbox").symlink_to(REPOSITORY)
        sides = {"before": extract_commit(given.before, Path(folder)), "now": now}
        for i in range(given.rounds):
            for side, path in sides.items():
                out = Path(folder) / f"{side}-{i}"
                out.mkdir()
                found[side].append(run(path, given.steps, out))
                print(side, json.dumps({name: round(value, 3) for name, value in found[side][-1].items()}), flush=True)
    best = {side: min(runs, key=lambda one: one["step"]) for side, runs in found.items()}
    ratio = best["before"]["step"] / best["now"]["step"]
    print(json.dumps({"ratio": ratio, "bar": 1.8, "seconds": best, "before": given.before, "steps": given.steps}))


if __name__ == "__main__":
    main()
