"""What many episodes come to, every figure with its bootstrap interval: one place for scoring, training and notebooks.

    print(viewbox.summarize(viewbox.load("runs/mine")))

Figures are means over episodes (`metrics.py`) and the metrics an environment declares (`viewbox.rewards.metrics`),
under `metrics/<its name there>/<figure>`. Tasks are drawn, each with all its episodes (`bootstrap.py`), the same ones
for all figures. Of an episode only a few numbers are kept.
"""

from array import array
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from viewbox.records import Episode
from viewbox.rollouts.scoring.bootstrap import CONFIDENCE, Interval, Samples, drawings
from viewbox.rollouts.scoring.metric_samples import Drawn, EnvironmentMetrics, Kept, WellFormed
from viewbox.rollouts.scoring.metrics import episode_values

SCORES = ("reward", "rewards")  # how the names of what was scored begin


@dataclass(frozen=True)
class Summary:
    """Figures by name, each with its interval. A figure that is not defined, such as mAP without gold, is not there.

    `resamples` drawings were made, for some metrics only as many as `fewer` says; `problems` tells what went wrong.
    """

    episodes: int
    tasks: int
    figures: dict[str, Interval]
    resamples: int
    seed: int
    fewer: dict[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Interval:
        return self.figures[name]

    def values(self) -> dict[str, float]:
        """The figures without their intervals."""
        return {name: figure.mean for name, figure in self.figures.items()}

    def intervals(self) -> dict[str, list[float]]:
        """[low, high] of every figure that has an interval."""
        return {
            name: [figure.low, figure.high]
            for name, figure in self.figures.items()
            if figure.low is not None and figure.high is not None
        }

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "confidence": CONFIDENCE}

    def __str__(self) -> str:
        width = max(map(len, self.figures), default=0)
        lines = [f"{name.ljust(width)}  {figure}" for name, figure in self.figures.items()]
        return "\n".join([f"{self.episodes} episodes of {self.tasks} tasks", *lines, *self.problems])


def summarize(episodes: Iterable[Episode], source: Any = None, *, resamples: int = 1000, seed: int = 0) -> Summary:
    """The figures of `episodes` as they were scored, and the metrics of `source`.

    `source` is an environment, its name, or metrics by name; by default every episode's own environment. Intervals are
    95 % percentiles of `resamples` bootstrap drawings over tasks; 0: none. The same seed gives the same intervals.

    >>> from viewbox.records import Scores, Task
    >>> from viewbox.rewards.metrics import Accuracy
    >>> said = [Episode(Task(str(n), reference={"label": "a"}), answer={"label": "ab"[n % 2]}) for n in range(100)]
    >>> summarize(said, {"label": Accuracy("label")})["metrics/label/accuracy"]
    Interval(mean=0.5, low=0.4, high=0.6, count=100)
    """
    tally = Tally(source)
    for episode in episodes:
        tally.add(episode)
    return tally.summary(resamples, seed=seed)


class Tally:
    """The numbers of the episodes seen so far; `scores=False`: without those of their scores."""

    def __init__(self, source: Any = None, *, scores: bool = True) -> None:
        self.samples, self.metrics, self.scores = Samples(), EnvironmentMetrics(source), scores
        self._kept: dict[tuple[str, str], Kept] = {}  # by environment and name
        self._well_formed = Kept(WellFormed())
        self._of_task = array("q")  # of each episode: which of its task's it is

    def add(self, episode: Episode) -> None:
        """One episode."""
        values = episode_values(episode)
        if not self.scores:
            values = {name: value for name, value in values.items() if name.partition("/")[0] not in SCORES}
        row = self.samples.rows
        self.samples.add(episode.task.id, values)
        sample = episode.info.get("sample")
        self._of_task.append(sample if isinstance(sample, int) else 0)
        self._well_formed.add(row, {"malformed": episode.info.get("malformed", 0), "replies": episode.num_turns}, {})
        for name, metric in self.metrics.of(episode.environment).items():
            environment = episode.environment if self.metrics.source is None else ""
            kept = self._kept.setdefault((environment, name), Kept(metric))
            kept.add(row, episode.answer, episode.task.reference)

    def summary(self, resamples: int, *, seed: int) -> Summary:
        """The figures of all that was added."""
        tasks = self.samples.tasks
        figures, fewer = self.samples.intervals(resamples, seed=seed), dict[str, int]()
        problems = list(self.metrics.problems.values())
        order = self._order()
        for prefix, kept in self._by_prefix().items():
            try:
                one = Drawn(kept.prepared(order, self.samples.task_numbers), tasks)
                number = min(resamples, one.most)
                one.draw(drawings(tasks, number, seed))
            except Exception as error:  # a metric written elsewhere must not end a training run
                problems.append(f"{prefix}: this metric failed and is left out: {type(error).__name__}: {error}")
                continue
            found = one.figures(f"{prefix}/", len(kept))
            figures |= found
            fewer |= dict.fromkeys(found, number) if number < resamples else {}
        return Summary(self.samples.rows, tasks, figures, resamples, seed, fewer, tuple(problems))

    def _by_prefix(self) -> dict[str, Kept]:
        """What was kept, by the beginning of its figures' names; of several environments, theirs stand there too."""
        several = len({environment for environment, _ in self._kept}) > 1
        found = {"replies": self._well_formed} if self.samples.rows else {}
        for (environment, name), kept in self._kept.items():
            found["/".join(["metrics", *([environment] if several else []), name])] = kept
        return found

    def _order(self) -> np.ndarray:
        """A rank for each episode, by task and sample: episodes are stored as they end, and a ranking may see that."""
        ids, task = self.samples.task_ids, self.samples.task_numbers.tolist()
        order = sorted(range(len(task)), key=lambda row: (ids[task[row]], self._of_task[row]))
        ranks = np.empty(len(order), int)
        ranks[order] = np.arange(len(order))
        return ranks
