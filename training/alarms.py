"""Warnings while a run can still be saved: tool use that collapses, groups that teach nothing, episodes cut off.

Each looks at the mean of the last `STEPS` logs. It is said once, and again only after it has been well in between.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from transformers import TrainerCallback

STEPS = 5


@dataclass(frozen=True)
class Alarm:
    """`metric` averaged over the last logs is below `low` or above `high`; `advice` says what may help."""

    metric: str
    words: str
    advice: str
    low: float = float("-inf")
    high: float = float("inf")
    only_after: float | None = None  # a level the metric must have had before: a collapse, not a beginning


ALARMS = (
    Alarm(
        "tools/rate",
        "tool use has collapsed: {value:.0%} of the episodes call a tool, at most {best:.0%} did",
        "is the tool worth its turn? see rewards/*/mean of episodes with and without it; lower train.learning_rate",
        low=0.05,
        only_after=0.2,
    ),
    Alarm(
        "frac_reward_zero_std",
        "{value:.0%} of the groups have no variance in their rewards and teach nothing",
        "tasks are too easy or too hard, or samples too alike: change env, raise rollout.temperature or "
        "train.num_generations",
        high=0.8,
    ),
    Alarm(
        "episodes/truncated",
        "{value:.0%} of the episodes are truncated (no answer)",
        "see end/*: raise rollout.max_completion_tokens, rollout.max_reply_tokens or env.max_turns",
        high=0.5,
    ),
)


class Alarms(TrainerCallback):
    """Tells when one of `ALARMS` goes off; `raised` keeps (step, words) for the summary."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.tell = tell
        self.raised: list[tuple[int, str]] = []
        self._recent = {alarm.metric: deque[float](maxlen=STEPS) for alarm in ALARMS}
        self._best: dict[str, float] = {}
        self._on: set[str] = set()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        for alarm in ALARMS:
            value = (logs or {}).get(alarm.metric)
            if value is not None and state.is_world_process_zero:
                self._look(alarm, value, state.global_step)

    def _look(self, alarm: Alarm, value: float, step: int) -> None:
        recent = self._recent[alarm.metric]
        recent.append(value)
        if len(recent) < STEPS:
            return
        mean = sum(recent) / STEPS
        best = self._best[alarm.metric] = max(mean, self._best.get(alarm.metric, mean))
        wrong = not alarm.low <= mean <= alarm.high and (alarm.only_after is None or best >= alarm.only_after)
        if wrong and alarm.metric not in self._on:
            words = alarm.words.format(value=mean, best=best)
            self.raised.append((step, words))
            self.tell(f"warning: {words} (last {STEPS} steps)\n  {alarm.advice}")
        (self._on.add if wrong else self._on.discard)(alarm.metric)
