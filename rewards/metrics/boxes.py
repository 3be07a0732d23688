"""Boxes of one answer against those of its reference, as detection is judged: each class apart, the surest first.

The matching of COCO (Lin et al. 2014; `COCOeval.evaluateImg`): detections in the order of their confidence, each takes
the free gold box it overlaps most, if that reaches the threshold.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from viewbox.errors import ConfigError, describe_unknown
from viewbox.rewards.base import get_field, to_finite_float
from viewbox.rewards.box_formats import Box, BoxFormat, read_boxes
from viewbox.rewards.iou import compute_iou
from viewbox.rewards.metrics.base import PairMetric
from viewbox.rewards.metrics.labels import read_label

MOST = 100  # detections of one class in one answer that are looked at: COCO's maxDets
Detection = tuple[str, float, Box | None]  # class, confidence, xyxy


@dataclass(frozen=True)
class MatchedPair:
    """What is kept of a pair: gold boxes by class, and (class, confidence, thresholds reached as bits) by detection."""

    gold: tuple[tuple[str, int], ...]
    detections: tuple[tuple[str, float, int], ...]


@dataclass(frozen=True)
class BoxMetric(PairMetric):
    """How boxes are read, for the metrics of boxes.

    `field` holds one box or a list of boxes, or, with `box_key`, mappings with a box there; both sides in `format` and
    in one frame, whichever it is. The class of a box is its own `label_key`, else the whole answer's `label_field`;
    without either there is one class. Its confidence is its own `confidence_key`, else the answer's
    `confidence_field`; 1 where there is none, 0 where it is no number. A detection that is no box matches nothing.
    """

    field: str = "bbox"
    reference_field: str | None = None
    format: BoxFormat = "xyxy"
    box_key: str | None = None
    label_key: str | None = None
    label_field: str | None = None
    confidence_key: str = "confidence"
    confidence_field: str = "confidence"

    def __post_init__(self) -> None:
        if self.format not in get_args(BoxFormat):
            raise ConfigError(describe_unknown("box format", str(self.format), get_args(BoxFormat)))
        if self.label_key is not None and self.box_key is None:
            raise ConfigError(f"label_key is {self.label_key!r} without box_key; allowed: both, or box_key alone")

    def get_thresholds(self) -> tuple[float, ...]:
        """The thresholds a row has bits for, in order."""
        raise NotImplementedError

    def row(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> MatchedPair:
        gold, said = (
            self.read_detections(reference, self.reference_field or self.field),
            self.read_detections(answer, self.field),
        )
        counts = Counter(label for label, _, _ in gold)
        detections: list[tuple[str, float, int]] = []
        for label in dict.fromkeys(label for label, _, _ in said):
            mine = sorted((one for one in said if one[0] == label), key=lambda one: -one[1])[:MOST]
            theirs = [box for other, _, box in gold if other == label]
            reached = match_boxes([box for _, _, box in mine], theirs, self.get_thresholds())
            detections += [(label, one[1], bits) for one, bits in zip(mine, reached, strict=True)]
        return MatchedPair(tuple(counts.items()), tuple(detections))

    def read_detections(self, whole: Any, field: str) -> list[Detection]:
        """(class, confidence, xyxy) of every box in `field`; what is no box has none."""
        value = get_field(whole, field)
        if value is None:
            return []
        found = read_boxes(value, self.format, self.box_key, self.label_key)
        common = read_label(get_field(whole, self.label_field)) if self.label_field else ""
        if found is None:  # something else is there: counted, and matched with nothing
            return [(common, 1.0, None)]
        stated = [get_field(whole, self.confidence_field)] * len(found)
        if self.box_key is not None:
            items = [value] if isinstance(value, Mapping) else value
            own = [get_field(item, self.confidence_key) for item in items]
            stated = [whole if one is None else one for one, whole in zip(own, stated, strict=True)]
        return [
            (label or common, _read_confidence(score), box) for (box, label), score in zip(found, stated, strict=True)
        ]


def _read_confidence(stated: Any) -> float:
    return 1.0 if stated is None else to_finite_float(stated) or 0.0


def match_boxes(boxes: Sequence[Box | None], gold: Sequence[Box | None], thresholds: Sequence[float]) -> list[int]:
    """For each box, the surest first, the thresholds at which it has a gold box of its own: bit i for the i-th.

    >>> match_boxes([(0, 0, 1, 1), (0, 0, 1, 0.9)], [(0, 0, 1, 1)], [0.5, 0.95])
    [3, 0]
    """
    overlaps = [[compute_iou(box, one) for one in gold] for box in boxes]
    highest = max((value for row in overlaps for value in row), default=0.0)
    reached = [0] * len(boxes)
    for bit, threshold in enumerate(thresholds):
        least = min(threshold, 1 - 1e-10)  # COCO's allowance for rounding
        if highest < least:
            continue
        if len(boxes) == 1:  # as most answers are
            reached[0] |= 1 << bit
            continue
        free = set(range(len(gold)))
        for number, row in enumerate(overlaps):
            best = _find_best_match(row, free, least)
            if best is not None:
                free.remove(best)
                reached[number] |= 1 << bit
    return reached


def _find_best_match(overlaps: Sequence[float], free: set[int], least: float) -> int | None:
    """The free gold box of the greatest overlap, of equal ones the last, as COCO takes it."""
    found = None
    for number in sorted(free):
        if overlaps[number] >= least:
            found, least = number, overlaps[number]
    return found


def check_thresholds(thresholds: Sequence[float]) -> None:
    """Raises `ConfigError` unless these are IoU thresholds."""
    numbers = [to_finite_float(one) or 0.0 for one in thresholds]
    if not 1 <= len(numbers) <= 50 or not all(0 < number <= 1 for number in numbers):
        raise ConfigError(f"thresholds are {list(thresholds)!r}; allowed: 1 to 50 numbers in (0, 1]")
