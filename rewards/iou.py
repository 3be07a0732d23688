"""Scores boxes by intersection over union: one box, or many boxes matched one to one."""

import math
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from ..errors import ConfigError, Unmeasurable
from ..utils.values import normalize, reaches, to_finite_float, to_text
from . import fields
from .declare import AnswerField, Name, NonNegative, ReferenceField, RewardName, Threshold, register_reward
from .fields import Answer, Labeled, Reference, get_field, parse_box, quote_value

BoxMatch = tuple[int, int, float]  # index in the answer, index in the reference, score
_EXTRA_BOXES = 100  # an answer may have this many boxes beyond four times the gold's


def compute_iou(a: object, b: object) -> float:
    """Intersection over union of two xyxy boxes (lists or tuples, both in one unit): |a ∩ b| / |a ∪ b|, in [0, 1].
    A box is four finite numbers with x1 < x2 and y1 < y2; anything else scores 0. This is the Jaccard index, as in
    PASCAL VOC (Everingham et al. 2010) but without the extra pixel.

    >>> compute_iou((0, 0, 2, 2), (1, 0, 3, 2))
    0.3333333333333333
    >>> compute_iou((0, 0, 2, 2), (2, 2, 0, 0))
    0.0
    """
    first, second = parse_box(a, "xyxy"), parse_box(b, "xyxy")
    return 0.0 if first is None or second is None else compute_overlap(first, second)


