"""Callbacks that watch a run: they write metrics.jsonl, print progress, raise alarms and handle Ctrl-C.

Each is a `TrainerCallback` of transformers. None changes the training; only `Interrupt` may end it early.
"""

import json
import math
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import fmean
from types import FrameType
from typing import Any

from accelerate.utils import gather_object
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ...rollouts.scoring.metrics import format_part
from .report import ProgressPrinter, format_duration

ALARM_STEPS = 5  # an alarm looks at the mean of this many logs
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class MetricsFile(TrainerCallback):
    """Appends every log of the trainer to metrics.jsonl, and prints a line every `every` steps."""

    def __init__(self, path: Path, printer: ProgressPrinter, every: int = 1) -> None:
        self.path, self.printer, self.every = path, printer, every
        self.started = time.monotonic()
        self.first_step = 0
        self._is_first = True

    def on_train_begin(self, args: object, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        self.started, self.first_step = time.monotonic(), state.global_step

    def on_train_end(self, args: object, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        self.printer.close()

    def on_log(self, args: Any, state: TrainerState, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if not state.is_world_process_zero or not logs:
            return
        with self.path.open("a") as file:
            file.write(json.dumps({"step": state.global_step, **logs}) + "\n")
        if "loss" in logs or "reward" in logs:
            line = self._format_step(state, logs)
            self.printer.show_status(line)
            is_due = state.global_step % self.every == 0 or "held_out/reward" in logs
            if is_due or state.global_step == state.max_steps:
                self.printer.print_line(line)
            if self._is_first:
                self._print_speed(state)

    def _print_speed(self, state: TrainerState) -> None:
        """Say after the first step how long the others will take."""
        self._is_first = False
        seconds = (time.monotonic() - self.started) / max(1, state.global_step - self.first_step)
        todo = state.max_steps - state.global_step
        if todo > 0:
            left = format_duration(todo * seconds)
            self.printer.print_line(f"about {seconds:.3g} s a step: {left} for the other {todo}")

    def _format_step(self, state: TrainerState, logs: Mapping[str, Any]) -> str:
        done = state.global_step - self.first_step
        left = (state.max_steps - state.global_step) * (time.monotonic() - self.started) / max(1, done)
        parts = [f"step {state.global_step}/{state.max_steps}"]
        for name, label in _SHOWN.items():
            if logs.get(name) is not None:  # TRL logs None if a step has no value, e.g. if every sample was dropped
                share = format_part(logs.get("episodes/scored")) if name == "reward" else ""
                parts.append(f"{label} {logs[name]:.2f}{share}")
        for name, label in (("episodes/faults", "faults"), ("reward/faults", "reward faults")):
            if logs.get(name):
                parts.append(f"{label} {logs[name]:.0%}")
        if logs.get("held_out/reward") is not None:
            share = format_part(logs.get("held_out/episodes/scored"))
            blind = "" if logs.get("held_out/blind") is None else f", blind {logs['held_out/blind']:.3f}"
            parts.append(f"held-out {logs['held_out/reward']:.3f}{share} (best {logs['held_out/best']:.3f}{blind})")
        if logs.get("time/episodes_per_second") is not None:
            parts.append(f"{logs['time/episodes_per_second']:.1f} episodes/s")
        if "reward" not in logs:
            parts.append(f"loss {float(logs['loss']):.3f}")
        return "  ".join([*parts, f"{format_duration(left)} left"])


_SHOWN = {
    "reward": "reward",
    "tools/rate": "tool rate",
    "verdict/search": "not found",
    "verdict/decision": "misread",
    "episodes/truncated": "truncated",
}


@dataclass(frozen=True)
class Alarm:
    """Fires if the mean of a metric over the last logs is below `low`, below `share` of its best mean so far, or above
    `high`, or by `rise` above its lowest mean; `advice` says what may help. `metric` may hold a `*` for the name of a
    tool."""

    metric: str
    message: str
    advice: str
    low: float = float("-inf")
    high: float = float("inf")
    share: float = 0.0
    rise: float = float("inf")
    only_after: float = 0.0  # the mean must have been this high before: a collapse, not a slow start


ALARMS = (
    Alarm(
        "tools/rate",
        "tool use has collapsed: a tool runs in {value:.0%} of the episodes, down from {best:.0%}",
        "is the tool worth its turn? compare rewards/*/mean of episodes with and without it; lower train.learning_rate",
        share=0.25,
        only_after=0.1,
    ),
    Alarm(
        "tools/*/raised",
        "the tool {tool} raises in {value:.0%} of its calls: a fault of the environment's",
        "see the warnings above: is its server down? what the model did wrong is a ToolError (docs/authoring.md)",
        high=0.1,
    ),
    Alarm(
        "tools/*/success",
        "{value:.0%} of the calls of the tool {tool} succeed",
        "read the errors with viewbox view; a model that does not know the tool needs a supervised warm start "
        "(docs/families.md)",
        low=0.25,
    ),
    Alarm(
        "replies/well_formed",
        "{value:.0%} of the replies can be read",
        "the model does not know the format of a reply: begin with a supervised warm start (docs/families.md)",
        low=0.5,
    ),
    Alarm(
        "groups/idle",
        "{value:.0%} of the groups teach nothing: their advantages are all 0, as of equal rewards",
        "tasks are too easy or too hard, or samples too similar: change env, raise rollout.temperature or "
        "train.num_generations",
        high=0.8,
    ),
    Alarm(
        "episodes/truncated",
        "{value:.0%} of the episodes are truncated (no answer)",
        "see end/*: malformed: begin with a supervised warm start (docs/families.md); max_tokens: raise "
        "rollout.max_completion_tokens or rollout.max_reply_tokens; max_turns: raise env.max_turns",
        high=0.5,
    ),
    Alarm(
        "episodes/faults",
        "{value:.0%} of the episodes end by a fault (error, timeout) and teach nothing",
        "see end/* and the warnings above: is a tool's server down, can an image not be opened, is rollout.timeout too "
        "short?",
        high=0.1,
    ),
    Alarm(
        "reward/faults",
        "the reward fails on {value:.0%} of the episodes, which teach nothing",
        "see reward/faults/* and the warnings above: does a reward raise, or is a judge down?",
        high=0.1,
    ),
    Alarm(
        "sampling/logp_difference/mean",
        "the policy that plays is not the one that learns: their log-probs differ by {value:.1g} in the mean",
        "both should be exact but for rounding: see docs/how_it_works.md, and report it with the run's config",
        high=1e-3,  # in float32; `ROUNDED` in two bytes
    ),
    Alarm(
        "entropy",
        "the entropy of the policy has fallen to {value:.2g}, from {best:.2g}: it tries little else any more",
        "stop here if the reward no longer rises; lower train.learning_rate, raise rollout.temperature or train.beta",
        share=0.25,
    ),
    Alarm(
        "*answers/beyond_right",
        "most answers are the same, whatever is asked: by {value:.0%} more of them than right answers are",
        "read them with viewbox view: does the reward pay for an answer that is right only now and then?",
        high=0.4,
    ),
    Alarm(
        "verdict/blind",
        "right answers without looking rise: {value:.0%} of the episodes, from {least:.0%}",
        "can the question be answered without the picture? viewbox evaluate --pictures real,blank; see docs/looking.md",
        rise=0.15,
    ),
    Alarm(
        "held_out/apart",
        "the reward has moved away from that of held-out tasks, by {value:.2f}",
        "what is learned holds for the training tasks only: log.eval_steps and log.keep_best save the best weights",
        high=0.25,
    ),
)
ROUNDED = 0.1  # largest mean difference of log-probs in two bytes; rounding makes about 0.02


class Alarms(TrainerCallback):
    """Prints a warning once if one of `ALARMS` fires for a metric; it can fire again after the metric has recovered.
    A metric is looked at over `ALARM_STEPS` logs, or all of a run with fewer; that of held-out play at once. `fired`
    holds (step, message) for the summary."""

    def __init__(self, print_line: Callable[[str], None], *, is_served: bool = False) -> None:
        self.print_line, self.is_served = print_line, is_served  # by a server, which may round
        self.fired: list[tuple[int, str]] = []
        self._recent: dict[str, deque[float]] = {}
        self._best: dict[str, float] = {}
        self._least: dict[str, float] = {}
        self._active: set[str] = set()
        self._rewards: list[float] = []
        self._held_out: list[tuple[int, float]] = []  # how many rewards were logged before, and that of held-out play
        self.limits: dict[str, float] = {}  # other than `Alarm.high`

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        if hasattr(args, "num_iterations"):
            rounds = self.is_served or args.bf16 or args.fp16
            rounds = rounds or next(kwargs["model"].parameters()).element_size() <= 2
            reused = args.gradient_accumulation_steps % (args.steps_per_generation * args.num_iterations)
            self.limits["sampling/logp_difference/mean"] = math.inf if reused else ROUNDED if rounds else 1e-3

    def on_log(self, args: Any, state: TrainerState, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if not state.is_world_process_zero or not logs:
            return
        whole = max(1, state.max_steps // state.logging_steps)
        for name, value in {**logs, **self._measure_apart(logs)}.items():
            for alarm in ALARMS:
                if fnmatchcase(name, alarm.metric) and value is not None and math.isfinite(value):
                    needed = 1 if name.startswith("held_out/") else min(ALARM_STEPS, whole)
                    self._update(alarm, name, value, state.global_step, needed)

    def _update(self, alarm: Alarm, name: str, value: float, step: int, needed: int) -> None:
        recent = self._recent.setdefault(name, deque(maxlen=needed))
        recent.append(value)
        if len(recent) < needed:
            return
        mean = sum(recent) / needed
        best = self._best[name] = max(mean, self._best.get(name, mean))
        least = self._least[name] = min(mean, self._least.get(name, mean))
        high = min(self.limits.get(name, alarm.high), least + alarm.rise)
        wrong = not max(alarm.low, alarm.share * best) <= mean <= high and best >= alarm.only_after
        if wrong and name not in self._active:
            tool = name.removeprefix("tools/").rpartition("/")[0]
            message = alarm.message.format(value=mean, best=best, least=least, tool=tool)
            self.fired.append((step, message))
            self.print_line(f"warning: {message} (last {needed} step{'s' * (needed > 1)})\n  {alarm.advice}")
        (self._active.add if wrong else self._active.discard)(name)

    def _measure_apart(self, logs: Mapping[str, Any]) -> dict[str, float]:
        """Return by how much the reward exceeds that of held-out play, more than it did at the closest."""
        if logs.get("reward") is not None:
            self._rewards.append(logs["reward"])
        if logs.get("held_out/reward") is not None:
            self._held_out.append((len(self._rewards), logs["held_out/reward"]))
        if logs.get("held_out/reward") is None or not self._rewards:
            return {}
        begin = self._rewards[:ALARM_STEPS]
        gaps = [fmean(self._rewards[max(0, n - ALARM_STEPS) : n] or begin) - reward for n, reward in self._held_out]
        return {"held_out/apart": gaps[-1] - min(gaps)}


class Interrupt(TrainerCallback):
    """Stops training at Ctrl-C or SIGTERM: after the current step and with a checkpoint; at the second signal, and in
    held-out play, at once. `stopped` is true if training ended because of a signal."""

    def __init__(self) -> None:
        self.requested = self.stopped = False
        self.in_held_out_play = False

    @contextmanager
    def handle_signals(self) -> Iterator[None]:
        """Inside the block signals stop the run; afterward they are handled as before."""
        handlers = {number: signal.signal(number, self._handle_signal) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def _handle_signal(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        for each in SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        if self.in_held_out_play:
            raise KeyboardInterrupt
        # os.write, because the signal may have interrupted a print
        os.write(2, b"\nstopping after this step, with a checkpoint; press Ctrl-C again to stop at once\n")

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        requested = any(gather_object([self.requested]))  # of all processes: they must stop after the same step
        if requested:
            self.stopped = control.should_save = control.should_training_stop = True
