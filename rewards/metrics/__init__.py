"""Aggregate metrics: what a paper reports of many answers at once, where no mean of rewards will do.

    from viewbox.rewards.metrics import MeanAveragePrecision
    MeanAveragePrecision("boxes", label_key="label")(pairs)          # {'map@0.3': 0.61, …}

They read pairs of (answer, reference) as rewards do, are pure functions of them, and never raise for what a model said.
A figure that is not defined (mAP where nothing has gold) is NaN. `viewbox.summarize` adds bootstrap intervals.
"""

from viewbox.rewards.metrics.base import Metric, Pair, PairMetric, PreparedMetric
from viewbox.rewards.metrics.calibration import CalibrationError
from viewbox.rewards.metrics.detection import BoxRates, MeanAveragePrecision
from viewbox.rewards.metrics.labels import Accuracy, MacroF1, TopK

__all__ = [
    "Accuracy",
    "BoxRates",
    "CalibrationError",
    "MacroF1",
    "MeanAveragePrecision",
    "Metric",
    "Pair",
    "PairMetric",
    "PreparedMetric",
    "TopK",
]
