"""What a metric is, and the form that makes a bootstrap of it cheap.

A metric turns pairs of (answer, reference) into a few named figures. A bootstrap asks for them a thousand times, of
pairs drawn with replacement; so viewbox's own first keep of each pair what they need (a `row`: it was right, its
boxes matched), and then give the figures for any number of drawings at once (`Prepared.at`). A plain function of pairs
is a metric too; it is called once a drawing.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

Pair = tuple[Mapping[str, Any] | None, Mapping[str, Any]]


@runtime_checkable
class Metric(Protocol):
    """Named figures of many (answer, reference); an answer is `None` where there is none. NaN: not defined."""

    @property
    def name(self) -> str: ...

    def __call__(self, pairs: Sequence[Pair]) -> dict[str, float]: ...


class PreparedMetric(Protocol):
    """A metric of some pairs that lie in groups (a group: the episodes of one task), ready to be drawn from."""

    names: Sequence[str]
    effort: int  # numbers touched a drawing, by which a bootstrap may draw less often

    def at(self, times: np.ndarray) -> np.ndarray:
        """Figures, (drawings, names), where group g counts `times[drawing, g]` times; NaN where not defined."""
        ...


class PairMetric:
    """A metric by what it keeps of each pair; the base class of viewbox's own."""

    def row(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> Any:
        """What the metric needs of one pair, small enough to be kept of very many."""
        raise NotImplementedError

    def prepare(self, rows: Sequence[Any], groups: np.ndarray) -> PreparedMetric:
        """The rows ready to be drawn from; `groups`, (rows,), holds the index of each one's group."""
        raise NotImplementedError

    def __call__(self, pairs: Sequence[Pair]) -> dict[str, float]:
        rows = [self.row(answer, reference) for answer, reference in pairs]
        prepared = self.prepare(rows, np.zeros(len(rows), int))
        return dict(zip(prepared.names, map(float, prepared.at(np.ones((1, 1)))[0]), strict=True))


class SumFigures:
    """A figure of sums over pairs (a rate, an F1): drawing only adds up the sums of the groups.

    `sums` is (groups, columns), an array or a sparse one; `finish` turns drawn sums, (drawings, columns), into
    figures, (drawings, names).

    >>> right_of = sum_by_group(np.array([[1, 1], [0, 1], [0, 1]]), np.array([0, 0, 1]))
    >>> SumFigures(["rate"], right_of, lambda sums: sums[:, :1] / sums[:, 1:]).at(np.array([[2, 0], [1, 2]])).tolist()
    [[0.5], [0.25]]
    """

    def __init__(self, names: Sequence[str], sums: Any, finish: Callable[[np.ndarray], np.ndarray]) -> None:
        self.names, self.sums, self.finish = names, sums, finish
        self.effort = len(names)

    def at(self, times: np.ndarray) -> np.ndarray:
        return self.finish(times[:, : self.sums.shape[0]] @ self.sums)


def sum_by_group(stats: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """The sums of `stats`, (pairs, columns), over each group."""
    sums = np.zeros((int(groups.max(initial=-1)) + 1, stats.shape[1]))
    np.add.at(sums, groups, stats)
    return sums


class ResampledMetric:
    """A plain function of pairs: called once a drawing, with each pair as often as it was drawn."""

    def __init__(self, metric: Metric, pairs: Sequence[Pair], groups: np.ndarray) -> None:
        self.metric, self.pairs, self.groups = metric, pairs, groups
        self.names: Sequence[str] = list(metric(pairs))
        self.effort = 10**9  # who knows

    def at(self, times: np.ndarray) -> np.ndarray:
        return np.array([self._one(drawn) for drawn in times]).reshape(len(times), len(self.names))

    def _one(self, drawn: np.ndarray) -> list[float]:
        counts = drawn[self.groups].astype(int)
        found = self.metric([pair for pair, n in zip(self.pairs, counts, strict=True) for _ in range(n)])
        return [float(found.get(name, np.nan)) for name in self.names]


def divide(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part / whole; NaN where the whole is 0.

    >>> divide(np.array([1.0, 0.0]), np.array([2.0, 0.0])).tolist()
    [0.5, nan]
    """
    out = np.full(np.broadcast(part, whole).shape, np.nan)
    np.divide(part, whole, out=out, where=whole != 0)
    return out
