"""What a run reports: curve.png and a table of the held-out figures at its end, and how figures are printed."""

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ...rewards.looks import RIGHT, VERDICTS, explain_verdicts
from ...rollouts.scoring.table import Interval
from ...rollouts.store.run_folder import describe_view

_MAX_TOOLS = 6  # that a plot shows one by one
_RATES = ("end/answered", "end/max_turns", "end/max_tokens", "groups/idle")
_VERDICTS = {f"verdict/{name}": f"{'right' if name in RIGHT else 'wrong'}: {name}" for name in VERDICTS}
_COLUMNS = {
    "before": "before",
    "after": "after",
    "oracle": "oracle (before)",
    "oracle_after": "oracle (after)",
    "blind": "blind",
}
_ROWS = {
    "tools/rate": "tool rate",
    "tools/malformed": "calls not run",
    "episodes/turns": "turns",
    "replies/well_formed": "well-formed",
}


class ProgressPrinter:
    """Prints lines that stay, and on a terminal one status line below them that changes; if `quiet`, none of them.
    A log file is told the status where nothing was said for `silence` seconds."""

    def __init__(self, console: Console | None = None, *, quiet: bool = False, silence: float = 8.0) -> None:
        self.console, self.silence = console or Console(highlight=False, soft_wrap=True, quiet=quiet), silence
        self._live: Live | None = None
        self._said = time.monotonic()

    def print_line(self, line: str) -> None:
        self._said = time.monotonic()
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def show_status(self, line: str) -> None:
        """Replace the status line; if the output is not a terminal, print it where nothing was said for a while."""
        if not self.console.is_terminal:
            if time.monotonic() - self._said > self.silence:
                self.print_line(line)
            return
        if self._live is None:
            self._live = Live(console=self.console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(Text(line), refresh=True)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def draw_curve(folder: Path, lines: list[dict[str, Any]], summary: Mapping[str, Any]) -> None:
    """Write curve.png: rewards and rates over steps with the held-out figures; for a warm start, the loss.
    `lines` are those of metrics.jsonl. Nothing is written if no step was logged."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    steps = [line for line in lines if "reward" in line]
    losses = [(line["step"], line["loss"]) for line in lines if "loss" in line]
    evaluations = [(line["step"], line["held_out/reward"]) for line in lines if "held_out/reward" in line]
    if steps:
        figure = _draw_grpo(steps, summary.get("held_out", {}), evaluations)
    elif losses:
        figure, axis = plt.subplots(figsize=(6, 4), constrained_layout=True)
        axis.plot(*zip(*losses, strict=True), color="black")
        axis.set(title="loss", xlabel="step")
        if evaluations:
            _draw_evaluations(axis.twinx(), evaluations).set(ylabel="held-out reward", ylim=(-0.02, 1.02))
    else:
        return
    figure.savefig(folder / "curve.png", dpi=110)
    plt.close(figure)


def _draw_evaluations(axis: Any, evaluations: list[tuple[int, float]]) -> Any:
    """Held-out rewards during training; the best one has a ring around it."""
    axis.plot(*zip(*evaluations, strict=True), ".-", color="tab:red", label="held-out reward")
    step, reward = max(evaluations, key=lambda one: (one[1], -one[0]))
    axis.plot(step, reward, "o", color="tab:red", fillstyle="none", markersize=11, label="best held-out reward")
    return axis


def _draw_grpo(steps: list[dict[str, Any]], held_out: Mapping[str, Any], evaluations: list[tuple[int, float]]) -> Any:
    from matplotlib import pyplot as plt

    x = [line["step"] for line in steps]
    held_out = {when: one for when, one in held_out.items() if "reward" in one}  # it is missing if nothing was scored
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 5), constrained_layout=True)
    left.plot(x, [line["reward"] for line in steps], label="reward", color="black", linewidth=2)
    for name in sorted(steps[0]):
        if name.startswith("rewards/") and name.endswith("/mean"):
            left.plot(x, [line.get(name, float("nan")) for line in steps], label=name.split("/")[1], alpha=0.7)
    for when, at, marker in (("before", x[0], "o"), ("after", x[-1], "s")):
        if when in held_out:
            left.plot(at, held_out[when]["reward"], marker, color="tab:red", label=f"held-out reward, {when}")
    if evaluations:
        _draw_evaluations(left, evaluations)
    if "oracle" in held_out:
        left.axhline(held_out["oracle"]["reward"], color="tab:red", linestyle=":", label="oracle, before")
    if "blind" in held_out:
        left.axhline(
            held_out["blind"]["reward"], color="tab:gray", linestyle=":", label="best answer without the picture"
        )
    right.plot(
        x, [line["tools/rate"] for line in steps], label="episodes with a call that ran", color="black", linewidth=2
    )
    for name in _RATES:
        right.plot(x, [line.get(name, float("nan")) for line in steps], label=name, alpha=0.7)
    for name, label in _VERDICTS.items():
        if any(line.get(name) for line in steps):
            right.plot(x, [line.get(name, float("nan")) for line in steps], ":", label=label, linewidth=2)
    called = _find_called_tools(steps)
    for key, name in called.items() if len(called) <= _MAX_TOOLS else ():
        calls = [line.get(key, float("nan")) for line in steps]
        right.plot(x, calls, label=f"calls of {name} an episode", linestyle="--", alpha=0.9)
    for axis, title, top in ((left, "reward", 1), (right, "rates", max(1, right.get_ylim()[1]))):
        axis.set(title=title, xlabel="step", ylim=(-0.02 * top, 1.02 * top))
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=3, frameon=False)
    return figure


def print_table(summary: Mapping[str, Any], folder: Path) -> None:
    """Print the held-out figures before and after, beside the oracle's; nothing if none were measured."""
    held_out = summary["held_out"]
    if not held_out:
        return
    table = Table(title=f"held-out tasks, {summary['name']}")
    columns = [name for name in _COLUMNS if name in held_out]
    table.add_column("")
    for name in columns:
        table.add_column(_COLUMNS[name], justify="right")
    components = {key: key.split("/")[1] for key in held_out[columns[0]] if key.startswith("rewards/")}
    metrics = {
        key: key.removeprefix("metrics/") for name in columns for key in held_out[name] if key.startswith("metrics/")
    }
    verdicts = {key: title for key, title in _VERDICTS.items() if any(held_out[name].get(key) for name in columns)}
    calls = {key: f"calls of {name}" for key, name in _find_called_tools([held_out[name] for name in columns]).items()}
    table.add_row("episodes", *(str(count_episodes(held_out[name]) or "-") for name in columns))
    for key, title in ({"reward": "reward"} | components | metrics | _ROWS | verdicts | calls).items():
        table.add_row(title, *(format_figure(held_out[name], key) for name in columns))
    console = Console(width=120)
    console.print(table)
    rewards = {when: figures["reward"] for when, figures in held_out.items() if "reward" in figures}
    if {"before", "after"} <= set(rewards):
        gain = rewards["after"] - rewards["before"]
        gap = rewards["oracle"] - rewards["before"] if "oracle" in rewards else 0
        share = f", {100 * gain / gap:.0f} % of the gap to the oracle" if gap > 0 else ""
        console.print(f"reward {gain:+.3f}{share}; training took {summary['seconds']['training']:.0f} s")
    for when in ("before", "after"):
        for line in explain_verdicts(held_out.get(when, {})):
            console.print(f"{when}: {line}")
    if "blind" in held_out:
        console.print(f"without the picture, the best answer gets {held_out['blind']['reward']:.3f}")
    console.print(f"figures: {folder}/summary.json, {folder}/metrics.jsonl; plot: {folder}/curve.png")
    console.print(describe_view(folder), soft_wrap=True, markup=False)


def _find_called_tools(figures: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the tools that were called at least once: the key of the calls per episode, and the name of the tool.

    >>> _find_called_tools([{"tools/zoom/calls": 0.0, "tools/ask/calls": 0.5}, {"tools/calls": 0.5}])
    {'tools/ask/calls': 'ask'}
    """
    called = {key for figure in figures for key, value in figure.items() if key.startswith("tools/") and value}
    parts = {key: key.split("/") for key in sorted(called)}
    return {key: named[1] for key, named in parts.items() if len(named) == 3 and named[2] == "calls"}


def count_episodes(figures: Mapping[str, Any]) -> int:
    """Return the number of episodes of held-out figures; 0 if it is not known."""
    return max(figures.get("counts", {}).values(), default=0)


def format_figure(figures: Mapping[str, Any], key: str) -> str:
    """Return a figure with its confidence interval if it has one, and the number of episodes that it counts if these
    are not all; "-" if it is missing.

    >>> figures = {"reward": 0.5, "intervals": {"reward": [0.4, 0.6]}, "counts": {"reward": 40, "turns": 44}}
    >>> format_figure(figures, "reward"), format_figure({}, "reward")
    ('0.500 [0.400, 0.600] of 40', '-')
    """
    if key not in figures:
        return "-"
    low, high = figures.get("intervals", {}).get(key, (None, None))
    count = figures.get("counts", {}).get(key)
    suffix = "" if count in (None, count_episodes(figures)) else f" of {count}"
    return Interval(figures[key], low, high, 0).format() + suffix


def format_duration(seconds: float) -> str:
    """Return a duration as hours, minutes and seconds.

    >>> format_duration(75), format_duration(3 * 86400 + 7200)
    ('1:15', '3 d 2:00:00')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    short = f"{hours}:{minutes:02d}:{rest:02d}" if hours or days else f"{minutes}:{rest:02d}"
    return f"{days} d {short}" if days else short
