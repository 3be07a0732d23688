"""The fields of a task, and one row with its fields mapped and checked."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Literal, NamedTuple

from ...core.parsing.json_text import MAX_DEPTH
from ...errors import BadRow
from ...rewards.fields import MAX_TEXT as LONGEST
from ...utils.frozen import FrozenDict
from ...utils.values import fold_text, is_null, normalize, read_number, to_text
from .columns import ColumnMap, ExpressionError
from .settings import BoxForm

MAX_TEXT = 50_000  # characters of a text that the model or a reward reads
TOLERANCE = 0.005  # of the image: boxes that stick out by less are cut off at its edge
FAR = 1.5  # sides of the image beyond which a box is probably in another unit
TOPS = {"unit": 1 + TOLERANCE, "per_mille": 1000.0, "pixel": inf}
LARGEST = 2**15  # pixels a side that a picture is taken to have whose size is not known

_NESTED = (list, tuple, dict)
Kind = Literal["text", "number", "index", "list", "box", "boxes", "answers", "any"]
Box = tuple[float, ...]
Measure = Callable[["MappedRow", str], "BoxFrame | None"]


class BoxFrame(NamedTuple):
    """What the boxes of a row count in."""

    sides: tuple[int, ...]  # in pixels, along the axes of the dataset: x and y, or i, j and k
    axes: tuple[tuple[int, bool], ...] = ((0, False), (1, False))  # for each axis shown: which of these; backwards?


@dataclass(frozen=True)
class TaskField:
    """A field that a mapping may give.

    Args:
        place: the part of the task that holds it.
        kind: text (also a number, as text), number, index (a whole number from 0, or the first and last of several),
            list, box, boxes (a list of boxes), answers (a list of accepted ones), or any value.
        required: a mapping must give it, and every row must have it.
        allowed: the texts that it may be; empty: any.
        description: for the documentation.
    """

    place: Literal["prompt", "reference", "metadata"]
    kind: Kind = "any"
    required: bool = True
    allowed: tuple[str, ...] = ()
    description: str = ""


@dataclass(frozen=True)
class MappedRow:
    """One row, read by the fields of a task. Every `read` raises `BadRow` for a value that cannot be used.

    Args:
        place: of the row, for messages, such as "line 7".
        row: the columns as they are stored.
        measure_image: takes the row and the field of a box, and returns the frame of the picture that the box lies on;
            None if it is not known and not needed. Raises `BadRow` if the row does not say which picture that is.
        others: the further rows of its group, whose lists and boxes are joined to its own; None: rows have no groups.
    """

    dataset: str
    place: str
    row: Mapping[str, Any]
    columns: ColumnMap
    boxes: BoxForm
    measure_image: Measure
    others: "tuple[MappedRow, ...] | None" = None

    def get(self, field: str) -> Any:
        """Return the value of a field as it is stored; None if the mapping or the row has none."""
        try:
            value = self.columns.read(field, self.row)
        except ExpressionError as error:
            raise self.refuse(field, None, str(error)) from error
        return self._check_depth(field, value)

    def _check_depth(self, field: str, value: Any) -> Any:
        layer = [value]
        for _ in range(MAX_DEPTH + 1):
            inside = [item.values() if isinstance(item, dict) else item for item in layer if isinstance(item, _NESTED)]
            layer = [member for items in inside for member in items]
            if not layer:
                return value
        raise self.refuse(field, "nested too deep", f"at most {MAX_DEPTH} lists and objects inside each other")

    def refuse(self, field: str, given: object, expected: str) -> BadRow:
        return BadRow(self.dataset, self.place, self.columns.described.get(field, field), given, expected)

    def read(self, name: str, field: TaskField) -> Any:
        """Return the value of a field, checked; None if it has none and needs none. Of a group, that of all rows."""
        value, is_joined = self._read_own(name, field), field.place == "reference" and field.kind in ("list", "boxes")
        for other in self.others or ():
            more = other._read_own(name, field)
            if is_joined and more is not None:
                value = [*(value or ()), *more]
            elif more != value and not is_joined:
                raise other.refuse(name, more, f"that of {self.place}, which is of its group: {value!r:.200}")
        return value

    def _read_own(self, name: str, field: TaskField) -> Any:
        value = self.get(name)
        if is_null(value):
            if field.required:
                raise self.refuse(name, value, _KINDS[field.kind][0])
            return None
        value = _KINDS[field.kind][1](self, name, value)
        if field.place == "reference" and isinstance(value, str) and len(value) > LONGEST:
            raise self.refuse(name, value, f"text of at most {LONGEST:,} characters, which is what rewards compare")
        if not field.allowed:
            return value
        known = {normalize(text).text: text for text in field.allowed}
        for item in value if isinstance(value, list) else [value]:
            if normalize(item).text not in known:
                raise self.refuse(name, item, f"one of: {', '.join(field.allowed)}")
        return value if isinstance(value, list) else known[normalize(value).text]

    def _read_box(self, name: str, box: Any) -> Box:
        box = self._read_list(name, box)
        form, unit = self.boxes.format, self.boxes.unit
        half = 3 if form == "xyzxyz" else 2
        numbers = [read_number(value) for value in box]
        if len(numbers) != 2 * half or None in numbers:
            raise self.refuse(name, box, f"a box of {'six' if half == 3 else 'four'} numbers, as {form}")
        values = written = [float(number or 0) for number in numbers]
        if form == "xywh":
            values = [*written[:2], written[0] + written[2], written[1] + written[3]]
        if any(start >= end for start, end in zip(values[:half], values[half:], strict=True)):
            hint = " (perhaps data.boxes.format: xywh)" if form == "xyxy" and min(values) >= 0 < min(values[2:]) else ""
            raise self.refuse(name, box, f"a box with positive sides, as {form}{hint}")
        frame = self.measure_image(self, name)
        if frame is None and unit == "pixel":  # the image is not opened yet
            return tuple(values)
        frame = frame or BoxFrame((), tuple((axis, False) for axis in range(half)))
        sides = frame.sides if unit == "pixel" else (1000.0 if unit == "per_mille" else 1.0,) * half
        fractions = [value / side for value, side in zip(values, (*sides, *sides), strict=True)]
        if min(fractions) < -TOLERANCE or max(fractions) > 1 + TOLERANCE:
            where = f"the {'volume' if half == 3 else 'image'} of {'x'.join(f'{side:g}' for side in sides)} pixels"
            where = where if unit == "pixel" else f"0 to {sides[0]:g}"
            is_near = unit == "pixel" and max(fractions) < FAR
            hint = "" if is_near else _suggest_unit(values, ("per_mille", "pixel"), unit)
            fits = (0 <= start < end <= side for start, end, side in zip(written, written[2:], sides, strict=False))
            if form == "xywh" and all(fits):
                hint = " (perhaps data.boxes.format: xyxy)"
            raise self.refuse(name, box, f"a box inside {where}, as {form}{hint}")
        fractions = [min(max(value, 0.0), 1.0) for value in fractions]
        starts, ends = fractions[:half], fractions[half:]
        lengths = zip(starts, ends, frame.sides or [LARGEST] * half, strict=True)
        is_small = any((end - start) * side < 1 - 1e-6 for start, end, side in lengths)  # but for rounding
        if is_small or (unit == "per_mille" and max(values) <= 1):  # in the first thousandth: not meant so
            least, hint = "voxel" if half == 3 else "pixel", _suggest_unit(values, ("unit",), unit)
            raise self.refuse(name, box, f"a box with sides of at least one {least}, as {form} in {unit}{hint}")
        turned = [(1 - ends[i], 1 - starts[i]) if is_back else (starts[i], ends[i]) for i, is_back in frame.axes]
        return tuple(side for sides in zip(*turned, strict=True) for side in sides)

    def _read_text(self, name: str, value: Any) -> str:
        if not isinstance(value, str | int | float):
            raise self.refuse(name, value, "text")
        cells: Mapping[str, str] = getattr(self.row, "written", {})
        text = cells.get(self.columns.plain.get(name, "")) or to_text(value)
        if len(text) > MAX_TEXT:
            raise self.refuse(name, value, f"text of at most {MAX_TEXT:,} characters")
        if not fold_text(text):
            raise self.refuse(name, value, "text that is not blank")
        return text

    def _read_number(self, name: str, value: Any) -> float:
        number = read_number(value)
        if number is None:
            raise self.refuse(name, value, "a number")
        return number

    def read_index(self, name: str, value: object) -> int | list[int]:
        if isinstance(value, list | tuple) and len(value) == 2:
            ends = [self.read_index(name, end) for end in value]
            if isinstance(ends[0], int) and isinstance(ends[1], int) and ends[0] <= ends[1]:
                return [ends[0], ends[1]]
        number = read_number(value)
        if number is None or number < 0 or number != int(number):
            raise self.refuse(name, value, "a whole number from 0, or the first and the last of several")
        return int(number)

    def _read_list(self, name: str, value: Any) -> list[Any]:
        if isinstance(value, str) and value.lstrip().startswith("["):
            value = self._parse_json(name, value)
        elif isinstance(value, str | int | float) and self.others is not None:  # a label in each row of a group
            return [value]
        if not isinstance(value, list | tuple):
            raise self.refuse(name, value, "a list, or one item a row with data.group")
        return list(value)

    def _read_boxes(self, name: str, value: Any) -> list[Box]:
        boxes = self._read_list(name, value)
        if boxes and self.others is not None and all(map(is_null, boxes)):  # a row of a group without a box
            return []
        boxes = [boxes] if boxes and not isinstance(boxes[0], list | tuple) else boxes
        if len(boxes) > MAX_BOXES:
            raise self.refuse(name, f"{len(boxes)} boxes", f"at most {MAX_BOXES} boxes")
        return [self._read_box(name, box) for box in boxes]

    def _read_answers(self, name: str, value: Any) -> list[str | int | float]:
        """Return the accepted answers: of a text, a number, true or false, a list of them, or of {text, correct}."""
        if isinstance(value, str) and value.lstrip().startswith(('["', "['")):  # a list as JSON, or as Python writes it
            value = self._read_list(name, value)
        items = list(value) if isinstance(value, list | tuple) else [value]
        if all(isinstance(item, Mapping) for item in items):
            items = [item.get("text") for item in items if normalize(item.get("correct")).text in ("yes", "1")]
        answers = [("no", "yes")[item] if isinstance(item, bool) else item for item in items]
        if not answers or not all(normalize(item).text and len(to_text(item)) <= LONGEST for item in answers):
            raise self.refuse(name, value, f"a text, a number, or a list of them, of at most {LONGEST:,} characters")
        return answers

    def _parse_json(self, name: str, text: str) -> Any:
        if len(text) <= MAX_TEXT:
            try:
                return self._check_depth(name, json.loads(text))
            except (ValueError, RecursionError) as error:
                if isinstance(error, BadRow):
                    raise
        raise self.refuse(name, text, "a list, or JSON text of one")


_KINDS: Mapping[Kind, tuple[str, Callable[[MappedRow, str, Any], Any]]] = {  # what is expected, and what reads it
    "text": ("text", MappedRow._read_text),
    "number": ("a number", MappedRow._read_number),
    "index": ("a whole number from 0", MappedRow.read_index),
    "list": ("a list", MappedRow._read_list),
    "box": ("a box of four numbers", MappedRow._read_box),
    "boxes": ("a list of boxes", MappedRow._read_boxes),
    "answers": ("a value", MappedRow._read_answers),
    "any": ("a value", lambda row, name, value: row._read_text(name, value) if isinstance(value, str) else value),
}


def _suggest_unit(box: Sequence[float], units: Sequence[str], declared: str) -> str:
    """Return which of these units the numbers of a box fit, as the end of a message."""
    fitting = [unit for unit in units if unit != declared and min(box) >= 0 and max(box) <= TOPS[unit]]
    return f" (perhaps data.boxes.unit: {' or '.join(fitting)})" if fitting else ""


MAX_BOXES = 300  # of an answer, and of a row
TEXT: Mapping[str, Any] = FrozenDict(type="string")
BOX: Mapping[str, Any] = FrozenDict(type="array", items={"type": "number"}, minItems=4, maxItems=4)
BOX_3D: Mapping[str, Any] = FrozenDict(type="array", items={"type": "number"}, minItems=6, maxItems=6)
INDEX: Mapping[str, Any] = FrozenDict(type=["integer", "null"])


def build_boxes(*, labeled: bool = False, classes: Sequence[str] = (), box: Mapping[str, Any] = BOX) -> dict[str, Any]:
    """Return a list of boxes, or of objects with `label` and `box`; `classes` are the allowed labels, empty: any."""
    if not labeled:
        return {"type": "array", "items": box, "maxItems": MAX_BOXES}
    label = {"type": "string", "enum": list(classes)} if classes else TEXT
    item = {"type": "object", "properties": {"label": label, "box": box}, "required": ["label", "box"]}
    return {"type": "array", "items": item, "maxItems": MAX_BOXES}


def build_object(properties: Mapping[str, object]) -> Mapping[str, object]:
    return FrozenDict(type="object", properties=dict(properties), required=list(properties))
