"""Metrics made of rewards: their mean, the share of full scores by kind, and another metric over some of the pairs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...utils.values import identify, reaches, to_text
from ..fields import LONGEST_LABEL, get_field
from .base import Finish, MeanMetric, PairMetric, PreparedMetric, SumFigures, divide, sum_by_group

PairReward = Callable[[Mapping[str, Any] | None, Mapping[str, Any]], float | None]
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

    def extract_stats(
        self, answer: Mapping[str, object] | None, reference: Mapping[str, object]
    ) -> tuple[float, float]:
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

    def extract_stats(
        self, answer: Mapping[str, object] | None, reference: Mapping[str, object]
    ) -> tuple[str, float | None]:
        kind, score = identify(to_text(get_field(reference, self.by))), self.reward(answer, reference)
        return kind if len(kind) <= LONGEST_LABEL else "", None if score is None else float(reaches(score, 1.0))

    def prepare(self, rows: Sequence[tuple[str, float | None]], groups: np.ndarray) -> PreparedMetric:
        kinds = sorted({kind for kind, score in rows if kind and score is not None})[:MAX_KINDS]
        column = {kind: number for number, kind in enumerate(kinds, 1)}
        width = len(kinds) + 1
        stats = np.zeros((len(rows), 2 * width))  # right answers in all and by kind, then pairs
        for stat, (kind, score) in zip(stats, rows, strict=True):
            for place in {0, column.get(kind, 0)} if score is not None else ():
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

    def extract_stats(self, answer: Mapping[str, object] | None, reference: Mapping[str, object]) -> tuple[Any] | None:
        counts = get_field(reference, self.field) in self.values
        return (self.metric.extract_stats(answer, reference),) if counts else None

    def prepare(self, rows: Sequence[tuple[Any] | None], groups: np.ndarray) -> PreparedMetric:
        kept = [number for number, row in enumerate(rows) if row is not None]
        if not kept:
            return SumFigures([], 0, np.zeros((0, 0)), lambda sums: sums)
        return self.metric.prepare([row[0] for row in rows if row is not None], groups[kept])
