"""How a rollout goes: one line for the person who watches, and the closing table."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from viewbox.envs.types import Episode
from viewbox.rollouts.metrics import END_REASONS

EVERY = 5.0  # seconds between lines where nobody sees them change


class Watch:
    """Counts episodes as they end. `line()` is what a person reads.

    >>> from viewbox.envs.types import Scores, Task
    >>> watch = Watch(total=4)
    >>> watch.saw(Episode(Task("a"), scores=Scores(0.5)))
    >>> watch.line(seconds=2.0)
    '1/4  reward 0.50  tool rate 0.00  0.5 episodes/s  0:06 left  answered 1'
    """

    def __init__(self, total: int, console: Console | None = None) -> None:
        self.total, self.console = total, console or Console(width=120)
        self.done = self.new = 0
        self.reward = self.tools = 0.0
        self.ends: Counter[str] = Counter()
        self.started = time.monotonic()

    def saw(self, episode: Episode, *, earlier: bool = False) -> None:
        """One more episode; `earlier`: an earlier session played it. Says why the first one failed."""
        self.done += 1
        self.new += not earlier
        self.reward += episode.scores.total if episode.scores else 0.0
        self.tools += episode.tool_call_count > 0
        self.ends[episode.end_reason] += 1
        if not earlier and episode.end_reason == "error" and self.ends["error"] == 1:
            self.console.print(f"first error, task {episode.task.id}: {episode.info.get('error')}", markup=False)

    def line(self, seconds: float | None = None) -> str:
        """Done of total, means so far, speed and time left of this session, and how episodes ended."""
        seconds = time.monotonic() - self.started if seconds is None else seconds
        count, rate = max(1, self.done), self.new / max(seconds, 1e-9)
        left = int((self.total - self.done) / rate) if rate else None
        parts = [f"{self.done}/{self.total}", f"reward {self.reward / count:.2f}"]
        parts += [f"tool rate {self.tools / count:.2f}", f"{rate:.1f} episodes/s"]
        parts += ["" if left is None else f"{left // 60}:{left % 60:02d} left"]
        parts += [", ".join(f"{reason} {self.ends[reason]}" for reason in END_REASONS if self.ends[reason])]
        return "  ".join(part for part in parts if part)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Shows the line while episodes are played, from a task of the running event loop."""
        live = Live(console=self.console, auto_refresh=False) if self.console.is_terminal else None
        if live:
            live.start()
        ticking = asyncio.ensure_future(self._tick(live))
        try:
            yield
        finally:
            ticking.cancel()
            self._tell(live)
            if live:
                live.stop()

    async def _tick(self, live: Live | None) -> None:
        while True:
            await asyncio.sleep(0.5 if live else EVERY)
            self._tell(live)

    def _tell(self, live: Live | None) -> None:
        if live:
            live.update(Text(self.line()), refresh=True)
        else:
            self.console.print(self.line(), markup=False, highlight=False, soft_wrap=True)


def print_summary(summary: Mapping[str, Any], console: Console | None = None) -> None:
    """Reward, its components, tool rate, turns and end reasons; below, what the errors were."""
    console = console or Console(width=120)
    metrics = summary["metrics"]
    heading = f"{summary['environment']}, {summary['model']}: {summary['episodes']} episodes"
    table = Table()
    table.add_column("")
    table.add_column("mean", justify="right")
    components = {name: name.split("/")[1] for name in metrics if name.startswith("rewards/")}
    rows = {"reward": "reward", **components, "tools/rate": "tool rate", "episodes/turns": "turns"}
    for name, title in rows.items():
        table.add_row(title, f"{metrics[name]:.3f}")
    for reason in END_REASONS:
        if metrics[f"end/{reason}"]:
            table.add_row(reason, f"{metrics[f'end/{reason}']:.3f}")
    console.print(heading, markup=False, highlight=False, soft_wrap=True)
    console.print(table)
    for words, count in summary["errors"].items():
        console.print(f"{count} × {words}", markup=False, highlight=False)


def errors_of(episodes: Sequence[Episode], most: int = 5) -> dict[str, int]:
    """What went wrong in episodes that ended as `error` or `timeout`, and how often: the most frequent first."""
    failed = (episode for episode in episodes if episode.end_reason in ("error", "timeout"))
    words = Counter(str(e.info.get("error") or e.info.get("last_failure") or "out of time") for e in failed)
    return dict(words.most_common(most))
