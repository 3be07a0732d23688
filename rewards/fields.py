"""How rewards read the fields of an answer: values, numbers, texts and boxes.

Answers come from a model and are not trusted: reading never raises. A field that is missing, or does not hold what is
read, is `None` (or an empty text). Texts and numbers compare in the normal form of `utils/values.py`. A reference that
no answer can meet raises `Unmeasurable`.
"""

import math
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ..errors import Unmeasurable
from ..utils.field_paths import follow_path
from ..utils.frozen import sort_set
from ..utils.values import fold_text, normalize, to_finite_float, to_text

Answer = Mapping[str, Any] | None  # the checked final answer of a model; None: there is none
Reference = Mapping[str, Any]  # of a task
Box = tuple[float, ...]  # x1, y1, x2, y2; of a volume x1, y1, z1, x2, y2, z2
Labeled = tuple[Box | None, str]  # None: it counts, but matches nothing
BoxFormat = Literal["xyxy", "xywh"]
AnyBoxFormat = Literal["xyxy", "xywh", "xyzxyz"]
Frame = Literal["unit", "per_mille", "pixel"]
_LISTS = (list, tuple)  # isinstance is slower with list | tuple
LONGEST_LABEL = 1000  # characters; longer text is not a label
MAX_TEXT = 16_384  # characters of a text that is compared; a longer answer scores 0, a longer gold is no gold
_MAX_QUOTE = 60  # characters of a text that an explanation quotes


def get_field(mapping: object, field: str) -> Any:
    """Return the value at `field`, a path as of a column (`follow_path`); `None` if there is no value.

    >>> get_field({"findings": [{"label": "nodule"}]}, "findings.0.label")
    'nodule'
    >>> get_field({"finding": "nodule"}, "finding.label") is None
    True
    """
    if isinstance(mapping, dict) and "." not in field:  # the common case
        return mapping.get(field)
    return follow_path(mapping, field)


def to_items(value: object, max_items: int | None = None) -> Sequence[Any] | None:
    """Return the first `max_items` items of a list; a scalar counts as a list of one item. `None` for anything else.

    >>> to_items(["a", "b"]), to_items("a"), to_items(None), to_items([]), to_items({"a": 1})
    (['a', 'b'], ['a'], None, [], None)
    """
    if isinstance(value, list | tuple):
        return value if max_items is None else value[:max_items]
    if isinstance(value, set | frozenset):
        return sort_set(value)
    return [value] if isinstance(value, str | int | float) and value != "" else None


def get_accepted_values(value: Any) -> list[object]:
    """Return the accepted values of a gold field: one scalar, or a list of them.
    Values without text are left out, and so are those of more than `MAX_TEXT` characters; raise `Unmeasurable` if there
    are no others, but such ones, objects or lists."""
    if type(value) is str and 0 < len(value) <= MAX_TEXT:  # the common case
        return [value]
    values = value if isinstance(value, list | tuple | set | frozenset) else [value]
    texts = [item for item in values if to_text(item)]
    accepted = [item for item in texts if len(to_text(item)) <= MAX_TEXT]
    unusable = () if accepted else texts or [item for item in values if item and isinstance(item, (Mapping, *_LISTS))]
    if unusable:
        raise Unmeasurable(f"the reference has {quote_value(unusable[0])}; allowed: a text, a number or a list of them")
    return accepted


def read_label(value: object) -> str:
    """Return the label of a scalar, normalized; empty if the value is not a label.

    >>> read_label(" Seven. "), read_label(7), read_label(["seven"]), read_label("x" * 2000)
    ('seven', '7', '', '')
    """
    text = to_text(value)
    return "" if len(text) > LONGEST_LABEL else normalize(text).text


def read_gold_label(value: object) -> str:
    """Return the label of a reference, as `read_label` does; raise `Unmeasurable` if it is none."""
    if label := read_label(value):
        return label
    raise Unmeasurable(f"a label of the reference is {quote_value(value)}, which no answer can name")


def list_golds(value: object) -> Sequence[Any] | None:
    """Return the items of a gold field, as `to_items` does; None if it is empty, `Unmeasurable` if it has no items."""
    items = to_items(value)
    if items is None and value is not None and not isinstance(value, str):
        raise Unmeasurable(f"the reference has {quote_value(value)}, which is no list")
    return items


def read_confidence(value: object, scale: float) -> float | None:
    """Return a confidence in [0, 1], from a number in [0, `scale`]; None for anything else, text included.

    >>> read_confidence(90, 100), read_confidence(90, 1), read_confidence("0.9", 1)
    (0.9, None, None)
    """
    number = to_finite_float(value)
    return number / scale if number is not None and 0 <= number <= scale else None


