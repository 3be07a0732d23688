"""The numbers of a run as one table, and the uncertainty of its means.

Every figure of `score`, `compare` and `evaluate` is the mean of a column, or of the difference of two: the mean over
tasks of each task's mean. Episodes of one task are not independent, as a hard task is hard for its whole group; so a
task counts once, however many episodes it has, and the 95 % interval is that of a mean over tasks (`compute_interval`).
A difference is taken in each row first, which makes its interval a paired one. Figures that are no means, such as an
F1, have the variance of a bootstrap over tasks: the cluster bootstrap of Davison & Hinkley (1997), section 3.8.
"""

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

CONFIDENCE = 0.95
COUNTS = {"episodes/turns", "tools/calls", "tools/malformed", "tokens/sampled"}  # no shares, though all may be 1
MAX_COLUMNS = 256  # more names than any reward has come from forged episodes, and each costs time
MAX_GROUPS = 100
_NAN = float("nan")
_BLOCK = 2**18  # drawn tasks held at once: fits in the CPU cache


@dataclass(frozen=True)
class Interval:
    """A mean or other figure over `count` episodes of `tasks` tasks.
    Its interval is None for one task, for values beyond [0, 1] that are all equal, or if not computed."""

    mean: float
    low: float | None
    high: float | None
    count: int
    tasks: int = 0

    def __str__(self) -> str:
        return self.format()

    def format(self, sign: str = "") -> str:
        """Format it as `0.512 [0.430, 0.594]`; sign "+" also marks positive numbers.

        >>> print(Interval(0.5, 0.4, 0.6, 100), Interval(0.5, None, None, 1).format("+"))
        0.500 [0.400, 0.600] +0.500
        """
        mean = f"{self.mean:{sign}.3f}"
        return mean if self.low is None else f"{mean} [{self.low:{sign}.3f}, {self.high:{sign}.3f}]"


class Change(NamedTuple):
    """Two columns and their difference, over the rows that have both; None: no row has it."""

    old: Interval | None
    new: Interval | None
    change: Interval | None


