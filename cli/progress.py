"""Shows the progress of a rollout: a line that changes on a terminal, else one every few seconds.

The figures come from the episodes; speed and load from the generator's `get_load()`, if it has one.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from ..engines.generator import Load
from ..records import Episode
from ..rollouts.scoring.metrics import END_REASONS, format_part, get_episode_values
from ..rollouts.scoring.table import Table
from ..rollouts.store.lines import MAX_COUNT
from ..training.reporting.report import ProgressPrinter, format_duration
from ..utils.terminal import make_line

log = logging.getLogger("viewbox.progress")

EVERY = 5.0  # seconds between lines without a terminal
MAX_REASON = 1000  # characters of an error: a server's or a saved episode's


class Progress:
    """Counts episodes as they end; `render_line` shows the counts.

    >>> from viewbox.records import Scores, Task
    >>> progress = Progress(total=4, get_load=lambda: Load(2, slots=64, tokens=50))
    >>> progress.add(Episode(Task("a"), scores=Scores(0.5)))
    >>> progress.render_line(seconds=2.0)
    '1/4  reward 0.50  tool rate 0.00  0.5 episodes/s  25 tokens/s  2 of 64 slots  0:06 left  answered 1'
    """

    def __init__(
        self, total: int, console: Console | None = None, *, get_load: Callable[[], Load] | None = None
    ) -> None:
        self.total, self.get_load, self.printer = total, get_load, ProgressPrinter(console, silence=EVERY)
        self.done = self.new = 0
        self.table = Table()  # of which the means are shown
        self.ends: Counter[str] = Counter()
        self.started = time.monotonic()

    def add(self, episode: Episode, *, earlier: bool = False) -> None:
        """Count one more episode, of an earlier session if `earlier`; print why the first one failed."""
        self.done += 1
        self.new += not earlier
        values = get_episode_values(episode)
        self.table.add(episode.task.id, {name: values[name] for name in ("reward", "tools/rate")})
        self.ends[episode.end_reason] += 1
        if not earlier and episode.end_reason == "error" and self.ends["error"] == 1:
            reason = make_line(f"first error, task {episode.task.id}: {episode.info.get('error')}", MAX_REASON)
            self.printer.print_line(reason)

    def render_line(self, seconds: float | None = None) -> str:
        """Episodes done, means so far, speed and time left of this session, and end reasons."""
        seconds = max(1e-9, time.monotonic() - self.started if seconds is None else seconds)
        means = self.table.compute_intervals(intervals=False)
        reward, rate = means.get("reward"), means.get("tools/rate")
        todo = self.total - self.done
        parts = [
            f"{self.done}/{self.total}",
            f"reward {reward.mean:.2f}{format_part(reward.count / self.done)}" if reward else "reward -",
            f"tool rate {rate.mean if rate else 0.0:.2f}",
            *self._list_speeds(seconds),
            f"{format_duration(todo * seconds / self.new)} left" if todo > 0 and self.new else "",
            ", ".join(f"{reason} {self.ends[reason]}" for reason in END_REASONS if self.ends[reason]),
        ]
        return "  ".join(part for part in parts if part)

    def _list_speeds(self, seconds: float) -> list[str]:
        """Return the speeds and loads of this session that are known."""
        speeds = [f"{self.new / seconds:.1f} episodes/s"]
        load = self._read_load()
        if load is not None and load.tokens is not None:
            speeds.append(f"{load.tokens / seconds:.0f} tokens/s")
        if load is not None and self.done < self.total:
            speeds.append(f"{load.busy} requests" if load.slots is None else f"{load.busy} of {load.slots} slots")
            speeds += [f"{load.waiting} waiting"] if load.waiting else []
        return speeds

    def _read_load(self) -> Load | None:
        """Return the generator's load; None if it has none, or counts what no display can show."""
        try:
            load = self.get_load() if self.get_load else None
            if load is not None:
                counts = (load.busy, load.waiting, load.slots or 0, load.tokens or 0)
                return load if all(0 <= count <= MAX_COUNT for count in counts) else None
        except Exception as error:  # a generator's bug: the run goes on without its figures
            log.debug("the load of the generator cannot be shown: %s", make_line(error, MAX_REASON))
        return None

    @contextmanager
    def show(self) -> Iterator[None]:
        """Show the progress from a task of the running event loop; leave one line behind."""
        ticking = asyncio.ensure_future(self._tick())
        try:
            yield
        finally:
            ticking.cancel()
            self.printer.close()
            self.printer.print_line(self.render_line())

    async def _tick(self) -> None:
        while True:
            self.printer.show_status(self.render_line())
            await asyncio.sleep(0.5)
