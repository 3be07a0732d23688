"""Aggregate metrics: the figures that a paper reports of many answers, if a mean of rewards is not enough.

    from viewbox.rewards.metrics import MeanAveragePrecision
    MeanAveragePrecision("boxes", label_key="label")(pairs)          # {'map@0.3': 0.61, …}

Metrics are pure functions of (answer, reference) pairs, as rewards are. No model output can make them raise; a pair
whose reference no answer can meet (`Unmeasurable`) is left out, with a warning. An undefined figure (mAP without any
gold box) is NaN. `viewbox.summarize` adds bootstrap intervals and the number of pairs that each figure counts.
"""

from .base import AccuracyBy as AccuracyBy
from .base import Among as Among
from .base import MeanScore as MeanScore
from .base import Metric as Metric
from .base import Pair as Pair
from .base import PairMetric as PairMetric
from .base import PreparedMetric as PreparedMetric
from .detection import BoxRates as BoxRates
from .detection import MeanAveragePrecision as MeanAveragePrecision
from .labels import Accuracy as Accuracy
from .labels import CalibrationError as CalibrationError
from .labels import MacroF1 as MacroF1
from .labels import TopK as TopK
