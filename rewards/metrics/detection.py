"""Metrics of boxes over a set of answers: average precision as COCO computes it, and precision and recall.

The boxes of each answer are matched once. A bootstrap only changes how often each match counts.

Boxes are matched as COCO does: each class on its own, the most confident detection first. A detection takes the free
gold box that it overlaps most, if the overlap reaches the threshold (Lin et al. 2014; `COCOeval.evaluateImg`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from ...errors import ConfigError, describe_unknown
from ...utils.values import reaches, to_finite_float
from ..fields import Answer, Box, BoxFormat, Reference, check_gold_boxes, get_field, read_boxes, read_label
from ..iou import compute_overlap
from .base import PairMetric, PreparedMetric, SumFigures, divide, sum_by_group

MAX_DETECTIONS = 100  # per class and answer, COCO's maxDets; further ones are ignored
MAX_CELLS = 20_000_000  # labels times tasks: more come from forged references, and take gigabytes
_BLOCK = 2**17  # drawn detections held at once: fits in the CPU cache
RECALLS = np.linspace(0, 1, 101)
COCO = tuple(np.linspace(0.5, 0.95, 10).tolist())
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
    without both there is one class. The confidence is its own `confidence`, else the answer's; it is 1 if missing and
    0 if not a number. A detection that is not a box matches nothing; a gold one is `Unmeasurable`."""

    field: str = "bbox"
    reference_field: str | None = None
    format: BoxFormat = "xyxy"
    box_key: str | None = None
    label_key: str | None = None
    label_field: str | None = None
    thresholds: tuple[float, ...] = (0.3, 0.5)

    def __post_init__(self) -> None:
        if self.format not in get_args(BoxFormat):
            raise ConfigError(describe_unknown("box format", str(self.format), get_args(BoxFormat)))
        if self.label_key is not None and self.box_key is None:
            raise ConfigError(f"label_key is {self.label_key!r} without box_key; allowed: both, or box_key alone")
        numbers = [to_finite_float(threshold) or 0.0 for threshold in self.thresholds]
        if not 1 <= len(numbers) <= 50 or not all(0 < number <= 1 for number in numbers):
            raise ConfigError(f"thresholds are {list(self.thresholds)!r}; allowed: 1 to 50 numbers in (0, 1]")

    def get_thresholds(self) -> tuple[float, ...]:
        """Return the IoU thresholds of the bits in `MatchedPair`, in order."""
        return self.thresholds

    def extract_stats(self, answer: Answer, reference: Reference) -> MatchedPair:
        gold = self.read_detections(reference, self.reference_field or self.field)
        boxes = [(box, label) for label, _, box in gold]
        check_gold_boxes(boxes, get_field(reference, self.reference_field or self.field), self.format, labeled=False)
        detected = self.read_detections(answer, self.field)
        counts = Counter(label for label, _, _ in gold)
        detections: list[tuple[str, float, int]] = []
        for label in dict.fromkeys(label for label, _, _ in detected):
            mine = sorted((item for item in detected if item[0] == label), key=lambda item: -item[1])[:MAX_DETECTIONS]
            theirs = [box for other, _, box in gold if other == label]
            reached = match_boxes([box for _, _, box in mine], theirs, self.get_thresholds())
            detections += [(label, item[1], bits) for item, bits in zip(mine, reached, strict=True)]
        return MatchedPair(tuple(counts.items()), tuple(detections))

    def read_detections(self, whole: object, field: str) -> list[Detection]:
        """(class, confidence, xyxy) of every item in `field`; the box is `None` if the item is not a box."""
        value = get_field(whole, field)
        if value is None:
            return []
        boxes = read_boxes(value, self.format, self.box_key, self.label_key)
        common = read_label(get_field(whole, self.label_field)) if self.label_field else ""
        if boxes is None:  # not a box: it counts, and matches nothing
            return [(common, 1.0, None)]
        stated = get_field(whole, "confidence")
        if self.box_key is None:
            return [(label or common, _read_confidence(stated), box) for box, label in boxes]
        items = [value] if isinstance(value, Mapping) else value
        return [
            (label or common, _read_confidence(stated if score is None else score), box)
            for (box, label), score in zip(boxes, [get_field(item, "confidence") for item in items], strict=True)
        ]


def _read_confidence(stated: Any) -> float:
    return 1.0 if stated is None else to_finite_float(stated) or 0.0


def match_boxes(boxes: Sequence[Box | None], gold: Sequence[Box | None], thresholds: Sequence[float]) -> list[int]:
    """Return the thresholds at which each box gets a gold box of its own, as bits: bit i for threshold i.
    `boxes` are ordered, the most confident first.

    >>> match_boxes([(0, 0, 1, 1), (0, 0, 1, 0.9)], [(0, 0, 1, 1)], [0.5, 0.95])
    [3, 0]
    """
    overlaps = [[compute_overlap(box, item) if box and item else 0.0 for item in gold] for box in boxes]
    highest = max((value for row in overlaps for value in row), default=0.0)
    reached = [0] * len(boxes)
    for bit, threshold in enumerate(thresholds):
        free = set(range(len(gold))) if reaches(highest, threshold) else set()
        for number, row in enumerate(overlaps):
            near = [(row[item], item) for item in free if reaches(row[item], threshold)]
            if near:
                free.remove(max(near)[1])  # of equal boxes the last one, as in COCO
                reached[number] |= 1 << bit
    return reached


