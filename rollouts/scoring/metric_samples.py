"""The samples of an environment's metrics, and their bootstrap.

For viewbox's own metrics, a few numbers are kept of each pair of answer and reference; for a plain function of pairs,
the pairs. An expensive metric (average precision of very many boxes, a plain function) gets fewer bootstrap draws.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import ConfigError
from ...rewards import ExactMatchReward
from ...rewards.metrics.base import (
    Metric,
    PairMetric,
    PreparedMetric,
    ResampledMetric,
    SumFigures,
    divide,
    sum_by_group,
)
from ...utils.concurrency import contain_exit
from .table import Interval, compute_interval
from .trust import NO_TRUST, Trust, make_environment

MIN_DRAWS = 200  # for any metric, however expensive
MAX_PROBLEMS = 5  # environments without metrics that are named
MAX_NUMBERS = 25_000_000  # that all draws of a metric may read: about half a second


class EnvironmentMetrics:
    """The metrics of a mapping, an environment or its name; without any, those of each episode's environment.

    `trust` is what a name in the episodes may do; `source` is the caller's own, unless `foreign` says that a run's
    files name it.
    """

    def __init__(self, source: Any = None, *, trust: Trust = NO_TRUST, foreign: bool = False) -> None:
        self.source = source
        self.problems: dict[str, str] = {}  # by the environment that cannot be created
        self._trust = trust if foreign or source is None else Trust(code=True)
        self._by_name: dict[str, Mapping[str, Metric]] = {}

    @property
    def names_environment(self) -> bool:
        """Whether the metrics of an episode depend on the environment that it names."""
        return self.source is None or hasattr(self.source, "metrics_of")

    def get_metrics(self, environment: str) -> Mapping[str, Metric]:
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

    def _make_metrics(self, name: str) -> Mapping[str, Metric]:
        try:
            env = make_environment(name, {}, "", self._trust, reward=ExactMatchReward())
            return getattr(env, "metrics", {})
        except ConfigError as error:
            if len(self.problems) < MAX_PROBLEMS:
                self.problems[name] = f"no metrics of the environment {name!r:.200}: {error}"
            return {}


class MetricSamples:
    """A metric, and its rows: what it needs of each episode."""

    def __init__(self, metric: Metric) -> None:
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
                if isinstance(self.metric, PairMetric):
                    row = self.metric.extract_stats(answer, reference)
        except Exception as error:
            self.failures += 1
            self.first_failure = self.first_failure or error
        else:
            self._episodes.append(episode)
            self._rows.append(row)

    def prepare(self, ranks: np.ndarray, tasks: np.ndarray) -> PreparedMetric:
        """Prepare the rows for the bootstrap.

        Args:
            ranks: the order of the rows, (episodes,).
            tasks: the number of each episode's task, (episodes,).

        Raises what the metric raised in `add` if it could read no pair.
        """
        if self.first_failure is not None and not self._rows:
            raise self.first_failure
        episodes = np.array(self._episodes, int)
        order = np.argsort(ranks[episodes])
        rows, groups = [self._rows[i] for i in order.tolist()], tasks[episodes[order]]
        if isinstance(self.metric, PairMetric):
            return self.metric.prepare(rows, groups)
        return ResampledMetric(self.metric, rows, groups)


class MetricBootstrap:
    """A metric's figures of all episodes, and of every bootstrap draw. Raises what the metric raises."""

    def __init__(self, prepared: PreparedMetric, tasks: int) -> None:
        self.prepared, self.tasks = prepared, tasks
        self.values = prepared.compute_figures(np.ones((1, tasks)))[0]
        self._draws = np.empty((0, len(self.values)))
        self.max_draws = max(MIN_DRAWS, MAX_NUMBERS // max(1, prepared.effort))

    def draw(self, draws: Iterable[np.ndarray]) -> None:
        """Compute the figures of `draws` (`table.draw_tasks`); a single task gives no interval."""
        if self.tasks > 1:
            self._draws = np.concatenate([self._draws, *map(self.prepared.compute_figures, draws)])

    def compute_figures(self, prefix: str) -> dict[str, Interval]:
        """Return every defined figure, over the episodes that it counts, by its full name."""
        prepared = self.prepared
        return {
            prefix + name: Interval(float(value), *compute_interval(column), count)
            for name, value, column, count in zip(
                prepared.names, self.values, self._draws.T, prepared.counted, strict=True
            )
            if not np.isnan(value)
        }


class WellFormed(PairMetric):
    """The share of replies that were not malformed. Its "answer" holds the counts of one episode."""

    name = "well_formed"

    def extract_stats(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> tuple[float, float]:
        assert answer is not None
        return answer["malformed"], answer["replies"]

    def prepare(self, rows: Sequence[tuple[float, float]], groups: np.ndarray) -> PreparedMetric:
        sums = sum_by_group(np.array(rows, float).reshape(len(rows), 2), groups)
        return SumFigures([self.name], len(rows), sums, lambda sums: 1 - divide(sums[:, :1], sums[:, 1:]))
