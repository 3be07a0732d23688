"""Aggregate metrics: the figures that a paper reports of many answers, if a mean of rewards is not enough.

    from viewbox.rewards.metrics import MeanAveragePrecision
    MeanAveragePrecision("boxes", label_key="label")(pairs)          # {'map@0.3': 0.61, …}

Metrics are pure functions of (answer, reference) pairs, as rewards are. No model output can make them raise; a pair
whose reference no answer can meet (`Unmeasurable`) is left out, with a warning. An undefined figure (mAP without any
gold box) is NaN. `viewbox.summarize` adds bootstrap intervals and the number of pairs that each figure counts.
"""

from .base import AccuracyBy, Among, MeanScore, Metric, Pair, PairMetric, PreparedMetric
from .detection import BoxRates, MeanAveragePrecision
from .labels import Accuracy, CalibrationError, MacroF1, TopK

__all__ = [
    "Accuracy", "AccuracyBy", "Among", "BoxRates", "CalibrationError", "MacroF1", "MeanAveragePrecision",
    "MeanScore", "Metric", "Pair", "PairMetric", "PreparedMetric", "TopK",
]  # fmt: skip