@dataclass(frozen=True)
class MeanAveragePrecision(BoxMetric):
    """Average precision, the mean over classes, at each of `thresholds` and averaged over 0.5:0.95.
    As COCO computes it (`pycocotools.COCOeval`, all areas, 100 detections per class and answer): greedy matching by
    confidence, precision made monotone, interpolated at 101 recalls; classes without gold do not count. Detections of
    equal confidence are added at once, so that the order of the pairs does not matter; where answers state no
    confidence, all are equal. With `ties="coco"` they keep the order of the pairs, as in `pycocotools`, and the figure
    depends on it. Range: [0, 1]; NaN without gold.

    >>> gold = {"bbox": [0, 0, 10, 10]}
    >>> pairs = [({"bbox": [0, 0, 10, 10]}, gold), ({"bbox": [0, 0, 10, 4]}, gold)]
    >>> {name: round(value, 3) for name, value in MeanAveragePrecision()(pairs).items()}
    {'map@0.3': 1.0, 'map@0.5': 0.252, 'map@0.5:0.95': 0.252}
    """

    ties: Literal["together", "coco"] = "together"
    name: str = "map"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ties not in ("coco", "together"):
            raise ConfigError(describe_unknown("ties", str(self.ties), ["coco", "together"]))

    def get_thresholds(self) -> tuple[float, ...]:
        return (*self.thresholds, *COCO)

    def prepare(self, rows: Sequence[MatchedPair], groups: np.ndarray) -> PreparedMetric:
        names = [*(f"map@{threshold:g}" for threshold in self.thresholds), "map@0.5:0.95"]
        classes = _collect_classes(rows, groups, len(self.get_thresholds()), self.ties == "together")
        return _Averages(names, [_count_boxed(rows)] * len(names), classes)


@dataclass(frozen=True)
class BoxRates(BoxMetric):
    """Precision, recall and F1 of all boxes together at each of `thresholds`, matched as for average precision.
    precision = tp / detections, recall = tp / gold boxes, F1 = 2 tp / (detections + gold boxes), over all answers and
    classes. Range: [0, 1]; NaN where they divide by 0.

    >>> BoxRates(thresholds=(0.5,))([({"bbox": [[0, 0, 2, 2], [5, 5, 6, 6]]}, {"bbox": [[0, 0, 2, 2]]})])
    {'precision@0.5': 0.5, 'recall@0.5': 1.0, 'f1@0.5': 0.6666666666666666}
    """

    name: str = "box_rates"

    def prepare(self, rows: Sequence[MatchedPair], groups: np.ndarray) -> PreparedMetric:
        names = [f"{rate}@{threshold:g}" for threshold in self.thresholds for rate in ("precision", "recall", "f1")]
        stats = np.zeros((len(rows), 2 + len(self.thresholds)))  # detections, gold, and hits at each threshold
        for stat, row in zip(stats, rows, strict=True):
            stat[:2] = len(row.detections), sum(number for _, number in row.gold)
            stat[2:] = [sum(bits >> bit & 1 for _, _, bits in row.detections) for bit in range(len(self.thresholds))]
        return SumFigures(names, _count_boxed(rows), sum_by_group(stats, groups), _compute_rates)


def _count_boxed(rows: Sequence[MatchedPair]) -> int:
    """Return how many pairs have a box on either side: the others change no figure."""
    return sum(bool(row.gold or row.detections) for row in rows)


def _compute_rates(sums: np.ndarray) -> np.ndarray:
    detections, gold, hits = sums[:, :1], sums[:, 1:2], sums[:, 2:]
    rates = [divide(hits, detections), divide(hits, gold), divide(2 * hits, detections + gold)]
    return np.stack(rates, axis=2).reshape(len(sums), -1)


@dataclass(frozen=True)
class _Class:
    """One class: gold boxes by group, and its detections (D of them), the most confident first."""

    gold: np.ndarray  # (groups,)
    group: np.ndarray  # (D,)
    hits: np.ndarray  # (thresholds, D), bool
    last: np.ndarray | None  # (D,) index of the last detection of equal confidence; None: ties are not grouped


def _collect_classes(rows: Sequence[MatchedPair], groups: np.ndarray, thresholds: int, together: bool) -> list[_Class]:
    """Return the classes that have gold."""
    count = int(groups.max(initial=-1)) + 1
    labels = len({label for row in rows for label, _ in row.gold})
    if labels * count > MAX_CELLS:
        raise ConfigError(f"{labels} labels in {count} tasks; allowed: at most {MAX_CELLS:,} when multiplied")
    gold: dict[str, np.ndarray] = {}
    for group, row in zip(groups.tolist(), rows, strict=True):
        for label, number in row.gold:
            gold.setdefault(label, np.zeros(count))[group] += number
    detections: dict[str, list[tuple[int, float, int]]] = {label: [] for label in gold}
    for group, row in zip(groups.tolist(), rows, strict=True):
        for label, score, bits in row.detections:
            if label in detections:
                detections[label].append((group, score, bits))
    # sorted: sums over classes are rounded in one order, whichever episode comes first
    return [_build_class(gold[label], detections[label], thresholds, together) for label in sorted(gold)]


