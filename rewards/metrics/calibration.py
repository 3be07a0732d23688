"""Whether stated confidence agrees with how often answers are right."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...errors import ConfigError
from ..exact_match import ExactMatchReward
from ..fields import get_accepted_values, get_field, to_finite_float
from .base import PairMetric, PreparedMetric, SumFigures, divide, sum_by_group


@dataclass(frozen=True)
class CalibrationError(PairMetric):
    """Expected calibration error and Brier score of a confidence in [0, 1] against right or wrong; 0 is best.

    `ece` = Σ_b n_b / n · |accuracy_b - mean confidence_b| over `bins` of equal width, each open to the left: (0.1, 0.2]
    (Guo et al. 2017, after Naeini et al. 2015). `brier` is the mean of (confidence - right)² (Brier 1950). An answer
    is right as `ExactMatchReward` compares. Pairs without gold, or without a number in [0, 1], are left out;
    `stated` is the share of the pairs with gold that stated a confidence. Range: [0, 1].

    >>> answers = {"label": "a", "confidence": 0.9}, {"label": "a", "confidence": 0.6}
    >>> pairs = [(answers[0], {"label": "a"}), (answers[1], {"label": "b"})]
    >>> {name: round(value, 3) for name, value in CalibrationError("label")(pairs).items()}
    {'ece': 0.35, 'brier': 0.185, 'stated': 1.0}
    """

    field: str = "label"
    confidence_field: str = "confidence"
    bins: int = 10
    reference_field: str | None = None
    aliases: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    tolerance: float | None = None
    name: str = "calibration"

    def __post_init__(self) -> None:
        if isinstance(self.bins, bool) or not isinstance(self.bins, int) or self.bins < 1:
            raise ConfigError(f"bins is {self.bins!r}; allowed: a whole number of at least 1")

    @cached_property
    def reward(self) -> ExactMatchReward:
        return ExactMatchReward(self.field, self.reference_field, self.aliases, self.tolerance)

    def extract_stats(
        self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]
    ) -> tuple[float, float, float]:
        """(1 if there is gold, confidence or NaN, whether it is right)."""
        if not get_accepted_values(get_field(reference, self.reference_field or self.field)):
            return 0.0, np.nan, 0.0
        confidence = to_finite_float(get_field(answer, self.confidence_field))
        if confidence is None or not 0 <= confidence <= 1:
            return 1.0, np.nan, 0.0
        return 1.0, confidence, self.reward(answer, reference)

    def prepare(self, rows: Sequence[tuple[float, float, float]], groups: np.ndarray) -> PreparedMetric:
        gold, confidence, right = np.array(rows, float).reshape(len(rows), 3).T
        stated = ~np.isnan(confidence)
        bin_ = np.searchsorted(np.linspace(0, 1, self.bins + 1), confidence, side="left") - 1
        stats = np.zeros((len(rows), 3 + self.bins))  # gold, stated, squared error, and by bin: right - confidence
        stats[:, 0], stats[:, 1] = gold, stated
        stats[stated, 2] = (confidence - right)[stated] ** 2
        stats[stated, 3 + np.clip(bin_[stated], 0, self.bins - 1)] = (right - confidence)[stated]
        return SumFigures(["ece", "brier", "stated"], sum_by_group(stats, groups), _compute_calibration)


def _compute_calibration(sums: np.ndarray) -> np.ndarray:
    gold, stated, squared = sums[:, 0], sums[:, 1], sums[:, 2]
    return np.stack(
        [divide(np.abs(sums[:, 3:]).sum(axis=1), stated), divide(squared, stated), divide(stated, gold)], axis=1
    )
