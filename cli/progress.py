"""How a rollout goes: a live table for the person who watches, lines where nobody sees them change, and the end.

Episodes say how well it goes; the generator's `now()`, where it has one, how fast and how full it is.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from viewbox.records import Episode
from viewbox.rollouts.generator import Load
from viewbox.rollouts.scoring.metrics import END_REASONS

EVERY = 5.0  # seconds between lines where nobody sees them change
WIDTH = 120  # columns where there is no terminal, and of the live table at most


class Watch:
    """Counts episodes as they end. `line()` and `table()` are what a person reads.

    >>> from viewbox.records import Scores, Task
    >>> watch = Watch(total=4, now=lambda: Load(2, slots=64, tokens=50))
    >>> watch.saw(Episode(Task("a"), scores=Scores(0.5)))
    >>> watch.line(seconds=2.0)
    '1/4  reward 0.50  tool rate 0.00  0.5 episodes/s  25 tokens/s  2 of 64 slots  0:06 left  answered 1'
    """

    def __init__(
        self,
        total: int,
        console: Console | None = None,
        *,
        heading: str = "",
        now: Callable[[], Load] | None = None,
    ) -> None:
        self.total, self.console, self.heading, self.now = total, console or console_of(), heading, now
        self.done = self.new = 0
        self.reward = self.tools = 0.0
        self.components: dict[str, list[float]] = {}  # of those that apply: their values
        self.ends: Counter[str] = Counter()
        self.started = time.monotonic()

    def saw(self, episode: Episode, *, earlier: bool = False) -> None:
        """One more episode; `earlier`: an earlier session played it. Says why the first one failed."""
        self.done += 1
        self.new += not earlier
        self.reward += episode.scores.total if episode.scores else 0.0
        for name, value in (episode.scores.components if episode.scores else {}).items():
            self.components.setdefault(name, []).extend([] if value is None else [value])
        self.tools += episode.tool_call_count > 0
        self.ends[episode.end_reason] += 1
        if not earlier and episode.end_reason == "error" and self.ends["error"] == 1:
            self.console.print(f"first error, task {episode.task.id}: {episode.info.get('error')}", markup=False)

    # ------------------------------------------------------------------ what is shown
    def line(self, seconds: float | None = None) -> str:
        """Done of total, means so far, speed and time left of this session, and how episodes ended."""
        seconds, count = self._seconds(seconds), max(1, self.done)
        parts = [
            f"{self.done}/{self.total}",
            f"reward {self.reward / count:.2f}",
            f"tool rate {self.tools / count:.2f}",
        ]
        parts += [f"{number} {what}" for number, what in self._speed(seconds)]
        parts += [self._left(seconds), ", ".join(f"{reason} {number}" for number, reason in self._ended())]
        return "  ".join(part for part in parts if part)

    def table(self, seconds: float | None = None) -> Table:
        """A bar of what is done; below, side by side: speed, reward with its components, end reasons."""
        seconds, count = self._seconds(seconds), max(1, self.done)
        means = [(name, sum(values) / len(values)) for name, values in self.components.items() if values]
        scores = [("reward", self.reward / count), *means, ("tool rate", self.tools / count)]
        clock = "  ".join(part for part in (_clock(seconds), self._left(seconds)) if part)
        top = _row([Text(self.heading, "bold", overflow="ellipsis", no_wrap=True)], [clock])
        bar = ProgressBar(max(1, self.total), self.done)
        whole = Table.grid(expand=True)
        whole.width = min(self.console.width, WIDTH)
        whole.add_row(top)
        whole.add_row(_row([bar], [f"{self.done}/{self.total}"]))
        whole.add_row("")
        figures = (self._speed(seconds), [(f"{mean:.2f}", name) for name, mean in scores], self._ended())
        whole.add_row(_row([_figures(one) for one in figures], []))
        return whole

    def _seconds(self, given: float | None) -> float:
        return max(1e-9, time.monotonic() - self.started if given is None else given)

    def _speed(self, seconds: float) -> list[tuple[str, str]]:
        """(number, of what): of this session, as far as it is known."""
        found = [(f"{self.new / seconds:.1f}", "episodes/s")]
        load = self.now() if self.now else None
        if load is not None and load.tokens is not None:
            found += [(f"{load.tokens / seconds:.0f}", "tokens/s")]
        if load is not None and self.done < self.total:
            found += [(str(load.busy), "requests" if load.slots is None else f"of {load.slots} slots")]
            found += [(str(load.waiting), "waiting")] if load.waiting else []
        return found

    def _left(self, seconds: float) -> str:
        todo = self.total - self.done
        return f"{_clock(todo * seconds / self.new)} left" if todo > 0 and self.new else ""

    def _ended(self) -> list[tuple[str, str]]:
        return [(str(self.ends[reason]), reason) for reason in END_REASONS if self.ends[reason]]

    # ------------------------------------------------------------------ while it is played
    @contextmanager
    def shown(self) -> Iterator[None]:
        """Shows it while episodes are played, from a task of the running event loop; leaves one line behind."""
        live = Live(console=self.console, auto_refresh=False, transient=True) if self.console.is_terminal else None
        if live:
            live.start()
        ticking = asyncio.ensure_future(self._tick(live))
        try:
            yield
        finally:
            ticking.cancel()
            if live:
                live.stop()
            self._tell()

    async def _tick(self, live: Live | None) -> None:
        while True:
            if live:
                live.update(self.table(), refresh=True)
            await asyncio.sleep(0.5 if live else EVERY)
            if not live:
                self._tell()

    def _tell(self) -> None:
        self.console.print(self.line(), markup=False, highlight=False, soft_wrap=True)


def console_of() -> Console:
    """The terminal as wide as it is; a file or a pipe as wide as tables need."""
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH)


def _clock(seconds: float) -> str:
    """Hours, minutes and seconds.

    >>> _clock(6.0), _clock(3725)
    ('0:06', '1:02:05')
    """
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"


def _row(wide: Sequence[Any], narrow: Sequence[str]) -> Table:
    """Cells that share the width, then those that are as wide as what they say."""
    row = Table.grid(expand=True, padding=(0, 2, 0, 0), pad_edge=False)
    for _ in wide:
        row.add_column(ratio=1)
    for _ in narrow:
        row.add_column(justify="right", no_wrap=True)
    row.add_row(*wide, *narrow)
    return row


def _figures(figures: Sequence[tuple[str, str]]) -> Text:
    """Numbers above each other, and what they are."""
    widest = max((len(number) for number, _ in figures), default=0)
    lines = [Text.assemble((number.rjust(widest), "bold"), " ", what) for number, what in figures]
    return Text("\n", overflow="ellipsis", no_wrap=True).join(lines)


def print_summary(summary: Mapping[str, Any], console: Console | None = None) -> None:
    """Reward, its components, tool rate, turns and end reasons; below, what the errors were."""
    console = console or console_of()
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
