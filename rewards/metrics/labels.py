"""Metrics of answers with one label: accuracy, macro-F1, top-k and calibration.

Labels compare as in `ExactMatchReward`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...errors import ConfigError
from ...utils.values import to_finite_float
from ..exact_match import ExactMatchReward
from ..fields import Answer, Reference, get_accepted_values, get_field, read_confidence, read_label
from .base import MeanMetric, PairMetric, PreparedMetric, SumFigures, divide, sum_by_group


@dataclass(frozen=True)
class LabelMetric(PairMetric):
    """What a metric of labels reads: the answer's `field`, and the reference's (default: the same one)."""

    field: str = "label"
    reference_field: str | None = None
    aliases: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    tolerance: float | None = None

    @cached_property
    def reward(self) -> ExactMatchReward:
        return ExactMatchReward(self.field, self.reference_field, self.aliases, self.tolerance)

    def get_golds(self, reference: Reference) -> list[object]:
        """Return the accepted values of a reference; empty if it has no gold."""
        return get_accepted_values(get_field(reference, self.reference_field or self.field))


@dataclass(frozen=True)
class Accuracy(LabelMetric, MeanMetric):
    """The share of pairs whose answer is right, as `ExactMatchReward` compares; a missing answer is wrong.
    Pairs whose reference has no gold are left out. Range: [0, 1].

    >>> Accuracy("label")([({"label": "Seven."}, {"label": "seven"}), (None, {"label": "one"})])
    {'accuracy': 0.5}
    """

    name: str = "accuracy"

    def extract_stats(self, answer: Answer, reference: Reference) -> tuple[float, float]:
        return (self.reward(answer, reference), 1.0) if self.get_golds(reference) else (0.0, 0.0)


@dataclass(frozen=True)
class TopK(MeanMetric):
    """The share of pairs with a right label among the first `k` of a ranked list; a scalar is a list of one. Labels
    compare as in `ExactMatchReward`; each repeated label takes a place. Pairs without gold are left out. Range: [0, 1].

    >>> pairs = [({"ranked": ["two", "seven", "one"]}, {"label": "seven"}), ({"ranked": "one"}, {"label": "one"})]
    >>> TopK("ranked", 1, reference_field="label")(pairs), TopK("ranked", 2, reference_field="label")(pairs)
    ({'top1': 0.5}, {'top2': 1.0})
    """

    field: str
    k: int = 5
    reference_field: str | None = None
    aliases: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    name: str = "top_k"

    def __post_init__(self) -> None:
        if isinstance(self.k, bool) or not isinstance(self.k, int) or self.k < 1:
            raise ConfigError(f"k is {self.k!r}; allowed: a whole number of at least 1")

    @property
    def figure(self) -> str:
        return f"top{self.k}"

    @cached_property
    def reward(self) -> ExactMatchReward:
        return ExactMatchReward("answer", "gold", self.aliases)

    def extract_stats(self, answer: Answer, reference: Reference) -> tuple[float, float]:
        gold = get_field(reference, self.reference_field or self.field)
        if not get_accepted_values(gold):
            return 0.0, 0.0
        value = get_field(answer, self.field)
        ranked = value[: self.k] if isinstance(value, list | tuple) else [value]
        return max((self.reward({"answer": label}, {"gold": gold}) for label in ranked), default=0.0), 1.0


@dataclass(frozen=True)
class MacroF1(LabelMetric):
    """The mean over classes of F1 = 2 tp / (answered + gold): rare classes count as much as common classes.
    The classes are the gold labels. An answer outside them, or a missing answer, counts only as a miss of its gold
    class (scikit-learn: `f1_score(…, labels=<the gold labels>, average="macro", zero_division=0)`). Of a list of
    accepted golds the first names the class. Labels compare as in `ExactMatchReward`. Range: [0, 1].

    >>> pairs = [({"label": "a"}, {"label": "a"}), ({"label": "a"}, {"label": "b"}), (None, {"label": "b"})]
    >>> MacroF1("label")(pairs)
    {'macro_f1': 0.3333333333333333}
    """

    name: str = "macro_f1"

    @cached_property
    def _classes(self) -> dict[str, str]:
        """Every alias by the label it stands for."""
        return {read_label(alias): read_label(gold) for gold, aliases in self.aliases.items() for alias in aliases}

    def extract_stats(self, answer: Answer, reference: Reference) -> tuple[str, str]:
        """Return the class of the gold and the class of the answer; empty if missing."""
        golds = self.get_golds(reference)
        gold = self._read_class(golds[0]) if golds else ""
        if gold and self.reward(answer, reference) == 1.0:
            return gold, gold
        return gold, self._read_class(get_field(answer, self.field))

    def _read_class(self, value: Any) -> str:
        label = read_label(value)
        return self._classes.get(label, label)

    def prepare(self, rows: Sequence[tuple[str, str]], groups: np.ndarray) -> PreparedMetric:
        from scipy.sparse import coo_array

        classes = {label: number for number, label in enumerate(sorted({gold for gold, _ in rows} - {""}))}
        width, ones = len(classes), []  # (group, column) pairs; columns: hits, answers and golds of each class
        for group, (gold, label) in zip(groups.tolist(), rows, strict=True):
            if not gold:
                continue
            ones.append((group, 2 * width + classes[gold]))
            if label in classes:
                ones.append((group, width + classes[label]))
            if label == gold:
                ones.append((group, classes[gold]))
        at = np.array(ones, int).reshape(-1, 2).T
        sums = coo_array((np.ones(len(ones)), tuple(at)), (int(groups.max(initial=-1)) + 1, 3 * width)).tocsr()
        return SumFigures([self.name], sum(gold != "" for gold, _ in rows), sums, _compute_macro_f1)


def _compute_macro_f1(sums: np.ndarray) -> np.ndarray:
    hits, answered, gold = np.split(sums, 3, axis=1)
    f1 = np.where(gold > 0, divide(2 * hits, answered + gold), 0.0)  # a draw ignores classes that it does not contain
    return divide(f1.sum(axis=1), (gold > 0).sum(axis=1).astype(float))[:, None]


@dataclass(frozen=True)
class CalibrationError(LabelMetric):
    """Expected calibration error and Brier score of the answer's `confidence` in [0, `scale`]; 0 is best.
    `ece` = Σ_b n_b / n · |accuracy_b - mean confidence_b| over `bins` of equal width, each open to the left: (0.1, 0.2]
    (Guo et al. 2017, after Naeini et al. 2015). `brier` is the mean of (confidence - right)² (Brier 1950). An answer
    is right as `ExactMatchReward` compares. The confidence is divided by `scale`, as in `BrierReward`. Pairs without
    gold, or without a confidence in this range, are left out; `stated` is the share of the pairs with gold that stated
    one. Range: [0, 1].

    >>> answers = {"label": "a", "confidence": 0.9}, {"label": "a", "confidence": 0.6}
    >>> pairs = [(answers[0], {"label": "a"}), (answers[1], {"label": "b"})]
    >>> {name: round(value, 3) for name, value in CalibrationError("label")(pairs).items()}
    {'ece': 0.35, 'brier': 0.185, 'stated': 1.0}
    """

    bins: int = 10
    scale: float = 1.0
    name: str = "calibration"

    def __post_init__(self) -> None:
        if isinstance(self.bins, bool) or not isinstance(self.bins, int) or self.bins < 1:
            raise ConfigError(f"bins is {self.bins!r}; allowed: a whole number of at least 1")
        if not (to_finite_float(self.scale) or 0) > 0:
            raise ConfigError(f"scale is {self.scale!r}; allowed: the greatest confidence, above 0")

    def extract_stats(self, answer: Answer, reference: Reference) -> tuple[float, float, float]:
        """Return 1 if there is gold, the confidence or NaN, and whether it is right."""
        if not self.get_golds(reference):
            return 0.0, np.nan, 0.0
        confidence = read_confidence(get_field(answer, "confidence"), self.scale)
        if confidence is None:
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
        counted = [int(stated.sum())] * 2 + [int(gold.sum())]
        return SumFigures(["ece", "brier", "stated"], counted, sum_by_group(stats, groups), _compute_calibration)


def _compute_calibration(sums: np.ndarray) -> np.ndarray:
    gold, stated, squared = sums[:, 0], sums[:, 1], sums[:, 2]
    ece = divide(np.abs(sums[:, 3:]).sum(axis=1), stated)
    return np.column_stack([ece, divide(squared, stated), divide(stated, gold)])
