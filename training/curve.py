"""The learning curve of a run, as a picture."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any


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
