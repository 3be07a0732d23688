"""Reads boxes from untrusted fields, and converts them to one frame."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from viewbox.rewards.base import get_field, to_finite_float
from viewbox.rewards.text import normalize_label, to_text

Box = tuple[float, float, float, float]  # x1, y1, x2, y2
Labeled = tuple[Box | None, str]  # None: it counts, but matches nothing
BoxFormat = Literal["xyxy", "xywh"]
Frame = Literal["unit", "per_mille", "pixel"]
_LISTS = (list, tuple)  # isinstance is slower with list | tuple
_LONGEST_LABEL = 1000  # characters; longer text is not a label


def read_boxes(
    value: Any,
    format: BoxFormat,
    box_key: str | None = None,
    label_key: str | None = None,
    max_boxes: int | None = None,
) -> Sequence[Labeled] | None:
    """Read one box, a list of boxes, or a list of objects with a box; `None` if the value is none of these.

    Only the first `max_boxes` are read.

    >>> read_boxes([0, 0, 1, 1], "xyxy")
    [((0.0, 0.0, 1.0, 1.0), '')]
    >>> read_boxes([{"at": [0, 0, 1, 1], "is": "Cyst"}, "left"], "xyxy", "at", "is")
    [((0.0, 0.0, 1.0, 1.0), 'cyst'), (None, '')]
    >>> read_boxes("left", "xyxy") is None
    True
    """
    if box_key is None and (box := parse_box(value, format)) is not None:
        return [(box, "")]
    if isinstance(value, Mapping):
        return None if box_key is None else [_read_object(value, format, box_key, label_key)]
    if not isinstance(value, _LISTS):
        return None
    if box_key is not None:
        return [_read_object(item, format, box_key, label_key) for item in value[:max_boxes]]
    if value and not isinstance(value[0], _LISTS):
        return None  # a flat list that is not a box
    return [(parse_box(item, format), "") for item in value[:max_boxes]]


def parse_box(value: Any, format: str) -> Box | None:
    """The box as xyxy floats; `None` unless it is a box of positive, finite area."""
    if not isinstance(value, _LISTS) or len(value) != 4:
        return None
    x1, y1, x2, y2 = map(to_finite_float, value)
    if x1 is None or y1 is None or x2 is None or y2 is None:
        return None
    if format == "xywh":
        x2, y2 = x1 + x2, y1 + y2
    if not (x1 < x2 and y1 < y2 and 0 < (x2 - x1) * (y2 - y1) < 1e300):
        return None
    return x1, y1, x2, y2


def convert_to_fractions(boxes: Sequence[Labeled], frame: Frame, size: Any) -> list[Labeled] | None:
    """The boxes as fractions of the image; `None` if they are pixels and `size` is not [width, height].

    >>> convert_to_fractions([((0, 0, 500, 250), "")], "per_mille", None)
    [((0.0, 0.0, 0.5, 0.25), '')]
    >>> convert_to_fractions([((0, 0, 320, 240), "")], "pixel", [640, 480])
    [((0.0, 0.0, 0.5, 0.5), '')]
    """
    if frame == "unit":
        return list(boxes)
    across: float | None = 1000.0
    down: float | None = 1000.0
    if frame == "pixel":
        two = isinstance(size, _LISTS) and len(size) == 2
        across, down = (to_finite_float(size[0]), to_finite_float(size[1])) if two else (None, None)
    if across is None or down is None or across < 1 or down < 1:
        return None
    converted: list[Labeled] = []
    for box, label in boxes:
        # a box whose area vanishes becomes None
        scaled = None if box is None else (box[0] / across, box[1] / down, box[2] / across, box[3] / down)
        converted.append((parse_box(scaled, "xyxy"), label))
    return converted


def compute_area(box: Box) -> float:
    """Width times height, in the square of the box's own unit."""
    return (box[2] - box[0]) * (box[3] - box[1])


def _read_object(value: Any, format: BoxFormat, box_key: str, label_key: str | None) -> Labeled:
    label = "" if label_key is None else to_text(get_field(value, label_key))
    return parse_box(get_field(value, box_key), format), normalize_label(label) if len(label) <= _LONGEST_LABEL else ""