@register_reward("iou")
class IoUReward:
    """Intersection over union of the answer's boxes and the reference's, or the F1 of pairs that reach `threshold`.

    A field holds one box, a list of boxes, or (with `box_key`) objects with a box at that key; with `label_key`, only
    boxes with equal labels can match. Boxes are never clipped. An item that is not a box counts, but never matches; if
    it is the gold's (reversed, without area, in pixels of a picture of unknown size), the reward raises `Unmeasurable`.
    A volume's boxes are (x1, y1, z1, x2, y2, z2). In the fields `places` (image, plane, slice) that the reference has,
    the answer must agree with it, or it scores 0.

    One box: s = IoU / (1 + `area_penalty` · max(0, A_answer / A_gold - 1)); with `threshold`, 1.0 if s reaches it, else
    0.0. Many boxes: one-to-one matching of greatest Σ s (Kuhn 1955; DETR, Carion et al. 2020), Σ s / max(n_answer,
    n_gold); with `threshold`, the F1 2 TP / (n_answer + n_gold) of the largest matching of pairs that reach it. If the
    gold is an empty list, an empty list scores 1.0 and anything else 0.0. An answer with more than 4 n_gold + 100 boxes
    scores 0 without being matched.

    Range: [0, 1]; {0.0, 1.0} for one box with a threshold.

    >>> reward = IoUReward("bbox")
    >>> reward({"bbox": [0, 0, 1, 1]}, {"bbox": [0, 0, 0.5, 0.5]})
    0.25
    >>> reward({"bbox": [[0, 0, 1, 1], [0, 0, 0.5, 0.5]]}, {"bbox": [0, 0, 0.5, 0.5]})
    0.5
    >>> IoUReward("bbox", area_penalty=1.0)({"bbox": [0, 0, 1, 1]}, {"bbox": [0, 0, 0.5, 0.5]})
    0.0625
    >>> IoUReward("bbox", threshold=0.5)({"bbox": [0, 0, 0.5, 0.4]}, {"bbox": [0, 0, 0.5, 0.5]})
    1.0
    """

    field: AnswerField = "bbox"
    reference_field: ReferenceField = None
    format: Annotated[
        fields.AnyBoxFormat,
        Field(
            description="what the numbers of a box mean, in the answer and in the reference; xyzxyz: boxes in a volume"
        ),
    ] = "xyxy"
    threshold: Annotated[
        Threshold | None,
        Field(description="1 if the score of a pair reaches it, else 0 (many boxes: F1); default: the score itself"),
    ] = None
    area_penalty: Annotated[
        NonNegative,
        Field(description="divides the score of a box larger than the gold by 1 + this x (area / gold area - 1)"),
    ] = 0.0
    box_key: Annotated[
        Name | None, Field(description="the key of the box in each object of a list; default: a list of bare boxes")
    ] = None
    label_key: Annotated[
        Name | None,
        Field(description="the key of the label in each object; only boxes of equal label match; needs `box_key`"),
    ] = None
    frame: Annotated[
        fields.Frame,
        Field(description="the unit of the answer's coordinates; matters only if `reference_frame` differs"),
    ] = "unit"
    reference_frame: Annotated[
        fields.Frame | None, Field(description="the unit of the reference's coordinates; default: as the answer's")
    ] = None
    places: Annotated[
        Sequence[Name],
        Field(description="fields (image, plane, slice) that must equal the reference's; [3, 5] there allows 3 to 5"),
    ] = ()
    size_field: Annotated[
        Name | None,
        Field(description="the reference's field with [width, height], to compare pixels with another frame"),
    ] = None
    name: RewardName = "iou"

    def __post_init__(self) -> None:
        if self.label_key is not None and self.box_key is None:
            raise ConfigError(f"label_key = {self.label_key!r}: needs box_key; allowed: both", key="label_key")
        frames = {self.frame, self.reference_frame or self.frame}
        if len(frames) == 2 and self.format == "xyzxyz":
            raise ConfigError("reference_frame: must be the same as frame for boxes in a volume", key="reference_frame")
        if len(frames) == 2 and "pixel" in frames and self.size_field is None:
            raise ConfigError("size_field: is missing; needed to compare pixels with another frame", key="size_field")

    def __call__(self, answer: Answer, reference: Reference) -> float:
        boxes, golds = self._read_boxes(answer, reference)
        if self.places and name_other_place(answer, reference, self.places) is not None:
            return 0.0
        if boxes is None or golds is None:
            return 0.0
        if len(boxes) == 1 == len(golds):
            score = self._score_pair(boxes[0], golds[0])
            return score if self.threshold is None else float(reaches(score, self.threshold))
        if not boxes or not golds:
            return 1.0 if not boxes and not golds else 0.0
        if len(boxes) > 4 * len(golds) + _EXTRA_BOXES:
            return 0.0
        pairs = self._match_boxes(boxes, golds)
        if self.threshold is not None:
            return 2 * len(pairs) / (len(boxes) + len(golds))
        return min(1.0, math.fsum(score for _, _, score in pairs) / max(len(boxes), len(golds)))

    def explain(self, answer: Answer, reference: Reference) -> str:
        """Return why the answer got its score, in a sentence."""
        other = name_other_place(answer, reference, self.places)
        if other is not None:
            answered, gold = get_field(answer, other), get_field(reference, other)
            return f"{self.field}: {other} is {quote_value(answered)}, the reference says {quote_value(gold)}"
        boxes, golds = self._read_boxes(answer, reference)
        if boxes is None or golds is None:
            return f"{self.field}: the {'answer' if boxes is None else 'reference'} does not hold a box"
        if len(boxes) > 4 * len(golds) + _EXTRA_BOXES:
            return f"{self.field}: {len(boxes)} boxes for {len(golds)} in the gold are too many to read"
        pairs = self._match_boxes(boxes, golds)
        scores = ", ".join(f"{score:.2f}" for _, _, score in sorted(pairs, key=lambda pair: -pair[2]))
        what = "IoU with area penalty" if self.area_penalty else "IoU"
        sentences = [f"{len(pairs)} of {len(golds)} gold boxes matched" + (f": {what} {scores}" if pairs else "")]
        if self.threshold is not None:
            sentences[0] += f" (threshold {self.threshold:g})"
        if extra := len(boxes) - len(pairs):
            sentences.append(f"{extra} of {len(boxes)} answer boxes {'is' if extra == 1 else 'are'} unmatched")
        return "; ".join(sentences)

    def _read_boxes(
        self, answer: Answer, reference: Reference
    ) -> tuple[Sequence[Labeled] | None, Sequence[Labeled] | None]:
        """Return the answer's boxes and the gold's, in one frame; `None` for a side without boxes.
        Raise `Unmeasurable` if the gold is no box."""
        gold = get_field(reference, self.reference_field or self.field)
        golds = fields.read_boxes(gold, self.format, self.box_key, self.label_key)
        max_boxes = 4 * len(golds or ()) + _EXTRA_BOXES + 1  # one more than allowed
        boxes = fields.read_boxes(get_field(answer, self.field), self.format, self.box_key, self.label_key, max_boxes)
        other = self.reference_frame or self.frame
        if other != self.frame and golds is not None:
            size = get_field(reference, self.size_field) if self.size_field else None
            golds = fields.convert_to_fractions(golds, other, size)
            fractions = fields.convert_to_fractions(boxes or (), self.frame, size)  # without boxes the size counts, too
            boxes = None if boxes is None else fractions
        fields.check_gold_boxes(golds, gold, self.format, labeled=self.label_key is not None)
        return boxes, golds

    def _match_boxes(self, boxes: Sequence[Labeled], golds: Sequence[Labeled]) -> list[BoxMatch]:
        """Return the pairs (index of the box, index of the gold, score) of the best matching, in sorted order."""
        # sorted, so that the score does not depend on the order in the answer
        boxes, golds = sorted(boxes, key=_get_sort_key), sorted(golds, key=_get_sort_key)
        if boxes == golds:
            pairs = [(i, i, self._score_pair(box, box)) for i, box in enumerate(boxes)]
            return [pair for pair in pairs if pair[2]]
        return match_pairs([[self._score_pair(box, gold) for gold in golds] for box in boxes], self.threshold)

    def _score_pair(self, answer: Labeled, gold: Labeled) -> float:
        (box, label), (gold_box, gold_label) = answer, gold
        if box is None or gold_box is None or (self.label_key is not None and (label != gold_label or not label)):
            return 0.0
        score = compute_overlap(box, gold_box)
        if self.area_penalty and score and (excess := fields.compute_area(box) / fields.compute_area(gold_box) - 1) > 0:
            score /= 1 + self.area_penalty * excess
        return score