class Table:
    """A table of float64 numbers with one row per episode and named columns; NaN if a column does not apply.
    It has at most `MAX_COLUMNS` columns; `describe_dropped` names the others.

    >>> table = Table()
    >>> for task in range(100):
    ...     table.add(f"t{task}", {"old": 0.0, "new": task % 2})
    >>> print(table.compute_intervals()["new"], table.compute_intervals()["old"])
    0.500 [0.402, 0.598] 0.000 [0.000, 0.038]
    """

    def __init__(self) -> None:
        self.rows = 0
        self._dropped: dict[str, None] = {}
        self._tasks: dict[str, int] = {}
        self._groups: dict[str, int] = {}
        self._task, self._group = array("q"), array("q")
        self._columns: dict[str, array[float]] = {}

    @property
    def tasks(self) -> int:
        return len(self._tasks)

    @property
    def task_ids(self) -> list[str]:
        """The tasks, in the order they were first added."""
        return list(self._tasks)

    @property
    def task_numbers(self) -> np.ndarray:
        """The index of each row's task in `task_ids`, (rows,)."""
        return np.array(self._task, int)

    @property
    def groups(self) -> list[str]:
        """The groups, in the order they were first added."""
        return list(self._groups)

    def add(self, task: str, values: Mapping[str, float | None], group: str = "") -> None:
        self._task.append(self._tasks.setdefault(task, len(self._tasks)))
        self._group.append(self._groups.setdefault(group, len(self._groups)))
        rows, columns = self.rows, self._columns
        for name, value in values.items():
            column = columns.get(name)
            if column is None and (column := self._add_column(name)) is None:
                continue
            if len(column) < rows:
                self._pad_column(column)
            column.append(_NAN if value is None else value)
        self.rows += 1

    def by_group(self, names: Iterable[str]) -> "dict[str, Table]":
        """Return the rows of each group, with the columns of these names."""
        columns = {name: column for name, column in self.get_columns().items() if name in set(names)}
        ids, tasks, groups = self.task_ids, self.task_numbers, np.array(self._group, int)
        tables = {}
        for group, number in self._groups.items():
            rows = np.flatnonzero(groups == number)
            table = tables[group] = Table()
            for task in tasks[rows].tolist():
                table.add(ids[task], {}, group)
            table._columns = {name: array("d", column[rows].tobytes()) for name, column in columns.items()}
        return tables

    def average_tasks(self) -> "dict[str, dict[str, float | None]]":
        """Return the means of the rows of each task, by task and column; None if a column applies to none of them."""
        columns = self.get_columns()
        sums, counts = self._sum_by_task(columns)
        with np.errstate(invalid="ignore"):
            means = sums / counts
        rows = ([None if value != value else value for value in row] for row in means.tolist())
        return {task: dict(zip(columns, row, strict=True)) for task, row in zip(self._tasks, rows, strict=True)}

    def _add_column(self, name: str) -> "array[float] | None":
        if len(self._columns) == MAX_COLUMNS:
            if len(self._dropped) < MAX_COLUMNS:
                self._dropped[name] = None
            return None
        column = self._columns[name] = array("d")
        return column

    def get_columns(self) -> dict[str, np.ndarray]:
        """Return every column, (rows,) float64."""
        for column in self._columns.values():
            self._pad_column(column)
        return {name: np.array(column) for name, column in self._columns.items()}

    def describe_dropped(self) -> list[str]:
        """Return a sentence about the columns that are left out, if there are any."""
        if not self._dropped:
            return []
        count = f"{len(self._dropped)}{' or more' if len(self._dropped) == MAX_COLUMNS else ''}"
        first = next(iter(self._dropped))
        return [f"{count} names of scores are left out, such as {first!r:.100}; allowed: {MAX_COLUMNS} names"]

    def compute_changes(self, old: str, new: str, intervals: bool = True) -> dict[str, Change]:
        """Compute the changes from the columns `old/NAME` to `new/NAME`, by name; new names come first."""
        return self.collect_changes(self.compute_intervals(intervals, change=(old, new)), old, new)

    def collect_changes(self, found: Mapping[str, Interval], old: str, new: str) -> dict[str, Change]:
        sides = (f"{new}/", f"{old}/")
        names = dict.fromkeys(key.removeprefix(side) for side in sides for key in self._columns if key.startswith(side))
        return {name: Change(*(found.get(f"{column}/{name}") for column in (old, new, "change"))) for name in names}

    def compute_intervals(self, intervals: bool = True, change: tuple[str, str] | None = None) -> dict[str, Interval]:
        """Compute the mean of every column, with its interval if `intervals`. A column that never applies is left out.
        `change` is (old, new): also the differences `change/NAME` of all columns `old/NAME` and `new/NAME`."""
        columns, changes = self.get_columns(), set[str]()
        old, new = change or ("", "")
        for name in [name.removeprefix(f"{new}/") for name in columns if change and name.startswith(f"{new}/")]:
            if f"{old}/{name}" in columns:
                columns[f"change/{name}"] = columns[f"{new}/{name}"] - columns[f"{old}/{name}"]
                changes.add(f"change/{name}")
        columns = {name: column for name, column in columns.items() if not np.isnan(column).all()}
        result: dict[str, Interval] = {}
        sums, counts = self._sum_by_task(columns)
        for name, sum_, count in zip(columns, sums.T, counts.T, strict=True):
            means = sum_[count > 0] / count[count > 0]
            mean, low, high = float(means.mean()), None, None
            if intervals:
                apart, more = means - mean, None
                if name in changes:
                    more = float(abs(means).max()) or 1.0
                elif name in COUNTS or means.min() < 0 or means.max() > 1:
                    more = float(abs(apart).max())
                low, high = compute_interval(mean, float(apart @ apart), len(means), more)
            result[name] = Interval(mean, low, high, int(count.sum()), len(means))
        return result

    def _pad_column(self, column: "array[float]") -> None:
        column.extend([_NAN] * (self.rows - len(column)))

    def _sum_by_task(self, columns: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return the sum and the count of every column for each task, (tasks, columns) each."""
        task = np.array(self._task)
        sums, counts = np.empty((2, self.tasks, len(columns)))
        for i, column in enumerate(columns.values()):
            applies = ~np.isnan(column)
            sums[:, i] = np.bincount(task, np.where(applies, column, 0.0), self.tasks)
            counts[:, i] = np.bincount(task, applies, self.tasks)
        return sums, counts


def pair_tasks(a: Table, b: Table, groups: Mapping[str, str] = {}) -> Table:
    """Return a row for each task of both, in the order of the first: its means as `a/NAME` and `b/NAME`, of the columns
    that apply on both sides. `groups` is by task."""
    pairs, others = Table(), b.average_tasks()
    for task, means in a.average_tasks().items():
        row: dict[str, float | None] = {}
        for name, value in means.items() if task in others else ():
            other = others[task].get(name)
            if value is not None and other is not None:
                row |= {f"a/{name}": value, f"b/{name}": other}
        if row:
            pairs.add(task, row, groups.get(task, ""))
    return pairs


def compute_interval(
    mean: float, squares: float, tasks: int, more: float | None = None
) -> tuple[float | None, float | None]:
    """Return the 95 % interval of a figure over tasks. It has no width 0; (None, None): there is none.

    The variance is that of the tasks and of one more, so that tasks that happen to agree are not sure. A figure in
    [0, 1] has the interval of Wilson (1927) for as many tasks of right or wrong as have this variance, with the
    quantile of Student's t; any other the interval of Student's t. `benchmarks/coverage.py` measures both.

    Args:
        mean: the figure.
        squares: the sum of the squared distances of the tasks from it.
        tasks: how many there are.
        more: the distance of one more task. None: the figure lies in [0, 1], and the task is right or wrong.

    >>> [round(end, 3) for end in compute_interval(1.0, 0.0, 20)]
    [0.813, 1.0]
    >>> [round(end, 3) for end in compute_interval(0.0, 0.0, 20, more=1.0)]
    [-0.105, 0.105]
    """
    if tasks < 2 or (more is not None and squares + more <= 0):
        return None, None
    from scipy.special import stdtrit  # slow to import

    t = float(stdtrit(tasks - 1, (1 + CONFIDENCE) / 2))
    if more is not None:
        half = t * math.sqrt(squares + more**2) / tasks
        return mean - half, mean + half
    center, spread = (mean * tasks + t * t / 2) / (tasks + t * t), mean * (1 - mean)
    z = t * t / max(tasks - 1, tasks**2 * spread / (squares + center * (1 - center)))
    half = math.sqrt(z * spread + z * z / 4)
    return max(0.0, (mean + z / 2 - half) / (1 + z)), min(1.0, (mean + z / 2 + half) / (1 + z))


def interval_of_draws(value: float, draws: np.ndarray, tasks: int) -> tuple[float | None, float | None]:
    """`compute_interval` of a figure that is no mean, from its bootstrap draws; NaN marks an undefined draw."""
    defined = draws[~np.isnan(draws)]
    if not len(defined):
        return None, None
    is_share = min(value, defined.min()) >= 0 and max(value, defined.max()) <= 1
    return compute_interval(value, float(defined.var()) * tasks**2, tasks, None if is_share else 0.0)


def draw_tasks(tasks: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Draw tasks with replacement: yields blocks of counts, (draws, tasks), `resamples` draws in all."""
    rng = np.random.default_rng(seed)
    block = max(1, _BLOCK // tasks)
    for start in range(0, resamples, block):
        number = min(block, resamples - start)
        drawn = rng.integers(tasks, size=(number, tasks)) + np.arange(number)[:, None] * tasks
        yield np.bincount(drawn.ravel(), minlength=number * tasks).reshape(number, tasks).astype(float)
