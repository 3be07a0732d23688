"""The figures of many episodes, each with its bootstrap interval, for scoring, training and notebooks.

    print(viewbox.summarize(viewbox.load("runs/mine")))

Figures are means over tasks of each task's mean (`metrics.py`) and the metrics that an environment declares
(`viewbox.rewards.metrics`), under `metrics/<its name there>/<figure>`, which count every episode. Their bootstrap draws
tasks, each with all its episodes (`table.py`), and uses the same draws for all of them. Only a few numbers are kept of
each episode; of a metric that is a plain function of pairs, the pairs. An expensive metric (average precision of very
many boxes, a plain function) gets fewer draws.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from ...errors import ConfigError
from ...records import Episode, Scores
from ...rewards import ExactMatchReward
from ...rewards.looks import read_looks
from ...rewards.metrics import base
from ...utils.concurrency import contain_exit
from ...utils.terminal import make_line, make_printable
from ..store.layout import IMPORTED
from . import RULE
from .metrics import count_malformed, get_episode_values, get_play_values
from .saved_run import make_environment
from .table import CONFIDENCE, Interval, Table, draw_tasks, interval_of_draws

ABOUT = ("intervals", "counts")  # what the figures of a training run say of themselves
MAX_SHOWN = 200  # characters of a name: those of components come from the episodes
MIN_DRAWS = 200  # for any metric, however expensive
MAX_PROBLEMS = 5  # environments without metrics that are named
MAX_NUMBERS = 25_000_000  # that all draws of a metric may read: about half a second


@dataclass(frozen=True)
class Summary:
    """Figures by name, each with its interval. An undefined figure, such as mAP without references, is left out.
    `resamples` is the number of bootstrap draws. Expensive figures have fewer: `fewer_draws` gives their number.
    `problems` lists the metrics that failed."""

    episodes: int
    tasks: int
    figures: dict[str, Interval]
    resamples: int
    seed: int
    fewer_draws: dict[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Interval:
        return self.figures[name]

    def get_means(self) -> dict[str, float]:
        return {name: figure.mean for name, figure in self.figures.items()}

    def get_intervals(self) -> dict[str, list[float]]:
        """[low, high] of every figure with an interval."""
        return {
            name: [figure.low, figure.high]
            for name, figure in self.figures.items()
            if figure.low is not None and figure.high is not None
        }

    def get_counts(self) -> dict[str, int]:
        """Return the number of episodes that each figure counts."""
        return {name: figure.count for name, figure in self.figures.items()}

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "average": RULE, "confidence": CONFIDENCE}

    def __str__(self) -> str:
        figures = {make_line(name, MAX_SHOWN): figure for name, figure in self.figures.items()}
        width = max(map(len, figures), default=0)
        lines = [f"{name.ljust(width)}  {figure} of {figure.count:,}" for name, figure in figures.items()]
        problems = map(make_printable, self.problems)
        head = f"{self.episodes} episodes of {self.tasks} tasks ({RULE}; metrics/ and replies/ over episodes)"
        return "\n".join([head, *lines, *problems])


def summarize(episodes: Iterable[Episode], source: object = None, *, resamples: int = 1000, seed: int = 0) -> Summary:
    """Summarize the stored scores of `episodes`, and the metrics of `source`.

    Args:
        episodes: for example `viewbox.load("runs/mine")`; read once.
        source: an environment, its name, or metrics by name. Default: the environment named by each episode, which must
            be one of viewbox, because somebody else's episodes can name any code on this machine.
        resamples: bootstrap draws over tasks for the 95 % intervals of metrics; 0: no intervals at all.
        seed: seed of the bootstrap. The same seed gives the same intervals.

    >>> from viewbox.records import Scores, Task
    >>> from viewbox.rewards.metrics import Accuracy
    >>> episodes = [Episode(Task(str(n), reference={"label": "a"}), answer={"label": "ab"[n % 2]}) for n in range(100)]
    >>> summarize(episodes, {"label": Accuracy("label")})["metrics/label/accuracy"].mean
    0.5
    """
    tally = EpisodeTally(source)
    for episode in episodes:
        tally.add(episode)
    return tally.summarize(resamples, seed=seed)


class EnvironmentMetrics:
    """The metrics of a mapping, an environment or its name; without any, those of each episode's environment.
    `source` is the caller's own, unless `foreign` says that a run's files name it."""

    def __init__(self, source: Any = None, *, foreign: bool = False) -> None:
        self.source = source
        self.problems: dict[str, str] = {}  # by the environment that cannot be created
        self._is_yours = source is not None and not foreign
        self._by_name: dict[str, Mapping[str, base.Metric]] = {}

    @property
    def names_environment(self) -> bool:
        """Whether the metrics of an episode depend on the environment that it names."""
        return self.source is None or hasattr(self.source, "metrics_of")

    def get_metrics(self, environment: str) -> Mapping[str, base.Metric]:
        """Return the metrics of an episode of this environment.

        >>> EnvironmentMetrics().get_metrics("nowhere"), EnvironmentMetrics({}).get_metrics("nowhere")
        ({}, {})
        """
        if isinstance(self.source, Mapping):
            return self.source
        if self.source is not None and not isinstance(self.source, str):
            if self.names_environment:
                return dict(self.source.metrics_of(environment))
            return getattr(self.source, "metrics", {})
        name = self.source or environment
        if name not in self._by_name:
            self._by_name[name] = self._make_metrics(name) if name else {}
        return self._by_name[name]

    def _make_metrics(self, name: str) -> Mapping[str, base.Metric]:
        try:
            env = make_environment(name, {}, "", is_yours=self._is_yours, reward=ExactMatchReward())
            return getattr(env, "metrics", {})
        except ConfigError as error:
            said = f"no metrics of the environment {name!r:.200}: {error}"
            if name == IMPORTED:
                said = "imported episodes have no metrics, and the scores that they came with unless --reward is given"
            if len(self.problems) < MAX_PROBLEMS:
                self.problems[name] = said
            return {}


class MetricSamples:
    """A metric, and its rows: what it needs of each episode."""

    def __init__(self, metric: base.Metric) -> None:
        self.metric = metric
        self._episodes = array("q")
        self._rows: list[Any] = []
        self.failures = 0  # pairs that the metric could not read
        self.first_failure: Exception | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, episode: int, answer: Any, reference: Mapping[str, Any]) -> None:
        """Add the answer and reference of episode number `episode`; a pair that cannot be read costs itself."""
        try:
            with contain_exit():
                row: Any = answer, reference
                if isinstance(self.metric, base.PairMetric):
                    row = self.metric.extract_stats(answer, reference)
        except Exception as error:
            self.failures += 1
            self.first_failure = self.first_failure or error
        else:
            self._episodes.append(episode)
            self._rows.append(row)

    def prepare(self, ranks: np.ndarray, tasks: np.ndarray) -> base.PreparedMetric:
        """Prepare the rows for the bootstrap. `ranks`: the order of the rows, (episodes,). `tasks`: the number of each
        episode's task, (episodes,). Raises what the metric raised in `add` if it could read no pair."""
        if self.first_failure is not None and not self._rows:
            raise self.first_failure
        episodes = np.array(self._episodes, int)
        order = np.argsort(ranks[episodes])
        rows, groups = [self._rows[i] for i in order.tolist()], tasks[episodes[order]]
        if isinstance(self.metric, base.PairMetric):
            return self.metric.prepare(rows, groups)
        return base.ResampledMetric(self.metric, rows, groups)