def has_content(value: object) -> bool:
    """Return whether a field says anything: text that can be seen, a number, or a list or mapping with such a value.
    Of a text, the first `MAX_TEXT` characters are read.

    >>> [has_content(value) for value in (None, " ", "\u200b", [""], {}, {"a": [None]}, 0, False, "x")]
    [False, False, False, False, False, False, True, True, True]
    """
    waiting = [value]
    while waiting:  # no recursion: an answer may be nested to any depth
        item = waiting.pop()
        if isinstance(item, str):
            if fold_text(item[:LONGEST_LABEL]) or fold_text(item[:MAX_TEXT]):
                return True
        elif isinstance(item, Mapping):
            waiting += item.values()
        elif isinstance(item, list | tuple | set | frozenset):
            waiting += item
        elif item is not None:
            return True
    return False


def quote_value(value: object) -> str:
    """Return the value of a field, as an explanation quotes it.

    >>> quote_value("No tumour"), quote_value(None), quote_value([1, 2])
    ("'No tumour'", 'nothing', '[1, 2]')
    """
    if value is None or (isinstance(value, str) and not value):
        return "nothing"
    if isinstance(value, str):
        size = f" ({len(value):,} characters; at most {MAX_TEXT:,} are compared)" if len(value) > MAX_TEXT else ""
        return repr(value if len(value) <= _MAX_QUOTE else value[:_MAX_QUOTE] + "…") + size
    return reprlib.repr(value)


def read_boxes(
    value: object,
    format: AnyBoxFormat,
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


def parse_box(value: object, format: str) -> Box | None:
    """Return the box as xyxy (or xyzxyz) floats; `None` unless it is a box of positive, finite area (or volume)."""
    if format == "xyzxyz":
        return _parse_box_3d(value)
    if not isinstance(value, _LISTS) or len(value) != 4:
        return None
    x1, y1, x2, y2 = value
    if not type(x1) is type(y1) is type(x2) is type(y2) is float:
        x1, y1, x2, y2 = map(to_finite_float, value)
        if x1 is None or y1 is None or x2 is None or y2 is None:
            return None
    if format == "xywh":
        x2, y2 = x1 + x2, y1 + y2
    if not (x1 < x2 and y1 < y2 and 0 < (x2 - x1) * (y2 - y1) < 1e300):  # no NaN or infinity passes
        return None
    return x1, y1, x2, y2


def _parse_box_3d(value: Any) -> Box | None:
    if not isinstance(value, _LISTS) or len(value) != 6:
        return None
    numbers = [to_finite_float(item) for item in value]
    if any(number is None for number in numbers):
        return None
    box = tuple(number for number in numbers if number is not None)
    sides = [box[i + 3] - box[i] for i in range(3)]
    return box if min(sides) > 0 and 0 < math.prod(sides) < 1e300 else None


def convert_to_fractions(boxes: Sequence[Labeled], frame: Frame, size: Any) -> list[Labeled]:
    """Return the boxes as fractions of the image.
    Raise `Unmeasurable` if they are pixels and `size`, of the reference, is not [width, height].

    >>> convert_to_fractions([((0, 0, 500, 250), "")], "per_mille", None)
    [((0.0, 0.0, 0.5, 0.25), '')]
    >>> convert_to_fractions([((0, 0, 320, 240), "")], "pixel", [640, 480])
    [((0.0, 0.0, 0.5, 0.5), '')]
    """
    if frame == "unit":
        return list(boxes)
    sides = size if frame == "pixel" else (1000.0, 1000.0)
    across, down = map(to_finite_float, sides) if isinstance(sides, _LISTS) and len(sides) == 2 else (None, None)
    if across is None or down is None or across < 1 or down < 1:
        raise Unmeasurable(f"the size in the reference is {quote_value(size)}; needed for pixels: [width, height]")
    converted: list[Labeled] = []
    for box, label in boxes:
        # a box whose area vanishes becomes None
        scaled = None if box is None else (box[0] / across, box[1] / down, box[2] / across, box[3] / down)
        converted.append((parse_box(scaled, "xyxy"), label))
    return converted


def check_gold_boxes(golds: Sequence[Labeled] | None, value: object, format: AnyBoxFormat, labeled: bool) -> None:
    """Raise `Unmeasurable` if what was read of a reference's `value` is no box, or holds one without a box or label."""
    for box, label in golds if golds is not None else () if value is None else ((None, ""),):
        if box is None or (labeled and not label):
            allowed = f"boxes as {format}, the sides above 0{', each with a label' if labeled else ''}"
            raise Unmeasurable(f"the reference has {quote_value(value)}; allowed: {allowed}")


def compute_area(box: Box) -> float:
    """Width times height, in the square of the box's own unit; of a box in a volume also times depth."""
    if len(box) == 6:
        return (box[3] - box[0]) * (box[4] - box[1]) * (box[5] - box[2])
    return (box[2] - box[0]) * (box[3] - box[1])


def _read_object(value: Any, format: AnyBoxFormat, box_key: str, label_key: str | None) -> Labeled:
    return parse_box(get_field(value, box_key), format), read_label(get_field(value, label_key)) if label_key else ""
