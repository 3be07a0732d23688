"""How a run goes: metrics.jsonl for programs, lines for the person who watches."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text
from transformers import TrainerCallback


class Teller:
    """Lines that stay, and on a terminal one line below them that changes."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False, soft_wrap=True)
        self._live: Live | None = None

    def tell(self, line: str) -> None:
        """Prints a line."""
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def status(self, line: str) -> None:
        """Shows what is happening now; nothing where the output is not a terminal."""
        if not self.console.is_terminal:
            return
        if self._live is None:
            self._live = Live(console=self.console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(Text(line), refresh=True)

    def close(self) -> None:
        """Takes the changing line away."""
        if self._live is not None:
            self._live.stop()
            self._live = None


class MetricsFile(TrainerCallback):
    """Appends every log of the trainer to metrics.jsonl and tells a person how it goes, a line every `every` steps."""

    def __init__(self, path: Path, teller: Teller, every: int = 1) -> None:
        self.path, self.teller, self.every = path, teller, every
        self.started = time.monotonic()
        self.first_step = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.started, self.first_step = time.monotonic(), state.global_step

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.teller.close()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        if not state.is_world_process_zero or not logs:
            return
        with self.path.open("a") as file:
            file.write(json.dumps({"step": state.global_step, **logs}) + "\n")
        if "loss" in logs or "reward" in logs:
            line = self._line(state, logs)
            self.teller.status(line)
            if state.global_step % self.every == 0 or state.global_step == state.max_steps:
                self.teller.tell(line)

    def _line(self, state: Any, logs: Mapping[str, Any]) -> str:
        done = state.global_step - self.first_step
        left = (state.max_steps - state.global_step) * (time.monotonic() - self.started) / max(1, done)
        parts = [f"step {state.global_step}/{state.max_steps}"]
        for name, label in (("reward", "reward"), ("tools/rate", "tool rate"), ("episodes/truncated", "truncated")):
            if logs.get(name) is not None:  # TRL logs None where a step has no number: every sample dropped, say
                parts.append(f"{label} {logs[name]:.2f}")
        if logs.get("time/episodes_per_second") is not None:
            parts.append(f"{logs['time/episodes_per_second']:.1f} episodes/s")
        if "reward" not in logs:
            parts.append(f"loss {float(logs['loss']):.3f}")
        return "  ".join([*parts, f"{clock(left)} left"])


def clock(seconds: float) -> str:
    """Seconds as a person reads them.

    >>> clock(75), clock(3 * 86400 + 7200)
    ('1:15', '3 d 2:00:00')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    short = f"{hours}:{minutes:02d}:{rest:02d}" if hours or days else f"{minutes}:{rest:02d}"
    return f"{days} d {short}" if days else short
