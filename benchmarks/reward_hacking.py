"""Reward hacking shown and stopped: two GRPO runs on `digits` that differ in one key of their reward.

    python benchmarks/reward_hacking.py [STEPS [PICTURE [FOLDER]]]      (default: 50 docs/reward_hacking.png, none kept)

Both start from the shipped model with the reward of reward_hacking.yaml: a little for the label and the box, much for
every tool call (`a_call`). One pays that bonus always, the other only where the label is right (`needs: {label: 1.0}`).
They run at once, a process and a thread each; some minutes on two cores. The picture shows tool calls an episode, how
often the label was right and the reward, step by step; the last line is one JSON object.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PICTURE = HERE.parent / "docs" / "reward_hacking.png"
GATE = "reward.components.bonus.needs={label: 1.0}"
RUNS: Mapping[str, Sequence[str]] = {"naive": (), "gated": (GATE,)}
PANELS = {
    "tools/calls": "tool calls an episode",
    "rewards/label/mean": "label right (training episodes)",
    "reward": "reward",
}
LAST = 10  # steps at the end that the figures are means of
SMOOTH = 5  # steps of the running mean that is drawn


def a_call(episode: Any) -> float:
    """The naive bonus: a fifth for every call, good or bad."""
    return min(1.0, episode.tool_call_count / 5)


def overrides(name: str) -> list[str]:
    """What a run's command says beside the config."""
    return [f"reward.components.bonus.function={HERE / 'reward_hacking.py'}:a_call", *RUNS[name]]


def start(name: str, folder: Path, steps: int) -> subprocess.Popen:
    """A run in a process of its own, one thread; what it prints goes to FOLDER/NAME.log."""
    command = [sys.executable, "-m", "viewbox.train", str(HERE / "reward_hacking.yaml"), *overrides(name)]
    command += [f"train.max_steps={steps}", f"log.dir={folder}", f"log.name={name}"]
    with open(folder / f"{name}.log", "w", encoding="utf-8") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | {"OMP_NUM_THREADS": "1"}, cwd=folder)


def steps_of(folder: Path) -> list[dict[str, Any]]:
    """What a run logged at each step."""
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if "reward" in line]


def figures(folder: Path) -> dict[str, Any]:
    """The first step, the mean of the last ones, and how well labels are read on held-out tasks."""
    lines, summary = steps_of(folder), json.loads((folder / "summary.json").read_text())
    names = [*PANELS, "end/answered"]
    return {
        "first": {name: round(lines[0][name], 3) for name in names},
        "last": {name: round(statistics.mean(line[name] for line in lines[-LAST:]), 3) for name in names},
        "held_out_label": [round(summary["held_out"][when]["rewards/label/mean"], 3) for when in ("before", "after")],
        "held_out_calls": [round(summary["held_out"][when]["tools/calls"], 3) for when in ("before", "after")],
        "training_seconds": round(summary["seconds"]["training"]),
    }


def smooth(values: Sequence[float]) -> list[float]:
    """The running mean over up to `SMOOTH` steps.

    >>> smooth([0, 1, 2])
    [0, 0.5, 1]
    """
    return [statistics.mean(values[max(0, i + 1 - SMOOTH) : i + 1]) for i in range(len(values))]


def draw(folders: Mapping[str, Path], picture: Path) -> None:
    """Both curves, a panel a metric: each step pale, the running mean over it."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(PANELS), figsize=(12, 3.6), constrained_layout=True)
    styles = {"naive": ("tab:red", "bonus for every call"), "gated": ("tab:green", "bonus needs label: 1.0")}
    for axis, (metric, title) in zip(axes, PANELS.items(), strict=True):
        for name, folder in folders.items():
            color, words = styles[name]
            lines = steps_of(folder)
            x, y = [line["step"] for line in lines], [line[metric] for line in lines]
            axis.plot(x, y, color=color, alpha=0.25, linewidth=1)
            axis.plot(x, smooth(y), color=color, linewidth=2, label=words)
        axis.set(title=title, xlabel="step")
        axis.set_ylim(bottom=0, top=None if metric == "tools/calls" else 1)
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=9, loc="upper left")
    figure.savefig(picture, dpi=100)
    plt.close(figure)


def collapsed(found: Mapping[str, Any]) -> bool:
    """Whether a run ended calling tools at most turns, and reads worse on held-out tasks than before it."""
    before, after = found["held_out_label"]
    return found["last"]["tools/calls"] >= 3 and after < before + 0.1


def run(folder: Path, steps: int, picture: Path) -> dict[str, Any]:
    """Both runs at once; raises where one fails."""
    began = time.monotonic()
    started = {name: start(name, folder, steps) for name in RUNS}
    try:
        for name, process in started.items():
            if process.wait() != 0:
                raise SystemExit(f"the {name} run failed:\n{(folder / f'{name}.log').read_text()[-2000:]}")
    finally:
        for process in started.values():
            process.kill()
    seconds = round(time.monotonic() - began)
    folders = {name: folder / name for name in RUNS}
    draw(folders, picture)
    found: dict[str, Any] = {name: figures(one) for name, one in folders.items()}
    shown = collapsed(found["naive"]) and not collapsed(found["gated"])
    return {**found, "steps": steps, "wall_seconds": seconds, "shown_and_stopped": shown}


def main(steps: int = 50, picture: Path = PICTURE, kept: Path | None = None) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = kept or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        found = run(folder.resolve(), steps, picture)
    for name in RUNS:
        one = found[name]
        print(f"{name}: {one['first']} → {one['last']}; held-out label {one['held_out_label']}")
    print(json.dumps(found))


if __name__ == "__main__":
    given = sys.argv[1:]
    main(*[int(one) for one in given[:1]], *map(Path, given[1:3]))
