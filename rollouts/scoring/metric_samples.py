"""What is kept of episodes for the metrics of their environment, and how often it is drawn from.

viewbox's own metrics keep a few numbers of a pair of answer and reference; of a plain function of pairs the pairs are
kept. A metric that costs much a drawing (average precision of very many boxes, a plain function) is drawn less often.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from viewbox.errors import ConfigError
from viewbox.rewards.metrics.base import Counted, Metric, Prepared, Repeated, Sums, by_group, ratio
from viewbox.rollouts.scoring.bootstrap import Interval, ends

FEWEST = 200  # drawings of a metric, however much one costs
MOST_NUMBERS = 25_000_000  # that may be touched by all of them: about half a second


class EnvironmentMetrics:
    """The metrics of episodes: those of a mapping, of an environment or its name, or of the one each episode names."""

    def __init__(self, source: Any = None) -> None:
        self.source = source
        self.problems: dict[str, str] = {}  # by environment that cannot be made
        self._found: dict[str, Mapping[str, Metric]] = {}

    def of(self, environment: str) -> Mapping[str, Metric]:
        """The metrics of an episode that names this environment.

        >>> EnvironmentMetrics().of("nowhere"), EnvironmentMetrics({}).of("nowhere")
        ({}, {})
        """
        if isinstance(self.source, Mapping):
            return self.source
        if self.source is not None and not isinstance(self.source, str):
            return getattr(self.source, "metrics", {})
        name = self.source or environment
        if name not in self._found:
            self._found[name] = self._made(name) if name else {}
        return self._found[name]

    def _made(self, name: str) -> Mapping[str, Metric]:
        from viewbox.envs import make

        try:
            return getattr(make(name), "metrics", {})
        except ConfigError as error:
            self.problems[name] = f"no metrics of the environment {name!r}: {error}"
            return {}


class Kept:
    """One metric, and what it needs of each episode."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self._episodes = array("q")
        self._rows: list[Any] = []
        self._error: Exception | None = None

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, episode: int, answer: Any, reference: Mapping[str, Any]) -> None:
        """The pair of the episode of this number; an error is raised later, when figures are asked for."""
        if self._error is not None:
            return
        try:
            row = self.metric.row(answer, reference) if isinstance(self.metric, Counted) else (answer, reference)
        except Exception as error:
            self._error = error
        else:
            self._episodes.append(episode)
            self._rows.append(row)

    def prepared(self, ranks: np.ndarray, tasks: np.ndarray) -> Prepared:
        """Ready to be drawn from, in the order of `ranks`; `tasks` is each episode's task. Raises what `row` raised."""
        if self._error is not None:
            raise self._error
        episodes = np.array(self._episodes, int)
        order = np.argsort(ranks[episodes])
        rows, groups = [self._rows[i] for i in order], tasks[episodes[order]]
        return (
            self.metric.prepare(rows, groups)
            if isinstance(self.metric, Counted)
            else Repeated(self.metric, rows, groups)
        )


class Drawn:
    """A metric's figures as they are, and in every drawing. Raises what the metric raises."""

    def __init__(self, prepared: Prepared, tasks: int) -> None:
        self.prepared, self.tasks = prepared, tasks
        self.values = prepared.at(np.ones((1, tasks)))[0]
        self._drawn = np.empty((0, len(self.values)))
        self.most = max(FEWEST, MOST_NUMBERS // max(1, prepared.effort))  # drawings that are worth their time

    def draw(self, drawings: Iterable[np.ndarray]) -> None:
        """The figures of these drawings (`bootstrap.drawings`); a single task gives no interval."""
        if self.tasks > 1:
            self._drawn = np.concatenate([self._drawn, *map(self.prepared.at, drawings)])

    def figures(self, prefix: str, count: int) -> dict[str, Interval]:
        """Every figure that is defined, over `count` episodes, by its whole name."""
        return {
            prefix + name: Interval(float(value), *ends(column), count)
            for name, value, column in zip(self.prepared.names, self.values, self._drawn.T, strict=True)
            if not np.isnan(value)
        }


class WellFormed(Counted):
    """The share of replies that were not malformed, of "pairs" that count both."""

    name = "well_formed"

    def row(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> tuple[float, float]:
        assert answer is not None
        return answer["malformed"], answer["replies"]

    def prepare(self, rows: Sequence[tuple[float, float]], groups: np.ndarray) -> Prepared:
        stats = np.array(rows, float).reshape(len(rows), 2)
        return Sums([self.name], by_group(stats, groups), lambda sums: 1 - ratio(sums[:, :1], sums[:, 1:]))
