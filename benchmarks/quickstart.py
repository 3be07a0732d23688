"""Runs the quickstart with several seeds: held-out reward before, after and with the oracle, and the time.

    python benchmarks/quickstart.py [SEED ...]        (default: 0 1 2)

Each seed is a whole run in its own process. The last line is one JSON list with an object for each seed: `gain` is the
reward after minus before, `share_of_gap` the gain as a share of the gap to the oracle, `gold_look_read` the share of
labels that the untrained model reads with the oracle's look.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def run_quickstart(seed: int, folder: str) -> dict:
    """Return one quickstart; returns its summary with the wall time of the whole process."""
    started = time.monotonic()
    command = [sys.executable, "-m", "viewbox.train", "quickstart", f"train.seed={seed}", f"log.dir={folder}"]
    subprocess.run(command, check=True)
    summary = json.loads((Path(folder) / f"quickstart-seed{seed}" / "summary.json").read_text())
    return summary | {"wall_seconds": time.monotonic() - started}


def compute_figures(summary: dict) -> dict:
    """Return the numbers that the bars refer to."""
    before, after, oracle = (summary["held_out"][name] for name in ("before", "after", "oracle"))
    gap = oracle["reward"] - before["reward"]
    return {
        "seed": summary["seed"],
        "reward_before": before["reward"],
        "reward_after": after["reward"],
        "reward_oracle": oracle["reward"],
        "gain": after["reward"] - before["reward"],
        "share_of_gap": (after["reward"] - before["reward"]) / gap,
        "well_formed_before": before["replies/well_formed"],
        "gold_look_read": oracle["rewards/label/mean"],
        "tool_rate": [before["tools/rate"], after["tools/rate"]],
        "label": [before["rewards/label/mean"], after["rewards/label/mean"]],
        "iou": [before["rewards/box/mean"], after["rewards/box/mean"]],
        "wall_seconds": summary["wall_seconds"],
    }


def main() -> None:
    seeds = [int(given) for given in sys.argv[1:]] or [0, 1, 2]
    with tempfile.TemporaryDirectory() as folder:
        found = [compute_figures(run_quickstart(seed, folder)) for seed in seeds]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
