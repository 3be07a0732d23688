"""What a metric is, and the form that makes a bootstrap of it cheap.

A metric turns pairs of (answer, reference) into a few named figures. A bootstrap needs them for a thousand *draws*:
samples of the pairs, drawn with replacement. The metrics of viewbox therefore extract what they need from each pair
once (`extract_stats`), and then compute the figures of all draws together (`compute_figures`). A plain function of
pairs is also a metric; it is called once per draw.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ...errors import Unmeasurable
from ...utils.values import identify, normalize, reaches, to_number, to_text
from ..fields import LONGEST_LABEL, Answer, Reference, get_field

log = logging.getLogger(__name__)

Pair = tuple[Answer, Reference]


@runtime_checkable
class Metric(Protocol):
    """Named figures of many (answer, reference) pairs. A missing answer is `None`; an undefined figure is NaN."""

    @property
    def name(self) -> str: ...

    def __call__(self, pairs: Sequence[Pair]) -> dict[str, float]: ...


class PreparedMetric(Protocol):
    """A metric of pairs in groups, ready for a bootstrap. A group holds the episodes of one task."""

    names: Sequence[str]
    counted: Sequence[int]  # pairs of each figure
    effort: int  # numbers read per draw; if this is large, a bootstrap may use fewer draws

    def compute_figures(self, counts: np.ndarray) -> np.ndarray:
        """Return the figures of each draw, (draws, names); NaN if undefined. `counts`, (draws, groups), weights the
        groups."""
        ...


class PairMetric:
    """The base class of viewbox's metrics: statistics of each pair, then figures of all pairs."""

    def extract_stats(self, answer: Answer, reference: Reference) -> object:
        """Return what the metric needs of one pair; small, because it is kept for every pair."""
        raise NotImplementedError

    def prepare(self, rows: Sequence[Any], groups: np.ndarray) -> PreparedMetric:
        """Prepare the rows for a bootstrap; `groups`, (rows,), holds the group index of each row."""
        raise NotImplementedError

    def __call__(self, pairs: Sequence[Pair]) -> dict[str, float]:
        rows: list[Any] = []
        for answer, reference in pairs:
            try:
                rows.append(self.extract_stats(answer, reference))
            except Unmeasurable as error:
                log.warning("a pair is left out of a metric: %s", error)
        prepared = self.prepare(rows, np.zeros(len(rows), int))
        return dict(zip(prepared.names, map(float, prepared.compute_figures(np.ones((1, 1)))[0]), strict=True))


Finish = Callable[[np.ndarray], np.ndarray]


class SumFigures:
    """Figures that depend only on sums over pairs (a rate, an F1): a draw adds up the sums of its groups.

    Args:
        names: of the figures.
        counted: the pairs of each figure; a number is that of all figures.
        sums: (groups, columns), a dense or sparse array.
        finish: turns the sums of each draw, (draws, columns), into figures, (draws, names).

    >>> right_of = sum_by_group(np.array([[1, 1], [0, 1], [0, 1]]), np.array([0, 0, 1]))
    >>> rate = SumFigures(["rate"], 3, right_of, lambda sums: sums[:, :1] / sums[:, 1:])
    >>> rate.compute_figures(np.array([[2, 0], [1, 2]])).tolist()
    [[0.5], [0.25]]
    """

    def __init__(self, names: Sequence[str], counted: int | Sequence[int], sums: Any, finish: Finish) -> None:
        self.names, self.sums, self.finish = names, sums, finish
        self.counted = [counted] * len(names) if isinstance(counted, int) else counted
        self.effort = len(names)

    def compute_figures(self, counts: np.ndarray) -> np.ndarray:
        return self.finish(counts[:, : self.sums.shape[0]] @ self.sums)


