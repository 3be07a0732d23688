"""Matches the boxes of an answer to the boxes of its reference, as COCO does for detection.

Each class is matched on its own, and the most confident detection comes first. A detection takes the free gold box that
it overlaps most, if the overlap reaches the threshold (Lin et al. 2014; `COCOeval.evaluateImg`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, get_args

from viewbox.errors import ConfigError, describe_unknown
from viewbox.rewards.fields import Box, BoxFormat, get_field, read_boxes, to_finite_float
from viewbox.rewards.iou import compute_overlap
from viewbox.rewards.metrics.base import PairMetric
from viewbox.rewards.metrics.labels import read_label

MAX_DETECTIONS = 100  # per class and answer, COCO's maxDets; further ones are ignored
Detection = tuple[str, float, Box | None]  # class, confidence, xyxy


class MatchedPair(NamedTuple):
    """Statistics of a pair: gold boxes per class, and (class, confidence, reached thresholds as bits) per detection."""

    gold: tuple[tuple[str, int], ...]
    detections: tuple[tuple[str, float, int], ...]


@dataclass(frozen=True)
class BoxMetric(PairMetric):
    """The settings that tell a metric of boxes how to read them.

    `field` holds one box or a list of boxes, or, with `box_key`, mappings with a box at that key. Both sides use
    `format` and the same frame. The class of a box is at its own `label_key`, else at the answer's `label_field`;
    without both there is one class. The confidence is at its own `confidence_key`, else at the answer's
    `confidence_field`; it is 1 if missing and 0 if not a number. A detection that is not a box matches nothing.
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
        """The IoU thresholds of the bits in `MatchedPair`, in order."""
        raise NotImplementedError

    def extract_stats(self, answer: Mapping[str, Any] | None, reference: Mapping[str, Any]) -> MatchedPair:
        gold, detected = (
            self.read_detections(reference, self.reference_field or self.field),
            self.read_detections(answer, self.field),
        )
        if len(detected) == 1 and len(gold) == 1:  # the common case
            (label, confidence, box), (gold_label, _, gold_box) = detected[0], gold[0]
            theirs = [gold_box] if gold_label == label else []
            (bits,) = match_boxes([box], theirs, self.get_thresholds())
            return MatchedPair(((gold_label, 1),), ((label, confidence, bits),))
        counts = Counter(label for label, _, _ in gold)
        detections: list[tuple[str, float, int]] = []
        for label in dict.fromkeys(label for label, _, _ in detected):
            mine = sorted((item for item in detected if item[0] == label), key=lambda item: -item[1])[:MAX_DETECTIONS]
            theirs = [box for other, _, box in gold if other == label]
            reached = match_boxes([box for _, _, box in mine], theirs, self.get_thresholds())
            detections += [(label, item[1], bits) for item, bits in zip(mine, reached, strict=True)]
        return MatchedPair(tuple(counts.items()), tuple(detections))

    def read_detections(self, whole: Any, field: str) -> list[Detection]:
        """(class, confidence, xyxy) of every item in `field`; the box is `None` if the item is not a box."""
        value = get_field(whole, field)
        if value is None:
            return []
        boxes = read_boxes(value, self.format, self.box_key, self.label_key)
        common = read_label(get_field(whole, self.label_field)) if self.label_field else ""
        if boxes is None:  # not a box: it counts, and matches nothing
            return [(common, 1.0, None)]
        stated = get_field(whole, self.confidence_field)
        if self.box_key is None:
            confidence = _read_confidence(stated)
            return [(label or common, confidence, box) for box, label in boxes]
        items = [value] if isinstance(value, Mapping) else value
        own = [get_field(item, self.confidence_key) for item in items]
        return [
            (label or common, _read_confidence(stated if score is None else score), box)
            for (box, label), score in zip(boxes, own, strict=True)
        ]


def _read_confidence(stated: Any) -> float:
    return 1.0 if stated is None else to_finite_float(stated) or 0.0


def match_boxes(boxes: Sequence[Box | None], gold: Sequence[Box | None], thresholds: Sequence[float]) -> list[int]:
    """The thresholds at which each box gets a gold box of its own, as bits: bit i for threshold i.

    `boxes` are ordered, the most confident first.

    >>> match_boxes([(0, 0, 1, 1), (0, 0, 1, 0.9)], [(0, 0, 1, 1)], [0.5, 0.95])
    [3, 0]
    """
    overlaps = [[_compute_overlap(box, gold_box) for gold_box in gold] for box in boxes]
    highest = max([value for row in overlaps for value in row], default=0.0)
    steps = _build_steps(tuple(thresholds))
    if len(boxes) == 1:  # the common case
        return [sum([1 << bit for bit, least in steps if highest >= least])]
    reached = [0] * len(boxes)
    for bit, least in steps:
        if highest < least:
            continue
        free = set(range(len(gold)))
        for number, row in enumerate(overlaps):
            best = _find_best_match(row, free, least)
            if best is not None:
                free.remove(best)
                reached[number] |= 1 << bit
    return reached


@lru_cache
def _build_steps(thresholds: tuple[float, ...]) -> list[tuple[int, float]]:
    """The bit of each threshold, and the least overlap that reaches it, with COCO's allowance for rounding."""
    return [(bit, min(threshold, 1 - 1e-10)) for bit, threshold in enumerate(thresholds)]


def _compute_overlap(box: Box | None, gold: Box | None) -> float:
    return 0.0 if box is None or gold is None else compute_overlap(box, gold)


def _find_best_match(overlaps: Sequence[float], free: set[int], least: float) -> int | None:
    """The free gold box with the greatest overlap; the last of equal boxes, as in COCO."""
    best = None
    for number in sorted(free):
        if overlaps[number] >= least:
            best, least = number, overlaps[number]
    return best


def check_thresholds(thresholds: Sequence[float]) -> None:
    """Raises `ConfigError` unless these are IoU thresholds."""
    numbers = [to_finite_float(threshold) or 0.0 for threshold in thresholds]
    if not 1 <= len(numbers) <= 50 or not all(0 < number <= 1 for number in numbers):
        raise ConfigError(f"thresholds are {list(thresholds)!r}; allowed: 1 to 50 numbers in (0, 1]")