def compute_metric(
    prepared: base.PreparedMetric, rows: int, tasks: int, resamples: int, seed: int
) -> tuple[dict[str, Interval], int]:
    """Return every defined figure of a metric of `rows` episodes over those that it counts, by name, and how many draws
    its interval is of: an expensive one has fewer, and a single task none. Raises what the metric raises."""
    values = prepared.compute_figures(np.ones((1, tasks)))[0]
    number = min(resamples, max(MIN_DRAWS, MAX_NUMBERS // max(1, prepared.effort)))
    blocks = draw_tasks(tasks, number, seed) if tasks > 1 else ()
    draws = np.concatenate([np.empty((0, len(values))), *map(prepared.compute_figures, blocks)])
    figures = {}
    for name, value, column, count in zip(prepared.names, values, draws.T, prepared.counted, strict=True):
        if not np.isnan(value):
            counted = max(1, round(tasks * count / max(1, rows)))  # the tasks of the episodes that it counts
            figures[name] = Interval(float(value), *interval_of_draws(float(value), column, counted), count, counted)
    return figures, number


class WellFormed(base.PairMetric):
    """The share of replies that were not malformed. Its "answer" holds the counts of one episode."""

    name = "well_formed"

    def extract_stats(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> tuple[float, float]:
        assert answer is not None
        return answer["malformed"], answer["replies"]

    def prepare(self, rows: Sequence[tuple[float, float]], groups: np.ndarray) -> base.PreparedMetric:
        sums = base.sum_by_group(np.array(rows, float).reshape(len(rows), 2), groups)
        return base.SumFigures([self.name], len(rows), sums, lambda sums: 1 - base.divide(sums[:, :1], sums[:, 1:]))


class EpisodeTally:
    """Collects the numbers of episodes one by one; `scores=False` leaves out their stored scores.
    The metrics are `metrics`, or those of `source`, as in `EnvironmentMetrics`."""

    def __init__(self, source: Any = None, *, scores: bool = True, metrics: EnvironmentMetrics | None = None) -> None:
        self.table, self.scores = Table(), scores
        self.metrics = metrics or EnvironmentMetrics(source)
        self._metric_samples: dict[tuple[str, str], MetricSamples] = {}  # by environment and name
        self._well_formed = MetricSamples(WellFormed())
        self._sample_numbers = array("q")  # per episode: its number among the episodes of its task

    def add(
        self, episode: Episode, more: Mapping[str, float | None] = {}, group: str = "", scores: Scores | None = None
    ) -> None:
        """Add one episode, with `more` of its numbers, and new `scores` in place of its own. Metrics leave out what the
        mean reward leaves out: an episode that a fault ended, or without a score because a component failed."""
        row = self.table.rows
        values = get_episode_values(episode) if self.scores else get_play_values(episode)
        if not self.scores:  # what is right depends on the new scores
            values |= read_looks(episode, scores=scores).measure()
        self.table.add(episode.task.id, {**values, **more}, group)
        sample = episode.info.get("sample")
        self._sample_numbers.append(sample if isinstance(sample, int) and abs(sample) < 2**63 else 0)
        self._well_formed.add(row, {"malformed": count_malformed(episode), "replies": values["episodes/turns"]}, {})
        scores = scores or episode.scores
        if episode.is_fault or (scores is not None and scores.total is None and scores.faults):
            return  # it says nothing about the policy: the mean reward leaves it out, too
        environment = episode.environment if self.metrics.names_environment else ""
        for name, metric in self.metrics.get_metrics(episode.environment).items():
            samples = self._metric_samples.get((environment, name))
            if samples is None:
                samples = self._metric_samples[environment, name] = MetricSamples(metric)
            samples.add(row, episode.answer, episode.task.reference)

    def summarize(self, resamples: int, *, seed: int, change: tuple[str, str] | None = None) -> Summary:
        """Compute the figures of all episodes added so far; more may be added afterwards.
        `change` is that of `Table.compute_intervals`."""
        tasks = self.table.tasks
        figures, fewer_draws = self.table.compute_intervals(resamples > 0, change), dict[str, int]()
        problems = list(self.metrics.problems.values())
        ranks = self._rank_episodes()
        for prefix, samples in self._group_by_prefix().items():
            try:
                with contain_exit():
                    prepared = samples.prepare(ranks, self.table.task_numbers)
                    computed, number = compute_metric(prepared, len(samples), tasks, resamples, seed)
            except Exception as error:  # a failing metric must not end a training run
                problems.append(f"{prefix}: this metric failed and is left out: {type(error).__name__}: {error}")
                continue
            if samples.failures:
                why = f"{type(samples.first_failure).__name__}: {samples.first_failure}"
                problems.append(f"{prefix}: {samples.failures} episodes are left out of this metric; the first: {why}")
            prefixed = {f"{prefix}/{name}": figure for name, figure in computed.items()}
            figures |= prefixed
            fewer_draws |= dict.fromkeys(prefixed, number) if number < resamples else {}
        problems += self.table.describe_dropped()
        return Summary(self.table.rows, tasks, figures, resamples, seed, fewer_draws, tuple(problems))

    def _group_by_prefix(self) -> dict[str, MetricSamples]:
        """Return the samples of each metric by the prefix of its figures, which names the environment if there are
        several."""
        several = len({environment for environment, _ in self._metric_samples}) > 1
        groups = {"replies": self._well_formed} if self.table.rows else {}
        for (environment, name), samples in self._metric_samples.items():
            groups["/".join(["metrics", *([environment] if several else []), name])] = samples
        return groups

    def _rank_episodes(self) -> np.ndarray:
        """Return the rank of each episode by task and sample, so that figures do not depend on which episode ended
        first."""
        ids = self.table.task_ids
        place = {task: number for number, task in enumerate(sorted(ids))}
        places = np.array([place[task] for task in ids], int)[self.table.task_numbers]
        order = np.lexsort((np.array(self._sample_numbers, int), places))
        ranks = np.empty(len(order), int)
        ranks[order] = np.arange(len(order))
        return ranks