def sum_by_group(stats: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return the sums of `stats`, (pairs, columns), over each group."""
    sums = np.zeros((int(groups.max(initial=-1)) + 1, stats.shape[1]))
    np.add.at(sums, groups, stats)
    return sums


class MeanMetric(PairMetric):
    """The base class of metrics that are a mean: the statistics of a pair are its score and its weight, 0 or 1."""

    name: str

    @property
    def figure(self) -> str:
        """The name of its only figure."""
        return self.name

    def prepare(self, rows: Sequence[tuple[float, float]], groups: np.ndarray) -> PreparedMetric:
        stats = np.array(rows, float).reshape(len(rows), 2)
        sums = sum_by_group(stats, groups)
        pairs = int(stats[:, 1].sum())
        return SumFigures([self.figure], pairs, sums, lambda sums: divide(sums[:, :1], sums[:, 1:]))


class ResampledMetric:
    """A plain function of pairs; it is called once per draw, with each pair as often as it was drawn."""

    def __init__(self, metric: Metric, pairs: Sequence[Pair], groups: np.ndarray) -> None:
        self.metric, self.pairs, self.groups = metric, pairs, groups
        self.names: Sequence[str] = list(metric(pairs))
        self.counted: Sequence[int] = [len(pairs)] * len(self.names)
        self.effort = 10**9  # unknown: assume that it is slow

    def compute_figures(self, counts: np.ndarray) -> np.ndarray:
        return np.array([self._compute_draw(row) for row in counts]).reshape(len(counts), len(self.names))

    def _compute_draw(self, group_counts: np.ndarray) -> list[float]:
        pair_counts = group_counts[self.groups].astype(int)
        figures = self.metric([pair for pair, n in zip(self.pairs, pair_counts, strict=True) for _ in range(n)])
        numbers = {name: to_number(figures.get(name, np.nan)) for name in self.names}
        for name, figure in numbers.items():
            if not isinstance(figure, int | float) or abs(figure) == np.inf:
                raise ValueError(f"{name} = {figure!r:.80}; allowed: a finite number, or NaN where it is undefined")
        return list(numbers.values())


def divide(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """part / whole; NaN if the whole is 0.

    >>> divide(np.array([1.0, 0.0]), np.array([2.0, 0.0])).tolist()
    [0.5, nan]
    """
    out = np.full(np.broadcast(part, whole).shape, np.nan)
    np.divide(part, whole, out=out, where=whole != 0)
    return out


PairReward = Callable[[Answer, Reference], float | None]
MAX_KINDS = 50  # further kinds are counted together only


@dataclass(frozen=True)
class MeanScore(MeanMetric):
    """The mean of a reward over the pairs to which it applies. Range: [0, 1]; NaN if there are none.

    >>> from viewbox.rewards import TokenF1Reward
    >>> MeanScore(TokenF1Reward("text"), "token_f1")([({"text": "a b"}, {"text": "a"}), (None, {"text": "a"})])
    {'token_f1': 0.3333333333333333}
    """

    reward: PairReward
    name: str

    def extract_stats(self, answer: Answer, reference: Reference) -> tuple[float, float]:
        score = self.reward(answer, reference)
        return (0.0, 0.0) if score is None else (score, 1.0)


@dataclass(frozen=True)
class AccuracyBy(PairMetric):
    """The share of pairs that a reward gives 1.0, by the text in the reference's field `by`, and of all if `total`.
    Range: [0, 1].

    >>> from viewbox.rewards import ExactMatchReward
    >>> pairs = [({"a": "x"}, {"a": "x", "kind": "open"}), ({"a": "x"}, {"a": "y", "kind": "closed"})]
    >>> AccuracyBy(ExactMatchReward("a"), "kind")(pairs)
    {'all': 0.5, 'closed': 0.0, 'open': 1.0}
    """

    reward: PairReward
    by: str
    total: bool = True
    name: str = "accuracy"

    def extract_stats(self, answer: Answer, reference: Reference) -> tuple[str, float | None]:
        kind, score = identify(to_text(get_field(reference, self.by))), self.reward(answer, reference)
        return kind if len(kind) <= LONGEST_LABEL else "", None if score is None else float(reaches(score, 1.0))

    def prepare(self, rows: Sequence[tuple[str, float | None]], groups: np.ndarray) -> PreparedMetric:
        spelled: dict[str, str] = {}  # "Brain" and "brain" are one group, under its first spelling
        for kind in sorted({kind for kind, score in rows if kind and score is not None}):
            spelled.setdefault(normalize(kind).text, kind)
        kinds = list(spelled.values())[:MAX_KINDS]
        column = {label: number for number, label in enumerate(list(spelled)[:MAX_KINDS], 1)}
        width = len(kinds) + 1
        stats = np.zeros((len(rows), 2 * width))  # right answers in all and by kind, then pairs
        for stat, (kind, score) in zip(stats, rows, strict=True):
            for place in {0, column.get(normalize(kind).text, 0)} if score is not None else ():
                stat[place], stat[width + place] = score, 1
        names, first = ["all", *kinds], 0 if self.total else 1
        sums = sum_by_group(stats, groups)
        pairs = stats[:, width + first :].sum(axis=0).astype(int).tolist()
        shares: Finish = lambda sums: divide(sums[:, first:width], sums[:, width + first :])  # noqa: E731
        return SumFigures(names[first:], pairs, sums, shares)


@dataclass(frozen=True)
class Among(PairMetric):
    """Another metric over the pairs whose reference has one of `values` at `field`.

    >>> from viewbox.rewards.metrics import Accuracy
    >>> pairs = [({"a": "x"}, {"a": "x", "kind": "open"}), ({"a": "x"}, {"a": "y", "kind": "closed"})]
    >>> Among(Accuracy("a"), "kind", ("open",))(pairs)
    {'accuracy': 1.0}
    """

    metric: PairMetric
    field: str
    values: tuple[str, ...]

    @property
    def name(self) -> str:
        return str(getattr(self.metric, "name", "among"))

    def extract_stats(self, answer: Answer, reference: Reference) -> tuple[Any] | None:
        counts = get_field(reference, self.field) in self.values
        return (self.metric.extract_stats(answer, reference),) if counts else None

    def prepare(self, rows: Sequence[tuple[Any] | None], groups: np.ndarray) -> PreparedMetric:
        valid = [number for number, row in enumerate(rows) if row is not None]
        if not valid:
            return SumFigures([], 0, np.zeros((0, 0)), lambda sums: sums)
        return self.metric.prepare([row[0] for row in rows if row is not None], groups[valid])
