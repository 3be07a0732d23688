"""How a run goes: metrics.jsonl for programs, a line for the person who watches."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from transformers import TrainerCallback


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
