"""What a run prints at its end: held-out figures before and after, beside the oracle."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from viewbox.rollouts.scoring.bootstrap import Interval

ROWS = {"reward": "reward", "tools/rate": "tool rate", "episodes/turns": "turns", "replies/well_formed": "well-formed"}


def print_table(summary: Mapping[str, Any], folder: Path) -> None:
    """Held-out figures before and after, beside the oracle."""
    held_out = summary["held_out"]
    if not held_out:
        return
    table = Table(title=f"held-out tasks, {summary['name']}")
    titles = {"before": "before", "after": "after", "oracle": "oracle (before)", "oracle_after": "oracle (after)"}
    columns = [name for name in titles if name in held_out]
    table.add_column("")
    for name in columns:
        table.add_column(titles[name], justify="right")
    components = {name: name.split("/")[1] for name in held_out[columns[0]] if name.startswith("rewards/")}
    own = {
        key: key.removeprefix("metrics/") for name in columns for key in held_out[name] if key.startswith("metrics/")
    }
    rows = {"reward": "reward", **components, **own, **{k: v for k, v in ROWS.items() if k != "reward"}}
    for key, title in rows.items():
        table.add_row(title, *(shown(held_out[name], key) for name in columns))
    console = Console(width=120)
    console.print(table)
    if {"before", "after", "oracle"} <= set(held_out):
        gain = held_out["after"]["reward"] - held_out["before"]["reward"]
        gap = held_out["oracle"]["reward"] - held_out["before"]["reward"]
        share = f", {100 * gain / gap:.0f} % of the gap to the oracle" if gap > 0 else ""
        console.print(f"reward {gain:+.3f}{share}; training took {summary['seconds']['training']:.0f} s")
    console.print(f"figures: {folder}/summary.json, {folder}/metrics.jsonl; picture: {folder}/curve.png")


def shown(figures: Mapping[str, Any], key: str) -> str:
    """A figure with its interval, where it has one.

    >>> shown({"reward": 0.5, "intervals": {"reward": [0.4, 0.6]}}, "reward"), shown({}, "metrics/box/map@0.5")
    ('0.500 [0.400, 0.600]', '-')
    """
    if key not in figures:
        return "-"
    low, high = figures.get("intervals", {}).get(key, (None, None))
    return Interval(figures[key], low, high, 0).shown()