def match_pairs(scores: Sequence[Sequence[float]], threshold: float | None = None) -> list[BoxMatch]:
    """Return the one-to-one matching with the greatest sum of `scores` (rows x columns, each >= 0).
    This is the assignment problem (Kuhn 1955), solved by scipy. With a threshold: the largest matching of pairs whose
    score reaches it. Pairs of score 0 are left out.

    >>> match_pairs([[0.9, 0.8], [0.8, 0.1]])
    [(0, 1, 0.8), (1, 0, 0.8)]
    >>> match_pairs([[0.9, 0.8], [0.8, 0.1]], 0.85)
    [(0, 0, 0.9)]
    """
    if not scores or not scores[0]:
        return []
    minimum = 0.0 if threshold is None else threshold
    if len(scores) == 1 or len(scores[0]) == 1:
        flat = [(row, column, score) for row, line in enumerate(scores) for column, score in enumerate(line)]
        best = max(flat, key=lambda pair: pair[2])
        return [best] if best[2] > 0 and reaches(best[2], minimum) else []
    from scipy.optimize import linear_sum_assignment  # slow to import, and most answers hold one box

    values = scores
    if threshold is not None:
        values = [[float(reaches(score, threshold)) for score in line] for line in scores]
    rows, columns = linear_sum_assignment(values, maximize=True)
    pairs = [(int(row), int(column), scores[row][column]) for row, column in zip(rows, columns, strict=True)]
    return [pair for pair in pairs if pair[2] > 0 and reaches(pair[2], minimum)]


def _get_sort_key(box: Labeled) -> tuple[tuple[float, ...], str]:
    return box[0] or (), box[1]


def compute_overlap(a: fields.Box, b: fields.Box) -> float:
    """`compute_iou` of two boxes that `parse_box` gave, of an image or of a volume."""
    if len(a) == 6:
        sides = [min(a[i + 3], b[i + 3]) - max(a[i], b[i]) for i in range(3)]
        shared = math.prod(sides) if min(sides) > 0 else 0.0
    else:
        width = min(a[2], b[2]) - max(a[0], b[0])
        height = min(a[3], b[3]) - max(a[1], b[1])
        shared = width * height if width > 0 and height > 0 else 0.0
    if shared <= 0:
        return 0.0
    small, large = fields.compute_area(a), fields.compute_area(b)
    if small > large:
        small, large = large, small
    # in this order, rounding never exceeds 1, and equal boxes score exactly 1
    return shared / (large + (small - shared))


MAX_PLACE = 100  # characters of a place; longer text is none


def name_other_place(answer: object, reference: object, places: Sequence[str]) -> str | None:
    """Return the first of the fields `places` in which an answer differs from the reference; `None` if it differs in
    none. A field that the reference does not have is not compared. A list of two numbers in the reference is the first
    and the last value that count. Raise `Unmeasurable` if no value can agree with the reference.

    >>> name_other_place({"slice": 4, "plane": "Axial"}, {"slice": [3, 5], "plane": "axial"}, ["slice", "plane"])
    >>> name_other_place({"slice": 4}, {"slice": 3}, ["slice"])
    'slice'
    """
    for field in places:
        gold, answered = get_field(reference, field), get_field(answer, field)
        if gold is None:
            continue
        if isinstance(gold, list | tuple):
            first, last = map(to_finite_float, gold) if len(gold) == 2 else (None, None)
            if first is None or last is None or first > last:
                raise Unmeasurable(f"{field} of the reference is {quote_value(gold)}; allowed: [first, last]")
            number = to_finite_float(answered)
            if number is None or not first <= number <= last:
                return field
        elif not normalize(gold).text:
            raise Unmeasurable(f"{field} of the reference is {quote_value(gold)}, which no answer can name")
        elif normalize(to_text(answered)[:MAX_PLACE]).text != normalize(gold).text:
            return field
    return None