def _build_class(gold: np.ndarray, detections: list[tuple[int, float, int]], thresholds: int, together: bool) -> _Class:
    scores = np.array([score for _, score, _ in detections])
    order = np.argsort(-scores, kind="stable")
    group = np.array([group for group, _, _ in detections], int)[order]
    bits = np.array([bits for _, _, bits in detections], int)[order]
    hits = (bits >> np.arange(thresholds)[:, None] & 1).astype(bool)
    last = np.searchsorted(-scores[order], -scores[order], side="right") - 1 if together else None
    return _Class(gold, group, hits, last)


class _Averages:
    """Average precision of each draw; the last ten thresholds are COCO's."""

    def __init__(self, names: Sequence[str], counted: Sequence[int], classes: Sequence[_Class]) -> None:
        self.names, self.counted, self.classes = names, counted, classes
        self.effort = sum(entry.hits.size for entry in classes)

    def compute_figures(self, counts: np.ndarray) -> np.ndarray:
        block = max(1, _BLOCK // (max((len(entry.group) for entry in self.classes), default=0) + 1))
        starts = range(0, max(1, len(counts)), block)
        return np.concatenate([self._compute_block(counts[start : start + block]) for start in starts])

    def _compute_block(self, counts: np.ndarray) -> np.ndarray:
        columns = len(self.names) - 1
        classes = np.zeros((len(counts), 1))
        sums = np.zeros((len(counts), columns + len(COCO)))
        # draws are the last axis, so that a sum over detections runs over contiguous memory
        counts_by_group = np.ascontiguousarray(counts.T)
        for entry in self.classes:
            gold = entry.gold @ counts_by_group[: len(entry.gold)]
            sums += np.where(gold[:, None] > 0, _compute_precisions(entry, counts_by_group, gold), 0.0)
            classes[:, 0] += gold > 0  # a class without gold in a draw does not count there
        means = divide(sums, np.broadcast_to(classes, sums.shape))
        return np.column_stack([means[:, :columns], means[:, columns:].mean(axis=1)])


def _compute_precisions(one: _Class, counts_by_group: np.ndarray, gold: np.ndarray) -> np.ndarray:
    """Average precision of a class, (draws, thresholds). `counts_by_group`, (groups, draws), is how often each group
    was drawn; `gold`, (draws,), the number of gold boxes."""
    drawn = counts_by_group[one.group]
    seen = np.cumsum(drawn, axis=0)
    needed = _count_needed_hits(gold)
    precisions = np.zeros((len(gold), len(one.hits)))
    for i, hit in enumerate(one.hits):
        if i and np.array_equal(hit, one.hits[i - 1]):
            precisions[:, i] = precisions[:, i - 1]
        elif hit.any():
            precisions[:, i] = _compute_precision(np.flatnonzero(hit), one.last, drawn, seen, needed)
    return precisions


def _compute_precision(
    at: np.ndarray, last: np.ndarray | None, drawn: np.ndarray, seen: np.ndarray, needed: np.ndarray
) -> np.ndarray:
    """Average precision with the detections `at` as hits, (draws,)."""
    true, ends = np.cumsum(drawn[at], axis=0), at
    if last is not None:  # only the end of each tie is a point of the curve
        is_last = np.append(last[at][1:] != last[at][:-1], True)
        true, ends = true[is_last], last[at][is_last]
    detections = seen[ends]
    return _interpolate(np.divide(true, detections, out=np.zeros_like(true), where=detections > 0), true, needed)


def _count_needed_hits(gold: np.ndarray) -> np.ndarray:
    """Return the fewest hits whose recall reaches each of `RECALLS`, (draws, 101), rounded as in COCO's division."""
    whole = np.maximum(gold, 1)[:, None]
    needed = np.ceil(RECALLS * whole)
    needed = np.where((needed - 1) / whole >= RECALLS, needed - 1, needed)
    return np.asarray(np.where(needed / whole < RECALLS, needed + 1, needed))


def _interpolate(precision: np.ndarray, true: np.ndarray, needed: np.ndarray) -> np.ndarray:
    """Return the mean over recalls of the best precision at that recall or a higher one, 0 beyond the last, (draws,).
    `precision` and `true`, the hits so far, are (points, draws)."""
    best = np.zeros((len(true) + 1, len(needed)))
    np.maximum.accumulate(precision[::-1], axis=0, out=best[-2::-1])
    draw = np.arange(len(needed))[:, None]
    offset = max(true[-1].max(), needed.max()) + 1  # shifts each draw into its own range: one search serves all draws
    places = np.searchsorted((true.T + draw * offset).ravel(), (needed + draw * offset).ravel())
    at = np.clip(places.reshape(needed.shape) - draw * len(true), 0, len(true))
    return np.asarray(best[at, draw].mean(axis=1))
