"""The fields of a task, and one row with its fields mapped and checked."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal, NoReturn

from viewbox.envs.data.columns import ColumnMap, ExpressionError
from viewbox.envs.data.settings import BoxForm
from viewbox.envs.parsing.strict_json import MAX_DEPTH
from viewbox.errors import BadRow

MAX_TEXT = 50_000  # characters of a text that the model or a reward reads
TOLERANCE = 0.005  # of the image: boxes that stick out by less are cut off at its edge

_NESTED = (list, tuple, dict)
Kind = Literal["text", "number", "list", "box", "boxes", "any"]
Box = tuple[float, float, float, float]
Size = Callable[[], tuple[int, int]]


@dataclass(frozen=True)
class TaskField:
    """A field that a mapping may give.

    Args:
        place: the part of the task that holds it.
        kind: text (also a number, as text), number, list, box, boxes (a list of boxes), or any value.
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
        dataset: its name.
        place: of the row, for messages: a number, or text such as "line 7".
        row: the columns as they are stored.
        columns: the mapping.
        boxes: how the dataset writes boxes.
        measure_image: returns (width, height) of the original image in pixels.
    """

    dataset: str
    place: int | str
    row: Mapping[str, Any]
    columns: ColumnMap
    boxes: BoxForm
    measure_image: Size

    def get(self, field: str) -> Any:
        """The value of a field as it is stored; None if the mapping or the row has none."""
        try:
            value = self.columns.read(field, self.row)
        except ExpressionError as error:
            raise self.refuse(field, None, str(error)) from error
        return self._check_depth(field, value)

    def _check_depth(self, field: str, value: Any) -> Any:
        """The value; raises `BadRow` if no record could hold it."""
        layer = [value]
        for _ in range(MAX_DEPTH + 1):
            inside = [item.values() if isinstance(item, dict) else item for item in layer if isinstance(item, _NESTED)]
            layer = [one for items in inside for one in items]
            if not layer:
                return value
        raise self.refuse(field, "nested too deep", f"at most {MAX_DEPTH} lists and objects inside each other")

    def refuse(self, field: str, given: Any, expected: str) -> BadRow:
        """The error for a value of a field, which names the column it came from."""
        return BadRow(self.dataset, self.place, self.columns.described.get(field, field), given, expected)

    def read(self, name: str, field: TaskField) -> Any:
        """The value of a field, checked; None if it has none and needs none."""
        value = self.get(name)
        if value is None or value == "":
            if field.required:
                raise self.refuse(name, value, _KINDS[field.kind])
            return None
        if field.kind == "text":
            value = self._read_text(name, value)
        elif field.kind == "number":
            value = self._read_number(name, value)
        elif field.kind == "list":
            value = self._read_list(name, value)
        elif field.kind == "box":
            value = self.read_box(name, self._read_list(name, value))
        elif field.kind == "boxes":
            value = [self.read_box(name, box) for box in self._read_boxes(name, value)]
        elif isinstance(value, str):
            value = self._read_text(name, value)
        if field.allowed:
            for item in value if isinstance(value, list) else [value]:
                if item not in field.allowed:
                    raise self.refuse(name, item, f"one of: {', '.join(field.allowed)}")
        return value

    def read_box(self, name: str, box: Any) -> Box:
        """A box of the dataset as fractions of the image."""
        numbers = [_to_float(value) for value in box] if isinstance(box, list | tuple) else []
        if len(numbers) != 4 or None in numbers:
            raise self.refuse(name, box, "a box of four numbers")
        x1, y1, x2, y2 = (float(number or 0) for number in numbers)
        if self.boxes.format == "xywh":
            x2, y2 = x1 + x2, y1 + y2
        across, down = 1.0, 1.0
        if self.boxes.unit == "per_mille":
            across, down = 1000.0, 1000.0
        elif self.boxes.unit == "pixel":
            across, down = map(float, self.measure_image())
        fractions = x1 / across, y1 / down, x2 / across, y2 / down
        if not (x1 < x2 and y1 < y2):
            raise self.refuse(name, box, f"a box with a positive width and height, as {self.boxes.format}")
        if min(fractions) < -TOLERANCE or max(fractions) > 1 + TOLERANCE:
            where = f"the image of {across:g}x{down:g} pixels" if self.boxes.unit == "pixel" else f"0 to {across:g}"
            raise self.refuse(name, box, f"a box inside {where}, as {self.boxes.format}")
        left, top, right, bottom = (min(max(value, 0.0), 1.0) for value in fractions)
        return left, top, right, bottom

    def _read_text(self, name: str, value: Any) -> str:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise self.refuse(name, value, "text")
        text = str(value)
        if len(text) > MAX_TEXT:
            raise self.refuse(name, value, f"text of at most {MAX_TEXT:,} characters")
        if not text.strip():
            raise self.refuse(name, value, "text that is not blank")
        return text

    def _read_number(self, name: str, value: Any) -> float:
        number = _to_float(value)
        if number is None:
            raise self.refuse(name, value, "a number")
        return number

    def _read_list(self, name: str, value: Any) -> list[Any]:
        if isinstance(value, str) and value.lstrip().startswith("["):
            value = self._parse_json(name, value)
        if not isinstance(value, list | tuple):
            raise self.refuse(name, value, "a list")
        return list(value)

    def _read_boxes(self, name: str, value: Any) -> Sequence[Any]:
        boxes = self._read_list(name, value)
        return [boxes] if boxes and not isinstance(boxes[0], list | tuple) else boxes

    def _parse_json(self, name: str, text: str) -> Any:
        if len(text) <= MAX_TEXT:
            try:
                return self._check_depth(name, json.loads(text))
            except (ValueError, RecursionError) as error:
                if isinstance(error, BadRow):
                    raise
        raise self.refuse(name, text, "a list, or JSON text of one")


_KINDS: Mapping[Kind, str] = {
    "text": "text",
    "number": "a number",
    "list": "a list",
    "box": "a box of four numbers",
    "boxes": "a list of boxes",
    "any": "a value",
}


def _to_float(value: Any) -> float | None:
    """A finite number; text of one counts, because a spreadsheet may hold numbers as text."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if isfinite(number) else None


def fail_to_measure() -> NoReturn:
    """The `measure_image` of a row whose images must not be opened yet."""
    raise ImageNeeded


class ImageNeeded(Exception):
    """A value can only be checked once the image is open."""
