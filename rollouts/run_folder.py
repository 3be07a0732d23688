"""What a run leaves on disk: config, versions, metrics.jsonl, curve.png, summary.json."""

import json
import sys
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml
from transformers import TrainerCallback

PACKAGES = ("viewbox", "torch", "transformers", "trl", "peft", "accelerate", "numpy", "pillow")


def versions() -> dict[str, str]:
    """The versions a result depends on."""
    found = {"python": sys.version.split()[0]}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def create(parent: Path, name: str) -> Path:
    """A new folder `parent/name`, or `name-2`, `name-3` … where earlier runs stand."""
    number = 1
    while True:
        folder = parent / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            number += 1
        else:
            return folder


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    """The resolved config and the versions."""
    (folder / "config.yaml").write_text(yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True))
    (folder / "versions.json").write_text(json.dumps(versions(), indent=2) + "\n")


class MetricsFile(TrainerCallback):
    """Appends every log of the trainer to metrics.jsonl and tells a person how it goes."""

    def __init__(self, path: Path, tell: Callable[[str], None], every: int = 1) -> None:
        self.path, self.tell, self.every = path, tell, every
        self.started = time.monotonic()
        self.first_step = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.started, self.first_step = time.monotonic(), state.global_step

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        if not state.is_world_process_zero or not logs:
            return
        with self.path.open("a") as file:
            file.write(json.dumps({"step": state.global_step, **logs}) + "\n")
        if ("loss" in logs or "reward" in logs) and state.global_step % self.every == 0:
            self.tell(self._line(state, logs))

    def _line(self, state: Any, logs: Mapping[str, Any]) -> str:
        done = state.global_step - self.first_step
        left = (state.max_steps - state.global_step) * (time.monotonic() - self.started) / max(1, done)
        parts = [f"step {state.global_step}/{state.max_steps}"]
        for name, label in (("reward", "reward"), ("tools/rate", "tool rate"), ("episodes/truncated", "truncated")):
            if logs.get(name) is not None:  # TRL logs None where a step has no number: every sample dropped, say
                parts.append(f"{label} {logs[name]:.2f}")
        if "reward" not in logs:
            parts.append(f"loss {float(logs['loss']):.3f}")
        parts.append(f"{int(left // 60)}:{int(left % 60):02d} left")
        return "  ".join(parts)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def draw_curve(folder: Path, lines: list[dict[str, Any]], summary: Mapping[str, Any]) -> None:
    """curve.png: reward and components, tool rate and end reasons over steps, held-out figures marked; or the loss."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    steps = [line for line in lines if "reward" in line]
    if not steps:
        losses = [(line["step"], line["loss"]) for line in lines if "loss" in line]
        if not losses:
            return
        figure, axis = plt.subplots(figsize=(6, 4), constrained_layout=True)
        axis.plot(*zip(*losses, strict=True), color="black")
        axis.set(title="loss", xlabel="step")
        figure.savefig(folder / "curve.png", dpi=110)
        plt.close(figure)
        return
    x = [line["step"] for line in steps]
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), constrained_layout=True)
    left.plot(x, [line["reward"] for line in steps], label="reward", color="black", linewidth=2)
    for name in sorted(steps[0]):
        if name.startswith("rewards/") and name.endswith("/mean"):
            left.plot(x, [line.get(name, float("nan")) for line in steps], label=name.split("/")[1], alpha=0.7)
    held_out = summary.get("held_out", {})
    for when, at, marker in (("before", x[0], "o"), ("after", x[-1], "s")):
        if when in held_out:
            left.plot(at, held_out[when]["reward"], marker, color="tab:red", label=f"held-out reward, {when}")
    if "oracle" in held_out:
        left.axhline(held_out["oracle"]["reward"], color="tab:red", linestyle=":", label="oracle, before")
    right.plot(x, [line["tools/rate"] for line in steps], label="episodes with a tool call", color="black", linewidth=2)
    for name in ("end/answered", "end/max_turns", "end/max_tokens", "frac_reward_zero_std"):
        right.plot(x, [line.get(name, float("nan")) for line in steps], label=name, alpha=0.7)
    for axis, title in ((left, "reward"), (right, "what the policy does (rates)")):
        axis.set(title=title, xlabel="step", ylim=(-0.02, 1.02))
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    figure.savefig(folder / "curve.png", dpi=110)
    plt.close(figure)
