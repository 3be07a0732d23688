"""How well the answer's box covers the gold's: one box against one box."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from viewbox.errors import ConfigError, unknown
from viewbox.rewards.base import finite, lookup

Box = tuple[float, float, float, float]


def iou(a: Any, b: Any) -> float:
    """Intersection over union of two xyxy boxes (lists or tuples, any one unit): |a ∩ b| / |a ∪ b|, in [0, 1].

    What is not a box scores 0: four finite numbers with x1 < x2 and y1 < y2 are required. The Jaccard index, as in
    PASCAL VOC (Everingham et al. 2010), without its extra pixel.

    >>> iou((0, 0, 2, 2), (1, 0, 3, 2))
    0.3333333333333333
    >>> iou((0, 0, 2, 2), (2, 2, 0, 0))
    0.0
    """
    first, second = _corners(a, "xyxy"), _corners(b, "xyxy")
    return 0.0 if first is None or second is None else _iou(first, second)


@dataclass(frozen=True)
class IoUReward:
    """Intersection over union of the answer's box and the reference's, or whether it reaches `threshold`.

    Both boxes are in `format` (xyxy, or xywh with the corner of least x and y) and in fractions of the original
    image: the environment converts what the model wrote before a reward sees it. What is not a box scores 0.

    Score = IoU / (1 + `area_penalty` · max(0, A_answer / A_gold - 1)), so the penalty acts only beyond the gold's own
    area and a perfect box scores 1.0 exactly, however large. IoU alone already punishes a box that is too large: the
    penalty (default 0: off) makes that steeper. With `threshold` the reward is 1.0 if that score reaches it, else 0.0.

    Range: [0, 1]; {0.0, 1.0} with a threshold.

    >>> reward = IoUReward("bbox")
    >>> reward({"bbox": [0, 0, 1, 1]}, {"bbox": [0, 0, 0.5, 0.5]})
    0.25
    >>> IoUReward("bbox", area_penalty=1.0)({"bbox": [0, 0, 1, 1]}, {"bbox": [0, 0, 0.5, 0.5]})
    0.0625
    >>> IoUReward("bbox", threshold=0.5)({"bbox": [0, 0, 0.5, 0.4]}, {"bbox": [0, 0, 0.5, 0.5]})
    1.0
    """

    field: str = "bbox"
    reference_field: str | None = None
    format: Literal["xyxy", "xywh"] = "xyxy"
    threshold: float | None = None
    area_penalty: float = 0.0
    name: str = "iou"

    def __post_init__(self) -> None:
        if self.format not in ("xyxy", "xywh"):
            raise ConfigError(unknown("box format", str(self.format), ["xyxy", "xywh"]))
        threshold, penalty = finite(self.threshold), finite(self.area_penalty)
        if self.threshold is not None and (threshold is None or not 0 < threshold <= 1):
            raise ConfigError(f"threshold is {self.threshold!r}; allowed: a number in (0, 1], or None")
        if penalty is None or penalty < 0:
            raise ConfigError(f"area_penalty is {self.area_penalty!r}; allowed: a finite number >= 0")

    def __call__(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> float:
        box = _corners(lookup(answer, self.field), self.format)
        gold = _corners(lookup(reference, self.reference_field or self.field), self.format)
        if box is None or gold is None:
            return 0.0
        score = _iou(box, gold)
        if self.area_penalty and _area(box) > _area(gold):
            score /= 1 + self.area_penalty * (_area(box) / _area(gold) - 1)
        return score if self.threshold is None else float(score >= self.threshold)


def _corners(value: Any, format: str) -> Box | None:
    """The box as xyxy floats; `None` unless it is a box of positive, finite area."""
    if not isinstance(value, list | tuple) or len(value) != 4:
        return None
    numbers = [finite(item) for item in value]
    if any(number is None for number in numbers):
        return None
    x1, y1, x2, y2 = (float(number or 0) for number in numbers)
    if format == "xywh":
        x2, y2 = x1 + x2, y1 + y2
    if not (x1 < x2 and y1 < y2 and 0 < (x2 - x1) * (y2 - y1) < 1e300):
        return None
    return x1, y1, x2, y2


def _area(box: Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def _iou(a: Box, b: Box) -> float:
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    small, large = sorted((_area(a), _area(b)))
    shared = width * height
    # in this order rounding never takes it above 1, and leaves equal boxes at 1 exactly
    return shared / (large + (small - shared))
