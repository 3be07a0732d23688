"""How sure a mean is: 95 % percentile intervals of the bootstrap, over tasks.

The percentile interval of Efron & Tibshirani, *An Introduction to the Bootstrap* (1993), chapter 13. Episodes of one
task are not independent (a hard task is hard for the whole group), so tasks are drawn, each with all its episodes: the
cluster bootstrap of Davison & Hinkley (1997), section 3.8. With one episode a task that is the ordinary one. All
columns share the drawn tasks, so the interval of a difference is paired.
"""

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95
_BLOCK = 2**18  # drawn tasks held at once: what fits in a cache


@dataclass(frozen=True)
class Interval:
    """A mean or another figure over `count` episodes, and its interval; none (`None`) of one task, or not asked for."""

    mean: float
    low: float | None
    high: float | None
    count: int

    def __str__(self) -> str:
        return self.shown()

    def shown(self, sign: str = "") -> str:
        """For a table: `0.512 [0.430, 0.594]`; `sign` "+" shows it always.

        >>> print(Interval(0.5, 0.4, 0.6, 100), Interval(0.5, None, None, 1).shown("+"))
        0.500 [0.400, 0.600] +0.500
        """
        mean = f"{self.mean:{sign}.3f}"
        return mean if self.low is None else f"{mean} [{self.low:{sign}.3f}, {self.high:{sign}.3f}]"


class Samples:
    """Numbers by column, an episode a row, in 8 bytes each; what does not apply is NaN.

    >>> samples = Samples()
    >>> for task in range(100):
    ...     samples.add(f"t{task}", {"old": 0.0, "new": task % 2})
    >>> samples.intervals(1000, seed=0)["new"]
    Interval(mean=0.5, low=0.4, high=0.6, count=100)
    """

    def __init__(self) -> None:
        self.rows = 0
        self._tasks: dict[str, int] = {}
        self._task = array("q")
        self._columns: dict[str, array[float]] = {}

    @property
    def tasks(self) -> int:
        """How many different tasks there are."""
        return len(self._tasks)

    @property
    def task_ids(self) -> list[str]:
        """The tasks, in the order they were first given."""
        return list(self._tasks)

    @property
    def task_numbers(self) -> np.ndarray:
        """The place of each row's task in `task_ids`, (rows,)."""
        return np.array(self._task, int)

    def add(self, task: str, values: Mapping[str, float | None]) -> None:
        """One episode."""
        self._task.append(self._tasks.setdefault(task, len(self._tasks)))
        for name, value in values.items():
            column = self._columns.get(name)
            if column is None:
                column = self._columns[name] = array("d")
            if len(column) < self.rows:
                self._fill(column)
            column.append(float("nan") if value is None else value)
        self.rows += 1

    def names(self) -> list[str]:
        """The columns, in the order they were first given."""
        return list(self._columns)

    def columns(self) -> dict[str, np.ndarray]:
        """Every column, (rows,) float64."""
        for column in self._columns.values():
            self._fill(column)
        return {name: np.array(column) for name, column in self._columns.items()}

    def intervals(
        self, resamples: int, *, seed: int, differences: Mapping[str, tuple[str, str]] | None = None
    ) -> dict[str, Interval]:
        """The mean of every column and its interval, and of `differences`: name → (column, column taken from it).

        A difference is over the episodes that have both. A column that never applies is left out. The same seed gives
        the same interval.
        """
        columns = self.columns()
        for name, (more, less) in (differences or {}).items():
            columns[name] = columns[more] - columns[less]
        columns = {name: column for name, column in columns.items() if not np.isnan(column).all()}
        if not columns:
            return {}
        sums, counts = self._by_task(columns)
        means = sums.sum(axis=0) / counts.sum(axis=0)
        drawn = np.concatenate([np.empty((0, len(columns))), *_resample(sums, counts, resamples, seed)])
        found: dict[str, Interval] = {}
        for i, name in enumerate(columns):
            low, high = ends(drawn[:, i]) if (counts[:, i] > 0).sum() > 1 else (None, None)
            found[name] = Interval(float(means[i]), low, high, int(counts[:, i].sum()))
        return found

    def _fill(self, column: "array[float]") -> None:
        if len(column) < self.rows:
            column.extend([float("nan")] * (self.rows - len(column)))

    def _by_task(self, columns: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Sums and counts, (tasks, columns) each."""
        task = np.array(self._task)
        sums, counts = np.empty((2, self.tasks, len(columns)))
        for i, column in enumerate(columns.values()):
            applies = ~np.isnan(column)
            sums[:, i] = np.bincount(task, np.where(applies, column, 0.0), self.tasks)
            counts[:, i] = np.bincount(task, applies, self.tasks)
        return sums, counts


def ends(drawn: np.ndarray) -> tuple[float | None, float | None]:
    """The percentile interval of a figure's drawings; a drawing that holds nothing the figure applies to is NaN."""
    defined = drawn[~np.isnan(drawn)]
    if not len(defined):
        return None, None
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(defined, [tail, 1 - tail])
    return float(low), float(high)


def drawings(tasks: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """How often each task is drawn, with replacement: `resamples` rows of (tasks,), a block of them at a time."""
    rng = np.random.default_rng(seed)
    block = max(1, _BLOCK // tasks)
    for start in range(0, resamples, block):
        number = min(block, resamples - start)
        drawn = rng.integers(tasks, size=(number, tasks)) + np.arange(number)[:, None] * tasks
        yield np.bincount(drawn.ravel(), minlength=number * tasks).reshape(number, tasks).astype(float)


def _resample(sums: np.ndarray, counts: np.ndarray, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Means of tasks drawn with replacement, (some of the resamples, columns) at a time."""
    for times in drawings(len(sums), resamples, seed):
        with np.errstate(invalid="ignore"):
            yield (times @ sums) / (times @ counts)
